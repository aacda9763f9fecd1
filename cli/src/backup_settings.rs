//! Flags of backups to a checked configuration.

use crate::exposure;
use crate::flags::{ServerFlags, Span, WalSync};
use nigh_shard::archive::ArchiveOptions;
use nigh_shard::backup::check_key;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

/// The timestamps in keys have whole seconds, so two backups within one second would have the same keys.
const INTERVAL_MIN_MS: u64 = 1000;
/// The log is looked at a few times a second.
const ARCHIVE_INTERVAL_MIN_MS: i64 = 250;
/// What the name of a bucket may have, bytes.
const BUCKET_BYTES: std::ops::RangeInclusive<usize> = 3..=63;
/// The variables of the environment that hold credentials. There are no flags for them, which every user of the machine could see.
const ACCESS_KEY: &str = "AWS_ACCESS_KEY_ID";
const SECRET_KEY: &str = "AWS_SECRET_ACCESS_KEY";
const SESSION_TOKEN: &str = "AWS_SESSION_TOKEN";

/// Where backups go, and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupSettings {
    /// The backup directory.
    pub directory: Option<DirectorySettings>,
    /// The bucket.
    pub bucket: Option<BucketSettings>,
    /// Between two backups, 0 = none by itself.
    pub interval_ms: u64,
    /// Snapshots kept of each collection and of each part; 0 = all.
    pub retention: usize,
    /// What a backup may read and write, 0 = as much as it can.
    pub bytes_per_second: u64,
    /// Collections that were not used for so long move to the store, 0 = none does by itself.
    pub cold_after_ms: u64,
    /// How the log is archived; `None`: it is not.
    pub archive: Option<ArchiveOptions>,
}

/// Where a directory of backups is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectorySettings {
    /// The directory.
    pub path: PathBuf,
    /// The part of it that is ours; empty: all of it.
    pub prefix: String,
}

/// Where a bucket is, and who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "s3"), allow(dead_code, reason = "nothing talks to a bucket in that build"))]
pub struct BucketSettings {
    /// Its name.
    pub bucket: String,
    /// Scheme and host of the store, without a slash at the end.
    pub endpoint: String,
    /// Its region, which is part of signatures.
    pub region: String,
    /// Whether the name of the bucket is in the path, and not in the name of the host.
    pub path_style: bool,
    /// The part of the bucket that is ours; empty: all of it.
    pub prefix: String,
    /// Who asks.
    pub credentials: Credentials,
}

