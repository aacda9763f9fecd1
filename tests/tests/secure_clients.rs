//! `nigh cli` and every `nigh bench` against real servers over TLS: they are served, and they say why when they are not.
use nigh_tests::{Exit, Files, Server, run_to_end};

/// The arguments that start each client. The load generators run for a moment on few keys and points.
const CLIENTS: [&str; 6] = [
    "cli",
    "bench vector -synthetic 100x8 -duration 0.2 -warm-up 0 -connections 2",
    "bench ingest -synthetic 200x8 -pipeline 7",
    "bench ingest -synthetic 200x8 -bulk -batch 50",
    "bench kv -keys 300 -value-size 0-3000 -preload -verify -seconds 0.2 -warmup 0",
    "bench kv -keys 300 -value-size 0-3000 -mode open -rate 500 -pipeline 8 -seconds 0.2 -warmup 0",
];
/// The API key of the servers here.
const API_KEY: &str = "the-key-of-the-tests";

/// Certificates and keys of an authority (`ca.pem`), of two servers and a client that it has signed, and of another authority (`other.pem`) with a
/// client of its own.
fn files() -> Files {
    let files = Files::default();
    let (authority, other) = (files.authority("ca.pem", "tests"), files.authority("other.pem", "others"));
    files.sign(&authority, "server", &["127.0.0.1", "localhost"], |_| {});
    files.sign(&authority, "expired", &["127.0.0.1"], |params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 3);
    });
    files.sign_client(&authority, "client", "worker");
    files.sign_client(&other, "stranger", "worker");
    files
}

/// A server over TLS on every transport, with the certificate of that name and further flags.
fn serve(files: &Files, certificate: &str, flags: &[&str]) -> Server {
    let (certificate, key) =
        (files.path(&format!("{certificate}.pem")), files.path(&format!("{certificate}.key")));
    let own = [
        "-cores",
        "1",
        "-tcp",
        "127.0.0.1:0",
        "-grpc",
        "127.0.0.1:0",
        "-tls-cert",
        &certificate,
        "-tls-key",
        &key,
    ];
    Server::start(None, &[&own, flags].concat())
}

/// Runs a client to its end. It connects to `http` or `tcp` (host:port), as its protocol requires. No output may have the API key.
fn run(
    client: &str,
    (scheme, http): (&str, &str),
    tcp: &str,
    flags: &[&str],
    environment: &[(&str, &str)],
) -> Exit {
    let url = format!("{scheme}://{http}");
    let words: Vec<&str> = client.split(' ').collect();
    let address = if words.contains(&"vector") { ["-url", &url] } else { ["-address", tcp] };
    let command = if client == "cli" { &["put", "greeting", "hello"][..] } else { &[] };
    let exit = run_to_end(&[&words, &address[..], flags, command].concat(), environment);
    for text in [&exit.stdout, &exit.stderr] {
        assert!(!text.contains(API_KEY), "{client} shows the API key: {text}");
    }
    exit
}

/// Expects every client to end with exit code 0.
#[track_caller]
fn all_get_in(server: &Server, flags: &[&str], environment: &[(&str, &str)]) {
    for client in CLIENTS {
        let exit = run(client, ("https", server.authority()), server.tcp_authority(), flags, environment);
        assert_eq!(exit.status.code(), Some(0), "{client} {flags:?}: {}", exit.stderr);
        let says = if client == "cli" { exit.stdout == "ok\n" } else { exit.stdout.contains("over TLS") };
        assert!(says, "{client}: {}", exit.stdout);
    }
}

/// Expects every client to end with exit code 1 and a sentence with `part` in it.
#[track_caller]
fn nobody_gets_in(server: &Server, flags: &[&str], environment: &[(&str, &str)], part: &str) {
    for client in CLIENTS {
        let exit = run(client, ("https", server.authority()), server.tcp_authority(), flags, environment);
        assert_eq!(exit.status.code(), Some(1), "{client} {flags:?}: {}{}", exit.stdout, exit.stderr);
        let program = client.split(" -").next().unwrap_or_default();
        assert!(exit.stderr.starts_with(&format!("nigh {program}: ")), "{client}: {}", exit.stderr);
        assert!(exit.stderr.contains(part), "{client} {flags:?}: no {part:?} in {}", exit.stderr);
    }
}

