//! The server under the seccomp profile that is shipped for containers.
//!
//! The profile is translated to the filter that a container runtime would install, for the architecture that runs the test.

use nigh_tests::{Api, Server, server_binary};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use syscalls::Sysno;

const PROFILE: &str = include_str!("../../deploy/seccomp.json");

/// Offsets in what a filter sees of a call: its number, and the low half of its first argument.
const NUMBER: u32 = 0;
const ARGUMENT_0: u32 = 16;

fn statement(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

fn load(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

fn give(verdict: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, verdict, 0, 0)
}

fn errno(number: u64) -> u32 {
    libc::SECCOMP_RET_ERRNO | number as u32
}

/// The profile as a program. Names that this architecture does not have are left out, as runtimes do.
///
/// # Panics
/// When the profile says something that is not translated here.
fn compile(profile: &Value) -> Vec<libc::sock_filter> {
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let mut program = vec![load(NUMBER)];
    let mut known = 0;
    for rule in profile["syscalls"].as_array().expect("a list of rules") {
        let verdict = match rule["action"].as_str().expect("an action") {
            "SCMP_ACT_ALLOW" => libc::SECCOMP_RET_ALLOW,
            "SCMP_ACT_ERRNO" => errno(rule["errnoRet"].as_u64().expect("an error number")),
            other => panic!("the action {other} is not translated"),
        };
        for name in rule["names"].as_array().expect("a list of names") {
            let name = name.as_str().expect("a name");
            let Ok(call) = name.parse::<Sysno>() else { continue };
            known += 1;
            let is = |skip| statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call.id() as u32, 0, skip);
            match rule.get("args") {
                None => program.extend([is(1), give(verdict)]),
                Some(conditions) => {
                    let condition = &conditions[0];
                    assert_eq!(conditions.as_array().map(Vec::len), Some(1), "{name}");
                    assert_eq!(
                        (&condition["op"], &condition["index"]),
                        (&json!("SCMP_CMP_MASKED_EQ"), &json!(0))
                    );
                    let mask = condition["value"].as_u64().expect("a mask") as u32;
                    let expected = condition["valueTwo"].as_u64().expect("a value") as u32;
                    program.extend([
                        is(5),
                        load(ARGUMENT_0),
                        statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask, 0, 0),
                        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, expected, 0, 1),
                        give(verdict),
                        load(NUMBER),
                    ]);
                }
            }
        }
    }
    assert!(known > 200, "only {known} names of the profile are calls of this architecture");
    program.push(give(errno(profile["defaultErrnoRet"].as_u64().expect("an error number"))));
    program
}

fn profile() -> Value {
    serde_json::from_str(PROFILE).expect("the profile is JSON")
}

/// A command that runs under a profile.
fn confined(profile: &Value, program: &std::path::Path) -> Command {
    let mut filter = compile(profile);
    let mut command = Command::new(program);
    // SAFETY: between fork and exec only prctl is called, on memory of this closure, which lives until then.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            let ended = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if ended != 0
                || libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) != 0
            {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    command
}

/// Starts the server under a profile, lets it serve `with` its HTTP address, and stops it; returns its log.
fn serve(profile: &Value, data: &std::path::Path, flags: &[&str], with: impl FnOnce(&mut Api)) -> String {
    let mut child = confined(profile, server_binary())
        .args(["-http", "127.0.0.1:0", "-tcp", "127.0.0.1:0", "-data"])
        .arg(data)
        .args(flags)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
    let mut log = String::new();
    let mut address = None;
    let address = loop {
        let Some(line) = lines.next() else { panic!("the server ended:\n{log}") };
        let line = line.expect("the log is text");
        log.push_str(&line);
        log.push('\n');
        if let Some((_, rest)) = line.split_once("msg=serving proto=http addr=") {
            address = rest.split(' ').next().map(str::to_owned);
        }
        // It serves from its start on, and everything once its store is open.
        if line.contains("msg=open ") {
            break address.expect("an address");
        }
    };
    with(&mut Api::connect(&address).expect("a connection"));
    // SAFETY: the id is our own child's, which has not been waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    log.extend(lines.map_while(Result::ok).map(|line| line + "\n"));
    let status = child.wait().expect("our own child");
    assert!(status.success(), "{status}:\n{log}");
    log
}

