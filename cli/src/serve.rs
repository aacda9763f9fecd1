//! The server's life: listen, serve while the store is being opened on every core, and stop in order.
use crate::confine;
use crate::credentials::{open_jwt, open_tls};
use crate::flags::WalSync;
use crate::keys::open_registry;
use crate::logging::{LogFiles, Logs, Reopening};
use crate::reload::{self, Reloadable};
use crate::settings::Settings;
use crate::stores;
use futures_lite::future::zip;
use nigh_engine::distance::simd_level;
use nigh_net::auth::{Authenticator, Open, SingleKey};
use nigh_net::grpc::GrpcConfig;
use nigh_net::limits::{BODIES_MAX_BYTES, HEADS_MAX_BYTES, TCP_CONNECTIONS_MAX};
use nigh_net::metrics::Telemetry;
use nigh_net::tcp::{Loops, TcpConfig};
use nigh_net::{HttpConfig, Serving, bind};
use nigh_shard::archive::RestoreMoment;
use nigh_shard::backup::{ApiKeysText, BackupOptions};
use nigh_shard::cores::Placement;
use nigh_shard::device::Devices;
use nigh_shard::directory;
use nigh_shard::kv::KeysOptions;
use nigh_shard::log::SyncMode;
use nigh_shard::node::{IMAGE_RECORDS_MIN, LOG_BYTES_SOFT, NodeOptions, SEGMENT_BYTES};
use nigh_shard::progress::OpenedStore;
use nigh_shard::start::{Node, Serve};
use nigh_shard::system::block_signals;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Descriptors kept for files, rings and event channels; the rest may become connections.
const DESCRIPTORS_RESERVED: u64 = 1024;
/// A server that can take fewer connections than this says so at start.
const CONNECTIONS_EXPECTED: u64 = 1000;
/// The part of the memory limit that heads of requests may hold at most.
const HEADS_SHARE: u64 = 16;
/// How long an address may be in use at a start, and how often it is tried.
const ADDRESS_WAIT: Duration = Duration::from_secs(3);
const ADDRESS_POLL: Duration = Duration::from_millis(20);
/// More connections per core would only wait in its queue.
const CONNECTIONS_PER_CORE_MAX: u64 = 65_536;

