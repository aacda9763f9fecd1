//! Routes about payloads, orders, aliases, what a collection holds and what this build lacks, and the document of all
//! routes, over sockets, against a node of two cores in memory.
mod absent;
mod aliases;
#[path = "../common/mod.rs"]
mod common;
mod conditions;
mod inspect;
mod long_searches;
mod openapi;
mod order;
mod payloads;
mod schema;
