//! Latencies of the runtime on this machine: echo, calls between cores, timers, slices, and `fdatasync` beside a background hog.
//!
//! `cargo run --release -p nigh-shard --example runtime_latency [directory]`. Every answer is checked. The figures depend on the
//! machine and on who else uses it: compare within one run.

use nigh_shard::cores::Placement;
use nigh_shard::disk::BLOCK;
use nigh_shard::reactor::Source;
use nigh_shard::runtime::{Cluster, CoreMain, CoreRuntime};
use std::cell::Cell;
use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// A row of the report: microseconds at the usual percentiles.
fn report(what: &str, mut ns: Vec<u64>) {
    ns.sort_unstable();
    let at = |quantile: f64| ns[((ns.len() - 1) as f64 * quantile) as usize] as f64 / 1000.0;
    println!(
        "{what:<58} p50 {:>8.1}  p90 {:>8.1}  p99 {:>8.1}  max {:>9.1} us",
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
}

/// Times `count` runs of `f`.
async fn time<F: Future<Output = ()>>(
    here: &CoreRuntime,
    count: usize,
    mut f: impl FnMut(usize) -> F,
) -> Vec<u64> {
    let mut ns = Vec::with_capacity(count);
    for n in 0..count {
        let from = here.now_ns();
        f(n).await;
        ns.push(here.now_ns() - from);
    }
    ns
}

/// A background task that uses its slices in full, until told.
fn hog(here: &CoreRuntime) -> Rc<Cell<bool>> {
    let quit = Rc::new(Cell::new(false));
    let (runtime, stop) = (here.clone(), quit.clone());
    here.spawn_background(async move {
        while !stop.get() {
            let end = runtime.now_ns() + 290_000;
            while runtime.now_ns() < end {
                std::hint::spin_loop();
            }
            runtime.breathe().await;
        }
    });
    quit
}

async fn on_core_0(here: CoreRuntime, directory: PathBuf) {
    let cpu = cpu_ns();
    here.sleep_us(1_000_000).await;
    println!("{:<58} {:.2} % of one CPU, all threads", "idle", (cpu_ns() - cpu) as f64 / 1e7);
    if here.cores() > 1 {
        let call = |n: usize| {
            let here = here.clone();
            async move { assert_eq!(here.call(1, move || async move { n + 1 }).await, Ok(n + 1)) }
        };
        report("call to another core, one at a time", time(&here, 50_000, call).await);
    }
    let call = |n: usize| {
        let here = here.clone();
        async move { assert_eq!(here.call(0, move || async move { n + 1 }).await, Ok(n + 1)) }
    };
    report("call to the own core", time(&here, 50_000, call).await);
    report("yield", time(&here, 50_000, |_| here.yield_now()).await);
    report("breathe in the foreground", time(&here, 50_000, |_| here.breathe()).await);
    report("sleep of 100 us", time(&here, 2_000, |_| here.sleep_us(100)).await);
    report("sleep of 20 ms", time(&here, 20, |_| here.sleep_us(20_000)).await);
    report("blocking call", time(&here, 2_000, |_| here.blocking(|| ())).await);

    let breaths = Rc::new(Cell::new(None));
    let (runtime, result) = (here.clone(), breaths.clone());
    here.spawn_background(async move {
        let pause = |_| runtime.breathe();
        result.set(Some(time(&runtime, 5_000, pause).await));
    });
    loop {
        if let Some(ns) = breaths.take() {
            report("breathe in the background, core idle", ns);
            break;
        }
        here.sleep_us(1000).await;
    }

    let disk = here.disk(&directory);
    let file = disk.create(Path::new("latency")).await.expect("the directory is writable");
    const BLOCKS: usize = 1024;
    file.preallocate((BLOCKS * BLOCK) as u64).await.expect("there is room");
    let commit = |n: usize| {
        let file = file.clone();
        async move {
            file.write_at((n % BLOCKS * BLOCK) as u64, &[n as u8; BLOCK]).await.expect("writing");
            file.sync().await.expect("syncing");
        }
    };
    let direct = std::fs::File::options().write(true).open(directory.join("latency")).expect("opening again");
    let mut plain = Vec::new();
    for n in 0..500 {
        let from = Instant::now();
        std::os::unix::fs::FileExt::write_all_at(&direct, &[n as u8; BLOCK], (n % BLOCKS * BLOCK) as u64)
            .and_then(|()| direct.sync_data())
            .expect("writing and syncing");
        plain.push(from.elapsed().as_nanos() as u64);
    }
    report("4 KiB pwrite + fdatasync, blocking calls", plain);
    report("4 KiB write + fdatasync, core otherwise idle", time(&here, 500, commit).await);
    let quit = hog(&here);
    report("4 KiB write + fdatasync beside a background hog", time(&here, 500, commit).await);
    if here.cores() > 1 {
        let call = |n: usize| {
            let here = here.clone();
            async move { assert_eq!(here.call(1, move || async move { n + 1 }).await, Ok(n + 1)) }
        };
        report("call to another core, from beside a hog", time(&here, 3_000, call).await);
    }
    report("sleep of 100 us beside a hog", time(&here, 1_000, |_| here.sleep_us(100)).await);
    quit.set(true);
    file.close().await.expect("closing");
}

async fn serve(here: CoreRuntime, listener: TcpListener) {
    let source =
        here.reactor().register(listener.as_fd().try_clone_to_owned().expect("a descriptor")).expect("epoll");
    let accept = async {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream
                        .set_nonblocking(true)
                        .and_then(|()| stream.set_nodelay(true))
                        .expect("socket options");
                    let reader = stream.try_clone().expect("a descriptor");
                    here.spawn(echo(here.reactor().register(stream.into()).expect("epoll"), reader));
                }
                Err(_) => {
                    source.clear_readable();
                    poll_fn(|cx| source.poll_readable(cx)).await;
                }
            }
        }
    };
    futures_lite::future::or(accept, here.stopping()).await;
}

