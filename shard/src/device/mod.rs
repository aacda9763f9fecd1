//! Searches of collections with `index_type` "gpu": on a device, through one thread that all cores share.
//!
//! A core sends a plain search of up to 256 results to the lane and waits. The lane's thread takes all that wait at once,
//! brings the device's copy of each collection up to date (its mirror), and answers those of one collection under one pin, so
//! that it sees one moment of it: the unfiltered in one launch, and those whose matches the payload index names by a mask of
//! their own. What the device leaves unsure the core answers by an exact scan, as it does where there is no device.
//!
//! The thread starts with the first search or create that needs it. Devices block, which cores may not; a device's context likes
//! one thread; and one queue is what makes searches share a launch.
mod devices;
mod lane;
mod mirror;
#[cfg(test)]
mod tests;
mod waiting;

pub use devices::Devices;
pub(crate) use lane::Lane;
