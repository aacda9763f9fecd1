//! Lets clients that know nothing of TLS speak to a server over TLS.
use super::authority::connect;
use rustls::{ClientConfig, ClientConnection};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Listens on an address of its own, and passes every connection on to `server` over TLS. It ends with the process.
pub fn bridge(server: SocketAddr, config: &Arc<ClientConfig>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, config) = (listener.local_addr().unwrap(), config.clone());
    std::thread::spawn(move || {
        for plain in listener.incoming().map_while(Result::ok) {
            let Ok(secure) = TcpStream::connect(server) else { continue };
            pass_on(plain, secure, connect(&config));
        }
    });
    address
}

fn pass_on(mut plain: TcpStream, mut secure: TcpStream, mut session: ClientConnection) {
    plain.set_nodelay(true).unwrap();
    secure.set_nodelay(true).unwrap();
    std::thread::spawn(move || {
        if session.complete_io(&mut secure).is_err() {
            let _gone = plain.shutdown(Shutdown::Both);
            return;
        }
        let session = Arc::new(Mutex::new(session));
        let upward = session.clone();
        let (mut from, mut to) = (plain.try_clone().unwrap(), secure.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 32 << 10];
            loop {
                let count = from.read(&mut bytes).unwrap_or(0);
                let mut session = upward.lock().unwrap();
                match count {
                    0 => session.send_close_notify(),
                    _ => session.writer().write_all(&bytes[..count]).unwrap(),
                }
                let mut records = Vec::new();
                while session.wants_write() {
                    session.write_tls(&mut records).unwrap();
                }
                drop(session);
                if to.write_all(&records).is_err() || count == 0 {
                    let _gone = to.shutdown(Shutdown::Write);
                    return;
                }
            }
        });
        let mut records = [0; 32 << 10];
        loop {
            let count = secure.read(&mut records).unwrap_or(0);
            let mut session = session.lock().unwrap();
            let (mut rest, mut bytes) = (&records[..count], Vec::new());
            while !rest.is_empty() {
                session.read_tls(&mut rest).unwrap();
                if session.process_new_packets().is_err() {
                    break;
                }
                let _nothing_more = session.reader().read_to_end(&mut bytes);
            }
            drop(session);
            if plain.write_all(&bytes).is_err() || count == 0 {
                let _gone = plain.shutdown(Shutdown::Both);
                return;
            }
        }
    });
}