async fn echo(source: Source, mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    loop {
        poll_fn(|cx| source.poll_readable(cx)).await;
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(n) => {
                if n < buffer.len() {
                    source.clear_readable();
                }
                stream.write_all(&buffer[..n]).expect("answers of 64 bytes fit the socket");
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => source.clear_readable(),
            Err(_) => return,
        }
    }
}

/// CPU time of all threads of this process so far, ns.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn echo_rounds(connections: usize, rounds: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("socket options");
    let address = listener.local_addr().expect("bound");
    let listener = Arc::new(std::sync::Mutex::new(Some(listener)));
    let main: CoreMain = Arc::new(move |here| {
        let listener = listener.lock().expect("no panic before").take().expect("one core");
        Box::pin(serve(here, listener))
    });
    let placement = Placement::detect(1);
    let cluster = Cluster::start(&placement, main).expect("the runtime starts");
    let mut streams: Vec<TcpStream> =
        (0..connections).map(|_| TcpStream::connect(address).expect("connecting")).collect();
    streams.iter().for_each(|stream| stream.set_nodelay(true).expect("socket options"));
    let mut ns = Vec::with_capacity(rounds);
    let (wall, cpu) = (Instant::now(), cpu_ns());
    for round in 0..rounds {
        let from = Instant::now();
        for stream in &mut streams {
            stream.write_all(&[round as u8; 64]).expect("sending");
        }
        for stream in &mut streams {
            let mut answer = [0; 64];
            stream.read_exact(&mut answer).expect("receiving");
            assert_eq!(answer, [round as u8; 64]);
        }
        ns.push(from.elapsed().as_nanos() as u64);
    }
    let echoes = (rounds * connections) as f64;
    let (wall_ns, cpu_ns) = (wall.elapsed().as_nanos() as f64, (cpu_ns() - cpu) as f64);
    report(&format!("echo of 64 bytes, {connections} connections, per round"), ns);
    println!(
        "{:<58} {:.1} us wall, {:.1} us CPU per echo, client included",
        "",
        wall_ns / echoes / 1e3,
        cpu_ns / echoes / 1e3
    );
    drop(streams);
    cluster.stop().expect("stopping");
}

fn main() {
    let directory =
        std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from).join("nigh-runtime-latency");
    std::fs::create_dir_all(&directory).expect("the directory can be made");
    echo_rounds(1, 20_000);
    echo_rounds(64, 2_000);
    let placement = Placement::detect(2);
    println!("{}", placement.reason);
    let place = directory.clone();
    let main: CoreMain = Arc::new(move |here| {
        let place = place.clone();
        Box::pin(async move {
            if here.index() == 0 {
                on_core_0(here, place).await;
            }
        })
    });
    let cluster = Cluster::start(&placement, main).expect("the runtime starts");
    let remote = cluster.remote();
    cluster.join().expect("no core failed");
    println!("{:?}", remote.health().total());
    std::fs::remove_dir_all(&directory).expect("removing what was written");
}
