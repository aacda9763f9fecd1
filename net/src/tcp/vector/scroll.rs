//! Scrolling: pages of points, by id or in the order of payload values.
//!
//! ```text
//! args    = C u32 limit, filter, then nothing or: options, cursor, order
//! options = 00, or 01 u8 rc, u8 opa, ?u64 bound (rc = 3)
//! cursor  = nothing, 00, or 01 u64 afterId
//! order   = nothing, 00, or 01 s32 key, u8 flags, u8 hasStart, ?f64, u8 hasResume, ?f64,
//!           ?(u8 hasResumeStr, ?s32)                                                                    flags bit 2
//!           ?(u8 nTail, (s32 key, u8 flags)*, u8 hasResumeKeys, ?(u8 kind, f64 or s32)*)                flags bit 3
//! flags   = bit 0 descending, 1 datetime, 2 string, 3 several keys        kind = 0 number, 1 datetime, 2 string
//! ```
//! In a collection of named spaces a marker stands before all of them, and no other before any: nothing or `u8 marker`, `?u64 afterId` (bit 0),
//! `?(u8 rc, u8 opa)` (bit 1), `?u64 bound` (bit 3), `?order` (bit 2), in this order.
//!
//! A limit of 0 is none. Resuming means going on behind the point with these values and `afterId`; without an id, behind
//! that with id 0.

use crate::limits::ORDER_KEYS_MAX;
use crate::op::{ApiError, ReadOptions, Scroll, ScrollOrdered, ScrollPoints};
use crate::tcp::reader::{ArgsReader, check_flags};
use crate::tcp::vector::parts::{collection, filter, marked_options};
use crate::wire::embedded::invalid;
use nigh_engine::quoted::quoted;
use nigh_shard::core::{OrderKey, OrderedScroll, Part, Position};

const DESCENDING: u8 = 1;
const DATETIME: u8 = 1 << 1;
const STRING: u8 = 1 << 2;
const SEVERAL: u8 = 1 << 3;
const KIND_STRING: u8 = 2;
/// Bits of the marker.
const AFTER_ID: u8 = 1;
const OPTIONS: u8 = 1 << 1;
const ORDER: u8 = 1 << 2;
const BOUND: u8 = 1 << 3;

/// # Errors
/// A bad request.
pub fn scroll(args: &mut ArgsReader<'_>) -> Result<Scroll, ApiError> {
    let (collection, limit) = (collection(args)?, args.u32("limit")? as usize);
    let filter = filter(args)?;
    let read = marked_options(args)?;
    let after = if marked(args, "cursor")? { Some(args.u64("afterId")?) } else { None };
    let order = if marked(args, "order")? { Some(order(args)?) } else { None };
    scroll_of(ScrollPoints { collection, filter, after, limit, read }, order)
}

/// A scroll of a collection of named spaces, where one marker says which parts follow.
///
/// # Errors
/// A bad request.
pub fn scroll_by_marker(args: &mut ArgsReader<'_>) -> Result<Scroll, ApiError> {
    let (collection, limit) = (collection(args)?, args.u32("limit")? as usize);
    let filter = filter(args)?;
    let marker = if args.is_empty() { 0 } else { args.u8("marker")? };
    check_flags(marker, AFTER_ID | OPTIONS | ORDER | BOUND)?;
    let has = |bit| marker & bit != 0;
    let after = if has(AFTER_ID) { Some(args.u64("afterId")?) } else { None };
    let mut read = ReadOptions::default();
    if has(OPTIONS) {
        read.read_consistency = args.u8("readConsistency")?;
        read.on_partition_unavailable = args.u8("onPartitionUnavailable")?;
    }
    if has(BOUND) {
        read.max_staleness = args.u64("maxStaleness")?;
    }
    let order = if has(ORDER) { Some(order(args)?) } else { None };
    scroll_of(ScrollPoints { collection, filter, after, limit, read }, order)
}

