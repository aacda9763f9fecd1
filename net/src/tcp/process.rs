//! Operations on the process, its keys for clients, its aliases and its partitions: arguments and results.
//!
//! ```text
//! __ping__                                              anything
//! __ready__, __metrics__, __kv_metrics__, __repl_metrics__, __collections__, __topology__, __keys_list__    nothing
//! __keys_add__      s16 token, s16 tenant, u16 n, (s16 scope)*, s16 certCN, then nothing or 00, or 01 and limits
//! __keys_revoke__   s16 token
//! alias_batch       u32 n, (s16 alias, s16 target, u8 delete)*
//! alias_list        s16 collection, empty = all
//! __wc__            u8 factor, u8 wait, s8 operation, s32 args
//! …_resplit, …_reshard                                  s8 collection, u32 newPartitions
//! …_reshard_abort, …_resplit_cleanup                    s8 collection
//! limits            u64 requests per second, u64 bytes per second, u64 connections; 0 = no limit
//! ```
//! Bytes behind a layout are ignored.

use crate::auth::key_limits::KeyLimits;
use crate::auth::registry::{ListedKey, NewKey};
use crate::auth::secret::hex;
use crate::op::{
    ApiError, ChangeAliases, Lack, ListAliases, PlacementOp, ProcessOp, Unmet, check_partitions,
};
use crate::tcp::ops::Envelope;
use crate::tcp::reader::{ArgsError, ArgsReader};
use nigh_shard::core::{Alias, AliasChange};

/// The answer to `__repl_metrics__` of a node that replicates nothing.
pub const REPL_METRICS_OF_ONE_NODE: &str = r#"{"shards":[]}"#;

/// A request about the process.
#[non_exhaustive]
pub enum ProcessRequest<'a> {
    /// Answered with nothing; pools ask it of connections.
    Ping,
    /// Answered with nothing by a node that serves.
    Ready,
    /// The metrics page, as text.
    Metrics,
    /// The metrics of keys and values, as text.
    KvMetrics,
    /// [`REPL_METRICS_OF_ONE_NODE`].
    ReplMetrics,
    /// Names of collections; see [`put_names`].
    Collections,
    /// Where the shards of keys are; `topology` lays it out.
    Topology,
    /// Adds a key for clients.
    KeysAdd(NewKey),
    /// Removes one.
    KeysRevoke {
        /// Its token.
        token: &'a str,
    },
    /// All of them; see [`put_keys`].
    KeysList,
    /// Makes and removes aliases.
    ChangeAliases(ChangeAliases),
    /// Aliases; see [`put_aliases`].
    ListAliases(ListAliases),
    /// An operation in an envelope, to be carried out as if it had come alone.
    Envelope(Envelope<'a>),
}

/// Shortest encodings of a scope and of a change of an alias.
const SCOPE_BYTES_MIN: usize = 2;
const ALIAS_BYTES_MIN: usize = 2 + 2 + 1;