/// Serves until a signal asks to stop. The files of `logs` are reopened on SIGHUP.
///
/// # Errors
/// One sentence saying why the server did not start, how a core ended, or that a log has failed.
pub fn run(settings: &Settings, logs: &Logs, give_back_memory: fn()) -> Result<(), String> {
    protect_files(settings.data.as_deref(), &settings.log_files);
    let signals = Signals::take().map_err(|error| format!("signal handlers: {error}"))?;
    let placement = Placement::detect(settings.cores);
    let cores = placement.cpus.len();
    log_start(settings, &placement);

    let http = listen("http", &settings.http, cores)?;
    let grpc = listen("grpc", &settings.grpc, cores)?;
    let tcp = listen("tcp", &settings.tcp, cores)?;
    let mut reloadable: Vec<Reloadable> = logs.reopening().map(reopened).collect();
    let mut api_keys = None;
    let auth: Arc<dyn Authenticator> = match (&settings.keys, &settings.api_key) {
        (Some(keys), _) => {
            let registry = Arc::new(open_registry(keys)?);
            if let Some(jwt) = &keys.jwt {
                reloadable.push(open_jwt(jwt, &registry)?);
            }
            let listed = registry.clone();
            api_keys = Some(ApiKeysText::new(move || listed.text()));
            registry
        }
        (None, Some(key)) => Arc::new(SingleKey::new(key)),
        (None, None) => Arc::new(Open),
    };
    let tls = match &settings.tls {
        Some(files) => {
            let (tls, files) = open_tls(files)?;
            reloadable.push(files);
            Some(tls)
        }
        None => None,
    };
    let descriptors = connection_descriptors();
    if let Some(data) = &settings.data {
        directory::create(data).map_err(|error| error.to_string())?;
    }
    for warning in settings.backup.warnings(settings.data.as_deref()) {
        tracing::warn!("{warning}");
    }
    let backups = stores::Prepared::of(&settings.backup)?;
    // Everything that lies outside the allowed directories has been opened, and every thread that starts from here on is confined as well.
    let _held = confine::confine(settings)?;
    logs.join_confinement();
    let (send, happened) = channel();
    let hung_up = signals.watch(send.clone()).map_err(|error| format!("signal handlers: {error}"))?;
    let backup = BackupOptions { api_keys, ..backups.start()? };
    std::thread::Builder::new()
        .name("reload".into())
        .spawn(move || reload::watch(reloadable, &hung_up))
        .map_err(|error| format!("a thread could not be started: {error}"))?;
    let telemetry = Arc::new(
        Telemetry::new(cores).with_prefix(&settings.metrics_prefix).with_lost_log_lines(logs.lost_lines()),
    );
    let max_body_bytes = BODIES_MAX_BYTES.min(settings.memory_limit_bytes / 2);
    // The binary protocol has a limit of its own; where descriptors are few it leaves the others a quarter of them.
    let for_tcp = if tcp.is_some() { TCP_CONNECTIONS_MAX.min(descriptors / 4 * 3) } else { 0 };
    // A client of gRPC has one connection where one of REST has many.
    let for_grpc = if grpc.is_some() { (descriptors - for_tcp) / 4 } else { 0 };
    let http_config = HttpConfig {
        tls: tls.clone(),
        access_log: settings.access_log,
        max_connections_per_core: connections_per_core(descriptors - for_tcp - for_grpc, cores),
        max_body_bytes,
        max_head_bytes: HEADS_MAX_BYTES.min(settings.memory_limit_bytes / HEADS_SHARE),
        ..HttpConfig::new(auth.clone(), telemetry.clone())
    };
    let grpc_config = GrpcConfig {
        tls: tls.clone(),
        access_log: settings.access_log,
        max_connections_per_core: connections_per_core(for_grpc, cores),
        max_body_bytes,
        alias: settings.grpc_alias.clone(),
        ..GrpcConfig::new(auth.clone(), telemetry.clone())
    };
    let listened = tcp.as_ref().map(|(_, at)| *at).filter(|at| !at.ip().is_unspecified());
    let tcp_config = TcpConfig {
        tls,
        // Of an address for every interface nobody can tell by which one clients come.
        advertised: settings.tcp_advertise.clone().or(listened.map(|at| at.to_string())),
        access_log: settings.access_log,
        max_connections: for_tcp,
        loops: if settings.epoll { Loops::Readiness } else { Loops::Completion },
        max_body_bytes,
        ..TcpConfig::new(auth, telemetry)
    };
    let serving = [("http", &http), ("grpc", &grpc), ("tcp", &tcp)];
    let serving = serving.map(|(proto, listeners)| (proto, listeners.as_ref().map(|(_, at)| *at)));
    // One listener per core and transport, taken by the core that serves it.
    let take = |listeners: Option<(Vec<TcpListener>, SocketAddr)>| {
        let all = listeners.map_or(Vec::new(), |(all, _)| all);
        Mutex::new(all.into_iter().map(Some).collect::<Vec<_>>())
    };
    let (http, grpc, tcp) = (take(http), take(grpc), take(tcp));
    let serve: Serve = Arc::new(move |core| {
        let index = core.env().index();
        let of_core = |all: &Mutex<Vec<Option<TcpListener>>>| all.lock().ok()?.get_mut(index)?.take();
        let http = of_core(&http).map(|at| nigh_net::serve(core.clone(), at, Rc::new(http_config.clone())));
        let grpc =
            of_core(&grpc).map(|at| nigh_net::grpc::serve(core.clone(), at, Rc::new(grpc_config.clone())));
        let tcp = of_core(&tcp).map(|at| nigh_net::tcp::serve(core, at, Rc::new(tcp_config.clone())));
        let served = |front: Option<Serving>| async move {
            match front {
                Some(front) => front.await,
                None => Ok(()),
            }
        };
        Box::pin(async move {
            let ((http, grpc), tcp) = zip(zip(served(http), served(grpc)), served(tcp)).await;
            for error in [http.err(), grpc.err(), tcp.err()].into_iter().flatten() {
                tracing::error!(%error, "a core cannot serve");
            }
        })
    });
    let options = node_options(settings, backup, give_back_memory);
    let opened = move |opened| {
        // Whoever is told waits as long as the process lives.
        let _nobody_waits = send.send(Happened::Opened(opened));
    };
    let node = Node::begin(options, &placement, serve, opened).map_err(|error| error.to_string())?;
    for (proto, address) in serving {
        if let Some(address) = address {
            tracing::info!(proto, addr = %address, mode = "single", data = data_text(settings), "serving");
        }
    }

    // The senders live as long as the process. What cannot be opened ends it, as nothing that was damaged alone would.
    let unopened = match happened.recv() {
        Ok(Happened::Opened(Ok(store))) => {
            tracing::info!(
                seconds = store.took_ns as f64 / 1e9,
                collections = store.collections,
                bytes = store.bytes,
                "open"
            );
            let _signal = happened.recv();
            None
        }
        Ok(Happened::Opened(Err(why))) => Some(why),
        Ok(Happened::StopAsked) | Err(_) => None,
    };
    if let Some(why) = unopened {
        node.stop().map_err(|error| error.to_string())?;
        return Err(why);
    }
    tracing::info!("shutting down");
    let shared = node.shared().clone();
    node.stop().map_err(|error| error.to_string())?;
    // Whoever stopped the server in good order must not take it for one that has kept everything it was asked to.
    shared.log_failure().map_or(Ok(()), |why| Err(format!("stopped after a failure: {why}")))
}

