//! The files of certificates and of public keys: they are read for the server, and errors name their flags.

use crate::confine;
use crate::reload::Reloadable;
use crate::settings::{JwtSettings, TlsSettings};
use nigh_net::auth::Registry;
use nigh_net::auth::jwt::{JwtKeys, JwtVerifier};
use nigh_net::tls::config::Which;
use nigh_net::tls::{Tls, TlsConfig, TlsTexts};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// Bytes of a file of certificates or keys at most.
const FILE_MAX_BYTES: u64 = 4 << 20;
/// A certificate that ends sooner is warned about.
const ENDS_SOON_S: i64 = 14 * 24 * 60 * 60;

/// Reads a file of certificates or keys, of at most 4 MiB. It may hold a private key: its bytes are overwritten when they are dropped.
///
/// # Errors
/// A sentence that names the flag and the file.
pub fn read(flag: &str, path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let refuse = |reason: String| format!("{flag} {}: {reason}", path.display());
    let refuse_error = |error: io::Error| match error.kind() {
        ErrorKind::PermissionDenied if confine::is_in_force() => refuse(format!(
            "{error}; the server may read only the directories that its files were in at the start: restart it if they have moved"
        )),
        _ => refuse(error.to_string()),
    };
    let file = File::open(path).map_err(refuse_error)?;
    let len = file.metadata().map_err(refuse_error)?.len().min(FILE_MAX_BYTES);
    // One byte more than the file has: a buffer that grew would leave a copy of the text behind.
    let mut text = Zeroizing::new(Vec::with_capacity(len as usize + 1));
    file.take(FILE_MAX_BYTES + 1).read_to_end(&mut text).map_err(refuse_error)?;
    match text.len() as u64 > FILE_MAX_BYTES {
        true => Err(refuse(format!("it has more than {FILE_MAX_BYTES} bytes"))),
        false => Ok(text),
    }
}

/// Reads the files of TLS.
///
/// # Errors
/// A sentence that names the flag and the file.
fn load_tls(settings: &TlsSettings) -> Result<TlsConfig, String> {
    let roots = settings.client_roots.as_deref();
    let texts = TlsTexts {
        certificates: read("-tls-cert", &settings.certificate)?.to_vec(),
        key: read("-tls-key", &settings.key)?,
        client_roots: roots.map(|path| read("-tls-ca", path)).transpose()?.map(|text| text.to_vec()),
        requires_client_certificate: settings.requires_client_certificate,
    };
    let config = TlsConfig::new(&texts).map_err(|error| {
        let (flag, path) = match error.which {
            Which::Certificate => ("-tls-cert", Some(&settings.certificate)),
            Which::Key => ("-tls-key", Some(&settings.key)),
            Which::ClientRoots => ("-tls-ca", settings.client_roots.as_ref()),
        };
        let path = path.map(|path| path.display().to_string()).unwrap_or_default();
        format!("{flag} {path}: {}", error.reason)
    })?;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
    let path = settings.certificate.display();
    match config.earliest_end() - now_s {
        ..0 => tracing::warn!("-tls-cert {path}: a certificate has expired, and clients will refuse it"),
        0..ENDS_SOON_S => tracing::warn!("-tls-cert {path}: a certificate expires in less than 14 days"),
        _ => {}
    }
    Ok(config)
}

/// Reads the files of TLS, which are reloaded while the server runs.
///
/// # Errors
/// A sentence that names the flag and the file.
pub fn open_tls(settings: &TlsSettings) -> Result<(Arc<Tls>, Reloadable), String> {
    let files = [Some(&settings.certificate), Some(&settings.key), settings.client_roots.as_ref()];
    let files: Vec<PathBuf> = files.into_iter().flatten().cloned().collect();
    let first = || Ok(Arc::new(Tls::new(load_tls(settings)?)));
    let reload = |tls: &Arc<Tls>| {
        let (settings, tls) = (settings.clone(), tls.clone());
        move || {
            tls.replace(load_tls(&settings)?);
            Ok(())
        }
    };
    Reloadable::read("certificates", files, first, reload)
}

/// Reads the public keys of signed tokens.
///
/// # Errors
/// A sentence that names the flag and the file.
fn load_jwt(settings: &JwtSettings) -> Result<JwtVerifier, String> {
    let text = read("-jwt-public-key", &settings.keys)?;
    let path = settings.keys.display();
    let keys = JwtKeys::read(&text).map_err(|reason| format!("-jwt-public-key {path}: {reason}"))?;
    for warning in keys.warnings() {
        tracing::warn!("-jwt-public-key {path}: {warning}");
    }
    Ok(JwtVerifier { keys, issuer: settings.issuer.clone(), audience: settings.audience.clone() })
}

/// Reads the public keys for signed tokens, which are reloaded while the server runs, and gives them to `registry`.
///
/// # Errors
/// A sentence that names the flag and the file.
pub fn open_jwt(settings: &JwtSettings, registry: &Arc<Registry>) -> Result<Reloadable, String> {
    let (settings, registry) = (settings.clone(), registry.clone());
    let files = vec![settings.keys.clone()];
    let load = move || {
        registry.accept_jwt(load_jwt(&settings)?);
        Ok(())
    };
    let first = load.clone();
    let ((), files) = Reloadable::read("public keys for signed tokens", files, first, |()| load)?;
    Ok(files)
}