#[test]
fn the_server_works_under_the_profile_that_is_shipped() {
    let data = tempfile::tempdir().expect("a temporary directory");
    for flags in [&["-cores", "2"][..], &["-cores", "1", "-epoll=false"]] {
        let log = serve(&profile(), data.path(), flags, |api| {
            let config = json!({"dim": 8, "persistent": true, "quant": "sq8", "full_text": {}});
            // The second server finds the collection that the first one has made.
            let _known =
                api.send("POST", "/v1/collections", &json!({"name": "a", "config": config})).unwrap();
            let points: Vec<Value> = (0..600_u32)
                .map(|id| {
                    let vector: Vec<f32> =
                        (0..8_u32).map(|i| ((id * 7 + i * 13) % 31) as f32 - 15.0).collect();
                    json!({"id": id, "vector": vector, "content": "some words"})
                })
                .collect();
            let batch = json!({"upsert": true, "points": points});
            let written = api.ok("POST", "/v1/collections/a/points/batch", batch);
            assert_eq!(written["count"], 600);
            let query = json!({"query": points[3]["vector"], "k": 1});
            let found = api.ok("POST", "/v1/collections/a/points/search", query);
            assert!(found["results"][0]["distance"].as_f64().unwrap() < 1e-4, "{found}");
        });
        assert!(!log.contains("level=ERROR"), "{log}");
        assert!(!log.contains("Operation not permitted"), "{log}");
        // Where the kernel could confine the server, the profile lets it.
        assert!(log.contains("msg=confined landlock=") || !kernel_confines(), "{log}");
    }
}

/// Whether the kernel confines a server that has no profile.
fn kernel_confines() -> bool {
    Server::start(None, &[]).log().contains("msg=confined")
}

/// What a kernel without Landlock does: a server that is to be confined as far as it goes says so once and serves, and one that has to be
/// confined does not start. Profiles of many container runtimes know no Landlock either.
#[test]
fn a_server_that_cannot_be_confined_says_so() {
    let mut without = profile();
    for rule in without["syscalls"].as_array_mut().expect("a list of rules") {
        let names = rule["names"].as_array_mut().expect("a list of names");
        names.retain(|name| !name.as_str().is_some_and(|name| name.starts_with("landlock_")));
    }
    let data = tempfile::tempdir().expect("a temporary directory");
    let log = serve(&without, data.path(), &["-cores", "1"], |api| {
        assert_eq!(api.ok("GET", "/v1/health", Value::Null)["status"], "ok");
    });
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("no Landlock")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("level=WARN"), "{log}");
    assert!(!log.contains("msg=confined"), "{log}");

    let mut required = confined(&without, server_binary());
    required.args(["-http", "127.0.0.1:0", "-confine", "required", "-data"]).arg(data.path());
    let output = required.stdin(Stdio::null()).output().expect("the server starts");
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("-confine required: ") && !log.contains("msg=serving"), "{log}");
}

#[test]
fn the_profile_refuses_what_a_server_never_needs() {
    // `unshare` asks for a new namespace, which the profile forbids whatever rights the process has.
    let output = confined(&profile(), std::path::Path::new("/usr/bin/unshare")).args(["-U", "true"]).output();
    let output = output.expect("unshare is part of util-linux");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("not permitted"), "{output:?}");
}

/// The pod names the profile below the kubelet's directory; the lines that users copy must put it there.
#[test]
fn the_profile_is_installed_where_the_pod_looks_for_it() {
    let manifest = include_str!("../../deploy/kubernetes.yaml");
    let guide = include_str!("../../docs/operations/kubernetes.md");
    let named = manifest.lines().find_map(|line| line.trim().strip_prefix("localhostProfile: "));
    let path = format!("/var/lib/kubelet/seccomp/{}", named.expect("the pod names a profile"));
    for (name, page) in [("the manifest", manifest), ("the guide", guide)] {
        let install = |line: &&str| line.contains("install -D") && line.ends_with(&path);
        let line = page.lines().find(install).unwrap_or_else(|| panic!("{name} does not install {path}"));
        assert!(line.contains("seccomp.json "), "{name} installs something else: {line}");
    }
    let ignored = include_str!("../../.dockerignore");
    assert!(ignored.lines().any(|line| line == "/target"), "build outputs are sent to the builder of images");
}
