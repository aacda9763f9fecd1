//! Tests of sessions against the client of `rustls`, all in memory.

use super::authority::{
    Ca, TLS12, TLS13, client, client_params, connect, drain, drain_client, give, handshake, ping, pump, read,
    world, world_with,
};
use nigh_net::tls::config::TlsConfig;
use nigh_net::tls::session::{
    Handshake, OUTGOING_LIMIT, Read, Session, SessionError, first_bytes_are_tls, looks_like_http,
};
use rcgen::{DnValue, ExtendedKeyUsagePurpose, KeyPair};
use rustls::client::{Resumption, Tls12Resumption};
use rustls::{AlertDescription, CertificateError, Error, ProtocolVersion};
use std::io::{self, IoSlice, Read as _, Write as _};
use std::sync::Arc;

const VERSIONS: [(&[&rustls::SupportedProtocolVersion], ProtocolVersion); 2] =
    [(TLS12, ProtocolVersion::TLSv1_2), (TLS13, ProtocolVersion::TLSv1_3)];

/// A small random generator, so that failures repeat.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

#[test]
fn handshakes_agree_on_version_and_alpn() {
    let world = world(None);
    for (versions, version) in VERSIONS {
        for (config, offer, agreed) in [
            (world.config.http(), &["h2", "http/1.1"][..], Some("http/1.1")),
            (world.config.http(), &[], None),
            (world.config.grpc(), &["http/1.1", "h2"], Some("h2")),
            (world.config.grpc(), &[], None),
            (world.config.binary(), &["h2", "http/1.1"], None),
            (world.config.binary(), &[], None),
        ] {
            let connector = Arc::new(client(&world.ca, versions, None, offer));
            let (mut client, mut session) = handshake(config, &connector).unwrap();
            assert_eq!(session.alpn(), agreed.map(str::as_bytes));
            assert_eq!(session.protocol_version(), Some(version));
            assert_eq!(session.handshake_kind(), Some(Handshake::Full));
            assert_eq!(session.peer_common_name(), None);
            assert!(!session.has_peer_certificate());
            ping(&mut client, &mut session);
        }
        for (config, offer) in [(world.config.http(), &["h2"]), (world.config.grpc(), &["http/1.1"])] {
            let e = handshake(config, &Arc::new(client(&world.ca, versions, None, offer))).err().unwrap();
            assert_eq!(e.cause, Error::NoApplicationProtocol);
        }
    }
}

#[test]
fn rsa_certificates_work() {
    let world = world_with(None, &KeyPair::from_pem(super::authority::RSA).unwrap());
    for (versions, _) in VERSIONS {
        let connector = Arc::new(client(&world.ca, versions, None, &[]));
        let (mut client, mut session) = handshake(world.config.http(), &connector).unwrap();
        ping(&mut client, &mut session);
    }
}

#[test]
fn a_new_session_knows_nothing() {
    let mut session = Session::new(world(None).config.http().clone()).unwrap();
    assert!(session.is_handshaking() && !session.wants_write() && !session.takes_plaintext());
    assert_eq!((session.alpn(), session.protocol_version(), session.handshake_kind()), (None, None, None));
    assert_eq!(session.peer_common_name(), None);
    assert_eq!(read(&mut session, &mut [0; 4]), Ok(Read::Nothing));
    assert_eq!(session.write(&[IoSlice::new(b"early")]), 0);
    assert_eq!(session.outgoing(|_| panic!("nothing to send")).unwrap(), 0);
    assert_eq!(session.feed(b"").unwrap().taken, 0);
    session.shrink();
    assert_eq!(read(&mut session, &mut [0; 4]), Ok(Read::Nothing));
    session.end_of_input();
    assert_eq!(read(&mut session, &mut [0; 4]), Ok(Read::Truncated));
}

