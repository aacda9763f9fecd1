//! The logs of whole processes: files and their rotation, files and pipes that cannot be written, and what lines show and do not show.
use nigh_tests::{Api, Args, Server, frame, frame_with_token, run_to_end, server_binary};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long to wait for anything, with room for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until a condition holds.
#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

fn content(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// A value of a line in the text format; the value must not have spaces.
fn value<'l>(line: &'l str, key: &str) -> Option<&'l str> {
    line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// How many lines a log has lost, by the metric.
fn lost(api: &mut Api, log: &str) -> u64 {
    let name = format!("svc_server_log_lines_lost_total{{log=\"{log}\"}} ");
    let page = api.page("/metrics");
    page.lines().find_map(|line| line.strip_prefix(&name)).expect("a sample").parse().expect("a number")
}

/// The test does what `logrotate` does: it renames the file and sends SIGHUP to the server.
#[test]
fn rotation_under_load_loses_and_doubles_no_line() {
    const CLIENTS: usize = 2;
    const REQUESTS: usize = 1500;
    let directory = tempfile::tempdir().expect("a directory");
    let logs = directory.path().join("logs");
    fs::create_dir(&logs).expect("a directory");
    let log = logs.join("access.log");
    let server = Server::start(None, &["-cores", "2", "-access-log", "-access-log-file", text(&log)]);
    let mut parts: Vec<PathBuf> = Vec::new();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let mut api = server.api();
                scope.spawn(move || {
                    for request in 0..REQUESTS {
                        let path = format!("/v1/collections/c{client}-{request}/points/1");
                        let reply = api.send("GET", &path, &Value::Null).expect("an answer");
                        assert_eq!(reply.status, 404);
                    }
                })
            })
            .collect();
        while clients.iter().any(|client| !client.is_finished()) || parts.len() < 3 {
            let part = logs.join(format!("access.log.{}", parts.len()));
            fs::rename(&log, &part).expect("it is renamed");
            parts.push(part);
            server.signal(libc::SIGHUP);
            wait_until("the file is created again", || log.exists());
        }
    });
    // Now the directory is gone: the file stays in use under its new name.
    let moved = directory.path().join("moved");
    fs::rename(&logs, &moved).expect("it is renamed");
    server.signal(libc::SIGHUP);
    server.wait_for_log("the file of -access-log-file could not be reopened; the earlier one stays in use");
    server.api().send("GET", "/v1/collections/last/points/1", &Value::Null).expect("an answer");
    let (status, server_log) = server.stop();
    assert!(status.success() && !server_log.contains("msg=access"), "{server_log}");
    assert!(server_log.contains("-access-log-file") && server_log.contains("No such file"), "{server_log}");

    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    parts.push(log);
    for part in &parts {
        let part = moved.join(part.file_name().expect("a name"));
        assert_eq!(fs::metadata(&part).expect("the file").permissions().mode() & 0o777, 0o600);
        let lines = content(&part);
        assert!(lines.is_empty() || lines.ends_with('\n'), "{part:?} ends in the middle of a line");
        for line in lines.lines() {
            assert!(line.starts_with("time=") && value(line, "bytes").is_some(), "{line}");
            let (_, path) = line.split_once("op=\"GET /v1/collections/").expect("a path");
            *seen.entry(path.split('/').next().expect("a name").to_owned()).or_default() += 1;
        }
    }
    assert!(seen.values().all(|times| *times == 1), "{seen:?}");
    assert_eq!(seen.len(), CLIENTS * REQUESTS + 1, "after {} rotations", parts.len() - 1);
}

#[test]
fn a_full_disk_under_the_logs_holds_up_nobody_and_is_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let (access, audit) = (directory.path().join("access"), directory.path().join("audit"));
    for path in [&access, &audit] {
        std::os::unix::fs::symlink("/dev/full", path).expect("a link");
    }
    let keys = directory.path().join("keys.json");
    let flags =
        ["-access-log", "-access-log-file", text(&access), "-audit-log", "-audit-log-file", text(&audit)];
    let flags = [&flags[..], &["-keys-file", text(&keys), "-internal-token", "a-token-of-nodes"]].concat();
    let server = Server::start(None, &flags);
    let mut api = Api::connect_with_key(server.authority(), "a-token-of-nodes").expect("a connection");
    for _ in 0..500 {
        assert_eq!(api.send("GET", "/v1/collections", &Value::Null).expect("an answer").status, 200);
    }
    for (log, flag) in [("access", "-access-log-file"), ("audit", "-audit-log-file")] {
        server.wait_for_log(&format!("{flag} "));
        let began = Instant::now();
        while lost(&mut api, log) < 500 {
            assert!(began.elapsed() < PATIENCE, "{}", server.log());
        }
    }
    assert_eq!(lost(&mut api, "server"), 0);
    // There is room again.
    for path in [&access, &audit] {
        fs::remove_file(path).expect("the link");
    }
    server.signal(libc::SIGHUP);
    wait_until("the losses are reported", || content(&audit).contains("thrown away"));
    wait_until("the losses are reported", || content(&access).contains("thrown away"));
    let (status, log) = server.stop();
    assert!(status.success() && log.contains("is written again"), "{log}");
    let line = content(&access).lines().next().expect("a line").to_owned();
    assert!(value(&line, "log") == Some("access") && value(&line, "lines_since_start").is_some(), "{line}");
    let decisions = content(&audit);
    let lines: Vec<Value> = decisions.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines[0]["lines_since_start"].as_u64() >= Some(500), "{decisions}");
}

