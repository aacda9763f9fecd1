//! How much memory the process may use: the smaller of the machine's and the container's.
use std::path::Path;

/// Share of the memory that is there: the rest is for the code of the program, stacks, socket buffers, the
/// page cache of the log and the allocator's slack, which the accounting does not see.
const DEFAULT_PERCENT: u64 = 90;

/// Share of the memory that the rest has at least beside the code of the program. On a small machine the code alone may take the rest.
const BESIDE_CODE_PERCENT: u64 = 3;

/// Used when neither machine nor container says how much there is.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// The environment variable that stands for the bytes that machine and container have, where a test cannot make a container.
const TEST_BYTES: &str = "NIGH_TEST_MEMORY_BYTES";

/// The memory limit in bytes: nine tenths of what machine and container allow, or less where the rest would not hold the code of the program.
///
/// A control group counts the code. The kernel can take these pages back, but a server that has to read its code from the disk again is not
/// worth the room for data.
pub fn memory_limit_bytes() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let executable = std::env::current_exe().unwrap_or_default();
    limit_bytes(all_bytes(), program_bytes(&maps, &executable.to_string_lossy()))
}

/// The limit on a machine of `all` bytes for a program whose code has `program` bytes, of which at most half of the memory counts.
fn limit_bytes(all: u64, program: u64) -> u64 {
    let percent = |share: u64| all / 100 * share;
    percent(DEFAULT_PERCENT).min(percent(100 - BESIDE_CODE_PERCENT) - program.min(percent(50)))
}

/// Bytes that `maps` (the kernel's list of what is mapped, `/proc/self/maps`) maps from the file `executable`.
fn program_bytes(maps: &str, executable: &str) -> u64 {
    let mapping_bytes = |line: &str| {
        // Five fields stand before the path, which may have spaces: addresses, rights, offset, device and inode.
        let path = line.splitn(6, ' ').nth(5)?.trim_start();
        let (first, end) = line.split_once(' ')?.0.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        (!path.is_empty() && path == executable).then(|| address(end)?.checked_sub(address(first)?)).flatten()
    };
    maps.lines().filter_map(mapping_bytes).sum()
}

/// Bytes of memory that there are for this process.
fn all_bytes() -> u64 {
    let for_test = std::env::var(TEST_BYTES).ok().and_then(|text| text.parse::<u64>().ok());
    let available = available_bytes(Path::new("/")).unwrap_or(UNKNOWN_BYTES);
    for_test.map_or(available, |bytes| bytes.min(available))
}

/// Share of the memory that is there for keys and values when nothing is configured.
const KEYS_PERCENT: u64 = 25;

/// The budget of keys and values in bytes: `configured`, or a quarter of what machine and container allow, and at least `least`, but no more
/// than half of it. Memory is taken as it is written, as far as there is any.
pub fn keys_budget_bytes(configured: Option<u64>, least: u64) -> u64 {
    let of_machine = |all: u64| (all / 100 * KEYS_PERCENT).max(least.min(all / 2));
    configured.unwrap_or_else(|| of_machine(all_bytes()))
}

/// The smaller of machine and container memory, read below `root`.
fn available_bytes(root: &Path) -> Option<u64> {
    let host = host_bytes(&std::fs::read_to_string(root.join("proc/meminfo")).ok()?);
    container_bytes(root).into_iter().chain(host).min()
}

fn host_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Every limit on the way from this process's control group to the root of the hierarchy, v2 and v1.
fn container_bytes(root: &Path) -> Vec<u64> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (mount, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mount = root.join(mount);
        // Inside a container the group's path may be the host's while the mount shows only our part; then the
        // mount itself carries the limit, and the walk up ends there either way.
        let mut directory = mount.join(group.trim_start_matches('/'));
        while directory.starts_with(&mount) {
            let limit = std::fs::read_to_string(directory.join(file)).ok();
            limits.extend(limit.and_then(|text| text.trim().parse::<u64>().ok()));
            if !directory.pop() {
                break;
            }
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const HOST: (&str, &str) = ("proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\n");

    #[test]
    fn a_machine_without_groups() {
        assert_eq!(available_bytes(machine(&[HOST]).path()), Some(2048 * 1024));
        assert_eq!(available_bytes(machine(&[]).path()), None);
    }

    #[test]
    fn the_tightest_group_counts() {
        let root = machine(&[
            HOST,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "4096\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ]);
        assert_eq!(available_bytes(root.path()), Some(4096));
        let root = machine(&[
            HOST,
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/host/path\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "8192\n"),
        ]);
        assert_eq!(available_bytes(root.path()), Some(8192));
    }

    #[test]
    fn code_is_not_memory_for_data() {
        let maps = "1000-3000 r--p 00000000 fe:00 24   /opt/the server/nigh\n3000-9000 r-xp 00002000 fe:00 24   /opt/the server/nigh\n\
                    a000-b000 rw-p 00000000 00:00 0      [heap]\nc000-d000 r-xp 00000000 fe:00 25   /lib/libc.so.6\ne000-f000 rw-p 00000000 00:00 0 \n";
        assert_eq!(program_bytes(maps, "/opt/the server/nigh"), 0x8000);
        assert_eq!(program_bytes(maps, ""), 0);
        assert_eq!(program_bytes("no such line", "/opt/nigh"), 0);
        assert_eq!(limit_bytes(1000, 70), 900, "the rest holds the code");
        assert_eq!(limit_bytes(1000, 100), 870);
        assert_eq!(limit_bytes(1000, 5000), 470);
        let own = std::fs::read_to_string("/proc/self/maps").unwrap();
        let executable = std::env::current_exe().unwrap();
        let bytes = program_bytes(&own, executable.to_str().unwrap());
        assert!(bytes > 100_000 && bytes <= fs::metadata(executable).unwrap().len() + (1 << 20), "{bytes}");
    }

    #[test]
    fn a_configured_limit_is_taken_as_it_is() {
        assert!(memory_limit_bytes() > 0);
        assert_eq!(keys_budget_bytes(Some(77), 1 << 40), 77);
        assert_eq!(keys_budget_bytes(None, 1 << 60), all_bytes() / 2);
        assert_eq!(keys_budget_bytes(None, 0), all_bytes() / 100 * KEYS_PERCENT);
    }
}