/// A scroll by id, or in an order that goes on behind the same id.
fn scroll_of(by_id: ScrollPoints, order: Option<Order>) -> Result<Scroll, ApiError> {
    let Some(Order { keys, start_from, resume }) = order else { return Ok(Scroll::ById(by_id)) };
    let ScrollPoints { collection, filter, after, limit, read } = by_id;
    let after = match (resume, after) {
        (Some(parts), after) => Some(Position { parts, id: after.unwrap_or(0) }),
        (None, None) => None,
        (None, Some(_)) => {
            return Err(invalid("cursor", "an order is resumed by values, not by an id alone"));
        }
    };
    let order = OrderedScroll { filter, keys, after, start_from, limit };
    Ok(Scroll::Ordered(ScrollOrdered { collection, order, read }))
}

fn marked(args: &mut ArgsReader<'_>, field: &'static str) -> Result<bool, ApiError> {
    Ok(!args.is_empty() && args.flag(field)?)
}

struct Order {
    keys: Vec<OrderKey>,
    start_from: Option<f64>,
    resume: Option<Vec<Part>>,
}

fn order(args: &mut ArgsReader<'_>) -> Result<Order, ApiError> {
    let name = args.text32("key")?;
    let flags = args.u8("flags")?;
    let start = if args.flag("hasStart")? { Some(number(args, "start")?) } else { None };
    let resume = if args.flag("hasResume")? { Some(number(args, "resume")?) } else { None };
    let mut keys = vec![key(name, flags & !SEVERAL)?];
    let is_string = keys[0].is_string;
    if is_string && start.is_some() {
        return Err(invalid("start", "not possible for strings"));
    }
    // A number that says nothing of where to go on. Where the parts that do follow, the interface leaves it unread.
    let stray = resume.is_some() && (is_string || flags & SEVERAL != 0);
    let mut resume = resume.filter(|_| !is_string).map(|number| vec![Part::Number(number)]);
    if is_string && args.flag("hasResumeStr")? {
        resume = Some(vec![Part::Text(args.s32("resumeStr")?.to_vec())]);
    }
    if flags & SEVERAL != 0 {
        for _ in 0..args.u8("nTail")? {
            let name = args.text32("key")?;
            // That there are several keys is for the first to say.
            keys.push(key(name, args.u8("flags")? & !SEVERAL)?);
        }
        if keys.len() > ORDER_KEYS_MAX {
            return Err(invalid("order", format_args!("{} keys, at most {ORDER_KEYS_MAX}", keys.len())));
        }
        resume = None;
        if args.flag("hasResumeKeys")? {
            let parts: Result<_, ApiError> = keys.iter().map(|key| part(args, key)).collect();
            resume = Some(parts?);
        }
    }
    if stray && resume.is_none() {
        return Err(invalid(
            "resume",
            "a number alone does not say where an order by strings or by several keys goes on",
        ));
    }
    // The interface ignores it for several keys.
    let start_from = start.filter(|_| keys.len() == 1);
    Ok(Order { keys, start_from, resume })
}

fn key(name: &str, flags: u8) -> Result<OrderKey, ApiError> {
    if flags & !(DESCENDING | DATETIME | STRING) != 0 {
        return Err(invalid("flags", format_args!("unknown: {flags:#04x}")));
    }
    if name.is_empty() {
        return Err(invalid("order", "the key is empty"));
    }
    let (is_string, is_datetime) = (flags & STRING != 0, flags & DATETIME != 0);
    if is_string && is_datetime {
        return Err(invalid("order", format_args!("key {} cannot be a string and a datetime", quoted(name))));
    }
    Ok(OrderKey { key: name.to_owned(), desc: flags & DESCENDING != 0, is_string, is_datetime })
}

fn number(args: &mut ArgsReader<'_>, field: &'static str) -> Result<f64, ApiError> {
    match args.f64(field)? {
        number if number.is_nan() => Err(invalid(field, "not a number")),
        number => Ok(number),
    }
}

/// One value to resume behind, of the kind that its key has.
fn part(args: &mut ArgsReader<'_>, key: &OrderKey) -> Result<Part, ApiError> {
    let kind = args.u8("kind")?;
    if kind > KIND_STRING || (kind == KIND_STRING) != key.is_string {
        return Err(invalid("kind", format_args!("{kind} is not that of key {}", quoted(&key.key))));
    }
    Ok(match key.is_string {
        true => Part::Text(args.s32("resumeKey")?.to_vec()),
        false => Part::Number(number(args, "resumeKey")?),
    })
}
