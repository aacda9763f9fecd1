//! The front ends over real sockets, against nodes of two cores in memory: connections, the binary protocol's limits, and every route.
mod common;
mod http;
mod rest;
mod routes;
mod tcp;
