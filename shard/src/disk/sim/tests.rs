use super::*;
use futures_lite::future::block_on;
use std::collections::HashSet;

fn block(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK]
}

#[test]
fn what_is_synced_survives_every_crash() {
    let disk = SimDisk::new(1);
    block_on(async {
        disk.create_dir(Path::new("a/b")).await.unwrap();
        let file = disk.create(Path::new("a/b/f")).await.unwrap();
        file.write_at(0, &block(1)).await.unwrap();
        file.sync().await.unwrap();
        disk.sync_dir(Path::new("a/b")).await.unwrap();
        file.write_at(BLOCK as u64, &block(2)).await.unwrap();
    });
    let mut lengths = HashSet::new();
    for seed in 0..200 {
        let bytes = disk.crash_clone(seed).bytes("a/b/f").expect("name and directory were synced");
        assert_eq!(bytes[..BLOCK], block(1));
        assert!(bytes[BLOCK..].iter().all(|&byte| byte == 2));
        lengths.insert(bytes.len());
    }
    assert!(lengths.contains(&BLOCK) && lengths.contains(&(2 * BLOCK)), "lost and kept");
    assert!(lengths.len() > 10, "torn at many places: {lengths:?}");
}

/// A process is killed after it has made a directory and before that was synced; the next one finds the directory there.
#[test]
fn a_directory_is_durable_whoever_has_made_it() {
    for skip in 0..2 {
        let disk = SimDisk::new(1);
        disk.fail(Calls::NameSync, skip, Failure::Io);
        block_on(async {
            let made = disk.create_dir(Path::new("a/b")).await;
            assert!(made.is_err());
            disk.create_dir(Path::new("a/b")).await.unwrap();
            let file = disk.create(Path::new("a/b/f")).await.unwrap();
            file.write_at(0, &block(1)).await.unwrap();
            file.sync().await.unwrap();
            disk.sync_dir(Path::new("a/b")).await.unwrap();
        });
        for seed in 0..50 {
            assert!(disk.crash_clone(seed).bytes("a/b/f").is_some(), "call {skip} failed, crash {seed}");
        }
    }
}

#[test]
fn a_name_that_was_not_synced_may_be_gone() {
    let disk = SimDisk::new(1);
    block_on(async {
        let file = disk.create(Path::new("f")).await.unwrap();
        file.write_at(0, &block(1)).await.unwrap();
        file.sync().await.unwrap();
    });
    let found: HashSet<bool> = (0..50).map(|seed| disk.crash_clone(seed).bytes("f").is_some()).collect();
    assert_eq!(found.len(), 2);
}

#[test]
fn a_block_of_a_longer_write_may_be_missing() {
    let disk = SimDisk::new(1);
    block_on(async {
        let file = disk.create(Path::new("f")).await.unwrap();
        file.preallocate(4 * BLOCK as u64).await.unwrap();
        file.sync().await.unwrap();
        disk.sync_dir(Path::new("")).await.unwrap();
        file.write_at(0, &[1; 4 * BLOCK]).await.unwrap();
    });
    let hole = |bytes: &[u8]| bytes[0] == 0 && bytes[BLOCK] == 1;
    assert!((0..100).any(|seed| hole(&disk.crash_clone(seed).bytes("f").unwrap())));
}

#[test]
fn replace_is_all_or_nothing_at_every_moment() {
    for seed in 0..300 {
        let (seen, returned) = crate::sim::run(seed, |sim| async move {
            let disk = SimDisk::new(seed);
            disk.set_yielding(true);
            disk.replace(Path::new("m"), b"old").await.unwrap();
            let writer = disk.clone();
            let returned = Rc::new(Cell::new(false));
            let flag = returned.clone();
            sim.spawn(async move {
                writer.replace(Path::new("m"), b"newer").await.unwrap();
                flag.set(true);
            });
            for _ in 0..sim.random().below(8) {
                sim.yield_now().await;
            }
            (disk.crash_clone(seed).bytes("m").expect("never missing"), returned.get())
        });
        assert!(seen == b"newer" || (seen == b"old" && !returned), "seed {seed}: {seen:?}");
    }
}

