//! Whole server processes, all in one program: it is linked once, and tests that wait run beside tests that compute.
//!
//! Each file says what it is about. Tests that need the machine for themselves are in `alone`.
mod archive;
mod backups;
mod bench;
mod cells;
mod clients;
mod cold;
mod confined;
mod crowds;
mod damage;
mod decoders;
mod differential;
mod full_disk;
mod golden;
mod grpc;
mod kill;
mod kill_evictions;
mod kill_keys;
mod logs;
mod rest;
mod restart;
mod seccomp;
mod secure;
mod secure_clients;
mod start;
mod tcp;
mod tcp_completion;
mod transfer;
mod ttl;