#[test]
fn every_client_speaks_tls() {
    let files = files();
    let server = serve(&files, "server", &["-api-key", API_KEY]);
    let (ca, other) = (files.path("ca.pem"), files.path("other.pem"));
    all_get_in(&server, &["-tls-ca", &ca, "-api-key", API_KEY], &[]);
    let key = ("NIGH_API_KEY", API_KEY);
    all_get_in(&server, &["-tls-ca", &ca, "-tls-server-name", "localhost"], &[key]);
    // The client trusts what the machine trusts, which these variables replace.
    all_get_in(&server, &["-tls"], &[key, ("SSL_CERT_FILE", &ca)]);
    nobody_gets_in(&server, &["-tls-ca", &ca], &[], "NIGH_API_KEY");

    nobody_gets_in(
        &server,
        &["-tls"],
        &[key, ("SSL_CERT_FILE", &other)],
        "nothing that this machine trusts has signed it",
    );
    nobody_gets_in(
        &server,
        &["-tls-ca", &other],
        &[key],
        &format!("no certificate in -tls-ca {other} has signed it"),
    );
    let wrong = ["-tls-ca", &ca, "-tls-server-name", "db.example"];
    nobody_gets_in(
        &server,
        &wrong,
        &[key],
        "is for 127.0.0.1, localhost, not for db.example; -tls-server-name says",
    );
    let log = server.stop().1;
    assert!(!log.contains(API_KEY), "the API key is in the log");
}

#[test]
fn an_expired_certificate_is_noticed_by_every_client() {
    let files = files();
    let server = serve(&files, "expired", &[]);
    nobody_gets_in(&server, &["-tls-ca", &files.path("ca.pem")], &[], "expired at 2001-01-03T00:00:00Z");
}

#[test]
fn every_client_shows_a_certificate_that_is_asked_for() {
    let files = files();
    let path = |name: &str| files.path(name);
    let (ca, certificate, key) = (path("ca.pem"), path("client.pem"), path("client.key"));
    let (foreign_certificate, foreign_key) = (path("stranger.pem"), path("stranger.key"));
    let server = serve(&files, "server", &["-tls-ca", &ca, "-tls-require-client-cert"]);
    all_get_in(&server, &["-tls-ca", &ca, "-tls-cert", &certificate, "-tls-key", &key], &[]);
    nobody_gets_in(
        &server,
        &["-tls-ca", &ca],
        &[],
        "the server asks for a client certificate: -tls-cert and -tls-key",
    );
    let foreign = ["-tls-ca", &ca, "-tls-cert", &foreign_certificate, "-tls-key", &foreign_key];
    nobody_gets_in(&server, &foreign, &[], "the server refuses the client certificate of -tls-cert: ");
    let halves = ["-tls-ca", &ca, "-tls-cert", &certificate];
    nobody_gets_in(&server, &halves, &[], "-tls-cert needs -tls-key");
}

#[test]
fn plain_text_and_tls_that_meet_are_told_apart() {
    let files = files();
    let ca = files.path("ca.pem");
    let secure = serve(&files, "server", &[]);
    for client in CLIENTS {
        let exit = run(client, ("http", secure.authority()), secure.tcp_authority(), &[], &[]);
        assert_eq!(exit.status.code(), Some(1), "{client}: {}{}", exit.stdout, exit.stderr);
        for part in ["this port expects TLS", "-tls speaks TLS"] {
            assert!(exit.stderr.contains(part), "{client}: no {part:?} in {}", exit.stderr);
        }
    }
    let plain = Server::start(None, &["-cores", "1", "-tcp", "127.0.0.1:0"]);
    nobody_gets_in(
        &plain,
        &["-tls-ca", &ca],
        &[],
        "the server does not speak TLS there: leave out the flags of TLS",
    );

    let vector = CLIENTS[1];
    let exit = run(vector, ("http", plain.authority()), "", &["-tls-ca", &ca], &[]);
    assert_eq!(exit.status.code(), Some(1));
    assert!(exit.stderr.contains("-tls-ca asks for TLS, and http:// is plain text"), "{}", exit.stderr);
    let exit = run(vector, ("https", secure.grpc_authority()), "", &["-tls-ca", &ca], &[]);
    assert_eq!(exit.status.code(), Some(1));
    assert!(exit.stderr.contains("this may be the port of its gRPC"), "{}", exit.stderr);
}
