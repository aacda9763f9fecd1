//! The operations of the protocol by their names, the envelope in which one of them may come, and what their arguments say of the right
//! each needs. Names and rights derive from the [table](crate::op::table).

use crate::limits;
use crate::op::table::{CollectionAt, Right, Row, TABLE};
use crate::op::{Action, Op, ProcessOp};
use crate::tcp::reader::{ArgsError, ArgsReader};

/// Cells of [`BY_NAME`]: enough that a name is seldom where another would be.
const CELLS: usize = 512;

/// The place in [`TABLE`] + 1 of each name, in the first free cell from [`cell_of`] on; 0 where there is none.
const BY_NAME: [u8; CELLS] = {
    let mut cells = [0; CELLS];
    let mut place = 0;
    while place < TABLE.len() {
        let row = &TABLE[place];
        place += 1;
        if row.tcp.is_some() {
            let mut at = cell_of(row.name.as_bytes());
            while cells[at] != 0 {
                at = (at + 1) % CELLS;
            }
            cells[at] = place as u8;
        }
    }
    cells
};

const _: () = assert!(TABLE.len() < 256, "places are bytes");

/// Where a name is looked for first: by its length and its two bytes at either end, which tell most operations apart.
const fn cell_of(name: &[u8]) -> usize {
    let len = name.len();
    if len < 2 {
        return len;
    }
    let ends = u32::from_le_bytes([name[0], name[1], name[len - 2], name[len - 1]]) ^ (len as u32) << 11;
    (ends.wrapping_mul(0x9e37_79b1) >> (u32::BITS - CELLS.ilog2())) as usize
}

/// The operation called `name`; `None` is answered with `op not registered`. Cost: a look into a table and one comparison, for most names.
pub fn find(name: &[u8]) -> Option<&'static Row> {
    let mut at = cell_of(name);
    loop {
        let row = &TABLE[usize::from(BY_NAME[at].checked_sub(1)?)];
        if row.name.as_bytes() == name {
            return Some(row);
        }
        at = (at + 1) % CELLS;
    }
}

/// An operation with the acknowledgements its client wants. One node has nobody to wait for: both numbers change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Replicas that must have acknowledged.
    pub factor: u8,
    /// Whether to wait for them.
    pub wait: bool,
    /// Name of the operation inside, which is no envelope.
    pub operation: &'a [u8],
    /// Its arguments.
    pub args: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Decodes the arguments of `__wc__`.
    ///
    /// # Errors
    /// `args too short`; that it holds another, since depth is nothing that a client should choose.
    pub fn decode(args: &'a [u8]) -> Result<Envelope<'a>, ArgsError> {
        Envelope::read(args, |args| args.s32("innerArgs"))
    }

    /// As [`Envelope::decode`] when perhaps not all of the arguments are there: those of the operation inside may end anywhere.
    pub fn decode_beginning(args: &'a [u8]) -> Result<Envelope<'a>, ArgsError> {
        Envelope::read(args, |args| {
            args.u32("innerArgs")?;
            args.take(args.remaining(), "innerArgs")
        })
    }

    fn read(
        args: &'a [u8],
        inner_args: impl FnOnce(&mut ArgsReader<'a>) -> Result<&'a [u8], ArgsError>,
    ) -> Result<Envelope<'a>, ArgsError> {
        let mut args = ArgsReader::new(args);
        let envelope = Envelope {
            factor: args.u8("factor")?,
            wait: args.flag("wait")?,
            operation: args.s8("innerOp")?,
            args: inner_args(&mut args)?,
        };
        match find(envelope.operation).map(|inner| inner.op) {
            Some(Op::Process(ProcessOp::Envelope)) => Err(ArgsError::NestedEnvelope),
            _ => Ok(envelope),
        }
    }
}

/// The collections or aliases on which a request needs its right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On<'a> {
    /// The collection of this name, as sent; empty for the node as a whole.
    Collection(&'a str),
    /// Every name in these changes of aliases.
    Aliases(AliasNames<'a>),
}

/// The right that a request needs, and on which collections or aliases.
///
/// Whatever cannot be told needs the most: an unknown operation, a collection whose name cannot be read, an envelope
/// around another.
pub fn required<'a>(name: &[u8], args: &'a [u8]) -> (Action, On<'a>) {
    required_by(find(name), args)
}

/// The same as [`required`], for an operation that has been looked up.
pub fn required_by<'a>(row: Option<&Row>, args: &'a [u8]) -> (Action, On<'a>) {
    required_in(row, args, Envelope::decode)
}