#[test]
fn a_reader_of_a_pipe_that_stalls_holds_up_nobody() {
    let directory = tempfile::tempdir().expect("a directory");
    let pipe = directory.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo starts");
    assert!(made.success());
    let flags = ["-http", "127.0.0.1:0", "-access-log", "-access-log-file", text(&pipe)];
    let refused = run_to_end(&flags, &[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stderr.contains("nobody reads from this pipe"), "{}", refused.stderr);

    let mut reader =
        fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).expect("the pipe");
    let server = Server::start(None, &["-cores", "1", "-access-log", "-access-log-file", text(&pipe)]);
    let mut api = server.api();
    let began = Instant::now();
    // Nobody reads. A pipe takes 64 KiB, and the server keeps some thousand lines more.
    while lost(&mut api, "access") == 0 {
        assert!(began.elapsed() < PATIENCE, "{}", server.log());
        for _ in 0..1000 {
            assert_eq!(api.send("GET", "/v1/health", &Value::Null).expect("an answer").status, 200);
        }
    }
    assert_eq!(lost(&mut api, "server"), 0);
    let mut text = Vec::new();
    wait_until_read(&mut reader, &mut text, "thrown away");
    let told = String::from_utf8_lossy(&text);
    let line = told.lines().find(|line| line.contains("thrown away")).expect("the line");
    assert!(value(line, "log") == Some("access") && line.contains("level=WARN"), "{line}");
}

/// Reads until `part` has been read.
fn wait_until_read(reader: &mut fs::File, read: &mut Vec<u8>, part: &str) {
    let (began, mut buffer) = (Instant::now(), vec![0; 64 << 10]);
    loop {
        match reader.read(&mut buffer) {
            Ok(bytes) => read.extend_from_slice(&buffer[..bytes]),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
        let whole = read.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if String::from_utf8_lossy(&read[..whole]).contains(part) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "no {part:?} in {} bytes", read.len());
    }
}

/// A server whose own log is a file, so that nothing is read from its stderr.
struct Quiet(Child);

impl Drop for Quiet {
    fn drop(&mut self) {
        // Both fail only for a child that has been waited for already.
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// The complete lines of a file that may be written at the same time.
fn json_lines(path: &Path) -> Vec<Value> {
    let text = content(path);
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("a whole line of JSON")).collect()
}

#[test]
fn the_servers_log_may_be_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("nigh.log");
    // Both logs have the same file.
    let arguments = ["-http", "127.0.0.1:0", "-cores", "1", "-log-format", "json", "-access-log"];
    let arguments = [&arguments[..], &["-log-file", text(&log), "-access-log-file", text(&log)]].concat();
    let mut command = Command::new(server_binary());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut server = Quiet(command.spawn().expect("the server starts"));
    let serving = |lines: Vec<Value>| {
        lines.into_iter().find(|line| line["msg"] == "serving").map(|line| line["addr"].to_string())
    };
    wait_until("it serves", || json_lines(&log).iter().any(|line| line["msg"] == "open"));
    let address = serving(json_lines(&log)).expect("an address");
    let mut api = Api::connect(address.trim_matches('"')).expect("a connection");
    api.ok("GET", "/v1/health", Value::Null);
    wait_until("the line of the request", || {
        json_lines(&log).iter().any(|line| line["op"] == "GET /v1/health")
    });
    let rotated = directory.path().join("nigh.log.1");
    fs::rename(&log, &rotated).expect("it is renamed");
    // SAFETY: the id is our own child's, which has not been waited for, so it cannot be anybody else's.
    unsafe { libc::kill(server.0.id() as libc::pid_t, libc::SIGHUP) };
    wait_until("it is reopened", || content(&log).contains("the file of -log-file was reopened"));
    api.ok("GET", "/v1/ready", Value::Null);
    drop(api);
    // SAFETY: as above.
    unsafe { libc::kill(server.0.id() as libc::pid_t, libc::SIGTERM) };
    assert!(server.0.wait().expect("our own child").success());
    let after = json_lines(&log);
    for (key, expected) in [("op", "GET /v1/ready"), ("msg", "shutting down")] {
        assert!(after.iter().any(|line| line[key] == expected), "no {expected:?} in {after:?}");
    }
    let mut stderr = String::new();
    server.0.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("text");
    assert_eq!(stderr, "");
}

