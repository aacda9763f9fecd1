//! Routes about payloads, orders, aliases and what a collection holds, over sockets, against a node of two cores in memory.
mod aliases;
#[path = "../common/mod.rs"]
mod common;
mod inspect;
mod long_searches;
mod order;
mod payloads;
