//! Certificates, keys and signed tokens of the tests, as files that servers and clients read.
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use std::fs;
use std::sync::Arc;
use tempfile::TempDir;

/// A directory of files, which goes with this value.
pub struct Files(TempDir);

impl Default for Files {
    fn default() -> Files {
        Files(tempfile::tempdir().expect("a directory"))
    }
}

impl Files {
    /// The path of a file, which may not exist.
    ///
    /// # Panics
    /// When it is not text.
    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("text").to_owned()
    }

    /// Writes a file.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("room on the disk");
    }

    /// Makes an authority of this name and writes its certificate to `file`.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn authority(&self, file: &str, name: &str) -> Issuer<'static, KeyPair> {
        let key = KeyPair::generate().expect("random bytes");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        self.write(file, &params.self_signed(&key).expect("it is signed").pem());
        Issuer::new(params, key)
    }

    /// Writes a certificate for `names` to `<file>.pem` and its key to `<file>.key`.
    ///
    /// # Panics
    /// When they cannot be written.
    pub fn sign(
        &self,
        authority: &Issuer<'static, KeyPair>,
        file: &str,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let key = KeyPair::generate().expect("random bytes");
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        change(&mut params);
        let certificate = params.signed_by(&key, authority).expect("it is signed");
        self.write(&format!("{file}.pem"), &certificate.pem());
        self.write(&format!("{file}.key"), &key.serialize_pem());
    }

    /// Writes a certificate to `<file>.pem` whose common name is `common_name`, and its key to `<file>.key`.
    ///
    /// # Panics
    /// When they cannot be written.
    pub fn sign_client(&self, authority: &Issuer<'static, KeyPair>, file: &str, common_name: &str) {
        self.sign(authority, file, &[], |params| {
            params.distinguished_name.push(DnType::CommonName, common_name)
        });
    }

    /// A client that trusts the authority whose certificate is in the file `trusted`, and shows the certificate `<shown>.pem` if there is one.
    ///
    /// # Panics
    /// When these files cannot be used.
    pub fn tls_client(&self, trusted: &str, shown: Option<&str>) -> Arc<ClientConfig> {
        let certificate = |file: &str| CertificateDer::from_pem_file(self.path(file)).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(certificate(trusted)).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("versions").with_root_certificates(roots);
        Arc::new(match shown {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).expect("a key");
                let chain = vec![certificate(&format!("{name}.pem"))];
                builder.with_client_auth_cert(chain, key).expect("a key that is of the certificate")
            }
        })
    }
}

/// A JSON Web Token with these claims, signed with ES256. The binary protocol has room for 255 bytes, which is enough for short claims.
///
/// # Panics
/// When the key is not one of P-256.
pub fn signed(key: &KeyPair, claims: &Value) -> String {
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key.serialize_der(), &random);
    let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let message = format!("{}.{}", encoded(r#"{"alg":"ES256","typ":"JWT"}"#), encoded(&claims.to_string()));
    let signature = pair.expect("a key").sign(&random, message.as_bytes()).expect("it is signed");
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}
