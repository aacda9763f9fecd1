//! What was learned follows the data: whatever became of the points that it was learned from, a collection finds about as many of the
//! nearest as a fresh one of the same points, also after restarts.
use super::bed::{Bed, Rng, small_config};
use super::rounds;
use crate::collection::{DenseConfig, Drift, IndexType, IvfConfig, IvfProduct, Quantizer, Query};
use crate::distance::{Metric, Width};
use crate::quantizer::{CellProduct, Quantization};

const DIM: usize = 32;
const POINTS: u64 = 900;
const TRAINED_AT: usize = 400;
/// What the server searches with by default.
const EF: usize = 64;
/// Less than a fresh collection finds, at most.
const LESS: f64 = 0.05;
/// Where vectors were given up codes are made anew from what older codes stand for, and only new points tell whether others are better.
const LESS_WITHOUT_VECTORS: f64 = 0.2;

/// Points around centres, somewhere, and as large as that.
struct Data {
    centres: Vec<Vec<f32>>,
    at: Vec<f32>,
    scale: f32,
}

impl Data {
    fn new(rng: &mut Rng) -> Data {
        Data { centres: (0..24).map(|_| rng.vector(DIM)).collect(), at: vec![0.0; DIM], scale: 1.0 }
    }

    /// Points whose centre lies `far` times as far away as points are from each other. Under cosine they must not all lie in one direction: signs
    /// would tell nothing of angles then.
    fn elsewhere(rng: &mut Rng, metric: Metric, far: f32, scale: f32) -> Data {
        let (far, scale) =
            if metric == Metric::Cosine { (far.min(1.0), scale.max(0.5)) } else { (far, scale) };
        let at = rng.vector(DIM).iter().map(|x| far * x).collect();
        Data { at, scale, ..Data::new(rng) }
    }

    fn point(&self, rng: &mut Rng) -> Vec<f32> {
        let centre = &self.centres[rng.below(self.centres.len() as u64) as usize];
        let each = centre.iter().zip(rng.vector(DIM)).zip(&self.at);
        each.map(|((c, x), at)| at + self.scale * (c + 0.6 * x)).collect()
    }
}

/// Every quantizer that is trained, and cells with and without codes.
fn kinds() -> Vec<(&'static str, DenseConfig)> {
    let graph = |name, quantization, metric| {
        let quant = Quantizer::Trained(quantization);
        (name, DenseConfig { quant, train_threshold: TRAINED_AT, ..small_config(DIM, metric) })
    };
    let product = |parts, bits, rotations| Quantization::Product { parts, bits, rotations, eta: 0.0 };
    let cells = |name, product: Option<bool>, metric| {
        let code = CellProduct { parts: 16, bits: 4, rotations: 0, eta: 0.0 };
        let product = product.map(|rerank| IvfProduct { code, rerank });
        let ivf =
            IvfConfig { nlist: 12, nprobe: 4, train_threshold: TRAINED_AT, product, ..IvfConfig::default() };
        (name, DenseConfig { index: IndexType::Ivf(ivf), ..small_config(DIM, metric) })
    };
    // Replacing points lets their number as it was, which is what drift alone goes by.
    let drifting = |(name, mut config): (&'static str, DenseConfig)| {
        if let IndexType::Ivf(ivf) = &mut config.index {
            ivf.drift = Some(Drift::default());
        }
        (name, config)
    };
    vec![
        graph("sq 8", Quantization::Scalar { width: Width::Eight }, Metric::L2),
        graph("sq 6", Quantization::Scalar { width: Width::Six }, Metric::L2),
        graph("sq 4", Quantization::Scalar { width: Width::Four }, Metric::Cosine),
        graph("bq1", Quantization::Sign, Metric::L2),
        graph("bq1, cosine", Quantization::Sign, Metric::Cosine),
        graph("pq", product(8, 8, 0), Metric::L2),
        graph("pq 4", product(16, 4, 0), Metric::Cosine),
        graph("opq", product(16, 4, 3), Metric::L2),
        graph("prq", Quantization::Residual { parts: 4, layers: 2, rotations: 0 }, Metric::L2),
        cells("ivf", None, Metric::L2),
        cells("ivf_pq with rerank", Some(true), Metric::L2),
        cells("ivf_pq", Some(false), Metric::L2),
        cells("ivf_pq, cosine", Some(false), Metric::Cosine),
        drifting(cells("ivf with drift", None, Metric::L2)),
        drifting(cells("ivf_pq with rerank and drift", Some(true), Metric::Cosine)),
    ]
}

