//! Random walks: every operation in any order, against the twin.
use super::bed::{Bed, Rng, small_config};
use super::rounds;
use crate::collection::{DenseConfig, IndexType, Quantizer, VamanaConfig, WriteMode};
use crate::distance::{Metric, Width};
use crate::index::{Job, JobStep, NodePlan, Planner, Round, Scratch};
use crate::quantizer::Quantization;
use std::sync::Arc;

const DIM: usize = 6;
const IDS: u64 = 350;

/// A round being planned, one slice at a time.
struct Open {
    round: Arc<Round>,
    plans: Vec<NodePlan>,
    planner: Planner,
    committing: bool,
}

struct Walk {
    bed: Bed,
    rng: Rng,
    open: Option<Open>,
    /// Images that are durable, and the log position they cover.
    images: Vec<Vec<u8>>,
    images_seq: u64,
    capturing: Option<(bool, Vec<u8>)>,
    /// Work for the quantizer that is out, maybe that of a collection before a restart.
    job: Option<Job>,
}

/// A quantizer for some walks, trained when there are some points.
fn quantizer(seed: u64) -> Quantizer {
    match seed % 5 {
        0 => Quantizer::None,
        1 => Quantizer::Sq8,
        2 => Quantizer::Trained(Quantization::Scalar { width: Width::Four }),
        3 => Quantizer::Trained(Quantization::Product { parts: 3, bits: 8, rotations: 1, eta: 0.0 }),
        _ => Quantizer::Trained(Quantization::Residual { parts: 2, layers: 2, rotations: 0 }),
    }
}

impl Walk {
    fn new(seed: u64, metric: Metric) -> Walk {
        let (quant, train_threshold) = (quantizer(seed), 40 + seed as usize % 100);
        let vamana = VamanaConfig { degree: 10, beam: 20, alpha: 1.2 };
        let index = if seed % 4 == 3 { IndexType::Vamana(vamana) } else { IndexType::Hnsw };
        let bed = Bed::new(DenseConfig { quant, train_threshold, index, ..small_config(DIM, metric) }, 4096);
        Walk {
            bed,
            rng: Rng(seed),
            open: None,
            images: Vec::new(),
            images_seq: 0,
            capturing: None,
            job: None,
        }
    }

    fn write(&mut self) {
        let id = self.rng.below(IDS);
        let mode = if self.rng.below(3) == 0 { WriteMode::Insert } else { WriteMode::Upsert };
        let vector = match self.rng.below(40) {
            0 => vec![0.0; DIM],
            1 => vec![0.5; DIM],
            _ => self.rng.vector(DIM),
        };
        let deadline_ms = if self.rng.below(8) == 0 { self.bed.now_ms + 1 + self.rng.below(300) } else { 0 };
        let group = self.rng.below(6) as i64 - 1;
        self.bed.write(mode, id, &vector, group, deadline_ms);
    }

    fn round(&mut self) {
        let shared = self.bed.writer.shared().clone();
        let Some(open) = &mut self.open else {
            let max = 1 + self.rng.below(64) as usize;
            if let Some(round) = self.bed.writer.begin_round(0, max) {
                let mut planner = Planner::new();
                shared.space().plan_start(&mut planner, &round, 0);
                self.open = Some(Open { round, plans: Vec::new(), planner, committing: false });
            }
            return;
        };
        if open.committing {
            if self.bed.writer.commit_step(0, 1 + self.rng.below(300) as usize) {
                self.open = None;
            }
            return;
        }
        for _ in 0..self.rng.below(200) {
            if let Some(plan) = shared.space().plan_step(&mut open.planner, &open.round, 50) {
                open.plans.push(plan);
                if open.plans.len() == open.round.slots.len() {
                    return self.commit();
                }
                shared.space().plan_start(&mut open.planner, &open.round, open.plans.len());
            }
        }
    }

