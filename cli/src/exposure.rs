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

/// The sentence about the first address that is none, if there is one. An empty address is a listener that is off.
pub fn not_an_address(listeners: &[(&str, &str)]) -> Option<String> {
    let (flag, address) =
        listeners.iter().find(|(_, address)| !address.is_empty() && split(address).is_none())?;
    Some(format!(
        "-{flag} {address:?} is not an address: write host:port, such as 127.0.0.1:8080, or :port for every interface"
    ))
}

/// The sentence that refuses an open server on reachable listeners, if it must be refused.
pub fn refusal(listeners: &[(&str, &str)], authenticated: bool, insecure: bool) -> Option<String> {
    if authenticated || insecure {
        return None;
    }
    let (flag, address) = listeners.iter().find(|(_, address)| !address.is_empty() && is_exposed(address))?;
    Some(format!(
        "-{flag} {address} is reachable from other machines and no authentication is configured: \
         set an API key in SVC_API_KEY, bind a loopback address such as 127.0.0.1:8080, or pass -insecure"
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
    fn an_address_is_host_and_port() {
        for address in ["foo", "8080", "foo:", "foo:http", "foo:65536", "::1", "[::1]", "http://foo"] {
            let said = not_an_address(&[("grpc", ""), ("http", address)]).expect(address);
            assert!(said.starts_with(&format!("-http {address:?} ")) && said.contains("host:port"), "{said}");
        }
        for address in ["", ":8080", "foo:8080", "127.0.0.1:0", "[::1]:8080"] {
            assert_eq!(not_an_address(&[("http", address)]), None, "{address}");
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
