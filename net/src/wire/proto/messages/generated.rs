//! Makes the code of the messages and their descriptors from the `.proto` files, and compares both with what is in the tree.
//!
//! `NIGH_REWRITE_PROTO=1 cargo test -p nigh-net --lib generated` writes them. A build needs neither a compiler of `.proto` files nor the
//! time that one takes: only tests do.

use crate::wire::proto::SearchBatchParts;
use prost::Message;
use prost_build::{Config, Module};
use protox::prost_reflect::{DynamicMessage, Kind, MapKey, MessageDescriptor, Value};
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// The variable that makes the test write the files.
const REWRITE: &str = "NIGH_REWRITE_PROTO";
/// Files whose messages are made, each with the lines that bring in what other files have.
const MADE: [(&str, &str); 8] = [
    ("admin", ""),
    ("collections", ""),
    ("inspect", "use super::multi_vector::MvConfig;\nuse super::search::Document;\n\n"),
    (
        "multi_vector",
        "use super::collections::FullTextConfig;\nuse super::search::{Document, Group, HitVectors, OrderBy, Result};\n\n",
    ),
    ("named", "use super::search::{Document, HitVectors, NamedVectorList, OrderBy};\n\n"),
    ("payloads", ""),
    ("points", ""),
    ("search", ""),
];
const SERVICES: [&str; 4] = [
    "svc/v1/service.proto",
    "grpc/health/v1/health.proto",
    "grpc/reflection/v1/reflection.proto",
    "grpc/reflection/v1alpha/reflection.proto",
];

fn compiled() -> protox::Compiler {
    let mut compiler = protox::Compiler::new([Path::new(ROOT).join("proto")]).expect("a directory");
    compiler.include_imports(true).open_files(SERVICES).expect("the files are right");
    compiler
}

/// Compares a file of the tree with what it should be, or writes it.
fn hold(path: &str, made: &[u8]) {
    let path = Path::new(ROOT).join(path);
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(path, made).expect("the file is written");
        return;
    }
    let told = format!("{REWRITE}=1 cargo test -p nigh-net --lib generated");
    assert!(std::fs::read(&path).unwrap_or_default() == made, "{} is old; {told}", path.display());
}

#[test]
fn the_code_is_that_of_the_files() {
    let compiler = compiled();
    // Each file is a module of its own: all of them together would be too long for one.
    let module = |path: &str| Module::from_parts([path]);
    let files = compiler.file_descriptor_set().file.into_iter();
    let files = files.map(|file| (module(file.name()), file)).collect();
    let mut config = Config::new();
    config.btree_map(["."]).disable_comments(["."]);
    // Written by hand, with bounds in mind; held by `the_query_is_that_of_its_file`.
    config.extern_path(".svc.v1.QuerySpec", "crate::wire::proto::QuerySpec");
    config.extern_path(".svc.v1.TokenVector", "crate::wire::proto::TokenVector");
    let code = config.generate(files).expect("code");
    for (name, others) in MADE {
        let path = format!("svc/v1/{name}.proto");
        let code = &code[&module(&path)];
        let made = format!("//! Made from `net/proto/{path}`, see `generated.rs`.\n\n{others}{code}");
        hold(&format!("src/wire/proto/messages/{name}.rs"), made.as_bytes());
    }
}

#[test]
fn the_descriptors_are_those_of_the_files() {
    hold("proto/descriptors.bin", &compiled().file_descriptor_set().encode_to_vec());
}

/// A value of some type that no other field of a message has.
fn value(kind: &Kind, number: u32, choice: usize, depth: usize) -> Option<Value> {
    Some(match kind {
        Kind::Double => Value::F64(0.5 + f64::from(number)),
        Kind::Float => Value::F32(0.25 + number as f32),
        Kind::Int32 => Value::I32(-(number as i32)),
        Kind::Int64 => Value::I64(-i64::from(number)),
        Kind::Uint32 => Value::U32(number),
        Kind::Uint64 => Value::U64(u64::MAX - u64::from(number)),
        Kind::Bool => Value::Bool(true),
        Kind::String => Value::String(format!("text {number}")),
        Kind::Bytes => Value::Bytes(vec![number as u8; 3].into()),
        Kind::Enum(_) => Value::EnumNumber(1),
        Kind::Message(inner) if depth > 0 => Value::Message(full(inner, choice, depth - 1)),
        Kind::Message(_) => return None,
        other => panic!("{other:?} is in no file"),
    })
}

/// A message of this type with every field set, lists with two items; of a `oneof` the field in place `choice`.
fn full(message: &MessageDescriptor, choice: usize, depth: usize) -> DynamicMessage {
    let mut made = DynamicMessage::new(message.clone());
    for field in message.fields() {
        if let Some(oneof) = field.containing_oneof().filter(|oneof| oneof.fields().len() > 1)
            && oneof.fields().nth(choice % oneof.fields().len()).as_ref() != Some(&field)
        {
            continue;
        }
        let kind = match field.kind() {
            Kind::Message(entry) if field.is_map() => entry.map_entry_value_field().kind(),
            kind => kind,
        };
        let Some(one) = value(&kind, field.number(), choice, depth) else { continue };
        let all = match () {
            () if field.is_map() => Value::Map([(MapKey::String("key".to_owned()), one)].into()),
            () if field.is_list() => Value::List(vec![one.clone(), one]),
            () => one,
        };
        made.set_field(&field, all);
    }
    made
}

