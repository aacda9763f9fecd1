//! Starting, killing and stopping server processes.
use crate::{Api, Wire};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A start that takes longer has hung: tests open small data directories.
const START_MAX: Duration = Duration::from_secs(60);
/// A graceful stop drains for 5 s at most and then flushes.
const STOP_MAX: Duration = Duration::from_secs(30);
/// A line that has not come by then does not come, even on a busy machine.
const LOG_MAX: Duration = Duration::from_secs(60);

/// Path of the `nigh` binary: `NIGH_BIN`, or the one cargo builds here.
///
/// # Panics
/// When it cannot be built.
pub fn server_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("NIGH_BIN") {
            return path.into();
        }
        // A test of another package may run before the binary exists or after it changed; cargo knows, and a
        // finished build costs a fraction of a second. The test's own path says which profile it was built in.
        let test = std::env::current_exe().expect("a test knows its own path");
        let directory = test.ancestors().nth(2).expect("target/<profile>/deps/<test>").to_owned();
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.args(["build", "--quiet", "-p", "nigh", "--bin", "nigh", "--manifest-path"]);
        build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"));
        if directory.file_name().is_some_and(|profile| profile == "release") {
            build.arg("--release");
        }
        if cfg!(feature = "parquet") {
            build.args(["--features", "parquet"]);
        }
        let status = build.status().expect("cargo starts");
        assert!(status.success(), "building the server failed");
        directory.join("nigh")
    })
}

/// A running server.
pub struct Server {
    child: Child,
    authority: String,
    tcp_authority: String,
    grpc_authority: String,
    log: Arc<Mutex<String>>,
    /// Fills `log` until the process closes its stderr.
    reader: Option<JoinHandle<()>>,
}

/// A server that ended instead of serving.
#[derive(Debug)]
pub struct StartFailure {
    /// Its exit status.
    pub status: ExitStatus,
    /// Everything it wrote to stderr.
    pub log: String,
}

/// How a process ended.
#[derive(Debug)]
pub struct Exit {
    /// Exit status.
    pub status: ExitStatus,
    /// stdout.
    pub stdout: String,
    /// stderr.
    pub stderr: String,
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(server_binary());
    command.args(arguments).stdin(Stdio::null());
    // Flags given by the environment of whoever runs the tests must not leak in.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SVC_")) {
        command.env_remove(name);
    }
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe and touches no memory of ours.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    command
}

