//! Which processors this process may use, and whether threads can be pinned.
//!
//! Two kernel interfaces bound a process: the affinity mask (which CPUs) and the cgroup CPU quota (how much of them). The
//! host's own count is never asked: in a container it is usually wrong. Parsing is pure, so every odd layout seen in the
//! field becomes a fixture below.

use crate::system;
use std::fmt::Write as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Placement of the executors.
#[derive(Clone, Debug)]
pub struct Placement {
    /// One per core of ours: the CPU to pin to, or None (unpinned).
    pub cpus: Vec<Option<usize>>,
    /// One sentence for the start log: how the count and the pinning came about.
    pub reason: String,
    /// What tells other servers that these CPUs are taken, until the last clone of this placement is dropped.
    claims: Arc<Vec<Claim>>,
}

/// One CPU marked as taken for every process in the same network namespace.
///
/// The mark is a bound abstract socket: taking it is atomic, and the kernel gives it back whatever way the process ends.
#[derive(Debug)]
struct Claim {
    _socket: UnixListener,
}

impl Claim {
    /// `None` when another process has claimed the CPU, or where such sockets are refused.
    fn take(cpu: usize) -> Option<Claim> {
        let address = SocketAddr::from_abstract_name(format!("nigh/cpu/{cpu}")).ok()?;
        Some(Claim { _socket: UnixListener::bind_addr(&address).ok()? })
    }
}

impl Placement {
    /// From the affinity mask and the cgroup CPU quota (v1 and v2), never the host's count; `limit` (0 = none) caps it further.
    ///
    /// Pinned when the quota allows every masked CPU in full, else ceil(quota) unpinned executors: pinning under a partial
    /// quota would let the kernel throttle one executor while another CPU idles.
    ///
    /// Where fewer CPUs are needed than the mask has, those that no other server on this machine is pinned to come first.
    pub fn detect(limit: usize) -> Placement {
        let quota = cgroup_quota(&|path| std::fs::read_to_string(path).ok());
        let mut claims = Vec::new();
        let mut placement = plan(&system::affinity_mask(), quota, limit, &mut |cpu| match Claim::take(cpu) {
            Some(claim) => {
                claims.push(claim);
                true
            }
            None => false,
        });
        placement.claims = Arc::new(claims);
        placement
    }

    /// `count` executors without pinning, for tests and tools that share a machine.
    pub fn unpinned(count: usize) -> Placement {
        assert!(count > 0, "a placement needs at least one core");
        Placement::new(vec![None; count], format!("{count} unpinned executors as asked"))
    }

    fn new(cpus: Vec<Option<usize>>, reason: String) -> Placement {
        Placement { cpus, reason, claims: Arc::default() }
    }
}

/// Decides from what the kernel allows. `mask` ascending and never empty, `quota` in CPUs; `claim` takes a CPU unless
/// another server has it.
fn plan(mask: &[usize], quota: Option<f64>, limit: usize, claim: &mut dyn FnMut(usize) -> bool) -> Placement {
    assert!(!mask.is_empty(), "a running thread has at least one CPU in its mask");
    let cap = |count: usize| if limit == 0 { count } else { count.min(limit) };
    let mut reason = String::new();
    let cpus = match quota {
        Some(quota) if quota < mask.len() as f64 => {
            let count = cap((quota.ceil() as usize).max(1));
            let _ = write!(
                reason,
                "{count} unpinned executors: the cgroup quota of {quota:.2} CPUs is less than the {} of the affinity mask",
                mask.len()
            );
            vec![None; count]
        }
        _ => {
            let count = cap(mask.len());
            let mut chosen = Vec::with_capacity(count);
            let mut others = Vec::new();
            for &cpu in mask {
                if chosen.len() == count {
                    break;
                }
                if claim(cpu) { chosen.push(cpu) } else { others.push(cpu) }
            }
            let shared = &others[..count - chosen.len()];
            chosen.extend(shared);
            chosen.sort_unstable();
            let _ = write!(
                reason,
                "{count} executors pinned to CPUs {}: the affinity mask has {} and {}",
                cpu_list(&chosen),
                mask.len(),
                if quota.is_some() { "the cgroup quota covers them all" } else { "no cgroup quota applies" }
            );
            if !shared.is_empty() {
                let _ =
                    write!(reason, "; another nigh server is pinned to CPUs {} as well", cpu_list(shared));
            }
            chosen.into_iter().map(Some).collect()
        }
    };
    if limit != 0 {
        let _ = write!(reason, "; capped at {limit} by configuration");
    }
    Placement::new(cpus, reason)
}

/// `[0, 1, 2, 5]` as `0-2,5`.
fn cpu_list(cpus: &[usize]) -> String {
    let mut out = String::new();
    let mut rest = cpus;
    while let Some(&first) = rest.first() {
        let run = rest.iter().enumerate().take_while(|&(i, &cpu)| cpu == first + i).count();
        let comma = if out.is_empty() { "" } else { "," };
        let _ = match run {
            1 => write!(out, "{comma}{first}"),
            _ => write!(out, "{comma}{first}-{}", first + run - 1),
        };
        rest = &rest[run..];
    }
    out
}

