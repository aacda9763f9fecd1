//! Starting and stopping: one thread and one executor per core, the mesh between them, the watchdog beside them.
//!
//! Life of a core's thread: pin, make the executor and the reactor, report to the starter; when all have, run the core loop
//! with `main` as its first task. When `main` returns the core says goodbye and goes on serving its peers until all have;
//! then what is left is cancelled, and only after every thread has been joined do the bells close.

use super::context::Inner;
use super::health::{CoreHealth, CoreState, Health};
use super::inbox::{CoreShared, Foreign};
use super::port::{RingEnds, rings};
use super::task::{Home, Kind, Managed, panic_text};
use super::thread_pool::ThreadPool;
use super::watchdog::Watchdog;
use super::{CoreMain, Message, core_loop, probe};
use crate::cores::Placement;
use crate::reactor::Reactor;
use crate::system;
use rustix::thread::{gettid, set_current_timer_slack};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Exit code after a panic in a task, the one of a panicking main thread.
const PANIC_EXIT_CODE: i32 = 101;

/// Why executors do not start (io_uring refused, memlock too small ...), each with cause and remedy; or how they ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

/// Told of a panic instead of ending the process.
pub type FatalHook = Arc<dyn Fn(&str) + Send + Sync>;

/// What nodes and tests change about a cluster.
#[derive(Clone, Default)]
pub struct ClusterOptions {
    /// The executor's preemption timer. Anything but the default invites its parking bug: for the soak test of the watchdog.
    pub preempt_timer: Option<Duration>,
    /// Called on a panic in place of exiting with code 101; the cluster then stops and `join` returns the panic as its error.
    pub on_fatal: Option<FatalHook>,
    /// Long stretches of work are no stalls before [`Cluster::opened`]: nobody is served yet.
    pub opening: bool,
}

/// What all cores of a cluster share.
pub(super) struct ClusterShared {
    pub(super) cores: Vec<Arc<CoreShared>>,
    pub(super) blocking: ThreadPool,
    pub(super) computing: ThreadPool,
    /// Cores whose main has returned.
    pub(super) finished: AtomicUsize,
    stopping: AtomicBool,
    fatal: Mutex<Option<String>>,
    on_fatal: Option<FatalHook>,
}

impl ClusterShared {
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    pub(super) fn all_finished(&self) -> bool {
        self.finished.load(SeqCst) >= self.cores.len()
    }

    pub(super) fn request_stop(&self) {
        self.stopping.store(true, SeqCst);
        for core in &self.cores {
            core.bell.ring_always();
        }
    }

    /// A core cannot go on, and the others would wait for it for ever: the process ends, loudly. The panic hook has already
    /// printed where it happened.
    pub(super) fn fatal(&self, text: &str) {
        self.fatal.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| text.to_owned());
        match &self.on_fatal {
            Some(hook) => {
                hook(text);
                self.request_stop();
            }
            None => {
                tracing::error!("{text}; the process ends");
                // Nobody is left to tell if standard output or error cannot be written.
                let _ = io::Write::flush(&mut io::stdout());
                let _ = io::Write::flush(&mut io::stderr());
                std::process::exit(PANIC_EXIT_CODE);
            }
        }
    }

    fn health(&self) -> Health {
        Health { cores: self.cores.iter().map(|core| core.cell.health()).collect() }
    }

    pub(super) fn core_health(&self, index: usize) -> CoreHealth {
        self.cores[index].cell.health()
    }
}

/// A running set of executors. Several may live in one process, though pinned ones would share CPUs.
///
/// Dropping it without [`Cluster::join`] asks the cores to stop and lets them end on their own.
pub struct Cluster {
    shared: Arc<ClusterShared>,
    threads: Vec<JoinHandle<()>>,
    watchdog: Option<Watchdog>,
}

impl Cluster {
    /// Starts one executor per entry of `placement`, each running `main`, with mesh and watchdog.
    ///
    /// # Errors
    /// io_uring or memory refused, a CPU of the placement not available, no descriptors or threads left. Nothing runs then.
    pub fn start(placement: &Placement, main: CoreMain) -> Result<Cluster, StartError> {
        Cluster::start_with(placement, main, ClusterOptions::default())
    }

