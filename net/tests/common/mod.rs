//! A plain HTTP client that sees every byte.
#![allow(dead_code, reason = "each program uses its part")]
pub mod asked;
pub mod grpc;
pub mod server;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

#[derive(Debug)]
/// An answer.
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

pub fn line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

/// Reads an answer; `has_body` is false for HEAD.
pub fn answer(stream: &mut BufReader<TcpStream>, has_body: bool) -> io::Result<Answer> {
    let status = line(stream)?.split(' ').nth(1).unwrap().parse().unwrap();
    let mut answer = Answer { status, headers: Vec::new(), body: Vec::new() };
    loop {
        let line = line(stream)?;
        match line.split_once(": ") {
            Some((name, value)) => answer.headers.push((name.to_lowercase(), value.to_owned())),
            None => break,
        }
    }
    if !has_body {
        return Ok(answer);
    }
    if let Some(length) = answer.header("content-length") {
        answer.body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut answer.body)?;
    } else if answer.header("transfer-encoding") == Some("chunked") {
        loop {
            let length = usize::from_str_radix(&line(stream)?, 16).unwrap();
            let mut chunk = vec![0; length + 2];
            stream.read_exact(&mut chunk)?;
            if length == 0 {
                break;
            }
            answer.body.extend_from_slice(&chunk[..length]);
        }
    }
    Ok(answer)
}

pub fn send(stream: &mut BufReader<TcpStream>, bytes: impl AsRef<[u8]>) {
    stream.get_mut().write_all(bytes.as_ref()).unwrap();
}

pub fn post(path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub fn is_closed(stream: &mut BufReader<TcpStream>) -> bool {
    matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_))
}
