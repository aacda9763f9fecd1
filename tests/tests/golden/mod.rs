//! Golden directories: what a server wrote when each set of formats was new is opened by the server of today, and answers the same.
//!
//! `tests/golden/<name>` has one, and is never changed. The name is the format of the data directory and a number of its own: a set of formats in which
//! any other file has changed gets the next number. `formats.json` says which formats it is of, `files.pack` has the files (`pack`), and `expected.json`
//! has the answers to the questions of `workload`. `docs/reference/file-formats.md` says what to do when a format changes.
mod compare;
mod newer;
mod pack;
mod workload;
mod write;

use nigh_shard::formats;
use nigh_tests::{Api, Exit, Server, run_to_end};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
/// Collections of which golden directories have a file of an export, in the order of [`exports`]. The second is a file with vectors beside it.
const IMPORTED: [&str; 5] = ["plain", "plain.npy", "objects", "spaces", "tokens"];

/// The formats that this build writes, by name.
fn formats() -> BTreeMap<String, u32> {
    let export = ("export", u32::try_from(nigh::EXPORT_VERSION).expect("a small number"));
    formats::formats().into_iter().chain([export]).map(|(name, version)| (name.to_owned(), version)).collect()
}

fn formats_of(golden: &Path) -> BTreeMap<String, u32> {
    let text = std::fs::read(golden.join("formats.json")).expect("a golden directory says its formats");
    serde_json::from_slice(&text).expect("formats by name")
}

/// Every golden directory; with `NIGH_WRITE_GOLDEN=1` there is one of the formats of today.
fn goldens() -> &'static [PathBuf] {
    static FOUND: OnceLock<Vec<PathBuf>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let list = || -> Vec<PathBuf> {
            let entries = std::fs::read_dir(DIRECTORY).into_iter().flatten();
            let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
            paths.sort();
            paths
        };
        let all = list();
        let is_of_today = |golden: &PathBuf| formats_of(golden) == formats();
        if std::env::var_os("NIGH_WRITE_GOLDEN").is_some() && !all.iter().any(is_of_today) {
            let directory_format = formats()["data directory"];
            let name = |number| Path::new(DIRECTORY).join(format!("{directory_format}.{number}"));
            write::write(&(1..).map(name).find(|path| !path.exists()).expect("a free number"));
        }
        list()
    })
}

/// A directory with the data directory of a server, its store and its API keys.
struct Site(PathBuf);

impl Site {
    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("the path is text").to_owned()
    }

    fn start(&self, flags: &[&str]) -> Server {
        let (store, keys) = (self.path("store"), self.path("keys/keys.json"));
        let own = ["-backup-dir", &store, "-keys-file", &keys, "-tcp", "127.0.0.1:0", "-kv-query"];
        Server::start(Some(&self.data()), &[&own[..], flags].concat())
    }

    fn url(&self, server: &Server) -> String {
        format!("http://{}", server.authority())
    }

    fn key(&self) -> [(&'static str, &'static str); 1] {
        [("NIGH_API_KEY", workload::ADMINISTRATOR)]
    }
}

/// A golden directory, unpacked.
struct Golden {
    site: Site,
    expected: Value,
    _dir: TempDir,
}

fn open(golden: &Path) -> Golden {
    let dir = tempfile::tempdir().expect("a directory");
    pack::unpack(&golden.join("files.pack"), dir.path());
    let expected =
        std::fs::read(golden.join("expected.json")).expect("a golden directory says what it answers");
    let expected = serde_json::from_slice(&expected).expect("answers");
    Golden { site: Site(dir.path().to_owned()), expected, _dir: dir }
}

/// The collections that answers are about.
fn names_in(answers: &Value) -> Vec<&str> {
    answers["collections"].as_object().expect("collections").keys().map(String::as_str).collect()
}

/// Compares what a server answers with what a golden directory expects of it.
#[track_caller]
fn check(golden: &Path, when: &str, server: &Server, expected: &Value) {
    let actual = workload::answers(server, &names_in(expected));
    if let Some(difference) = compare::difference(expected, &actual) {
        panic!("{}, {when}: {difference}", golden.display());
    }
}

/// Runs `nigh` and expects success.
#[track_caller]
fn run(words: &[&str], environment: &[(&str, &str)]) -> Exit {
    let exit = run_to_end(words, environment);
    assert!(exit.status.success(), "{words:?}: {}{}", exit.stdout, exit.stderr);
    exit
}

/// The name of the file of an export in a site, and what it is a file of.
fn files(site: &Site) -> impl Iterator<Item = (&'static str, String)> {
    IMPORTED.into_iter().map(move |name| {
        let file = if name.ends_with(".npy") { name.to_owned() } else { format!("{name}.jsonl") };
        (name, site.path(&format!("export/{file}")))
    })
}

/// Writes the files of exports.
fn exports(site: &Site, server: &Server) {
    let url = site.url(server);
    for (name, file) in files(site) {
        let collection = name.split('.').next().expect("a name");
        let format = if name.ends_with(".npy") { "npy" } else { "jsonl" };
        let mut words =
            vec!["export", "-url", &url, "-collection", collection, "-o", &file, "-format", format];
        words.extend((name == "spaces" || name == "tokens").then_some("-without-sparse"));
        run(&words, &site.key());
    }
    run(
        &["export", "-keys", "-address", server.tcp_authority(), "-o", &site.path("export/keys.jsonl")],
        &site.key(),
    );
}

