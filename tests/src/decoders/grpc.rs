//! Messages of gRPC: the first byte chooses the method.

use nigh_net::grpc::probe;

const NOW_MS: u64 = 1_000;

/// A message is an operation or is refused with a sentence; its frames are the same in whatever pieces they come.
pub(super) fn grpc_message(input: &[u8]) {
    let Some((method, bytes)) = input.split_first() else { return };
    match probe::message(usize::from(*method), bytes, NOW_MS) {
        Ok(collection) => assert!(collection.is_none_or(|name| (1..=247).contains(&name.len()))),
        Err(error) => assert!(!error.message.is_empty() && error.committed.is_none()),
    }
    let whole = probe::frames(input, input.len());
    for piece_bytes in [1, 7, 10] {
        assert_eq!(probe::frames(input, piece_bytes), whole);
    }
}

/// Every request with every field set, as the method that its name begins with and as the one behind that.
pub(super) fn grpc_message_seeds() -> Vec<Vec<u8>> {
    let golden = include_str!("../../../net/proto/golden.txt");
    let mut seeds = Vec::new();
    for (name, hex) in golden.lines().filter_map(|line| line.split_once(' ')) {
        let Some(begin) = name.strip_suffix("Request") else { continue };
        let method = probe::methods().position(|method| method.starts_with(begin)).unwrap_or(0);
        let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
        let bytes: Vec<u8> =
            digits.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal digits")).collect();
        for method in [method, method + 1] {
            seeds.push([&[method as u8][..], &bytes].concat());
        }
    }
    seeds
}
