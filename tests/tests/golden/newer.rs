//! Files of formats that a later build may have: none is opened, the error says which file and which versions, and the file is left as it was.
use super::{Golden, Site, formats, goldens, open};
use nigh_shard::sealed_json::{self, Layout};
use nigh_tests::{Server, StartFailure};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

const NEWER: u32 = 999;

/// All files below a directory, but for second copies, in order.
fn files_in(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let inner = |path: PathBuf| match path.is_dir() {
        true if path.ends_with("copies") => Vec::new(),
        true => files_in(&path),
        false => vec![path],
    };
    paths.into_iter().flat_map(inner).collect()
}

/// The file as a later build may have written it: of a newer format, with a checksum that is right.
fn raised(bytes: &[u8]) -> Vec<u8> {
    if let Ok(mut fields) = serde_json::from_slice::<Map<String, Value>>(bytes) {
        fields.remove("format").expect("it says its format");
        fields.remove("checksum").expect("it has a checksum");
        return sealed_json::encode(NEWER, fields, Layout::Lines);
    }
    let mut bytes = bytes.to_vec();
    assert!(bytes.starts_with(b"NIGH"), "headers of all kinds of files begin alike");
    bytes[8..12].copy_from_slice(&NEWER.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn start(site: &Site) -> Result<Server, StartFailure> {
    let store = site.path("store");
    Server::try_start(
        Some(&site.data()),
        &["-cores", "1", "-backup-dir", &store, "-kv-query", "-keys-file", &site.path("keys/keys.json")],
    )
}

/// A file of a data directory that is to be raised: the format in the list, what its path has to have, and whether the start is refused. Otherwise the
/// collection of the file is reported as damaged, and the others serve.
const FILES: [(&str, &[&str], bool); 10] = [
    ("aliases.json", &["aliases.json"], true),
    ("collection.json", &["collections/", "collection.json"], true),
    ("cold.json", &["cold.json"], true),
    ("manifest", &["collections/", "/manifest"], false),
    ("image", &["collections/", ".img"], false),
    ("vectors of a persistent collection", &[".vec"], false),
    ("manifest.json of keys", &["keys/manifest.json"], true),
    ("indexes.json of keys", &["keys/indexes.json"], true),
    ("image", &["keys/", ".img"], true),
    ("log segment", &["log/", ".wal"], true),
];

#[test]
fn files_of_newer_formats_are_refused() {
    let (golden, today) = (goldens().last().expect("a golden directory"), formats());
    let names_both = |log: &str, known: u32| {
        let known = [format!("({known})"), format!("newer than {known}")];
        let line = |line: &&str| {
            line.contains(&format!("format {NEWER}")) && known.iter().any(|known| line.contains(known))
        };
        log.lines().find(line).map(ToOwned::to_owned)
    };
    for (format, parts, is_refused) in FILES {
        let Golden { site, .. } = &open(golden);
        let is_meant = |path: &PathBuf| {
            let path = path
                .strip_prefix(site.data())
                .expect("below the data directory")
                .to_string_lossy()
                .into_owned();
            parts.iter().all(|part| path.contains(part))
        };
        let path =
            files_in(&site.data()).into_iter().find(is_meant).unwrap_or_else(|| panic!("no {parts:?}"));
        let bytes = raised(&std::fs::read(&path).expect("a file"));
        std::fs::write(&path, &bytes).expect("a file");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let log = match start(site) {
            Err(failure) if is_refused => failure.log,
            Ok(server) if !is_refused => {
                server.wait_for_log(&format!("format {NEWER}"));
                server.log()
            }
            Err(failure) => panic!("{format}: {}", failure.log),
            Ok(server) => panic!("{format}: it started: {}", server.log()),
        };
        let line = names_both(&log, today[format]).unwrap_or_else(|| panic!("{format}: {log}"));
        assert!(line.contains(&name), "{format}: no {name} in {line}");
        assert!(std::fs::read(&path).expect("a file") == bytes, "{format}: {} was changed", path.display());
    }
}

#[test]
fn a_directory_of_a_newer_format_is_refused() {
    let (golden, today) = (goldens().last().expect("a golden directory"), formats());
    let Golden { site, .. } = &open(golden);
    let before = files_in(&site.data());
    for file in ["FORMAT", "copies/FORMAT"] {
        std::fs::write(site.data().join(file), format!("nigh {NEWER}\n")).expect("a file");
    }
    let failure = start(site).err().expect("it is refused");
    for part in ["FORMAT", &format!("format {NEWER}"), &format!("({})", today["data directory"])] {
        assert!(failure.log.contains(part), "no {part:?} in {}", failure.log);
    }
    assert_eq!(files_in(&site.data()), before);
}
