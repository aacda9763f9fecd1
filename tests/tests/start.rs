//! How the server starts, refuses to start, and stops.
use nigh_tests::{Api, Server, run_to_end};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs the binary and expects it to end with `code`, saying `parts` on stderr.
#[track_caller]
fn check(arguments: &[&str], environment: &[(&str, &str)], code: i32, parts: &[&str]) {
    let exit = run_to_end(arguments, environment);
    assert_eq!(exit.status.code(), Some(code), "{arguments:?}: {}", exit.stderr);
    for part in parts {
        assert!(exit.stderr.contains(part), "{arguments:?}: no {part:?} in {}", exit.stderr);
    }
}

/// A refused start on a data directory, with the parts of its message.
#[track_caller]
fn refused(data: &Path, parts: &[&str]) {
    let failure = match Server::try_start(Some(data), &[]) {
        Err(failure) => failure,
        Ok(server) => panic!("it started: {}", server.log()),
    };
    assert_eq!(failure.status.code(), Some(1), "{}", failure.log);
    assert_eq!(failure.log.matches("level=ERROR").count(), 1, "{}", failure.log);
    for part in parts {
        assert!(failure.log.contains(part), "no {part:?} in {}", failure.log);
    }
}

#[test]
fn help_and_version() {
    for (flag, part) in [("-h", "-http addr"), ("-help", "REFUSED AT START"), ("--help", "Clustering:")] {
        let help = run_to_end(&[flag], &[("SVC_SHARDS", "nonsense")]);
        assert!(help.status.success() && help.stderr.contains(part), "{flag}: {}", help.stderr);
        assert!(help.stderr.contains("Storage:") && help.stdout.is_empty(), "{flag}: {}", help.stdout);
    }
    let all = run_to_end(&["-help-all"], &[]);
    assert!(all.status.success() && all.stdout.contains("[SVC_BACKUP_BUCKET]"), "{}", all.stdout);
    let version = run_to_end(&["-version"], &[("SVC_LOG_FORMAT", "nonsense")]);
    assert!(version.status.success() && version.stdout.starts_with("nigh "), "{}", version.stdout);
}

/// Credentials of an object store, which no server of these tests talks to.
const CREDENTIALS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE"), ("AWS_SECRET_ACCESS_KEY", "hidden")];

#[test]
fn flags_of_backups_that_cannot_be_honoured_end_with_1() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let file = file.to_str().expect("a path in UTF-8");
    let none = [("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", "")];
    let in_region = ["-backup-bucket", "films", "-backup-region", "eu-central-1"];
    for (arguments, environment, part) in [
        (&["-backup-bucket", "films"][..], &CREDENTIALS, "-backup-bucket needs -backup-region"),
        (&in_region, &none, "AWS_ACCESS_KEY_ID"),
        (&["-backup-bucket", "10.0.0.1"], &CREDENTIALS, "it looks like an IPv4 address"),
        (&["-backup-prefix", "../x"], &none, "-backup-prefix"),
        (&["-backup-prefix", "a%3Ab"], &none, "%3A"),
        (&["-backup-tenant", "a/b"], &none, "-backup-tenant"),
        (&["-cold-tier-after", "1h"], &none, "-cold-tier-after"),
        (&["-backup-dir", file], &none, "-backup-dir: "),
        // A file system without hard links, and without files as well.
        (&["-backup-dir", "/proc/self/attr"], &none, "-backup-dir: /proc/self/attr"),
    ] {
        let arguments = [&["-http", "127.0.0.1:0", "-cores", "1"], arguments].concat();
        check(&arguments, environment, 1, &[part]);
    }
}

#[test]
fn a_backup_directory_is_made_and_looked_at() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, backups) = (directory.path().join("data"), directory.path().join("new/backups"));
    let path = backups.to_str().expect("a path in UTF-8");
    let server = Server::start(Some(&data), &["-backup-dir", path]);
    let mode = backups.metadata().expect("it has been made").permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    let left = std::fs::read_dir(backups.join(".nigh-uploads")).expect("where uploads are").count();
    assert_eq!(left, 0);
    drop(server);
    for interval in [&[][..], &["-backup-interval", "1h"]] {
        let server = Server::start(Some(&data), &[&["-backup-dir", path], interval].concat());
        assert!(!server.log().contains("level=WARN msg=\"-backup"), "{}", server.log());
    }
}

