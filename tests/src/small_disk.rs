//! A small file system, for tests of what a server does when its disk is full.
use std::path::Path;
use std::process::{Command, Stdio};

/// A file system of its own, unmounted when dropped.
pub struct SmallDisk {
    directory: tempfile::TempDir,
}

impl SmallDisk {
    /// A tmpfs with so much room; `None`, which is said, where this process may not mount.
    pub fn mount(mebibytes: usize) -> Option<SmallDisk> {
        let directory = tempfile::tempdir().ok()?;
        let options = format!("size={mebibytes}m");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "none"])
            .arg(directory.path())
            .stderr(Stdio::null())
            .status();
        let mounted = mount.is_ok_and(|status| status.success()).then_some(SmallDisk { directory });
        if mounted.is_none() {
            println!("SKIPPED: this process may not mount a small file system, so a full disk was not tried");
        }
        mounted
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Left mounted, the temporary directory stays behind; nothing else depends on it.
        let _left = Command::new("umount").arg("-l").arg(self.directory.path()).status();
    }
}
