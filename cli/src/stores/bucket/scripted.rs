//! A small store with the interface of S3 in this process, for tests. It fails as it is told.

use super::{BucketStore, Limits};
use crate::backup_settings::{BucketSettings, Credentials};
use percent_encoding::percent_decode_str;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The bucket that each store of these tests has, and who may use it.
pub(super) const BUCKET: &str = "nigh-backups";
pub(super) const ACCESS_KEY: &str = "AKIAEXAMPLE";
pub(super) const SECRET_KEY: &str = "wJalrXUtnFEMI-example-secret";

/// Limits that tests can wait for.
pub(super) const SHORT: Limits = Limits {
    connect: Duration::from_secs(5),
    request: Duration::from_millis(500),
    complete: Duration::from_millis(500),
    bytes_per_second_min: u64::MAX,
    retries: 2,
    backoff: Duration::from_millis(5),
    backoff_max: Duration::from_millis(20),
};

/// The settings for a server of this machine.
pub(super) fn settings(port: u16) -> BucketSettings {
    BucketSettings {
        bucket: BUCKET.to_owned(),
        endpoint: format!("http://127.0.0.1:{port}"),
        region: "us-east-1".to_owned(),
        path_style: true,
        prefix: "t".to_owned(),
        credentials: Credentials {
            access_key: ACCESS_KEY.to_owned(),
            secret_key: SECRET_KEY.to_owned(),
            session_token: None,
        },
    }
}

/// A store there.
pub(super) fn open(port: u16, limits: Limits) -> BucketStore {
    BucketStore::open(settings(port), RootCertStore::empty(), limits).unwrap()
}

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The answer has this status and names this error, and nothing was done.
    Answer(u16, &'static str),
    /// The request was carried out, and the answer says that it failed.
    AnswerAfter(u16, &'static str),
    /// The request was carried out, and the connection closes without an answer.
    CloseAfter,
    /// The answer has status 200, and its document says that the request failed.
    LateError,
    /// The connection closes in the middle of the body of the answer.
    HalfBody,
    /// The body of the answer comes byte by byte, too slowly to be awaited.
    Trickle,
    /// No answer comes.
    Silence,
    /// The answer lacks its ETag.
    NoEtag,
    /// The answer has the ETag of something else.
    WrongEtag,
    /// What the request forbids is done.
    Overwrite,
}

/// A request as it was received.
#[derive(Clone, Debug)]
pub(super) struct Received {
    pub method: String,
    /// The key, decoded; empty for the bucket.
    pub key: String,
    pub query: BTreeMap<String, String>,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Received {
    /// What it asks for, in one word.
    pub fn kind(&self) -> &'static str {
        let has = |name: &str| self.query.contains_key(name);
        match self.method.as_str() {
            "PUT" if has("partNumber") => "part",
            "PUT" => "put",
            "POST" if has("uploads") => "begin",
            "POST" => "complete",
            "GET" if has("uploads") => "uploads",
            "GET" if has("list-type") => "list",
            "GET" => "get",
            "HEAD" => "head",
            "DELETE" if has("uploadId") => "abort",
            "DELETE" => "delete",
            _ => "other",
        }
    }
}

type Script = dyn Fn(&Received) -> Option<Fault> + Send + Sync;

/// The store. Its threads end with their connections.
pub(super) struct Scripted {
    pub port: u16,
    state: Arc<Mutex<Contents>>,
}

#[derive(Default)]
struct Contents {
    /// Bytes, and the upload in the metadata.
    objects: BTreeMap<String, (Vec<u8>, String)>,
    uploads: BTreeMap<String, Begun>,
    next_upload: usize,
    received: Vec<Received>,
}

struct Begun {
    key: String,
    id: String,
    parts: BTreeMap<usize, Vec<u8>>,
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn ok(body: impl Into<Vec<u8>>) -> Answer {
        Answer { status: 200, headers: Vec::new(), body: body.into() }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.headers.push((name, value.into()));
        self
    }

    fn error(status: u16, code: &str) -> Answer {
        let document = format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>A test wants it.</Message>\
             <AWSAccessKeyId>{ACCESS_KEY}</AWSAccessKeyId></Error>"
        );
        Answer { status, ..Answer::ok(document) }
    }
}