#[test]
fn client_certificates_are_checked() {
    let stranger = Ca::new("client root");
    for required in [false, true] {
        let world = world(Some(required));
        let good = world.client_ca.client("Zoë");
        let foreign = stranger.client("Zoë");
        let mut params = client_params(DnValue::Utf8String("old".to_string()));
        params.not_after = rcgen::date_time_ymd(2001, 1, 3);
        let expired = world.client_ca.client_with(params);
        let mut params = client_params(DnValue::Utf8String("server".to_string()));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let not_a_client = world.client_ca.client_with(params);
        for (versions, _) in VERSIONS {
            let attempt = |identity: Option<&super::authority::Identity>| {
                handshake(world.config.http(), &Arc::new(client(&world.ca, versions, identity, &[])))
            };
            let cause = |identity| attempt(Some(identity)).err().unwrap().cause;
            let (mut client, mut session) = attempt(Some(&good)).unwrap();
            assert_eq!(session.peer_common_name().as_deref(), Some("Zoë"));
            assert!(session.has_peer_certificate());
            ping(&mut client, &mut session);
            match attempt(None) {
                Ok((_, session)) => assert!(!required && session.peer_common_name().is_none()),
                Err(e) => assert!(required && e.cause == Error::NoCertificatesPresented),
            }
            assert!(matches!(cause(&foreign), Error::InvalidCertificate(_)));
            let e = cause(&expired);
            assert!(
                matches!(e, Error::InvalidCertificate(CertificateError::ExpiredContext { .. })),
                "an expired certificate gave {e:?}"
            );
            assert!(matches!(cause(&not_a_client), Error::InvalidCertificate(_)));
        }
    }
}

#[test]
fn the_client_hears_why_it_is_refused() {
    let world = world(Some(true));
    let (mut client, mut session) = (
        connect(&Arc::new(client(&world.ca, TLS13, None, &[]))),
        Session::new(world.config.http().clone()).unwrap(),
    );
    session.feed(&drain_client(&mut client)).unwrap();
    give(&mut client, &drain(&mut session)).unwrap();
    let flight = drain_client(&mut client);
    let e = session.feed(&flight).unwrap_err();
    assert_eq!(session.feed(&flight).unwrap_err(), e, "the error stays");
    assert_eq!(read(&mut session, &mut [0; 4]), Err(e));
    assert!(session.wants_write() && !session.takes_plaintext());
    assert_eq!(session.write(&[IoSlice::new(b"x")]), 0);
    let told = give(&mut client, &drain(&mut session)).unwrap_err();
    assert_eq!(told, Error::AlertReceived(AlertDescription::CertificateRequired));
}

#[test]
fn names_are_hidden_until_the_handshake_has_ended() {
    let world = world(Some(true));
    let identity = world.client_ca.client("alice");
    for (versions, _) in VERSIONS {
        let mut client = connect(&Arc::new(client(&world.ca, versions, Some(&identity), &[])));
        let mut session = Session::new(world.config.http().clone()).unwrap();
        while session.is_handshaking() {
            assert_eq!(session.peer_common_name(), None);
            assert!(!session.has_peer_certificate());
            for byte in drain_client(&mut client) {
                session.feed(&[byte]).unwrap();
                let done = !session.is_handshaking();
                assert_eq!(session.peer_common_name().is_some(), done);
            }
            give(&mut client, &drain(&mut session)).unwrap();
        }
        assert_eq!(session.peer_common_name().as_deref(), Some("alice"));
    }
}

#[test]
fn resumption_keeps_the_name_and_ends_with_the_configuration() {
    let mut world = world(Some(true));
    let identity = world.client_ca.client("alice");
    for (versions, _) in VERSIONS {
        for by_id in [false, true] {
            let mut connector = client(&world.ca, versions, Some(&identity), &[]);
            if by_id {
                connector.resumption =
                    Resumption::in_memory_sessions(8).tls12_resumption(Tls12Resumption::SessionIdOnly);
            }
            let connector = Arc::new(connector);
            let attempt = |config: &Arc<rustls::ServerConfig>| {
                let (mut client, mut session) = handshake(config, &connector).unwrap();
                ping(&mut client, &mut session);
                assert_eq!(session.peer_common_name().as_deref(), Some("alice"));
                session.handshake_kind().unwrap()
            };
            assert_eq!(attempt(world.config.http()), Handshake::Full);
            assert_eq!(attempt(world.config.http()), Handshake::Resumed);
            assert_eq!(attempt(world.config.binary()), Handshake::Resumed, "all three share the tickets");
            world.config = TlsConfig::new(&world.texts).unwrap();
            assert_eq!(attempt(world.config.http()), Handshake::Full, "old tickets are worthless");
            assert_eq!(attempt(world.config.http()), Handshake::Resumed);
        }
    }
}