#[test]
fn a_start_that_fails_shows_on_stderr_and_in_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("nigh.log");
    let ended = run_to_end(&["-http", "127.0.0.1:0", "-shards", "3", "-log-file", text(&log)], &[]);
    assert_eq!(ended.status.code(), Some(1));
    for shown in [&ended.stderr, &content(&log)] {
        assert!(shown.contains("level=ERROR") && shown.contains("-shards 3"), "{shown}");
    }
    let missing = directory.path().join("none").join("log");
    for (flag, others) in [
        ("-log-file", &[][..]),
        ("-access-log-file", &["-access-log"]),
        ("-audit-log-file", &["-audit-log", "-keys-file", "keys.json"]),
    ] {
        let arguments = [&["-http", "127.0.0.1:0", flag, text(&missing)], others].concat();
        let ended = run_to_end(&arguments, &[]);
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains(&format!("{flag} {}: ", text(&missing))), "{}", ended.stderr);
        assert!(!ended.stderr.contains("serving"), "{}", ended.stderr);
    }
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const TOKEN: &str = "a-token-that-no-log-shows";
/// A text that clients send in places other than tokens, and that no log may show.
const SECRET: &str = "d3adb33f-of-a-client";

/// Sends raw bytes on a connection of its own and reads until the server closes it.
fn raw(server: &Server, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.authority()).expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    stream.write_all(request).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

/// Makes one call of gRPC, and reads until the server has ended it.
fn call(server: &Server, method: &str, headers: &[(&str, &str)], message: &[u8]) {
    const END_STREAM: u8 = 1;
    let frame = |kind: u8, flags: u8, payload: &[u8]| {
        let len = (payload.len() as u32).to_be_bytes();
        let stream = if kind == 4 { [0; 4] } else { [0, 0, 0, 1] };
        [&len[1..], &[kind, flags], &stream, payload].concat()
    };
    let path = format!("/svc.v1.VectorService/{method}");
    let usual = [(":method", "POST"), (":scheme", "http"), (":authority", "test"), (":path", path.as_str())];
    let usual = usual.into_iter().chain([("content-type", "application/grpc")]);
    let head: Vec<u8> = usual
        .chain(headers.iter().copied())
        .flat_map(|(name, value)| Args::new().u8(0).s8(name).s8(value).0)
        .collect();
    let message = Args::new().u8(0).s32(message).0;
    let mut stream = TcpStream::connect(server.grpc_authority()).expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    let all = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, b""), &frame(1, 4, &head)].concat();
    stream.write_all(&[all, frame(0, END_STREAM, &message)].concat()).expect("sent");
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).expect("a frame");
        let [a, b, c, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).expect("a frame");
        if kind <= 1 && flags & END_STREAM != 0 {
            return;
        }
    }
}

