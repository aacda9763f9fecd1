//! Whole clusters: messages, calls, tasks, panics, stopping, and the soak of the mesh.

use super::*;
use crate::cores::Placement;
use std::cell::Cell;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Runs `main` on every core of a cluster until all have returned.
fn run<F: Future<Output = ()> + 'static>(
    cores: usize,
    main: impl Fn(CoreRuntime) -> F + Send + Sync + 'static,
) {
    start(cores, ClusterOptions::default(), main).join().unwrap();
}

fn start<F: Future<Output = ()> + 'static>(
    cores: usize,
    options: ClusterOptions,
    main: impl Fn(CoreRuntime) -> F + Send + Sync + 'static,
) -> Cluster {
    let main: CoreMain = Arc::new(move |runtime| Box::pin(main(runtime)));
    Cluster::start_with(&Placement::unpinned(cores), main, options).unwrap()
}

/// Options under which a panic is recorded instead of ending the test process.
fn recording() -> (ClusterOptions, Arc<Mutex<Vec<String>>>) {
    let record = Arc::new(Mutex::new(Vec::new()));
    let recorder = record.clone();
    let on_fatal: FatalHook = Arc::new(move |text| recorder.lock().unwrap().push(text.to_owned()));
    (ClusterOptions { on_fatal: Some(on_fatal), ..ClusterOptions::default() }, record)
}

#[test]
fn every_core_calls_every_core() {
    let sum = Arc::new(AtomicUsize::new(0));
    let total = sum.clone();
    run(3, move |runtime| {
        let sum = sum.clone();
        async move {
            let from = runtime.index();
            for to in 0..runtime.cores() {
                for n in 0..100 {
                    let answer = runtime
                        .call(to, move || async move {
                            let here = CoreRuntime::current().unwrap();
                            assert_eq!(here.index(), to);
                            if n % 7 == 0 {
                                here.sleep_us(50).await;
                            }
                            from * 1000 + n
                        })
                        .await;
                    assert_eq!(answer, Ok(from * 1000 + n));
                    sum.fetch_add(1, SeqCst);
                }
            }
        }
    });
    assert_eq!(total.load(SeqCst), 900);
}

#[test]
fn messages_of_a_pair_keep_their_order_and_a_full_mesh_refuses() {
    const COUNT: usize = 100_000;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let received = seen.clone();
    run(2, move |runtime| {
        let seen = seen.clone();
        async move {
            if runtime.index() == 1 {
                return;
            }
            let mut refused = 0;
            for n in 0..COUNT {
                loop {
                    let seen = seen.clone();
                    if runtime.send(1, Box::new(move || seen.lock().unwrap().push(n))) {
                        break;
                    }
                    refused += 1;
                    runtime.yield_now().await;
                }
            }
            assert!(refused > 0, "the receiver cannot keep up with a loop that does nothing else");
        }
    });
    assert_eq!(*received.lock().unwrap(), (0..COUNT).collect::<Vec<_>>());
}

#[test]
fn too_many_calls_to_a_core_are_refused_and_the_rest_answered() {
    run(2, |runtime| async move {
        if runtime.index() == 1 {
            return;
        }
        let (answered, busy) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        const CALLS: u32 = 10_000;
        for _ in 0..CALLS {
            let (caller, answered, busy) = (runtime.clone(), answered.clone(), busy.clone());
            runtime.spawn(async move {
                let count = match caller.call(1, || async { 1 }).await {
                    Ok(_) => answered,
                    Err(Busy) => busy,
                };
                count.set(count.get() + 1);
            });
        }
        while answered.get() + busy.get() < CALLS {
            runtime.sleep_us(100).await;
        }
        assert!(answered.get() >= super::port::CALLS_MAX, "{} were answered", answered.get());
        assert!(busy.get() > 0, "nothing bounded the calls");
        assert_eq!(runtime.call(1, || async { 2 }).await, Ok(2), "the way is free again");
    });
}

#[test]
fn a_dropped_call_runs_to_its_end_all_the_same() {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = ended.clone();
    run(2, move |runtime| {
        let ended = ended.clone();
        async move {
            for to in 0..2 {
                let ended = ended.clone();
                let mut call = Box::pin(runtime.call(to, move || async move {
                    CoreRuntime::current().unwrap().sleep_us(500).await;
                    ended.fetch_add(1, SeqCst);
                }));
                poll_fn(|cx| {
                    assert!(call.as_mut().poll(cx).is_pending());
                    Poll::Ready(())
                })
                .await;
                drop(call);
            }
            while ended.load(SeqCst) < 4 {
                runtime.sleep_us(100).await;
            }
        }
    });
    assert_eq!(count.load(SeqCst), 4);
}

#[test]
fn timers_fire_in_order_and_not_early() {
    run(1, |runtime| async move {
        let order = Rc::new(std::cell::RefCell::new(Vec::new()));
        for us in [3000, 1000, 2000, 0, 15_000] {
            let (inner, order) = (runtime.clone(), order.clone());
            runtime.spawn(async move {
                let start = inner.now_ns();
                inner.sleep_us(us).await;
                assert!(inner.now_ns() - start >= us * 1000);
                order.borrow_mut().push(us);
            });
        }
        runtime.sleep_us(20_000).await;
        assert_eq!(*order.borrow(), [0, 1000, 2000, 3000, 15_000]);
        assert!(runtime.unix_ms() > 1_700_000_000_000);
    });
}

