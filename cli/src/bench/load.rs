//! Query load: closed loop (each connection sends its next query when the answer is in) or open loop (queries leave
//! on a fixed schedule, and latency counts from the moment a query was due, so that a stalled server cannot hide the
//! queries it kept waiting).
use super::client::{Client, Target};
use super::latency::{histogram, nanos};
use super::processor_wait::ProcessorWait;
use super::wire::found_ids;
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Every so many answers one is parsed and checked in full; all have their status checked.
const CHECK_EVERY: u64 = 64;

/// How queries are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrival {
    /// As fast as the connections allow.
    Closed,
    /// So many per second, evenly spaced, over all connections.
    Open(f64),
}

/// One measured stretch of load.
pub struct Load<'a> {
    /// Server.
    pub target: &'a Target,
    /// Encoded requests, used in turn.
    pub requests: &'a [Vec<u8>],
    /// Hits each answer must have.
    pub hits: usize,
    /// Connections, one thread each.
    pub connections: usize,
    /// Closed or open loop.
    pub arrival: Arrival,
    /// Not measured, in front.
    pub warm_up: Duration,
    /// Measured.
    pub duration: Duration,
}

/// What a load saw.
pub struct Measured {
    /// Latency in nanoseconds.
    pub latency: Histogram<u64>,
    /// From sending to the answer, less what this program waited for a processor meanwhile, nanoseconds. Empty where
    /// the kernel does not tell that.
    pub without_own_wait: Histogram<u64>,
    /// Answered queries that were measured.
    pub answered: u64,
    /// From the first measured query's due time to the last answer.
    pub elapsed: Duration,
}

impl Measured {
    fn new() -> Measured {
        Measured { latency: histogram(), without_own_wait: histogram(), answered: 0, elapsed: Duration::ZERO }
    }
}

/// Runs the load; `progress` is called now and then with the measured time so far.
///
/// # Errors
/// The first failed request: connection, status or a wrong answer.
pub fn run(load: &Load<'_>, progress: &(dyn Fn(Duration) + Sync)) -> Result<Measured, String> {
    let mut clients = Vec::new();
    for _ in 0..load.connections {
        clients.push(Client::connect(load.target).map_err(|error| format!("connecting: {error}"))?);
    }
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let results: Vec<Result<Measured, String>> = std::thread::scope(|scope| {
        let workers: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(index, client)| {
                let (next, stop) = (&next, &stop);
                scope.spawn(move || {
                    let watch = |measured| {
                        if index == 0 {
                            progress(measured)
                        }
                    };
                    let result = worker(load, client, next, stop, start, &watch);
                    if result.is_err() {
                        // One failure ends the run: a figure with failures in it means nothing.
                        stop.store(true, Ordering::Relaxed);
                    }
                    result
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err("a worker panicked".into())))
            .collect()
    });
    let mut total = Measured::new();
    for result in results {
        let part = result?;
        total.latency.add(&part.latency).map_err(|error| error.to_string())?;
        total.without_own_wait.add(&part.without_own_wait).map_err(|error| error.to_string())?;
        total.answered += part.answered;
        total.elapsed = total.elapsed.max(part.elapsed);
    }
    Ok(total)
}

fn worker(
    load: &Load<'_>,
    mut client: Client,
    next: &AtomicU64,
    stop: &AtomicBool,
    start: Instant,
    progress: &dyn Fn(Duration),
) -> Result<Measured, String> {
    let mut measured = Measured::new();
    let own_wait = ProcessorWait::of_this_thread();
    let end = load.warm_up + load.duration;
    let mut last_progress = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let due = match load.arrival {
            Arrival::Closed => start.elapsed(),
            Arrival::Open(rate) => {
                let due = Duration::from_secs_f64(index as f64 / rate);
                if let Some(wait) = due.checked_sub(start.elapsed()) {
                    std::thread::sleep(wait.min(end));
                }
                due
            }
        };
        if due >= end {
            break;
        }
        let request = &load.requests[index as usize % load.requests.len()];
        let (sent, waited) = (start.elapsed(), own_wait.total());
        let response = client.send(request).map_err(|error| format!("search: {error}"))?;
        let (done, waited) = (start.elapsed(), own_wait.total().zip(waited));
        let body = response.success("search")?;
        if index.is_multiple_of(CHECK_EVERY) {
            let found = found_ids(body)?.len();
            if found != load.hits {
                return Err(format!("search: {found} hits instead of {}", load.hits));
            }
        }
        if due >= load.warm_up {
            measured.latency.saturating_record(nanos(done - due));
            if let Some((after, before)) = waited {
                let own = after.saturating_sub(before);
                measured.without_own_wait.saturating_record(nanos((done - sent).saturating_sub(own)));
            }
            measured.answered += 1;
            measured.elapsed = done - load.warm_up;
            if measured.elapsed > last_progress + Duration::from_millis(100) {
                last_progress = measured.elapsed;
                progress(last_progress);
            }
        }
    }
    Ok(measured)
}

