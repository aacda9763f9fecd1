//! Which processors this process may use, and whether threads can be pinned.
/// Placement of the executors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// One per core of ours: the CPU to pin to, or None (unpinned).
    pub cpus: Vec<Option<usize>>,
    /// One sentence for the start log: how the count and the pinning came about.
    pub reason: String,
}
impl Placement {
    /// From the affinity mask and the cgroup CPU quota (v1 and v2), never the host's count; `limit` (0 = none) caps it further.
    /// Pinned when the quota allows every masked CPU in full, else ceil(quota) unpinned executors.
    pub fn detect(limit: usize) -> Placement {
        let _ = limit;
        todo!()
    }
}