/// Credentials of an object store.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(not(feature = "s3"), allow(dead_code, reason = "nothing talks to a bucket in that build"))]
pub struct Credentials {
    /// Names the secret key.
    pub access_key: String,
    /// Signs requests.
    pub secret_key: String,
    /// Goes with temporary credentials.
    pub session_token: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

/// How the log is archived. `has_store`: there is a store of backups.
fn archive(flags: &ServerFlags, has_store: bool) -> Result<Option<ArchiveOptions>, String> {
    if !flags.archive {
        return Ok(None);
    }
    if !has_store {
        return Err("-archive needs -backup-bucket or -backup-dir, where the log goes".to_owned());
    }
    if flags.data.is_empty() {
        return Err("-archive needs -data: a server without a data directory has no log".to_owned());
    }
    if flags.wal_sync == WalSync::None {
        return Err(
            "-archive needs -wal-sync always or interval: with none it is never known what of the log is on the disk"
                .to_owned(),
        );
    }
    let millis = |flag: &str, span: Span, least: i64| match span.nanos / 1_000_000 {
        ms if span.nanos < 0 || ms < least => {
            Err(format!("-{flag} {span} is too short; it can be {least} ms or more"))
        }
        ms => Ok(ms as u64),
    };
    Ok(Some(ArchiveOptions {
        interval_ms: millis("archive-interval", flags.archive_interval, ARCHIVE_INTERVAL_MIN_MS)?,
        retention_ms: millis("archive-retention", flags.archive_retention, 0)?,
        waiting_bytes: flags.archive_waiting,
    }))
}

/// Checks the flags of backups; `variable` looks a variable of the environment up.
///
/// # Errors
/// A flag is missing or wrong; the error is a sentence that names it.
pub fn check(
    flags: &ServerFlags,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<BackupSettings, String> {
    let retention = usize::try_from(flags.backup_retention).map_err(|_| {
        format!("-backup-retention {} is negative; 0 keeps all snapshots", flags.backup_retention)
    })?;
    check_prefix("-backup-prefix", &flags.backup_prefix)?;
    if flags.backup_prefix.contains("%3A") {
        return Err(format!(
            "-backup-prefix {:?} has \"%3A\", which stands for a colon in names of files",
            flags.backup_prefix
        ));
    }
    check_prefix("-backup-tenant", &flags.backup_tenant)?;
    if flags.backup_tenant.contains('/') {
        return Err(format!(
            "-backup-tenant {:?} has a slash, and a tenant is one name",
            flags.backup_tenant
        ));
    }
    let directory = Some(&flags.backup_dir)
        .filter(|path| !path.is_empty())
        .map(|path| DirectorySettings { path: PathBuf::from(path), prefix: flags.backup_prefix.clone() });
    let bucket = bucket(flags, variable)?;
    let interval = flags.backup_interval.positive();
    let cold_after = flags.cold_tier_after.positive();
    if cold_after.is_some() && directory.is_none() && bucket.is_none() {
        return Err(
            "-cold-tier-after needs -backup-bucket or -backup-dir, where collections are while they are cold"
                .to_owned(),
        );
    }
    if cold_after.is_some() && flags.data.is_empty() {
        return Err("-cold-tier-after needs -data: collections are evicted from a data directory".to_owned());
    }
    let archive = archive(flags, directory.is_some() || bucket.is_some())?;
    Ok(BackupSettings {
        directory,
        bucket,
        archive,
        interval_ms: interval.map_or(0, |interval| {
            u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(INTERVAL_MIN_MS)
        }),
        retention,
        bytes_per_second: flags.backup_rate,
        cold_after_ms: cold_after
            .map_or(0, |after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1)),
    })
}

/// Whether keys can begin with this.
fn check_prefix(flag: &str, prefix: &str) -> Result<(), String> {
    let bad = |why: &str| Err(format!("{flag} {prefix:?} cannot begin the keys of backups: {why}"));
    if prefix.is_empty() {
        return Ok(());
    }
    if prefix.starts_with('/') || prefix.starts_with('.') {
        return bad("it begins with a slash or a dot");
    }
    match check_key(prefix) {
        Err(nigh_shard::backup::StoreError::BadKey { why, .. }) => bad(&why),
        _ => Ok(()),
    }
}

fn bucket(
    flags: &ServerFlags,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<BucketSettings>, String> {
    let bucket = flags.backup_bucket.as_str();
    if bucket.is_empty() {
        return Ok(None);
    }
    if !cfg!(feature = "s3") {
        return Err(
            "-backup-bucket: this build cannot talk to object stores; it was built without the feature s3"
                .to_owned(),
        );
    }
    check_bucket(bucket)?;
    let region = flags.backup_region.as_str();
    if region.is_empty() {
        return Err("-backup-bucket needs -backup-region, the region of the bucket (us-east-1 for stores that have none)".to_owned());
    }
    if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(format!(
            "-backup-region {region:?} is not the name of a region: letters, digits and hyphens, such as eu-central-1"
        ));
    }
    let endpoint = match flags.backup_endpoint.as_str() {
        "" => format!("https://s3.{region}.amazonaws.com"),
        endpoint => check_endpoint(endpoint)?,
    };
    let given = |name: &str| variable(name).filter(|value| !value.is_empty());
    let (Some(access_key), Some(secret_key)) = (given(ACCESS_KEY), given(SECRET_KEY)) else {
        return Err(format!(
            "-backup-bucket needs the credentials of the bucket in the environment variables {ACCESS_KEY} and {SECRET_KEY}"
        ));
    };
    let session_token = given(SESSION_TOKEN);
    let in_headers = [(ACCESS_KEY, Some(&access_key)), (SESSION_TOKEN, session_token.as_ref())];
    for (name, value) in in_headers {
        // The value is not shown.
        if value.is_some_and(|value| !value.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(format!("environment variable {name} has a character that no credential has"));
        }
    }
    Ok(Some(BucketSettings {
        bucket: bucket.to_owned(),
        endpoint,
        region: region.to_owned(),
        path_style: flags.s3_path_style,
        prefix: flags.backup_tenant.clone(),
        credentials: Credentials { access_key, secret_key, session_token },
    }))
}

fn check_bucket(bucket: &str) -> Result<(), String> {
    let bad = |why: &str| Err(format!("-backup-bucket {bucket:?} is not the name of a bucket: {why}"));
    let is_end =
        |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if !BUCKET_BYTES.contains(&bucket.len()) {
        return bad("it has 3 to 63 characters");
    }
    if !bucket.bytes().all(|byte| is_end(Some(byte)) || byte == b'-' || byte == b'.') {
        return bad("it consists of a-z, 0-9, hyphens and dots");
    }
    if !is_end(bucket.bytes().next()) || !is_end(bucket.bytes().next_back()) {
        return bad("it begins and ends with a letter or digit");
    }
    let numbers = bucket.split('.');
    if numbers.clone().count() == 4
        && numbers.clone().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
    {
        return bad("it looks like an IPv4 address");
    }
    Ok(())
}

/// An endpoint without a slash at its end.
fn check_endpoint(endpoint: &str) -> Result<String, String> {
    let bad = || {
        format!(
            "-backup-endpoint {endpoint:?} is not the URL of an object store: write https://host or https://host:port"
        )
    };
    let (scheme, rest) = endpoint.split_once("://").ok_or_else(bad)?;
    let host = rest.strip_suffix('/').unwrap_or(rest);
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    if !matches!(scheme, "http" | "https") || !host.bytes().all(is_of_host) || host_of(host).is_none() {
        return Err(bad());
    }
    Ok(format!("{scheme}://{host}"))
}

/// The host of `host`, `host:port`, `[v6]` or `[v6]:port`.
fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            (host, port.strip_prefix(':').or_else(|| port.is_empty().then_some("443"))?)
        }
        None => authority.split_once(':').unwrap_or((authority, "443")),
    };
    (!host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)).then_some(host)
}

