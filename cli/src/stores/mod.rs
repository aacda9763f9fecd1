//! The stores that backups go to: a directory.

#[cfg(test)]
mod contract;
mod directory;

use crate::backup_settings::{BackupSettings, BucketSettings, DirectorySettings};
use directory::DirectoryStore;
use nigh_shard::backup::{BackupOptions, BackupTarget, Stores};
use std::rc::Rc;

/// Stores that were looked at, and whose threads have not been started yet.
pub(crate) struct Prepared {
    settings: BackupSettings,
}

impl Prepared {
    /// Does what has to precede the confinement of the process: makes the directory and looks whether it will do.
    ///
    /// # Errors
    /// A sentence that names the flag.
    pub fn of(settings: &BackupSettings) -> Result<Prepared, String> {
        if let Some(DirectorySettings { path, .. }) = &settings.directory {
            DirectoryStore::prepare(path).map_err(|error| format!("-backup-dir: {error}"))?;
        }
        Ok(Prepared { settings: settings.clone() })
    }

    /// Starts the threads of the stores; they are confined where the calling thread is.
    ///
    /// # Errors
    /// A sentence that names the flag.
    pub fn start(self) -> Result<BackupOptions, String> {
        let BackupSettings { directory, bucket, interval_ms, retention, bytes_per_second } =
            self.settings.clone();
        Ok(BackupOptions {
            directory: directory.map(target_of_directory).transpose()?,
            bucket: bucket.map(|bucket| self.target_of_bucket(bucket)).transpose()?,
            interval_ms,
            retention,
            bytes_per_second,
        })
    }

    fn target_of_bucket(&self, _bucket: BucketSettings) -> Result<BackupTarget, String> {
        Err("-backup-bucket: this build cannot talk to object stores".to_owned())
    }
}

fn target_of_directory(
    DirectorySettings { path, prefix }: DirectorySettings,
) -> Result<BackupTarget, String> {
    let store = DirectoryStore::start(&path).map_err(|error| format!("-backup-dir: {error}"))?;
    Ok(BackupTarget { stores: Stores::new(move || Rc::new(store.clone())), prefix })
}
