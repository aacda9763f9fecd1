//! Records of a collection's checkpoint image.
//!
//! ```text
//! image    = record* end                       later records of a slot replace earlier ones
//! record   = length:u32 kind:u8 body           length counts kind and body
//! point    = 1 slot:u32 flags:u8 id:u64 version:u64 born:u64 deadline_ms:u64 levels vector row:bytes
//! edges    = 2 slot:u32 flags:u8 levels        point as stored before, new edges
//! free     = 3 slot:u32                        no point any more
//! end      = 4 seq:u64 slots:u32 entry:u32 entry_level:u8
//! cells    = 5 cells:u32 trained_on:u64 mean:f32          of an index of cells; its centroids follow, one each
//! centroid = 6 cell:u32 f32*dim
//! gone     = 10 at:u32 floor:u64 (id:u64 version:u64)*    last versions of ids that are absent, piece `at`; piece 0 voids what
//!            earlier images said. Those that are not named had `floor` at most. Every full image has piece 0, older ones none
//! watch    = 11 seq:u64 left:u64 learned_from:u64 written:u64 measured:u64 level:u8 calm:u8 (trained:f64 sum:f64)*2   of what was learned, how well it fits
//!            what is written: errors of codes, distances to centroids. Before the end of an image, if anything was learned
//! codec    = 8 total:u32 at:u32 bytes                     a piece of what a quantizer has learned, `total` bytes in all, in order;
//!            of an index of cells behind the record of the cells; of a graph with a quantizer: number:u8 trained_at:u64 codec.
//!            None of 0 bytes: what images before had learned is forgotten (as is a clustering by one of 0 cells)
//! code     = 9 slot:u32 bytes                             of a point in cells with codes, behind its point or edges: one for each cell;
//!            of a graph whose vectors are in a file or given up, behind its point: number:u8 (of the quantizer) code
//! space    = 12 number:u16                     of a collection of named spaces: what follows of edges, codes, cells, codec and watch is of this
//!            space, up to the next such record. Its points have neither levels nor vector, and `end` no entry
//! part     = 13 slot:u32 flags:u8 levels vector           the vector in the space of a point whose record came before. A point has no vector
//!            in a space of which no part followed its last record
//! entry    = 14 entry:u32 entry_level:u8                  where the graph of the space is entered; before the end
//! levels   = count:u8 (degree:u16 slot:u32*degree)*count     level 0 first; count 0 = not in the graph
//!            of a point in cells: one level that names its cells, none before there are any
//! flags    = bit 0: dead, kept as a way-point of the graph
//!            bit 1 (of a point): the vector lies in the collection's file of vectors
//! vector   = dim:u32 f32*dim, or crc32c:u32 of the padded row in the file
//! ```
//! All numbers are little-endian; `entry` is `u32::MAX` for an empty graph; a row extends to the end of its record.
//!
//! A delta image holds only what changed since the image before it: an edges record spares the vector and row of a point
//! whose neighbourhood changed, a free record takes a point of an earlier image away.

use crate::quantizer::{Level, Watch};

/// Most levels a decoder accepts; a drawn level stays far below (see the graph).
pub const LEVELS_MAX: usize = 64;
const ENTRY_NONE: u32 = u32::MAX;
const FLAG_DEAD: u8 = 1;
const FLAG_FILED: u8 = 2;
const KIND_POINT: u8 = 1;
const KIND_EDGES: u8 = 2;
const KIND_FREE: u8 = 3;
const KIND_END: u8 = 4;
const KIND_CELLS: u8 = 5;
const KIND_CENTROID: u8 = 6;
const KIND_CODEC: u8 = 8;
const KIND_CODE: u8 = 9;
const KIND_GONE: u8 = 10;
const KIND_WATCH: u8 = 11;
const KIND_SPACE: u8 = 12;
const KIND_PART: u8 = 13;
const KIND_ENTRY: u8 = 14;