/// Share of the ten nearest that are found, of queries that lie where points do.
fn recall(bed: &Bed, data: &Data, seed: u64) -> f64 {
    let mut rng = Rng(seed);
    let (mut found, mut wanted) = (0, 0);
    for _ in 0..60 {
        let vector = data.point(&mut rng);
        let truth = bed.truth(&vector, 10, None);
        let hits = bed.search(&Query { ef: EF, ..bed.query(&vector, 10) });
        assert_eq!(hits.len(), truth.len());
        wanted += truth.len();
        found += hits.iter().filter(|hit| truth.iter().any(|near| near.0 == hit.id)).count();
    }
    found as f64 / wanted as f64
}

/// What a fresh collection of the same points finds.
fn recall_of_fresh(bed: &Bed, data: &Data) -> f64 {
    let mut fresh = Bed::new(bed.config.clone(), bed.slots_max);
    for (&id, point) in &bed.twin {
        fresh.upsert(id, &point.prepared[..DIM]);
    }
    fresh.settle();
    recall(&fresh, data, 99)
}

/// As a fresh collection of the same points does.
fn check(what: &str, bed: &Bed, data: &Data) {
    check_with(what, bed, data, recall_of_fresh(bed, data));
}

fn check_with(what: &str, bed: &Bed, data: &Data, there: f64) {
    let here = recall(bed, data, 99);
    let less =
        if bed.config.ivf().is_some_and(IvfConfig::drops_vectors) { LESS_WITHOUT_VECTORS } else { LESS };
    assert!(there > 0.3 && here >= there - less, "{what}: {here} where a fresh collection finds {there}");
}

/// Images that are made and opened again every now and then.
#[derive(Default)]
struct Restarts {
    images: Vec<Vec<u8>>,
}

impl Restarts {
    /// A full image or one of changes, and a start from what there is.
    fn restart(&mut self, bed: &mut Bed, full: bool) {
        if full || bed.writer.space().codes_unsaved() || self.images.is_empty() {
            self.images = vec![bed.capture(true, 3000)];
        } else {
            self.images.push(bed.capture(false, 3000));
        }
        bed.reopen(&self.images, bed.seq);
    }
}

fn filled(config: &DenseConfig, data: &Data, rng: &mut Rng, persistent: bool) -> Bed {
    let make = if persistent { Bed::persistent } else { Bed::new };
    let mut bed = make(config.clone(), 1 << 13);
    (0..POINTS).for_each(|id| bed.upsert(id, &data.point(rng)));
    bed.settle();
    bed
}

#[test]
fn points_that_are_all_replaced() {
    for (name, config) in kinds() {
        for (way, far, scale) in [("elsewhere", 9.0, 1.0), ("closer together", 0.3, 0.02)] {
            // What coarse codes have made of points cannot be told apart any more by finer ones.
            if scale < 1.0 && config.ivf().is_some_and(IvfConfig::drops_vectors) {
                continue;
            }
            let mut rng = Rng(5);
            let (before, after) = (Data::new(&mut rng), Data::elsewhere(&mut rng, config.metric, far, scale));
            let mut bed = filled(&config, &before, &mut rng, false);
            for id in 0..POINTS {
                bed.upsert(id, &after.point(&mut rng));
                if id % 64 == 0 {
                    bed.settle();
                }
            }
            bed.settle();
            let fresh = recall_of_fresh(&bed, &after);
            check_with(&format!("{name}, {way}"), &bed, &after, fresh);
            // What was learned anew is still there after a restart.
            let mut restarts = Restarts::default();
            for full in [true, false] {
                restarts.restart(&mut bed, full);
                bed.settle();
                check_with(&format!("{name}, {way}, after a start"), &bed, &after, fresh);
            }
        }
    }
}

#[test]
fn points_that_are_replaced_across_restarts() {
    for (at, (name, config)) in kinds().into_iter().enumerate() {
        let mut rng = Rng(50 + at as u64);
        let (before, after) = (Data::new(&mut rng), Data::elsewhere(&mut rng, config.metric, 9.0, 1.0));
        // In a graph of a persistent collection edges are chosen on codes, and stay as they were chosen on those of before.
        let mut bed = filled(&config, &before, &mut rng, config.ivf().is_some() && at % 2 == 1);
        let mut restarts = Restarts::default();
        for id in 0..POINTS {
            bed.upsert(id, &after.point(&mut rng));
            if id % 150 == 149 {
                // The restart comes with and without the work that was due before it.
                if rng.below(2) == 0 {
                    bed.settle();
                }
                restarts.restart(&mut bed, rng.below(4) == 0);
            }
        }
        bed.settle();
        check(&format!("{name}, started again on the way"), &bed, &after);
    }
}

