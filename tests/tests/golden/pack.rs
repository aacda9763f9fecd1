//! A tree of files in one compressed file, without the zeros of which log segments and images mostly consist.
//!
//! ```text
//! pack = gzip of file*
//! file = bytes u32 of the path, path, length u64, number of runs u32, (offset u64, bytes u32, the bytes)*     little-endian
//! ```
//!
//! A run is whole blocks of 4 KiB that are not all zeros, or the end of the file.
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const BLOCK: usize = 4096;

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        match entry.expect("an entry").path() {
            path if path.is_dir() => files(&path, found),
            path => found.push(path),
        }
    }
}

/// Packs all files below `root` into the file `to`.
pub(super) fn pack(root: &Path, to: &Path) {
    let mut found = Vec::new();
    files(root, &mut found);
    found.sort();
    let mut out = GzEncoder::new(File::create(to).expect("a file"), Compression::best());
    let mut write = |bytes: &[u8]| out.write_all(bytes).expect("the disk has room");
    for path in &found {
        let name = path.strip_prefix(root).expect("below the root").to_str().expect("text").as_bytes();
        let bytes = std::fs::read(path).expect("a file");
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (index, block) in bytes.chunks(BLOCK).enumerate() {
            let (start, end) = (index * BLOCK, index * BLOCK + block.len());
            match runs.last_mut() {
                _ if block.iter().all(|byte| *byte == 0) => {}
                Some(last) if last.1 == start => last.1 = end,
                _ => runs.push((start, end)),
            }
        }
        write(&(name.len() as u32).to_le_bytes());
        write(name);
        write(&(bytes.len() as u64).to_le_bytes());
        write(&(runs.len() as u32).to_le_bytes());
        for (start, end) in runs {
            write(&(start as u64).to_le_bytes());
            write(&((end - start) as u32).to_le_bytes());
            write(&bytes[start..end]);
        }
    }
    out.finish().expect("the disk has room");
}

fn take<const N: usize>(from: &mut impl Read) -> [u8; N] {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes).expect("a pack is whole");
    bytes
}

fn u32_of(from: &mut impl Read) -> usize {
    u32::from_le_bytes(take(from)) as usize
}

/// Makes the files of a pack below `root`, for their owner alone, as the server makes them.
pub(super) fn unpack(from: &Path, root: &Path) {
    let mut from = BufReader::new(GzDecoder::new(File::open(from).expect("a file")));
    loop {
        let mut first = [0; 1];
        if from.read(&mut first).expect("a pack is whole") == 0 {
            return;
        }
        let rest: [u8; 3] = take(&mut from);
        let mut name = vec![0; u32::from_le_bytes([first[0], rest[0], rest[1], rest[2]]) as usize];
        from.read_exact(&mut name).expect("a pack is whole");
        let path = root.join(String::from_utf8(name).expect("text"));
        std::fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("a directory");
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path).expect("a new file");
        file.set_permissions(Permissions::from_mode(0o600)).expect("our own file");
        file.set_len(u64::from_le_bytes(take(&mut from))).expect("the disk has room");
        for _run in 0..u32_of(&mut from) {
            file.seek(SeekFrom::Start(u64::from_le_bytes(take(&mut from)))).expect("a file");
            let mut bytes = vec![0; u32_of(&mut from)];
            from.read_exact(&mut bytes).expect("a pack is whole");
            file.write_all(&bytes).expect("the disk has room");
        }
    }
}

#[test]
fn what_is_packed_is_unpacked() {
    let dir = tempfile::tempdir().expect("a directory");
    let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
    std::fs::create_dir_all(one.join("a/b")).expect("a directory");
    let mut sparse = vec![0_u8; 3 << 20];
    sparse[5 * BLOCK + 7] = 1;
    sparse[6 * BLOCK] = 2;
    sparse[9 * BLOCK] = 3;
    let ragged = [vec![0_u8; BLOCK], vec![4; 100]].concat();
    let contents: [(&str, Vec<u8>); 4] = [
        ("empty", Vec::new()),
        ("a/sparse", sparse),
        ("a/b/ragged", ragged),
        ("a/zeros", vec![0; BLOCK + 1]),
    ];
    for (name, bytes) in &contents {
        std::fs::write(one.join(name), bytes).expect("a file");
    }
    let file = dir.path().join("pack");
    pack(&one, &file);
    assert!(std::fs::metadata(&file).expect("a file").len() < 1000);
    unpack(&file, &other);
    let mut found = Vec::new();
    files(&other, &mut found);
    assert_eq!(found.len(), contents.len());
    for (name, bytes) in &contents {
        assert!(std::fs::read(other.join(name)).expect("a file") == *bytes, "{name}");
    }
}
