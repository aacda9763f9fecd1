//! Flags to a checked configuration: everything that can be refused before a file or socket is touched.
use crate::backup_settings::{self, BackupSettings};
use crate::flags::{Confine, ServerFlags, WalSync};
use crate::logging::LogFiles;
use crate::{config_file, exposure, memory_limit};
use std::path::{Path, PathBuf};

/// Shards of a single node when `-shards` is 0.
const SHARDS_DEFAULT: i64 = 256;
/// More shards than this only cost memory: a shard is a unit of ownership, and no machine has as many cores.
const SHARDS_MAX: i64 = 65_536;
/// The interface's minimum: two pages of 1 MiB per shard.
const BYTES_PER_SHARD_MIN: u64 = 2 << 20;

/// Keys that stand in examples and manifests everywhere, so that a server with one of them is open to everybody.
const PLACEHOLDER_KEYS: [&str; 4] = ["change-me", "changeme", "your-api-key", "secret"];

/// A server that may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// REST listen address, empty = off.
    pub http: String,
    /// Listen address of gRPC, empty = off.
    pub grpc: String,
    /// A second package of the methods of gRPC.
    pub grpc_alias: Option<String>,
    /// Listen address of the binary protocol, empty = off.
    pub tcp: String,
    /// Address that clients of the binary protocol are told, in place of the one that it listens on.
    pub tcp_advertise: Option<String>,
    /// TCP is told which sockets are ready, not which operations have completed.
    pub epoll: bool,
    /// Data directory; `None` keeps everything in memory.
    pub data: Option<PathBuf>,
    /// Units of ownership, a power of two.
    pub shards: usize,
    /// Cap on cores, 0 = none.
    pub cores: usize,
    /// Durability of acknowledged writes.
    pub wal_sync: WalSync,
    /// Past it writes are refused.
    pub memory_limit_bytes: u64,
    /// Between two sweeps for expired points and keys, 0 = never.
    pub sweep_interval_ms: u64,
    /// Bytes of pages of keys and values.
    pub keys_budget_bytes: u64,
    /// Live records of a page that is emptied are rescued.
    pub relocating_eviction: bool,
    /// Between two looks whether a reserve of free pages is due, 0 = none is kept.
    pub reserve_interval_ms: u64,
    /// Values are rewritten where they lie.
    pub in_place_same_size: bool,
    /// Only records that are used are rescued.
    pub sieve_visited_bit: bool,
    /// Keys can be queried.
    pub kv_query: bool,
    /// The API key that grants everything; `None` serves everyone. Ignored if `keys` is set.
    pub api_key: Option<String>,
    /// The registry of keys.
    pub keys: Option<KeysSettings>,
    /// Where connections are secure.
    pub tls: Option<TlsSettings>,
    /// Where backups go.
    pub backup: BackupSettings,
    /// One line per request.
    pub access_log: bool,
    /// The files of the logs.
    pub log_files: LogFiles,
    /// What names of metrics begin with.
    pub metrics_prefix: String,
    /// Whether the server gives up what it does not need.
    pub confine: Confine,
}

/// A registry of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysSettings {
    /// The file of keys.
    pub file: PathBuf,
    /// The token that may do everything.
    pub internal_token: Option<String>,
    /// A key acts only on collections of its own tenant.
    pub isolates_tenants: bool,
    /// Each decision is written to the audit log.
    pub audits: bool,
    /// Signed tokens count.
    pub jwt: Option<JwtSettings>,
}

/// How signed tokens are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// The file of public keys.
    pub keys: PathBuf,
    /// Who must have issued a token, if it matters.
    pub issuer: Option<String>,
    /// Whom a token must be for, if it matters.
    pub audience: Option<String>,
}

/// The files of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate of the server, and those up to its root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The roots of certificates of clients.
    pub client_roots: Option<PathBuf>,
    /// A client without a certificate is refused.
    pub requires_client_certificate: bool,
}

