//! What the kernels sort: distance and row in one 64-bit number, whose order is that of (distance, row).
use nigh_engine::device::Found;

/// The key of a place that holds nothing: behind every other.
pub const NOTHING: u64 = u64::MAX;

/// The key of a found row, as `key` in the kernels makes it: the distance's bits, turned so that their order as integers is that
/// of the numbers, above the row.
#[cfg(test)]
pub fn pack(found: Found) -> u64 {
    let bits = found.distance.to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(ordered) << 32 | u64::from(found.row)
}

/// The row behind a key.
pub fn unpack(key: u64) -> Option<Found> {
    if key == NOTHING {
        return None;
    }
    let ordered = (key >> 32) as u32;
    let bits = if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered };
    Some(Found { row: key as u32, distance: f32::from_bits(bits) })
}

/// The `keep` lowest keys of several lists, each of `keep` ascending keys; every row is in one list only.
pub fn merge<'a>(lists: impl Iterator<Item = &'a [u64]>, keep: usize) -> Vec<Found> {
    let mut keys: Vec<u64> = lists.flatten().copied().filter(|&key| key != NOTHING).collect();
    keys.sort_unstable();
    keys.into_iter().take(keep).filter_map(unpack).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_the_order_of_distances_then_rows() {
        let distances = [
            f32::NEG_INFINITY,
            -1e30,
            -1.0,
            -1e-30,
            0.0,
            1e-45,
            0.5,
            1.0,
            f32::MAX,
            f32::INFINITY,
            f32::NAN.abs(),
        ];
        let all =
            distances.iter().flat_map(|&distance| [0, 7, u32::MAX - 1].map(|row| Found { row, distance }));
        let keys: Vec<u64> = all.clone().map(pack).collect();
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:x?}");
        assert!(keys.iter().all(|&key| key < NOTHING));
        for (found, key) in all.zip(keys) {
            let back = unpack(key).unwrap();
            assert_eq!((back.row, back.distance.to_bits()), (found.row, found.distance.to_bits()));
        }
    }

    #[test]
    fn lists_merge_without_their_empty_places() {
        let key = |row, distance| pack(Found { row, distance });
        let lists = [
            vec![key(1, 0.5), key(0, 2.0), NOTHING],
            vec![key(9, 0.5), NOTHING, NOTHING],
            vec![NOTHING; 3],
            vec![key(20, -1.0), key(21, 0.6), key(22, 9.0)],
        ];
        let rows = |keep| -> Vec<u32> {
            merge(lists.iter().map(Vec::as_slice), keep).iter().map(|found| found.row).collect()
        };
        assert_eq!(rows(3), [20, 1, 9]);
        assert_eq!(rows(10), [20, 1, 9, 21, 0, 22]);
        assert_eq!(merge(std::iter::empty(), 3), []);
    }
}
