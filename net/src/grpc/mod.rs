//! gRPC: the codec between messages of protocol buffers and the operations, and HTTP/2 connections on a core.
//!
//! `server` accepts connections and runs each as a task: the crate `h2` parses and writes frames over a plain socket that the core's reactor
//! watches (`stream`), and `connection` knows what the sweep has to know of it. Each call is a task of its own (`service`): its `head` is
//! read, its messages are received within their limits (`message`), `methods` finds the row of the table, `decode` makes an operation of a
//! message, the door carries it out (`execute`, or `streamed` where the answer is a stream of messages), and `answers` writes what came out,
//! which `call` sends, and `unsent` knows how much of that HTTP/2 still holds. Two services that gRPC defines for every server stand beside that: `health` and `reflection`.
//!
//! The messages are those of `net/proto`; their code is in `wire/proto/messages`.

mod answers;
mod batch;
mod call;
mod config;
mod configuration;
mod connection;
pub mod counters;
mod decode;
mod execute;
mod frames;
mod head;
mod health;
mod here;
mod inspect;
mod message;
mod methods;
mod multi_vector;
mod named;
mod parts;
#[doc(hidden)]
pub mod probe;
mod reflection;
mod request;
mod server;
mod service;
mod status;
mod stream;
mod streamed;
mod unsent;

pub use config::GrpcConfig;
#[cfg(test)]
pub(crate) use configuration::{config_of, message_of, tokens_config_of, tokens_message_of};
pub use methods::{PACKAGE, SERVICE, check_alias};
pub use server::serve;
pub use status::{Code, code};