/// Why bytes are not image records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("corrupt image record at byte {offset}: {what}")]
pub struct ImageError {
    /// Start of the record, from the start of the bytes.
    pub offset: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

/// Everything about one point, or about a dead way-point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PointRecord<'a> {
    /// Slot.
    pub slot: u32,
    /// Kept only because edges lead through it.
    pub dead: bool,
    /// Point id.
    pub id: u64,
    /// Version.
    pub version: u64,
    /// Sequence number of the write that made it.
    pub born: u64,
    /// Absolute deadline, Unix ms, 0 = none.
    pub deadline_ms: u64,
    /// Edges.
    pub levels: Levels<'a>,
    /// Its vector, or where it is.
    pub vector: StoredVector<'a>,
    /// Encoded payload row, empty = none.
    pub row: &'a [u8],
}

/// A point's vector as an image has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StoredVector<'a> {
    /// `dim` little-endian floats.
    Here(&'a [u8]),
    /// In the row of its slot in the collection's file of vectors; CRC-32C of the row.
    Filed(u32),
}

/// The vector of a point in one of several spaces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartRecord<'a> {
    /// Slot.
    pub slot: u32,
    /// Kept only because edges lead through it.
    pub dead: bool,
    /// Edges.
    pub levels: Levels<'a>,
    /// The vector, or where it is.
    pub vector: StoredVector<'a>,
}

/// New edges of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EdgesRecord<'a> {
    /// Slot.
    pub slot: u32,
    /// Whether the point has died since.
    pub dead: bool,
    /// Edges.
    pub levels: Levels<'a>,
}

/// What closes an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndRecord {
    /// The image shows exactly the writes up to here.
    pub seq: u64,
    /// Slots ever used; every slot is below.
    pub slots: u32,
    /// Entry point of the graph and its level.
    pub entry: Option<(u32, u8)>,
}

/// A clustering; what earlier records said of cells is void.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellsRecord {
    /// How many.
    pub cells: u32,
    /// Points that were alive at the training.
    pub trained_on: u64,
    /// Mean distance to the nearest centroid then.
    pub mean: f32,
}