#[test]
fn points_that_move_step_by_step() {
    for (name, config) in kinds() {
        let mut rng = Rng(6);
        let mut data = Data::new(&mut rng);
        let way = rng.vector(DIM);
        let mut bed = filled(&config, &data, &mut rng, false);
        let steps = rounds(30, 200) as u64;
        for step in 0..steps {
            let most = if config.metric == Metric::Cosine { 0.05 } else { 0.3 };
            data.at.iter_mut().zip(&way).for_each(|(at, x)| *at += most * x);
            for id in (step % 6..POINTS).step_by(6) {
                bed.upsert(id, &data.point(&mut rng));
            }
            bed.settle();
        }
        check(&format!("{name}, moved"), &bed, &data);
    }
}

#[test]
fn what_was_learned_of_points_that_are_gone_is_forgotten() {
    for (at, (name, config)) in kinds().into_iter().enumerate() {
        let mut rng = Rng(7);
        let (before, after) = (Data::new(&mut rng), Data::elsewhere(&mut rng, config.metric, 9.0, 0.5));
        let mut bed = filled(&config, &before, &mut rng, at % 3 == 1);
        let learned = |bed: &Bed| {
            let shared = bed.writer.shared();
            shared.space().graph().codec_number() != 0
                || shared.space().cells_info().is_some_and(|info| info.cells > 0)
        };
        let mut restarts = Restarts::default();
        restarts.restart(&mut bed, true);
        bed.settle();
        assert!(learned(&bed), "{name}");
        (0..POINTS).for_each(|id| bed.delete(id, false));
        bed.settle();
        // Slots of files are free once an image says so.
        restarts.restart(&mut bed, false);
        bed.settle();
        assert!(!learned(&bed), "{name}: forgotten");
        restarts.restart(&mut bed, false);
        bed.settle();
        assert!(!learned(&bed), "{name}: also after a start");
        for (more, trained) in [(TRAINED_AT as u64 / 2, false), (POINTS, true)] {
            (0..more).for_each(|id| bed.upsert(id, &after.point(&mut rng)));
            bed.settle();
            assert_eq!(learned(&bed), trained, "{name}: {more} points");
            let fresh = recall_of_fresh(&bed, &after);
            check_with(&format!("{name}, filled again"), &bed, &after, fresh);
            restarts.restart(&mut bed, false);
            bed.settle();
            check_with(&format!("{name}, filled again and started again"), &bed, &after, fresh);
        }
    }
}

/// Points like those before change nothing, and those unlike them no more often than they are written.
#[test]
fn nothing_is_learned_in_a_loop() {
    for (name, config) in kinds() {
        let mut rng = Rng(8);
        let data = Data::new(&mut rng);
        let mut bed = filled(&config, &data, &mut rng, false);
        let number = |bed: &Bed| bed.writer.shared().space().graph().codec_number();
        let (before, mut trainings) = (number(&bed), 0);
        for id in 0..4 * POINTS {
            bed.upsert(id % POINTS, &data.point(&mut rng));
            if id % 30 == 0 {
                bed.writer.index_all_counting(&mut trainings);
            }
        }
        // Twelve looks while all points are replaced once, and then three each time, and a few because of errors; where vectors are given up at rest, one for as many
        // points as it takes to compare codes.
        let dropping = config.ivf().is_some_and(IvfConfig::drops_vectors);
        let most = if dropping { 4 * POINTS as usize / 64 } else { 12 + 3 * 3 + 3 };
        assert!(trainings <= most, "{name}: {trainings} trainings of points as before");
        assert!(number(&bed) <= before + 1, "{name}: {before}, then {}", number(&bed));
        let mut trainings = 0;
        for id in 0..4 * POINTS {
            let elsewhere = Data::elsewhere(&mut rng, config.metric, 20.0, 1.0);
            bed.upsert(id % POINTS, &elsewhere.point(&mut rng));
            if id % 10 == 0 {
                bed.writer.index_all_counting(&mut trainings);
            }
        }
        assert!(
            trainings <= 4 * POINTS as usize / 32,
            "{name}: {trainings} trainings of points that are everywhere"
        );
    }
}
