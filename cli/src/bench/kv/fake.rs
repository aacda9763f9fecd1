//! Servers for the tests: a map behind each protocol, written apart from the encoders, and faults on demand.
use super::options::ProtocolName;
use nigh_net::op::KvOp;
use nigh_net::tcp::frame::{self, Decoded};
use nigh_net::tcp::kv::{self, KvRequest};
use nigh_shard::kv::batch::KeyOp;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a server does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// One byte of each value read is another.
    WrongByte,
    /// Values read lack their last byte.
    Short,
    /// Every SET is refused.
    Refuses,
    /// Answers arrive one byte at a time.
    Dribbles,
    /// Every answer takes 20 ms.
    Slow,
    /// The connection is closed after ten answers.
    Closes,
    /// GETs are never answered.
    Silent,
    /// Answers are not of the protocol.
    Babbles,
    /// Refuses the first request because it is not over TLS, and closes the connection.
    ExpectsTls,
}

/// What was asked.
enum Asked {
    Get(Vec<u8>),
    Set(Vec<u8>, Vec<u8>, Option<u64>),
}

/// Value and time to live (in the protocol's unit) of every key.
type Map = HashMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

/// A server that runs until the test ends.
pub struct Fake {
    /// host:port.
    pub address: String,
    /// What it keeps.
    pub map: Arc<Mutex<Map>>,
}

impl Fake {
    /// Starts one; `token` is what a Nigh server asks for.
    pub fn start(protocol: ProtocolName, fault: Fault, token: &'static [u8]) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let map = Arc::new(Mutex::new(Map::new()));
        let shared = map.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, map) = (stream.unwrap(), shared.clone());
                std::thread::spawn(move || serve(stream, protocol, fault, token, &map));
            }
        });
        Fake { address, map }
    }
}

fn serve(stream: TcpStream, protocol: ProtocolName, fault: Fault, token: &[u8], map: &Mutex<Map>) {
    stream.set_nodelay(true).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    let mut answered = 0;
    loop {
        let asked = match protocol {
            ProtocolName::Nigh => ask_nigh(&mut reader, token),
            ProtocolName::Memcached => ask_memcached(&mut reader).map(Ok),
            ProtocolName::Redis => ask_redis(&mut reader).map(Ok),
        };
        let Some(asked) = asked else { return };
        let answer = match asked {
            Err(refusal) => refusal,
            Ok(_) if fault == Fault::Babbles => b"?????????????\r\n".to_vec(),
            Ok(_) if fault == Fault::ExpectsTls => {
                let mut refusal = Vec::new();
                frame::put_error(&mut refusal, "this port expects TLS");
                let _gone = writer.write_all(&refusal);
                return;
            }
            Ok(Asked::Get(_)) if fault == Fault::Silent => continue,
            Ok(Asked::Get(key)) => {
                let value = map.lock().unwrap().get(&key).map(|(value, _)| value.clone());
                get_answer(protocol, value.map(|value| spoilt(value, fault)))
            }
            Ok(Asked::Set(..)) if fault == Fault::Refuses => refusal(protocol),
            Ok(Asked::Set(key, value, ttl)) => {
                map.lock().unwrap().insert(key, (value, ttl));
                match protocol {
                    ProtocolName::Nigh => vec![0, 0, 0, 5, 0, 0, 0, 0, 0],
                    ProtocolName::Memcached => b"HD\r\n".to_vec(),
                    ProtocolName::Redis => b"+OK\r\n".to_vec(),
                }
            }
        };
        if fault == Fault::Slow {
            std::thread::sleep(Duration::from_millis(20));
        }
        let pieces = if fault == Fault::Dribbles { 1 } else { answer.len() };
        for piece in answer.chunks(pieces) {
            if writer.write_all(piece).is_err() {
                return;
            }
        }
        answered += 1;
        if fault == Fault::Closes && answered == 10 {
            return;
        }
    }
}

fn spoilt(mut value: Vec<u8>, fault: Fault) -> Vec<u8> {
    match fault {
        Fault::WrongByte => value[0] ^= 1,
        Fault::Short => value.truncate(value.len() - 1),
        _ => {}
    }
    value
}

