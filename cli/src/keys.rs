//! The API key file on the disk: the key registry that a server opens from it, and `nigh keys`, which changes it while no server runs.

use crate::flags::{normalise, parse_bytes};
use crate::say;
use crate::settings::KeysSettings;
use clap::{CommandFactory, Parser};
use nigh_net::auth::key_limits::KeyLimits;
use nigh_net::auth::keys_file::{self, FILE_MAX_BYTES, KeysFile};
use nigh_net::auth::registry::{KeyError, KeysStore, ListedKey, NewKey, RegistrySettings};
use nigh_net::auth::secret::{SecretDigest, hex};
use nigh_net::auth::{Registry, scope::Scope};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// Variable that names a token, so that it does not show in the list of processes. It wins over the flag.
const TOKEN_VARIABLE: &str = "SVC_KEY_TOKEN";
/// Random bytes of a token that nobody has chosen.
const TOKEN_BYTES: usize = 24;
/// Tokens with fewer characters are shown as stars alone.
const SHOWN_FROM: usize = 12;

const USAGE: &str = "usage: nigh keys add -file PATH [flags]\n       nigh keys revoke -file PATH [flags]\n       \
                     nigh keys list -file PATH     (-help lists the flags)\n";

/// The path of an API key file, which is replaced as a whole.
struct KeysPath(PathBuf);

impl KeysStore for KeysPath {
    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let directory = make_directory(&self.0)?;
        // A link stays one: what it leads to is replaced.
        let path = std::fs::canonicalize(&self.0).unwrap_or_else(|_| self.0.clone());
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(directory);
        let name = path.file_name().ok_or_else(|| io::Error::other("the path has no file name"))?;
        let mut fresh = name.to_owned();
        // Not the name of another process that writes the same file.
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
        fresh.push(format!(".{}.{now_ns}.tmp", std::process::id()));
        let fresh = directory.join(fresh);
        let written = write_durably(&fresh, &path, text).and_then(|()| std::fs::rename(&fresh, &path));
        if written.is_err() {
            let _may_not_exist = std::fs::remove_file(&fresh);
        }
        written.and_then(|()| File::open(directory)?.sync_all())
    }
}

/// Makes the directory of an API key file if it does not exist, and returns its path.
///
/// # Errors
/// It cannot be made.
pub fn make_directory(file: &Path) -> io::Result<&Path> {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    DirBuilder::new().recursive(true).mode(0o750).create(directory)?;
    Ok(directory)
}

/// Writes a new file that is to take the place of `present`, and has its owner.
fn write_durably(path: &Path, present: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    if let Ok(present) = std::fs::metadata(present) {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (present.uid(), present.gid()) {
            fchown(&file, Some(present.uid()), Some(present.gid()))?;
        }
    }
    file.write_all(text)?;
    file.sync_all()
}