    /// [`Self::start`] with what tests need.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(
        placement: &Placement,
        main: CoreMain,
        options: ClusterOptions,
    ) -> Result<Cluster, StartError> {
        let count = placement.cpus.len();
        if count == 0 {
            return Err(StartError("a placement without cores cannot run anything".to_owned()));
        }
        let io_memory = probe::probe(count)?;
        let cores = (0..count)
            .map(|_| CoreShared::new().map(Arc::new))
            .collect::<io::Result<Vec<_>>>()
            .map_err(|error| failed("making the cores' bells", &error))?;
        let shared = Arc::new(ClusterShared {
            cores,
            blocking: ThreadPool::start()
                .map_err(|error| failed("starting threads for blocking calls", &error))?,
            computing: ThreadPool::start_computing()
                .map_err(|error| failed("starting threads for computations", &error))?,
            finished: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            fatal: Mutex::default(),
            on_fatal: options.on_fatal.clone(),
        });
        let (report, reports) = channel();
        let mut gates = Vec::with_capacity(count);
        let mut threads = Vec::with_capacity(count);
        for (index, (ends, cpu)) in rings(count).into_iter().zip(&placement.cpus).enumerate() {
            let (gate, opened) = channel();
            gates.push(gate);
            let seat = Seat {
                shared: shared.clone(),
                index,
                cpu: *cpu,
                io_memory,
                preempt_timer: options.preempt_timer,
                main: main.clone(),
            };
            let report = report.clone();
            let thread = std::thread::Builder::new()
                .name(format!("nigh-core-{index}"))
                .spawn(move || seat.run(ends, &report, &opened))
                .map_err(|error| failed("starting a core's thread", &error))?;
            threads.push(thread);
        }
        drop(report);
        // Each thread reports once or, if it cannot even do that, drops its sender.
        let ready: Result<Vec<()>, StartError> = reports.iter().take(count).collect();
        let watchdog = ready.and_then(|ready| {
            if ready.len() < count {
                return Err(StartError("a core's thread ended before it was ready".to_owned()));
            }
            Watchdog::start(shared.cores.clone(), options.opening)
                .map_err(|error| failed("starting the watchdog", &error))
        });
        match watchdog {
            Ok(watchdog) => {
                for gate in gates {
                    // A thread that has reported waits at its gate.
                    let _ = gate.send(());
                }
                Ok(Cluster { shared, threads, watchdog: Some(watchdog) })
            }
            Err(error) => {
                // Closed gates send the ready threads home.
                drop(gates);
                for thread in threads {
                    let _ = thread.join();
                }
                Err(error)
            }
        }
    }

    /// Ends what [`ClusterOptions::opening`] began.
    pub fn opened(&self) {
        if let Some(watchdog) = &self.watchdog {
            watchdog.opened();
        }
    }

    /// Asks every core to stop (their `CoreRuntime::stopping` resolves) and joins the threads; a panic in a core is an error.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn stop(self) -> Result<(), StartError> {
        self.request_stop();
        self.join()
    }

    /// Blocks until every core's main has returned, then ends all threads and closes all descriptors.
    ///
    /// # Errors
    /// The first panic, when [`ClusterOptions::on_fatal`] kept it from ending the process.
    pub fn join(mut self) -> Result<(), StartError> {
        for thread in std::mem::take(&mut self.threads) {
            if let Err(panic) = thread.join() {
                self.shared.fatal(&format!("a core's thread panicked: {}", panic_text(&*panic)));
            }
        }
        self.watchdog.take();
        self.shared.blocking.stop();
        self.shared.computing.stop();
        match self.shared.fatal.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(text) => Err(StartError(text)),
            None => Ok(()),
        }
    }

    /// Asks all cores to stop; async-signal-unsafe but callable from any thread.
    pub fn request_stop(&self) {
        self.shared.request_stop();
    }

    /// A handle that outlives the borrow of this one, for other threads.
    pub fn remote(&self) -> Remote {
        Remote::new(self.shared.clone())
    }

    /// Condition of all cores since the start.
    pub fn health(&self) -> Health {
        self.shared.health()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.request_stop();
        }
    }
}

/// The way into a cluster from threads that are no cores: signal handling, clients on other runtimes, devices.
#[derive(Clone)]
pub struct Remote {
    shared: Arc<ClusterShared>,
}

impl Remote {
    pub(super) fn new(shared: Arc<ClusterShared>) -> Remote {
        Remote { shared }
    }

    /// Asks all cores to stop.
    pub fn request_stop(&self) {
        self.shared.request_stop();
    }