/// Does what [`required_by`] does with the beginning of the arguments alone. Given [`limits::TCP_FRAME_JUDGED_BYTES`] of the frame the answer is the
/// same, except that changes of aliases may have more names.
pub fn required_by_beginning<'a>(row: Option<&Row>, args: &'a [u8]) -> (Action, On<'a>) {
    required_in(row, args, Envelope::decode_beginning)
}

fn required_in<'a>(
    row: Option<&Row>,
    args: &'a [u8],
    envelope: impl FnOnce(&'a [u8]) -> Result<Envelope<'a>, ArgsError>,
) -> (Action, On<'a>) {
    const ALL: (Action, On<'_>) = (Action::Admin, On::Collection(""));
    let Some((row, at)) = row.and_then(|row| Some((row, row.tcp?))) else { return ALL };
    let action = match row.right {
        Right::Of(action) => action,
        // Which holds no other, so that this ends.
        Right::OfInner => match envelope(args) {
            Ok(envelope) => return required(envelope.operation, envelope.args),
            Err(_) => return ALL,
        },
    };
    if at == CollectionAt::Aliases {
        return (action, On::Aliases(AliasNames::new(args)));
    }
    match collection_in(args, at) {
        Some(collection) => (action, On::Collection(collection)),
        None => ALL,
    }
}

/// The names in the arguments of `alias_batch`, in their order: each alias, and the collection that it is to stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AliasNames<'a> {
    changes: ArgsReader<'a>,
    left: u32,
    target: Option<&'a str>,
}

impl<'a> AliasNames<'a> {
    fn new(args: &'a [u8]) -> AliasNames<'a> {
        let mut changes = ArgsReader::new(args);
        // Arguments that have no count have no names, like those whose count is 0.
        let left = changes.u32("n").unwrap_or(0);
        AliasNames { changes, left, target: None }
    }

    /// The alias of the next change; its target is kept for the next call.
    fn change(&mut self) -> Result<&'a str, ArgsError> {
        let (alias, target) = (self.changes.text16("alias")?, self.changes.text16("target")?);
        self.target = (!self.changes.flag("delete")?).then_some(target);
        Ok(alias)
    }
}

impl<'a> Iterator for AliasNames<'a> {
    /// `None` if the name cannot be determined: a collection cannot have such a name, or the arguments end before it.
    type Item = Option<&'a str>;

    fn next(&mut self) -> Option<Option<&'a str>> {
        let name = match self.target.take() {
            Some(target) => Ok(target),
            None if self.left == 0 => return None,
            None => {
                self.left -= 1;
                self.change()
            }
        };
        let is_name = |name: &&str| (1..=limits::NAME_MAX_BYTES).contains(&name.len());
        let name = name.ok().filter(is_name);
        if name.is_none() {
            // The names that follow cannot be determined either.
            (self.left, self.target) = (0, None);
        }
        Some(name)
    }
}