/// Sends every request once over the connections and hands each answer's ids to `each` with the request's index.
///
/// # Errors
/// The first failed request.
pub fn once_each(
    target: &Target,
    requests: &[Vec<u8>],
    connections: usize,
    each: &(dyn Fn(usize, Vec<u64>) + Sync),
) -> Result<(), String> {
    in_parallel(target, requests.len(), connections, &|client, index| {
        let response = client.send(&requests[index]).map_err(|error| format!("search: {error}"))?;
        each(index, found_ids(response.success("search")?)?);
        Ok(())
    })
}

/// Runs `job` for `0..jobs` over the connections, each job on one.
///
/// # Errors
/// The first failed job; the others stop at their next one.
pub fn in_parallel(
    target: &Target,
    jobs: usize,
    connections: usize,
    job: &(dyn Fn(&mut Client, usize) -> Result<(), String> + Sync),
) -> Result<(), String> {
    let next = AtomicU64::new(0);
    let work = || {
        let mut client = Client::connect(target).map_err(|error| format!("connecting: {error}"))?;
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed) as usize;
            if index >= jobs {
                return Ok(());
            }
            if let Err(error) = job(&mut client, index) {
                next.store(jobs as u64, Ordering::Relaxed);
                return Err(error);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..connections.min(jobs)).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|_| Err("a worker panicked".into())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Answers every request on every connection with `body` after `delay`.
    fn server(body: &'static str, delay: Duration) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut request = [0; 4096];
                    while stream.read(&mut request).is_ok_and(|read| read > 0) {
                        std::thread::sleep(delay);
                        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                        stream.write_all((head + body).as_bytes()).unwrap();
                    }
                });
            }
        });
        target
    }

    const ONE_HIT: &str = r#"{"results":[{"id":1,"distance":0.5,"score":0}]}"#;

    fn load<'a>(target: &'a Target, requests: &'a [Vec<u8>], arrival: Arrival) -> Load<'a> {
        let duration = Duration::from_millis(300);
        Load { target, requests, hits: 1, connections: 1, arrival, warm_up: Duration::ZERO, duration }
    }

    #[test]
    fn an_open_loop_charges_the_wait_to_the_server() {
        // One connection and 20 ms per answer serve 50 a second; 200 are due, so the queue grows for the whole run
        // and late queries carry waits far beyond one answer's time. A closed loop sees none of it.
        let target = server(ONE_HIT, Duration::from_millis(20));
        let requests = [super::super::client::encode(&target, "POST", "/", "text/plain", b"x")];
        let open = run(&load(&target, &requests, Arrival::Open(200.0)), &|_| ()).unwrap();
        assert_eq!(open.answered, 60);
        assert!(open.latency.max() > 500_000_000, "{}", open.latency.max());
    }

    #[test]
    fn a_closed_loop_counts_its_answers() {
        let target = server(ONE_HIT, Duration::ZERO);
        let requests = [super::super::client::encode(&target, "POST", "/", "text/plain", b"x")];
        let closed = run(&load(&target, &requests, Arrival::Closed), &|_| ()).unwrap();
        assert!(closed.answered > 0);
        assert_eq!(closed.latency.len(), closed.answered);
    }

    #[test]
    fn a_wrong_answer_fails_the_run() {
        let target = server(r#"{"results":[]}"#, Duration::ZERO);
        let requests = [super::super::client::encode(&target, "POST", "/", "text/plain", b"x")];
        let error = run(&load(&target, &requests, Arrival::Closed), &|_| ()).err().unwrap();
        assert_eq!(error, "search: 0 hits instead of 1");
    }
}