impl BackupSettings {
    /// Sentences to log as warnings: what is allowed, and probably not meant.
    pub fn warnings(&self, data: Option<&Path>) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(bucket) = &self.bucket {
            if let Some(host) = bucket.endpoint.strip_prefix("http://")
                && exposure::is_exposed(&with_port(host))
            {
                warnings.push(format!(
                    "-backup-endpoint {} is plain text: whoever is between this machine and the store reads the backups; write https://",
                    bucket.endpoint
                ));
            }
            if !bucket.path_style && bucket.bucket.contains('.') && bucket.endpoint.starts_with("https://") {
                warnings.push(format!(
                    "-s3-path-style=false puts the name {:?} into the name of the host, and certificates of stores do not cover names with dots",
                    bucket.bucket
                ));
            }
        }
        if let (Some(DirectorySettings { path, .. }), Some(data)) = (&self.directory, data) {
            let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            if absolute(path).starts_with(absolute(data)) {
                warnings.push(format!(
                    "-backup-dir {} is in the data directory, so what destroys the data destroys the backups; put it on another disk",
                    path.display()
                ));
            }
        }
        warnings
    }
}

/// An authority with a port, which it may lack.
fn with_port(authority: &str) -> String {
    let has_port = match authority.rsplit_once(']') {
        Some((_, after)) => after.starts_with(':'),
        None => authority.contains(':'),
    };
    if has_port { authority.to_owned() } else { format!("{authority}:80") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::parsed as flags;

    fn with(arguments: &[&str]) -> Result<BackupSettings, String> {
        check(&flags(arguments), |name| match name {
            "AWS_ACCESS_KEY_ID" => Some("AKIAEXAMPLE".into()),
            "AWS_SECRET_ACCESS_KEY" => Some("hidden".into()),
            _ => None,
        })
    }

    const BUCKET: [&str; 4] = ["-backup-bucket", "films", "-backup-region", "eu-central-1"];

    #[test]
    fn defaults_make_no_backups() {
        let settings = with(&[]).unwrap();
        assert_eq!((&settings.directory, &settings.bucket), (&None, &None));
        assert_eq!((settings.interval_ms, settings.retention, settings.bytes_per_second), (0, 24, 0));
        assert!(settings.warnings(None).is_empty());
    }

    #[test]
    fn a_directory() {
        let settings =
            with(&["-backup-dir", "/b", "-backup-interval", "1h", "-backup-prefix", "a/b"]).unwrap();
        let directory = DirectorySettings { path: "/b".into(), prefix: "a/b".into() };
        assert_eq!((settings.directory.as_ref(), settings.interval_ms), (Some(&directory), 3_600_000));
        assert!(settings.warnings(Some(Path::new("/d"))).is_empty());
        assert!(settings.warnings(Some(Path::new("/b/d"))).is_empty());
        assert_eq!(settings.warnings(Some(Path::new("/b"))).len(), 1);
        assert_eq!(with(&["-backup-dir", "/b/c"]).unwrap().warnings(Some(Path::new("/b"))).len(), 1);
        assert_eq!(with(&["-backup-interval", "5ms"]).unwrap().interval_ms, 1000);
        assert_eq!(with(&["-backup-interval", "-5s"]).unwrap().interval_ms, 0);
        assert_eq!(with(&["-backup-rate", "10MiB"]).unwrap().bytes_per_second, 10 << 20);
    }

    #[cfg(feature = "s3")]
    #[test]
    fn a_bucket() {
        let settings = with(&BUCKET).unwrap();
        let bucket = settings.bucket.clone().unwrap();
        assert_eq!(bucket.endpoint, "https://s3.eu-central-1.amazonaws.com");
        assert!(
            bucket.path_style && bucket.prefix == "default" && bucket.credentials.session_token.is_none()
        );
        assert!(settings.warnings(None).is_empty());
        let shown = format!("{settings:?}");
        assert!(!shown.contains("hidden") && !shown.contains("AKIA"), "{shown}");
        for (endpoint, expected, warnings) in [
            ("https://s3.example.com/", "https://s3.example.com", 0),
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000", 0),
            ("http://localhost", "http://localhost", 0),
            ("http://[::1]:9000", "http://[::1]:9000", 0),
            ("http://[::1]", "http://[::1]", 0),
            ("http://minio:9000", "http://minio:9000", 1),
            ("http://10.0.0.1", "http://10.0.0.1", 1),
        ] {
            let settings = with(&[&BUCKET[..], &["-backup-endpoint", endpoint]].concat()).unwrap();
            assert_eq!(settings.bucket.as_ref().unwrap().endpoint, expected);
            assert_eq!(settings.warnings(None).len(), warnings, "{endpoint}");
        }
        let dots = ["-backup-bucket", "a.b", "-backup-region", "r", "-s3-path-style=false"];
        assert_eq!(with(&dots).unwrap().warnings(None).len(), 1);
    }

    #[cfg(feature = "s3")]
    #[test]
    fn refusals_of_a_bucket_name_the_flag() {
        let credentials = |names: &'static [&'static str]| {
            check(&flags(&BUCKET), move |name| names.contains(&name).then(|| "x y".to_owned()))
        };
        for names in [&[][..], &["AWS_ACCESS_KEY_ID"], &["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]] {
            let error = credentials(names).unwrap_err();
            assert!(error.contains("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"), "{error}");
        }
        let error = credentials(&["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]).unwrap_err();
        assert!(error.contains("AWS_ACCESS_KEY_ID") && !error.contains("x y"), "{error}");
        assert!(with(&["-backup-bucket", "films"]).unwrap_err().contains("needs -backup-region"));
        let long = "a".repeat(64);
        for bucket in ["ab", &long, "Films", "a_b", "-ab", "ab-", ".ab", "a/b", "1.2.3.4", "999.1.1.1"] {
            let error = with(&["-backup-bucket", bucket, "-backup-region", "r"]).unwrap_err();
            assert!(error.contains(&format!("-backup-bucket {bucket:?}")), "{error}");
        }
        for region in ["a b", "r/../x", "é"] {
            let error = with(&["-backup-bucket", "films", "-backup-region", region]).unwrap_err();
            assert!(error.contains("-backup-region"), "{error}");
        }
        for endpoint in [
            "s3.example.com",
            "ftp://x",
            "https://",
            "https://a/b",
            "https://u:p@h",
            "https://h:0",
            "http://h:x",
            "http://[x]",
            "https://a b",
        ] {
            let error = with(&[&BUCKET[..], &["-backup-endpoint", endpoint]].concat()).unwrap_err();
            assert!(error.contains(&format!("-backup-endpoint {endpoint:?}")), "{error}");
        }
    }

    #[cfg(not(feature = "s3"))]
    #[test]
    fn a_build_without_the_client_refuses_a_bucket() {
        let error = with(&BUCKET).unwrap_err();
        assert!(error.contains("-backup-bucket") && error.contains("without the feature s3"), "{error}");
    }

    #[test]
    fn refusals_of_prefixes_name_the_flag() {
        for prefix in ["/a", ".a", "..", "a/../b", "a/./b", "a\\b", "a\0", "a//b", "a/"] {
            for flag in ["-backup-prefix", "-backup-tenant"] {
                let error = with(&[flag, prefix]).unwrap_err();
                assert!(error.starts_with(&format!("{flag} {prefix:?}")), "{error}");
            }
        }
        assert!(with(&["-backup-prefix", "a%3Ab"]).unwrap_err().contains("%3A"));
        assert!(with(&["-backup-tenant", "a/b"]).unwrap_err().contains("-backup-tenant"));
        for good in [&["-backup-prefix", ""][..], &["-backup-tenant", ""], &["-backup-prefix", "a/.b"]] {
            assert!(with(good).is_ok(), "{good:?}");
        }
        assert!(with(&["-backup-retention", "-1"]).unwrap_err().contains("-backup-retention -1"));
        let archive = ["-archive=true", "-data", "d", "-backup-dir", "b"];
        let options = with(&archive).unwrap().archive.expect("it was asked for");
        assert_eq!(options, ArchiveOptions::default());
        for (more, part) in [
            (&["-backup-dir", ""][..], "-archive needs -backup-bucket"),
            (&["-data", ""], "-archive needs -data"),
            (&["-wal-sync", "none"], "-archive needs -wal-sync"),
            (&["-archive-interval", "249ms"], "-archive-interval 249ms is too short"),
            (&["-archive-retention", "-1s"], "-archive-retention -1s is too short"),
        ] {
            let error = with(&[&archive[..], more].concat()).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
