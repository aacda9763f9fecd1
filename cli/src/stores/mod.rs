//! The stores that backups go to: a directory, and a bucket of an object store.

#[cfg(feature = "s3")]
mod bucket;
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
    #[cfg(feature = "s3")]
    roots: rustls::RootCertStore,
}

impl Prepared {
    /// Does what has to precede the confinement of the process: makes the directory and looks whether it will do, and reads the certificates that the
    /// machine trusts.
    ///
    /// # Errors
    /// A sentence that names the flag.
    pub fn of(settings: &BackupSettings) -> Result<Prepared, String> {
        if let Some(DirectorySettings { path, .. }) = &settings.directory {
            DirectoryStore::prepare(path).map_err(|error| format!("-backup-dir: {error}"))?;
        }
        Ok(Prepared {
            settings: settings.clone(),
            #[cfg(feature = "s3")]
            roots: match &settings.bucket {
                Some(bucket) if bucket.endpoint.starts_with("https://") => crate::tls::roots::of_machine()
                    .map_err(|reason| {
                        format!(
                            "-backup-bucket: {reason}; SSL_CERT_FILE names a file of certificates to trust, or -backup-endpoint another store"
                        )
                    })?,
                _ => rustls::RootCertStore::empty(),
            },
        })
    }

    /// Starts the threads of the stores; they are confined where the calling thread is.
    ///
    /// # Errors
    /// A sentence that names the flag.
    pub fn start(self) -> Result<BackupOptions, String> {
        let BackupSettings { directory, bucket, .. } = self.settings.clone();
        let BackupSettings { interval_ms, retention, bytes_per_second, cold_after_ms, archive, .. } =
            self.settings;
        Ok(BackupOptions {
            directory: directory.map(target_of_directory).transpose()?,
            bucket: bucket.map(|bucket| self.target_of_bucket(bucket)).transpose()?,
            interval_ms,
            retention,
            bytes_per_second,
            cold_after_ms,
            archive,
            restore: None,
            api_keys: None,
        })
    }

    #[cfg(feature = "s3")]
    fn target_of_bucket(&self, bucket: BucketSettings) -> Result<BackupTarget, String> {
        let prefix = bucket.prefix.clone();
        let store = bucket::BucketStore::open(bucket, self.roots.clone(), bucket::Limits::default())
            .map_err(|error| format!("-backup-bucket: {error}"))?;
        Ok(BackupTarget { stores: Stores::new(move || Rc::new(store.clone())), prefix })
    }

    #[cfg(not(feature = "s3"))]
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