#[test]
fn bad_command_lines_end_with_2() {
    check(&["-no-such-flag"], &[], 2, &["-no-such-flag", "Transports:"]);
    check(&["-shards", "many"], &[], 2, &["-shards", "\"many\"", "Transports:"]);
    check(&["-metrics-prefix", "a-b"], &[], 2, &["-metrics-prefix", "\"a-b\""]);
    check(&["bench"], &[], 2, &["nigh bench vector"]);
    check(&["bench", "vector", "--k", "x"], &[], 2, &["--k"]);
    // These started a server, without the data directory that follows.
    check(&["keys", "-data", "/no/such"], &[], 2, &["usage: nigh keys add -file PATH"]);
    for word in ["mcp", "serve", "rag"] {
        check(
            &[word, "-data", "/no/such"],
            &[],
            2,
            &[word, "it must be one of backup, bench, cli", "Transports:"],
        );
    }
}

/// SIGHUP ended the process at once, with nothing in its log.
#[test]
fn a_hangup_is_logged_and_ignored() {
    let server = Server::start(None, &[]);
    for seen in 1..=3 {
        server.signal(libc::SIGHUP);
        let began = Instant::now();
        while server.log().matches("SIGHUP ignored").count() < seen {
            assert!(began.elapsed() < Duration::from_secs(60), "{}", server.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert!(server.stop().0.success());
}

#[test]
fn bad_configurations_end_with_1_and_one_line() {
    check(&[], &[], 1, &["level=ERROR", "-http :8080", "-insecure"]);
    check(&["-http", ""], &[], 1, &["no transport"]);
    check(&["-http", "foo"], &[], 1, &["-http", "foo", "host:port"]);
    check(&["-access-log", "true", "-http", "127.0.0.1:0"], &[], 1, &["level=WARN", "-access-log=true"]);
    check(
        &["-http", ""],
        &[("SVC_PORT", "1"), ("SVC_APIKEY", "s")],
        1,
        &["level=WARN", "SVC_APIKEY, SVC_PORT"],
    );
    check(&[], &[("SVC_EPOLL", "")], 1, &["SVC_EPOLL", "\\\"\\\"", "-epoll"]);
    check(&["-log-level", "loud"], &[], 1, &["loud"]);
    check(&["-http", "127.0.0.1:0", "-shards", "3"], &[], 1, &["power of two"]);
    // Refused by the flag alone, which nobody had written.
    for (name, value, flag) in [
        ("SVC_SHARDS", "3", "-shards"),
        ("SVC_LOG_LEVEL", "loud", "-log-level"),
        ("SVC_CONFIG", "/no/such/file", "-config"),
        ("SVC_CORES", "-1", "-cores"),
        ("SVC_TCP", "nowhere", "-tcp"),
        ("SVC_CLUSTER", "true", "-cluster"),
    ] {
        let said = format!("environment variable {name} sets {flag} to ");
        check(&["-http", "127.0.0.1:0"], &[(name, value)], 1, &[&said, value, flag]);
    }
    check(&["-http", "127.0.0.1:0", "-config", "/no/such/file"], &[], 1, &["/no/such/file"]);
    check(&["-http", "127.0.0.1:0"], &[("SVC_CLUSTER", "true")], 1, &["does not offer clustering"]);
    let json = run_to_end(&["-log-format", "json"], &[]);
    let line: Value = serde_json::from_str(json.stderr.trim()).expect("one JSON line");
    assert_eq!((json.status.code(), &line["level"]), (Some(1), &json!("ERROR")));
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    check(&["-http", &address], &[], 1, &["level=ERROR", &address]);
}

#[test]
fn the_start_log_says_what_it_runs_on() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(Some(data.path()), &["-cores", "1", "-wal-sync", "interval:50"]);
    let log = server.log();
    for part in
        ["msg=starting", "cores=1", "pinned=", "simd=", "durability=interval:50", "msg=serving", "proto=http"]
    {
        assert!(log.contains(part), "no {part:?} in {log}");
    }
    assert!(log.contains(&format!("data={}", data.path().display())), "{log}");
    assert!(log.contains("a power loss may lose the last 50 ms"), "{log}");
    let log = Server::start(None, &["-cores", "1"]).log();
    assert!(log.contains("nothing survives this process"), "{log}");
}

#[test]
fn a_key_guards_the_server_and_stays_out_of_the_logs() {
    let server = Server::start(None, &["-api-key", "s3cret-key", "-access-log", "-cores", "1"]);
    let mut api = server.api();
    assert_eq!(api.send("GET", "/v1/health", &Value::Null).expect("an answer").status, 200);
    let reply =
        api.send("POST", "/v1/collections", &json!({"name": "a", "config": {"dim": 2}})).expect("an answer");
    assert_eq!((reply.status, &reply.body), (401, &json!({"error": "unauthorized"})));
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    assert!(
        log.contains("SVC_API_KEY") && log.contains("msg=access") && !log.contains("s3cret-key"),
        "{log}"
    );
}

#[test]
fn sigterm_and_sigint_end_with_0() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut server = Server::start(None, &["-cores", "1"]);
        server.signal(signal);
        let status = server.wait();
        assert_eq!(status.code(), Some(0), "{}", server.log());
        assert!(server.log().contains("msg=\"shutting down\""), "{}", server.log());
    }
}

