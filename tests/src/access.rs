//! The ways in which clients get in: what a server is started with for each, and what the user of a client sets for it.
use crate::{Files, Server, Stream, Wire, run_to_end, signed};
use rcgen::KeyPair;
use rustls::ClientConfig;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The API key of clients that have one.
const KEY: &str = "key-of-an-existing-client";
/// Longer than any test takes.
const JWT_LIFE_S: u64 = 3600;

/// How clients get in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The server asks for nothing, and clients send nothing.
    Open,
    /// The server has `-api-key`, and clients send that API key.
    SingleKey,
    /// The server has `-keys-file`, and clients send an API key of that file.
    KeysFile,
    /// The server has TLS and `-keys-file`, and clients show a certificate whose common name is that of an API key, which they do not send.
    Certificate,
    /// The server has TLS and `-jwt-public-key`, and clients send a JSON Web Token.
    Jwt,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 5] = [Mode::Open, Mode::SingleKey, Mode::KeysFile, Mode::Certificate, Mode::Jwt];
}

/// Makes a test in each mode of functions that take `&Access`. The tests are in modules that are named after the modes.
#[macro_export]
macro_rules! in_every_mode {
    (@of $module:ident $mode:ident $($test:ident)+) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    super::$test(&$crate::Access::new($crate::Mode::$mode));
                }
            )+
        }
    };
    ($($test:ident),+ $(,)?) => {
        $crate::in_every_mode!(@of open Open $($test)+);
        $crate::in_every_mode!(@of single_key SingleKey $($test)+);
        $crate::in_every_mode!(@of keys_file KeysFile $($test)+);
        $crate::in_every_mode!(@of certificate Certificate $($test)+);
        $crate::in_every_mode!(@of jwt Jwt $($test)+);
    };
}

/// The two sides of TLS.
struct Tls {
    /// Clients with all that they are configured with.
    own: Arc<ClientConfig>,
    /// Clients that trust the server and show no certificate.
    stranger: Arc<ClientConfig>,
}

/// What servers and clients of one mode are configured with. Its files go with this value, and servers read them when they start.
pub struct Access {
    mode: Mode,
    flags: Vec<String>,
    token: String,
    tls: Option<Tls>,
    _files: Files,
}

impl Access {
    /// Makes the files of a mode.
    ///
    /// # Panics
    /// When they cannot be made.
    pub fn new(mode: Mode) -> Access {
        let files = Files::default();
        let mut flags: Vec<String> = Vec::new();
        let mut flag = |name: &str, value: &str| flags.extend([name.to_owned(), value.to_owned()]);
        let (keys, mut token) = (files.path("keys.json"), String::new());
        let mut tls = None;
        match mode {
            Mode::Open => {}
            Mode::SingleKey => {
                token = KEY.to_owned();
                flag("-api-key", KEY);
            }
            Mode::KeysFile => {
                token = KEY.to_owned();
                add_key(&keys, &[], &[("SVC_KEY_TOKEN", KEY)]);
                flag("-keys-file", &keys);
            }
            Mode::Certificate => {
                tls = Some(with_tls(&files, Some("client"), &mut flag));
                flag("-tls-ca", &files.path("ca.pem"));
                // Its token is drawn at random, and nobody has it.
                add_key(&keys, &["-cert-cn", "worker"], &[]);
                flag("-keys-file", &keys);
            }
            Mode::Jwt => {
                tls = Some(with_tls(&files, None, &mut flag));
                let issuer = KeyPair::generate().expect("random bytes");
                files.write("jwt.pem", &issuer.public_key_pem());
                let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
                token = signed(&issuer, &json!({"exp": now_s + JWT_LIFE_S, "tenant": "*", "scopes": "*:*"}));
                flag("-jwt-public-key", &files.path("jwt.pem"));
                // The file does not exist, so that no API key is valid.
                flag("-keys-file", &keys);
            }
        }
        Access { mode, flags, token, tls, _files: files }
    }

    /// Starts a server, as [`Server::start`] does.
    ///
    /// # Panics
    /// When the server does not serve; the message has its log.
    #[track_caller]
    pub fn start(&self, data: Option<&Path>, flags: &[&str]) -> Server {
        let own: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        Server::start(data, &[&own, flags].concat())
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether servers refuse clients that show nothing.
    pub fn refuses_strangers(&self) -> bool {
        self.mode != Mode::Open
    }

    /// Whether servers have API keys that can be listed and changed.
    pub fn has_registry(&self) -> bool {
        !matches!(self.mode, Mode::Open | Mode::SingleKey)
    }

    /// The token that clients send; empty = none.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The line of HTTP with the token, and its end; empty without a token.
    pub fn authorization(&self) -> String {
        match self.token() {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        }
    }

    /// Connects to `authority` (`host:port`) as clients of this mode do.
    ///
    /// # Panics
    /// When the server refuses.
    #[track_caller]
    pub fn connect(&self, authority: &str) -> Stream {
        Stream::connect(authority, self.tls.as_ref().map(|tls| &tls.own)).expect("the server accepts")
    }

    /// Connects without a certificate of a client.
    ///
    /// # Panics
    /// As [`Self::connect`].
    #[track_caller]
    pub fn connect_as_stranger(&self, authority: &str) -> Stream {
        Stream::connect(authority, self.tls.as_ref().map(|tls| &tls.stranger)).expect("the server accepts")
    }

    /// A new connection of the binary protocol, whose requests have the token.
    ///
    /// # Panics
    /// As [`Self::connect`].
    #[track_caller]
    pub fn tcp(&self, server: &Server) -> Wire {
        Wire::over(self.connect(server.tcp_authority()), self.token())
    }
}

/// Adds an API key that may do everything, by the command for it.
fn add_key(keys: &str, flags: &[&str], environment: &[(&str, &str)]) {
    let add = ["keys", "add", "-file", keys, "-tenant", "*", "-scopes", "*:*"];
    let added = run_to_end(&[&add, flags].concat(), environment);
    assert!(added.status.success(), "{}", added.stderr);
}

/// Makes an authority, and certificates that it has signed for the server and for the client `worker`.
fn with_tls(files: &Files, shown: Option<&str>, flag: &mut impl FnMut(&str, &str)) -> Tls {
    let authority = files.authority("ca.pem", "tests");
    files.sign(&authority, "server", &["localhost", "127.0.0.1"], |_| {});
    files.sign_client(&authority, "client", "worker");
    flag("-tls-cert", &files.path("server.pem"));
    flag("-tls-key", &files.path("server.key"));
    Tls { own: files.tls_client("ca.pem", shown), stranger: files.tls_client("ca.pem", None) }
}
