//! A node of two cores in memory behind real sockets, and a client that speaks JSON to it.
use super::{Answer, answer, send};
use nigh_net::auth::{Authenticator, Open};
use nigh_net::metrics::Telemetry;
use nigh_net::{HttpConfig, bind, serve};
use nigh_shard::cores::Placement;
use nigh_shard::device::Devices;
use nigh_shard::kv::KeysOptions;
use nigh_shard::log::SyncMode;
use nigh_shard::node::{IMAGE_RECORDS_MIN, LOG_BYTES_SOFT, NodeOptions, SEGMENT_BYTES};
use nigh_shard::start::{Node, Serve};
use serde_json::{Value, json};
use std::io::BufReader;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

pub struct Server {
    node: Option<Node>,
    address: SocketAddr,
}

/// A node in memory.
pub fn options() -> NodeOptions {
    NodeOptions {
        data: None,
        shards: 256,
        sync: SyncMode::Always,
        memory_limit_bytes: 4 << 30,
        segment_bytes: SEGMENT_BYTES,
        log_bytes_soft: LOG_BYTES_SOFT,
        image_records_min: IMAGE_RECORDS_MIN,
        sweep_interval_ms: 100,
        keys: KeysOptions::new(1 << 30),
        devices: Devices::default(),
        backup: Default::default(),
        give_back_memory: || {},
    }
}

impl Server {
    pub fn start(auth: Arc<dyn Authenticator>, access_log: bool) -> Server {
        Server::start_with(auth, access_log, Devices::default())
    }

    pub fn start_with(auth: Arc<dyn Authenticator>, access_log: bool, devices: Devices) -> Server {
        let listeners = bind("127.0.0.1:0", 2).unwrap();
        let address = listeners[0].local_addr().unwrap();
        let listeners = Mutex::new(listeners);
        let telemetry = Arc::new(Telemetry::new(2));
        let serving: Serve = Arc::new(move |core| {
            let listener = listeners.lock().unwrap().pop().unwrap();
            let mut config = HttpConfig::new(auth.clone(), telemetry.clone());
            config.access_log = access_log;
            Box::pin(async move { serve(core, listener, Rc::new(config)).await.unwrap() })
        });
        let options = NodeOptions { devices, ..options() };
        let node = Node::start(options, &Placement::unpinned(2), serving).unwrap();
        Server { node: Some(node), address }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            node.stop().unwrap();
        }
    }
}

/// Most tests share one server and keep to a collection of their own.
pub static SHARED: LazyLock<Server> = LazyLock::new(|| Server::start(Arc::new(Open), false));

pub struct Client {
    stream: BufReader<TcpStream>,
    pub token: Option<String>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream: BufReader::new(stream), token: None }
    }

    pub fn request(&mut self, method: &str, path: &str, content_type: &str, body: &[u8]) -> Answer {
        let authorization = match &self.token {
            Some(token) => format!("authorization: {token}\r\n"),
            None => String::new(),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {content_type}\r\n{authorization}content-length: {}\r\n\r\n",
            body.len()
        );
        send(&mut self.stream, [head.as_bytes(), body].concat());
        answer(&mut self.stream, method != "HEAD").unwrap()
    }

    /// Sends JSON text (or nothing), returns status and body text.
    pub fn text(&mut self, method: &str, path: &str, body: &str) -> (u16, String) {
        let answer = self.request(method, path, "application/json", body.as_bytes());
        assert_eq!(answer.header("content-type"), Some("application/json"), "{method} {path}");
        assert!(answer.text().ends_with('\n'), "{method} {path}: {}", answer.text());
        (answer.status, answer.text().to_owned())
    }

    /// Expects exactly this answer.
    #[track_caller]
    pub fn golden(&mut self, method: &str, path: &str, body: &str, status: u16, expected: &str) {
        assert_eq!(
            self.text(method, path, body),
            (status, format!("{expected}\n")),
            "{method} {path} {body}"
        );
    }

    /// Expects an error of this status whose text holds `fragment`.
    #[track_caller]
    pub fn refused(&mut self, method: &str, path: &str, body: &str, status: u16, fragment: &str) {
        let (got, text) = self.text(method, path, body);
        assert_eq!(got, status, "{method} {path} {body}: {text}");
        let error: Value = serde_json::from_str(&text).unwrap();
        let error = error["error"].as_str().unwrap();
        assert!(error.contains(fragment), "{method} {path} {body}: {error} lacks {fragment}");
    }

    pub fn json(&mut self, method: &str, path: &str, body: Value) -> Value {
        let (status, text) = self.text(method, path, &body.to_string());
        assert!(status < 300, "{method} {path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    pub fn create(&mut self, name: &str, dim: usize, metric: &str) {
        let config = json!({"dim": dim, "metric": metric, "m": 16, "ef_construction": 200, "ef_search": 64,
            "seed": 0, "quant": "", "persistent": false, "rescore_factor": 3});
        let body = json!({"name": name, "config": config}).to_string();
        self.golden("POST", "/v1/collections", &body, 201, &format!("{{\"name\":\"{name}\"}}"));
    }
}
