use super::*;
use crate::disk::{Calls, Disk, Failure, SimDisk};
use crate::sim::{self, Random};
use futures_lite::future::block_on;
use proptest::prelude::*;
use std::rc::Rc;

const DIR: &str = "c";
/// The uid of the store to which the files of these tests belong.
const STORE: u64 = 0x0123_4567_89ab_cdef;

fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    block_on(disk.create_dir(Path::new(DIR))).unwrap();
    disk
}

async fn write(disk: &SimDisk, name: &str, blocks: &[Vec<u8>], seq: u64) -> Result<u64, CheckpointError> {
    let mut writer = ImageWriter::create(Rc::new(disk.clone()), Path::new(DIR), name, STORE).await?;
    for block in blocks {
        writer.block(block).await?;
    }
    writer.finish(seq).await
}

async fn read(disk: &SimDisk, name: &str) -> Result<(u64, Vec<Vec<u8>>), CheckpointError> {
    let mut blocks = Vec::new();
    let mut keep = |block: &[u8]| {
        blocks.push(block.to_vec());
        Ok(())
    };
    let seq = read_image(disk, Path::new(DIR), name, STORE, &mut keep).await?;
    Ok((seq, blocks))
}

fn manifest() -> Manifest {
    Manifest {
        seq: 77,
        images: vec![("00000001.img".into(), 8192), ("00000002.img".into(), 1 << 40)],
        vectors: Some("00000000.vec".into()),
    }
}

#[test]
fn images_of_any_size_read_back() {
    for lengths in [vec![], vec![1], vec![0, 5, 0], vec![3 << 20, 1], vec![100_000; 40], vec![4096 - 32; 3]] {
        let blocks: Vec<Vec<u8>> =
            lengths.iter().enumerate().map(|(i, &len)| vec![i as u8 + 1; len]).collect();
        let disk = disk(1);
        let bytes = block_on(write(&disk, "i", &blocks, 9)).unwrap();
        assert_eq!(bytes as usize, disk.bytes("c/i").unwrap().len());
        let (seq, found) = block_on(read(&disk, "i")).unwrap();
        let full: Vec<Vec<u8>> = blocks.into_iter().filter(|block| !block.is_empty()).collect();
        assert!((seq, found) == (9, full), "{lengths:?}");
    }
}

#[test]
fn a_finished_image_survives_a_crash() {
    for seed in 0..100 {
        let disk = disk(seed);
        disk.set_yielding(true);
        block_on(write(&disk, "i", &[vec![1; 5000], vec![2; 5000]], 9)).unwrap();
        assert_eq!(block_on(read(&disk.crash_clone(seed), "i")).unwrap().0, 9);
    }
}

#[test]
fn an_image_cut_or_flipped_anywhere_is_refused() {
    let disk = disk(1);
    block_on(write(&disk, "i", &[vec![1; 50], vec![2; 4200]], 9)).unwrap();
    let bytes = disk.bytes("c/i").unwrap();
    for cut in 0..bytes.len() {
        disk.put("c/i", bytes[..cut].to_vec());
        let refused = block_on(read(&disk, "i"));
        assert!(matches!(refused, Err(CheckpointError::Corrupt { .. })), "cut at {cut}: {refused:?}");
    }
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        disk.put("c/i", flipped);
        let refused = block_on(read(&disk, "i"));
        assert!(matches!(refused, Err(CheckpointError::Corrupt { .. })), "flipped at {at}: {refused:?}");
    }
    let mut longer = bytes;
    longer.resize(longer.len() + 4096, 0);
    disk.put("c/i", longer);
    assert!(block_on(read(&disk, "i")).unwrap_err().to_string().contains("follows the footer"));
}

