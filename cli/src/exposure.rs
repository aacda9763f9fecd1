//! Listen addresses: what they mean, and whether others than this machine can reach them.
use std::net::IpAddr;

/// Splits `host:port`, `[v6]:port` or `:port`.
fn split(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        // An unbracketed host with a colon is an IPv6 address without a port.
        None if host.contains(':') => return None,
        None => host,
    };
    Some((host, port))
}

/// Whether a listener on `address` can be reached from elsewhere. Loopback is `localhost`, 127.0.0.0/8 and `::1`;
/// what cannot be parsed counts as exposed.
pub fn is_exposed(address: &str) -> bool {
    match split(address) {
        Some(("localhost", _)) => false,
        Some((host, _)) => host.parse::<IpAddr>().map_or(true, |ip| !ip.is_loopback()),
        None => true,
    }
}

/// The sentence that refuses an open server on reachable listeners, if it must be refused.
pub fn refusal(listeners: &[(&str, &str)], authenticated: bool, insecure: bool) -> Option<String> {
    if authenticated || insecure {
        return None;
    }
    let (flag, address) = listeners.iter().find(|(_, address)| !address.is_empty() && is_exposed(address))?;
    Some(format!(
        "-{flag} {address} is reachable from other machines and no authentication is configured: \
         bind a loopback address such as 127.0.0.1:8080, or pass -insecure"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_only() {
        for address in ["127.0.0.1:8080", "127.9.9.9:1", "localhost:8080", "[::1]:8080"] {
            assert!(!is_exposed(address), "{address}");
        }
        for address in [
            ":8080",
            "0.0.0.0:8080",
            "[::]:8080",
            "10.0.0.1:1",
            "example.org:1",
            "nonsense",
            "::1",
            "",
            "x:y",
        ] {
            assert!(is_exposed(address), "{address}");
        }
    }

    #[test]
    fn open_and_reachable_is_refused() {
        let open = [("http", ":8080"), ("grpc", "")];
        assert!(refusal(&open, false, false).unwrap().starts_with("-http :8080 "));
        assert_eq!(refusal(&open, true, false), None);
        assert_eq!(refusal(&open, false, true), None);
        assert_eq!(refusal(&[("http", "127.0.0.1:8080"), ("grpc", "")], false, false), None);
    }
}
