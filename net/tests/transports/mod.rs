//! The same requests over every transport: they mean the same, and are answered with the same.
mod batches;
mod configurations;
mod document_bulk;
mod families;
mod key_limits;
mod many;
mod mmr;
mod multi_vector;
mod named;
mod named_bulk;
mod options;
mod plain;
mod rights;
mod spaces;
mod string_ids;
mod texts;
mod versions;

use crate::common::grpc::GrpcClient;
use crate::common::server::{Client, options};
use nigh_net::auth::{Authenticator, Open};
use nigh_net::grpc::{self, GrpcConfig};
use nigh_net::metrics::Telemetry;
use nigh_net::tcp::reader::ArgsReader;
use nigh_net::tcp::{self, Loops, TcpConfig};
use nigh_net::tls::Tls;
use nigh_net::{HttpConfig, bind, serve};
use nigh_shard::cores::Placement;
use nigh_shard::node::NodeOptions;
use nigh_shard::start::{Node, Serve};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The address that the binary protocol says clients reach it by.
const ADVERTISED: &str = "db.example:7000";

/// A node that serves every transport to everybody.
pub struct Server {
    node: Option<Node>,
    rest: SocketAddr,
    binary: SocketAddr,
    calls: SocketAddr,
}

/// What the connections of a server are like.
pub struct Over {
    /// The TLS configuration; `None` for plain text.
    pub tls: Option<Arc<Tls>>,
    /// The loops that serve the binary protocol.
    pub loops: Loops,
    /// What the limits on slow clients take for a second.
    pub second: Duration,
}

impl Default for Over {
    fn default() -> Over {
        Over { tls: None, loops: Loops::Readiness, second: Duration::from_secs(1) }
    }
}

impl Server {
    pub fn start() -> Server {
        Server::start_with(options())
    }

    pub fn start_with(options: NodeOptions) -> Server {
        Server::start_as(Arc::new(Open), options)
    }

    /// Starts a server where `auth` decides who may do what.
    pub fn start_as(auth: Arc<dyn Authenticator>, options: NodeOptions) -> Server {
        Server::start_over(auth, options, Over::default())
    }

    /// Starts a server whose connections are as `over` says.
    pub fn start_over(auth: Arc<dyn Authenticator>, options: NodeOptions, over: Over) -> Server {
        let Over { tls, loops, second } = over;
        let [rest, binary, calls] = [(); 3].map(|()| bind("127.0.0.1:0", 2).unwrap());
        let [rest_at, binary_at, calls_at] =
            [&rest, &binary, &calls].map(|listeners| listeners[0].local_addr().unwrap());
        let listeners = Mutex::new(rest.into_iter().zip(binary).zip(calls).collect::<Vec<_>>());
        let telemetry = Arc::new(Telemetry::new(2));
        let serving: Serve = Arc::new(move |core| {
            let ((rest, binary), calls) = listeners.lock().unwrap().pop().unwrap();
            let tls = || tls.clone();
            let http = HttpConfig { tls: tls(), second, ..HttpConfig::new(auth.clone(), telemetry.clone()) };
            let advertised = Some(ADVERTISED.to_owned());
            let tcp = TcpConfig::new(auth.clone(), telemetry.clone());
            let tcp = TcpConfig { tls: tls(), loops, second, advertised, ..tcp };
            let config =
                GrpcConfig { tls: tls(), second, ..GrpcConfig::new(auth.clone(), telemetry.clone()) };
            Box::pin(async move {
                let rest = serve(core.clone(), rest, Rc::new(http));
                let calls = grpc::serve(core.clone(), calls, Rc::new(config));
                let binary = tcp::serve(core, binary, Rc::new(tcp));
                let zip = futures_lite::future::zip(futures_lite::future::zip(rest, binary), calls);
                let ((rest, binary), calls) = zip.await;
                rest.and(binary).and(calls).unwrap();
            })
        });
        let node = Node::start(options, &Placement::unpinned(2), serving).unwrap();
        Server { node: Some(node), rest: rest_at, binary: binary_at, calls: calls_at }
    }

    /// A client of each transport.
    pub fn clients(&self) -> Clients {
        Clients::connect(self.addresses())
    }

    /// Where REST, the binary protocol and gRPC are served.
    pub fn addresses(&self) -> [SocketAddr; 3] {
        [self.rest, self.binary, self.calls]
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            node.stop().unwrap();
        }
    }
}

/// A client of each transport.
pub struct Clients {
    pub rest: Client,
    pub binary: Binary,
    pub grpc: GrpcClient,
}

impl Clients {
    /// Connects to REST, the binary protocol and gRPC.
    pub fn connect([rest, binary, calls]: [SocketAddr; 3]) -> Clients {
        let binary = TcpStream::connect(binary).unwrap();
        binary.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        binary.set_nodelay(true).unwrap();
        Clients { rest: Client::connect(rest), binary: Binary(binary), grpc: GrpcClient::connect(calls) }
    }
}

/// A connection of the binary protocol.
pub struct Binary(TcpStream);

impl Binary {
    /// The result of an operation, or the sentence of its refusal.
    pub fn ask(&mut self, operation: &str, args: &Args) -> Result<Vec<u8>, String> {
        self.send(&[(operation, args)]).pop().unwrap()
    }

    /// Sends all operations before the first response is read.
    pub fn send(&mut self, operations: &[(&str, &Args)]) -> Vec<Result<Vec<u8>, String>> {
        let frames: Vec<Vec<u8>> = operations
            .iter()
            .map(|(operation, args)| {
                let len = (args.0.len() as u32).to_be_bytes();
                let name = [&[operation.len() as u8], operation.as_bytes()].concat();
                let body = [&name[..], &len, &args.0].concat();
                [&(body.len() as u32).to_be_bytes()[..], &body].concat()
            })
            .collect();
        self.0.write_all(&frames.concat()).unwrap();
        operations.iter().map(|_| self.response()).collect()
    }

