//! Names of the objects of an archive, which a store calls keys.
//!
//! ```text
//! <prefix>/log/<generation>/catalog/<position>-<time>.json             the catalog before the change with that position
//! <prefix>/log/<generation>/<core>/<segment>-<offset>-<end>-<time>.part    frames of a segment between these offsets; the time is that of the last one
//! ```
//!
//! All numbers are decimal and padded with zeros, so that the order of keys is the order of the objects. Times are Unix milliseconds.

use crate::backup::Names;
use crate::log::SegmentId;

/// Where the frames of a part belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartName {
    pub id: SegmentId,
    /// Offset in the segment at which the first frame begins.
    pub begin: u64,
    /// Offset at which the last frame ends.
    pub end: u64,
    /// The time of the last frame; 0 = no frame has a time.
    pub last_ms: u64,
}

/// A stored catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CatalogName {
    pub generation: u64,
    /// How many changes of the run it contains.
    pub position: u64,
    pub unix_ms: u64,
}

/// What a key under `log/` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogObject {
    Part(PartName),
    Catalog(CatalogName),
}

impl PartName {
    pub fn key(&self, names: &Names) -> String {
        let SegmentId { generation, core, number } = self.id;
        format!(
            "{}{number:010}-{:012}-{:012}-{:013}.part",
            chain_prefix(names, generation, core),
            self.begin,
            self.end,
            self.last_ms
        )
    }
}

impl CatalogName {
    pub fn key(&self, names: &Names) -> String {
        let CatalogName { generation, position, unix_ms } = self;
        format!("{}{generation:010}/catalog/{position:010}-{unix_ms:013}.json", names.of_log())
    }
}

/// The prefix of the keys of all parts of one chain.
pub(super) fn chain_prefix(names: &Names, generation: u64, core: u32) -> String {
    format!("{}{generation:010}/{core:04}/", names.of_log())
}

/// Parses `key`; `None` if no object of an archive can have it.
pub(super) fn parse(names: &Names, key: &str) -> Option<LogObject> {
    let mut parts = key.strip_prefix(&names.of_log())?.split('/');
    let (generation, middle, last) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
    let object = match middle {
        "catalog" => {
            let (position, unix_ms) = last.strip_suffix(".json")?.split_once('-')?;
            let (position, unix_ms) = (position.parse().ok()?, unix_ms.parse().ok()?);
            LogObject::Catalog(CatalogName { generation, position, unix_ms })
        }
        core => {
            let mut numbers = last.strip_suffix(".part")?.splitn(4, '-');
            let (number, begin) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
            let id = SegmentId { generation, core: core.parse().ok()?, number };
            let end = numbers.next()?.parse().ok()?;
            LogObject::Part(PartName { id, begin, end, last_ms: numbers.next()?.parse().ok()? })
        }
    };
    let again = match object {
        LogObject::Part(part) => part.key(names),
        LogObject::Catalog(catalog) => catalog.key(names),
    };
    (again == key).then_some(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written_and_sort_as_they_follow_each_other() {
        let names = Names::new("prod");
        let id = |generation, core, number| SegmentId { generation, core, number };
        let part = |id, begin, last_ms| PartName { id, begin, end: begin + 4096, last_ms };
        let parts = [
            part(id(2, 0, 1), 4096, 1_700_000_000_000),
            part(id(2, 0, 1), 8192, 1_700_000_000_001),
            part(id(2, 0, 10), 4096, 1_700_000_000_002),
            part(id(2, 1, 1), 4096, 0),
            part(id(10, 0, 1), 4096, 1_700_000_000_003),
        ];
        let keys: Vec<String> = parts.iter().map(|part| part.key(&names)).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        for (part, key) in parts.into_iter().zip(&keys) {
            assert_eq!(parse(&names, key), Some(LogObject::Part(part)), "{key}");
        }
        let catalog = CatalogName { generation: 3, position: 7, unix_ms: 1_700_000_000_000 };
        let key = catalog.key(&names);
        assert_eq!(key, "prod/log/0000000003/catalog/0000000007-1700000000000.json");
        assert_eq!(parse(&names, &key), Some(LogObject::Catalog(catalog)));
        for other in [
            "prod/log/3/catalog/0000000007-1700000000000.json",
            "prod/log/0000000003/catalog/0000000007-1700000000000.json/x",
            "prod/log/0000000003/0001/0000000001-000000004096-0000000008192.part",
            "other/log/0000000003/catalog/0000000007-1700000000000.json",
            "prod/log/",
        ] {
            assert_eq!(parse(&names, other), None, "{other}");
        }
    }
}
