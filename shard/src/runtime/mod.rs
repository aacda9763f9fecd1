//! Executors: the only module that imports glommio. Threads, task queues with shares, timers, the core loop, the
//! watchdog against the executor's parking bug, and the real disk.
//!
//! Entry points: [`Cluster::start`], which runs a `main` on every core, and [`CoreRuntime`], which that main is given. The heart
//! is `core_loop`: one task per core that turns (`Inner::turn`: sockets, timers, mesh, bells) and knows three ways of doing
//! nothing. Why it is built like this, with the measurements: the executor in the version used can sleep with runnable
//! tasks, and its own ways across threads cost a full park each.
//!
//! Invariants, each upheld in one place:
//! * A task is woken by its own thread only (`task`: a stray wake takes the core's inbox and bell).
//! * The thread blocks outside the executor only while nothing is runnable and the executor's rings hold nothing of ours
//!   (`core_loop`, counted in `health` and `Inner::use_executor`).
//! * A core that sleeps has armed its bell and looked at its rings since (`Inner::turn`, `core_loop`, `Inner::turn_inline`).
//! * Every queue is bounded: `port`, `inbox`, `thread_pool`.

mod background;
mod calls;
mod clock;
mod cluster;
mod context;
mod core_loop;
mod disk;
mod handle;
mod health;
mod inbox;
mod port;
mod probe;
mod resident;
mod task;
mod thread_pool;
mod training;
mod waiters;
mod watchdog;

pub use cluster::{Cluster, ClusterOptions, FatalHook, Remote, StartError};
pub use handle::CoreRuntime;
pub use health::{CoreHealth, Health};
pub(crate) use resident::resident_bytes;
pub use training::Length;

use crate::disk::LocalBoxFuture;
use std::sync::Arc;

/// What runs on each core.
pub type CoreMain = Arc<dyn Fn(CoreRuntime) -> LocalBoxFuture<'static, ()> + Send + Sync>;

/// A message between cores: runs on the destination inside its core loop; must not block or take long (spawn for that).
pub type Message = Box<dyn FnOnce() + Send>;

/// The mesh is full or the peer stops; answer 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is busy; try again")]
pub struct Busy;

#[cfg(test)]
mod tests;
