//! A client for the keys of a server over the binary protocol, which reconnects after failures, with the operations that a transfer needs.
use super::header::KeyIndex;
use super::options::TcpTarget;
use crate::tcp_client::{CallError, Reply, TcpClient};
use crate::tls::explain;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::time::Duration;

/// Most rows of a page.
const PAGE_ROWS: u16 = 1_000;
/// Bits of the flags of `kv_query`.
const CURSOR: u8 = 2;
const SCAN: u8 = 4;
/// A query that returns values.
const WITH_VALUES: u8 = 1;
/// A cursor without groups is the end.
const END: &[u8] = &[0, 0, 0];
/// The first wait before another try; it doubles with each.
const WAIT_FIRST: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Parts of the messages of a server that is too busy for a query at the moment.
const BUSY: [&str; 4] =
    ["too many queries without an index", "the index is being", "still being opened", "try again"];

/// Whether a refusal says that the same request may succeed a little later, for example because the server has just been started.
pub fn is_passing(reason: &str) -> bool {
    BUSY.iter().any(|busy| reason.contains(busy))
}

/// A server.
pub struct KeyRemote {
    target: TcpTarget,
    client: Option<TcpClient>,
    failures: u32,
    retries: u32,
}

/// A key with its value, which is absent if it does not fit into a page.
pub struct Row {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Option<Vec<u8>>,
}

/// A page of keys in ascending order.
pub struct KeyPage {
    /// The rows.
    pub rows: Vec<Row>,
    /// Where the next page begins; empty after the last one.
    pub next: Vec<u8>,
}

/// The part of an answer that was not read yet.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or("the answer of the server is cut")?;
        self.0 = rest;
        Ok(bytes)
    }

    /// A big-endian number of `len` bytes, at most 8.
    fn number(&mut self, len: usize) -> Result<usize, String> {
        Ok(self.take(len)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Bytes that follow their length, which is a number of `len` bytes.
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], String> {
        let count = self.number(len)?;
        self.take(count)
    }
}

impl KeyRemote {
    /// A connection that is tried again up to `retries` times in a row.
    pub fn new(target: TcpTarget, retries: u32) -> KeyRemote {
        KeyRemote { target, client: None, failures: 0, retries }
    }

    /// The address of the server.
    pub fn address(&self) -> &str {
        &self.target.address
    }

    fn connect(&mut self) -> Result<&mut TcpClient, CallError> {
        match &mut self.client {
            Some(client) => Ok(client),
            none => {
                let TcpTarget { address, token, tls } = &self.target;
                Ok(none.insert(TcpClient::connect(address, token, tls.as_ref())?))
            }
        }
    }

