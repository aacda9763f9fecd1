//! The operations: their names, the right each needs, and where its arguments name a collection. The one place for all
//! three.

use crate::limits;
use crate::request::Action;
use crate::tcp::process::Envelope;
use crate::tcp::reader::{ArgsError, ArgsReader};

/// An operation of the protocol.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// As sent.
    pub name: &'static str,
    /// What it is.
    pub op: Op,
    /// The right it needs.
    pub right: Right,
    /// Where its arguments name a collection.
    pub resource: Resource,
}

/// What decodes the arguments of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// [`crate::tcp::kv`].
    Kv(KvOp),
    /// [`crate::tcp::kv_query`]; not registered unless the server was asked to serve them.
    KvQuery(KvQueryOp),
    /// [`crate::tcp::process`].
    Process(ProcessOp),
    /// [`crate::tcp::process::decode_partition`].
    Partition(PartitionOp),
    /// [`crate::tcp::vector`].
    Vector(VectorOp),
    /// Part of the protocol, but of nothing that this build has.
    Absent,
}

/// The right an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// This one.
    Of(Action),
    /// That of the operation inside.
    OfInner,
}

/// Where arguments name what the right is needed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Nowhere: the node as a whole, which only a pattern for everything grants.
    Node,
    /// `s8 collection` comes first.
    First,
    /// `s8 collection` comes after a byte of flags.
    AfterFlags,
}

/// Operations on keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it; layouts are in `kv`")]
pub enum KvOp {
    Get,
    Put,
    Del,
    Expire,
    Incr,
    IncrEx,
    SetNx,
    GetSet,
    GetDel,
    Exists,
    Persist,
    Ttl,
    Cas,
    Cad,
    Caex,
    Mget,
    PutBatch,
    Flush,
    Operate,
}

/// Operations on keys as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it; layouts are in `kv_query`")]
pub enum KvQueryOp {
    Query,
    IndexSet,
    IndexList,
}

/// Operations on the process and its registries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it; layouts are in `process`")]
pub enum ProcessOp {
    Ping,
    Ready,
    Metrics,
    KvMetrics,
    ReplMetrics,
    Collections,
    KeysAdd,
    KeysRevoke,
    KeysList,
    AliasBatch,
    AliasList,
    Envelope,
}

/// Operations on partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it; layouts are in `process`")]
pub enum PartitionOp {
    Resplit,
    Reshard,
    ReshardAbort,
    ResplitCleanup,
}

/// Operations on dense collections and their points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it; layouts are in `vector`")]
pub enum VectorOp {
    CreateCollection,
    DropCollection,
    GetConfig,
    Insert,
    Upsert,
    InsertIfAbsent,
    Delete,
    Exists,
    Get,
    GetBatch,
    SetPayload,
    OverwritePayload,
    DeletePayloadKeys,
    ClearPayload,
    DeleteByFilter,
    Search,
    SearchDocs,
    SearchGroups,
    HybridSearch,
    SearchText,
    HybridText,
    Query,
    Scroll,
    BulkStage,
    BulkStagePayload,
    BulkBuild,
    Operate,
}

const fn operation(name: &'static str, op: Op, action: Action, resource: Resource) -> Operation {
    Operation { name, op, right: Right::Of(action), resource }
}

const fn kv(name: &'static str, op: KvOp, action: Action) -> Operation {
    operation(name, Op::Kv(op), action, Resource::Node)
}

const fn kv_query(name: &'static str, op: KvQueryOp, action: Action) -> Operation {
    operation(name, Op::KvQuery(op), action, Resource::Node)
}

const fn process(name: &'static str, op: ProcessOp, action: Action) -> Operation {
    operation(name, Op::Process(op), action, Resource::Node)
}

const fn partition(name: &'static str, op: PartitionOp) -> Operation {
    operation(name, Op::Partition(op), Action::Admin, Resource::Node)
}

const fn vector(name: &'static str, op: VectorOp, action: Action, resource: Resource) -> Operation {
    operation(name, Op::Vector(op), action, resource)
}

const fn absent(name: &'static str, action: Action, resource: Resource) -> Operation {
    operation(name, Op::Absent, action, resource)
}

use Action::{Admin, Read, Write};
use Resource::{AfterFlags, First, Node};

