//! The page of limits, made from the constants of the code.
use crate::reference::GENERATED;
use crate::{ROOT, assert_none};
use nigh_engine::{filter, kv, text};
use nigh_net::limits as net;
use nigh_shard::core::{FACET_VALUES_MAX, ORDER_TEXT_MAX_BYTES};
use nigh_shard::kv::{indexes, query};
use std::fmt::Write;
use std::path::Path;

/// Names a constant of [`nigh_net::limits`] and gives its value.
macro_rules! of {
    ($name:ident) => {
        (stringify!($name), u64::try_from(net::$name).expect("limits are positive"))
    };
}

/// What a limit counts.
#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    Count,
    Seconds,
    Milliseconds,
}
use Unit::{Bytes, Count, Milliseconds, Seconds};

/// A limit that clients may meet: what it bounds, its name where it is one of the front end's, its value.
type Limit = (&'static str, (&'static str, u64), Unit);

fn limit_groups() -> Vec<(&'static str, Vec<Limit>)> {
    let other = |value: usize| ("", value as u64);
    vec![
        (
            "Collections and points",
            vec![
                ("Name of a collection or alias, with its tenant", of!(NAME_MAX_BYTES), Bytes),
                ("Components of a vector", of!(DIM_MAX), Count),
                ("Spaces of a collection of named spaces", other(nigh_engine::collection::SPACES_MAX), Count),
                ("Token vectors of a document", of!(TOKENS_MAX), Count),
                ("Payload of one point, as it is stored", of!(PAYLOAD_ROW_MAX_BYTES), Bytes),
                (
                    "Keys of the payload of one point, with the paths inside its objects; entries of its `key_ttl_ms`",
                    of!(PAYLOAD_KEYS_MAX),
                    Count,
                ),
                (
                    "Objects and arrays of several kinds in the payload of one point, as JSON, together with what filters find in them",
                    of!(PAYLOAD_JSON_MAX_BYTES),
                    Bytes,
                ),
                ("Words of one text that are ranked by `full_text`", other(text::MAX_TOKENS), Count),
                (
                    "Beginning of a word that is looked at; longer words with the same beginning are one word",
                    other(text::WORD_MAX_BYTES),
                    Bytes,
                ),
                ("Id that is a string", other(nigh_engine::point_id::TEXT_ID_MAX_BYTES), Bytes),
                ("Ids of one deletion, or of one change of payloads", of!(DELETE_IDS_MAX), Count),
                ("`ef_construction` and `ef_search`", other(nigh_engine::collection::EF_MAX), Count),
            ],
        ),
        (
            "Searches and queries",
            vec![
                ("Results of a search (`k`)", of!(K_MAX), Count),
                ("Results of a query that does not say how many", of!(QUERY_K_DEFAULT), Count),
                ("Candidates that a lane of a hybrid search contributes, at most", of!(LANE_POOL_MAX), Count),
                (
                    "Candidates that a lane contributes unless it is told otherwise, at least",
                    of!(LANE_POOL_MIN),
                    Count,
                ),
                ("Lanes of one query", of!(QUERY_LANES_MAX), Count),
                ("Depth to which queries may lie inside a query", of!(QUERY_DEPTH_MAX), Count),
                ("Lanes of a query and all queries inside it", of!(QUERY_LEAVES_MAX), Count),
                ("Keys of one `order_by`", of!(ORDER_KEYS_MAX), Count),
                ("Candidates of a lane of a query; more is cut to this", of!(QUERY_POOL_MAX), Count),
                ("Examples, or pairs of examples, of one lane", of!(QUERY_EXAMPLES_MAX), Count),
                ("Token vectors of a query", of!(QUERY_TOKENS_MAX), Count),
                ("Dimensions of a sparse query", of!(QUERY_DIMENSIONS_MAX), Count),
                ("Distinct words of a text query, without stop words", of!(QUERY_TERMS_MAX), Count),
                ("Text of a text query", of!(QUERY_TEXT_MAX_BYTES), Bytes),
                ("Words of a phrase, stop words within it included", of!(PHRASE_WORDS_MAX), Count),
                ("Terms that a prefix stands for", of!(PREFIX_TERMS_MAX), Count),
                ("Results of `points/search/mmr`", of!(DIVERSE_K_MAX), Count),
                ("Candidates of `points/search/mmr`", of!(DIVERSE_POOL_MAX), Count),
                (
                    "Searches of one batch (`search/batch`, `SearchBatch`, `NamedSearchBatch`, `MVSearchBatch`)",
                    of!(SEARCHES_MAX),
                    Count,
                ),
                (
                    "Searches of one batch that are carried out at the same time",
                    of!(SEARCHES_TOGETHER_MAX),
                    Count,
                ),
                ("Values of a facet", other(FACET_VALUES_MAX), Count),
                (
                    "Text that points are ordered by; longer texts are compared by their beginning",
                    other(ORDER_TEXT_MAX_BYTES),
                    Bytes,
                ),
            ],
        ),
        (
            "Filters",
            vec![
                ("Conditions of one filter", of!(FILTER_NODES_MAX), Count),
                ("Depth of nested conditions", other(filter::MAX_DEPTH), Count),
                ("Conditions of one `min_should`", other(filter::MAX_CONDITIONS), Count),
                ("Ids in the lists of one filter", other(filter::MAX_IDS), Count),
                ("Regular expressions of one filter", other(filter::MAX_REGEXES), Count),
                ("Corners of a polygon", other(filter::MAX_POLYGON_VERTICES), Count),
            ],
        ),
        (
            "Bodies of requests over HTTP",
            vec![
                ("JSON body", of!(JSON_BODY_MAX_BYTES), Bytes),
                (
                    "JSON body that writes a document, or that writes, stages or reads many points or documents",
                    of!(JSON_BULK_BODY_MAX_BYTES),
                    Bytes,
                ),
                ("Objects that one listing of backups answers with", of!(BACKUPS_LISTED_MAX), Count),
                ("Body of a route that has options alone", of!(OPTIONS_BODY_MAX_BYTES), Bytes),
                ("Points of one JSON body", of!(JSON_INGEST_MAX_POINTS), Count),
                ("Token vectors of one JSON body", of!(JSON_INGEST_MAX_TOKENS), Count),
                ("Points of one binary body", of!(BINARY_INGEST_MAX_POINTS), Count),
                ("Binary body without its payloads", of!(BINARY_INGEST_MAX_BYTES), Bytes),
                ("One payload of a binary body", of!(BINARY_PAYLOAD_MAX_BYTES), Bytes),
                ("All payloads of a binary body", of!(BINARY_PAYLOADS_MAX_BYTES), Bytes),
                ("Binary query", of!(BINARY_QUERY_MAX_BYTES), Bytes),
                ("Filter of a binary query", of!(BINARY_QUERY_FILTER_MAX_BYTES), Bytes),
                (
                    "What the searches of a binary batch have in common",
                    of!(BINARY_SEARCHES_COMMON_MAX_BYTES),
                    Bytes,
                ),
                ("Request line and headers", of!(HEADER_BLOCK_MAX_BYTES), Bytes),
                ("Headers of one request", of!(HEADERS_MAX), Count),
                (
                    "Heads of requests of all connections together, beyond the first 8 KiB of each connection; beyond it 503",
                    of!(HEADS_MAX_BYTES),
                    Bytes,
                ),
                (
                    "Memory that is counted for every open connection, over HTTP and TCP; all connections together may have a sixteenth of the memory limit, and further ones are turned away",
                    of!(CONNECTION_BYTES),
                    Bytes,
                ),
                (
                    "Memory that is counted for every open connection over TLS in addition, on every transport",
                    of!(TLS_CONNECTION_BYTES),
                    Bytes,
                ),
                (
                    "Handshakes of TLS that are under way on each core and transport; further clients are sent an alert and closed",
                    of!(TLS_HANDSHAKES_MAX),
                    Count,
                ),
                (
                    "All request bodies and messages of the process together; beyond it requests are answered with 503 or UNAVAILABLE",
                    of!(BODIES_MAX_BYTES),
                    Bytes,
                ),
            ],
        ),
        (
            "gRPC",
            vec![
                ("Message of a request or an answer", of!(GRPC_MESSAGE_MAX_BYTES), Bytes),
                ("Message of a call that needs no token", of!(GRPC_OPEN_MESSAGE_MAX_BYTES), Bytes),
                ("Headers of a call, names and values", of!(GRPC_HEADERS_MAX_BYTES), Bytes),
                (
                    "Open calls of one connection; further ones are refused before they begin",
                    of!(GRPC_STREAMS_MAX),
                    Count,
                ),
                ("Watches of the health service on one connection", of!(GRPC_WATCHES_MAX), Count),
                ("Ids of `GetBatch`", of!(GRPC_IDS_MAX), Count),
                ("Actions of `aliases/batch`, `AliasBatch` and `alias_batch`", of!(ALIAS_ACTIONS_MAX), Count),
                ("Scopes of `KeysAdd`", of!(GRPC_KEY_SCOPES_MAX), Count),
                (
                    "Memory that is counted for every open connection, in the place of that of a connection over HTTP",
                    of!(GRPC_CONNECTION_BYTES),
                    Bytes,
                ),
                (
                    "Memory that is counted for every open call beside its messages; calls that find none are refused before they begin",
                    of!(GRPC_CALL_BYTES),
                    Bytes,
                ),
                (
                    "Bytes of messages that a client may send before the server has taken any, in one call and in one connection",
                    of!(GRPC_WINDOW_BYTES),
                    Bytes,
                ),
                (
                    "Frames of HTTP/2 without use in one second (pings, settings, resets, windows); beyond it the connection is ended",
                    of!(GRPC_IDLE_FRAMES_PER_SECOND),
                    Count,
                ),
                (
                    "Further such frames for each frame that begins a call or carries data",
                    of!(GRPC_IDLE_FRAMES_PER_USEFUL),
                    Count,
                ),
                (
                    "Bytes of an answer that allow another such frame",
                    of!(GRPC_SENT_BYTES_PER_IDLE_FRAME),
                    Bytes,
                ),
                (
                    "A connection without a call, before it is told to go away",
                    of!(GRPC_IDLE_MAX_SECONDS),
                    Seconds,
                ),
            ],
        ),
        (
            "Times of HTTP connections, and of calls over gRPC in their place",
            vec![
                ("Until the headers of a request have arrived", of!(HEADER_READ_MAX_SECONDS), Seconds),
                ("Waiting for a body, all waits together", of!(BODY_READ_MAX_SECONDS), Seconds),
                (
                    "Bytes of a body that allow another second of waiting",
                    of!(BODY_BYTES_PER_EXTRA_SECOND),
                    Bytes,
                ),
                ("Waiting for a body, however many bytes come", of!(BODY_LIFE_MAX_SECONDS), Seconds),
                (
                    "Bytes of a request body that are still read and discarded after an early answer, before the connection is closed",
                    of!(BODY_DRAINED_MAX_BYTES),
                    Bytes,
                ),
                (
                    "Waiting for a client that does not take its response",
                    of!(WRITE_STALL_MAX_SECONDS),
                    Seconds,
                ),
                ("A connection without a request", of!(IDLE_MAX_SECONDS), Seconds),
                ("Requests under way when the server is told to stop", of!(DRAIN_MAX_MS), Milliseconds),
                (
                    "A client that does nothing in the middle of a request or a response while the server stops",
                    of!(DRAIN_STALL_MAX_MS),
                    Milliseconds,
                ),
                (
                    "A page of a long response that waits for memory beside other responses",
                    of!(PAGE_WAIT_MAX_MS),
                    Milliseconds,
                ),
            ],
        ),
        (
            "Keys and values",
            vec![
                ("Key", other(kv::KEY_BYTES_MAX), Bytes),
                ("Value", other(kv::VALUE_BYTES_MAX), Bytes),
                ("Time to live", ("", kv::TTL_MS_MAX), Milliseconds),
                ("Indexes of keys", other(indexes::INDEXES_MAX), Count),
                ("Keys that one query over keys looks at", other(query::SCANNED_MAX), Count),
            ],
        ),
        (
            "The binary protocol",
            vec![
                ("Open connections", of!(TCP_CONNECTIONS_MAX), Count),
                ("Body of a frame", other(nigh_net::tcp::frame::BODY_MAX_BYTES), Bytes),
                (
                    "Waiting for the rest of a frame, however many bytes come",
                    of!(TCP_FRAME_LIFE_MAX_SECONDS),
                    Seconds,
                ),
                (
                    "Bytes of a response that allow another second of waiting for its client",
                    of!(TCP_RESPONSE_BYTES_PER_EXTRA_SECOND),
                    Bytes,
                ),
                (
                    "Received bytes that a connection may have before one of its requests was allowed",
                    of!(TCP_STRANGER_BYTES),
                    Bytes,
                ),
                (
                    "Requests of one connection that are carried out together",
                    of!(TCP_ROUND_REQUESTS_MAX),
                    Count,
                ),
                ("A connection without a request", of!(TCP_IDLE_MAX_SECONDS), Seconds),
                ("Waiting for the rest of a frame", of!(TCP_FRAME_READ_MAX_SECONDS), Seconds),
                (
                    "Waiting for a client that does not take its response",
                    of!(TCP_WRITE_STALL_MAX_SECONDS),
                    Seconds,
                ),
            ],
        ),
    ]
}