/// What is written by hand has every field of its file, with the same number and type: otherwise bytes would be lost on the way.
#[test]
fn the_query_is_that_of_its_file() {
    let compiler = compiled();
    let pool = compiler.descriptor_pool();
    let spec = pool.get_message_by_name("svc.v1.QuerySpec").expect("the message");
    for choice in 0..7 {
        let sent = full(&spec, choice, 4).encode_to_vec();
        let decoded = crate::wire::proto::QuerySpec::decode(&sent[..]).expect("it decodes");
        assert!(decoded.encode_to_vec() == sent, "lane {choice}: {decoded:?}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that messages have had since they exist. A field that got another number or type would have other ones, which no client
/// understands: a line of that file may be added, and none may change.
#[test]
fn bytes_are_what_they_always_were() {
    let compiler = compiled();
    let mut lines = String::from("# Each message of svc.v1 with every field set, as hexadecimal digits.\n");
    for message in compiler.descriptor_pool().all_messages().filter(|message| !message.is_map_entry()) {
        if message.package_name() == "svc.v1" {
            let bytes = full(&message, 0, 2).encode_to_vec();
            lines += &format!("{} {}\n", message.name(), hex(&bytes));
        }
    }
    hold("proto/golden.txt", lines.as_bytes());
}

/// The code of a message reads and writes the bytes of its file.
fn check<M: Message + Default + std::fmt::Debug>(name: &str) {
    let compiler = compiled();
    let pool = compiler.descriptor_pool();
    let message = pool.get_message_by_name(&format!("svc.v1.{name}")).expect(name);
    let bytes = full(&message, 0, 2).encode_to_vec();
    let decoded = M::decode(&bytes[..]).expect(name);
    assert!(decoded.encode_to_vec() == bytes, "{name}: {decoded:?}");
}

#[test]
fn the_code_reads_and_writes_these_bytes() {
    macro_rules! check {
        ($($message:ident)+) => {$(
            check::<super::$message>(stringify!($message));
        )+};
    }
    check! {
        HealthRequest HealthResponse CreateCollectionRequest CreateCollectionResponse DropCollectionRequest
        DropCollectionResponse GetConfigRequest GetConfigResponse ListCollectionsRequest ListCollectionsResponse
        ResplitRequest ResplitCleanupRequest ReshardRequest ReshardAbortRequest
        UpsertRequest UpsertResponse UpsertBatchRequest UpsertBatchResponse DeleteRequest DeleteResponse
        DeleteByFilterRequest DeleteByFilterResponse GetRequest GetResponse GetBatchRequest GetBatchResponse
        SetPayloadRequest DeletePayloadKeysRequest ClearPayloadRequest PayloadResponse
        SearchRequest SearchResponse SearchBatchRequest SearchBatchResponse SearchDocsResponse SearchGroupsRequest SearchGroupsResponse HybridRequest
        TextSearchRequest HybridTextRequest VectorQueryRequest ScrollRequest ScrollResponse
        CreateAliasRequest CreateAliasResponse DeleteAliasRequest DeleteAliasResponse ListAliasesRequest
        ListAliasesResponse AliasBatchRequest AliasBatchResponse KeysAddRequest KeysRevokeRequest KeysListRequest
        KeysListResponse NamedCreateRequest NamedUpsertRequest NamedUpsertBatchRequest NamedGetResponse
        NamedGetBatchResponse NamedSearchRequest NamedMmrRequest NamedSparseSearchRequest NamedHybridRequest NamedScrollRequest
        NamedGetConfigRequest NamedGetConfigResponse NamedVectorQueryRequest
        NamedUpdateVectorsRequest NamedUpdateVectorsResponse
        NamedAddSpaceRequest NamedAddSpaceResponse NamedDropSpaceRequest NamedDropSpaceResponse
        CountRequest CountResponse FacetRequest FacetResponse SampleRequest SampleResponse
        ChangeConfigRequest GetInfoRequest GetInfoResponse MVGetConfigRequest MVGetConfigResponse
        SetPayloadByFilterRequest DeletePayloadKeysByFilterRequest ClearPayloadByFilterRequest PayloadByFilterResponse
        OperateRequest OperateResponse NamedSearchBatchRequest MVSearchBatchRequest MVSearchBatchResponse MVSearchResponse
    }
}

/// Messages of collections of named spaces that have the fields of those of dense collections are read and written as those.
#[test]
fn what_is_read_and_written_as_another_message_has_its_fields() {
    check::<super::DropCollectionRequest>("NamedDropRequest");
    check::<super::DeleteRequest>("NamedDeleteRequest");
    check::<super::GetRequest>("NamedGetRequest");
    check::<super::GetBatchRequest>("NamedGetBatchRequest");
    check::<super::CreateCollectionResponse>("NamedCreateResponse");
    check::<super::DropCollectionResponse>("NamedDropResponse");
    check::<super::UpsertResponse>("NamedUpsertResponse");
    check::<super::DeleteResponse>("NamedDeleteResponse");
    check::<super::SearchResponse>("NamedSearchResponse");
    check::<super::SearchDocsResponse>("NamedSearchDocsResponse");
    check::<super::ScrollResponse>("NamedScrollResponse");
    check::<SearchBatchParts>("SearchBatchRequest");
    check::<SearchBatchParts>("NamedSearchBatchRequest");
    check::<SearchBatchParts>("MVSearchBatchRequest");
}

#[test]
fn every_method_of_the_table_is_in_the_service_and_no_other() {
    let compiler = compiled();
    let service = compiler.descriptor_pool().get_service_by_name("svc.v1.VectorService").expect("it");
    assert!(service.methods().all(|method| !method.is_client_streaming()));
    let declared = service.methods().map(|method| (method.name().to_owned(), method.is_server_streaming()));
    let mut declared: Vec<_> = declared.collect();
    let offered = crate::op::table::grpc_methods();
    let mut offered: Vec<_> =
        offered.map(|(_, method)| (method.name.to_owned(), method.is_streamed)).collect();
    declared.sort_unstable();
    offered.sort_unstable();
    assert_eq!(declared, offered);
}
