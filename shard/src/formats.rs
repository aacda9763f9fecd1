//! The formats of all files that a server writes: one list, so that nothing that is on disks changes its format without a golden directory of it.
//!
//! `tests/tests/golden` has a directory for each list that there was, and opens all of them. A constant that is not in the list fails a test below.

use crate::{
    alias_file, archive, backup, checkpoint, cold_stub, collection_file, core, damage_mark, directory, kv,
    log, restored_mark,
};

/// What each format is of, and the version that this build writes, or the newest of those that it writes.
pub fn formats() -> Vec<(&'static str, u32)> {
    const ALONE: [(&str, u32); 9] = [
        ("data directory", directory::DIRECTORY_FORMAT),
        ("aliases.json", alias_file::FORMAT),
        ("collection.json", collection_file::FORMAT),
        ("cold.json", cold_stub::FORMAT),
        ("damaged.json", damage_mark::FORMAT),
        ("restored.json", restored_mark::FORMAT),
        ("backup.json and owner.json", core::IDENTITY_FORMAT),
        ("manifest.json of keys", kv::manifest::FORMAT),
        ("indexes.json of keys", kv::index_file::FORMAT),
    ];
    let areas = [&log::FORMATS[..], &checkpoint::FORMATS, &backup::FORMATS, &archive::FORMATS];
    let mut all = ALONE.to_vec();
    all.extend(areas.into_iter().flatten());
    all
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            match entry.unwrap().path() {
                path if path.is_dir() => sources(&path, found),
                path => found.push(path),
            }
        }
    }

    /// Names of constants that are versions of formats.
    fn versions(text: &str) -> impl Iterator<Item = &str> {
        text.lines().filter_map(|line| {
            let (name, kind) = line.split_once("const ")?.1.split_once(": ")?;
            let is_number = ["u32 =", "u64 =", "Versions ="].iter().any(|number| kind.starts_with(number));
            let is_version = ["FORMAT", "VERSION", "VERSIONS"].iter().any(|word| name.ends_with(word));
            (is_number && is_version).then_some(name)
        })
    }

    #[test]
    fn every_format_is_in_the_list() {
        let mut files = Vec::new();
        sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut files);
        let texts: Vec<(PathBuf, String)> = files
            .into_iter()
            .map(|path| {
                let text = std::fs::read_to_string(&path).unwrap();
                (path, text)
            })
            .collect();
        let lists: String = texts
            .iter()
            .filter(|(path, text)| path.ends_with("src/formats.rs") || text.contains("const FORMATS: ["))
            .map(|(_, text)| text.as_str())
            .collect();
        let mut count = 0;
        for (path, text) in &texts {
            for name in versions(text) {
                count += 1;
                let module = path.file_stem().unwrap().to_string_lossy();
                let is_listed = lists.contains(&format!("{module}::{name}"))
                    || lists.contains(&format!("core::{name}")) && path.ends_with("core/backups.rs");
                assert!(is_listed, "{name} of {} is in no list of formats", path.display());
            }
        }
        assert_eq!(count, super::formats().len());
    }

    #[test]
    fn no_two_formats_have_one_name() {
        let mut names: Vec<&str> = super::formats().into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
