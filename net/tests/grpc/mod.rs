//! gRPC over real sockets: every method beside REST, messages as they may come, and connections of clients that mean no good.
mod connections;
mod messages;
mod methods;
mod services;
mod streams;

use crate::common::grpc::GrpcClient;
use crate::common::server::{Client, options};
use nigh_net::auth::{Authenticator, Open};
use nigh_net::grpc::GrpcConfig;
use nigh_net::metrics::Telemetry;
use nigh_net::{HttpConfig, bind, grpc, serve};
use nigh_shard::cores::Placement;
use nigh_shard::start::{Node, Serve};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

/// What waits for the server, or for the machine, gives up after this.
const PATIENCE: Duration = Duration::from_secs(120);

/// A node that serves REST and gRPC.
pub struct Server {
    node: Option<Node>,
    rest: SocketAddr,
    grpc: SocketAddr,
    telemetry: Arc<Telemetry>,
}

impl Server {
    pub fn start(auth: Arc<dyn Authenticator>, configure: impl Fn(&mut GrpcConfig)) -> Server {
        let (rest, calls) = (bind("127.0.0.1:0", 2).unwrap(), bind("127.0.0.1:0", 2).unwrap());
        let addresses = [&rest, &calls].map(|listeners| listeners[0].local_addr().unwrap());
        let telemetry = Arc::new(Telemetry::new(2));
        let http = HttpConfig::new(auth.clone(), telemetry.clone());
        let mut config = GrpcConfig::new(auth, telemetry.clone());
        configure(&mut config);
        let listeners = Mutex::new(rest.into_iter().zip(calls).collect::<Vec<_>>());
        let serving: Serve = Arc::new(move |core| {
            let (rest, calls) = listeners.lock().unwrap().pop().unwrap();
            let (http, config) = (Rc::new(http.clone()), Rc::new(config.clone()));
            Box::pin(async move {
                let rest = serve(core.clone(), rest, http);
                let calls = grpc::serve(core, calls, config);
                let (rest, calls) = futures_lite::future::zip(rest, calls).await;
                rest.and(calls).unwrap();
            })
        });
        let node = Node::start(options(), &Placement::unpinned(2), serving).unwrap();
        Server { node: Some(node), rest: addresses[0], grpc: addresses[1], telemetry }
    }

    pub fn client(&self) -> GrpcClient {
        GrpcClient::connect(self.grpc)
    }

    pub fn rest(&self) -> Client {
        Client::connect(self.rest)
    }

    /// Asks the node to stop, and waits until it has.
    pub fn stop(mut self) {
        self.node.take().unwrap().stop().unwrap();
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
static SHARED: LazyLock<Server> = LazyLock::new(|| Server::start(Arc::new(Open), |_| {}));

/// Codes of gRPC by their names.
const OK: u32 = 0;
const INVALID_ARGUMENT: u32 = 3;
const DEADLINE_EXCEEDED: u32 = 4;
const NOT_FOUND: u32 = 5;
const ALREADY_EXISTS: u32 = 6;
const RESOURCE_EXHAUSTED: u32 = 8;
const FAILED_PRECONDITION: u32 = 9;
const UNIMPLEMENTED: u32 = 12;
const UNAVAILABLE: u32 = 14;
const UNAUTHENTICATED: u32 = 16;