#[test]
fn one_byte_at_a_time_works() {
    let world = world(Some(false));
    let identity = world.client_ca.client("alice");
    for (versions, _) in VERSIONS {
        let mut client = connect(&Arc::new(client(&world.ca, versions, Some(&identity), &[])));
        let mut session = Session::new(world.config.http().clone()).unwrap();
        client.writer().write_all(b"hello").unwrap();
        let mut seen = Vec::new();
        loop {
            let up = drain_client(&mut client);
            for byte in &up {
                assert_eq!(session.feed(&[*byte]).unwrap().taken, 1);
                session.shrink();
                let mut into = [0; 2];
                while let Read::Bytes(n) = read(&mut session, &mut into).unwrap() {
                    seen.extend_from_slice(&into[..n]);
                }
            }
            let mut down = Vec::new();
            while session.wants_write() {
                session.outgoing(|slices| down.write(&slices[0][..1])).unwrap();
            }
            give(&mut client, &down).unwrap();
            if up.is_empty() && down.is_empty() {
                break;
            }
        }
        assert_eq!(seen, b"hello");
    }
}

/// Feeds the first flight of a client, and answers it.
fn answer(session: &mut Session, bytes: &[u8]) -> Result<(), SessionError> {
    let fed = session.feed(bytes).map(|_| ());
    let _sent = drain(session);
    fed
}

#[test]
fn input_cut_at_every_byte_is_an_open_or_truncated_connection() {
    let world = world(None);
    for (versions, _) in VERSIONS {
        let hello = drain_client(&mut connect(&Arc::new(client(&world.ca, versions, None, &[]))));
        for end in 0..hello.len() {
            let mut session = Session::new(world.config.http().clone()).unwrap();
            answer(&mut session, &hello[..end]).unwrap();
            assert!(session.is_handshaking());
            assert_eq!(read(&mut session, &mut [0; 8]), Ok(Read::Nothing));
            session.end_of_input();
            assert_eq!(read(&mut session, &mut [0; 8]), Ok(Read::Truncated));
        }
        // The same for what follows the handshake: a request and the end.
        let connector = Arc::new(client(&world.ca, versions, None, &[]));
        let mut end = 0;
        loop {
            let (mut client, mut session) = handshake(world.config.http(), &connector).unwrap();
            client.writer().write_all(b"request").unwrap();
            client.send_close_notify();
            let bytes = drain_client(&mut client);
            let whole = end == bytes.len();
            let fed = session.feed(&bytes[..end]).unwrap();
            assert_eq!((fed.taken, fed.ended), (end, whole));
            let mut into = [0; 16];
            if fed.readable > 0 {
                assert_eq!(read(&mut session, &mut into).unwrap(), Read::Bytes(7));
            }
            let open = if whole { Read::End } else { Read::Nothing };
            assert_eq!(read(&mut session, &mut into), Ok(open));
            session.end_of_input();
            let last = if whole { Read::End } else { Read::Truncated };
            assert_eq!(read(&mut session, &mut into), Ok(last));
            if whole {
                break;
            }
            end += 1;
        }
    }
}

#[test]
fn a_changed_byte_is_an_error_but_earlier_data_is_kept() {
    let world = world(None);
    for (versions, version) in VERSIONS {
        let connector = Arc::new(client(&world.ca, versions, None, &[]));
        let mut at = 0;
        loop {
            let (mut client, mut session) = handshake(world.config.http(), &connector).unwrap();
            client.writer().write_all(b"first").unwrap();
            let first = drain_client(&mut client);
            client.writer().write_all(b"second").unwrap();
            let mut second = drain_client(&mut client);
            if at == second.len() {
                break;
            }
            second[at] ^= 0x80;
            // A changed length may make the record incomplete instead; nothing of it is ever passed on.
            let fed = session.feed(&[first, second].concat());
            let mut into = [0; 16];
            if at == 2 && version == ProtocolVersion::TLSv1_3 {
                // The low byte of a record's version field means nothing in TLS 1.3 and is not looked at.
                for (bytes, text) in [(5, &b"first"[..]), (6, b"second")] {
                    assert_eq!(read(&mut session, &mut into).unwrap(), Read::Bytes(bytes));
                    assert_eq!(&into[..bytes], text);
                }
                at += 1;
                continue;
            }
            assert_eq!(read(&mut session, &mut into).unwrap(), Read::Bytes(5));
            assert_eq!(&into[..5], b"first");
            match fed {
                Ok(fed) => assert!(fed.readable == 5 && read(&mut session, &mut into) == Ok(Read::Nothing)),
                Err(e) => {
                    assert!(session.wants_write(), "an alert waits");
                    assert_eq!(read(&mut session, &mut into), Err(e));
                }
            }
            at += 1;
        }
    }
}