fn get_answer(protocol: ProtocolName, value: Option<Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::new();
    match (protocol, value) {
        (ProtocolName::Nigh, Some(value)) => frame::put_ok(&mut out, |out| out.extend_from_slice(&value)),
        (ProtocolName::Nigh, None) => frame::put_not_found(&mut out),
        (ProtocolName::Memcached, Some(value)) => {
            out = [format!("VA {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
        }
        (ProtocolName::Memcached, None) => out = b"EN\r\n".to_vec(),
        (ProtocolName::Redis, Some(value)) => {
            out = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
        }
        (ProtocolName::Redis, None) => out = b"$-1\r\n".to_vec(),
    }
    out
}

fn refusal(protocol: ProtocolName) -> Vec<u8> {
    let mut out = Vec::new();
    match protocol {
        ProtocolName::Nigh => frame::put_error(&mut out, "store full"),
        ProtocolName::Memcached => out = b"SERVER_ERROR store full\r\n".to_vec(),
        ProtocolName::Redis => out = b"-OOM store full\r\n".to_vec(),
    }
    out
}

/// The next request, `None` at the end of the stream; bytes to answer when it is refused.
fn ask_nigh(reader: &mut impl Read, token: &[u8]) -> Option<Result<Asked, Vec<u8>>> {
    let mut bytes = vec![0; 4];
    reader.read_exact(&mut bytes).ok()?;
    let len = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    bytes.resize(4 + len, 0);
    reader.read_exact(&mut bytes[4..]).ok()?;
    let Decoded::Request { frame, consumed } = frame::decode(&bytes) else { panic!("no request: {bytes:?}") };
    assert_eq!(consumed, bytes.len());
    if frame.token.unwrap_or_default() != token {
        let mut out = Vec::new();
        frame::put_unauthorized(&mut out);
        return Some(Err(out));
    }
    let op = if frame.operation == b"get" { KvOp::Get } else { KvOp::Put };
    Some(Ok(match kv::decode(op, frame.args).expect("good arguments") {
        KvRequest::One(KeyOp::Get { key }) => Asked::Get(key.to_vec()),
        KvRequest::One(KeyOp::Change(nigh_engine::kv::Op::Put { key, value, ttl_ms })) => {
            Asked::Set(key.to_vec(), value.to_vec(), Some(ttl_ms).filter(|&ttl| ttl > 0))
        }
        other => panic!("{other:?}"),
    }))
}

fn line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|&count| count > 0)?;
    Some(line.strip_suffix("\r\n").expect("lines end in CR LF").to_owned())
}

fn block(reader: &mut impl Read, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len + 2];
    reader.read_exact(&mut bytes).ok()?;
    assert_eq!(bytes[len..], *b"\r\n");
    bytes.truncate(len);
    Some(bytes)
}

fn ask_memcached(reader: &mut impl BufRead) -> Option<Asked> {
    let line = line(reader)?;
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["mg", key, "v"] => Some(Asked::Get(key.into())),
        ["ms", key, len, ref flags @ ..] => {
            let ttl = flags.first().map(|flag| flag.strip_prefix('T').unwrap().parse().unwrap());
            Some(Asked::Set(key.into(), block(reader, len.parse().unwrap())?, ttl))
        }
        _ => panic!("{line:?}"),
    }
}

fn ask_redis(reader: &mut impl BufRead) -> Option<Asked> {
    let count: usize = line(reader)?.strip_prefix('*').unwrap().parse().unwrap();
    let mut words = Vec::new();
    for _ in 0..count {
        let len = line(reader)?.strip_prefix('$').unwrap().parse().unwrap();
        words.push(block(reader, len)?);
    }
    let text = |word: &Vec<u8>| String::from_utf8(word.clone()).unwrap();
    match (text(&words[0]).as_str(), &words[1..]) {
        ("GET", [key]) => Some(Asked::Get(key.clone())),
        ("SET", [key, value]) => Some(Asked::Set(key.clone(), value.clone(), None)),
        ("SET", [key, value, px, millis]) if px == b"PX" => {
            Some(Asked::Set(key.clone(), value.clone(), Some(text(millis).parse().unwrap())))
        }
        _ => panic!("{words:?}"),
    }
}