#[test]
fn a_block_the_owner_refuses_is_corrupt() {
    let disk = disk(1);
    block_on(write(&disk, "i", &[vec![1; 50]], 9)).unwrap();
    let refused =
        block_on(read_image(&disk, Path::new(DIR), "i", STORE, &mut |_| Err("no such slot".into())));
    assert_eq!(refused.unwrap_err().to_string(), "checkpoint c/i is corrupt at byte 4096: no such slot");
    let missing = block_on(read(&disk, "none")).unwrap_err();
    assert!(
        matches!(missing, CheckpointError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    );
}

#[test]
fn a_failing_disk_is_told() {
    let clean = disk(1);
    let before = clean.calls(Calls::Any);
    block_on(write(&clean, "i", &[vec![1; 3 << 20]], 9)).unwrap();
    let calls = clean.calls(Calls::Any) - before;
    for index in 0..calls {
        let disk = disk(1);
        disk.fail(Calls::Any, index, Failure::NoSpace);
        let failed = block_on(write(&disk, "i", &[vec![1; 3 << 20]], 9));
        assert!(matches!(failed, Err(CheckpointError::Io { .. })), "call {index}");
    }
}

#[test]
fn manifests_read_back_and_a_missing_one_is_empty() {
    let disk = disk(1);
    let dir = Path::new(DIR);
    assert_eq!(block_on(Manifest::load(&disk, dir, STORE)).unwrap(), Manifest::default());
    let many = Manifest {
        seq: u64::MAX,
        images: (0..5000).map(|i| (format!("{i}.img"), i)).collect(),
        ..Manifest::default()
    };
    for manifest in [Manifest::default(), manifest(), many] {
        block_on(manifest.store(&disk, dir, STORE)).unwrap();
        assert_eq!(block_on(Manifest::load(&disk, dir, STORE)).unwrap(), manifest);
    }
}

#[test]
fn a_manifest_cut_or_flipped_anywhere_is_refused() {
    let disk = disk(1);
    let dir = Path::new(DIR);
    block_on(manifest().store(&disk, dir, STORE)).unwrap();
    let bytes = disk.bytes("c/manifest").unwrap();
    for cut in 0..bytes.len() {
        disk.put("c/manifest", bytes[..cut].to_vec());
        let refused = block_on(Manifest::load(&disk, dir, STORE));
        assert!(matches!(refused, Err(CheckpointError::Corrupt { .. })), "cut at {cut}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        disk.put("c/manifest", flipped);
        let refused = block_on(Manifest::load(&disk, dir, STORE));
        assert!(matches!(refused, Err(CheckpointError::Corrupt { .. })), "bit {bit}");
    }
    let mut longer = bytes;
    longer.push(0);
    disk.put("c/manifest", longer);
    assert!(block_on(Manifest::load(&disk, dir, STORE)).is_err());
}

#[test]
fn a_manifest_names_files_of_its_own_directory() {
    let disk = disk(1);
    for name in ["", "..", "../x", "/x", "a/b", "."] {
        let manifest = Manifest { seq: 1, images: vec![(name.into(), 1)], ..Manifest::default() };
        block_on(manifest.store(&disk, Path::new(DIR), STORE)).unwrap();
        let refused = block_on(Manifest::load(&disk, Path::new(DIR), STORE));
        assert!(matches!(refused, Err(CheckpointError::Corrupt { .. })), "{name:?}");
    }
}

/// Puts version `version` into a file and makes its header whole again.
fn with_version(mut bytes: Vec<u8>, version: u32) -> Vec<u8> {
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn newer_files_are_refused_by_name_and_version() {
    let disk = disk(1);
    block_on(write(&disk, "i", &[vec![1; 50]], 9)).unwrap();
    block_on(manifest().store(&disk, Path::new(DIR), STORE)).unwrap();
    for name in ["i", "manifest"] {
        let path = Path::new(DIR).join(name);
        disk.put(&path, with_version(disk.bytes(&path).unwrap(), 4));
    }
    let image = block_on(read(&disk, "i")).unwrap_err();
    assert_eq!(image.to_string(), "checkpoint c/i has format 4, newer than 3");
    let manifest = block_on(Manifest::load(&disk, Path::new(DIR), STORE)).unwrap_err();
    assert_eq!(manifest.to_string(), "checkpoint c/manifest has format 4, newer than 2");
}

/// Files that are whole in themselves, in each other's places: of another store, or under another name; and a block of one in another.
#[test]
fn a_file_in_the_place_of_another_is_refused() {
    let disk = disk(1);
    let other = STORE + 1;
    block_on(write(&disk, "i", &[vec![1; 50]], 9)).unwrap();
    block_on(write(&disk, "j", &[vec![2; 50]], 9)).unwrap();
    block_on(manifest().store(&disk, Path::new(DIR), STORE)).unwrap();
    let (i, j) = (disk.bytes("c/i").unwrap(), disk.bytes("c/j").unwrap());
    let refused = |what: Result<(), CheckpointError>, text: &str| {
        let error = what.unwrap_err();
        assert!(matches!(&error, CheckpointError::Corrupt { what, .. } if what.contains(text)), "{error}");
    };
    let of_store = |store| block_on(read_image(&disk, Path::new(DIR), "i", store, &mut |_| Ok(()))).map(drop);
    refused(of_store(other), "belongs to the store 0123456789abcdef");
    let last = block_on(read_last_block(&disk, Path::new(DIR), "i", other, &mut |_| Ok(())));
    refused(last, "belongs to the store");
    refused(block_on(Manifest::load(&disk, Path::new(DIR), other)).map(drop), "belongs to the store");
    disk.put("c/i", j.clone());
    refused(block_on(read(&disk, "i")).map(drop), "under a wrong name");
    let mut mixed = i[..64].to_vec();
    mixed.extend_from_slice(&j[64..]);
    disk.put("c/i", mixed);
    refused(block_on(read(&disk, "i")).map(drop), "header of a block");

    let config = nigh_engine::collection::DenseConfig::new(8, nigh_engine::distance::Metric::L2);
    for number in [0, 1] {
        block_on(VectorsFile::create(&disk, Path::new(DIR), number, STORE, &config)).unwrap();
    }
    let open = |store| {
        let opened = VectorsFile::open(&disk, Path::new(DIR), "00000000.vec", store, &config);
        block_on(opened).map(drop)
    };
    open(STORE).unwrap();
    refused(open(other), "belongs to the store");
    disk.put("c/00000000.vec", disk.bytes("c/00000001.vec").unwrap());
    refused(open(STORE), "under a wrong name");
}

/// A collection that is checkpointed again and again: after a crash it is at some checkpoint, none older than the last
/// one that was said to be stored.
#[test]
fn a_crash_leaves_a_whole_checkpoint() {
    for seed in 0..200 {
        let disk = disk(seed);
        disk.set_yielding(true);
        let stored = Rc::new(std::cell::Cell::new(0));
        let (running, told) = (disk.clone(), stored.clone());
        sim::run(seed, |sim| async move {
            let ticks = sim.random().below(200);
            sim.spawn(async move {
                for seq in 1.. {
                    let name = format!("{seq}.img");
                    let bytes = write(&running, &name, &[vec![seq as u8; 3000]], seq).await.unwrap();
                    let manifest = Manifest { seq, images: vec![(name, bytes)], ..Manifest::default() };
                    manifest.store(&running, Path::new(DIR), STORE).await.unwrap();
                    told.set(seq);
                    running.remove(&Path::new(DIR).join(format!("{}.img", seq - 1))).await.unwrap();
                }
            });
            for _ in 0..ticks {
                sim.yield_now().await;
            }
        });
        let after = disk.crash_clone(seed);
        let manifest = block_on(Manifest::load(&after, Path::new(DIR), STORE)).unwrap();
        assert!(manifest.seq >= stored.get(), "seed {seed}");
        for (name, _) in &manifest.images {
            let (seq, blocks) = block_on(read(&after, name)).unwrap();
            assert!(seq == manifest.seq && blocks == [vec![seq as u8; 3000]], "seed {seed}");
        }
    }
}

/// A killed process may leave a manifest that only a cache knows; once read it stays.
#[test]
fn a_manifest_that_was_read_stays() {
    for seed in 0..200 {
        let disk = disk(seed);
        let replaced = Manifest { seq: 78, ..Manifest::default() };
        block_on(manifest().store(&disk, Path::new(DIR), STORE)).unwrap();
        disk.set_yielding(true);
        let running = disk.clone();
        let replacing = replaced.clone();
        sim::run(seed, |sim| async move {
            sim.spawn(async move { replacing.store(&running, Path::new(DIR), STORE).await.unwrap() });
            for _ in 0..sim.random().below(8) {
                sim.yield_now().await;
            }
        });
        let found = block_on(Manifest::load(&disk, Path::new(DIR), STORE)).unwrap();
        assert!(found == manifest() || found == replaced);
        let after = disk.crash_clone(seed);
        assert_eq!(block_on(Manifest::load(&after, Path::new(DIR), STORE)).unwrap(), found, "seed {seed}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
        let disk = disk(1);
        disk.put("c/i", bytes.clone());
        disk.put("c/manifest", bytes);
        prop_assert!(block_on(read(&disk, "i")).is_err());
        prop_assert!(block_on(Manifest::load(&disk, Path::new(DIR), STORE)).is_err());
    }

    /// A body that passes the checksum but was never written by us.
    #[test]
    fn any_manifest_body_is_read_without_panic(seed in any::<u64>(), edits in 0usize..6) {
        let disk = disk(1);
        block_on(manifest().store(&disk, Path::new(DIR), STORE)).unwrap();
        let mut bytes = disk.bytes("c/manifest").unwrap();
        let random = Random::new(seed);
        for _ in 0..edits {
            let at = 72 + random.index(bytes.len() - 72);
            bytes[at] = random.next() as u8;
        }
        let seed = Identity { store: STORE, name: "manifest" }.seed();
        let crc = crc32c::crc32c_append(seed, &bytes[72..]);
        bytes[68..72].copy_from_slice(&crc.to_le_bytes());
        disk.put("c/manifest", bytes);
        let _ = block_on(Manifest::load(&disk, Path::new(DIR), STORE));
    }
}