/// Decodes the arguments of an operation on the process. All of a batch is decoded, or nothing.
///
/// # Errors
/// `args too short`, or that a part is not UTF-8.
pub fn decode(op: ProcessOp, args: &[u8]) -> Result<ProcessRequest<'_>, ArgsError> {
    let mut reader = ArgsReader::new(args);
    Ok(match op {
        ProcessOp::Ping => ProcessRequest::Ping,
        ProcessOp::Ready => ProcessRequest::Ready,
        ProcessOp::Metrics => ProcessRequest::Metrics,
        ProcessOp::KvMetrics => ProcessRequest::KvMetrics,
        ProcessOp::ReplMetrics => ProcessRequest::ReplMetrics,
        ProcessOp::Collections => ProcessRequest::Collections,
        ProcessOp::Topology => ProcessRequest::Topology,
        ProcessOp::KeysAdd => {
            let (token, tenant) = (reader.text16("token")?.to_owned(), reader.text16("tenant")?.to_owned());
            let count = reader.u16("n")?;
            let count = reader.fits(count.into(), SCOPE_BYTES_MIN, "scope")?;
            let mut scopes = Vec::with_capacity(count);
            for _ in 0..count {
                scopes.push(reader.text16("scope")?.to_owned());
            }
            let cert_cn = reader.text16("certCN")?.to_owned();
            // Bytes behind a layout are ignored, unless the first of them says that they are limits.
            let limits = match !reader.is_empty() && reader.u8("hasLimits")? == 1 {
                true => KeyLimits::from_named(|name| reader.u64(name))?,
                false => KeyLimits::default(),
            };
            ProcessRequest::KeysAdd(NewKey { token, tenant, scopes, cert_cn, limits })
        }
        ProcessOp::KeysRevoke => ProcessRequest::KeysRevoke { token: reader.text16("token")? },
        ProcessOp::KeysList => ProcessRequest::KeysList,
        ProcessOp::AliasBatch => {
            let count = reader.u32("n")?;
            let count = reader.fits(count.into(), ALIAS_BYTES_MIN, "change")?;
            // Not reserved: a change takes ten times its shortest encoding.
            let mut changes = Vec::new();
            for _ in 0..count {
                let (alias, target) = (reader.text16("alias")?.to_owned(), reader.text16("target")?);
                changes.push(match reader.flag("delete")? {
                    true => AliasChange::Delete { alias },
                    false => AliasChange::Create { alias, collection: target.to_owned() },
                });
            }
            ProcessRequest::ChangeAliases(ChangeAliases { changes })
        }
        ProcessOp::AliasList => {
            let target = Some(reader.text16("collection")?).filter(|target| !target.is_empty());
            ProcessRequest::ListAliases(ListAliases { target: target.map(str::to_owned) })
        }
        ProcessOp::Envelope => ProcessRequest::Envelope(Envelope::decode(args)?),
        ProcessOp::OpenApi
        | ProcessOp::Tasks
        | ProcessOp::Backup
        | ProcessOp::BackupsList
        | ProcessOp::BackupsRestore
        | ProcessOp::BackupsVerify
        | ProcessOp::AliasCreate
        | ProcessOp::AliasDelete => return Err(ArgsError::NotRegistered),
    })
}

/// Decodes an operation on partitions, of which a node of its own has none: what is wrong with it is said before that.
///
/// # Errors
/// A bad request: `args too short`, a collection that is not UTF-8, a number of partitions out of range.
pub fn decode_partition(op: PlacementOp, args: &[u8]) -> Result<Unmet, ApiError> {
    let mut reader = ArgsReader::new(args);
    let collection = reader.text8("collection")?.to_owned();
    match op {
        PlacementOp::Resplit | PlacementOp::Reshard => {
            check_partitions(Some(reader.u32("newPartitions")?.into()))?;
        }
        PlacementOp::ResplitCleanup | PlacementOp::ReshardAbort => {}
        PlacementOp::Evict | PlacementOp::Restore => return Err(ArgsError::NotRegistered.into()),
    }
    Ok(Unmet { collection, lack: Lack::Partitions })
}

/// Appends `s16`; more than its length can say is left out, at the end of a character.
fn put_text16(out: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(usize::from(u16::MAX))];
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Appends how many items there are, `u32 n`. Memory holds fewer than 2^32 of them.
fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u32).to_be_bytes());
}

/// Appends the result of `__collections__`: `u32 n, (s16 name)*`.
pub fn put_names<'n>(out: &mut Vec<u8>, names: impl ExactSizeIterator<Item = &'n str>) {
    put_count(out, names.len());
    names.for_each(|name| put_text16(out, name));
}

/// Appends the result of `alias_list`: `u32 n, (s16 alias, s16 collection)*`.
pub fn put_aliases(out: &mut Vec<u8>, aliases: &[Alias]) {
    put_count(out, aliases.len());
    for alias in aliases {
        put_text16(out, &alias.alias);
        put_text16(out, &alias.collection);
    }
}