/// How the node is started.
fn node_options(settings: &Settings, backup: BackupOptions, give_back_memory: fn()) -> NodeOptions {
    NodeOptions {
        data: settings.data.clone(),
        shards: settings.shards,
        sync: match settings.wal_sync {
            WalSync::Always => SyncMode::Always,
            WalSync::Interval(ms) => SyncMode::Interval(ms),
            WalSync::None => SyncMode::None,
        },
        memory_limit_bytes: settings.memory_limit_bytes,
        segment_bytes: SEGMENT_BYTES,
        log_bytes_soft: LOG_BYTES_SOFT,
        image_records_min: IMAGE_RECORDS_MIN,
        sweep_interval_ms: settings.sweep_interval_ms,
        keys: KeysOptions {
            relocating_eviction: settings.relocating_eviction,
            reserve_interval_ms: settings.reserve_interval_ms,
            in_place_same_size: settings.in_place_same_size,
            sieve_visited_bit: settings.sieve_visited_bit,
            query: settings.kv_query,
            ..KeysOptions::new(settings.keys_budget_bytes)
        },
        devices: Devices::new(nigh_gpu::open),
        backup,
        give_back_memory,
    }
}

/// What a restore to a moment has brought.
#[derive(Debug)]
pub struct RestoredDirectory {
    /// Collections that are there.
    pub collections: u64,
    /// Bytes of their images and of the log behind these.
    pub bytes: u64,
}

/// Brings the data directory of `settings`, which is empty, to the moment `until_unix_ms`, and writes images of what the log has of it. Nothing is
/// served.
///
/// # Errors
/// A sentence: there is no data directory, or it has data; the archive does not reach the moment; the store or the disk failed.
pub fn restore_until(
    settings: &Settings,
    until_unix_ms: u64,
    give_back_memory: fn(),
) -> Result<RestoredDirectory, String> {
    let data =
        settings.data.as_deref().ok_or("-until needs -data, the directory that is brought to the moment")?;
    protect_files(Some(data), &LogFiles::default());
    let placement = Placement::detect(settings.cores);
    let backup = BackupOptions {
        interval_ms: 0,
        cold_after_ms: 0,
        archive: None,
        restore: Some(RestoreMoment { until_unix_ms }),
        ..stores::Prepared::of(&settings.backup)?.start()?
    };
    let (send, opened) = channel();
    let when_opened = move |store| {
        // Whoever is told waits as long as the node runs.
        let _nobody_waits = send.send(store);
    };
    let options = node_options(settings, backup, give_back_memory);
    let serve: Serve = Arc::new(|_| Box::pin(async {}));
    let node = Node::begin(options, &placement, serve, when_opened).map_err(|error| error.to_string())?;
    let store = opened.recv().unwrap_or_else(|_| Err("a core ended before the store was open".to_owned()));
    let shared = node.shared().clone();
    node.stop().map_err(|error| error.to_string())?;
    let store = store?;
    match shared.log_failure() {
        Some(why) => Err(format!("what was restored could not be written: {why}")),
        None => Ok(RestoredDirectory { collections: store.collections, bytes: store.bytes }),
    }
}

/// Has the file of a log reopened on SIGHUP.
fn reopened(file: Reopening) -> Reloadable {
    Reloadable::on_request(format!("the file of {}", file.flag()), Box::new(move || file.reopen()))
}

/// One listener per core on `address`, unless that is empty, and where they listen.
fn listen(flag: &str, address: &str, cores: usize) -> Result<Option<(Vec<TcpListener>, SocketAddr)>, String> {
    if address.is_empty() {
        return Ok(None);
    }
    let named = |error: std::io::Error| format!("-{flag}: {error}");
    let started = Instant::now();
    let listeners = loop {
        match bind(address, cores) {
            // Rings of a process that was killed hold its sockets until the kernel has come round to them.
            Err(error) if error.kind() == ErrorKind::AddrInUse && started.elapsed() < ADDRESS_WAIT => {
                std::thread::sleep(ADDRESS_POLL);
            }
            bound => break bound.map_err(named)?,
        }
    };
    let address = listeners[0].local_addr().map_err(named)?;
    Ok(Some((listeners, address)))
}

fn data_text(settings: &Settings) -> String {
    settings.data.as_ref().map_or("memory".into(), |data| data.display().to_string())
}

