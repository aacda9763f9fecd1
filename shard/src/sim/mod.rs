//! Seeded simulation: an executor with virtual time on one thread, and the random numbers that drive it.
//!
//! Code that sees its disk, clock and sleep through arguments runs here unchanged. One `u64` decides the order in which
//! ready tasks run, so a failing run replays from the seed it prints. The simulated disk is [`crate::disk::SimDisk`].
mod env;
mod executor;
pub mod node;
mod random;
pub use env::{Cores, SimEnv};
pub use executor::{Clock, Sim, run, run_by};
pub use random::Random;
#[cfg(test)]
mod alias_test;
#[cfg(test)]
mod archive_faults_test;
#[cfg(test)]
mod archive_test;
#[cfg(test)]
mod backup_keys_test;
#[cfg(test)]
mod backup_parts_test;
#[cfg(test)]
mod backup_test;
#[cfg(test)]
mod build_test;
#[cfg(test)]
mod clock_test;
#[cfg(test)]
mod cold_test;
#[cfg(test)]
mod config_test;
#[cfg(test)]
mod damage_test;
#[cfg(test)]
mod delete_test;
#[cfg(test)]
mod expiry_test;
#[cfg(test)]
mod follow_test;
#[cfg(test)]
mod full_disk_test;
#[cfg(test)]
mod ids_test;
#[cfg(test)]
mod key_batch_test;
#[cfg(test)]
mod key_query_test;
#[cfg(test)]
mod key_restore_test;
#[cfg(test)]
mod keys_hours_test;
#[cfg(test)]
mod keys_test;
#[cfg(test)]
mod long_filter_test;
#[cfg(test)]
mod many_payloads_test;
#[cfg(test)]
mod memory_test;
#[cfg(test)]
mod multi_vector_test;
#[cfg(test)]
mod named_test;
#[cfg(test)]
mod opening_test;
#[cfg(test)]
mod rate_test;
#[cfg(test)]
mod spaces_test;
#[cfg(test)]
mod stall_test;
#[cfg(test)]
mod store_test;
#[cfg(test)]
mod vectors_test;
#[cfg(test)]
mod version_test;
