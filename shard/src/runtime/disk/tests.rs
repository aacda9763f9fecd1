use super::*;
use crate::cores::Placement;
use crate::runtime::{Cluster, CoreMain, CoreRuntime};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs `body` on one core with a disk in a fresh directory below `parent`.
fn with_disk_in<F: Future<Output = ()> + 'static>(
    parent: &Path,
    body: impl Fn(CoreRuntime, Rc<dyn Disk>, PathBuf) -> F + Send + Sync + 'static,
) {
    let directory = tempfile::tempdir_in(parent).unwrap();
    let root = directory.path().to_owned();
    let main: CoreMain = Arc::new(move |runtime| {
        let disk = runtime.disk(&root);
        Box::pin(body(runtime, disk, root.clone()))
    });
    Cluster::start(&Placement::unpinned(1), main).unwrap().join().unwrap();
}

fn with_disk<F: Future<Output = ()> + 'static>(
    body: impl Fn(CoreRuntime, Rc<dyn Disk>, PathBuf) -> F + Send + Sync + 'static,
) {
    with_disk_in(&std::env::temp_dir(), body);
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed).collect()
}

/// What must hold on every file system.
async fn check_files(disk: Rc<dyn Disk>, root: PathBuf) {
    let path = Path::new("log");
    let file = disk.create(path).await.unwrap();
    assert_eq!(file.len().await.unwrap(), 0);
    assert_eq!(file.read_at(0, 100).await.unwrap(), b"", "an empty file can be read first");
    let bytes = pattern(3 * CHUNK_BYTES + BLOCK, 1);
    file.write_at(0, &bytes).await.unwrap();
    file.write_at(BLOCK as u64, &pattern(BLOCK, 9)).await.unwrap();
    file.sync().await.unwrap();
    let mut expected = bytes;
    expected[BLOCK..2 * BLOCK].copy_from_slice(&pattern(BLOCK, 9));
    assert_eq!(fs::read(root.join("log")).unwrap(), expected);
    for (offset, len) in [
        (0, 10),
        (4095, 2),
        (5000, 300_000),
        (0, usize::MAX),
        (expected.len() - 3, 10),
        (expected.len() + 9, 5),
    ] {
        let end = offset.saturating_add(len).min(expected.len());
        let wanted = expected.get(offset..end).unwrap_or(&[]);
        assert!(file.read_at(offset as u64, len).await.unwrap() == wanted, "{len} bytes at {offset}");
    }
    file.truncate(5000).await.unwrap();
    assert_eq!(file.len().await.unwrap(), 5000);
    assert!(file.read_at(4000, 2000).await.unwrap() == expected[4000..5000]);

    file.preallocate(2 * CHUNK_BYTES as u64).await.unwrap();
    assert_eq!(file.len().await.unwrap(), 2 * CHUNK_BYTES as u64);
    let grown = fs::read(root.join("log")).unwrap();
    assert!(grown[..5000] == expected[..5000] && grown[5000..].iter().all(|&byte| byte == 0));
    file.preallocate(BLOCK as u64).await.unwrap();
    assert_eq!(file.len().await.unwrap(), 2 * CHUNK_BYTES as u64, "preallocation never shrinks");

    for (block, len) in [(3, BLOCK), (1, synced::BYTES_MAX), (0, synced::BYTES_MAX + BLOCK), (2, 5 * BLOCK)] {
        let bytes = pattern(len, block as u8);
        file.write_synced((block * BLOCK) as u64, &bytes).await.unwrap();
        assert!(
            fs::read(root.join("log")).unwrap()[block * BLOCK..][..len] == bytes,
            "{len} bytes at {block}"
        );
    }
    assert_eq!(file.write_synced(1, &[0; BLOCK]).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(file.write_synced(0, &[0; 5]).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    let written = fs::read(root.join("log")).unwrap();

    assert_eq!(file.write_at(1, &[0; BLOCK]).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(file.write_at(0, &[0; 5]).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    file.close().await.unwrap();
    file.close().await.unwrap();
    assert!(file.sync().await.is_err(), "a closed file refuses");
    assert!(file.write_synced(0, &[0; BLOCK]).await.is_err(), "a closed file refuses");

    let again = disk.open(path).await.unwrap();
    assert!(again.read_at(0, 5000).await.unwrap() == written[..5000]);
    drop(again);
    let missing = disk.open(Path::new("missing")).await.err().unwrap();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    assert_eq!(missing.raw_os_error(), Some(libc::ENOENT), "the kernel's code is kept");
}

#[test]
fn files_hold_what_was_written() {
    with_disk(|_, disk, root| check_files(disk, root));
}

#[test]
fn files_work_where_there_is_no_direct_io() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        eprintln!("skipped: no tmpfs at /dev/shm");
        return;
    }
    with_disk_in(memory, |_, disk, root| check_files(disk, root));
}

#[test]
fn a_disk_without_direct_io_uses_buffered_files() {
    with_disk(|runtime, _, root| async move {
        let disk = RealDisk::new(runtime, &root);
        disk.buffered.set(true);
        check_files(Rc::new(disk), root).await;
    });
}

#[test]
fn names_are_replaced_renamed_removed_and_listed() {
    with_disk(|_, disk, root| async move {
        let (a, b) = (Path::new("deep/er/a"), Path::new("deep/b"));
        disk.create_dir(Path::new("deep/er")).await.unwrap();
        disk.create_dir(Path::new("deep/er")).await.unwrap();
        for text in [&b"first"[..], b"second, longer", b""] {
            disk.replace(a, text).await.unwrap();
            assert_eq!(disk.read(a).await.unwrap(), text);
        }
        disk.replace(a, b"kept").await.unwrap();
        disk.rename(a, b).await.unwrap();
        assert_eq!(disk.read(b).await.unwrap(), b"kept");
        assert_eq!(disk.read(a).await.unwrap_err().kind(), io::ErrorKind::NotFound);
        let names = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(disk.list(Path::new("deep")).await.unwrap(), names(&["b", "er"]));
        assert_eq!(disk.list(Path::new("")).await.unwrap(), names(&["deep"]));
        assert_eq!(disk.list(Path::new("nowhere")).await.unwrap(), names(&[]));
        assert!(disk.list(b).await.is_err(), "a file has no entries");
        disk.sync_dir(Path::new("deep")).await.unwrap();
        disk.remove(b).await.unwrap();
        disk.remove(b).await.unwrap();
        disk.remove_dir(Path::new("deep")).await.unwrap();
        disk.remove_dir(Path::new("deep")).await.unwrap();
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        assert!(disk.create_dir(Path::new("")).await.is_ok(), "the root exists");
    });
}

/// Another core may drop a collection while a checkpoint opens an image in its directory.
#[test]
fn a_directory_may_go_while_a_file_in_it_is_opened() {
    with_disk(|_, disk, root| async move {
        let directory = root.join("dropped");
        // Whichever side fails, the other one ends.
        let running = Arc::new(());
        let main = Arc::downgrade(&running);
        let dropper = std::thread::spawn(move || {
            while main.strong_count() > 0 {
                fs::create_dir_all(&directory).unwrap();
                // It fails when a file is made in it meanwhile; the next turn removes that.
                let _ = fs::remove_dir_all(&directory);
            }
        });
        let path = Path::new("dropped/image");
        let (mut opened, mut gone) = (0, 0);
        let until = Instant::now() + Duration::from_secs(60);
        while (opened < 300 || gone < 300) && Instant::now() < until {
            match disk.create(path).await {
                Ok(file) => {
                    // The file stays usable without its name.
                    file.write_at(0, &pattern(BLOCK, 5)).await.unwrap();
                    assert!(file.read_at(0, BLOCK).await.unwrap() == pattern(BLOCK, 5));
                    file.close().await.unwrap();
                    opened += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
                    gone += 1;
                }
            }
        }
        drop(running);
        dropper.join().unwrap();
        assert!(opened >= 300 && gone >= 300, "{opened} files were opened and {gone} were gone");
    });
}

#[test]
fn paths_that_leave_the_disk_are_refused() {
    with_disk(|_, disk, _| async move {
        for path in ["../escape", "/etc/passwd", "a/../../b", "./a"].map(Path::new) {
            let kinds = [
                disk.create(path).await.err().unwrap().kind(),
                disk.open(path).await.err().unwrap().kind(),
                disk.read(path).await.unwrap_err().kind(),
                disk.replace(path, b"x").await.unwrap_err().kind(),
                disk.rename(path, Path::new("x")).await.unwrap_err().kind(),
                disk.rename(Path::new("x"), path).await.unwrap_err().kind(),
                disk.remove(path).await.unwrap_err().kind(),
                disk.remove_dir(path).await.unwrap_err().kind(),
                disk.create_dir(path).await.unwrap_err().kind(),
                disk.list(path).await.unwrap_err().kind(),
                disk.sync_dir(path).await.unwrap_err().kind(),
            ];
            assert_eq!(kinds, [io::ErrorKind::InvalidInput; 11], "{}", path.display());
        }
    });
}

#[test]
fn a_full_device_says_so() {
    with_disk(|_, disk, root| async move {
        // A device that is always full, seen through a link inside the disk.
        std::os::unix::fs::symlink("/dev/full", root.join("full")).unwrap();
        let error = match disk.open(Path::new("full")).await {
            Ok(file) => file.write_at(0, &[0; BLOCK]).await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
    });
}

#[test]
fn many_operations_may_be_under_way_and_be_given_up() {
    with_disk(|runtime, disk, _| async move {
        let file = disk.create(Path::new("shared")).await.unwrap();
        file.preallocate(64 * BLOCK as u64).await.unwrap();
        let done = Rc::new(Cell::new(0));
        for n in 0..64u8 {
            let (file, done) = (file.clone(), done.clone());
            runtime.spawn(async move {
                file.write_at(u64::from(n) * BLOCK as u64, &[n; BLOCK]).await.unwrap();
                file.sync().await.unwrap();
                done.set(done.get() + 1);
            });
        }
        // Dropped while the kernel works on it: the buffer must outlive that.
        let mut given_up = file.read_at(0, 64 * BLOCK);
        std::future::poll_fn(|cx| {
            assert!(given_up.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        drop(given_up);
        while done.get() < 64 {
            runtime.sleep_us(100).await;
        }
        let bytes = file.read_at(0, 64 * BLOCK).await.unwrap();
        assert!((0..64).all(|n| bytes[n * BLOCK..][..BLOCK] == [n as u8; BLOCK]));
    });
}

#[test]
fn durable_writes_may_be_given_up_in_any_order() {
    const WRITES: u8 = 200;
    with_disk(|runtime, disk, root| async move {
        let file = disk.create(Path::new("shared")).await.unwrap();
        file.preallocate(u64::from(WRITES) * BLOCK as u64).await.unwrap();
        let (done, given_up) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        for n in 0..WRITES {
            let (file, done, given_up, here) =
                (file.clone(), done.clone(), given_up.clone(), runtime.clone());
            runtime.spawn(async move {
                let block = [n; BLOCK];
                let written = async {
                    file.write_synced(u64::from(n) * BLOCK as u64, &block).await.unwrap();
                    done.set(done.get() + 1);
                };
                // Some are dropped with the write under way, among them such as the ring would have woken.
                let patience = async {
                    match n % 3 {
                        0 => here.sleep_us(u64::from(n % 7) * 30).await,
                        _ => std::future::pending().await,
                    }
                    given_up.set(given_up.get() + 1);
                };
                futures_lite::future::or(written, patience).await;
            });
        }
        while done.get() + given_up.get() < u32::from(WRITES) {
            runtime.sleep_us(100).await;
        }
        assert!(done.get() >= u32::from(WRITES) / 2);
        // The ring goes on serving.
        file.write_synced(0, &[0; BLOCK]).await.unwrap();
        let bytes = fs::read(root.join("shared")).unwrap();
        let is_written = |n: u8| bytes[usize::from(n) * BLOCK..][..BLOCK] == [n; BLOCK];
        assert!((0..WRITES).filter(|n| n % 3 != 0).all(is_written));
    });
}

#[test]
fn durable_writes_go_on_where_the_short_way_is_refused() {
    with_disk(|runtime, _, root| async move {
        let disk = RealDisk::new(runtime, &root);
        let file = disk.create(Path::new("log")).await.unwrap();
        disk.synced.get_or_init(|| None);
        file.write_synced(0, &[7; BLOCK]).await.unwrap();
        assert_eq!(fs::read(root.join("log")).unwrap(), [7; BLOCK]);
    });
}

/// The kernel takes a write without the sync that is linked to it: neither is the order of the two certain then, nor is the end of the write
/// ever told. The bytes are durable all the same when the call returns, and nothing panics over what completes late.
#[test]
fn a_write_that_is_taken_without_its_sync_is_done_in_two_steps() {
    for taken in 0..3 {
        with_disk(move |runtime, _, root| async move {
            let disk = RealDisk::new(runtime.clone(), &root);
            let file = disk.create(Path::new("log")).await.unwrap();
            file.preallocate(8 * BLOCK as u64).await.unwrap();
            file.write_synced(0, &[1; BLOCK]).await.unwrap();
            let Some(Some(synced)) = disk.synced.get() else {
                eprintln!("skipped: no ring, or no direct I/O");
                return;
            };
            synced.take_at_most(taken);
            file.write_synced(BLOCK as u64, &[2; BLOCK]).await.unwrap();
            assert_eq!(synced.is_given_up(), taken == 1, "{taken} of 2 operations were taken");
            for n in 2..8 {
                file.write_synced(n * BLOCK as u64, &[n as u8 + 1; BLOCK]).await.unwrap();
            }
            runtime.sleep_us(20_000).await;
            let bytes = fs::read(root.join("log")).unwrap();
            assert!((0..8).all(|n| bytes[n * BLOCK..][..BLOCK] == [n as u8 + 1; BLOCK]));
        });
    }
}

#[test]
fn a_full_device_says_so_to_durable_writes() {
    with_disk(|_, disk, root| async move {
        std::os::unix::fs::symlink("/dev/full", root.join("full")).unwrap();
        let error = match disk.open(Path::new("full")).await {
            Ok(file) => file.write_synced(0, &[0; BLOCK]).await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
    });
}

#[test]
fn tasks_that_only_yield_do_not_starve_the_disk() {
    with_disk(|runtime, disk, _| async move {
        let done = Rc::new(Cell::new(false));
        for n in 0..3 {
            let (inner, done) = (runtime.clone(), done.clone());
            runtime.spawn(async move {
                while !done.get() {
                    if n == 0 { inner.breathe().await } else { inner.yield_now().await }
                }
            });
        }
        let file = disk.create(Path::new("patient")).await.unwrap();
        for n in 0..20 {
            file.write_at(n * BLOCK as u64, &[1; BLOCK]).await.unwrap();
            file.sync().await.unwrap();
        }
        done.set(true);
        assert_eq!(runtime.health().rescues, 0);
    });
}