/// Constants of the front end that no client meets: how work is cut into pieces.
const INTERNAL: [&str; 22] = [
    "PAGES_IN_FLIGHT_BYTES",
    "TCP_FRAME_JUDGED_BYTES",
    "LINGER_MAX_MS",
    "DRAIN_LINGER_MAX_MS",
    "SLICE_BYTES",
    "INLINE_JSON_MAX_BYTES",
    "PAGE_POINTS",
    "FIRST_PAGE_POINTS",
    "PAGE_BYTES",
    "PAGE_COMPONENTS",
    "TCP_ROUND_RESPONSES_BYTES",
    "TCP_READS_TOGETHER_MAX",
    "TCP_RECEIVE_BYTES_MAX",
    "GRPC_SEND_BUFFER_BYTES",
    "GRPC_PIECES_MAX",
    "GRPC_QUOTED_BYTES",
    "GRPC_INLINE_BYTES",
    "GRPC_SMALL_FRAMES_BYTES",
    "GRPC_SENT_PER_TURN_BYTES",
    "GRPC_RECEIVED_PER_TURN_BYTES",
    "GRPC_CALLS_PER_TURN",
    "GRPC_SEARCHES_TOGETHER_MAX",
];

fn with_commas(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn amount(value: u64, unit: Unit) -> String {
    let name = match unit {
        Count => return with_commas(value),
        Seconds => return format!("{} s", with_commas(value)),
        Milliseconds => return format!("{} ms", with_commas(value)),
        Bytes => [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)],
    };
    match name.into_iter().find(|(_, size)| value >= *size && value.is_multiple_of(*size)) {
        Some((name, size)) => format!("{} {name}", value / size),
        None => format!("{} bytes", with_commas(value)),
    }
}

