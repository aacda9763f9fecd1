//! Listening sockets: one per core on the same address, so the kernel spreads connections and no core hands them on.

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::time::Duration;

/// Connections the kernel holds for a core that has not accepted them yet.
const BACKLOG: i32 = 1024;

/// Between two questions of the system whether a silent client is still there (interface).
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Binds `count` listeners (one per core) to `address`: `host:port`, or `:port` for every interface. With port 0 all share
/// the one the kernel picked.
///
/// A first socket is bound without address sharing, because two servers that both share would silently split the port.
///
/// # Errors
/// The address does not parse or resolve, is in use, or may not be bound; the text names it.
pub fn bind(address: &str, count: usize) -> io::Result<Vec<TcpListener>> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("listen on {address:?}: {error}"));
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no such address");
    for candidate in resolve(address).map_err(named)? {
        match bind_all(candidate, count) {
            Ok(listeners) => return Ok(listeners),
            Err(error) => last = error,
        }
    }
    Err(named(last))
}

fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    match address.strip_prefix(':') {
        Some(port) => {
            let port = port.parse().map_err(|_| {
                io::Error::new(io::ErrorKind::InvalidInput, "the port is not a number up to 65535")
            })?;
            // The IPv6 wildcard serves IPv4 as well where the system has IPv6 at all.
            Ok(vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()])
        }
        None => Ok(address.to_socket_addrs()?.collect()),
    }
}

fn bind_all(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    let probe = socket(address, false)?;
    let address = probe.local_addr()?.as_socket().unwrap_or(address);
    drop(probe);
    (0..count)
        .map(|_| {
            let socket = socket(address, true)?;
            // Connections inherit both, those too that come before a core serves them.
            socket.set_tcp_nodelay(true)?;
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
            socket.listen(BACKLOG)?;
            Ok(TcpListener::from(socket))
        })
        .collect()
}

fn socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::SockRef;

    #[test]
    fn cores_share_a_port_and_strangers_do_not() {
        let listeners = bind("127.0.0.1:0", 3).unwrap();
        let address = listeners[0].local_addr().unwrap();
        assert!(listeners.iter().all(|listener| listener.local_addr().unwrap() == address));
        let error = bind(&address.to_string(), 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }

    #[test]
    fn connections_inherit_their_options_from_the_first_on() {
        let listener = bind("127.0.0.1:0", 1).unwrap().remove(0);
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let socket = SockRef::from(&accepted);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE);
    }

    #[test]
    fn bare_port_and_bad_addresses() {
        assert_eq!(bind(":0", 1).unwrap().len(), 1);
        for bad in [":70000", ":http", "127.0.0.1", "300.0.0.1:1", ""] {
            assert!(bind(bad, 1).is_err(), "{bad}");
        }
    }
}
