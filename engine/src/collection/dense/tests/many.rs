//! Many small collections in one process.
use crate::collection::{DenseConfig, DenseWriter, Parts, Write};
use crate::distance::Metric;
use crate::memory::Domain;

/// Mappings of this process. The kernel allows 65,530 unless it is told otherwise.
fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("Linux has it").lines().count()
}

/// The kernel counts neighbours with the same advice as one mapping. Each of a collection's ten arenas was two mappings before, so that 3,000
/// collections were all that a process could have.
#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn small_collections_share_mappings() {
    const COLLECTIONS: usize = 300;
    let before = mappings();
    let collections: Vec<DenseWriter> = (0..COLLECTIONS as u64)
        .map(|number| {
            // The slots of a server with 24 GiB.
            let mut writer =
                DenseWriter::create(DenseConfig::new(4, Metric::L2), 90_000_000, Domain::new(1)).unwrap();
            let vector = [number as f32, 0.0, 0.0, 1.0];
            writer.apply(Write {
                seq: 1,
                id: number,
                version: 1,
                parts: Parts::Only(&vector),
                row: &[],
                deadline_ms: 0,
            });
            writer
        })
        .collect();
    let each = mappings().saturating_sub(before) as f64 / COLLECTIONS as f64;
    // Other tests map and unmap at the same time.
    assert!(each < 4.0, "{each} mappings for each collection");
    assert!(collections.iter().all(|writer| writer.shared().stats().live == 1));
}