    /// Sends what `push` pushes, and gives each of the `count` answers to `take`: the result, `None` where there is no such key, or a refusal.
    ///
    /// # Errors
    /// The connection failed: any of the requests may have been carried out. [`Self::wait`] comes before the next try.
    pub fn pipeline(
        &mut self,
        count: usize,
        push: impl FnOnce(&mut TcpClient),
        mut take: impl FnMut(usize, Result<Option<&[u8]>, String>),
    ) -> Result<(), CallError> {
        let mut passes = false;
        let run = |client: &mut TcpClient| {
            push(client);
            client.flush()?;
            for at in 0..count {
                match client.reply() {
                    Ok(Reply::Result(bytes)) => take(at, Ok(Some(bytes))),
                    Ok(Reply::NotFound) => take(at, Ok(None)),
                    Err(CallError::Refused(reason)) => {
                        passes |= is_passing(&reason);
                        take(at, Err(reason));
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        let done = self.connect().and_then(run);
        match &done {
            // The caller counts an answer that asks to try again as a failure.
            Ok(()) if passes => {}
            Ok(()) => self.failures = 0,
            Err(_) => self.client = None,
        }
        done
    }

    /// Waits before another try.
    ///
    /// # Errors
    /// A sentence about the failure, when there were too many in a row.
    pub fn wait(&mut self, failure: &str) -> Result<(), String> {
        self.failures += 1;
        if self.failures > self.retries {
            return Err(failure.to_owned());
        }
        std::thread::sleep(WAIT_FIRST.saturating_mul(1 << (self.failures - 1).min(10)).min(WAIT_MAX));
        Ok(())
    }

    /// The sentence about a connection that failed.
    pub fn sentence(&self, error: &CallError) -> String {
        match error {
            CallError::Connection(error) => explain::not_connected(&self.target.address, error, "-address"),
            CallError::Refused(reason) => reason.clone(),
        }
    }

    /// Sends a request that changes nothing, and repeats it until it is answered. Returns `None` if there is no such key.
    ///
    /// # Errors
    /// A sentence about the refusal, or about the last of too many failures in a row.
    fn ask(&mut self, operation: &str, args: &dyn Fn(&mut Vec<u8>)) -> Result<Option<Vec<u8>>, String> {
        loop {
            let mut answer = Ok(None);
            let called = self.pipeline(
                1,
                |client| client.push(operation, args),
                |_, reply| answer = reply.map(|bytes| bytes.map(<[u8]>::to_vec)),
            );
            match (called, answer) {
                (Err(error), _) => {
                    let sentence = self.sentence(&error);
                    self.wait(&sentence)?;
                }
                (Ok(()), Err(reason)) if is_passing(&reason) => self.wait(&reason)?,
                (Ok(()), Err(reason)) if reason.contains("not registered") => {
                    return Err(format!("{reason}; the server needs -kv-query"));
                }
                (Ok(()), answer) => return answer,
            }
        }
    }

    /// A page of keys after `cursor` (empty for the first one), in ascending order, read through `index` unless this is empty.
    ///
    /// # Errors
    /// A sentence.
    pub fn page(&mut self, index: &str, cursor: &[u8]) -> Result<KeyPage, String> {
        let answer = self.ask("kv_query", &|out| {
            out.push(SCAN | if cursor.is_empty() { 0 } else { CURSOR });
            out.push(index.len() as u8);
            out.extend_from_slice(index.as_bytes());
            out.extend_from_slice(&PAGE_ROWS.to_be_bytes());
            out.extend_from_slice(&[WITH_VALUES, 0]);
            if !cursor.is_empty() {
                out.extend_from_slice(&(cursor.len() as u32).to_be_bytes());
                out.extend_from_slice(cursor);
            }
        })?;
        let answer = answer.ok_or("the server has no page of keys")?;
        let mut parts = Parts(&answer);
        let mut rows = Vec::new();
        for _ in 0..parts.number(4)? {
            let key = parts.bytes(2)?.to_vec();
            let value = match parts.number(1)? {
                0 => None,
                _ => Some(parts.bytes(4)?.to_vec()),
            };
            rows.push(Row { key, value });
        }
        let next = if parts.0 == END { Vec::new() } else { parts.0.to_vec() };
        Ok(KeyPage { rows, next })
    }

    /// The value of a key.
    ///
    /// # Errors
    /// A sentence.
    pub fn value(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        self.ask("get", &|out| put_key(out, key))
    }

    /// Milliseconds until each of these keys expires: 0 if it does not, `None` if there is no such key any more.
    ///
    /// # Errors
    /// A sentence.
    pub fn ttls(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<u64>>, String> {
        loop {
            let mut ttls = Vec::with_capacity(keys.len());
            let mut refused = None;
            let called = self.pipeline(
                keys.len(),
                |client| keys.iter().for_each(|key| client.push("ttl", |out| put_key(out, key))),
                |_, reply| match reply {
                    Ok(bytes) => {
                        ttls.push(bytes.and_then(|bytes| bytes.try_into().ok()).map(i64::from_be_bytes))
                    }
                    Err(reason) => refused = Some(reason),
                },
            );
            match (called, refused) {
                (Ok(()), None) => {
                    let known = |ttl: Option<i64>| match ttl {
                        Some(-1) => Some(0),
                        Some(ms) => u64::try_from(ms).ok().map(|ms| ms.max(1)),
                        None => None,
                    };
                    return Ok(ttls.into_iter().map(known).collect());
                }
                (Ok(()), Some(reason)) if is_passing(&reason) => self.wait(&reason)?,
                (Ok(()), Some(reason)) => return Err(reason),
                (Err(error), _) => {
                    let sentence = self.sentence(&error);
                    self.wait(&sentence)?;
                }
            }
        }
    }

    /// The indexes that are defined.
    ///
    /// # Errors
    /// A sentence, also if the API key may not read them.
    pub fn indexes(&mut self) -> Result<Vec<KeyIndex>, String> {
        let answer = self.ask("__kv_index_list__", &|_| {})?.ok_or("the server has no list of indexes")?;
        let mut parts = Parts(&answer);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut indexes = Vec::new();
        for _ in 0..parts.number(2)? {
            let (name, prefix, path) = (parts.bytes(1)?, parts.bytes(1)?, parts.bytes(1)?);
            let (kind, is_enabled, _is_ready) = (parts.number(1)?, parts.number(1)?, parts.number(1)?);
            if is_enabled == 1 {
                indexes.push(KeyIndex {
                    name: text(name),
                    prefix_base64: STANDARD.encode(prefix),
                    path: text(path),
                    is_count: kind == 1,
                });
            }
        }
        Ok(indexes)
    }

    /// Defines an index.
    ///
    /// # Errors
    /// A sentence.
    pub fn define(&mut self, index: &KeyIndex) -> Result<(), String> {
        let prefix = STANDARD.decode(&index.prefix_base64).map_err(|error| format!("its prefix: {error}"))?;
        let parts = [index.name.as_bytes(), &prefix, index.path.as_bytes()];
        if parts.iter().any(|part| part.len() > usize::from(u8::MAX)) {
            return Err("its name, prefix or path is longer than 255 bytes".into());
        }
        self.ask("__kv_index_set__", &|out| {
            for part in parts {
                out.push(part.len() as u8);
                out.extend_from_slice(part);
            }
            out.extend_from_slice(&[index.is_count.into(), 1]);
        })?;
        Ok(())
    }
}

/// `s16` bytes, whose length has been checked.
pub fn put_key(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(&(key.len() as u16).to_be_bytes());
    out.extend_from_slice(key);
}
