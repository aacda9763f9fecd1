//! `nigh export` and `nigh import` between whole servers: what comes back, and what happens when servers, files or the two programs fail.

mod faults;
mod keys;
mod memory;
#[cfg(feature = "parquet")]
mod parquet;
mod points;
mod proxy;

use nigh_tests::{Api, Exit, Server, run_to_end};
use serde_json::{Value, json};
use std::path::Path;

/// A folder for files, and servers to move data between.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a directory"))
    }

    /// The path of a file in it.
    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("text").to_owned()
    }

    /// The text of a file in it.
    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn has(&self, name: &str) -> bool {
        Path::new(&self.path(name)).exists()
    }
}

fn server() -> Server {
    Server::start(None, &["-cores", "1", "-tcp", "127.0.0.1:0", "-kv-query"])
}

/// Runs `nigh` with the words of `line` and expects the exit code.
#[track_caller]
fn run(line: &str, code: i32) -> Exit {
    let words: Vec<&str> = line.split_whitespace().collect();
    let exit = run_to_end(&words, &[]);
    assert_eq!(exit.status.code(), Some(code), "{line}: {}{}", exit.stdout, exit.stderr);
    exit
}

/// Exports a collection of a server to a file.
#[track_caller]
fn export(server: &Server, collection: &str, file: &str, flags: &str) -> Exit {
    run(&format!("export -url http://{} -collection {collection} -o {file} {flags}", server.authority()), 0)
}

/// Imports a file into a server.
#[track_caller]
fn import(server: &Server, file: &str, flags: &str, code: i32) -> Exit {
    run(&format!("import -url http://{} {file} {flags}", server.authority()), code)
}

/// Creates a dense collection `name` with `count` points of two components; the metric is `l2`.
fn fill(api: &mut Api, name: &str, count: usize) {
    api.ok("POST", "/v1/collections", json!({"name": name, "config": {"dim": 2, "metric": "l2"}}));
    for start in (0..count).step_by(1000) {
        let points: Vec<Value> = (start..count.min(start + 1000))
            .map(|id| json!({"id": id, "vector": [id as f32 / 7.0, -1.5], "metadata": {"n": id}}))
            .collect();
        api.ok("POST", &format!("/v1/collections/{name}/points/batch"), json!({ "points": points }));
    }
}

fn count(api: &mut Api, collection: &str) -> u64 {
    let path = format!("/v1/collections/{collection}/points/count");
    api.ok("POST", &path, json!({}))["count"].as_u64().expect("a number")
}
