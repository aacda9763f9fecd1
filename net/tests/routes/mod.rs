//! Routes about payloads, orders, aliases, what a collection holds and what this build lacks, and the document of all
//! routes, over sockets, against a node of two cores in memory.
mod absent;
mod aliases;
mod conditions;
mod inspect;
mod long_searches;
mod named;
mod openapi;
mod order;
mod payloads;
mod rights;
mod schema;