fn given(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn tls(flags: &ServerFlags) -> Result<Option<TlsSettings>, String> {
    let roots = given(&flags.tls_ca);
    if flags.tls_require_client_cert && roots.is_none() {
        return Err("-tls-require-client-cert needs -tls-ca, which says whose certificates count".to_owned());
    }
    match (given(&flags.tls_cert), given(&flags.tls_key)) {
        (Some(certificate), Some(key)) => Ok(Some(TlsSettings {
            certificate: certificate.into(),
            key: key.into(),
            client_roots: roots.map(PathBuf::from),
            requires_client_certificate: flags.tls_require_client_cert,
        })),
        (Some(_), None) => Err("-tls-cert needs -tls-key, the private key of the certificate".to_owned()),
        (None, Some(_)) => {
            Err("-tls-key needs -tls-cert, the certificate that the key belongs to".to_owned())
        }
        (None, None) if roots.is_some() => Err("-tls-ca needs -tls-cert and -tls-key".to_owned()),
        (None, None) => Ok(None),
    }
}

/// Checks the flags in the order of the interface.
///
/// # Errors
/// One sentence, naming the flag.
pub fn check(flags: &ServerFlags) -> Result<Settings, String> {
    if let Some(refusal) = crate::flags::refusal(flags) {
        return Err(refusal);
    }
    let file = match flags.config.as_str() {
        "" => config_file::ConfigFile::default(),
        path => config_file::load(Path::new(path))?,
    };
    let api_key = Some(flags.api_key.clone()).filter(|key| !key.is_empty());
    if let Some(key) = &api_key
        && PLACEHOLDER_KEYS.iter().any(|placeholder| key.eq_ignore_ascii_case(placeholder))
    {
        return Err(format!(
            "-api-key (SVC_API_KEY) is {key:?}, a placeholder of examples that everybody knows; choose a random one"
        ));
    }
    let listeners = [("http", flags.http.as_str()), ("grpc", &flags.grpc), ("tcp", &flags.tcp)];
    if listeners.iter().all(|(_, address)| address.is_empty()) {
        return Err("no transport is enabled: give -http, -grpc or -tcp an address".into());
    }
    if let Some(refusal) = exposure::not_an_address(&listeners) {
        return Err(refusal);
    }
    let keys = Some(&flags.keys_file).filter(|file| !file.is_empty()).map(|file| KeysSettings {
        file: PathBuf::from(file),
        internal_token: Some(flags.internal_token.clone()).filter(|token| !token.is_empty()),
        isolates_tenants: flags.tenant_isolation,
        audits: flags.audit_log,
        jwt: given(&flags.jwt_public_key).map(|keys| JwtSettings {
            keys: keys.into(),
            issuer: given(&flags.jwt_issuer).map(str::to_owned),
            audience: given(&flags.jwt_audience).map(str::to_owned),
        }),
    });
    let tls = tls(flags)?;
    let is_authenticated = api_key.is_some() || keys.is_some();
    if let Some(refusal) = exposure::refusal(&listeners, is_authenticated, flags.insecure) {
        return Err(refusal);
    }
    let grpc_alias = Some(flags.grpc_alias.clone()).filter(|package| !package.is_empty());
    if let Some(package) = &grpc_alias {
        nigh_net::grpc::check_alias(package).map_err(|reason| format!("-grpc-alias: {reason}"))?;
    }
    let tcp_advertise = Some(flags.tcp_advertise.clone()).filter(|address| !address.is_empty());
    if let Some(address) = &tcp_advertise {
        nigh_net::tcp::check_advertised(address).map_err(|reason| format!("-tcp-advertise: {reason}"))?;
    }
    let shards = match flags.shards {
        0 => SHARDS_DEFAULT,
        shards @ 1..=SHARDS_MAX if shards & (shards - 1) == 0 => shards,
        shards => return Err(format!("-shards {shards} is not a power of two between 1 and {SHARDS_MAX}")),
    };
    if let Some(bytes) = file.max_memory_bytes
        && bytes < shards as u64 * BYTES_PER_SHARD_MIN
    {
        let least = (shards as u64 * BYTES_PER_SHARD_MIN) >> 20;
        return Err(format!(
            "-config: cache.max_memory is {bytes} bytes; {shards} shards need at least {least} MiB, fewer (-shards) need less"
        ));
    }
    let backup = backup_settings::check(flags, |name| std::env::var(name).ok())?;
    let cores = usize::try_from(flags.cores).map_err(|_| format!("-cores {} is negative", flags.cores))?;
    let sweep = flags.ttl_sweep_interval.positive();
    Ok(Settings {
        http: flags.http.clone(),
        grpc: flags.grpc.clone(),
        grpc_alias,
        tcp: flags.tcp.clone(),
        tcp_advertise,
        epoll: flags.epoll,
        data: Some(&flags.data).filter(|data| !data.is_empty()).map(PathBuf::from),
        shards: shards as usize,
        cores,
        wal_sync: flags.wal_sync,
        memory_limit_bytes: memory_limit::memory_limit_bytes(),
        keys_budget_bytes: memory_limit::keys_budget_bytes(
            file.max_memory_bytes,
            shards as u64 * BYTES_PER_SHARD_MIN,
        ),
        relocating_eviction: flags.relocating_eviction,
        reserve_interval_ms: flags
            .relocate_reserve_interval
            .positive()
            .map_or(0, |interval| (interval.as_millis() as u64).max(1)),
        in_place_same_size: flags.in_place_same_size_update,
        sieve_visited_bit: flags.sieve_visited_bit,
        kv_query: flags.kv_query,
        // A sweep faster than each millisecond would only burn the core.
        sweep_interval_ms: sweep.map_or(0, |sweep| (sweep.as_millis() as u64).max(1)),
        api_key,
        keys,
        tls,
        backup,
        access_log: flags.access_log,
        log_files: LogFiles::of(flags),
        metrics_prefix: flags.metrics_prefix.clone(),
        confine: flags.confine,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::parsed as flags;

    const LOOPBACK: [&str; 2] = ["-http", "127.0.0.1:0"];

    fn with(arguments: &[&str]) -> Result<Settings, String> {
        check(&flags(&[&LOOPBACK, arguments].concat()))
    }

    #[test]
    fn placeholder_keys_are_refused() {
        for key in ["change-me", "CHANGEME"] {
            let refusal = with(&["-api-key", key]).unwrap_err();
            assert!(refusal.contains("SVC_API_KEY") && refusal.contains(key), "{refusal}");
        }
        assert!(with(&["-api-key", "change-me-2f1c"]).is_ok());
    }

    #[test]
    fn defaults() {
        let settings = with(&[]).unwrap();
        assert_eq!((settings.shards, settings.cores, settings.data), (256, 0, None));
        assert_eq!((settings.sweep_interval_ms, settings.wal_sync), (30_000, WalSync::Always));
        assert!(settings.memory_limit_bytes > 0 && settings.api_key.is_none());
        assert_eq!(with(&["-ttl-sweep-interval", "0"]).unwrap().sweep_interval_ms, 0);
        assert_eq!(with(&["-ttl-sweep-interval", "5us"]).unwrap().sweep_interval_ms, 1);
        assert_eq!(settings.log_files.paths().count(), 0);
    }

    #[test]
    fn files_of_logs_that_are_off_are_not_opened() {
        let files = ["-log-file", "s", "-access-log-file", "a", "-audit-log-file", "d"];
        let paths = |arguments: &[&str]| {
            let settings = with(&[&files, arguments].concat()).unwrap();
            settings.log_files.paths().map(|(_, path)| path.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(paths(&[]), [Path::new("s")]);
        assert_eq!(paths(&["-audit-log"]), [Path::new("s")]);
        assert_eq!(paths(&["-access-log"]), [Path::new("s"), Path::new("a")]);
        assert_eq!(paths(&["-audit-log", "-keys-file", "k"]), [Path::new("s"), Path::new("d")]);
    }

    #[test]
    fn an_open_server_stays_on_this_machine() {
        assert!(check(&flags(&[])).unwrap_err().contains("-insecure"));
        assert!(check(&flags(&["-insecure"])).is_ok());
        assert!(check(&flags(&["-api-key", "k"])).is_ok());
        assert!(check(&flags(&["-http", "", "-tcp", "127.0.0.1:0"])).is_ok());
    }

    #[test]
    fn refusals_name_the_flag() {
        for (arguments, part) in [
            (&["-shards", "3"][..], "-shards 3"),
            (&["-shards", "-1"], "-shards -1"),
            (&["-cores", "-1"], "-cores -1"),
            (&["-http", ""], "-http"),
            (&["-http", "foo"], "-http \"foo\" is not an address: write host:port"),
            (&["-http", "foo", "-api-key", "k"], "host:port"),
            (&["-config", "/no/such"], "-config /no/such"),
            (&["-tcp", ":1"], "-tcp :1 is reachable"),
            (&["-grpc", ":1"], "-grpc :1 is reachable"),
            (&["-tcp-advertise", "db"], "-tcp-advertise: \"db\" is not an address that clients can reach"),
            (&["-grpc-alias", "a b"], "-grpc-alias: \"a b\" is not a package"),
            (&["-tcp", "foo"], "-tcp \"foo\" is not an address"),
            (&["-tls-cert", "c"], "-tls-cert needs -tls-key"),
            (&["-tls-key", "k"], "-tls-key needs -tls-cert"),
            (&["-tls-ca", "r"], "-tls-ca needs -tls-cert and -tls-key"),
            (&["-tls-require-client-cert"], "-tls-require-client-cert needs -tls-ca"),
            (&["-tls-require-client-cert", "-tls-cert", "c", "-tls-key", "k"], "needs -tls-ca"),
            (&["-http", "", "-tcp", ""], "no transport"),
        ] {
            let error = with(arguments).unwrap_err();
            assert!(error.contains(part), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn memory_from_the_file_must_hold_the_shards() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), r#"{"cache":{"max_memory":"256MiB"}}"#).unwrap();
        let path = file.path().to_str().unwrap();
        assert!(with(&["-config", path]).unwrap_err().contains("512 MiB"));
        assert_eq!(with(&["-config", path, "-shards", "64"]).unwrap().keys_budget_bytes, 256 << 20);
    }
}