#[test]
fn a_wake_from_a_foreign_thread_arrives_through_the_bell() {
    run(1, |runtime| async move {
        for _ in 0..50 {
            let shared: Arc<Mutex<(bool, Option<Waker>)>> = Arc::default();
            let thread = {
                let shared = shared.clone();
                std::thread::spawn(move || {
                    let mut state = shared.lock().unwrap();
                    state.0 = true;
                    if let Some(waker) = state.1.take() {
                        waker.wake();
                    }
                })
            };
            poll_fn(|cx| {
                let mut state = shared.lock().unwrap();
                if state.0 {
                    return Poll::Ready(());
                }
                state.1 = Some(cx.waker().clone());
                Poll::Pending
            })
            .await;
            runtime.blocking(move || thread.join().unwrap()).await;
        }
        assert_eq!(runtime.health().rescues, 0);
    });
}

#[test]
fn blocking_calls_return_values_and_panics() {
    run(1, |runtime| async move {
        assert_eq!(runtime.blocking(|| 6 * 7).await, 42);
        assert_eq!(runtime.compute(|| 6 * 7).await, 42);
        let sum = Rc::new(Cell::new(0));
        for n in 0..3000 {
            let (inner, sum) = (runtime.clone(), sum.clone());
            runtime.spawn(async move {
                let value = inner.blocking(move || n).await;
                sum.set(sum.get() + value);
            });
        }
        while sum.get() < 2999 * 1500 {
            runtime.sleep_us(200).await;
        }
    });
    let (options, record) = recording();
    let cluster =
        start(1, options, |runtime| async move { runtime.blocking(|| panic!("the disk is on fire")).await });
    assert!(cluster.join().is_err());
    assert!(record.lock().unwrap()[0].contains("the disk is on fire"));
}

#[test]
fn messages_from_foreign_threads_run_on_their_core() {
    let (send, receive) = std::sync::mpsc::channel();
    let cluster = start(2, ClusterOptions::default(), |runtime| async move { runtime.stopping().await });
    let remote = cluster.remote();
    for to in [1, 0, 1] {
        let send = send.clone();
        assert!(
            remote.send(to, Box::new(move || send.send(CoreRuntime::current().unwrap().index()).unwrap()))
        );
        assert_eq!(receive.recv_timeout(Duration::from_secs(10)), Ok(to));
    }
    cluster.stop().unwrap();
    assert!(!remote.send(0, Box::new(|| ())), "the core has ended");
}

#[test]
fn a_panic_is_reported_once_and_stops_the_cluster() {
    for place in ["task", "message", "main", "call"] {
        let (options, record) = recording();
        let cluster = start(2, options, move |runtime| async move {
            if runtime.index() == 1 {
                match place {
                    "task" => runtime.spawn(async { panic!("planned in a task") }),
                    "message" => assert!(runtime.send(0, Box::new(|| panic!("planned in a message")))),
                    "call" => {
                        let answer: Result<(), Busy> =
                            runtime.call(0, || async { panic!("planned in a call") }).await;
                        assert_eq!(answer, Err(Busy));
                    }
                    _ => panic!("planned in a main"),
                }
            }
            runtime.stopping().await;
        });
        let error = cluster.join().unwrap_err().to_string();
        assert!(error.contains(&format!("planned in a {place}")), "{error}");
        assert_eq!(record.lock().unwrap().len(), 1);
    }
}

