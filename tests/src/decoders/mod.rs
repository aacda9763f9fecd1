//! Every decoder of bytes that come from outside, as one function that must survive any input.
//!
//! Each [`Decoder`] is used twice: `fuzz/` lets libFuzzer search for inputs that break it, and `tests/decoders.rs` runs it
//! on mutated valid inputs, so that the stable toolchain and every CI run cover it too. Inputs that once broke a decoder lie
//! in `tests/regressions/<name>/` and are run first.
//!
//! A run breaks by panicking: in the decoder, or in an assertion about what it accepted (what was read can be read again,
//! written again and comes out the same).

mod auth;
mod collection;
mod engine;
mod grpc;
mod keys;
mod mutate;
mod net;
mod operate;
mod shard;
mod tcp;

pub use mutate::Mutator;

/// A decoder and valid inputs to start from.
pub struct Decoder {
    /// Name of the fuzz target and of the regression folder.
    pub name: &'static str,
    /// Feeds one input; panics when the decoder is broken.
    pub run: fn(&[u8]),
    /// Valid inputs, small and varied.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const ALL: &[Decoder] = &[
    Decoder { name: "payload_row", run: engine::payload_row, seeds: engine::payload_row_seeds },
    Decoder { name: "filter_tree", run: engine::filter_tree, seeds: engine::filter_tree_seeds },
    Decoder { name: "filter_text", run: engine::filter_text, seeds: engine::filter_text_seeds },
    Decoder { name: "binary_ingest", run: net::binary_ingest, seeds: net::binary_ingest_seeds },
    Decoder { name: "binary_query", run: net::binary_query, seeds: net::binary_query_seeds },
    Decoder { name: "json_body", run: net::json_body, seeds: net::json_body_seeds },
    Decoder { name: "request_target", run: net::request_target, seeds: net::request_target_seeds },
    Decoder { name: "tcp_stream", run: tcp::tcp_stream, seeds: tcp::tcp_stream_seeds },
    Decoder { name: "grpc_message", run: grpc::grpc_message, seeds: grpc::grpc_message_seeds },
    Decoder { name: "signed_token", run: auth::signed_token, seeds: auth::signed_token_seeds },
    Decoder { name: "api_keys_file", run: auth::keys_file, seeds: auth::keys_file_seeds },
    Decoder { name: "certificate_name", run: auth::certificate_name, seeds: auth::certificate_name_seeds },
    Decoder { name: "client_hello", run: auth::client_hello, seeds: auth::client_hello_seeds },
    Decoder { name: "stored_row_answer", run: net::stored_row_answer, seeds: engine::payload_row_seeds },
    Decoder { name: "operate", run: operate::operate, seeds: operate::operate_seeds },
    Decoder { name: "dense_image", run: collection::dense_image, seeds: collection::dense_image_seeds },
    Decoder { name: "log_segment", run: shard::log_segment, seeds: shard::log_segment_seeds },
    Decoder { name: "log_record", run: shard::log_record, seeds: shard::log_record_seeds },
    Decoder { name: "keys_record", run: keys::keys_record, seeds: keys::keys_record_seeds },
    Decoder { name: "keys_manifest", run: keys::keys_manifest, seeds: keys::keys_manifest_seeds },
    Decoder { name: "keys_indexes", run: keys::keys_indexes, seeds: keys::keys_indexes_seeds },
    Decoder { name: "checkpoint_image", run: shard::checkpoint_image, seeds: shard::checkpoint_image_seeds },
    Decoder {
        name: "checkpoint_manifest",
        run: shard::checkpoint_manifest,
        seeds: shard::checkpoint_manifest_seeds,
    },
];

/// The decoder called `name`.
///
/// # Panics
/// When there is none.
pub fn named(name: &str) -> &'static Decoder {
    ALL.iter().find(|decoder| decoder.name == name).unwrap_or_else(|| panic!("no decoder is called {name:?}"))
}