/// Every operation of the protocol.
pub const OPERATIONS: &[Operation] = &[
    kv("get", KvOp::Get, Read),
    kv("exists", KvOp::Exists, Read),
    kv("ttl", KvOp::Ttl, Read),
    kv("mget", KvOp::Mget, Read),
    kv("put", KvOp::Put, Write),
    kv("del", KvOp::Del, Write),
    kv("expire", KvOp::Expire, Write),
    kv("incr", KvOp::Incr, Write),
    kv("incr_ex", KvOp::IncrEx, Write),
    kv("set_nx", KvOp::SetNx, Write),
    kv("getset", KvOp::GetSet, Write),
    kv("getdel", KvOp::GetDel, Write),
    kv("persist", KvOp::Persist, Write),
    kv("cas", KvOp::Cas, Write),
    kv("cad", KvOp::Cad, Write),
    kv("caex", KvOp::Caex, Write),
    kv("put_batch", KvOp::PutBatch, Write),
    kv("flush", KvOp::Flush, Write),
    kv("operate", KvOp::Operate, Write),
    kv_query("kv_query", KvQueryOp::Query, Read),
    kv_query("__kv_index_set__", KvQueryOp::IndexSet, Admin),
    kv_query("__kv_index_list__", KvQueryOp::IndexList, Admin),
    process("__ping__", ProcessOp::Ping, Read),
    process("__ready__", ProcessOp::Ready, Read),
    process("__metrics__", ProcessOp::Metrics, Read),
    process("__kv_metrics__", ProcessOp::KvMetrics, Read),
    process("__repl_metrics__", ProcessOp::ReplMetrics, Read),
    process("__collections__", ProcessOp::Collections, Read),
    absent("__topology__", Read, Node),
    process("__keys_add__", ProcessOp::KeysAdd, Admin),
    process("__keys_revoke__", ProcessOp::KeysRevoke, Admin),
    process("__keys_list__", ProcessOp::KeysList, Admin),
    process("alias_batch", ProcessOp::AliasBatch, Admin),
    process("alias_list", ProcessOp::AliasList, Admin),
    Operation { name: "__wc__", op: Op::Process(ProcessOp::Envelope), right: Right::OfInner, resource: Node },
    absent("__register_wasm__", Admin, Node),
    partition("vector_resplit", PartitionOp::Resplit),
    partition("vector_reshard", PartitionOp::Reshard),
    partition("vector_reshard_abort", PartitionOp::ReshardAbort),
    partition("vector_resplit_cleanup", PartitionOp::ResplitCleanup),
    partition("vector_mv_resplit", PartitionOp::Resplit),
    partition("vector_mv_reshard", PartitionOp::Reshard),
    partition("vector_mv_reshard_abort", PartitionOp::ReshardAbort),
    partition("vector_mv_resplit_cleanup", PartitionOp::ResplitCleanup),
    vector("vector_create_collection", VectorOp::CreateCollection, Admin, First),
    vector("vector_drop_collection", VectorOp::DropCollection, Admin, First),
    vector("vector_get_config", VectorOp::GetConfig, Read, First),
    vector("vector_insert", VectorOp::Insert, Write, AfterFlags),
    vector("vector_upsert", VectorOp::Upsert, Write, AfterFlags),
    vector("vector_insert_if_absent", VectorOp::InsertIfAbsent, Write, AfterFlags),
    vector("vector_delete", VectorOp::Delete, Write, First),
    vector("vector_exists", VectorOp::Exists, Read, First),
    vector("vector_get", VectorOp::Get, Read, First),
    vector("vector_get_batch", VectorOp::GetBatch, Read, First),
    vector("vector_set_payload", VectorOp::SetPayload, Write, First),
    vector("vector_overwrite_payload", VectorOp::OverwritePayload, Write, First),
    vector("vector_delete_payload_keys", VectorOp::DeletePayloadKeys, Write, First),
    vector("vector_clear_payload", VectorOp::ClearPayload, Write, First),
    vector("vector_delete_by_filter", VectorOp::DeleteByFilter, Write, First),
    vector("vector_search", VectorOp::Search, Read, AfterFlags),
    vector("vector_search_docs", VectorOp::SearchDocs, Read, AfterFlags),
    vector("vector_search_groups", VectorOp::SearchGroups, Read, First),
    vector("vector_hybrid_search", VectorOp::HybridSearch, Read, AfterFlags),
    vector("vector_search_text", VectorOp::SearchText, Read, AfterFlags),
    vector("vector_hybrid_text", VectorOp::HybridText, Read, AfterFlags),
    vector("vector_query", VectorOp::Query, Read, First),
    vector("vector_scroll", VectorOp::Scroll, Read, First),
    vector("vector_bulk_stage", VectorOp::BulkStage, Write, First),
    vector("vector_bulk_stage_payload", VectorOp::BulkStagePayload, Write, First),
    vector("vector_bulk_build", VectorOp::BulkBuild, Write, First),
    vector("vector_operate", VectorOp::Operate, Write, First),
    absent("vector_bm25_stats", Read, First),
    absent("vector_mv_create_collection", Admin, First),
    absent("vector_mv_drop_collection", Admin, First),
    absent("vector_mv_add", Write, First),
    absent("vector_mv_add_if_absent", Write, First),
    absent("vector_mv_exists", Read, First),
    absent("vector_mv_delete", Write, First),
    absent("vector_mv_get", Read, First),
    absent("vector_mv_get_batch", Read, First),
    absent("vector_mv_set_payload", Write, First),
    absent("vector_mv_overwrite_payload", Write, First),
    absent("vector_mv_delete_payload_keys", Write, First),
    absent("vector_mv_clear_payload", Write, First),
    absent("vector_mv_search", Read, First),
    absent("vector_mv_hybrid_search", Read, AfterFlags),
    absent("vector_mv_scroll", Read, First),
    absent("vector_mv_get_config", Read, First),
    absent("vector_mv_query", Read, First),
    absent("vector_mv_operate", Write, First),
    absent("vector_named_create_collection", Admin, First),
    absent("vector_named_drop_collection", Admin, First),
    absent("vector_named_get_config", Read, First),
    absent("vector_named_insert", Write, First),
    absent("vector_named_delete", Write, First),
    absent("vector_named_get", Read, First),
    absent("vector_named_get_batch", Read, First),
    absent("vector_named_set_payload", Write, First),
    absent("vector_named_overwrite_payload", Write, First),
    absent("vector_named_delete_payload_keys", Write, First),
    absent("vector_named_clear_payload", Write, First),
    absent("vector_named_search", Read, First),
    absent("vector_named_search_docs", Read, First),
    absent("vector_named_sparse_search", Read, First),
    absent("vector_named_hybrid_search", Read, AfterFlags),
    absent("vector_named_scroll", Read, First),
    absent("vector_named_query", Read, First),
    absent("vector_named_operate", Write, First),
];