/// The page of limits.
pub fn page() -> String {
    let mut out = String::from(
        "# Limits\n\n\
         Every queue, body and request has a bound. A request beyond one is refused with an error that names the limit; nothing is cut off\n\
         in silence unless the table says so.\n\n",
    );
    let _ = writeln!(out, "{GENERATED}");
    for (title, limits) in limit_groups() {
        let _ = writeln!(out, "\n## {title}\n\n| What | Limit |\n|---|--:|");
        for (what, (_, value), unit) in limits {
            let _ = writeln!(out, "| {what} | {} |", amount(value, unit));
        }
    }
    out
}

#[test]
fn every_limit_of_the_front_end_is_told_or_internal() {
    let source = std::fs::read_to_string(Path::new(ROOT).join("net/src/limits.rs")).expect("the source");
    let names = source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split(':').next());
    let told: Vec<&str> =
        limit_groups().into_iter().flat_map(|(_, limits)| limits).map(|(_, (name, _), _)| name).collect();
    let mut faults = Vec::new();
    for name in names {
        if told.contains(&name) == INTERNAL.contains(&name) {
            faults.push(format!("{name} must be in `limit_groups` or in `INTERNAL`, and not in both"));
        }
    }
    assert_none(&faults);
}

#[test]
fn amounts_are_readable() {
    for (value, unit, text) in [
        (16 << 20, Bytes, "16 MiB"),
        (65_535, Bytes, "65,535 bytes"),
        (2 << 30, Bytes, "2 GiB"),
        (1_048_576, Count, "1,048,576"),
        (10, Seconds, "10 s"),
    ] {
        assert_eq!(amount(value, unit), text);
    }
}