    fn commit(&mut self) {
        let open = self.open.as_mut().unwrap();
        let shared = self.bed.writer.shared().clone();
        let plans = std::mem::take(&mut open.plans);
        let jobs = self.bed.writer.space().target_jobs(&plans);
        let mut scratch = Scratch::default();
        let targets = jobs.iter().map(|job| shared.space().plan_target(job, &mut scratch)).collect();
        self.bed.writer.space_mut().begin_commit(plans, targets);
        open.committing = true;
    }

    fn capture(&mut self) {
        let slice = 1 + self.rng.below(20_000) as usize;
        let Some((full, image)) = &mut self.capturing else {
            let full = self.images.is_empty() || self.rng.below(4) == 0;
            self.bed.writer.begin_capture(full);
            self.capturing = Some((full, Vec::new()));
            return;
        };
        if self.bed.writer.capture_step(slice, image) {
            let durable = self.rng.below(4) != 0;
            self.bed.writer.end_capture(durable);
            let (full, image) = (*full, std::mem::take(image));
            self.capturing = None;
            if durable {
                if full {
                    self.images.clear();
                }
                self.images.push(image);
                self.images_seq = self.bed.seq;
            }
        }
    }

    fn quantize(&mut self) {
        let writer = &mut self.bed.writer;
        match self.job.take() {
            Some(job) => writer.space_mut().finish_job(job.run()).unwrap(),
            None => {
                if let JobStep::Run(job) = writer.next_job(0, false) {
                    self.job = Some(job);
                }
            }
        }
    }

    fn restart(&mut self) {
        (self.open, self.capturing) = (None, None);
        self.bed.reopen(&self.images, self.images_seq);
    }

    fn step(&mut self) {
        match self.rng.below(1000) {
            0..330 => self.write(),
            330..400 => {
                let (id, group) = (self.rng.below(IDS), self.rng.below(6) as i64 - 1);
                self.bed.rewrite(id, group);
            }
            400..500 => {
                let id = self.rng.below(IDS);
                self.bed.delete(id, false);
            }
            500..510 => {
                self.bed.now_ms += self.rng.below(50);
                let max = self.rng.below(5) as usize;
                for id in self.bed.writer.points().expired(self.bed.now_ms, max) {
                    self.bed.delete(id, true);
                }
            }
            510..700 => self.round(),
            700..800 => _ = self.bed.writer.repair_step(1 + self.rng.below(100) as usize),
            800..850 => self.bed.writer.reclaim(),
            850..950 => self.capture(),
            950..990 => self.quantize(),
            990..992 => self.restart(),
            _ => self.bed.check(&mut self.rng),
        }
    }
}

#[test]
fn any_order_of_operations_shows_what_the_twin_shows() {
    for seed in 0..rounds(12, 600) as u64 {
        let metric = [Metric::Cosine, Metric::L2, Metric::Dot][seed as usize % 3];
        let mut walk = Walk::new(seed, metric);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..2500 {
                walk.step();
            }
            walk.bed.check(&mut walk.rng);
            if walk.open.is_some() {
                while walk.open.is_some() {
                    walk.round();
                }
            }
            walk.bed.settle();
            walk.bed.check(&mut walk.rng);
            if metric != Metric::Dot {
                let recall = walk.bed.recall(&mut walk.rng, 30, 30);
                assert!(recall >= 0.9, "recall {recall}");
                let lost = walk.bed.lost(40);
                assert!(lost <= walk.bed.twin.len() / 64, "{lost} of {} lost", walk.bed.twin.len());
            }
        }));
        if let Err(panic) = result {
            eprintln!("walk failed with seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn the_same_steps_give_the_same_collection() {
    let image = |seed| {
        let mut walk = Walk::new(seed, Metric::L2);
        for _ in 0..1500 {
            walk.step();
        }
        while walk.open.is_some() {
            walk.round();
        }
        walk.bed.settle();
        walk.bed.capture(true, usize::MAX)
    };
    assert!(image(99) == image(99), "vectors, edges and slots alike");
}
