//! The front ends over real sockets, against nodes of two cores in memory: connections, limits, every route and every method.
mod common;
mod filters;
mod grpc;
mod http;
mod rest;
mod routes;
mod tcp;
mod tls;
mod transports;
