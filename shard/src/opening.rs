//! Opening collections in bounded memory: records of the log come from the disk again when it is the turn of their collection, a piece at
//! a time, and a collection that does not fit stays closed.

use crate::account::{Charge, MemoryUse, Refusal};
use crate::ctx::Ctx;
use crate::env::Env;
use crate::log::RecordKey;
use ahash::{HashMap, HashSet};
use nigh_engine::collection::DenseWriter;
use std::ops::ControlFlow;
use std::rc::Rc;

/// The part of the memory limit that records of the log may take on their way to collections, within these bytes.
const REPLAY_PART: u64 = 32;
const REPLAY_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 20;
/// Why a collection is not opened when the process is asked to stop meanwhile.
pub(crate) const ENDING: &str = "the process was asked to stop while the store was being opened";
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

/// Records on their way from the log to the collections: so many bytes of them are in memory at a time, however long the log is. On core 0,
/// which has the log.
pub(crate) struct Replay {
    pub tallies: HashMap<u64, Tally>,
    /// Every collection with the number up to which its images have everything, in the order in which they are opened.
    order: Vec<(u64, u64)>,
    /// Where each stands in that order.
    places: HashMap<u64, usize>,
    /// The collections whose records have been handed out.
    given: HashSet<u64>,
    /// Read already, of collections that are opened next.
    ahead: HashMap<u64, LogRecords>,
    _charge: Charge,
}

impl Replay {
    pub fn new(ctx: &Ctx, tallies: HashMap<u64, Tally>, order: Vec<(u64, u64)>) -> Replay {
        let all: u64 = tallies.values().map(|tally| tally.bytes).sum();
        // Each core applies some while others are read.
        let most = replay_bytes(ctx).saturating_mul(ctx.env().cores() as u64 + 1);
        Replay {
            tallies,
            places: order.iter().enumerate().map(|(place, (uid, _))| (*uid, place)).collect(),
            order,
            given: HashSet::default(),
            ahead: HashMap::default(),
            _charge: ctx.node().account.hold(MemoryUse::Replay, all.min(most)),
        }
    }

    /// The first records of a collection; those of the ones behind it are read along, as far as they fit.
    pub async fn of(&mut self, ctx: &Ctx, uid: u64) -> Result<LogRecords, String> {
        let (Some(tally), Some(&place)) = (self.tallies.get(&uid).copied(), self.places.get(&uid)) else {
            return Ok(LogRecords::default());
        };
        self.given.insert(uid);
        if let Some(records) = self.ahead.remove(&uid) {
            return Ok(records);
        }
        let most = replay_bytes(ctx);
        if tally.bytes > most {
            return ctx.old_records(uid, self.order[place].1, most).await;
        }
        // What has been read along is for collections of other cores, and counts until they come for it.
        let mut bytes: u64 = self.ahead.values().map(|records| records.bytes).sum();
        let behind = self.order[place..].iter().filter(|(next, _)| {
            *next == uid || !(self.given.contains(next) || self.ahead.contains_key(next))
        });
        let fitting = behind.take_while(|(next, _)| {
            bytes += self.tallies.get(next).map_or(0, |tally| tally.bytes);
            bytes <= most || *next == uid
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

/// Bytes of records that may be in memory for each core, and as many that are read along.
pub(crate) fn replay_bytes(ctx: &Ctx) -> u64 {
    let limit = ctx.node().account.limit_bytes();
    (limit / REPLAY_PART / ctx.env().cores() as u64).clamp(*REPLAY_BYTES.start(), *REPLAY_BYTES.end())
}

/// The memory that a collection takes while it is opened: nobody serves from it, so it may be closed again.
pub(crate) struct Opening<'a> {
    ctx: &'a Ctx,
    charge: Charge,
    /// The collection does not fit into memory.
    pub is_refused: bool,
    /// Bytes read since the last look.
    unlooked: usize,
    /// All bytes that were read for the collection.
    pub read: u64,
}

impl Opening<'_> {
    pub fn new(ctx: &Ctx) -> Opening<'_> {
        let charge = ctx.node().account.hold(MemoryUse::Collections, 0);
        Opening { ctx, charge, is_refused: false, unlooked: 0, read: 0 }
    }

    /// `bytes` of images or of the log have been applied to `writer`.
    pub fn took(&mut self, writer: &DenseWriter, bytes: usize) -> Result<(), String> {
        self.unlooked += bytes;
        self.read += bytes as u64;
        self.ctx.node().progress.read(bytes as u64);
        self.go_on()?;
        if self.unlooked < LOOK_BYTES { Ok(()) } else { self.check(writer, 0) }
    }

    /// # Errors
    /// The process is to stop.
    pub fn go_on(&self) -> Result<(), String> {
        if self.ctx.node().progress.is_ending() { Err(ENDING.to_owned()) } else { Ok(()) }
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
        let (Refusal::Full { used_bytes, limit_bytes }
        | Refusal::Promised { used_bytes, limit_bytes }
        | Refusal::Crowded { used_bytes, limit_bytes }) = refusal;
        Err(format!(
            "it does not fit into memory: at least {used_bytes} of {limit_bytes} bytes would be in use with it; {} of these bytes are held by keys, \
             and {} by neither points nor keys; give the server more memory, or drop other collections, and start it again",
            account.held(MemoryUse::Keys),
            account.unseen(),
        ))
    }
}

/// Opening gives way this often, nanoseconds, and for so long, microseconds: requests about what is open, and whether the node lives, are answered
/// meanwhile. It does so by a timer, since the rings of the kernel are looked at only when nobody else wants to run; and not as background
/// work does, which a crowd of clients that ask again and again would hold up. A timer that ends so soon takes some 0.3 ms where the core has
/// nothing else to do, so that turns of a millisecond would cost a quarter of the time. A node that is open has other things to do: a collection that
/// comes back, or is restored, must not keep the requests of two cores waiting for long.
const TURN_STARTING_NS: u64 = 4_000_000;
const TURN_OPEN_NS: u64 = 1_000_000;
const AWAY_US: u64 = 20;

/// Opening notices that it is time to give way.
pub(crate) struct GiveWay {
    env: Rc<dyn Env>,
    began_ns: u64,
    turn_ns: u64,
}

impl GiveWay {
    pub fn new(ctx: &Ctx) -> GiveWay {
        let env = ctx.env().clone();
        let turn_ns = if ctx.node().progress.is_open() { TURN_OPEN_NS } else { TURN_STARTING_NS };
        GiveWay { began_ns: env.now_ns(), env, turn_ns }
    }

    /// How long it goes on before it gives way, in nanoseconds.
    #[cfg(test)]
    pub fn turn_ns(&self) -> u64 {
        self.turn_ns
    }

    /// Lets others run when it is time.
    pub async fn check(&mut self) {
        if self.env.now_ns() - self.began_ns >= self.turn_ns {
            self.env.sleep_us(AWAY_US).await;
            self.began_ns = self.env.now_ns();
        }
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