#[test]
fn changed_hellos_do_not_panic() {
    let world = world(Some(false));
    let mut random = Random(0x1234_5678_9abc_def1);
    for (versions, _) in VERSIONS {
        let hello = drain_client(&mut connect(&Arc::new(client(&world.ca, versions, None, &["h2"]))));
        for _ in 0..3000 {
            let mut bytes = hello.clone();
            for _ in 0..=random.below(4) {
                if bytes.len() < 2 {
                    break;
                }
                let at = random.below(bytes.len());
                match random.below(5) {
                    0 => bytes[at] = random.below(256) as u8,
                    1 => bytes[at] ^= 1 << random.below(8),
                    2 => drop(bytes.drain(at..(at + random.below(8)).min(bytes.len()))),
                    3 => bytes.insert(at, random.below(256) as u8),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            let mut session = Session::new(world.config.grpc().clone()).unwrap();
            let _no_panic = answer(&mut session, &bytes);
            let _no_panic = read(&mut session, &mut [0; 64]);
            session.shrink();
            session.send_close_notify();
            let _sent = drain(&mut session);
        }
    }
}

#[test]
fn garbage_and_plain_http_are_errors() {
    let world = world(None);
    let mut random = Random(77);
    for _ in 0..500 {
        let bytes: Vec<u8> = (0..random.below(5000)).map(|_| random.below(256) as u8).collect();
        let mut session = Session::new(world.config.http().clone()).unwrap();
        let fed = answer(&mut session, &bytes);
        assert!(fed.is_err() || bytes.len() < 16 || bytes[0] == 22 || bytes[0] == 20);
    }
    let mut session = Session::new(world.config.http().clone()).unwrap();
    let e = session.feed(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap_err();
    assert!(e.to_string().starts_with("the TLS connection failed"));
    assert!(session.wants_write());
    assert_eq!(drain(&mut session)[..1], [21], "an alert");
    // A handshake message that says it is longer than any allowed one must not be collected without end.
    let mut session = Session::new(world.config.http().clone()).unwrap();
    let mut record = vec![22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
    record.resize(5 + 0x4000, 0);
    let mut records = 0;
    while session.feed(&record).is_ok() {
        record[5..9].fill(0);
        records += 1;
        assert!(records < 5);
    }
}

#[test]
fn protocols_are_told_apart() {
    for (bytes, tls, http) in [
        (&b""[..], None, None),
        (b"\x16", None, Some(false)),
        (b"\x16\x03", Some(true), Some(false)),
        (b"\x16\x02", Some(false), Some(false)),
        (b"\x15\x03", Some(false), Some(false)),
        (b"G", Some(false), None),
        (b"GET", Some(false), None),
        (b"GET ", Some(false), Some(true)),
        (b"GETS", Some(false), Some(false)),
        (b"POST /_search HTTP/1.1", Some(false), Some(true)),
        (b"PRI * HTTP/2.0\r\n", Some(false), Some(true)),
        (b"get / HTTP/1.1", Some(false), Some(false)),
    ] {
        assert_eq!(first_bytes_are_tls(bytes), tls, "{bytes:?}");
        assert_eq!(looks_like_http(bytes), http, "{bytes:?}");
    }
}

#[test]
fn large_transfers_through_tiny_buffers_keep_every_byte() {
    const TOTAL: usize = 8 << 20;
    let world = world(None);
    let byte = |at: usize| (at.wrapping_mul(2_654_435_761) >> 13) as u8;
    let data: Vec<u8> = (0..TOTAL).map(byte).collect();
    for (versions, _) in VERSIONS {
        let connector = Arc::new(client(&world.ca, versions, None, &[]));
        let (mut client, mut session) = handshake(world.config.http(), &connector).unwrap();
        let mut random = Random(5);
        let (mut up_sent, mut up_seen, mut down_sent, mut down_seen) = (0, 0, 0, 0);
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let mut into = [0; 700];
        while up_seen < TOTAL || down_seen < TOTAL {
            let end = (up_sent + 1 + random.below(30_000)).min(TOTAL);
            up_sent += client.writer().write(&data[up_sent..end]).unwrap();
            up.extend(drain_client(&mut client));
            while !up.is_empty() {
                let piece = (1 + random.below(40_000)).min(up.len());
                let fed = session.feed(&up[..piece]).unwrap();
                assert!(fed.taken > 0 && fed.readable <= 33 * 1024);
                up.drain(..fed.taken);
                while let Read::Bytes(n) = read(&mut session, &mut into).unwrap() {
                    assert!(into[..n] == data[up_seen..up_seen + n]);
                    up_seen += n;
                }
            }
            for _ in 0..random.below(6) {
                let middle = (down_sent + random.below(3000)).min(TOTAL);
                let end = (middle + random.below(30_000)).min(TOTAL);
                let slices = [IoSlice::new(&data[down_sent..middle]), IoSlice::new(&data[middle..end])];
                down_sent += session.write(&slices);
            }
            // A socket that takes some, blocks at times, and is interrupted at times.
            while session.wants_write() {
                let choice = random.below(8);
                let sent = session.outgoing(|slices| match choice {
                    0 => Err(io::ErrorKind::WouldBlock.into()),
                    1 => Err(io::ErrorKind::Interrupted.into()),
                    2 => Ok(0),
                    _ => {
                        let first = &slices[0][..slices[0].len().min(1 + choice * 900)];
                        down.extend_from_slice(first);
                        Ok(first.len())
                    }
                });
                match choice {
                    0 => assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::WouldBlock),
                    1 => assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::Interrupted),
                    2 => assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::WriteZero),
                    _ => assert!(sent.unwrap() > 0),
                }
                if choice == 0 {
                    break;
                }
            }
            let mut rest = &down[..];
            while !rest.is_empty() {
                client.read_tls(&mut rest).unwrap();
                client.process_new_packets().unwrap();
                while let Ok(n @ 1..) = client.reader().read(&mut into) {
                    assert!(into[..n] == data[down_seen..down_seen + n]);
                    down_seen += n;
                }
            }
            down.clear();
        }
        assert_eq!((up_sent, down_sent), (TOTAL, TOTAL));
    }
}

/// The lengths of the records in `bytes`, without what encryption adds to the plaintext of each.
fn plaintext_lengths(mut bytes: &[u8], added: usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let [23, 3, 3, high, low, rest @ ..] = bytes {
        let length = usize::from(*high) << 8 | usize::from(*low);
        lengths.push(length - added);
        bytes = &rest[length..];
    }
    assert!(bytes.is_empty());
    lengths
}

#[test]
fn a_write_makes_full_records_whatever_its_slices() {
    let world = world(None);
    // TLS 1.3 adds a type and a tag, TLS 1.2 a nonce and a tag.
    for ((versions, _), added) in VERSIONS.into_iter().zip([24, 17]) {
        let connector = Arc::new(client(&world.ca, versions, None, &[]));
        let data: Vec<u8> = (0..40_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for size in [700, 2047, 2048, 2049, 16_384, 40_000] {
            let (mut client, mut session) = handshake(world.config.http(), &connector).unwrap();
            let slices: Vec<_> = data.chunks(size).map(IoSlice::new).collect();
            assert_eq!(session.write(&slices), data.len());
            let bytes = drain(&mut session);
            assert_eq!(plaintext_lengths(&bytes, added), [16_384, 16_384, 7_232], "slices of {size} bytes");
            let mut seen = Vec::new();
            for piece in bytes.chunks(10_000) {
                give(&mut client, piece).unwrap();
                let mut into = [0; 20_000];
                while let Ok(n @ 1..) = client.reader().read(&mut into) {
                    seen.extend_from_slice(&into[..n]);
                }
            }
            assert!(seen == data);
        }
        // More slices than are taken at once.
        let (mut client, mut session) = handshake(world.config.http(), &connector).unwrap();
        let mut rest: Vec<_> = data[..500].chunks(5).map(IoSlice::new).collect();
        while !rest.is_empty() {
            let taken = session.write(&rest);
            assert!(taken > 0 && taken % 5 == 0);
            rest.drain(..taken / 5);
        }
        pump(&mut client, &mut session).unwrap();
        let mut into = [0; 500];
        client.reader().read_exact(&mut into).unwrap();
        assert!(into == data[..500]);
    }
}

#[test]
fn outgoing_data_is_bounded() {
    let world = world(None);
    for (versions, _) in VERSIONS {
        let connector = Arc::new(client(&world.ca, versions, None, &[]));
        for size in [1, 100, 20_000, 1 << 20] {
            let (_client, mut session) = handshake(world.config.http(), &connector).unwrap();
            let data = vec![7; size];
            let mut total = 0;
            loop {
                match session.write(&[IoSlice::new(&data)]) {
                    0 => break,
                    n => total += n,
                }
            }
            assert!(session.takes_plaintext() && session.wants_write());
            let bytes = drain(&mut session);
            assert!(bytes.len() >= total && bytes.len() < OUTGOING_LIMIT + 200);
            assert!(session.write(&[IoSlice::new(&data)]) > 0, "there is room again");
        }
    }
}

#[test]
fn incoming_data_is_bounded() {
    let world = world(None);
    for (versions, _) in VERSIONS {
        let connector = Arc::new(client(&world.ca, versions, None, &[]));
        for size in [1, 100, 16 * 1024] {
            let (mut client, mut session) = handshake(world.config.http(), &connector).unwrap();
            let mut up = Vec::new();
            while up.len() < 200_000 {
                client.writer().write_all(&vec![1; size]).unwrap();
                up.extend(drain_client(&mut client));
            }
            let mut taken = 0;
            loop {
                let fed = session.feed(&up[taken..]).unwrap();
                assert!(fed.readable < 33 * 1024);
                taken += fed.taken;
                if fed.taken == 0 {
                    break;
                }
            }
            assert!(taken < 41 * 1024, "{taken} bytes were taken");
            session.shrink();
            let mut seen = 0;
            while taken < up.len() || seen == 0 {
                while let Read::Bytes(n) = read(&mut session, &mut [0; 5000]).unwrap() {
                    seen += n;
                }
                taken += session.feed(&up[taken..]).unwrap().taken;
            }
        }
    }
}

#[test]
fn either_side_can_end_first() {
    let world = world(None);
    for (versions, _) in VERSIONS {
        let connector = Arc::new(client(&world.ca, versions, None, &[]));
        let (mut client, mut session) = handshake(world.config.http(), &connector).unwrap();
        assert_eq!(session.write(&[IoSlice::new(b"last words")]), 10);
        session.send_close_notify();
        session.send_close_notify();
        assert_eq!(session.write(&[IoSlice::new(b"more")]), 0);
        assert!(!session.takes_plaintext());
        client.writer().write_all(b"still here").unwrap();
        pump(&mut client, &mut session).unwrap();
        let mut into = Vec::new();
        client.reader().read_to_end(&mut into).unwrap();
        assert_eq!(into, b"last words");
        let mut into = [0; 32];
        assert_eq!(read(&mut session, &mut into).unwrap(), Read::Bytes(10));
        client.send_close_notify();
        let mut up = drain_client(&mut client);
        up.extend_from_slice(b"bytes after the end");
        let fed = session.feed(&up).unwrap();
        assert!(fed.ended && fed.taken == up.len());
        assert_eq!(read(&mut session, &mut into).unwrap(), Read::End);
        assert!(session.feed(b"and more").unwrap().ended);
        session.end_of_input();
        assert_eq!(read(&mut session, &mut into).unwrap(), Read::End);
    }
}

#[test]
fn the_client_can_end_first_and_still_be_answered() {
    let world = world(None);
    for (versions, _) in VERSIONS {
        let connector = Arc::new(client(&world.ca, versions, None, &[]));
        let (mut client, mut session) = handshake(world.config.http(), &connector).unwrap();
        client.writer().write_all(b"question").unwrap();
        client.send_close_notify();
        pump(&mut client, &mut session).unwrap();
        let mut into = [0; 32];
        assert_eq!(read(&mut session, &mut into).unwrap(), Read::Bytes(8));
        assert_eq!(read(&mut session, &mut into).unwrap(), Read::End);
        assert_eq!(session.write(&[IoSlice::new(b"answer")]), 6);
        session.send_close_notify();
        pump(&mut client, &mut session).unwrap();
        let mut answer = Vec::new();
        client.reader().read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"answer");
    }
}
