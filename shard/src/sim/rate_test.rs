//! Compares the limit on the rate of writes in each family with a twin, a simple model of the limit, while the wall clock jumps and the limit
//! changes.

use super::node::{node_options, open, patiently};
use super::{Random, Sim};
use crate::core::Core;
use crate::disk::SimDisk;
use crate::error::{BatchError, OpError};
use crate::family::{CollectionConfig, ConfigChange, NamedChange};
use crate::points::{NamedVectors, PointFields, Vectors, VectorsChange, WriteBatch};
use nigh_engine::collection::config_keys::{Key, Settings, Value};
use nigh_engine::collection::{
    DenseConfig, MultiVectorConfig, NamedConfig, NamedSpace, WriteError, WriteMode,
};
use nigh_engine::distance::Metric;
use std::cell::Cell;
use std::rc::Rc;

const NAMES: [&str; 3] = ["dense", "named", "documents"];
const DAY_MS: i64 = 86_400_000;
/// The rounding error, in writes, that is tolerated when the twin is compared with the limit.
const EPSILON: f64 = 1e-6;

fn configs(rate: u64) -> [CollectionConfig; 3] {
    let space = || DenseConfig::new(1, Metric::L2);
    let mut named = NamedConfig::new(vec![NamedSpace::new("a", space())], vec![]);
    let mut documents = MultiVectorConfig::new(DenseConfig::new(1, Metric::Cosine));
    (named.whole.max_inserts_per_second, documents.whole.max_inserts_per_second) = (rate, rate);
    [DenseConfig { max_inserts_per_second: rate, ..space() }.into(), named.into(), documents.into()]
}

/// A model of the limit. It keeps a lower and an upper bound on the writes that are allowed now, because a write takes time and the test does not
/// know at which moment it was counted.
struct Twin {
    rate: f64,
    at_ns: u64,
    least: f64,
    most: f64,
}

impl Twin {
    fn new(rate: u64, now_ns: u64) -> Twin {
        Twin { rate: rate as f64, at_ns: now_ns, least: rate as f64, most: rate as f64 }
    }

    /// Records that `counted` writes were counted since the last call and, if `is_refused`, that the next one was refused.
    fn counted(&mut self, counted: usize, is_refused: bool, now_ns: u64) {
        let refilled = (now_ns - self.at_ns) as f64 * self.rate / 1e9;
        self.at_ns = now_ns;
        if self.rate == 0.0 {
            assert!(!is_refused, "there is no limit");
            return;
        }
        let counted = counted as f64;
        assert!(
            counted <= self.most + refilled + EPSILON,
            "{counted} writes where {} are allowed",
            self.most + refilled
        );
        self.most = (self.most + refilled - counted).min(self.rate);
        if is_refused {
            assert!(
                self.least - counted < 1.0 + EPSILON,
                "a write was refused although {} are allowed",
                self.least - counted
            );
            self.most = self.most.min(1.0 + refilled);
        }
        // In the worst case the writes came at the end of this time, when the bucket had been full and part of the refill was lost.
        self.least = ((self.least + refilled).min(self.rate) - counted).max(0.0);
    }

    fn set_rate(&mut self, rate: u64, now_ns: u64) {
        if self.rate == 0.0 {
            *self = Twin::new(rate, now_ns);
        }
        // It is not known how much of the time that the change took passed at the old rate, and how much at the new one.
        self.least = self.least.min(rate as f64);
        let refilled = (now_ns - self.at_ns) as f64 * self.rate.max(rate as f64) / 1e9;
        (self.at_ns, self.rate) = (now_ns, rate as f64);
        self.most = (self.most + refilled).min(self.rate);
    }
}

fn batch(name: &str, ids: &[u64], components: usize, value: f32) -> WriteBatch {
    let vector = || vec![value; components];
    let named = |vectors: NamedVectors| Vectors::Named(vec![vectors; ids.len()]);
    let vectors = match name {
        "dense" => Vectors::PerPoint(vec![vector(); ids.len()]),
        "named" => named(NamedVectors { dense: vec![(0, vector())], ..NamedVectors::default() }),
        _ => named(NamedVectors { tokens: vec![vector(), vector()], ..NamedVectors::default() }),
    };
    let point = |id: &u64| PointFields { id: *id, row: Vec::new(), ttl_ms: 0, expected_version: None };
    let points = ids.iter().map(point).collect();
    WriteBatch { mode: WriteMode::Upsert, dim: components, vectors, points }
}

