//! Several cores of a node on one simulated thread: tasks of all cores interleave as the seed decides, messages
//! arrive late and out of step with each other (in order per pair of cores), and the disk is simulated.

use super::Sim;
use crate::core::Core;
use crate::disk::{Disk, LocalBoxFuture, SimDisk};
use crate::env::{Env, Length};
use crate::runtime::Message;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;

/// Longest delay of a message, virtual microseconds.
const MESSAGE_DELAY_US: u64 = 40;
/// Longest computation apart from the cores, virtual microseconds.
const COMPUTE_US: u64 = 5_000;
/// A message in so many is refused as if the ring were full.
const FULL_RING_ONE_IN: u64 = 200;

/// The cores of one simulated node.
#[derive(Default)]
pub struct Cores {
    all: RefCell<Vec<Option<Rc<Core>>>>,
    /// Messages in flight per (from, to): a ring keeps their order.
    rings: RefCell<Vec<VecDeque<Message>>>,
}

impl Cores {
    /// Room for `count` cores.
    pub fn new(count: usize) -> Rc<Cores> {
        let rings = (0..count * count).map(|_| VecDeque::new()).collect();
        Rc::new(Cores { all: RefCell::new(vec![None; count]), rings: RefCell::new(rings) })
    }

    /// Forgets the cores, which hold this through their surroundings; call at the end of a life.
    pub fn clear(&self) {
        let cores: Vec<_> = self.all.borrow_mut().iter_mut().map(Option::take).collect();
        drop(cores);
        self.rings.borrow_mut().clear();
    }

    /// Makes core `index` reachable for messages.
    pub fn register(&self, index: usize, core: Rc<Core>) {
        self.all.borrow_mut()[index] = Some(core);
    }
}

/// The surroundings of one simulated core.
pub struct SimEnv {
    sim: Sim,
    index: usize,
    cores: Rc<Cores>,
    disk: Option<Rc<SimDisk>>,
}

impl SimEnv {
    /// Core `index` of `cores`.
    pub fn new(sim: Sim, index: usize, cores: Rc<Cores>, disk: Option<Rc<SimDisk>>) -> Rc<SimEnv> {
        Rc::new(SimEnv { sim, index, cores, disk })
    }

    /// Starts a task whose every step runs as core `index`.
    fn spawn_on(&self, index: usize, mut task: LocalBoxFuture<'static, ()>) {
        let cores = self.cores.clone();
        self.sim.spawn(poll_fn(move |cx| {
            Core::set_current(cores.all.borrow()[index].clone());
            let step = task.as_mut().poll(cx);
            Core::set_current(None);
            step
        }));
    }
}

impl Env for SimEnv {
    fn index(&self) -> usize {
        self.index
    }
    fn cores(&self) -> usize {
        self.cores.all.borrow().len()
    }
    fn spawn(&self, task: LocalBoxFuture<'static, ()>) {
        self.spawn_on(self.index, task);
    }
    fn spawn_background(&self, task: LocalBoxFuture<'static, ()>) {
        self.spawn_on(self.index, task);
    }
    fn breathe(&self) -> LocalBoxFuture<'static, ()> {
        Box::pin(self.sim.sleep_us(20))
    }
    fn yield_now(&self) -> LocalBoxFuture<'static, ()> {
        let sim = self.sim.clone();
        Box::pin(async move { sim.yield_now().await })
    }
    fn sleep_us(&self, us: u64) -> LocalBoxFuture<'static, ()> {
        Box::pin(self.sim.sleep_us(us))
    }
    fn train(&self, _: Length, job: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, ()> {
        let sim = self.sim.clone();
        let took_us = sim.random().below(COMPUTE_US);
        Box::pin(async move {
            sim.sleep_us(took_us).await;
            job();
        })
    }
    fn spawn_compute(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
    fn compute(&self, work: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, ()> {
        self.train(Length::Short, work)
    }
    fn stopping(&self) -> LocalBoxFuture<'static, ()> {
        // A simulated process ends by a crash, or by a stop that its test awaits.
        Box::pin(std::future::pending())
    }
    fn now_ns(&self) -> u64 {
        self.sim.now_ns()
    }
    fn unix_ms(&self) -> u64 {
        self.sim.unix_ms()
    }
    fn send(&self, to: usize, message: Message) -> bool {
        if self.sim.random().chance(1, FULL_RING_ONE_IN) {
            return false;
        }
        self.reply(to, message);
        true
    }
    fn reply(&self, to: usize, message: Message) {
        let count = self.cores();
        let ring = self.index * count + to;
        self.cores.rings.borrow_mut()[ring].push_back(message);
        let (sim, cores) = (self.sim.clone(), self.cores.clone());
        let delay = self.sim.random().below(MESSAGE_DELAY_US);
        let sleep = sim.sleep_us(delay);
        self.spawn_on(
            to,
            Box::pin(async move {
                sleep.await;
                // A peer that has not started yet receives when it has.
                while cores.all.borrow()[to].is_none() {
                    sim.sleep_us(1).await;
                }
                Core::set_current(cores.all.borrow()[to].clone());
                let message = cores.rings.borrow_mut()[ring].pop_front();
                message.expect("one message per send")();
            }),
        );
    }
    fn disk(&self) -> Option<Rc<dyn Disk>> {
        self.disk.clone().map(|disk| disk as Rc<dyn Disk>)
    }
}