/// Appends the result of `__keys_list__`: `u32 n, (s16 fingerprint, s16 tenant, u16 m, (s16 scope)*, s16 certCN)*`. If an API key has limits, those
/// of all API keys follow in the same order, so that clients that do not know limits read the rest as before.
pub fn put_keys(out: &mut Vec<u8>, keys: &[ListedKey]) {
    put_count(out, keys.len());
    for key in keys {
        put_text16(out, &hex(&key.fingerprint));
        put_text16(out, &key.tenant);
        let scopes = &key.scopes[..key.scopes.len().min(usize::from(u16::MAX))];
        out.extend_from_slice(&(scopes.len() as u16).to_be_bytes());
        scopes.iter().for_each(|scope| put_text16(out, scope));
        put_text16(out, &key.cert_cn);
    }
    if keys.iter().any(|key| !key.limits.is_unlimited()) {
        let limits = keys.iter().flat_map(|key| key.limits.named());
        limits.for_each(|(_, limit)| out.extend_from_slice(&limit.to_be_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;
    use crate::op::table::TABLE;
    use proptest::prelude::*;

    /// How a request reads; none of them can be printed or compared as a whole.
    fn shown(op: ProcessOp, args: &[u8]) -> Result<String, String> {
        let text = |request| match request {
            ProcessRequest::KeysAdd(key) => {
                let limits = key.limits.named().map(|(_, limit)| limit);
                format!("{} {} {:?} {} {limits:?}", key.token, key.tenant, key.scopes, key.cert_cn)
            }
            ProcessRequest::KeysRevoke { token } => token.to_owned(),
            ProcessRequest::ChangeAliases(change) => format!("{:?}", change.changes),
            ProcessRequest::ListAliases(list) => format!("{:?}", list.target),
            ProcessRequest::Envelope(envelope) => format!("{envelope:?}"),
            ProcessRequest::Ping => "ping".to_owned(),
            _ => "something".to_owned(),
        };
        decode(op, args).map(text).map_err(|error| error.to_string())
    }

    const ENVELOPE: &[u8] = b"\x02\x01\x03get\0\0\0\x03\0\x01k";
    const KEY: &[u8] = b"\0\x01t\0\x01w\0\x02\0\x06read:*\0\x07write:a\0\x01c";
    /// The arguments of [`KEY`] with limits behind them.
    fn limited_key() -> Vec<u8> {
        [KEY, &[1][..], &[7, 300, 2].map(u64::to_be_bytes).concat()].concat()
    }

    const ALIASES: &[u8] = b"\0\0\0\x02\0\x01a\0\x01c\0\0\x01b\0\0\x01";

    #[test]
    fn requests() {
        let create = AliasChange::Create { alias: "a".into(), collection: "c".into() };
        let changes = vec![create, AliasChange::Delete { alias: "b".into() }];
        let envelope = Envelope { factor: 2, wait: true, operation: b"get", args: b"\0\x01k" };
        for (op, args, expected) in [
            (ProcessOp::Ping, &b"anything"[..], "ping".to_owned()),
            (ProcessOp::KeysAdd, KEY, r#"t w ["read:*", "write:a"] c [0, 0, 0]"#.to_owned()),
            (
                ProcessOp::KeysAdd,
                &[KEY, &[0]].concat(),
                r#"t w ["read:*", "write:a"] c [0, 0, 0]"#.to_owned(),
            ),
            (ProcessOp::KeysAdd, &limited_key(), r#"t w ["read:*", "write:a"] c [7, 300, 2]"#.to_owned()),
            (ProcessOp::KeysRevoke, b"\0\x01t", "t".to_owned()),
            (ProcessOp::AliasBatch, ALIASES, format!("{changes:?}")),
            (ProcessOp::AliasList, b"\0\x01c", "Some(\"c\")".to_owned()),
            (ProcessOp::AliasList, b"\0\0", "None".to_owned()),
            (ProcessOp::Envelope, ENVELOPE, format!("{envelope:?}")),
        ] {
            assert_eq!(shown(op, args), Ok(expected));
        }
        for op in [ProcessOp::Ready, ProcessOp::Metrics, ProcessOp::KvMetrics, ProcessOp::ReplMetrics] {
            assert_eq!(shown(op, b""), Ok("something".to_owned()));
        }
    }

    #[test]
    fn arguments_cut_at_every_byte() {
        for (op, args) in [
            (ProcessOp::KeysAdd, KEY),
            (ProcessOp::KeysRevoke, b"\0\x01t"),
            (ProcessOp::AliasBatch, ALIASES),
            (ProcessOp::AliasList, b"\0\x01c"),
            (ProcessOp::Envelope, ENVELOPE),
        ] {
            for cut in 0..args.len() {
                let message = shown(op, &args[..cut]).unwrap_err();
                let part = message.strip_prefix("args too short: ").expect(&message);
                assert!(!part.is_empty(), "{op:?} cut at {cut}");
            }
        }
        let limited = limited_key();
        for cut in KEY.len() + 1..limited.len() {
            let message = shown(ProcessOp::KeysAdd, &limited[..cut]).unwrap_err();
            assert!(message.starts_with("args too short: "), "cut at {cut}: {message}");
        }
        let nested = shown(ProcessOp::Envelope, b"\x02\x01\x06__wc__\0\0\0\0");
        assert_eq!(nested, Err("an envelope inside an envelope".to_owned()));
        assert_eq!(shown(ProcessOp::KeysRevoke, b"\0\x01\xff"), Err("token is not UTF-8".to_owned()));
        assert_eq!(shown(ProcessOp::AliasBatch, &[0xff; 12]), Err("args too short: change".to_owned()));
        assert_eq!(
            shown(ProcessOp::KeysAdd, &[0, 0, 0, 0, 0xff, 0xff]),
            Err("args too short: scope".to_owned())
        );
    }

    #[test]
    fn partitions() {
        let of = |op, args: &[u8]| decode_partition(op, args).map(|unmet| unmet.collection);
        let short = |part: &str| Err(ApiError::invalid(format!("args too short: {part}")));
        assert_eq!(of(PlacementOp::Resplit, b"\x04docs\0\0\0\x02"), Ok("docs".to_owned()));
        assert_eq!(of(PlacementOp::ReshardAbort, b"\x04docs"), Ok("docs".to_owned()));
        assert_eq!(of(PlacementOp::Reshard, b"\x04docs\0\0\0"), short("newPartitions"));
        assert_eq!(of(PlacementOp::ResplitCleanup, b"\x04doc"), short("collection"));
        for few_or_many in [0, 1, 65_537] {
            let args = [&b"\x04docs"[..], &u32::to_be_bytes(few_or_many)].concat();
            let message = of(PlacementOp::Resplit, &args).unwrap_err().message;
            assert!(message.contains("between 2 and 65536"), "{message}");
        }
    }

    #[test]
    fn results() {
        let mut out = Vec::new();
        put_names(&mut out, ["default/a", "b/c"].into_iter());
        assert_eq!(out, b"\0\0\0\x02\0\x09default/a\0\x03b/c");
        out.clear();
        put_aliases(&mut out, &[Alias { alias: "a".into(), collection: "c".into() }]);
        assert_eq!(out, b"\0\0\0\x01\0\x01a\0\x01c");
        out.clear();
        let (scopes, cert_cn) = (vec!["read:*".to_owned()], "n".to_owned());
        let (tenant, limits) = (String::new(), KeyLimits::default());
        let mut key = ListedKey { fingerprint: [0xab; 8], tenant, scopes, cert_cn, limits };
        let known = b"\0\0\0\x01\0\x10abababababababab\0\0\0\x01\0\x06read:*\0\x01n";
        put_keys(&mut out, std::slice::from_ref(&key));
        assert_eq!(out, known);
        out.clear();
        key.limits = KeyLimits { requests_per_second: 0, bytes_per_second: 300, connections: 2 };
        put_keys(&mut out, &[key]);
        assert_eq!(out, [&known[..], &[0, 300, 2].map(u64::to_be_bytes).concat()].concat());
        out.clear();
        put_text16(&mut out, &"ä".repeat(40_000));
        assert_eq!((&out[..2], out.len()), (&65_534_u16.to_be_bytes()[..], 65_536));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(args in prop::collection::vec(any::<u8>(), 0..60)) {
            for row in TABLE {
                match row.op {
                    Op::Process(op) => drop(decode(op, &args)),
                    Op::Placement(op) => drop(decode_partition(op, &args)),
                    _ => {}
                }
            }
        }
    }
}