/// Cells of [`BY_NAME`]: enough that a name is seldom where another would be.
const CELLS: usize = 512;

/// The place in [`OPERATIONS`] + 1 of each name, in the first free cell from [`cell_of`] on; 0 where there is none.
const BY_NAME: [u8; CELLS] = {
    let mut cells = [0; CELLS];
    let mut place = 0;
    while place < OPERATIONS.len() {
        let mut at = cell_of(OPERATIONS[place].name.as_bytes());
        while cells[at] != 0 {
            at = (at + 1) % CELLS;
        }
        place += 1;
        cells[at] = place as u8;
    }
    cells
};

const _: () = assert!(OPERATIONS.len() < 256, "places are bytes");

/// Where a name is looked for first: by its length and its two bytes at either end, which tell most operations apart.
const fn cell_of(name: &[u8]) -> usize {
    let len = name.len();
    if len < 2 {
        return len;
    }
    let ends = u32::from_le_bytes([name[0], name[1], name[len - 2], name[len - 1]]) ^ (len as u32) << 11;
    (ends.wrapping_mul(0x9e37_79b1) >> (u32::BITS - CELLS.ilog2())) as usize
}

/// The operation called `name`; `None` is answered with `op not registered`. Cost: a look into a table and one comparison, for most names.
pub fn find(name: &[u8]) -> Option<&'static Operation> {
    let mut at = cell_of(name);
    loop {
        let operation = &OPERATIONS[usize::from(BY_NAME[at].checked_sub(1)?)];
        if operation.name.as_bytes() == name {
            return Some(operation);
        }
        at = (at + 1) % CELLS;
    }
}

/// The right that a request needs and the collection it needs it on, as sent; the latter is empty for the node as a whole.
///
/// Whatever cannot be told needs the most: an unknown operation, a collection whose name cannot be read, an envelope
/// around another.
pub fn required<'a>(name: &[u8], args: &'a [u8]) -> (Action, &'a str) {
    match find(name) {
        Some(operation) => operation.required(args),
        None => (Admin, ""),
    }
}

