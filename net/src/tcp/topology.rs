//! What a client that sends each key to the server of its shard learns of the servers: the result of `__topology__`.
//!
//! Such clients are written in Go and read a stream of `encoding/gob`: the description of the types first, which never changes, then one value. A node
//! alone is one shard, and its only member leads it.
//!
//! ```text
//! value      U(bytes behind it), ff 82, fields, 00
//! fields     01 U(2 * shards), 01 U(members) (01 S(id) 01 S(address) 00)*, 01 U(shards) S(address of the leader)*,
//!            01 U(shards) (U(replicas) S(id)*)*
//! U(n)       n below 128: one byte; else 256 - k in one byte, then n in k bytes, big-endian and as few as possible
//! S(text)    U(bytes), bytes
//! ```
//! The leading `01` of a field is its distance to the last one that is there: gob leaves out what is empty, and nothing here is.

/// The only member of a node alone, as the interface calls it.
const NODE: &str = "node1";

/// Descriptions of the types `Topo` {NumShards int, Members []Member, Leaders []string, Placement [][]string} and `Member` {NodeID string,
/// ServerAddr string}. Readers go by the names of fields alone.
const TYPES: &[u8] = b"\x49\xff\x81\x03\x01\x01\x04Topo\x01\xff\x82\x00\x01\x04\x01\x09NumShards\x01\x04\x00\x01\
    \x07Members\x01\xff\x86\x00\x01\x07Leaders\x01\xff\x88\x00\x01\x09Placement\x01\xff\x8a\x00\x00\x00\
    \x1c\xff\x85\x02\x01\x01\x0d[]main.Member\x01\xff\x86\x00\x01\xff\x84\x00\x00\
    \x2e\xff\x83\x03\x01\x01\x06Member\x01\xff\x84\x00\x01\x02\x01\x06NodeID\x01\x0c\x00\x01\x0aServerAddr\x01\x0c\x00\x00\x00\
    \x16\xff\x87\x02\x01\x01\x08[]string\x01\xff\x88\x00\x01\x0c\x00\x00\
    \x19\xff\x89\x02\x01\x01\x0a[][]string\x01\xff\x8a\x00\x01\xff\x88\x00\x00";

fn put_number(out: &mut Vec<u8>, number: usize) {
    let bytes = (number as u64).to_be_bytes();
    match u8::try_from(number) {
        Ok(short @ 0..128) => out.push(short),
        _ => {
            let bytes = &bytes[(number as u64).leading_zeros() as usize / 8..];
            out.push((256 - bytes.len()) as u8);
            out.extend_from_slice(bytes);
        }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// Appends the result of `__topology__` of a node alone that clients reach at this address, which is not empty.
pub fn put_topology(out: &mut Vec<u8>, address: &str) {
    const ONE: usize = 1;
    out.extend_from_slice(TYPES);
    let mut value = vec![0xff, 0x82];
    value.push(1);
    put_number(&mut value, 2 * ONE);
    value.push(1);
    put_number(&mut value, ONE);
    for text in [NODE, address] {
        value.push(1);
        put_text(&mut value, text);
    }
    value.push(0);
    value.push(1);
    put_number(&mut value, ONE);
    put_text(&mut value, address);
    value.push(1);
    put_number(&mut value, ONE);
    put_number(&mut value, ONE);
    put_text(&mut value, NODE);
    value.push(0);
    put_number(out, value.len());
    out.extend_from_slice(&value);
}

/// Checks an address that clients are told: a host or an address of IP, and a port.
///
/// # Errors
/// What is wrong with it.
pub fn check_advertised(address: &str) -> Result<(), String> {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && is_port(port) && address.len() <= 255 => Ok(()),
        _ => Err(format!(
            "{address:?} is not an address that clients can reach: write host:port, with a port between 1 and 65535"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::hex::hex;

    /// The bytes of the interface's description, which a reader of gob has been held against.
    #[test]
    fn types_are_those_of_the_interface() {
        let told = concat!(
            "49ff8103010104546f706f01ff8200010401094e756d53686172647301040001",
            "074d656d6265727301ff860001074c65616465727301ff88000109506c616365",
            "6d656e7401ff8a0000001cff850201010d5b5d6d61696e2e4d656d62657201ff",
            "860001ff8400002eff83030101064d656d62657201ff8400010201064e6f6465",
            "4944010c00010a53657276657241646472010c00000016ff87020101085b5d73",
            "7472696e6701ff8800010c000019ff890201010a5b5d5b5d737472696e6701ff",
            "8a0001ff880000",
        );
        assert_eq!(TYPES, hex(told));
    }

    #[test]
    fn a_node_alone() {
        let mut out = Vec::new();
        put_topology(&mut out, "db:7000");
        let value = "2bff8201020101 01056e6f646531 010764623a37303030 00 0101 0764623a37303030 010101 056e6f646531 00";
        assert_eq!(out[TYPES.len()..], hex(value));
        out.clear();
        put_topology(&mut out, &"a".repeat(200));
        // Both are longer than one byte says.
        assert_eq!(out[TYPES.len()..][..4], hex("fe 01 af ff"));
    }

    #[test]
    fn numbers() {
        for (number, bytes) in
            [(0, "00"), (127, "7f"), (128, "ff80"), (255, "ffff"), (256, "fe0100"), (65_536, "fd010000")]
        {
            let mut out = Vec::new();
            put_number(&mut out, number);
            assert_eq!(out, hex(bytes), "{number}");
        }
    }

    #[test]
    fn addresses() {
        for good in ["db:7000", "10.0.0.5:1", "[::1]:65535"] {
            assert_eq!(check_advertised(good), Ok(()), "{good}");
        }
        for bad in
            ["", ":7000", "db", "db:", "db:0", "db:65536", "db:port", &format!("{}:1", "a".repeat(254))]
        {
            assert!(check_advertised(bad).is_err(), "{bad}");
        }
    }
}
