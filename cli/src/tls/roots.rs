//! The certificates that the machine trusts.
use rustls::RootCertStore;

/// Reads them from the files of the system, or from those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
///
/// # Errors
/// A clause that says why there are none.
pub fn of_machine() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // The files of a machine may have certificates that are too old to be read; these are left out.
    let (usable, _unusable) = roots.add_parsable_certificates(found.certs);
    match (usable, found.errors.first()) {
        (1.., _) => Ok(roots),
        (0, None) => Err("this machine has no certificates that it trusts".into()),
        (0, Some(error)) => {
            Err(format!("the certificates that this machine trusts cannot be read ({error})"))
        }
    }
}