/// Reads the files of exports into a server.
fn imports(site: &Site, server: &Server) {
    let url = site.url(server);
    for (name, file) in files(site) {
        run(&["import", "-url", &url, &file, "-into", name], &site.key());
    }
    run(&["import", "-address", server.tcp_authority(), &site.path("export/keys.jsonl")], &site.key());
}

/// A site without data, with the store and the API keys of another.
fn emptied(site: Site) -> Site {
    std::fs::remove_dir_all(site.data()).expect("a directory");
    site
}

#[test]
fn the_formats_of_today_have_a_golden_directory() {
    let today = formats();
    let all = goldens();
    let Some(newest) = all.last() else { panic!("there are no golden directories in {DIRECTORY}") };
    if all.iter().any(|golden| formats_of(golden) == today) {
        return;
    }
    let before = formats_of(newest);
    let names = before.keys().chain(today.keys()).collect::<std::collections::BTreeSet<_>>();
    let changed = names.into_iter().filter(|name| before.get(*name) != today.get(*name));
    let version = |of: Option<&u32>| of.map_or("none".to_owned(), ToString::to_string);
    let changes: Vec<String> = changed
        .map(|name| format!("{name} from {} to {}", version(before.get(name)), version(today.get(name))))
        .collect();
    panic!(
        "no golden directory has the formats of this build. Since {} these have changed: {}. Write one with \
         NIGH_WRITE_GOLDEN=1 cargo test -p nigh-tests --test servers golden, and keep those that there are",
        newest.display(),
        changes.join(", ")
    );
}

#[test]
fn golden_data_directories_open() {
    for golden in goldens() {
        let Golden { site, expected, _dir } = open(golden);
        let server = site.start(&["-cores", "2"]);
        check(golden, "opened after a kill", &server, &expected["data"]);
        // The two marks were read: one is done with, the other one holds.
        assert!(!write::directory_of(&site.data(), "built").join("restored.json").exists());
        server.wait_for_log("a segment of the log is missing");
        let mut api = workload::api(&server);
        let marked = api.ok("GET", "/v1/collections/marked", Value::Null);
        assert_eq!(marked["index"]["state"], "damaged", "{marked}");
        let mut reader =
            Api::connect_with_key(server.authority(), workload::READER).expect("the server listens");
        let create = json!({"name": "new", "config": {"dim": 2}});
        assert_eq!(reader.send("GET", "/v1/collections", &Value::Null).expect("an answer").status, 200);
        // A token that may not do what was asked is refused as a wrong one is.
        assert_eq!(reader.send("POST", "/v1/collections", &create).expect("an answer").status, 401);
        drop((api, reader));
        let (status, log) = server.stop();
        assert!(status.success(), "{log}");

        let server = site.start(&["-cores", "1", "-shards", "8"]);
        check(golden, "opened after a clean stop, with other cores and shards", &server, &expected["data"]);
        // What was opened can be written to, in every collection that takes points.
        let names = names_in(&expected["data"]);
        workload::go_on(&server, 3, &names);
        workload::settle(&server, &names);
        let written = workload::answers(&server, &names);
        server.kill();
        let server = site.start(&["-cores", "2"]);
        check(golden, "opened after further writes and a kill", &server, &written);
    }
}

#[test]
fn golden_backups_are_restored() {
    for golden in goldens() {
        let Golden { site, expected, _dir } = open(golden);
        let site = emptied(site);
        let server = site.start(&["-cores", "1"]);
        let url = site.url(&server);
        let backup = |words: &[&str]| run(&[&["backup", "-url", &url][..], words].concat(), &site.key());
        // The snapshot of an eviction is newer.
        let time = expected["backup"]["time"].as_str().expect("a time");
        let expected = &expected["backup"]["answers"];
        for name in names_in(expected) {
            assert!(backup(&["verify", name, "-time", time]).stdout.contains("is whole"), "{name}");
            backup(&["restore", name, "-time", time]);
        }
        for part in ["aliases", "key-indexes", "keys", "api-keys"] {
            backup(&["verify", "-part", part, "-time", time]);
            backup(&["restore", "-part", part, "-time", time]);
        }
        check(golden, "restored from its backup", &server, expected);
    }
}

#[test]
fn golden_archives_are_restored_to_a_moment() {
    for golden in goldens() {
        let Golden { site, expected, _dir } = open(golden);
        let site = emptied(site);
        let (data, store) = (site.path("data"), site.path("store"));
        let until = expected["moment"]["until"].as_str().expect("a moment");
        run(&["backup", "restore", "-until", until, "-data", &data, "-backup-dir", &store, "-kv-query"], &[]);
        let server = site.start(&["-cores", "2"]);
        check(golden, "restored to a moment", &server, &expected["moment"]["answers"]);
    }
}

#[test]
fn golden_exports_are_imported() {
    for golden in goldens() {
        let Golden { site, expected, _dir } = open(golden);
        let site = emptied(site);
        let server = site.start(&["-cores", "1"]);
        imports(&site, &server);
        check(golden, "imported", &server, &expected["import"]);
    }
}