#[test]
fn a_second_signal_ends_with_1_at_once() {
    let mut server = Server::start(None, &["-cores", "1"]);
    // A request whose body never comes keeps the drain waiting.
    let mut stream = std::net::TcpStream::connect(server.authority()).expect("a connection");
    let head = "POST /v1/collections HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).expect("sent");
    std::thread::sleep(std::time::Duration::from_millis(100));
    server.signal(libc::SIGTERM);
    while !server.log().contains("shutting down") {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    server.signal(libc::SIGTERM);
    assert_eq!(server.wait().code(), Some(1), "{}", server.log());
}

#[test]
fn a_data_directory_has_one_server() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(Some(data.path()), &["-cores", "1"]);
    refused(data.path(), &["locked", &server.pid().to_string(), &data.path().display().to_string()]);
    server.kill();
    Server::start(Some(data.path()), &["-cores", "1"]);
}

#[test]
fn what_a_server_writes_is_for_its_user_alone() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let data = parent.path().join("data");
    let server = Server::start(Some(&data), &["-cores", "1"]);
    let mut api = server.api();
    api.ok("POST", "/v1/collections", json!({"name": "a", "config": {"dim": 2}}));
    api.ok("POST", "/v1/collections/a/points", json!({"id": 1, "vector": [1.0, 0.0]}));
    assert!(!server.log().contains("other users"), "{}", server.log());
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    let mut found = vec![data];
    let mut files = 0;
    while let Some(path) = found.pop() {
        let metadata = std::fs::metadata(&path).expect("just listed");
        let mode = metadata.permissions().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
        files += u32::from(metadata.is_file());
        if metadata.is_dir() {
            found.extend(std::fs::read_dir(&path).expect("a directory").map(|entry| entry.unwrap().path()));
        }
    }
    assert!(files > 3, "the server has written {files} files");

    // A directory that somebody else has made keeps its mode, and the log says what that means.
    let shared = parent.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::start(Some(&shared), &["-cores", "1"]);
    assert!(server.log().contains("other users of this machine may look into"), "{}", server.log());
    assert_eq!(std::fs::metadata(&shared).unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn a_small_limit_of_open_files_is_raised_or_said() {
    let server = nigh_tests::server_binary();
    let limited = |limit: &str| {
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("{limit} && exec \"$0\" \"$@\"")])
            .arg(server)
            .args(["-http", "127.0.0.1:0", "-data", "/proc/no-such-place", "-cores", "1"])
            .output()
            .expect("sh starts");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let log = limited("ulimit -n 64");
    assert!(log.contains("open_files=64 connections=16") && log.contains("ulimit -n"), "{log}");
    // A process may raise its soft limit as far as the hard one.
    for enough in ["ulimit -n 4096", "ulimit -S -n 64 && ulimit -H -n 4096"] {
        let log = limited(enough);
        assert!(!log.contains("ulimit -n") && log.contains("/proc/no-such-place"), "{enough}: {log}");
    }
}

