//! Format versions as they were written when they were new: `shard/testdata/image-1.img`, `manifest-1` beside it and the like.
use super::{ImageWriter, Manifest, read_image};
use crate::disk::{Disk, SimDisk};
use futures_lite::future::block_on;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The uid of the store to which the files belong; versions that are not bound to a place do not say it.
const STORE: u64 = 0xfeed;

fn golden(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata")).join(name)
}

fn blocks() -> [Vec<u8>; 2] {
    [b"one block".to_vec(), (0..=255).cycle().take(5000).collect()]
}

fn manifest() -> Manifest {
    Manifest {
        seq: 0x0123_4567_89ab_cdef,
        images: vec![("image-1.img".into(), 12288), ("delta".into(), u64::MAX)],
        vectors: None,
    }
}

#[test]
fn every_version_opens_for_ever() {
    let disk = SimDisk::new(1);
    for name in ["image-1.img", "image-2.img", "image-3.img"] {
        disk.put("c/i", std::fs::read(golden(name)).unwrap());
        let mut found = Vec::new();
        let mut keep = |block: &[u8]| {
            found.push(block.to_vec());
            Ok(())
        };
        let seq = block_on(read_image(&disk, Path::new("c"), "i", STORE, &mut keep)).unwrap();
        assert_eq!((seq, found.as_slice()), (42, blocks().as_slice()));
    }
    for name in ["manifest-1", "manifest-2"] {
        disk.put("c/manifest", std::fs::read(golden(name)).unwrap());
        assert_eq!(block_on(Manifest::load(&disk, Path::new("c"), STORE)).unwrap(), manifest());
    }
}

/// A change of what is written needs a new version, and new golden files beside the old ones:
/// `NIGH_WRITE_GOLDEN=1 cargo test -p nigh-shard golden` writes them. (A manifest may gain fields without one; its
/// bytes are not compared, only that today's reads back is, elsewhere.)
#[test]
fn the_image_written_today_is_version_3() {
    let disk = SimDisk::new(1);
    block_on(async {
        disk.create_dir(Path::new("c")).await.unwrap();
        let mut writer =
            ImageWriter::create(Rc::new(disk.clone()), Path::new("c"), "i", STORE).await.unwrap();
        for block in blocks() {
            writer.block(&block).await.unwrap();
        }
        writer.finish(42).await.unwrap();
        manifest().store(&disk, Path::new("c"), STORE).await.unwrap();
    });
    let written = disk.bytes("c/i").unwrap();
    if std::env::var_os("NIGH_WRITE_GOLDEN").is_some() {
        std::fs::write(golden("image-3.img"), &written).unwrap();
        std::fs::write(golden("manifest-2"), disk.bytes("c/manifest").unwrap()).unwrap();
    }
    assert!(std::fs::read(golden("image-3.img")).unwrap() == written, "the bytes of an image have changed");
}
