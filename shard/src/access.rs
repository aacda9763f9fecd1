//! Requests about a collection: how many are under way and when the last one came, counted by each core for itself, and the gate that keeps new
//! ones out while the collection leaves memory.
//!
//! Only nodes with a store of backups have collections that can leave, so only there are requests counted.

use crate::env::Env;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The requests of all cores about one collection.
pub struct Activity {
    cores: Box<[OfCore]>,
    /// New requests have to wait: the collection is leaving memory, or has left it.
    is_closed: AtomicBool,
}

/// What one core writes, in a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct OfCore {
    entered: AtomicU64,
    left: AtomicU64,
    /// When the last request began or ended, nanoseconds of the clock of the node.
    last_ns: AtomicU64,
}

impl Activity {
    /// For a node of `cores` cores.
    pub fn new(cores: usize) -> Activity {
        Activity { cores: (0..cores).map(|_| OfCore::default()).collect(), is_closed: AtomicBool::new(false) }
    }

    /// Counts a request on `core`; false when the gate is closed, and then it is not counted.
    fn enter(&self, core: usize, now_ns: u64) -> bool {
        let of_core = &self.cores[core];
        // The count is visible before the gate is looked at, and whoever closes the gate looks at the counts behind that: one of the two sees
        // the other.
        of_core.entered.fetch_add(1, SeqCst);
        if self.is_closed.load(SeqCst) {
            of_core.left.fetch_add(1, SeqCst);
            return false;
        }
        of_core.last_ns.store(now_ns, Relaxed);
        true
    }

    fn leave(&self, core: usize, now_ns: u64) {
        let of_core = &self.cores[core];
        of_core.last_ns.store(now_ns, Relaxed);
        of_core.left.fetch_add(1, SeqCst);
    }

    /// Notes a use by `core` that is no request.
    pub fn touch(&self, core: usize, now_ns: u64) {
        self.cores[core].last_ns.store(now_ns, Relaxed);
    }

    /// Keeps new requests out.
    pub fn close(&self) {
        self.is_closed.store(true, SeqCst);
    }

    /// Lets requests in again.
    pub fn reopen(&self) {
        self.is_closed.store(false, SeqCst);
    }

    /// Whether no request was under way at one moment during this call. With the gate closed it stays so.
    pub fn is_quiet(&self) -> bool {
        // What has left is read first: if as many have entered afterwards, then none was under way.
        self.cores.iter().all(|core| {
            let left = core.left.load(SeqCst);
            core.entered.load(SeqCst) == left
        })
    }

    /// When the last request began or ended, nanoseconds of the clock of the node; 0 if there was none.
    pub fn last_ns(&self) -> u64 {
        self.cores.iter().map(|core| core.last_ns.load(Relaxed)).max().unwrap_or(0)
    }
}

/// A request about a collection, until dropped. The collection does not leave memory meanwhile.
#[derive(Default)]
pub struct Access(Option<(Arc<Activity>, Rc<dyn Env>)>);

impl Access {
    /// The access of a request that is about no collection that could leave memory; nothing is counted.
    pub fn uncounted() -> Access {
        Access::default()
    }

    /// Begins a request about a collection; `None` when its gate is closed.
    pub(crate) fn begin(activity: Option<&Arc<Activity>>, env: &Rc<dyn Env>) -> Option<Access> {
        let Some(activity) = activity else { return Some(Access::uncounted()) };
        activity.enter(env.index(), env.now_ns()).then(|| Access(Some((activity.clone(), env.clone()))))
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        if let Some((activity, env)) = &self.0 {
            activity.leave(env.index(), env.now_ns());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_lets_nobody_in_and_sees_who_is_inside() {
        let activity = Activity::new(2);
        assert!(activity.is_quiet() && activity.last_ns() == 0);
        assert!(activity.enter(0, 5) && activity.enter(1, 7));
        assert_eq!(activity.last_ns(), 7);
        activity.close();
        assert!(!activity.enter(1, 9));
        assert_eq!(activity.last_ns(), 7, "who was kept out has not used the collection");
        assert!(!activity.is_quiet());
        activity.leave(0, 11);
        assert!(!activity.is_quiet());
        activity.leave(1, 8);
        assert!(activity.is_quiet());
        assert_eq!(activity.last_ns(), 11);
        activity.reopen();
        assert!(activity.enter(1, 12) && !activity.is_quiet());
    }

    /// Threads enter and leave while another closes the gate: nobody is inside once it was seen quiet.
    #[test]
    fn nobody_is_inside_behind_a_closed_gate() {
        let (activity, inside) = (Activity::new(3), AtomicU64::new(0));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (activity, inside, is_over) = (&activity, &inside, &is_over);
            for core in 0..2 {
                scope.spawn(move || {
                    while !is_over.load(Relaxed) {
                        if activity.enter(core, 1) {
                            inside.fetch_add(1, SeqCst);
                            inside.fetch_sub(1, SeqCst);
                            activity.leave(core, 1);
                        }
                    }
                });
            }
            for _ in 0..2000 {
                activity.close();
                while !activity.is_quiet() {
                    std::thread::yield_now();
                }
                assert_eq!(inside.load(SeqCst), 0);
                activity.reopen();
                std::hint::spin_loop();
            }
            is_over.store(true, Relaxed);
        });
    }
}