    /// Runs `message` on core `to` soon; false when the core has ended or thousands already wait (the message is dropped).
    pub fn send(&self, to: usize, message: Message) -> bool {
        self.shared.cores[to].post(Foreign::Run(message))
    }

    /// Number of cores.
    pub fn cores(&self) -> usize {
        self.shared.cores.len()
    }

    /// Condition of all cores since the start.
    pub fn health(&self) -> Health {
        self.shared.health()
    }
}

/// All that one core's thread is given.
struct Seat {
    shared: Arc<ClusterShared>,
    index: usize,
    cpu: Option<usize>,
    io_memory: usize,
    preempt_timer: Option<Duration>,
    main: CoreMain,
}

impl Seat {
    fn run(self, ends: RingEnds, report: &Sender<Result<(), StartError>>, opened: &Receiver<()>) {
        let core = self.shared.cores[self.index].clone();
        let _home = Home::enter(&core);
        let (executor, reactor) = match self.prepare(&core) {
            Ok(prepared) => prepared,
            Err(error) => {
                // A starter that has given up does not listen any more.
                let _ = report.send(Err(error));
                return;
            }
        };
        let _ = report.send(Ok(()));
        if opened.recv().is_err() {
            return;
        }
        core.cell.set_state(CoreState::Running);
        let index = self.index;
        let shared = self.shared.clone();
        let ended = catch_unwind(AssertUnwindSafe(|| executor.run(self.live(ends, reactor))));
        Inner::set_current(None);
        core.cell.set_state(CoreState::Absent);
        core.close();
        if let Err(panic) = ended {
            shared.fatal(&format!("the executor of core {index} panicked: {}", panic_text(&*panic)));
            std::mem::forget(panic);
        }
    }

    /// Everything that can fail, before anything runs.
    fn prepare(&self, core: &CoreShared) -> Result<(glommio::LocalExecutor, Rc<Reactor>), StartError> {
        if let Some(cpu) = self.cpu {
            system::pin(cpu).map_err(|error| failed(&format!("pinning a thread to CPU {cpu}"), &error))?;
        }
        // Timeouts of this thread's waits end when asked for, not up to 50 µs later. A kernel that refuses keeps its own.
        let _refused = set_current_timer_slack(NonZeroU64::new(1));
        core.cell.set_thread(gettid().as_raw_nonzero().get());
        // Unbound for the executor: the thread is pinned already, and it would read the host's topology first.
        let mut builder = glommio::LocalExecutorBuilder::new(glommio::Placement::Unbound)
            .name(&format!("nigh-core-{}", self.index))
            .io_memory(self.io_memory);
        if let Some(timer) = self.preempt_timer {
            builder = builder.preempt_timer(timer);
        }
        let executor = builder.make().map_err(|error| {
            StartError(format!("the executor of core {} did not start: {error}", self.index))
        })?;
        let reactor = Reactor::new().map_err(|error| failed("making a core's epoll instance", &error))?;
        reactor.watch(core.bell.as_fd()).map_err(|error| failed("watching a core's bell", &error))?;
        Ok((executor, reactor))
    }

    /// The core's whole life inside its executor.
    async fn live(self, ends: RingEnds, reactor: Rc<Reactor>) {
        let inner = Inner::new(self.shared, self.index, ends, reactor);
        Inner::set_current(Some(inner.clone()));
        inner.spawn(Kind::Foreground, {
            let inner = inner.clone();
            let main = (self.main)(inner.handle());
            Box::pin(async move {
                let ending = EndOfMain(inner);
                main.await;
                drop(ending);
            })
        });
        Managed::new(inner.clone(), Kind::Loop, None, Box::pin(core_loop::run(inner.clone()))).await;
        let cancelled = inner.tasks.close().await;
        if cancelled > 0 {
            tracing::debug!(core = inner.index, cancelled, "tasks were cancelled at the end");
        }
        inner.port.close();
        // Twice round the rings: closes of files and cancelled polls leave with the first, completions come with the second.
        for _ in 0..2 {
            glommio::timer::sleep(Duration::from_micros(1)).await;
        }
    }
}

/// Main ends when it returns, and also when it panics.
struct EndOfMain(Rc<Inner>);

impl Drop for EndOfMain {
    fn drop(&mut self) {
        self.0.end_main();
    }
}

fn failed(what: &str, error: &io::Error) -> StartError {
    StartError(format!("{what} failed: {error}"))
}