fn lock(state: &Mutex<Contents>) -> MutexGuard<'_, Contents> {
    state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Scripted {
    /// `script` says how a request fails, if it does.
    pub fn start(script: impl Fn(&Received) -> Option<Fault> + Send + Sync + 'static) -> Scripted {
        Scripted::start_with(None, script)
    }

    /// A store over TLS, for the host `localhost`, and the certificate that says so.
    pub fn start_secure() -> (Scripted, CertificateDer<'static>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        (Scripted::start_with(Some(Arc::new(config)), |_| None), certificate)
    }

    fn start_with(
        tls: Option<Arc<ServerConfig>>,
        script: impl Fn(&Received) -> Option<Fault> + Send + Sync + 'static,
    ) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state: Arc<Mutex<Contents>> = Arc::default();
        let (of_threads, script): (_, Arc<Script>) = (state.clone(), Arc::new(script));
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (state, script, tls) = (of_threads.clone(), script.clone(), tls.clone());
                std::thread::spawn(move || {
                    socket.set_nodelay(true).unwrap();
                    // A client may go at any time.
                    let _gone = match tls {
                        None => converse(socket, &state, &*script),
                        Some(tls) => {
                            let session = ServerConnection::new(tls).unwrap();
                            converse(StreamOwned::new(session, socket), &state, &*script)
                        }
                    };
                });
            }
        });
        Scripted { port, state }
    }

    /// What each request of this kind, of those so far, was.
    pub fn received(&self, kind: &str) -> Vec<Received> {
        lock(&self.state).received.iter().filter(|received| received.kind() == kind).cloned().collect()
    }

    pub fn open_uploads(&self) -> usize {
        lock(&self.state).uploads.len()
    }

    pub fn keys(&self) -> Vec<String> {
        lock(&self.state).objects.keys().cloned().collect()
    }

    pub fn bytes(&self, key: &str) -> Option<Vec<u8>> {
        lock(&self.state).objects.get(key).map(|(bytes, _)| bytes.clone())
    }

    /// Puts an object there that another program has written.
    pub fn put(&self, key: &str, bytes: &[u8]) {
        lock(&self.state).objects.insert(key.to_owned(), (bytes.to_vec(), String::new()));
    }
}

fn converse(stream: impl Read + Write, state: &Mutex<Contents>, script: &Script) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(request) = receive(&mut reader)? {
        lock(state).received.push(request.clone());
        let fault = script(&request);
        let mut answer = match fault {
            Some(Fault::Answer(status, code)) => Answer::error(status, code),
            Some(Fault::Silence) => {
                std::thread::sleep(Duration::from_secs(5));
                return Ok(());
            }
            _ => lock(state).carry_out(&request, fault == Some(Fault::Overwrite)),
        };
        match fault {
            Some(Fault::AnswerAfter(status, code)) => answer = Answer::error(status, code),
            Some(Fault::CloseAfter) => return Ok(()),
            Some(Fault::LateError) => answer = Answer { status: 200, ..Answer::error(200, "InternalError") },
            Some(Fault::NoEtag) => answer.headers.retain(|(name, _)| *name != "ETag"),
            Some(Fault::WrongEtag) => {
                answer.headers.retain(|(name, _)| *name != "ETag");
                answer.headers.push(("ETag", "\"of something else\"".to_owned()));
            }
            _ => {}
        }
        let writer = reader.get_mut();
        write!(writer, "HTTP/1.1 {} Status\r\nContent-Length: {}\r\n", answer.status, answer.body.len())?;
        for (name, value) in &answer.headers {
            write!(writer, "{name}: {value}\r\n")?;
        }
        writer.write_all(b"\r\n")?;
        if request.method == "HEAD" {
            continue;
        }
        match fault {
            Some(Fault::HalfBody) => return writer.write_all(&answer.body[..answer.body.len() / 2]),
            Some(Fault::Trickle) => {
                for byte in answer.body {
                    writer.write_all(&[byte])?;
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
            _ => writer.write_all(&answer.body)?,
        }
    }
    Ok(())
}

fn receive(reader: &mut impl BufRead) -> io::Result<Option<Received>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap().to_owned(), words.next().unwrap());
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let key = path.strip_prefix(&format!("/{BUCKET}")).unwrap().trim_start_matches('/');
    let query = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(&value.replace('+', " ")))
    });
    let (key, query) = (decoded(key), query.collect());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let len = headers.get("content-length").map_or(0, |len| len.parse().unwrap());
    let mut body = vec![0; len];
    reader.read_exact(&mut body)?;
    Ok(Some(Received { method, key, query, headers, body }))
}