fn is_rate(error: &OpError) -> bool {
    matches!(error, OpError::Write(WriteError::RateLimited))
}

async fn life(sim: Sim, disk: Rc<SimDisk>, refused: Rc<Cell<u64>>) {
    let random = sim.random().fork();
    // With one core no message is delayed, so the test knows when a write begins.
    let node = open(&sim, &disk, 1, node_options()).await;
    let core = node.cores[0].clone();
    let rate = 1 + random.below(20);
    for (name, config) in NAMES.into_iter().zip(configs(rate)) {
        patiently(|| core.create_collection(name, config.clone())).await;
        let mut twin = Twin::new(rate, sim.now_ns());
        let mut refusals = 0_u64;
        for step in 0..60 {
            match random.below(9) {
                0 => sim.step_wall_clock_ms([DAY_MS, -DAY_MS][random.index(2)]),
                1 | 2 => sim.sleep_us(random.below(1_500_000)).await,
                // A write with an invalid vector is refused for that reason and is not counted.
                3 => {
                    let (components, value) = if random.chance(1, 2) { (2, 1.0) } else { (1, f32::NAN) };
                    let refused = core.write(name, batch(name, &[1], components, value)).await;
                    let error = refused.expect_err("a vector that does not fit").error;
                    assert!(!is_rate(&error), "{name}: {error}");
                    twin.counted(0, false, sim.now_ns());
                }
                // A write that expects a wrong version is counted, although it changes nothing.
                4 => {
                    let mut stale = batch(name, &[1], 1, 1.0);
                    stale.points[0].expected_version = Some(u64::MAX);
                    let outcome = core.write(name, stale).await;
                    let is_refused = outcome.as_ref().is_err_and(|stopped| is_rate(&stopped.error));
                    assert!(is_refused || outcome.is_ok(), "{name}: {outcome:?}");
                    twin.counted(usize::from(!is_refused), is_refused, sim.now_ns());
                    refusals += u64::from(is_refused);
                }
                5 if name == "named" => {
                    let set = NamedVectors { dense: vec![(0, vec![1.0])], ..NamedVectors::default() };
                    let change = VectorsChange { set, removed: vec![] };
                    match core.change_vectors(name, 1, change, None).await {
                        Ok(_) => twin.counted(1, false, sim.now_ns()),
                        Err(OpError::PointNotFound(1)) => twin.counted(0, false, sim.now_ns()),
                        Err(error) => {
                            assert!(is_rate(&error), "{error}");
                            twin.counted(0, true, sim.now_ns());
                            refusals += 1;
                        }
                    }
                }
                6 if step % 4 == 0 => {
                    let rate = random.below(10);
                    let mut settings = Settings::default();
                    settings.put(Key::MaxInsertsPerSecond, Value::Int(rate.into()));
                    let change = match name {
                        "dense" => ConfigChange::Dense(settings),
                        "named" => ConfigChange::Named(NamedChange { whole: settings, spaces: vec![] }),
                        _ => ConfigChange::MultiVector(settings),
                    };
                    twin.counted(0, false, sim.now_ns());
                    core.change_config(name, change).await.expect("the rate can be changed");
                    twin.set_rate(rate, sim.now_ns());
                }
                _ => {
                    let ids: Vec<u64> = (0..1 + random.below(6)).collect();
                    let (counted, is_refused) =
                        match core.write(name, batch(name, &ids, 1, random.below(9) as f32 + 1.0)).await {
                            Ok(written) => (written.len(), false),
                            Err(BatchError { written, error, .. }) => {
                                assert!(is_rate(&error), "{name}: {error}");
                                (written.len(), true)
                            }
                        };
                    twin.counted(counted, is_refused, sim.now_ns());
                    refusals += u64::from(is_refused);
                }
            }
        }
        refused.set(refused.get() + refusals);
        let counters = &core.ctx.handle(name).expect("it serves").counters;
        let counted = counters.quota_rejects.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(counted, refusals, "{name}: refusals that are counted, and that were answered");
    }
}

#[test]
fn the_rate_of_writes_is_bounded_in_every_family() {
    let refused = Rc::new(Cell::new(0));
    for seed in 1..=30 {
        let random = Random::new(seed);
        let disk = Rc::new(SimDisk::new(random.next()));
        super::run(random.next(), |sim| life(sim, disk.clone(), refused.clone()));
        Core::set_current(None);
    }
    assert!(refused.get() > 100, "only {} writes were refused", refused.get());
}
