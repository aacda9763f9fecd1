//! What the kernel says of the memory of this process.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// More than `/proc/self/status` has up to the line that is looked for.
const STATUS_BYTES: usize = 4096;

/// Bytes of anonymous memory of this process: pages of files are left out, as the kernel can take them back. `None` where it cannot be
/// asked. One system call, some 20 µs.
pub(crate) fn resident_bytes() -> Option<u64> {
    static STATUS: OnceLock<Option<File>> = OnceLock::new();
    let file = STATUS.get_or_init(|| File::open("/proc/self/status").ok()).as_ref()?;
    let mut status = [0; STATUS_BYTES];
    let len = file.read_at(&mut status, 0).ok()?;
    anonymous_bytes(&String::from_utf8_lossy(&status[..len]))
}

fn anonymous_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_taken_is_resident() {
        assert_eq!(anonymous_bytes("VmRSS:\t  70 kB\nRssAnon:\t    40 kB\n"), Some(40 << 10));
        assert_eq!(anonymous_bytes("VmRSS:\t  70 kB\n"), None);
        let taken = std::hint::black_box(vec![1u8; 64 << 20]);
        let resident = resident_bytes().expect("the kernel says it");
        assert!(resident >= taken.len() as u64, "{resident}");
    }
}