#[test]
fn a_failed_sync_is_not_made_good_by_the_next() {
    let lost = (0..50).any(|seed| {
        let disk = SimDisk::new(seed);
        block_on(async {
            let file = disk.create(Path::new("f")).await.unwrap();
            disk.sync_dir(Path::new("")).await.unwrap();
            file.write_at(0, &block(1)).await.unwrap();
            disk.fail(Calls::Sync, 0, Failure::Io);
            assert_eq!(file.sync().await.unwrap_err().raw_os_error(), Some(libc::EIO));
            file.sync().await.unwrap();
            assert_eq!(file.read_at(0, BLOCK).await.unwrap(), block(1), "the page cache still has it");
        });
        disk.crash_clone(seed).bytes("f").unwrap().is_empty()
    });
    assert!(lost);
}

#[test]
fn faults_hit_the_call_they_were_planned_for() {
    let disk = SimDisk::new(1);
    block_on(async {
        let file = disk.create(Path::new("f")).await.unwrap();
        disk.fail(Calls::Write, 1, Failure::Short);
        file.write_at(0, &block(1)).await.unwrap();
        assert!(file.write_at(0, &block(2)).await.is_err());
        file.write_at(0, &block(3)).await.unwrap();
        assert_eq!(disk.calls(Calls::Write), 3);
        disk.fail(Calls::Any, 1, Failure::NoSpace);
        file.len().await.unwrap();
        assert_eq!(file.sync().await.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    });
}

#[test]
fn space_runs_out_and_comes_back() {
    let disk = SimDisk::new(1);
    disk.set_space(Some(3 * BLOCK as u64));
    block_on(async {
        let file = disk.create(Path::new("f")).await.unwrap();
        file.preallocate(2 * BLOCK as u64).await.unwrap();
        let other = disk.create(Path::new("g")).await.unwrap();
        assert_eq!(other.preallocate(2 * BLOCK as u64).await.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        assert_eq!(other.len().await.unwrap(), BLOCK as u64, "what fitted was taken");
        file.write_at(0, &block(1)).await.expect("allocated space stays usable");
        assert!(disk.replace(Path::new("m"), b"x").await.is_err());
        disk.remove(Path::new("g")).await.unwrap();
        disk.replace(Path::new("m"), b"x").await.unwrap();
    });
}

#[test]
fn names_behave_like_a_file_system() {
    let disk = SimDisk::new(1);
    block_on(async {
        assert!(disk.create(Path::new("no/f")).await.is_err());
        assert!(disk.create(Path::new("../f")).await.is_err());
        assert!(disk.create(Path::new("/f")).await.is_err());
        disk.create_dir(Path::new("a/b")).await.unwrap();
        disk.replace(Path::new("a/b/x"), b"1").await.unwrap();
        disk.replace(Path::new("a/y"), b"2").await.unwrap();
        assert_eq!(disk.list(Path::new("a")).await.unwrap(), [PathBuf::from("b"), PathBuf::from("y")]);
        assert_eq!(disk.list(Path::new("")).await.unwrap(), [PathBuf::from("a")]);
        assert!(disk.list(Path::new("nothing")).await.unwrap().is_empty());
        assert!(disk.list(Path::new("a/y")).await.is_err());
        disk.rename(Path::new("a/b"), Path::new("c")).await.unwrap();
        assert_eq!(disk.read(Path::new("c/x")).await.unwrap(), b"1");
        disk.remove(Path::new("c/none")).await.unwrap();
        disk.remove_dir(Path::new("c")).await.unwrap();
        disk.remove_dir(Path::new("c")).await.unwrap();
        assert_eq!(disk.paths(), [PathBuf::from("a/y")]);
        let file = disk.open(Path::new("a/y")).await.unwrap();
        assert!(file.write_at(1, &block(0)).await.is_err());
        assert!(file.write_at(0, &[0; 100]).await.is_err());
        assert_eq!(file.read_at(1, 10).await.unwrap(), b"");
        assert_eq!(file.read_at(0, 10).await.unwrap(), b"2");
    });
    assert_eq!(disk.crash_clone(3).paths(), [PathBuf::from("a/y")]);
}