/// Reads an API key file. A file that does not exist has no API keys.
fn load(path: &Path) -> Result<KeysFile, String> {
    let refuse = |reason: String| format!("the API key file {}: {reason}", path.display());
    // A file that was written by hand may hold tokens.
    let mut text = Zeroizing::new(Vec::new());
    match File::open(path) {
        Ok(file) => {
            let len = file.metadata().map_or(0, |found| found.len()).min(FILE_MAX_BYTES);
            // The buffer has room for the whole file: one that grew would leave a copy of the text behind.
            text.reserve_exact(len as usize + 1);
            file.take(FILE_MAX_BYTES + 1).read_to_end(&mut text).map_err(|error| refuse(error.to_string()))?
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(KeysFile::default()),
        Err(error) => return Err(refuse(error.to_string())),
    };
    if text.len() as u64 > FILE_MAX_BYTES {
        return Err(refuse(format!("it has more than {FILE_MAX_BYTES} bytes")));
    }
    keys_file::read(&text).map_err(refuse)
}

/// The most warnings about records of one file that the log has.
const WARNINGS_MAX: usize = 100;

/// Opens the registry of a server.
///
/// # Errors
/// A sentence that names the flag: the file cannot be read, or an API key has a tenant and tenants are not isolated.
pub fn open_registry(settings: &KeysSettings) -> Result<Registry, String> {
    let refuse = |reason: String| format!("-keys-file: {reason}");
    let KeysFile { keys, warnings } = load(&settings.file).map_err(refuse)?;
    for warning in warnings.iter().take(WARNINGS_MAX) {
        tracing::warn!("-keys-file {}: {warning}", settings.file.display());
    }
    if warnings.len() > WARNINGS_MAX {
        let more = warnings.len() - WARNINGS_MAX;
        tracing::warn!("-keys-file {}: there are {more} more warnings of this kind", settings.file.display());
    }
    // Files that the server writes are its user's alone.
    let is_open_to_others = |found: std::fs::Metadata| found.permissions().mode() & 0o007 != 0;
    if std::fs::metadata(&settings.file).is_ok_and(is_open_to_others) {
        tracing::warn!(
            "-keys-file {}: other users of this machine may look into it; chmod 600 would keep them out",
            settings.file.display()
        );
    }
    if !settings.file.exists() {
        tracing::warn!(
            "-keys-file {} does not exist: every request that needs an API key is refused until one is added with `nigh keys add` and the server \
             restarts",
            settings.file.display()
        );
    } else if keys.is_empty() {
        tracing::warn!(
            "-keys-file {} has no API keys: every request that needs one is refused until one is added with `nigh keys add` and the server restarts",
            settings.file.display()
        );
    }
    let how = RegistrySettings {
        internal_token: settings.internal_token.as_ref().map(|token| SecretDigest::of(token.as_bytes())),
        isolates_tenants: settings.isolates_tenants,
        audits: settings.audits,
    };
    Registry::new(keys, Box::new(KeysPath(settings.file.clone())), how).map_err(refuse)
}

/// Adds a key to a file of keys. A server that has the file open does not see it until it starts again; its own routes add keys at once.
#[derive(Debug, Parser)]
#[command(name = "nigh keys add", args_override_self = true)]
struct Add {
    /// The file of keys; it is created if it does not exist.
    #[arg(long, value_name = "path")]
    file: PathBuf,
    /// The token; prefer the variable SVC_KEY_TOKEN, which takes precedence. Without either, a random token is generated and printed once.
    #[arg(long, value_name = "secret", default_value = "")]
    token: String,
    /// Whose collections the key is for; * = those of all tenants.
    #[arg(long, value_name = "text", default_value = "")]
    tenant: String,
    /// What it may do: a comma-separated list of action:pattern, such as read:default/docs,write:default/*.
    #[arg(long, value_name = "list", default_value = "")]
    scopes: String,
    /// The common name of a client certificate that stands for the key.
    #[arg(long, value_name = "text", default_value = "")]
    cert_cn: String,
    /// Requests with the API key that are let in per second; 0 = no limit.
    #[arg(long, value_name = "int", default_value_t = 0)]
    requests_per_second: u64,
    /// Bytes of requests with the API key, and of their answers, per second, such as 10MiB; 0 = no limit.
    #[arg(long, value_name = "bytes", default_value = "0", value_parser = parse_byte_limit)]
    bytes_per_second: u64,
    /// Open connections that use the API key; 0 = no limit.
    #[arg(long, value_name = "int", default_value_t = 0)]
    connections: u64,
}

/// Reads a limit on bytes; 0 = no limit.
fn parse_byte_limit(text: &str) -> Result<u64, String> {
    if text.trim() == "0" { Ok(0) } else { parse_bytes(text) }
}

/// Removes a key from a file of keys. A server that has the file open does not see it until it starts again.
#[derive(Debug, Parser)]
#[command(name = "nigh keys revoke", args_override_self = true)]
struct Revoke {
    /// The file of keys.
    #[arg(long, value_name = "path")]
    file: PathBuf,
    /// The token; prefer the variable SVC_KEY_TOKEN, which takes precedence.
    #[arg(long, value_name = "secret", default_value = "")]
    token: String,
}

/// Lists the keys of a file. The file has no secrets, so each key is shown by the first digits of the SHA-256 digest of its token.
#[derive(Debug, Parser)]
#[command(name = "nigh keys list", args_override_self = true)]
struct List {
    /// The file of keys.
    #[arg(long, value_name = "path")]
    file: PathBuf,
}

/// Why a command was not carried out.
enum Failure {
    /// It was asked how it is used.
    Help(String),
    /// It was given wrongly.
    Usage(String),
    /// It could not be carried out.
    Error(String),
}

/// Runs `nigh keys <arguments>`; the exit code.
pub fn main(arguments: &[String]) -> i32 {
    let variable = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
    run(arguments, variable, &mut io::stdout())
}

fn run(arguments: &[String], variable: Option<String>, out: &mut impl Write) -> i32 {
    let Some((command, rest)) = arguments.split_first() else { return say(io::stderr(), USAGE, 2) };
    let ended = match command.as_str() {
        "add" => parsed::<Add>(rest).and_then(|options| add(options, variable)),
        "revoke" => parsed::<Revoke>(rest).and_then(|options| revoke(options, variable)),
        "list" => parsed::<List>(rest).and_then(|options| list(&options.file)),
        _ => return say(io::stderr(), USAGE, 2),
    };
    match ended {
        Ok(text) | Err(Failure::Help(text)) => say(out, &text, 0),
        Err(Failure::Usage(reason)) => say(io::stderr(), &format!("nigh keys {command}: {reason}\n"), 2),
        Err(Failure::Error(reason)) => say(io::stderr(), &format!("nigh keys {command}: {reason}\n"), 1),
    }
}

/// The flags of a command.
fn parsed<O: Parser + CommandFactory>(arguments: &[String]) -> Result<O, Failure> {
    let mut command = O::command();
    if arguments.iter().any(|word| matches!(word.as_str(), "-h" | "-help" | "--help")) {
        return Err(Failure::Help(command.render_long_help().to_string()));
    }
    let line = normalise(&command, arguments).map_err(Failure::Usage)?;
    if let Some(word) = line.rest.first() {
        return Err(Failure::Usage(format!("unexpected argument {word:?}")));
    }
    let name = command.get_name().to_owned();
    O::try_parse_from(std::iter::once(name).chain(line.flags))
        .map_err(|error| Failure::Usage(error.to_string()))
}

/// The registry of a file, which decides nothing and only changes.
fn opened(file: &Path) -> Result<Registry, Failure> {
    let KeysFile { keys, .. } = load(file).map_err(Failure::Error)?;
    // The server that reads the file decides whether tenants are isolated, so any tenant is accepted here.
    let settings = RegistrySettings { isolates_tenants: true, ..RegistrySettings::default() };
    Registry::new(keys, Box::new(KeysPath(file.to_owned())), settings).map_err(Failure::Error)
}

fn told(error: KeyError) -> Failure {
    match error {
        KeyError::Invalid(reason) => Failure::Usage(reason),
        KeyError::Exists => Failure::Error("a key with this token exists already".to_owned()),
        KeyError::Unknown => Failure::Error("there is no key with this token".to_owned()),
        KeyError::Unwritten(error) => Failure::Error(format!("the file could not be written: {error}")),
        // Only a restore is refused for that.
        KeyError::WouldLockOut => Failure::Error("it would lock its sender out".to_owned()),
    }
}

fn add(options: Add, variable: Option<String>) -> Result<String, Failure> {
    let Add { file, token, tenant, scopes, cert_cn, requests_per_second, bytes_per_second, connections } =
        options;
    let chosen = variable.or(Some(token).filter(|token| !token.is_empty()));
    let is_made = chosen.is_none();
    let token = match chosen {
        Some(token) => token,
        None => random_token().map_err(|error| {
            Failure::Error(format!("cannot read random bytes from /dev/urandom: {error}"))
        })?,
    };
    let scopes: Vec<String> =
        scopes.split(',').filter(|scope| !scope.is_empty()).map(str::to_owned).collect();
    for scope in &scopes {
        Scope::parse(scope).map_err(|reason| Failure::Usage(format!("-scopes: {reason}")))?;
    }
    let limits = KeyLimits { requests_per_second, bytes_per_second, connections };
    let key = NewKey { token, tenant, scopes, cert_cn, limits };
    opened(&file)?.add(&key).map_err(told)?;
    let NewKey { token, tenant, scopes, cert_cn, limits } = key;
    let mut text = format!(
        "added key {} (tenant={tenant}, scopes=[{}], cert-cn={cert_cn:?}{})\n",
        mask(&token),
        scopes.join(" "),
        shown(limits, ", ")
    );
    if is_made {
        text.push_str(&format!("token: {token}\n"));
    }
    Ok(text)
}

fn revoke(options: Revoke, variable: Option<String>) -> Result<String, Failure> {
    let token = variable.unwrap_or(options.token);
    if token.is_empty() {
        return Err(Failure::Usage(format!("-token or the variable {TOKEN_VARIABLE} is required")));
    }
    opened(&options.file)?.revoke(&token).map_err(told)?;
    Ok(format!("revoked key {}\n", mask(&token)))
}

fn list(file: &Path) -> Result<String, Failure> {
    let mut keys = opened(file)?.list();
    keys.sort_by_key(|key| key.fingerprint);
    if keys.is_empty() {
        return Ok("(no keys)\n".to_owned());
    }
    let line = |key: ListedKey| {
        let (fingerprint, scopes) = (hex(&key.fingerprint), key.scopes.join(" "));
        let (tenant, cert_cn, limits) = (key.tenant, key.cert_cn, shown(key.limits, "  "));
        format!("token={fingerprint}  tenant={tenant}  scopes=[{scopes}]  cert-cn={cert_cn:?}{limits}\n")
    };
    Ok(keys.into_iter().map(line).collect())
}

/// The limits that are not 0, by the names of their flags, each after `separator`.
fn shown(limits: KeyLimits, separator: &str) -> String {
    let named = limits.named().into_iter().filter(|(_, limit)| *limit > 0);
    named.map(|(name, limit)| format!("{separator}{}={limit}", name.replace('_', "-"))).collect()
}

/// The first four characters of a long token and stars.
fn mask(token: &str) -> String {
    const STARS: &str = "********";
    match token.chars().count() >= SHOWN_FROM {
        true => token.chars().take(4).collect::<String>() + STARS,
        false => STARS.to_owned(),
    }
}

fn random_token() -> io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exit code and what was printed.
    fn keys(words: &[&str], variable: Option<&str>) -> (i32, String) {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let mut out = Vec::new();
        let code = run(&words, variable.map(str::to_owned), &mut out);
        (code, String::from_utf8(out).unwrap())
    }

    #[test]
    fn keys_are_added_listed_and_revoked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new").join("keys.json");
        let file = path.to_str().unwrap();
        assert_eq!(keys(&["list", "-file", file], None), (0, "(no keys)\n".to_owned()));
        let added = keys(
            &[
                "add",
                "-file",
                file,
                "-token",
                "flag",
                "-tenant",
                "acme",
                "-scopes",
                "read:acme/*,write:acme/docs",
            ],
            Some("a-long-token-of-a-variable"),
        );
        let line =
            "added key a-lo******** (tenant=acme, scopes=[read:acme/* write:acme/docs], cert-cn=\"\")\n";
        assert_eq!(added, (0, line.to_owned()));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap()) & 0o027), (0o600, 0));
        assert!(!std::fs::read_to_string(&path).unwrap().contains("a-long-token"));
        let (code, made) = keys(&["add", "--file", file, "--cert-cn=worker"], None);
        let token = made.lines().nth(1).unwrap().strip_prefix("token: ").unwrap();
        assert_eq!((code, token.len()), (0, 2 * TOKEN_BYTES));
        let (_, listed) = keys(&["list", "-file", file], None);
        assert_eq!(listed.lines().count(), 2);
        assert!(
            listed.contains("tenant=acme  scopes=[read:acme/* write:acme/docs]  cert-cn=\"\""),
            "{listed}"
        );
        assert_eq!(keys(&["add", "-file", file, "-token", token], None).0, 1, "it exists");
        assert_eq!(keys(&["revoke", "-file", file, "-token", "flag"], None).0, 1, "it does not exist");
        assert_eq!(keys(&["revoke", "-file", file, "-token", token], None).0, 0);
        assert_eq!(keys(&["list", "-file", file], None).1.lines().count(), 1);
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "nothing is left beside the file"
        );
    }

    #[test]
    fn limits_are_added_and_listed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        let file = path.to_str().unwrap();
        let all = [
            "add",
            "-file",
            file,
            "-requests-per-second",
            "100",
            "--bytes-per-second=10MiB",
            "-connections",
            "4",
        ];
        let (code, text) = keys(&all, Some("token"));
        let limits = "requests-per-second=100, bytes-per-second=10485760, connections=4)\n";
        assert!(code == 0 && text.ends_with(limits), "{text}");
        assert_eq!(keys(&["add", "-file", file, "-bytes-per-second", "0"], Some("without")).0, 0);
        assert_eq!(keys(&["add", "-file", file, "-connections", "7"], Some("connections")).0, 0);
        let (_, listed) = keys(&["list", "-file", file], None);
        let line = |token: &str| {
            let fingerprint = hex(&nigh_net::auth::secret::listed_fingerprint(token.as_bytes()));
            let line = listed.lines().find(|line| line.contains(&fingerprint)).unwrap();
            line.split_once("cert-cn=\"\"").unwrap().1.to_owned()
        };
        let shown = "  requests-per-second=100  bytes-per-second=10485760  connections=4";
        assert_eq!([line("token"), line("without"), line("connections")], [shown, "", "  connections=7"]);
        // A record without limits has no members for them.
        assert_eq!(std::fs::read_to_string(&path).unwrap().matches("_per_second").count(), 2);
        for (flag, value) in [
            ("-requests-per-second", "10000001"),
            ("-requests-per-second", "-1"),
            ("-bytes-per-second", "2TiB"),
            ("-bytes-per-second", "fast"),
            ("-connections", "1.5"),
        ] {
            assert_eq!(keys(&["add", "-file", file, flag, value], Some("wrong")).0, 2, "{flag} {value}");
        }
        assert_eq!(keys(&["list", "-file", file], None).1.lines().count(), 3);
    }

    #[test]
    fn wrong_commands_end_with_2_and_failures_with_1() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        let file = path.to_str().unwrap();
        for words in [
            &[][..],
            &["show"],
            &["add"],
            &["add", "-file", file, "-scopes", "reads:*"],
            &["add", "-file", file, "more"],
            &["revoke", "-file", file],
            &["list", "-nothing"],
        ] {
            assert_eq!(keys(words, None).0, 2, "{words:?}");
        }
        std::fs::write(&path, "{").unwrap();
        for words in
            [&["list", "-file", file][..], &["add", "-file", file], &["list", "-file", "/proc/self/mem/x"]]
        {
            assert_eq!(keys(words, None).0, 1, "{words:?}");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{", "what could not be read is not replaced");
        let settings = KeysSettings {
            file: path.clone(),
            internal_token: None,
            isolates_tenants: false,
            audits: false,
            jwt: None,
        };
        let refusal = open_registry(&settings).err().unwrap();
        assert!(
            refusal.starts_with("-keys-file: the API key file ") && refusal.contains("not JSON"),
            "{refusal}"
        );
        std::fs::write(&path, r#"[{"token": "t", "tenant": "acme"}]"#).unwrap();
        assert!(open_registry(&settings).err().unwrap().contains("-tenant-isolation: set that flag"));
        assert!(open_registry(&KeysSettings { isolates_tenants: true, ..settings.clone() }).is_ok());
        std::fs::remove_file(&path).unwrap();
        assert!(open_registry(&settings).is_ok(), "a file that does not exist has no keys");
    }
}
