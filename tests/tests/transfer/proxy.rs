//! A proxy of HTTP that does to requests what a test asks for.
use nigh::client::{Client, Target};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is answered by the server.
    Pass,
    /// The server is said to be busy.
    Busy,
    /// The connection is closed without an answer.
    Close,
    /// The server carries it out, and its answer is lost.
    Lose,
}

/// The proxy.
pub struct Proxy {
    /// `host:port`.
    pub authority: String,
    /// Requests so far.
    pub requests: Arc<AtomicUsize>,
}

impl Proxy {
    /// Begins to serve; `fate` is asked with the number of the request, from 0, and its path.
    pub fn before(authority: &str, fate: impl Fn(usize, &str) -> Fate + Send + Sync + 'static) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let proxy =
            Proxy { authority: listener.local_addr().expect("bound").to_string(), requests: Arc::default() };
        let target = Target { authority: authority.to_owned(), ..Target::default() };
        let (requests, fate) = (proxy.requests.clone(), Arc::new(fate));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (target, requests, fate) = (target.clone(), requests.clone(), fate.clone());
                std::thread::spawn(move || serve(stream, &target, &requests, &*fate));
            }
        });
        proxy
    }
}

fn serve(mut stream: TcpStream, target: &Target, requests: &AtomicUsize, fate: &dyn Fn(usize, &str) -> Fate) {
    let Ok(mut client) = Client::connect(target) else { return };
    while let Some(request) = read_request(&mut stream) {
        let head = String::from_utf8_lossy(&request[..request.len().min(500)]).into_owned();
        let path = head.split(' ').nth(1).unwrap_or_default();
        let answer = match fate(requests.fetch_add(1, Ordering::SeqCst), path) {
            Fate::Close => return,
            Fate::Busy => {
                b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 16\r\n\r\n{\"error\":\"busy\"}".to_vec()
            }
            fate => {
                let Ok(response) = client.send(&request) else { return };
                if fate == Fate::Lose {
                    return;
                }
                let head = format!(
                    "HTTP/1.1 {} Answer\r\nContent-Length: {}\r\n\r\n",
                    response.status,
                    response.body.len()
                );
                [head.as_bytes(), response.body].concat()
            }
        };
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

/// A whole request; `None` at the end of the connection.
fn read_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 65_536];
    loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..at]).to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
            if bytes.len() >= at + 4 + length.unwrap_or(0) {
                return Some(bytes);
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
        }
    }
}