/// The tightest CPU quota on the way from this process's cgroup to the root, in CPUs; None when unlimited.
///
/// Nested groups each carry their own limit and the kernel applies all of them, so the walk goes upwards and keeps the minimum.
fn cgroup_quota(read: &dyn Fn(&Path) -> Option<String>) -> Option<f64> {
    let groups = read(Path::new("/proc/self/cgroup"))?;
    let mounts = read(Path::new("/proc/self/mountinfo"))?;
    let mut tightest: Option<f64> = None;
    for (hierarchy, path) in memberships(&groups) {
        for mount in mounts_of(&mounts, hierarchy) {
            for directory in ancestry(&mount, &path) {
                let quota = match hierarchy {
                    Hierarchy::V2 => read(&directory.join("cpu.max")).and_then(|text| parse_cpu_max(&text)),
                    Hierarchy::V1 => read(&directory.join("cpu.cfs_quota_us"))
                        .zip(read(&directory.join("cpu.cfs_period_us")))
                        .and_then(|(quota, period)| ratio(&quota, &period)),
                };
                tightest = match (tightest, quota) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
    }
    tightest
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hierarchy {
    V1,
    V2,
}

/// The hierarchies that can hold a CPU quota, with this process's path in each. Lines are `id:controllers:path`.
fn memberships(cgroup: &str) -> Vec<(Hierarchy, String)> {
    let line = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        if id == "0" && controllers.is_empty() {
            Some((Hierarchy::V2, path.to_owned()))
        } else if controllers.split(',').any(|controller| controller == "cpu") {
            Some((Hierarchy::V1, path.to_owned()))
        } else {
            None
        }
    };
    cgroup.lines().filter_map(line).collect()
}

/// Where a hierarchy is mounted.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// The cgroup shown at the mount point (not `/` inside many containers).
    root: PathBuf,
    /// Where it is mounted.
    point: PathBuf,
}

/// Mounts of `hierarchy` in the text of mountinfo: `… root point options [tags] - type source super-options`.
fn mounts_of(mountinfo: &str, hierarchy: Hierarchy) -> Vec<Mount> {
    let line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (kind, _source, options) = (after.next()?, after.next()?, after.next().unwrap_or(""));
        let ours = match hierarchy {
            Hierarchy::V2 => kind == "cgroup2",
            Hierarchy::V1 => kind == "cgroup" && options.split(',').any(|option| option == "cpu"),
        };
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        ours.then(|| Mount { root: unescape(root), point: unescape(point) })
    };
    mountinfo.lines().filter_map(line).collect()
}

/// Undoes mountinfo's octal escapes of space, tab, newline and backslash.
fn unescape(field: &str) -> PathBuf {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_owned(), |text, (code, character)| text.replace(code, character))
        .into()
}

/// Directories from the process's own group up to the mount point. A path outside the mounted root (a cgroup namespace
/// shows one only when the process has been moved) leaves the mount point alone.
fn ancestry(mount: &Mount, path: &str) -> Vec<PathBuf> {
    let below = Path::new(path).strip_prefix(&mount.root).unwrap_or(Path::new(""));
    let leaf = if below.components().any(|part| part.as_os_str() == "..") {
        mount.point.clone()
    } else {
        mount.point.join(below)
    };
    leaf.ancestors().take_while(|directory| directory.starts_with(&mount.point)).map(Path::to_owned).collect()
}

/// `cpu.max`: `max 100000` or `150000 100000`.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    ratio(quota, period)
}

