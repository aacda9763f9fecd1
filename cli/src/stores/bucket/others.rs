//! Stores of others with the interface of S3, for tests: `.ci/object-stores` installs them, and each runs as a process on a free port of this
//! machine.

use super::scripted::{ACCESS_KEY, BUCKET, SECRET_KEY};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to start on a busy machine.
const START: Duration = Duration::from_secs(60);

/// A process that ends with its value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _has_ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// Where the servers are installed; says so where they are not.
fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("NIGH_TEST_OBJECT_STORES").map(|stores| PathBuf::from(stores).join(name));
    let found = path.filter(|path| path.exists());
    if found.is_none() {
        println!("{name} is not installed, which .ci/object-stores does; skipped");
    }
    found
}

/// A store by s3s, which keeps objects as files.
pub(super) struct FileServer {
    directory: tempfile::TempDir,
    pub port: u16,
    _process: Process,
}

impl FileServer {
    /// Starts the server, or returns `None` if it is not installed.
    pub fn start() -> Option<FileServer> {
        let program = installed("s3s")?;
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join(BUCKET)).unwrap();
        let mut process = Command::new(program)
            .arg(directory.path())
            .args([ACCESS_KEY, SECRET_KEY])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let process = Process(process);
        Some(FileServer { directory, port: line.trim().parse().unwrap(), _process: process })
    }

    /// Multipart uploads that are open.
    pub fn open_uploads(&self) -> usize {
        let names = std::fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with(".upload-")).count()
    }
}

/// A store by moto, which keeps objects in memory.
pub(super) struct MemoryServer {
    process: Process,
    pub port: u16,
}

impl MemoryServer {
    /// Starts the server, or returns `None` if it is not installed.
    pub fn start() -> Option<MemoryServer> {
        let python = installed("moto/bin/python")?;
        // The server does not say which port the system chose, so one is chosen for it, which another process may take first.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let process = Command::new(&python)
                .args([
                    "-c",
                    "from moto.server import main; main()",
                    "-H",
                    "127.0.0.1",
                    "-p",
                    &port.to_string(),
                ])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut server = MemoryServer { process: Process(process), port };
            if server.answers() {
                return Some(server);
            }
        }
        panic!("moto does not start");
    }

    fn answers(&mut self) -> bool {
        let started = Instant::now();
        while started.elapsed() < START {
            if self.request("PUT", BUCKET).is_some_and(|(status, _)| status == 200) {
                return true;
            }
            if self.process.0.try_wait().unwrap().is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    /// A request without a signature, at which moto does not look.
    fn request(&self, method: &str, path: &str) -> Option<(u16, String)> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let host = format!("Host: 127.0.0.1:{}\r\nContent-Length: 0\r\nConnection: close", self.port);
        write!(socket, "{method} /{path} HTTP/1.1\r\n{host}\r\n\r\n").ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).ok()?;
        Some((answer.split(' ').nth(1)?.parse().ok()?, answer))
    }

    /// Multipart uploads that are open.
    pub fn open_uploads(&self) -> usize {
        self.request("GET", &format!("{BUCKET}?uploads")).unwrap().1.matches("<UploadId>").count()
    }
}
