//! Memory of this process, as the kernel counts it.

/// Resident memory in MB: now, and the most it ever was; zeros where the kernel does not say.
pub fn resident_mb() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
    };
    (of("VmRSS:"), of("VmHWM:"))
}

#[cfg(test)]
mod tests {
    use super::resident_mb;

    #[test]
    fn memory_that_is_touched_is_resident() {
        let (before, _) = resident_mb();
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        let (now, most) = resident_mb();
        assert!(now >= before + 48 && most >= now, "{before}, then {now} and at most {most}");
        drop(touched);
        assert!(resident_mb().1 >= most);
    }
}
