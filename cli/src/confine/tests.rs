use super::*;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::thread;
use tempfile::TempDir;

/// Runs `test` on a thread of its own for which rules are in force; `None`, after a line that says so, where the kernel cannot confine a thread.
fn confined<R: Send + 'static>(
    places: &[(&Path, BitFlags<AccessFs>)],
    test: impl FnOnce(ABI) -> R + Send + 'static,
) -> Option<R> {
    let place =
        |(path, access): &(&Path, BitFlags<AccessFs>)| PathRule { path: path.to_path_buf(), access: *access };
    let places: Vec<PathRule> = places.iter().map(place).collect();
    let (rules, held) = rules_for(&places, Confine::On).unwrap();
    let thread = thread::spawn(move || {
        let _held = held;
        match restrict(&rules) {
            Ok(RestrictionStatus { landlock: LandlockStatus::Available { effective_abi, .. }, .. }) => {
                Some(test(effective_abi))
            }
            other => {
                println!("SKIPPED: this kernel cannot confine a thread: {other:?}");
                None
            }
        }
    });
    thread.join().unwrap()
}

fn is_denied<T>(result: io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

#[test]
fn nothing_but_the_places_can_be_used() {
    let (inside, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(outside.path().join("file"), "secret").unwrap();
    symlink(outside.path(), inside.path().join("link")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (places, root, other) =
        ([(inside.path(), CHANGE)], inside.path().to_owned(), outside.path().to_owned());
    confined(&places, move |abi| {
        fs::create_dir(root.join("a")).unwrap();
        fs::create_dir(root.join("b")).unwrap();
        fs::write(root.join("a/file"), "text").unwrap();
        // A move between directories, as when a collection goes to the trash.
        fs::rename(root.join("a/file"), root.join("b/file")).unwrap();
        assert_eq!(fs::read(root.join("b/file")).unwrap(), b"text");
        fs::remove_dir_all(root.join("b")).unwrap();

        for place in [other.clone(), root.join("link")] {
            assert!(is_denied(fs::read(place.join("file"))), "{abi}");
            assert!(is_denied(fs::read_dir(&place)), "{abi}");
            assert!(is_denied(fs::write(place.join("new"), "text")), "{abi}");
            assert!(is_denied(fs::remove_file(place.join("file"))), "{abi}");
            assert!(is_denied(fs::create_dir(place.join("new"))), "{abi}");
        }
        assert!(is_denied(symlink("/", root.join("another"))), "{abi}");
        assert!(is_denied(std::process::Command::new("/bin/true").status()), "{abi}");
        // Open listeners go on accepting, and other servers can be reached.
        let address = listener.local_addr().unwrap();
        TcpStream::connect(address).unwrap();
        listener.accept().unwrap();
        assert_eq!(is_denied(TcpListener::bind("127.0.0.1:0")), abi >= ABI::V4, "{abi}");
    });
    assert_eq!(fs::read(outside.path().join("file")).unwrap(), b"secret");
    TcpListener::bind("127.0.0.1:0").expect("other threads are as they were");
}

#[test]
fn files_of_a_directory_can_be_replaced_or_only_read() {
    let (replaced, read) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(read.path().join("file"), "text").unwrap();
    let (keys, certificates) = (replaced.path().to_owned(), read.path().to_owned());
    confined(&[(replaced.path(), REPLACE), (read.path(), READ)], move |abi| {
        for text in ["one", "two"] {
            fs::write(keys.join("fresh"), text).unwrap();
            fs::rename(keys.join("fresh"), keys.join("file")).unwrap();
            fs::File::open(&keys).unwrap().sync_all().unwrap();
        }
        assert!(is_denied(fs::create_dir(keys.join("directory"))), "{abi}");
        assert_eq!(fs::read(certificates.join("file")).unwrap(), b"text");
        assert!(is_denied(fs::write(certificates.join("fresh"), "text")), "{abi}");
        assert!(is_denied(fs::remove_file(certificates.join("file"))), "{abi}");
    });
}

#[test]
fn a_thread_joins_when_it_is_asked_to_after_the_process() {
    let outside = TempDir::new().unwrap();
    let path = outside.path().to_owned();
    let (rules, held) = rules_for(&[], Confine::On).unwrap();
    if let Err(reason) = thread::spawn(|| restrict(&rules_for(&[], Confine::On).unwrap().0)).join().unwrap() {
        println!("SKIPPED: {reason}");
        return;
    }
    let joins = thread::spawn(move || {
        let mut joining = Joining::default();
        joining.join();
        fs::write(path.join("before"), "text").unwrap();
        // No other test of this program has rules for a whole process.
        RULES.set((rules, Confine::On)).unwrap();
        fs::write(path.join("not yet"), "text").unwrap();
        for _ in 0..2 {
            joining.join();
            assert!(is_denied(fs::write(path.join("after"), "text")));
        }
    });
    joins.join().unwrap();
    drop(held);
}

#[test]
fn what_is_required_prevents_the_start() {
    let reason = || Err("no".to_owned());
    assert_eq!(settle(Confine::Required, reason()), Err("-confine required: no".to_owned()));
    assert_eq!(settle(Confine::On, reason()), Ok(()));
    assert_eq!(settle(Confine::Required, Ok(())), Ok(()));
}

/// Directories by their names below `root`.
fn directories(root: &Path, file: &str) -> Vec<String> {
    let inside = |path: PathBuf| {
        let path = fs::canonicalize(path).unwrap();
        path.strip_prefix(fs::canonicalize(root).unwrap()).unwrap().display().to_string()
    };
    directories_of(&root.join(file)).into_iter().map(inside).collect()
}

#[test]
fn directories_are_those_that_a_file_may_be_in_next() {
    let root = TempDir::new().unwrap();
    let make = |directory: &str| fs::create_dir_all(root.path().join(directory)).unwrap();
    let link = |target: &str, name: &str| symlink(target, root.path().join(name)).unwrap();
    let touch = |file: &str| fs::write(root.path().join(file), "").unwrap();
    // The file is no link.
    make("plain");
    touch("plain/cert.pem");
    assert_eq!(directories(root.path(), "plain/cert.pem"), ["plain"]);
    assert_eq!(directories(root.path(), "plain/missing.pem"), ["plain"]);
    // Kubernetes: the link ..data is turned to another directory beside it.
    make("pod/..2026_1");
    touch("pod/..2026_1/tls.crt");
    link("..2026_1", "pod/..data");
    link("..data/tls.crt", "pod/tls.crt");
    assert_eq!(directories(root.path(), "pod/tls.crt"), ["pod", "pod", "pod/..2026_1"]);
    // The same where the secret is in a directory of the volume, and where the directory that is turned is elsewhere.
    make("volume/..2026_1/tls");
    touch("volume/..2026_1/tls/tls.crt");
    link("..2026_1", "volume/..data");
    link("..data/tls", "volume/tls");
    assert_eq!(directories(root.path(), "volume/tls/tls.crt"), ["volume", "volume/..2026_1/tls"]);
    make("mnt/secrets/v1/deep");
    touch("mnt/secrets/v1/deep/tls.crt");
    link("v1", "mnt/secrets/current");
    link("mnt/secrets/current", "certificates");
    let found = directories(root.path(), "certificates/deep/tls.crt");
    // Both links are turned in that directory.
    assert_eq!(found, ["mnt/secrets", "mnt/secrets", "mnt/secrets/v1/deep"]);
    // ACME clients: the link is turned to another file of an archive.
    make("live/example");
    make("archive/example");
    touch("archive/example/cert1.pem");
    link("../../archive/example/cert1.pem", "live/example/cert.pem");
    assert_eq!(directories(root.path(), "live/example/cert.pem"), ["live/example", "archive/example"]);
    // The directory is a link that is turned as a whole.
    make("etc/releases/1");
    touch("etc/releases/1/cert.pem");
    link("releases/1", "etc/current");
    assert_eq!(directories(root.path(), "etc/current/cert.pem"), ["etc/releases", "etc/releases/1"]);
    // A link that leads away, as /var/run does, opens nothing beside its end.
    make("run");
    make("var");
    touch("run/cert.pem");
    link("../run", "var/run");
    assert_eq!(directories(root.path(), "var/run/cert.pem"), ["run"]);
    // Nor does a link that keeps the name, as /var/lib/nigh of a unit with a user of its own does.
    make("lib/private/nigh");
    touch("lib/private/nigh/cert.pem");
    link("private/nigh", "lib/nigh");
    assert_eq!(directories(root.path(), "lib/nigh/cert.pem"), ["lib/private/nigh"]);
    // The search ends for links in a circle.
    link("b", "a");
    link("a", "b");
    assert_eq!(directories(root.path(), "a").len(), LINKS_MAX);
    assert_eq!(directories_of(Path::new("cert.pem")), [Path::new(".")]);
}

#[test]
fn the_root_directory_is_not_opened_for_one_file() {
    let places = places_of("-tls-cert", Path::new("/cert.pem"), READ);
    assert_eq!(places, [PathRule { path: "/cert.pem".into(), access: AccessFs::ReadFile.into() }]);
}

#[test]
fn devices_of_a_gpu_come_with_its_libraries() {
    let devices = TempDir::new().unwrap();
    assert_eq!(gpu(devices.path()), []);
    fs::write(devices.path().join("null"), "").unwrap();
    fs::write(devices.path().join("nvidia0"), "").unwrap();
    fs::create_dir(devices.path().join("nvidia-caps")).unwrap();
    let places = gpu(devices.path());
    assert_eq!(places.len(), 3, "{places:?}");
    for PathRule { path, access } in places {
        let is_root = path == Path::new("/");
        assert_eq!(access.contains(AccessFs::WriteFile), !is_root, "{path:?}");
        assert_eq!(access.contains(AccessFs::ReadDir), path.is_dir(), "{path:?}");
    }
}

#[test]
fn a_backup_directory_can_be_written_and_names_of_hosts_looked_up() {
    let (backups, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (root, outside) = (backups.path().to_owned(), other.path().to_owned());
    let resolver = names_of_hosts();
    let readable: Vec<(&Path, BitFlags<AccessFs>)> =
        resolver.iter().map(|rule| (rule.path.as_path(), rule.access)).collect();
    assert!(readable.contains(&(Path::new("/etc"), READ)));
    confined(&[&[(backups.path(), CHANGE)], &readable[..]].concat(), move |abi| {
        // As the store publishes an object: by a link from another directory.
        fs::create_dir_all(root.join("uploads")).unwrap();
        fs::create_dir_all(root.join("prefix/films")).unwrap();
        fs::write(root.join("uploads/1"), "text").unwrap();
        fs::hard_link(root.join("uploads/1"), root.join("prefix/films/1")).unwrap();
        fs::remove_file(root.join("uploads/1")).unwrap();
        fs::File::open(root.join("prefix/films")).unwrap().sync_all().unwrap();
        assert!(is_denied(fs::hard_link(root.join("prefix/films/1"), outside.join("1"))), "{abi}");
        fs::read("/etc/hosts").unwrap();
        assert!(is_denied(fs::write("/etc/nigh-test", "text")), "{abi}");
        let found = std::net::ToSocketAddrs::to_socket_addrs(&("localhost", 1)).unwrap();
        assert!(found.count() > 0);
    });
}