impl Contents {
    fn carry_out(&mut self, request: &Received, overwrites: bool) -> Answer {
        let key = request.key.clone();
        let etag = || "\"0123\"".to_owned();
        let is_taken = |contents: &Contents| {
            request.headers.get("if-none-match").is_some_and(|value| value == "*")
                && contents.objects.contains_key(&key)
                && !overwrites
        };
        let id = || request.headers.get("x-amz-meta-nigh-upload").cloned().unwrap_or_default();
        let upload = || request.query.get("uploadId").cloned().unwrap_or_default();
        if !request.headers.get("authorization").is_some_and(|value| value.starts_with("AWS4-HMAC-SHA256 ")) {
            return Answer::error(403, "AccessDenied");
        }
        match request.kind() {
            "put" if is_taken(self) => Answer::error(412, "PreconditionFailed"),
            "put" => {
                self.objects.insert(key, (request.body.clone(), id()));
                Answer::ok("").with("ETag", etag())
            }
            "begin" => {
                self.next_upload += 1;
                let name = format!("upload-{}", self.next_upload);
                self.uploads.insert(name.clone(), Begun { key, id: id(), parts: BTreeMap::new() });
                Answer::ok(format!(
                    "<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
                ))
            }
            "part" => match self.uploads.get_mut(&upload()) {
                Some(begun) => {
                    let number: usize = request.query["partNumber"].parse().unwrap();
                    begun.parts.insert(number, request.body.clone());
                    Answer::ok("").with("ETag", format!("\"part-{number}\""))
                }
                None => Answer::error(404, "NoSuchUpload"),
            },
            "complete" if !self.uploads.contains_key(&upload()) => Answer::error(404, "NoSuchUpload"),
            "complete" if is_taken(self) => Answer::error(412, "PreconditionFailed"),
            "complete" => {
                let body = String::from_utf8_lossy(&request.body).into_owned();
                let begun = &self.uploads[&upload()];
                if !begun.parts.keys().all(|number| body.contains(&format!("part-{number}"))) {
                    return Answer::error(400, "InvalidPart");
                }
                let begun = self.uploads.remove(&upload()).unwrap();
                let bytes = begun.parts.into_values().flatten().collect();
                self.objects.insert(key, (bytes, begun.id));
                Answer::ok(
                    "<CompleteMultipartUploadResult><ETag>\"0123\"</ETag></CompleteMultipartUploadResult>",
                )
            }
            "abort" => match self.uploads.remove(&upload()) {
                Some(_) => Answer { status: 204, ..Answer::ok("") },
                None => Answer::error(404, "NoSuchUpload"),
            },
            "delete" => {
                self.objects.remove(&key);
                Answer { status: 204, ..Answer::ok("") }
            }
            "get" | "head" => self.get(request),
            "list" => self.list(request),
            "uploads" => {
                let uploads: String = self
                    .uploads
                    .iter()
                    .map(|(name, begun)| {
                        format!("<Upload><Key>{}</Key><UploadId>{name}</UploadId><Initiated>2020-01-01T00:00:00.000Z</Initiated></Upload>", begun.key)
                    })
                    .collect();
                Answer::ok(format!(
                    "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>{uploads}</ListMultipartUploadsResult>"
                ))
            }
            _ => Answer::error(405, "MethodNotAllowed"),
        }
    }

    fn get(&self, request: &Received) -> Answer {
        let Some((bytes, id)) = self.objects.get(&request.key) else {
            return Answer::error(404, "NoSuchKey");
        };
        let answer = |bytes: &[u8]| {
            let date = "Wed, 01 Jan 2025 00:00:00 GMT";
            Answer::ok(bytes)
                .with("ETag", "\"0123\"")
                .with("Last-Modified", date)
                .with("x-amz-meta-nigh-upload", id.as_str())
        };
        let Some(range) = request.headers.get("range") else { return answer(bytes) };
        let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap_or(usize::MAX));
        if first >= bytes.len() {
            return Answer::error(416, "InvalidRange");
        }
        let last = last.min(bytes.len() - 1);
        let range = format!("bytes {first}-{last}/{}", bytes.len());
        Answer { status: 206, ..answer(&bytes[first..=last]).with("Content-Range", range) }
    }

    fn list(&self, request: &Received) -> Answer {
        let text = |name: &str| request.query.get(name).cloned().unwrap_or_default();
        let (prefix, after) = (text("prefix"), text("start-after"));
        let page: usize = text("max-keys").parse().unwrap_or(1000).min(1000);
        let after = self.objects.range::<String, _>((Bound::Excluded(&after), Bound::Unbounded));
        let mut found = after.filter(|(key, _)| key.starts_with(&prefix));
        let mut document = String::new();
        for (key, (bytes, _)) in found.by_ref().take(page) {
            document += &format!(
                "<Contents><Key>{key}</Key><LastModified>2025-01-01T00:00:00.000Z</LastModified><ETag>\"0123\"</ETag><Size>{}</Size></Contents>",
                bytes.len()
            );
        }
        if found.next().is_some() {
            document += "<IsTruncated>true</IsTruncated><NextContinuationToken>next</NextContinuationToken>";
        }
        Answer::ok(format!("<ListBucketResult>{document}</ListBucketResult>"))
    }
}