/// One decoded record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Record<'a> {
    /// A point with everything.
    Point(PointRecord<'a>),
    /// New edges of a point.
    Edges(EdgesRecord<'a>),
    /// The slot holds nothing.
    Free(u32),
    /// End of the image.
    End(EndRecord),
    /// A clustering.
    Cells(CellsRecord),
    /// Cell, and its centroid as `dim` little-endian floats.
    Centroid(u32, &'a [u8]),
    /// A piece of what a quantizer has learned: bytes in all, where this piece belongs, and it.
    Codec(u32, u32, &'a [u8]),
    /// Slot, and its codes in its cells.
    Code(u32, &'a [u8]),
    /// Last versions of absent ids.
    Gone(GoneRecord<'a>),
    /// How well what was learned fits what was written.
    Watch(Watch),
    /// The space that the following records are of.
    Space(u16),
    /// The vector of a point in that space.
    Part(PartRecord<'a>),
    /// Entry point of the graph of that space and its level.
    Entry(Option<(u32, u8)>),
}

/// Last versions of ids that are absent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoneRecord<'a> {
    /// Which piece.
    pub at: u32,
    /// What ids that no piece names had at most.
    pub floor: u64,
    pairs: &'a [u8],
}

impl GoneRecord<'_> {
    /// Ids and versions.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        self.pairs
            .as_chunks::<8>()
            .0
            .as_chunks::<2>()
            .0
            .iter()
            .map(move |[id, version]| (word(id), word(version)))
    }
}

/// Encoded edge lists of one node, checked on decoding.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Levels<'a> {
    count: usize,
    lists: &'a [u8],
}

impl<'a> Levels<'a> {
    /// Appends the lists as records hold them.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(self.count as u8);
        out.extend_from_slice(self.lists);
    }

    /// The lists at the start of `bytes`, as [`Self::put`] left them.
    pub fn get(bytes: &'a [u8]) -> Option<Levels<'a>> {
        levels(&mut Fields(bytes)).ok()
    }

    /// Levels; 0 = not in the graph.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Not in the graph.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Replaces `out` with the lists, level 0 first.
    pub fn read_into(&self, out: &mut Vec<Vec<u32>>) {
        out.resize_with(self.count, Vec::new);
        let mut rest = self.lists;
        for list in out {
            // Decoding has checked that the lists fill their bytes, so no split is out of range.
            let (degree, tail) = rest.split_at(2);
            let degree = usize::from(u16::from_le_bytes([degree[0], degree[1]]));
            let (edges, tail) = tail.split_at(4 * degree);
            list.clear();
            list.extend(edges.as_chunks().0.iter().map(|edge| u32::from_le_bytes(*edge)));
            rest = tail;
        }
    }
}

/// Collects the edge lists of one node for the encoder; reusable.
#[derive(Debug, Default)]
pub struct LevelsBuilder {
    count: u8,
    lists: Vec<u8>,
}

impl LevelsBuilder {
    /// Forgets all lists.
    pub fn clear(&mut self) {
        self.count = 0;
        self.lists.clear();
    }

    /// Adds the next level's list.
    ///
    /// # Panics
    /// When there are more than [`LEVELS_MAX`] levels or 65,535 edges, which no graph has.
    pub fn push(&mut self, edges: &[u32]) {
        assert!(usize::from(self.count) < LEVELS_MAX, "more than {LEVELS_MAX} levels");
        let degree = u16::try_from(edges.len()).expect("a degree fits 16 bits");
        self.count += 1;
        self.lists.extend_from_slice(&degree.to_le_bytes());
        for edge in edges {
            self.lists.extend_from_slice(&edge.to_le_bytes());
        }
    }

    /// The lists collected so far.
    pub fn levels(&self) -> Levels<'_> {
        Levels { count: self.count.into(), lists: &self.lists }
    }
}

fn record(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(kind);
    body(out);
    let length = u32::try_from(out.len() - start - 4).expect("a record is far below 4 GiB");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Appends a point record; `vector` holds `dim` floats, which stand for the record's own if that has them here.
pub fn put_point(out: &mut Vec<u8>, point: &PointRecord<'_>, vector: &[f32]) {
    record(out, KIND_POINT, |out| {
        out.extend_from_slice(&point.slot.to_le_bytes());
        out.push(flags(point.dead, point.vector));
        for word in [point.id, point.version, point.born, point.deadline_ms] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        point.levels.put(out);
        put_vector(out, point.vector, vector);
        out.extend_from_slice(point.row);
    });
}

/// Appends the record of a part; `vector` as in [`put_point`].
pub fn put_part(out: &mut Vec<u8>, part: &PartRecord<'_>, vector: &[f32]) {
    record(out, KIND_PART, |out| {
        out.extend_from_slice(&part.slot.to_le_bytes());
        out.push(flags(part.dead, part.vector));
        part.levels.put(out);
        put_vector(out, part.vector, vector);
    });
}

fn flags(dead: bool, vector: StoredVector<'_>) -> u8 {
    let filed = if let StoredVector::Filed(_) = vector { FLAG_FILED } else { 0 };
    filed | if dead { FLAG_DEAD } else { 0 }
}

fn put_vector(out: &mut Vec<u8>, stored: StoredVector<'_>, vector: &[f32]) {
    match stored {
        StoredVector::Filed(sum) => out.extend_from_slice(&sum.to_le_bytes()),
        StoredVector::Here(_) => {
            out.extend_from_slice(&(vector.len() as u32).to_le_bytes());
            out.reserve(4 * vector.len());
            for component in vector {
                out.extend_from_slice(&component.to_le_bytes());
            }
        }
    }
}

/// Appends the record of the space that the following records are of.
pub fn put_space(out: &mut Vec<u8>, number: u16) {
    record(out, KIND_SPACE, |out| out.extend_from_slice(&number.to_le_bytes()));
}

/// Appends the record of where the graph of a space is entered.
pub fn put_entry(out: &mut Vec<u8>, entry: Option<(u32, u8)>) {
    record(out, KIND_ENTRY, |out| entry_fields(out, entry));
}

fn entry_fields(out: &mut Vec<u8>, entry: Option<(u32, u8)>) {
    let (entry, level) = entry.unwrap_or((ENTRY_NONE, 0));
    out.extend_from_slice(&entry.to_le_bytes());
    out.push(level);
}

/// Appends an edges record.
pub fn put_edges(out: &mut Vec<u8>, edges: &EdgesRecord<'_>) {
    record(out, KIND_EDGES, |out| {
        out.extend_from_slice(&edges.slot.to_le_bytes());
        out.push(if edges.dead { FLAG_DEAD } else { 0 });
        edges.levels.put(out);
    });
}

/// Appends a free record.
pub fn put_free(out: &mut Vec<u8>, slot: u32) {
    record(out, KIND_FREE, |out| out.extend_from_slice(&slot.to_le_bytes()));
}

/// Appends the end record.
pub fn put_end(out: &mut Vec<u8>, end: &EndRecord) {
    record(out, KIND_END, |out| {
        out.extend_from_slice(&end.seq.to_le_bytes());
        out.extend_from_slice(&end.slots.to_le_bytes());
        entry_fields(out, end.entry);
    });
}

/// Appends the record of a clustering; that of each centroid follows.
pub fn put_cells(out: &mut Vec<u8>, cells: &CellsRecord) {
    record(out, KIND_CELLS, |out| {
        out.extend_from_slice(&cells.cells.to_le_bytes());
        out.extend_from_slice(&cells.trained_on.to_le_bytes());
        out.extend_from_slice(&cells.mean.to_le_bytes());
    });
}

/// Appends the record of one centroid.
pub fn put_centroid(out: &mut Vec<u8>, cell: u32, centroid: &[f32]) {
    record(out, KIND_CENTROID, |out| {
        out.extend_from_slice(&cell.to_le_bytes());
        centroid.iter().for_each(|component| out.extend_from_slice(&component.to_le_bytes()));
    });
}

/// Appends the record of a piece of what a quantizer has learned, from byte `at` of `total`.
pub fn put_codec(out: &mut Vec<u8>, total: u32, at: u32, piece: &[u8]) {
    record(out, KIND_CODEC, |out| {
        out.extend_from_slice(&total.to_le_bytes());
        out.extend_from_slice(&at.to_le_bytes());
        out.extend_from_slice(piece);
    });
}

/// Appends the record of the codes of a point in cells.
pub fn put_code(out: &mut Vec<u8>, slot: u32, codes: &[u8]) {
    record(out, KIND_CODE, |out| {
        out.extend_from_slice(&slot.to_le_bytes());
        out.extend_from_slice(codes);
    });
}

/// Appends piece `at` of the last versions of absent ids.
pub fn put_gone(out: &mut Vec<u8>, at: u32, floor: u64, pairs: &[(u64, u64)]) {
    record(out, KIND_GONE, |out| {
        out.extend_from_slice(&at.to_le_bytes());
        out.extend_from_slice(&floor.to_le_bytes());
        for (id, version) in pairs {
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(&version.to_le_bytes());
        }
    });
}

/// Appends the record of how well what was learned fits what was written.
pub fn put_watch(out: &mut Vec<u8>, watch: &Watch) {
    record(out, KIND_WATCH, |out| {
        for number in [watch.seq, watch.left, watch.learned_from, watch.written, watch.measured] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&[watch.level, u8::from(watch.calm)]);
        for Level { trained, sum } in [watch.error, watch.spread] {
            out.extend_from_slice(&trained.to_le_bytes());
            out.extend_from_slice(&sum.to_le_bytes());
        }
    });
}

/// Decodes records one after another; after an error it yields nothing more.
pub struct Records<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Records<'a> {
    /// Over bytes that hold whole records.
    pub fn new(bytes: &'a [u8]) -> Records<'a> {
        Records { bytes, offset: 0 }
    }

    /// Where the next record starts.
    pub fn offset(&self) -> usize {
        self.offset
    }

    fn decode(&mut self) -> Result<Record<'a>, &'static str> {
        let mut frame = Fields(&self.bytes[self.offset..]);
        let length = frame.u32()? as usize;
        let mut body = Fields(frame.take(length)?);
        let record = match body.u8()? {
            KIND_POINT => Record::Point(point(&mut body)?),
            KIND_EDGES => Record::Edges(EdgesRecord {
                slot: body.u32()?,
                dead: dead(body.u8()?)?,
                levels: levels(&mut body)?,
            }),
            KIND_FREE => Record::Free(body.u32()?),
            KIND_END => {
                Record::End(EndRecord { seq: body.u64()?, slots: body.u32()?, entry: entry(&mut body)? })
            }
            KIND_SPACE => Record::Space(body.u16()?),
            KIND_PART => Record::Part(part(&mut body)?),
            KIND_ENTRY => Record::Entry(entry(&mut body)?),
            KIND_CELLS => Record::Cells(CellsRecord {
                cells: body.u32()?,
                trained_on: body.u64()?,
                mean: f32::from_bits(body.u32()?),
            }),
            KIND_CENTROID => Record::Centroid(body.u32()?, std::mem::take(&mut body.0)),
            KIND_CODEC => Record::Codec(body.u32()?, body.u32()?, std::mem::take(&mut body.0)),
            KIND_WATCH => Record::Watch(watch(&mut body)?),
            KIND_CODE => Record::Code(body.u32()?, std::mem::take(&mut body.0)),
            KIND_GONE => {
                let (at, floor) = (body.u32()?, body.u64()?);
                let whole = body.0.len() / 16 * 16;
                Record::Gone(GoneRecord { at, floor, pairs: body.take(whole)? })
            }
            _ => return Err("unknown kind"),
        };
        if !body.0.is_empty() {
            return Err("bytes left over in the record");
        }
        self.offset += 4 + length;
        Ok(record)
    }
}

impl<'a> Iterator for Records<'a> {
    /// The record and where it starts.
    type Item = Result<(usize, Record<'a>), ImageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset;
        if offset >= self.bytes.len() {
            return None;
        }
        Some(match self.decode() {
            Ok(record) => Ok((offset, record)),
            Err(what) => {
                self.offset = self.bytes.len();
                Err(ImageError { offset, what })
            }
        })
    }
}

fn watch(body: &mut Fields<'_>) -> Result<Watch, &'static str> {
    let (seq, left, learned_from) = (body.u64()?, body.u64()?, body.u64()?);
    let (written, measured, level, calm) = (body.u64()?, body.u64()?, body.u8()?, body.u8()? != 0);
    let mut float = || Ok::<f64, &'static str>(f64::from_bits(body.u64()?));
    let error = Level { trained: float()?, sum: float()? };
    let spread = Level { trained: float()?, sum: float()? };
    Ok(Watch { seq, left, learned_from, written, measured, level, calm, error, spread, resting: false })
}

fn dead(flags: u8) -> Result<bool, &'static str> {
    if flags & !FLAG_DEAD == 0 { Ok(flags == FLAG_DEAD) } else { Err("unknown flags") }
}

fn entry(body: &mut Fields<'_>) -> Result<Option<(u32, u8)>, &'static str> {
    Ok(match (body.u32()?, body.u8()?) {
        (ENTRY_NONE, _) => None,
        entry => Some(entry),
    })
}

fn part<'a>(body: &mut Fields<'a>) -> Result<PartRecord<'a>, &'static str> {
    let (slot, flags) = (body.u32()?, body.u8()?);
    Ok(PartRecord {
        slot,
        dead: dead(flags & !FLAG_FILED)?,
        levels: levels(body)?,
        vector: vector(body, flags)?,
    })
}

fn vector<'a>(body: &mut Fields<'a>, flags: u8) -> Result<StoredVector<'a>, &'static str> {
    if flags & FLAG_FILED != 0 {
        return Ok(StoredVector::Filed(body.u32()?));
    }
    let dim = body.u32()? as usize;
    Ok(StoredVector::Here(body.take(dim.checked_mul(4).ok_or(CUT)?)?))
}