#[test]
fn tasks_left_at_the_end_are_cancelled() {
    struct Told(Arc<AtomicUsize>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = dropped.clone();
    run(2, move |runtime| {
        let dropped = dropped.clone();
        async move {
            for background in [false, true] {
                let (told, inner) = (Told(dropped.clone()), runtime.clone());
                let task = async move {
                    let _told = told;
                    loop {
                        inner.sleep_us(1_000_000).await;
                    }
                };
                if background { runtime.spawn_background(task) } else { runtime.spawn(task) }
            }
            runtime.sleep_us(100).await;
        }
    });
    assert_eq!(count.load(SeqCst), 4);
}

#[test]
fn stopping_reaches_every_waiter_and_the_wait_may_be_given_up() {
    let cluster = start(2, ClusterOptions::default(), |runtime| async move {
        for _ in 0..10 {
            let mut given_up = Box::pin(runtime.stopping());
            poll_fn(|cx| {
                assert!(given_up.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        let woken = Rc::new(Cell::new(0));
        for _ in 0..10 {
            let (inner, woken) = (runtime.clone(), woken.clone());
            runtime.spawn(async move {
                inner.stopping().await;
                woken.set(woken.get() + 1);
            });
        }
        runtime.stopping().await;
        while woken.get() < 10 {
            runtime.yield_now().await;
        }
        assert!(runtime.is_stopping());
    });
    std::thread::sleep(Duration::from_millis(20));
    cluster.stop().unwrap();
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Runs one test of this file alone in a child process, with [`is_child`] true in it.
fn in_child(test: &str) -> std::process::Output {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "--test-threads=1", &format!("runtime::tests::{test}")])
        .env("NIGH_TEST_ALONE", "1")
        .output()
        .unwrap()
}

fn is_child() -> bool {
    std::env::var_os("NIGH_TEST_ALONE").is_some()
}

#[test]
fn a_panic_ends_the_process_when_nobody_asked_to_be_told() {
    if is_child() {
        run(2, |runtime| async move {
            runtime.spawn(async { panic!("planned, to end the process") });
            runtime.stopping().await;
        });
        unreachable!("the process has ended");
    }
    let output = in_child("a_panic_ends_the_process_when_nobody_asked_to_be_told");
    assert_eq!(output.status.code(), Some(101));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("planned, to end the process") && !said.contains("the process has ended"),
        "{said}"
    );
}

#[test]
fn stopping_under_load_ends_and_a_stopped_cluster_leaves_nothing_behind() {
    // Alone in a process, so that the descriptors counted are its own.
    if !is_child() {
        let output = in_child("stopping_under_load_ends_and_a_stopped_cluster_leaves_nothing_behind");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let round = || {
        let cluster = start(2, ClusterOptions::default(), |runtime| async move {
            for n in 0..64 {
                let caller = runtime.clone();
                runtime.spawn(async move {
                    loop {
                        let to = n % 2;
                        let _ = caller
                            .call(to, move || async move {
                                CoreRuntime::current().unwrap().sleep_us(n as u64 * 3).await
                            })
                            .await;
                    }
                });
            }
            let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
            socket.set_nonblocking(true).unwrap();
            let source = runtime.reactor().register(socket.into()).unwrap();
            runtime.spawn(async move {
                source.clear_readable();
                poll_fn(|cx| source.poll_readable(cx)).await;
            });
            runtime.stopping().await;
        });
        std::thread::sleep(Duration::from_millis(20));
        cluster.stop().unwrap();
    };
    round();
    let before = open_descriptors();
    for _ in 0..5 {
        round();
    }
    // The kernel tears rings down, and the executors' own threads end, a moment after the cores.
    let patience = std::time::Instant::now();
    while open_descriptors() > before {
        assert!(
            patience.elapsed() < Duration::from_secs(10),
            "{} descriptors, {before} before",
            open_descriptors()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Reads and writes through a source, as a front end would.
async fn echo(source: crate::reactor::Source) {
    let mut stream = TcpStream::from(source.as_fd().try_clone_to_owned().unwrap());
    let mut buffer = [0; 4096];
    loop {
        poll_fn(|cx| source.poll_readable(cx)).await;
        let n = match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(n) => n,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                source.clear_readable();
                continue;
            }
            Err(error) => panic!("reading: {error}"),
        };
        let mut sent = 0;
        while sent < n {
            poll_fn(|cx| source.poll_writable(cx)).await;
            match stream.write(&buffer[sent..n]) {
                Ok(m) => sent += m,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => source.clear_writable(),
                Err(error) => panic!("writing: {error}"),
            }
        }
    }
}

#[test]
fn an_echo_server_answers_while_background_work_and_calls_go_on() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let quit = done.clone();
    let listener = Mutex::new(Some(listener));
    let listener = Arc::new(listener);
    let cluster = start(2, ClusterOptions::default(), move |runtime| {
        let (listener, quit) = (listener.clone(), quit.clone());
        async move {
            let hog = runtime.clone();
            let quitting = quit.clone();
            runtime.spawn_background(async move {
                while !quitting.load(SeqCst) {
                    let end = hog.now_ns() + 300_000;
                    while hog.now_ns() < end {
                        std::hint::spin_loop();
                    }
                    hog.breathe().await;
                }
            });
            let own = listener.lock().unwrap().take();
            if let Some(listener) = own {
                let source =
                    runtime.reactor().register(listener.as_fd().try_clone_to_owned().unwrap()).unwrap();
                while !quit.load(SeqCst) {
                    let accepted = listener.accept();
                    match accepted {
                        Ok((stream, _)) => {
                            stream.set_nonblocking(true).unwrap();
                            let source = runtime.reactor().register(stream.into()).unwrap();
                            runtime.spawn(echo(source));
                        }
                        Err(_) => {
                            source.clear_readable();
                            let stop = runtime.stopping();
                            let readable = poll_fn(|cx| source.poll_readable(cx));
                            futures_lite::future::or(stop, readable).await;
                        }
                    }
                }
            } else {
                runtime.stopping().await;
            }
        }
    });
    let clients: Vec<_> = (0..8u8)
        .map(|id| {
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                for n in 0..200u32 {
                    let size = 1 + (n as usize * 37) % 3000;
                    let sent = vec![id ^ n as u8; size];
                    stream.write_all(&sent).unwrap();
                    let mut received = vec![0; size];
                    stream.read_exact(&mut received).unwrap();
                    assert_eq!(received, sent);
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    done.store(true, SeqCst);
    assert_eq!(cluster.health().total().rescues, 0);
    cluster.stop().unwrap();
}
