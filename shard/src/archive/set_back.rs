//! Times that came twice in an archive, because the clock was set back between two runs. Within a run no time comes twice: logs tell it by a clock that
//! never goes back ([`crate::node::NodeShared::moment_ms`]).

use super::names::{CatalogName, PartName};
use std::collections::BTreeMap;

/// A clock that was set back: both runs were there in the time between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SetBack {
    /// The run that began later, and when it did, Unix milliseconds.
    pub later_run: u64,
    pub from_ms: u64,
    /// The newest time in the runs before it.
    pub to_ms: u64,
}

impl SetBack {
    pub fn has(&self, unix_ms: u64) -> bool {
        (self.from_ms..self.to_ms).contains(&unix_ms)
    }
}

/// All of them in an archive, in the order of the runs.
pub(super) fn find(parts: &[(PartName, u64)], catalogs: &[CatalogName]) -> Vec<SetBack> {
    // Of each run, when it began and its newest time.
    let mut runs: BTreeMap<u64, (Option<u64>, u64)> = BTreeMap::new();
    for catalog in catalogs {
        let (began_ms, newest_ms) = runs.entry(catalog.generation).or_default();
        *began_ms = Some(began_ms.map_or(catalog.unix_ms, |known| known.min(catalog.unix_ms)));
        *newest_ms = catalog.unix_ms.max(*newest_ms);
    }
    for (part, _) in parts {
        let (_, newest_ms) = runs.entry(part.id.generation).or_default();
        *newest_ms = part.last_ms.max(*newest_ms);
    }
    let (mut found, mut before_ms) = (Vec::new(), 0);
    for (run, (began_ms, newest_ms)) in runs {
        if let Some(from_ms) = began_ms.filter(|began_ms| *began_ms < before_ms) {
            found.push(SetBack { later_run: run, from_ms, to_ms: before_ms });
        }
        before_ms = newest_ms.max(before_ms);
    }
    found
}

/// `unix_ms` where it bounds something from below: the least time that can be meant.
pub(super) fn earliest(set_back: &[SetBack], unix_ms: u64) -> u64 {
    set_back
        .iter()
        .filter(|set_back| set_back.has(unix_ms))
        .map(|set_back| set_back.from_ms)
        .min()
        .unwrap_or(unix_ms)
}

/// `unix_ms` where it bounds something from above: the greatest time that can be meant.
pub(super) fn latest(set_back: &[SetBack], unix_ms: u64) -> u64 {
    set_back
        .iter()
        .filter(|set_back| set_back.has(unix_ms))
        .map(|set_back| set_back.to_ms)
        .max()
        .unwrap_or(unix_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::SegmentId;

    #[test]
    fn a_time_that_came_twice_is_found() {
        let part = |generation, last_ms| {
            let id = SegmentId { generation, core: 1, number: 1 };
            (PartName { id, begin: 4096, end: 8192, last_ms }, 1)
        };
        let catalog = |generation, unix_ms| CatalogName { generation, position: 0, unix_ms };
        let parts = [part(1, 50), part(1, 90), part(2, 100), part(3, 80), part(4, 200)];
        let catalogs = [catalog(1, 10), catalog(1, 60), catalog(2, 95), catalog(3, 70), catalog(4, 150)];
        let found = find(&parts, &catalogs);
        assert_eq!(found, [SetBack { later_run: 3, from_ms: 70, to_ms: 100 }]);
        let bounds = |ms| (earliest(&found, ms), latest(&found, ms));
        assert_eq!([69, 70, 99, 100].map(bounds), [(69, 69), (70, 100), (70, 100), (100, 100)]);
        assert_eq!(find(&parts[..3], &catalogs[..3]), []);
    }
}