#[test]
fn each_request_has_one_line_which_names_its_trace_and_no_secret() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let (keys, access, audit) = (path("keys.json"), path("access"), path("audit"));
    let add = ["keys", "add", "-file", text(&keys), "-tenant", "*", "-scopes", "*:*"];
    assert!(run_to_end(&add, &[("SVC_KEY_TOKEN", TOKEN)]).status.success());
    let flags = ["-tcp", "127.0.0.1:0", "-grpc", "127.0.0.1:0", "-keys-file", text(&keys), "-access-log"];
    let files = ["-access-log-file", text(&access), "-audit-log", "-audit-log-file", text(&audit)];
    let server = Server::start(None, &[&flags[..], &files].concat());

    // Over HTTP: a point with a payload, a query string, and two trace headers, which count as none.
    let mut api = Api::connect_with_key(server.authority(), TOKEN).expect("a connection");
    api.ok("POST", "/v1/collections", json!({"name": "docs", "config": {"dim": 2}}));
    let point =
        json!({"id": 1, "vector": [0.73125, 1], "metadata": {"note": {"kind": "string", "str": SECRET}}});
    api.ok("POST", "/v1/collections/docs/points", point);
    let traceparent = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n");
    let get = |query: &str, id: &str, headers: &str| {
        let request = format!(
            "GET /v1/collections/docs/points/1?{query} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             authorization: Bearer {TOKEN}\r\nx-request-id: {id}\r\n{headers}\r\n"
        );
        raw(&server, request.as_bytes())
    };
    let answer = get("with_vector=true", "traced", &traceparent);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("x-request-id: traced\r\n"), "{answer}");
    assert!(!answer.contains("traceparent"), "{answer}");
    get(&format!("{SECRET}=1"), "twice", &[traceparent.as_str(); 2].concat());
    // These heads are not valid requests.
    assert!(raw(&server, b"no request\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert!(raw(&server, b"GET / HTTP/1.1\nhost: x\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let long = format!("GET /{} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", "p".repeat(60_000));
    assert!(raw(&server, long.as_bytes()).starts_with("HTTP/1.1 4"));
    let method = format!("{} / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", "M".repeat(60_000));
    raw(&server, method.as_bytes());
    // Over gRPC.
    let authorization = format!("Bearer {TOKEN}");
    let metadata = [
        ("authorization", authorization.as_str()),
        ("x-request-id", "called"),
        ("traceparent", &format!("cc-{TRACE}-{PARENT}-01-later")),
    ];
    call(&server, "GetInfo", &metadata, b"");
    call(&server, "Nothing", &metadata[..1], b"");
    // Over the binary protocol: a name that would forge a line, and a key and a value.
    let wire = &mut server.tcp();
    let put = Args::new().s16(SECRET).s32(SECRET).u64(0);
    wire.send(frame_with_token(TOKEN, "put", put.as_ref()));
    wire.send(frame("x\n\u{1b}[2Jtime=now\u{202e}", b""));
    wire.send(frame_with_token("wrong", "get", Args::new().s16(SECRET).as_ref()));
    let statuses = [(); 3].map(|()| wire.response().status);
    assert_eq!(statuses[0], 0);
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");

    let lines = content(&access);
    let with = |part: &str| lines.lines().filter(|line| line.contains(part)).collect::<Vec<_>>();
    let only = |part: &str| {
        let found = with(part);
        assert_eq!(found.len(), 1, "{part:?} in {lines}");
        found[0]
    };
    for (name, transport, status) in [("traced", "http", "200"), ("called", "grpc", "")] {
        let line = only(&format!("request_id={name} "));
        assert_eq!(
            (value(line, "trace_id"), value(line, "parent_id")),
            (Some(TRACE), Some(PARENT)),
            "{line}"
        );
        assert_eq!(value(line, "transport"), Some(transport), "{line}");
        assert!(value(line, "status").is_some_and(|found| found.contains(status) && !found.is_empty()));
        assert!(value(line, "principal").is_some_and(|name| name.starts_with("token:")), "{line}");
    }
    assert!(only("request_id=traced ").contains("op=\"GET /v1/collections/docs/points/1\" "));
    assert!(only("request_id=called ").contains("op=/svc.v1.VectorService/GetInfo "));
    let twice = only("request_id=twice ");
    assert_eq!((value(twice, "trace_id"), value(twice, "parent_id")), (None, None), "{twice}");
    assert_eq!(value(only("op=/svc.v1.VectorService/Nothing "), "status"), Some("UNIMPLEMENTED"));
    let bad = with("op=\"\" status=400 ");
    assert_eq!(bad.len(), 2, "{lines}");
    assert!(bad.iter().all(|line| value(line, "bytes").is_some_and(|bytes| bytes != "0")), "{bad:?}");
    assert!(only("/pppp").len() < 2000 && only("MMMM").len() < 500);
    assert_eq!(value(only("op=put "), "status"), Some("ok"));
    assert_eq!(value(only("op=get "), "status"), Some("unauthorized"));
    let forged = only("[2Jtime=now");
    assert!(forged.contains(r#"op="x\n\u{1b}[2Jtime=now\u{202e}" "#), "{forged}");
    // Two requests made the collection and its point; the others are those above.
    assert_eq!(lines.lines().count(), 2 + 6 + 2 + 3, "{lines}");
    assert!(lines.lines().all(|line| line.starts_with("time=") && line.contains(" msg=access request_id=")));
    let decisions = json_lines(&audit);
    assert!(decisions.iter().any(|line| line["op"] == "vector_get" && line["resource"] == "default/docs"));
    for text in [&lines, &content(&audit), &log] {
        for secret in [TOKEN, SECRET, "0.73125", "wrong"] {
            assert!(!text.contains(secret), "{secret} is in {text}");
        }
    }
}