/// None for "no limit" (`max`, or -1 in v1) and for anything that is not a positive ratio.
fn ratio(quota: &str, period: &str) -> Option<f64> {
    let quota: i64 = quota.trim().parse().ok()?;
    let period: i64 = period.trim().parse().ok()?;
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Quota found in a fake file tree.
    fn check(files: &[(&str, &str)], expected: Option<f64>) {
        let files: HashMap<&Path, &str> = files.iter().map(|&(path, text)| (Path::new(path), text)).collect();
        let quota = cgroup_quota(&|path| files.get(path).map(|&text| text.to_owned()));
        assert_eq!(quota, expected, "files: {files:?}");
    }

    const V2_MOUNT: &str = "25 30 0:22 / /proc rw - proc proc rw\n29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1_MOUNTS: &str = "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn v2_in_the_root_of_its_namespace() {
        let files = [("/proc/self/cgroup", "0::/\n"), ("/proc/self/mountinfo", V2_MOUNT)];
        check(&files, None);
        check(&[&files[..], &[("/sys/fs/cgroup/cpu.max", "150000 100000\n")]].concat(), Some(1.5));
        check(&[&files[..], &[("/sys/fs/cgroup/cpu.max", "max 100000\n")]].concat(), None);
    }

    #[test]
    fn v2_nested_groups_apply_the_tightest() {
        check(
            &[
                ("/proc/self/cgroup", "0::/system.slice/nigh.service\n"),
                ("/proc/self/mountinfo", V2_MOUNT),
                ("/sys/fs/cgroup/system.slice/cpu.max", "50000 100000\n"),
                ("/sys/fs/cgroup/system.slice/nigh.service/cpu.max", "200000 100000\n"),
            ],
            Some(0.5),
        );
    }

    #[test]
    fn v1_reads_quota_and_period_and_ignores_other_controllers() {
        let base = [
            ("/proc/self/cgroup", "8:cpu,cpuacct:/docker/abc\n3:cpuset:/x\n1:name=systemd:/\n0::/\n"),
            ("/proc/self/mountinfo", V1_MOUNTS),
        ];
        check(&base, None);
        let group = "/sys/fs/cgroup/cpu,cpuacct/docker/abc";
        let (quota, period) = (format!("{group}/cpu.cfs_quota_us"), format!("{group}/cpu.cfs_period_us"));
        check(&[&base[..], &[(&quota, "250000\n"), (&period, "100000\n")]].concat(), Some(2.5));
        check(&[&base[..], &[(&quota, "-1\n"), (&period, "100000\n")]].concat(), None);
    }

    #[test]
    fn a_container_mount_shows_its_own_group_as_root() {
        check(
            &[
                ("/proc/self/cgroup", "4:cpu:/docker/abc/inner\n"),
                (
                    "/proc/self/mountinfo",
                    "33 31 0:30 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n",
                ),
                ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000"),
                ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"),
            ],
            Some(3.0),
        );
    }

    #[test]
    fn paths_outside_the_mount_and_garbage_do_not_escape() {
        check(
            &[
                ("/proc/self/cgroup", "0::/../../elsewhere\nnonsense\n::\n"),
                ("/proc/self/mountinfo", V2_MOUNT),
                ("/sys/fs/cgroup/cpu.max", "100000 100000"),
            ],
            Some(1.0),
        );
        check(&[("/proc/self/cgroup", "0::/\n")], None);
        for text in ["", "max", "0 100000", "x y", "100000 0"] {
            assert_eq!(parse_cpu_max(text), None, "cpu.max {text:?}");
        }
        assert_eq!(unescape("/sys/fs/c\\040group"), PathBuf::from("/sys/fs/c group"));
    }

    fn check_plan(mask: &[usize], quota: Option<f64>, limit: usize, expected: &[Option<usize>]) {
        let placement = plan(mask, quota, limit, &mut |_| true);
        assert_eq!(placement.cpus, expected, "{}", placement.reason);
        assert!(!placement.reason.is_empty());
    }

    #[test]
    fn cpus_of_other_servers_are_taken_last() {
        let chosen = |limit: usize, taken: &[usize]| {
            let placement = plan(&[0, 1, 2, 3], None, limit, &mut |cpu| !taken.contains(&cpu));
            (placement.cpus.into_iter().flatten().collect::<Vec<_>>(), placement.reason)
        };
        assert_eq!(chosen(1, &[0]).0, [1]);
        assert_eq!(chosen(2, &[0, 2]).0, [1, 3]);
        assert!(!chosen(2, &[0, 2]).1.contains("another"));
        let (cpus, reason) = chosen(3, &[0, 2]);
        assert_eq!(cpus, [0, 1, 3]);
        assert!(reason.contains("another nigh server is pinned to CPUs 0 as well"), "{reason}");
        assert_eq!(chosen(0, &[0, 1, 2, 3]).0, [0, 1, 2, 3]);
    }

    #[test]
    fn a_claim_holds_until_it_is_dropped() {
        // No machine has a CPU of this number, so no server competes with the test.
        let cpu = 1_000_000 + std::process::id() as usize;
        let claim = Claim::take(cpu).expect("abstract sockets work on Linux");
        assert!(Claim::take(cpu).is_none());
        drop(claim);
        assert!(Claim::take(cpu).is_some());
    }

    #[test]
    fn a_full_mask_is_pinned_and_a_partial_quota_is_not() {
        check_plan(&[0, 1], None, 0, &[Some(0), Some(1)]);
        check_plan(&[2, 5, 6], Some(3.0), 0, &[Some(2), Some(5), Some(6)]);
        check_plan(&[2, 5, 6], None, 2, &[Some(2), Some(5)]);
        check_plan(&[0, 1, 2, 3], Some(2.5), 0, &[None, None, None]);
        check_plan(&[0, 1, 2, 3], Some(0.25), 0, &[None]);
        check_plan(&[0, 1, 2, 3], Some(3.5), 1, &[None]);
        check_plan(&[7], None, 16, &[Some(7)]);
    }

    #[test]
    fn lists_are_short() {
        assert_eq!(cpu_list(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(cpu_list(&[3]), "3");
    }

    #[test]
    fn this_machine_has_a_placement() {
        let placement = Placement::detect(1);
        assert_eq!(placement.cpus.len(), 1, "{}", placement.reason);
        assert!(Placement::detect(0).cpus.len() <= system::affinity_mask().len());
    }
}