    /// Sends all operations with a token before it reads the first response. Returns the responses.
    pub fn send_many_as(
        &mut self,
        token: &str,
        operations: &[(&str, &Args)],
    ) -> Vec<Result<Vec<u8>, String>> {
        let mut frames = Vec::new();
        for (operation, args) in operations {
            let body = Args::default().u8(2).s8(token).s8(operation).s32(&args.0);
            frames.extend(Args::default().s32(&body.0).0);
        }
        self.0.write_all(&frames).unwrap();
        operations.iter().map(|_| self.response()).collect()
    }

    /// As [`Self::ask`], with a token.
    pub fn ask_as(&mut self, token: &str, operation: &str, args: &Args) -> Result<Vec<u8>, String> {
        self.send_as(Some(token), operation, args);
        self.response()
    }

    /// The status of the response to an operation.
    pub fn status_of(&mut self, token: Option<&str>, operation: &str, args: &Args) -> u8 {
        self.send_as(token, operation, args);
        self.frame()[0]
    }

    fn send_as(&mut self, token: Option<&str>, operation: &str, args: &Args) {
        let token = token.map_or(Args::default(), |token| Args::default().u8(2).s8(token));
        let body = token.s8(operation).s32(&args.0).0;
        self.0.write_all(&[&(body.len() as u32).to_be_bytes()[..], &body].concat()).unwrap();
    }

    fn frame(&mut self) -> Vec<u8> {
        let mut len = [0; 4];
        self.0.read_exact(&mut len).unwrap();
        let mut response = vec![0; u32::from_be_bytes(len) as usize];
        self.0.read_exact(&mut response).unwrap();
        response
    }

    fn response(&mut self) -> Result<Vec<u8>, String> {
        let mut response = self.frame();
        match response[0] {
            0 => Ok(response.split_off(5)),
            3 => Err(String::from_utf8(response.split_off(7)).unwrap()),
            status => Err(format!("status {status}")),
        }
    }
}

/// Arguments as they grow.
#[derive(Clone, Default)]
pub struct Args(pub Vec<u8>);

impl Args {
    /// Arguments that begin with the name of a collection.
    pub fn on(collection: &str) -> Args {
        Args(vec![]).s8(collection)
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Args {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn u8(self, number: u8) -> Args {
        self.bytes(&[number])
    }

    pub fn u16(self, number: u16) -> Args {
        self.bytes(&number.to_be_bytes())
    }

    pub fn u32(self, number: usize) -> Args {
        self.bytes(&(number as u32).to_be_bytes())
    }

    pub fn u64(self, number: u64) -> Args {
        self.bytes(&number.to_be_bytes())
    }

    pub fn s8(self, text: &str) -> Args {
        self.u8(text.len() as u8).bytes(text.as_bytes())
    }

    pub fn s16(self, text: &str) -> Args {
        self.bytes(&(text.len() as u16).to_be_bytes()).bytes(text.as_bytes())
    }

    pub fn s32(self, bytes: &[u8]) -> Args {
        self.u32(bytes.len()).bytes(bytes)
    }

    pub fn floats(self, vector: &[f32]) -> Args {
        vector.iter().fold(self.u32(vector.len()), |args, component| args.bytes(&component.to_be_bytes()))
    }

    pub fn sparse(self, vector: &[(u32, f32)]) -> Args {
        vector.iter().fold(self.u32(vector.len()), |args, (index, value)| {
            args.bytes(&index.to_be_bytes()).bytes(&value.to_be_bytes())
        })
    }
}

/// A sparse vector as a body has it.
pub fn sparse_json(vector: &[(u32, f32)]) -> Value {
    let (indices, values): (Vec<u32>, Vec<f32>) = vector.iter().copied().unzip();
    json!({"indices": indices, "values": values})
}

/// A hit: id, distance, score, metadata where there is any.
pub type Hit = (u64, f32, f32, Value);

/// The hits of an answer of REST or gRPC.
pub fn hits_of(list: &Value) -> Vec<Hit> {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0) as f32;
    let list = list.as_array().cloned().unwrap_or_default();
    list.iter()
        .map(|hit| {
            let metadata = match (&hit["metadata"], &hit["metadata_json"]) {
                (Value::Null, Value::String(text)) => serde_json::from_str(text).unwrap(),
                (metadata, _) => metadata.clone(),
            };
            (hit["id"].as_u64().unwrap_or(0), number(&hit["distance"]), number(&hit["score"]), metadata)
        })
        .collect()
}

/// The bytes of a result: `distances` alone, or scores beside them, or whole documents.
pub fn binary_hits(bytes: &[u8], with_score: bool, with_document: bool) -> Vec<Hit> {
    let mut args = ArgsReader::new(bytes);
    (0..args.u32("n").unwrap())
        .map(|_| {
            let (id, distance) = (args.u64("id").unwrap(), args.f32("distance").unwrap());
            let score = if with_score { args.f32("score").unwrap() } else { 0.0 };
            let mut metadata = Value::Null;
            if with_document {
                assert_eq!(args.text32("content"), Ok(""));
                match args.text32("metadata").unwrap() {
                    "" => {}
                    text => metadata = serde_json::from_str(text).unwrap(),
                }
            }
            (id, distance, score, metadata)
        })
        .collect()
}

/// An array of numbers.
pub fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

/// The next of a sequence of numbers that a seed begins.
pub fn numbers(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}