#[test]
fn two_servers_that_want_one_core_each_are_pinned_to_different_ones() {
    let first = Server::start(None, &["-cores", "1"]);
    let second = Server::start(None, &["-cores", "1"]);
    let pinned_to = |server: &Server| {
        let log = server.log();
        log.split_once("pinned to CPUs ").map(|(_, rest)| rest[..rest.find(':').unwrap()].to_owned())
    };
    // Where the process may not pin, or has one CPU only, there is nothing to choose. Servers of other tests may have taken all CPUs,
    // which the log then says: of the second server, or of the first, which has shared a CPU with a server that ended before the
    // second one started. The second then has that CPU as its own.
    let is_said = |server: &Server| server.log().contains("another nigh server is pinned to");
    let shared = is_said(&first) || is_said(&second);
    if let (Some(first), Some(second)) = (pinned_to(&first), pinned_to(&second)) {
        assert!(first != second || shared, "both are pinned to CPU {first}");
    }
}

#[test]
fn a_reader_of_the_log_that_stalls_holds_up_nobody() {
    let mut child = std::process::Command::new(nigh_tests::server_binary())
        .args(["-http", "127.0.0.1:0", "-cores", "1", "-access-log"])
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
    let address = loop {
        let line = lines.next().expect("it serves").expect("text");
        if let Some((_, rest)) = line.split_once("msg=serving proto=http addr=") {
            break rest.split(' ').next().expect("an address").to_owned();
        }
    };
    // Nobody reads from here on. A pipe takes 64 KiB, the server keeps some thousand lines more.
    let mut api = Api::connect(&address).expect("a connection");
    for request in 0..10_000 {
        let reply = api.send("GET", "/v1/health", &Value::Null).expect("an answer");
        assert_eq!(reply.status, 200, "request {request}");
    }
    // The reader wakes up; the next event tells of the loss.
    let told = std::thread::spawn(move || {
        lines
            .map_while(Result::ok)
            .find(|line| line.contains("thrown away"))
            .is_some_and(|line| line.contains("level=WARN") && line.contains("lines_since_start="))
    });
    while !told.is_finished() {
        assert_eq!(api.send("GET", "/v1/health", &Value::Null).expect("an answer").status, 200);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(told.join().expect("the reader does not panic"), "the loss is not in the log");
    let page = api.page("/metrics");
    let lost =
        page.lines().find_map(|line| line.strip_prefix("svc_server_log_lines_lost_total{log=\"access\"} "));
    let lost: u64 = lost.expect("it is counted").parse().expect("a number");
    assert!((1..10_000).contains(&lost), "{lost} lines lost");
    // SAFETY: the id is our own child's, which has not been waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    assert!(child.wait().expect("our own child").success());
}

#[test]
fn unusable_data_directories_are_named() {
    // Not even root can make directories here; file permissions would not stop it.
    refused(Path::new("/proc/no-such-place"), &["/proc/no-such-place"]);
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    refused(file.path(), &[&file.path().display().to_string()]);
}

#[test]
fn a_newer_data_directory_is_left_alone() {
    let data = tempfile::tempdir().expect("a temporary directory");
    Server::start(Some(data.path()), &["-cores", "1"]).kill();
    let format = data.path().join("FORMAT");
    for file in [&format, &data.path().join("copies/FORMAT")] {
        std::fs::write(file, "nigh 999\n").expect("writable");
    }
    refused(data.path(), &["newer", "999"]);
    assert_eq!(std::fs::read_to_string(&format).expect("still there"), "nigh 999\n");
}

#[test]
fn refused_io_uring_is_named_with_its_remedy() {
    // What container runtimes do by default: the three calls answer EPERM.
    let mut command = std::process::Command::new(nigh_tests::server_binary());
    command.args(["-http", "127.0.0.1:0", "-cores", "1"]);
    // SAFETY: between fork and exec only prctl is called, on memory of this closure.
    unsafe {
        command.pre_exec(forbid_io_uring);
    }
    let output = command.output().expect("the server starts");
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("level=ERROR") && log.contains("io_uring") && log.contains("seccomp"), "{log}");
}

/// Installs a filter on this process under which io_uring_setup, _enter and _register (425 to 427) answer EPERM.
fn forbid_io_uring() -> std::io::Result<()> {
    let statement = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        // The call's number is the first word of what a filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 425, 0, 2),
        statement(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 427, 1, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: `program` and `filter` outlive the calls, which only read them.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) != 0
        {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}
