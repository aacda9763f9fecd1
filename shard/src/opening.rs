//! Opening collections in bounded memory: records of the log come from the disk again when it is the turn of their collection, a piece at
//! a time, and a collection that does not fit stays closed.

use crate::account::{Charge, MemoryUse, Refusal};
use crate::ctx::Ctx;
use crate::log::RecordKey;
use ahash::HashMap;
use nigh_engine::collection::DenseWriter;
use std::ops::ControlFlow;

/// The part of the memory limit that records of the log may take on their way to collections, within these bytes.
const REPLAY_PART: u64 = 32;
const REPLAY_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 20;
/// Bytes of images that are loaded, and of records that are replayed, between two looks at the memory that is left.
const LOOK_BYTES: usize = 8 << 20;

/// Records of one collection in the order of the log.
#[derive(Default)]
pub(crate) struct LogRecords {
    /// Sequence numbers and bodies.
    pub records: Vec<(u64, Vec<u8>)>,
    bytes: u64,
    /// There are more behind them.
    pub more: bool,
}

/// What the log has of a collection above its images.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub records: usize,
    pub bytes: u64,
    /// Sequence number of the newest.
    pub newest: u64,
}

/// Records on their way from the log to the collections: so many bytes of them are in memory at a time, however long the log is.
pub(crate) struct Replay {
    pub tallies: HashMap<u64, Tally>,
    /// Read already, of collections that are opened next.
    ahead: HashMap<u64, LogRecords>,
    _charge: Charge,
}

impl Replay {
    pub fn new(ctx: &Ctx, tallies: HashMap<u64, Tally>) -> Replay {
        let all: u64 = tallies.values().map(|tally| tally.bytes).sum();
        Replay {
            tallies,
            ahead: HashMap::default(),
            _charge: ctx.node().account.hold(MemoryUse::Replay, all.min(replay_bytes(ctx))),
        }
    }

    /// The first records of the first of `uids`, which are opened in this order; those of the next ones are read along, as far as they fit.
    pub async fn of_first(&mut self, ctx: &Ctx, uids: &[(u64, u64)]) -> Result<LogRecords, String> {
        let Some(&(uid, above)) = uids.first() else { return Ok(LogRecords::default()) };
        let Some(tally) = self.tallies.get(&uid).copied() else { return Ok(LogRecords::default()) };
        if let Some(records) = self.ahead.remove(&uid) {
            return Ok(records);
        }
        let most = replay_bytes(ctx);
        if tally.bytes > most {
            return ctx.old_records(uid, above, most).await;
        }
        let mut bytes = 0;
        let fitting = uids.iter().take_while(|(uid, _)| {
            bytes += self.tallies.get(uid).map_or(0, |tally| tally.bytes);
            bytes <= most
        });
        let wanted: HashMap<u64, u64> = fitting.copied().collect();
        let ahead = &mut self.ahead;
        ctx.read_log_again(
            &|uid, seq| wanted.get(&uid).is_some_and(|above| seq > *above),
            &mut |key, body| {
                if wanted.get(&key.collection).is_some_and(|above| key.seq > *above) {
                    ahead.entry(key.collection).or_default().push(key.seq, body);
                }
                ControlFlow::Continue(())
            },
        )
        .await?;
        Ok(self.ahead.remove(&uid).unwrap_or_default())
    }
}

impl LogRecords {
    fn push(&mut self, seq: u64, body: &[u8]) {
        self.bytes += body.len() as u64;
        self.records.push((seq, body.to_vec()));
    }
}

/// Bytes of records that may be in memory.
pub(crate) fn replay_bytes(ctx: &Ctx) -> u64 {
    let limit = ctx.node().account.limit_bytes();
    (limit / REPLAY_PART).clamp(*REPLAY_BYTES.start(), *REPLAY_BYTES.end())
}

/// The memory that a collection takes while it is opened: nobody serves from it, so it may be closed again.
pub(crate) struct Opening<'a> {
    ctx: &'a Ctx,
    charge: Charge,
    /// It does not fit.
    pub is_refused: bool,
    /// Bytes read since the last look.
    unlooked: usize,
}

impl Opening<'_> {
    pub fn new(ctx: &Ctx) -> Opening<'_> {
        let charge = ctx.node().account.hold(MemoryUse::Collections, 0);
        Opening { ctx, charge, is_refused: false, unlooked: 0 }
    }

    /// `bytes` of images or of the log have been applied to `writer`.
    pub fn took(&mut self, writer: &DenseWriter, bytes: usize) -> Result<(), String> {
        self.unlooked += bytes;
        if self.unlooked < LOOK_BYTES { Ok(()) } else { self.check(writer, 0) }
    }

    /// # Errors
    /// A sentence: with `more_bytes` to come there is too little memory to serve what is open.
    pub fn check(&mut self, writer: &DenseWriter, more_bytes: u64) -> Result<(), String> {
        self.unlooked = 0;
        self.charge.set(writer.bytes_while_opened());
        self.ctx.look_at_memory();
        let account = &self.ctx.node().account;
        let mut fits = account.fits_opening(more_bytes);
        // The allocator may still keep memory that reading images and the log has needed.
        if fits.is_err() && self.ctx.give_back_memory(0) {
            fits = account.fits_opening(more_bytes);
        }
        let Err(refusal) = fits else { return Ok(()) };
        self.is_refused = true;
        let (Refusal::Full { used_bytes, limit_bytes } | Refusal::Crowded { used_bytes, limit_bytes }) =
            refusal;
        Err(format!(
            "it does not fit into memory: at least {used_bytes} of {limit_bytes} bytes would be in use with it; {} of these bytes are held by keys, \
             and {} by neither points nor keys; give the server more memory, or drop other collections, and start it again",
            account.held(MemoryUse::Keys),
            account.unseen(),
        ))
    }
}

impl Ctx {
    /// The first records of a collection above a sequence number in the old log, some `most` bytes of them. On core 0, which has it.
    pub(crate) async fn old_records(&self, uid: u64, above: u64, most: u64) -> Result<LogRecords, String> {
        let mut found = LogRecords::default();
        self.read_log_again(&|collection, seq| collection == uid && seq > above, &mut |key, body| {
            if key.collection != uid || key.seq <= above {
                return ControlFlow::Continue(());
            }
            if found.bytes >= most {
                found.more = true;
                return ControlFlow::Break(());
            }
            found.push(key.seq, body);
            ControlFlow::Continue(())
        })
        .await?;
        Ok(found)
    }

    async fn read_log_again(
        &self,
        wanted: &dyn Fn(u64, u64) -> bool,
        record: &mut dyn FnMut(RecordKey, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), String> {
        let disk = self.env().disk().expect("an old log lies on a disk");
        let read = self.old_segments().read_again(&*disk, wanted, record).await;
        read.map_err(|error| format!("reading the log again: {error}"))
    }
}