/// Runs the binary until it ends by itself.
///
/// # Panics
/// When it cannot be started.
pub fn run_to_end(arguments: &[&str], environment: &[(&str, &str)]) -> Exit {
    let output = command(arguments).envs(environment.iter().copied()).output().expect("the server starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Exit { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// What the reader of a log tells once the store is open, in the place of a protocol.
const OPEN: &str = "open";

impl Server {
    /// Starts a server on a free loopback port and waits until it serves and all of its store is open. `data` is the data directory. `-tcp` and
    /// `-grpc` among the flags are waited for as well, and with `-http ""` alone.
    ///
    /// # Errors
    /// When it ends first.
    ///
    /// # Panics
    /// When it neither serves nor ends.
    pub fn try_start(data: Option<&Path>, flags: &[&str]) -> Result<Server, StartFailure> {
        Server::try_start_with(data, flags, &[], None)
    }

    /// Like [`Self::try_start`], with variables of the environment, and as a member of a control group from its first moment, by the file
    /// that takes members (`cgroup.procs`).
    ///
    /// # Errors
    /// When it ends first.
    ///
    /// # Panics
    /// When it neither serves nor ends.
    pub fn try_start_with(
        data: Option<&Path>,
        flags: &[&str],
        environment: &[(&str, &str)],
        group: Option<&File>,
    ) -> Result<Server, StartFailure> {
        let mut command = command(&["-http", "127.0.0.1:0"]);
        command.envs(environment.iter().copied());
        if let Some(group) = group.map(AsRawFd::as_raw_fd) {
            // SAFETY: between fork and exec only write is called, which is async-signal-safe; the descriptor stays open until the child
            // has been made.
            unsafe {
                command.pre_exec(move || match libc::write(group, c"0".as_ptr().cast(), 1) {
                    1 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                });
            }
        }
        if let Some(data) = data {
            command.arg("-data").arg(data);
        }
        let mut child =
            command.args(flags).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("spawn");
        let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let log = Arc::new(Mutex::new(String::new()));
        let (found, serving) = std::sync::mpsc::channel();
        let sink = log.clone();
        let reader = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let mut log = sink.lock().expect("nobody panics while logging");
                log.push_str(&line);
                log.push('\n');
                drop(log);
                let addr = line.split(' ').find_map(|word| word.strip_prefix("addr="));
                let proto = line.split(' ').find_map(|word| word.strip_prefix("proto="));
                if line.contains("msg=serving proto=")
                    && let (Some(proto), Some(addr)) = (proto, addr)
                {
                    let _nobody_waits = found.send((proto.to_owned(), addr.to_owned()));
                }
                if line.contains("msg=open ") {
                    let _nobody_waits = found.send((OPEN.to_owned(), String::new()));
                }
            }
        });
        let mut server = Server {
            child,
            authority: String::new(),
            tcp_authority: String::new(),
            grpc_authority: String::new(),
            log,
            reader: Some(reader),
        };
        let (is_with_tcp, is_with_grpc) = (flags.contains(&"-tcp"), flags.contains(&"-grpc"));
        let is_with_http = !flags.windows(2).any(|pair| pair == ["-http", ""]);
        let mut is_open = false;
        // It serves from its start on; tests begin when all that it has is open, unless they say otherwise.
        while !is_open
            || (is_with_http && server.authority.is_empty())
            || (is_with_tcp && server.tcp_authority.is_empty())
            || (is_with_grpc && server.grpc_authority.is_empty())
        {
            match serving.recv_timeout(START_MAX) {
                Ok((proto, authority)) => match proto.as_str() {
                    OPEN => is_open = true,
                    "tcp" => server.tcp_authority = authority,
                    "grpc" => server.grpc_authority = authority,
                    _ => server.authority = authority,
                },
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                    let status = server.wait();
                    return Err(StartFailure { status, log: server.log() });
                }
                Err(_) => panic!("the server neither serves nor ends:\n{}", server.log()),
            }
        }
        Ok(server)
    }

    /// Like [`Self::try_start`], expecting success.
    ///
    /// # Panics
    /// With the server's log when it does not serve.
    #[track_caller]
    pub fn start(data: Option<&Path>, flags: &[&str]) -> Server {
        Server::try_start(data, flags)
            .unwrap_or_else(|failure| panic!("{}:\n{}", failure.status, failure.log))
    }

    /// Starts a server on a data directory and kills it `after` that long, wherever it is by then.
    ///
    /// # Panics
    /// When the process cannot be started.
    pub fn kill_while_starting(data: &Path, flags: &[&str], after: Duration) {
        let mut command = command(&["-http", "127.0.0.1:0"]);
        command.arg("-data").arg(data).args(flags).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("the server starts");
        let mut server = Server {
            child,
            authority: String::new(),
            tcp_authority: String::new(),
            grpc_authority: String::new(),
            log: Arc::default(),
            reader: None,
        };
        std::thread::sleep(after);
        server.kill_and_wait();
    }

    /// `host:port` it serves on.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// `host:port` of the binary protocol, empty when it was not started with `-tcp` as a flag of its own.
    pub fn tcp_authority(&self) -> &str {
        &self.tcp_authority
    }

    /// `host:port` of gRPC, empty when it was not started with `-grpc` as a flag of its own.
    pub fn grpc_authority(&self) -> &str {
        &self.grpc_authority
    }

    /// A new connection of the binary protocol to it.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn tcp(&self) -> Wire {
        Wire::connect(&self.tcp_authority)
    }

    /// A new connection to it.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn api(&self) -> Api {
        Api::connect(&self.authority).expect("the server accepts connections")
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("nobody panics while logging").clone()
    }

    /// Waits until `part` is in its log. The server writes its log on a thread of its own, and this process reads it on another, so a line
    /// may come after the answer that it is about.
    ///
    /// # Panics
    /// When it does not come.
    #[track_caller]
    pub fn wait_for_log(&self, part: &str) {
        let began = Instant::now();
        while !self.log().contains(part) {
            assert!(began.elapsed() < LOG_MAX, "no {part:?} in\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub fn kill(mut self) {
        self.kill_and_wait();
    }

    fn kill_and_wait(&mut self) {
        // Both fail only for a child that has been waited for already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the id is our own child's, which has not been waited for, so it cannot be anybody else's.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Stops it with SIGTERM and returns exit status and log.
    ///
    /// # Panics
    /// When it does not end.
    pub fn stop(mut self) -> (ExitStatus, String) {
        self.signal(libc::SIGTERM);
        let status = self.wait();
        (status, self.log())
    }

    /// Waits for its end; the log is complete then.
    ///
    /// # Panics
    /// When it does not end.
    pub fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        while start.elapsed() < STOP_MAX {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                if let Some(reader) = self.reader.take() {
                    reader.join().expect("the reader does not panic");
                }
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the server does not end:\n{}", self.log());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill_and_wait();
        if std::thread::panicking() {
            eprintln!("--- log of the server ---\n{}", self.log());
        }
    }
}