/// The collection that `args` name, empty for the node as a whole; `None` when they name none or several, or no name that one
/// can have.
pub fn collection_in(args: &[u8], at: CollectionAt) -> Option<&str> {
    let mut reader = ArgsReader::new(args);
    match at {
        CollectionAt::Nowhere => return Some(""),
        CollectionAt::First => {}
        CollectionAt::AfterFlags => {
            reader.u8("flags").ok()?;
        }
        CollectionAt::FirstLong => {
            let name = reader.text16("collection").ok()?;
            return (name.len() <= limits::NAME_MAX_BYTES).then_some(name);
        }
        CollectionAt::Aliases => return None,
    }
    let name = reader.text8("collection").ok()?;
    (1..=limits::NAME_MAX_BYTES).contains(&name.len()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Action::{Admin, Read, Write};
    use std::collections::HashSet;

    #[test]
    fn every_name_is_found_and_no_other() {
        let rows = || TABLE.iter().filter(|row| row.tcp.is_some());
        let names: HashSet<_> = rows().map(|row| row.name).collect();
        for row in rows() {
            let name = row.name.as_bytes();
            assert_eq!(find(name).map(|found| found.name), Some(row.name));
            // Two bytes would read as the start of a request with a token.
            assert!((1..=255).contains(&name.len()) && name.len() != 2);
            for other in [&name[..name.len() - 1], &[name, b"_"].concat(), &name.to_ascii_uppercase()] {
                let known = std::str::from_utf8(other).is_ok_and(|other| names.contains(other));
                assert_eq!(find(other).is_some(), known, "{other:?}");
            }
        }
        assert!(find(b"").is_none() && find(&[0xff; 255]).is_none() && find(b"vector_search_mmr").is_none());
    }

    #[test]
    fn rights() {
        for (name, args, expected) in [
            ("get", &b"\x00\x01k"[..], (Read, "")),
            ("flush", b"", (Write, "")),
            ("__keys_list__", b"", (Admin, "")),
            ("vector_get", b"\x04docs", (Read, "docs")),
            ("vector_search", b"\x00\x04docs", (Read, "docs")),
            ("vector_upsert", b"\x00\x0aacme/films", (Write, "acme/films")),
            ("vector_drop_collection", b"\x04docs", (Admin, "docs")),
            // What names no collection.
            ("vector_get", b"\x04doc", (Admin, "")),
            ("vector_get", b"\x00", (Admin, "")),
            ("vector_get", b"\x01\xff", (Admin, "")),
            ("vector_get", b"", (Admin, "")),
            ("vector_search", b"\x00", (Admin, "")),
            ("nothing", b"\x04docs", (Admin, "")),
            // Envelopes.
            ("__wc__", b"\x01\x01\x03get\x00\x00\x00\x03\x00\x01k", (Read, "")),
            ("__wc__", b"\x01\x01\x0dvector_delete\x00\x00\x00\x05\x04docs", (Write, "docs")),
            ("__wc__", b"\x01\x01\x07nothing\x00\x00\x00\x00", (Admin, "")),
            ("__wc__", b"\x01\x01\x06__wc__\x00\x00\x00\x00", (Admin, "")),
            ("__wc__", b"\x01", (Admin, "")),
        ] {
            let (right, on) = expected;
            assert_eq!(required(name.as_bytes(), args), (right, On::Collection(on)), "{name} {args:?}");
        }
        let long = [&[248][..], &[b'a'; 248]].concat();
        assert_eq!(required(b"vector_get", &long), (Admin, On::Collection("")));
        // Aliases are listed for one collection or for the node.
        for (args, expected) in [
            (&b"\0\x04docs"[..], "docs"),
            (b"\0\0", ""),
            (b"\0\x04doc", ""),
            (&[&[0, 248][..], &[b'a'; 248]].concat(), ""),
        ] {
            assert_eq!(required(b"alias_list", args), (Admin, On::Collection(expected)), "{args:?}");
        }
    }

    #[test]
    fn names_of_changes_of_aliases() {
        let names = |args: &[u8]| match required(b"alias_batch", args) {
            (Admin, On::Aliases(names)) => {
                names.map(|name| name.map_or("?".to_owned(), str::to_owned)).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        let two = b"\0\0\0\x02\0\x01a\0\x04docs\0\0\x01b\0\x01c\x01";
        assert_eq!(names(two), ["a", "docs", "b"], "what a deleted alias would stand for does not count");
        for end in 4..two.len() {
            let mut expected = vec!["a", "docs", "b"];
            expected.truncate(if end < 14 { 0 } else { 2 });
            expected.push("?");
            assert_eq!(names(&two[..end]), expected, "{end} bytes");
        }
        assert!(names(b"").is_empty() && names(b"\0\0\0").is_empty() && names(&[0; 4]).is_empty());
        // A collection cannot have an empty name, and the names behind such a name cannot be determined.
        assert_eq!(names(b"\0\0\0\x02\0\0\0\x01c\0\0\x01b\0\x01c\x01"), ["?"]);
        assert_eq!(names(b"\0\0\0\x02\0\x01a\0\0\0\0\x01b\0\x01c\x01"), ["a", "?"]);
    }
}