impl Operation {
    /// As [`required`], of an operation that was found.
    pub fn required<'a>(&self, args: &'a [u8]) -> (Action, &'a str) {
        self.required_by(args, Envelope::decode)
    }

    /// As [`Operation::required`], by the beginning of the arguments: the same, given [`limits::TCP_FRAME_JUDGED_BYTES`] of the frame.
    pub fn required_by_beginning<'a>(&self, args: &'a [u8]) -> (Action, &'a str) {
        self.required_by(args, Envelope::decode_beginning)
    }

    fn required_by<'a>(
        &self,
        args: &'a [u8],
        envelope: impl FnOnce(&'a [u8]) -> Result<Envelope<'a>, ArgsError>,
    ) -> (Action, &'a str) {
        let action = match self.right {
            Right::Of(action) => action,
            // Which holds no other, so that this ends.
            Right::OfInner => match envelope(args) {
                Ok(envelope) => return required(envelope.operation, envelope.args),
                Err(_) => return (Admin, ""),
            },
        };
        match self.resource.read(args) {
            Some(collection) => (action, collection),
            None => (Admin, ""),
        }
    }
}

impl Resource {
    /// The collection that `args` name, empty for the node as a whole; `None` when they name none, or no name that one can
    /// have.
    pub fn read(self, args: &[u8]) -> Option<&str> {
        let mut reader = ArgsReader::new(args);
        match self {
            Resource::Node => return Some(""),
            Resource::First => {}
            Resource::AfterFlags => {
                reader.u8("flags").ok()?;
            }
        }
        let name = reader.text8("collection").ok()?;
        (1..=limits::NAME_MAX_BYTES).contains(&name.len()).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_name_is_found_and_no_other() {
        let names: HashSet<_> = OPERATIONS.iter().map(|operation| operation.name).collect();
        assert_eq!(names.len(), OPERATIONS.len());
        for operation in OPERATIONS {
            let name = operation.name.as_bytes();
            assert_eq!(find(name).map(|found| found.name), Some(operation.name));
            // Two bytes would read as the start of a request with a token.
            assert!((1..=255).contains(&name.len()) && name.len() != 2);
            for other in [&name[..name.len() - 1], &[name, b"_"].concat(), &name.to_ascii_uppercase()] {
                let known = std::str::from_utf8(other).is_ok_and(|other| names.contains(other));
                assert_eq!(find(other).is_some(), known, "{other:?}");
            }
        }
        assert!(find(b"").is_none() && find(&[0xff; 255]).is_none());
    }

    #[test]
    fn rights() {
        for (name, args, expected) in [
            ("get", &b"\x00\x01k"[..], (Read, "")),
            ("flush", b"", (Write, "")),
            ("__keys_list__", b"", (Admin, "")),
            ("vector_get", b"\x04docs", (Read, "docs")),
            ("vector_search", b"\x00\x04docs", (Read, "docs")),
            ("vector_upsert", b"\x00\x0aacme/films", (Write, "acme/films")),
            ("vector_drop_collection", b"\x04docs", (Admin, "docs")),
            // What names no collection.
            ("vector_get", b"\x04doc", (Admin, "")),
            ("vector_get", b"\x00", (Admin, "")),
            ("vector_get", b"\x01\xff", (Admin, "")),
            ("vector_get", b"", (Admin, "")),
            ("vector_search", b"\x00", (Admin, "")),
            ("nothing", b"\x04docs", (Admin, "")),
            // Envelopes.
            ("__wc__", b"\x01\x01\x03get\x00\x00\x00\x03\x00\x01k", (Read, "")),
            ("__wc__", b"\x01\x01\x0dvector_delete\x00\x00\x00\x05\x04docs", (Write, "docs")),
            ("__wc__", b"\x01\x01\x07nothing\x00\x00\x00\x00", (Admin, "")),
            ("__wc__", b"\x01\x01\x06__wc__\x00\x00\x00\x00", (Admin, "")),
            ("__wc__", b"\x01", (Admin, "")),
        ] {
            assert_eq!(required(name.as_bytes(), args), expected, "{name} {args:?}");
        }
        let long = [&[248][..], &[b'a'; 248]].concat();
        assert_eq!(required(b"vector_get", &long), (Admin, ""));
    }

    /// Every kind of operation that has a decoder is reached by a name.
    #[test]
    fn names_by_class() {
        let count = |right| OPERATIONS.iter().filter(|operation| operation.right == right).count();
        assert_eq!(count(Right::OfInner), 1);
        let counts = [Read, Write, Admin].map(|action| count(Right::Of(action)));
        assert_eq!(counts.iter().sum::<usize>(), OPERATIONS.len() - 1);
        let on_keys = OPERATIONS.iter().filter(|operation| matches!(operation.op, Op::Kv(_))).count();
        assert_eq!(on_keys, 19);
        let dense = OPERATIONS.iter().filter(|operation| matches!(operation.op, Op::Vector(_))).count();
        assert_eq!(dense, 27);
    }
}
