//! The pages of this project against the project: commands are run, answers compared, links followed, names looked up, and the
//! reference is written from the code.
//!
//! `NIGH_REWRITE_PAGES=1` writes what servers really answer into the pages, and `NIGH_REWRITE_REFERENCE=1` writes the pages of
//! `docs/reference` that are made from the code.
mod answers;
mod configuration;
mod grpc;
mod limits;
mod links;
mod names;
mod operations;
mod page;
mod reference;
mod walk;

use page::Page;
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Every page for readers: the README, what is below `docs`, and the pages beside the code.
fn pages() -> Vec<Page> {
    let beside = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "deploy/README.md",
        "net/PROTOCOL.md",
        "fuzz/README.md",
        "benches/FILTERS.md",
        "benches/TRAVERSAL.md",
    ];
    let mut names: Vec<String> = beside.iter().map(ToString::to_string).collect();
    names.extend(below("docs"));
    names.into_iter().map(|name| Page::read(Path::new(ROOT), name)).collect()
}

/// The names of the pages in a directory and those in it, in order.
fn below(directory: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::from(ROOT).join(directory)];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory of pages") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(ROOT).expect("below the root");
                found.push(name.to_str().expect("names are text").to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Fails with every fault that was found, each on a line of its own.
#[track_caller]
fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