fn point<'a>(body: &mut Fields<'a>) -> Result<PointRecord<'a>, &'static str> {
    let (slot, flags) = (body.u32()?, body.u8()?);
    Ok(PointRecord {
        slot,
        dead: dead(flags & !FLAG_FILED)?,
        id: body.u64()?,
        version: body.u64()?,
        born: body.u64()?,
        deadline_ms: body.u64()?,
        levels: levels(body)?,
        vector: vector(body, flags)?,
        row: std::mem::take(&mut body.0),
    })
}

fn levels<'a>(body: &mut Fields<'a>) -> Result<Levels<'a>, &'static str> {
    let count = usize::from(body.u8()?);
    if count > LEVELS_MAX {
        return Err("too many levels");
    }
    let all = body.0;
    for _ in 0..count {
        let degree = usize::from(body.u16()?);
        body.take(4 * degree)?;
    }
    Ok(Levels { count, lists: &all[..all.len() - body.0.len()] })
}

const CUT: &str = "record is cut short";

/// The fields not yet read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], &'static str> {
        let (head, tail) = self.0.split_at_checked(len).ok_or(CUT)?;
        self.0 = tail;
        Ok(head)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (head, tail) = self.0.split_first_chunk().ok_or(CUT)?;
        self.0 = tail;
        Ok(*head)
    }
    fn u8(&mut self) -> Result<u8, &'static str> {
        Ok(self.array::<1>()?[0])
    }
    fn u16(&mut self) -> Result<u16, &'static str> {
        self.array().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Result<u32, &'static str> {
        self.array().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Result<u64, &'static str> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Vec<u8> {
        let mut levels = LevelsBuilder::default();
        levels.push(&[3, 9, u32::MAX]);
        levels.push(&[]);
        levels.push(&[7]);
        let mut out = Vec::new();
        let point = PointRecord {
            slot: 5,
            dead: false,
            id: u64::MAX,
            version: 2,
            born: 77,
            deadline_ms: 1_700_000_000_000,
            levels: levels.levels(),
            vector: StoredVector::Here(&[]),
            row: b"row",
        };
        put_point(&mut out, &point, &[1.0, -0.5]);
        put_edges(&mut out, &EdgesRecord { slot: 6, dead: true, levels: levels.levels() });
        put_free(&mut out, 8);
        put_end(&mut out, &EndRecord { seq: 78, slots: 9, entry: Some((5, 2)) });
        put_cells(&mut out, &CellsRecord { cells: 3, trained_on: 1 << 40, mean: -0.5 });
        put_centroid(&mut out, 2, &[1.0, -0.5]);
        put_codec(&mut out, 9, 7, b"xy");
        put_code(&mut out, 3, b"code");
        put_gone(&mut out, 1, 4, &[(u64::MAX, 2), (3, 1 << 40)]);
        put_watch(&mut out, &watch());
        put_space(&mut out, 0x0102);
        let vector = StoredVector::Here(&[]);
        put_part(
            &mut out,
            &PartRecord { slot: 5, dead: true, levels: levels.levels(), vector },
            &[1.0, -0.5],
        );
        put_entry(&mut out, Some((5, 2)));
        put_entry(&mut out, None);
        out
    }

    fn watch() -> Watch {
        Watch {
            seq: 1,
            left: 2,
            learned_from: 1 << 40,
            written: 3,
            measured: 4,
            level: 5,
            calm: true,
            error: Level { trained: 0.5, sum: 6.0 },
            spread: Level { trained: -0.5, sum: 7.0 },
            resting: false,
        }
    }

    #[test]
    fn records_come_back() {
        let bytes = sample();
        let records: Vec<_> = Records::new(&bytes).map(|r| r.unwrap().1).collect();
        let Record::Point(point) = records[0] else { panic!("{:?}", records[0]) };
        assert_eq!((point.slot, point.dead, point.id, point.version), (5, false, u64::MAX, 2));
        assert_eq!((point.born, point.deadline_ms, point.row), (77, 1_700_000_000_000, &b"row"[..]));
        let vector = [1f32.to_le_bytes(), (-0.5f32).to_le_bytes()].concat();
        assert_eq!(point.vector, StoredVector::Here(&vector));
        let mut lists = vec![vec![1]; 5];
        point.levels.read_into(&mut lists);
        assert_eq!(lists, [vec![3, 9, u32::MAX], vec![], vec![7]]);
        let mut put = Vec::new();
        point.levels.put(&mut put);
        put.push(9);
        assert_eq!(Levels::get(&put), Some(point.levels));
        let Record::Edges(edges) = records[1] else { panic!("{:?}", records[1]) };
        assert_eq!((edges.slot, edges.dead, edges.levels), (6, true, point.levels));
        assert_eq!(records[2], Record::Free(8));
        assert_eq!(records[3], Record::End(EndRecord { seq: 78, slots: 9, entry: Some((5, 2)) }));
        assert_eq!(records[4], Record::Cells(CellsRecord { cells: 3, trained_on: 1 << 40, mean: -0.5 }));
        assert_eq!(records[5], Record::Centroid(2, &[1f32.to_le_bytes(), (-0.5f32).to_le_bytes()].concat()));
        assert_eq!(records[6], Record::Codec(9, 7, b"xy"));
        assert_eq!(records[7], Record::Code(3, b"code"));
        let Record::Gone(gone) = records[8] else { panic!("{:?}", records[8]) };
        assert_eq!((gone.at, gone.floor), (1, 4));
        assert_eq!(gone.iter().collect::<Vec<_>>(), [(u64::MAX, 2), (3, 1 << 40)]);
        assert_eq!(records[9], Record::Watch(watch()));
        assert_eq!(records[10], Record::Space(0x0102));
        let Record::Part(part) = records[11] else { panic!("{:?}", records[11]) };
        assert_eq!((part.slot, part.dead, part.levels, part.vector), (5, true, point.levels, point.vector));
        assert_eq!(records[12..], [Record::Entry(Some((5, 2))), Record::Entry(None)]);
    }

    /// Pins the layout: images written by this version must open for ever.
    #[test]
    fn the_layout_is_fixed() {
        let mut out = Vec::new();
        put_free(&mut out, 0x0102_0304);
        put_end(&mut out, &EndRecord { seq: 1, slots: 2, entry: None });
        let mut levels = LevelsBuilder::default();
        levels.push(&[1]);
        put_edges(&mut out, &EdgesRecord { slot: 3, dead: true, levels: levels.levels() });
        put_codec(&mut out, 9, 7, &[1, 2]);
        put_code(&mut out, 3, &[1, 2]);
        put_gone(&mut out, 2, 1, &[(7, 3)]);
        put_space(&mut out, 2);
        let vector = StoredVector::Here(&[]);
        put_part(&mut out, &PartRecord { slot: 3, dead: false, levels: levels.levels(), vector }, &[1.0]);
        put_entry(&mut out, Some((3, 1)));
        #[rustfmt::skip]
        let expected = [
            5, 0, 0, 0, 3, 4, 3, 2, 1,
            18, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 255, 255, 255, 255, 0,
            13, 0, 0, 0, 2, 3, 0, 0, 0, 1, 1, 1, 0, 1, 0, 0, 0,
            11, 0, 0, 0, 8, 9, 0, 0, 0, 7, 0, 0, 0, 1, 2,
            7, 0, 0, 0, 9, 3, 0, 0, 0, 1, 2,
            29, 0, 0, 0, 10, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
            3, 0, 0, 0, 12, 2, 0,
            21, 0, 0, 0, 13, 3, 0, 0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 128, 63,
            6, 0, 0, 0, 14, 3, 0, 0, 0, 1,
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn every_cut_is_an_error_or_a_record_boundary() {
        let bytes = sample();
        let mut boundaries = vec![0];
        let mut records = Records::new(&bytes);
        while records.next().is_some() {
            boundaries.push(records.offset());
        }
        for cut in 0..bytes.len() {
            let failed = Records::new(&bytes[..cut]).any(|record| record.is_err());
            assert_eq!(failed, !boundaries.contains(&cut), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at: usize, flip: u8) {
            let mut lists = Vec::new();
            let mut damaged = sample();
            let at = at % damaged.len();
            damaged[at] ^= flip;
            for bytes in [bytes, damaged] {
                for record in Records::new(&bytes).flatten() {
                    match record.1 {
                        Record::Point(point) => point.levels.read_into(&mut lists),
                        Record::Edges(edges) => edges.levels.read_into(&mut lists),
                        _ => {}
                    }
                }
            }
        }
    }
}