fn log_start(settings: &Settings, placement: &Placement) {
    let pinned = placement.cpus.iter().all(Option::is_some);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        commit = env!("NIGH_COMMIT"),
        cores = placement.cpus.len(),
        pinned,
        placement = placement.reason,
        simd = simd_level(),
        data = data_text(settings),
        durability = match settings.data {
            Some(_) => settings.wal_sync.to_string(),
            None => "none".into(),
        },
        shards = settings.shards,
        memory_limit_bytes = settings.memory_limit_bytes,
        "starting"
    );
    match (&settings.data, settings.wal_sync) {
        (None, _) => tracing::warn!("no -data directory: nothing survives this process"),
        (_, WalSync::Always) => {}
        (_, WalSync::Interval(ms)) => {
            tracing::warn!(
                "-wal-sync interval: a power loss may lose the last {ms} ms of acknowledged writes"
            );
        }
        (_, WalSync::None) => tracing::warn!("-wal-sync none: a power loss may lose acknowledged writes"),
    }
}

/// Raises the soft limit of open files to the hard one; how many of them may be connections.
fn connection_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // No limit at all is more than any number of connections.
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let open_max = match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        Ok(()) => hard,
        Err(_) => limit.current.unwrap_or(hard),
    };
    // A quarter of a small limit is better than nothing left over for files.
    let descriptors = open_max.saturating_sub(DESCRIPTORS_RESERVED).max(open_max / 4);
    if descriptors < CONNECTIONS_EXPECTED {
        tracing::warn!(
            open_files = open_max,
            connections = descriptors,
            "the limit of open files leaves room for few connections; raise it (ulimit -n, LimitNOFILE)"
        );
    }
    descriptors
}

/// Keeps what the server creates from other users of the machine: keys and payloads lie in its files as they are.
fn protect_files(data: Option<&Path>, logs: &LogFiles) {
    umask(Mode::RWXG | Mode::RWXO);
    // A directory that is there already keeps its mode: whoever made it may have had a reason.
    let open_to_others = |metadata: std::fs::Metadata| metadata.permissions().mode() & 0o007 != 0;
    if let Some(data) = data
        && std::fs::metadata(data).is_ok_and(open_to_others)
    {
        tracing::warn!(
            directory = %data.display(),
            "other users of this machine may look into the data directory; chmod 700 would keep them out"
        );
    }
    for (_, path) in logs.paths() {
        if std::fs::metadata(path).is_ok_and(|found| found.is_file() && open_to_others(found)) {
            tracing::warn!(
                file = %path.display(),
                "other users of this machine may read this log; chmod 600 would keep them out"
            );
        }
    }
}

/// What each core may have of them.
fn connections_per_core(descriptors: u64, cores: usize) -> usize {
    (descriptors / cores.max(1) as u64).clamp(1, CONNECTIONS_PER_CORE_MAX) as usize
}

/// What the main thread waits for.
enum Happened {
    /// SIGINT or SIGTERM.
    StopAsked,
    /// The store is open, or cannot be opened.
    Opened(Result<OpenedStore, String>),
}

/// Signals that have handlers. Signals that arrive before they are watched wait.
struct Signals {
    woken: UnixStream,
    stopping: Arc<AtomicBool>,
    hung_up: Arc<AtomicBool>,
}

impl Signals {
    /// Takes SIGINT, SIGTERM and SIGHUP.
    fn take() -> std::io::Result<Signals> {
        let (woken, wake) = UnixStream::pair()?;
        let stopping = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Handlers run in the order they were registered: the first signal finds `stopping` unset and sets it.
            signal_hook::flag::register_conditional_shutdown(signal, 1, stopping.clone())?;
            signal_hook::flag::register(signal, stopping.clone())?;
            signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        let hung_up = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGHUP, hung_up.clone())?;
        signal_hook::low_level::pipe::register(SIGHUP, wake)?;
        Ok(Signals { woken, stopping, hung_up })
    }

    /// Sends a message when SIGINT or SIGTERM arrives, and makes a channel that gets one when SIGHUP arrives. A second SIGINT or SIGTERM ends the
    /// process with code 1.
    ///
    /// The signals are taken by a thread of their own and blocked everywhere else: a core interrupted in a system call
    /// would have to treat that as an event. Call before any other thread starts, except the threads that write logs.
    fn watch(self, send: Sender<Happened>) -> std::io::Result<Receiver<()>> {
        let Signals { mut woken, stopping, hung_up } = self;
        // One message is enough, however many signals arrive while files are being read.
        let (send_hung_up, receive_hung_up) = sync_channel(1);
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            let mut byte = [0];
            while woken.read_exact(&mut byte).is_ok() {
                if hung_up.swap(false, Ordering::AcqRel) {
                    let _is_asked_already = send_hung_up.try_send(());
                }
                if stopping.load(Ordering::Acquire) && send.send(Happened::StopAsked).is_err() {
                    break;
                }
            }
        })?;
        block_signals(&[SIGINT, SIGTERM, SIGHUP])?;
        Ok(receive_hung_up)
    }
}
