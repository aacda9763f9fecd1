//! What the modules of both suites share.

use nigh_tests::{Access, Server};

const FLAGS: [&str; 5] = ["-cores", "2", "-tcp", "127.0.0.1:0", super::LOOPS];

/// A server of two cores in memory.
pub fn server() -> Server {
    Server::start(None, &FLAGS)
}

/// A server of two cores in memory, to which clients get access in the given mode.
pub fn guarded_server(access: &Access) -> Server {
    access.start(None, &FLAGS)
}

/// The bytes that `text` spells, two digits each; blanks do not count.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(|byte| char::from(byte).to_digit(16).expect("a digit") as u8)
        .collect();
    digits.chunks(2).map(|pair| 16 * pair[0] + pair[1]).collect()
}
