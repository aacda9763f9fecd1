//! Clients that say nothing, say it a byte at a time, stop in the middle, or are gone without a word.

use super::{
    POINTS, ask, connect, gauge, is_cut, resident_bytes, search, server, short_answer, wait_for_connections,
    wait_until,
};
use nigh_tests::{Server, long, room_for_connections};
use socket2::{Domain, Socket, Type};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Most memory of the server for a connection whose request is not complete and of a few bytes so far.
const INCOMPLETE_BYTES_MAX: u64 = 32 << 10;
/// What the allocator may keep beside that.
const SLACK_BYTES: u64 = 16 << 20;

fn silent(server: &Server) -> TcpStream {
    let stream = connect(server);
    stream.set_nonblocking(true).expect("a socket option");
    stream
}

#[test]
fn heads_that_do_not_come_are_cut_and_cost_nobody_an_answer() {
    let (silent_count, dripping_count) = if long() { (3_000, 500) } else { (300, 50) };
    let count = silent_count + dripping_count;
    let _room = room_for_connections(count);
    let server = server(POINTS, 0);
    let mut api = server.api();
    search(&mut api, POINTS, 21, 300);
    let before = resident_bytes(&server);
    let mut hanging: Vec<TcpStream> = (0..count).map(|_| silent(&server)).collect();
    // A patient one among them, whose head is complete in time.
    let mut patient = connect(&server);
    for byte in super::HEALTH {
        patient.write_all(&[*byte]).expect("the connection is open");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(short_answer(&mut patient).ends_with("{\"status\":\"ok\"}\n"));

    // The head takes 10 s at most; dripping does not prolong it.
    let mut head = b"GET /v1/health HTTP/1.1\r\nhost: x\r\nx-drip: ".to_vec();
    head.resize(4_096, b'a');
    let mut peak = 0;
    let mut rounds = 0;
    wait_until("a head may take as long as it likes", || {
        for stream in hanging.iter_mut().take(dripping_count as usize) {
            // Fails once the connection is cut.
            let _cut = stream.write(&head[rounds..=rounds]);
        }
        rounds += 1;
        peak = peak.max(resident_bytes(&server));
        search(&mut api, POINTS, 1_000 + rounds as u64, 5);
        // In this order: every stream is looked at.
        hanging.iter_mut().filter_map(|stream| (!is_cut(stream)).then_some(())).count() == 0
    });
    println!(
        "all {count} were cut after {rounds} bytes; {} MiB more at most",
        peak.saturating_sub(before) >> 20
    );
    assert!(
        peak <= before + count * INCOMPLETE_BYTES_MAX + SLACK_BYTES,
        "{} MiB more",
        (peak - before) >> 20
    );
    assert!(gauge(&server, "svc_http_connections_timed_out_total") >= count);
    wait_for_connections(&server, 10);
    // Idle since before all of this, and still there.
    ask(&mut patient);
}

#[test]
fn bodies_that_stop_cost_nobody_an_answer() {
    let count = if long() { 500 } else { 50 };
    let server = server(POINTS, 0);
    let mut api = server.api();
    search(&mut api, POINTS, 22, 300);
    let before = resident_bytes(&server);
    let mut hanging: Vec<TcpStream> = (0..count)
        .map(|number| {
            let mut stream = silent(&server);
            // Declared sizes are believed only as far as bytes come.
            let (media, body): (&str, &[u8]) = match number % 3 {
                0 => ("application/json", b"{\"points\": [{\"id\": 1,"),
                1 => ("application/octet-stream", b"RVB1\0\0\0\0\0\0\xff\xff\0\0\0\x10\0\0\0"),
                _ => ("application/json", b""),
            };
            let head = format!(
                "POST /v1/collections/docs/points/batch HTTP/1.1\r\nhost: x\r\ncontent-type: {media}\r\n\
                 content-length: 30000000\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).expect("sent");
            stream.write_all(body).expect("sent");
            // Some end their half, and wait for the answer to what was no request.
            if number % 5 == 0 {
                stream.shutdown(std::net::Shutdown::Write).expect("an open connection");
            }
            stream
        })
        .collect();
    search(&mut api, POINTS, 23, 500);
    let with_all = resident_bytes(&server);
    assert!(with_all <= before + count * INCOMPLETE_BYTES_MAX + SLACK_BYTES, "{} MiB", with_all >> 20);
    let cut = |stream: &mut [TcpStream]| stream.iter_mut().filter_map(|s| is_cut(s).then_some(())).count();
    // Those that ended their half are through at once; the others have 60 s.
    let ended = hanging.len().div_ceil(5);
    wait_until("half a body is waited for after its end", || cut(&mut hanging) >= ended);
    if long() {
        wait_until("a body may take as long as it likes", || {
            search(&mut api, POINTS, 24, 5);
            cut(&mut hanging) == hanging.len()
        });
        wait_for_connections(&server, 10);
    }
    drop(hanging);
    wait_for_connections(&server, 10);
    search(&mut api, POINTS, 25, 100);
}

/// A connection from a local address of its own: whoever connects later is not given its port while the server still
/// knows it. A stranger's first packet on that port would end it sooner, as a connection that was reset.
fn connect_from_own_address(server: &Server, number: u8) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 1, 0, number], 0)).into()).expect("the whole of 127/8 is local");
    let server: SocketAddr = server.authority().parse().expect("an address and a port");
    socket.connect(&server.into()).expect("the server accepts");
    socket.into()
}

/// Ends a connection without telling the other side, as a machine that loses its power does. False where this process
/// may not.
fn vanish(stream: TcpStream) -> bool {
    // On a busy machine the acknowledgement of what was sent may still be on its way. It would find nobody, and the system
    // would answer it with a reset, which ends the connection at once.
    wait_until("what was sent is acknowledged", || unacknowledged_bytes(&stream) == 0);
    let on: libc::c_int = 1;
    // SAFETY: the option value points to a live c_int of the stated size; the descriptor is owned by `stream`.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_REPAIR,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    // A socket under repair is closed without a packet.
    result == 0
}

/// Bytes that were sent and that the other side's system has not acknowledged.
fn unacknowledged_bytes(stream: &TcpStream) -> libc::c_int {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one c_int, to which the pointer points; the descriptor is owned by `stream`.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    bytes
}

#[test]
fn connections_whose_client_is_gone_end_by_themselves() {
    let server = server(POINTS, 0);
    let mut api = server.api();
    let count = 100;
    let mut gone = 0;
    for number in 1..=count {
        let mut stream = connect_from_own_address(&server, number);
        if number % 2 == 0 {
            stream.write_all(b"GET /v1/health HT").expect("sent");
        }
        gone += u64::from(vanish(stream));
    }
    if gone == 0 {
        println!("SKIPPED: this process may not end a connection in silence");
        return;
    }
    assert!(gauge(&server, "svc_http_connections") >= gone, "nobody has told the server");
    search(&mut api, POINTS, 31, 300);
    // An idle connection of ours would in the end be counted among those that timed out.
    drop(api);
    wait_for_connections(&server, 10);
    // The last of them may still be there: connections are looked at once a second, on each core by itself.
    wait_until("they are counted", || gauge(&server, "svc_http_connections_timed_out_total") >= gone);
    // With requests in flight: what is sent to them is refused by the machine they were on.
    for _ in 0..count {
        let mut stream = connect(&server);
        let scroll =
            "POST /v1/collections/docs/points/scroll HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(scroll.as_bytes()).expect("sent");
        vanish(stream);
    }
    search(&mut server.api(), POINTS, 32, 300);
    wait_for_connections(&server, 10);
}
