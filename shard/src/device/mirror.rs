//! A device's copy of one collection: kept up to date, and searched.
use super::devices::Devices;
use super::waiting::{Outcome, Search};
use crate::catalog::CollectionHandle;
use crate::found::{Shown, found_points};
use nigh_engine::collection::{Dense, Hit, Moment};
use nigh_engine::device::{DeviceError, ExactDevice, Found, K_MAX};
use nigh_engine::index::Slot;
use nigh_engine::memory::Participant;
use nigh_engine::pace::{Whole, at_once};
use nigh_engine::query;
use std::sync::{Arc, Weak};

/// Bytes of vectors sent under one pin.
const SENT_BYTES: usize = 16 << 20;

/// The copy. It is made with the first search, and again when a bulk build has put other slots in the place of the collection's.
pub(super) struct Mirror {
    handle: Weak<CollectionHandle>,
    /// What it is a copy of. Holds the allocation, so that no other view has its address.
    of: Weak<Dense>,
    /// None: of no use to this view of the collection, and said so in the log.
    device: Option<Box<dyn ExactDevice>>,
    /// Slots written after the moment in which they were named.
    pending: Vec<Slot>,
}

/// A search with what the device needs of it.
struct Prepared<'a> {
    search: &'a Search,
    query: Vec<f32>,
    /// Results asked of the device.
    wanted: usize,
    /// The filter is asked of what the device finds.
    checked: bool,
}

impl Mirror {
    pub fn of(handle: &Arc<CollectionHandle>) -> Mirror {
        Mirror { handle: Arc::downgrade(handle), of: Weak::new(), device: None, pending: Vec::new() }
    }

    /// Whether the collection is still there.
    pub fn is_wanted(&self) -> bool {
        self.handle.strong_count() > 0
    }

    /// Answers searches of the collection, all as of one moment. Cost: the transfer of what was written since the last, and a launch
    /// for the unfiltered and for each filter that the payload index decides.
    pub fn answer(&mut self, devices: &Devices, seat: &Participant, searches: Vec<Search>) {
        let handle = searches[0].handle.clone();
        let now_ms = searches.iter().map(|search| search.now_ms).max().unwrap_or_default();
        let outcomes = loop {
            let pin = seat.pin();
            let view = handle.view.load(&pin);
            if !std::ptr::eq(self.of.as_ptr(), Arc::as_ptr(view)) {
                self.begin(devices, view, &handle);
            }
            let moment = view.moment(&pin, now_ms);
            match self.send_fresh(&moment) {
                // What is retired meanwhile does not wait for all of a large collection.
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => self.give_up(&handle, &error),
            }
            let mut outcomes: Vec<Outcome> = searches.iter().map(|_| None).collect();
            if let Some(device) = &mut self.device
                && let Err(error) = search_all(&mut **device, view, &pin, &moment, &searches, &mut outcomes)
            {
                self.give_up(&handle, &error);
            }
            break outcomes;
        };
        for (search, outcome) in searches.into_iter().zip(outcomes) {
            search.answer.give(outcome);
        }
    }

    /// Starts a copy of `view`, of which no slot has been asked for yet: all of them are fresh.
    fn begin(&mut self, devices: &Devices, view: &Arc<Dense>, handle: &CollectionHandle) {
        // The old one first: both may not fit.
        self.device = None;
        self.pending.clear();
        self.of = Arc::downgrade(view);
        match devices.open(view.config().dim, view.config().metric) {
            Ok(device) => {
                tracing::info!(
                    collection = handle.name,
                    device = device.name(),
                    "copying vectors to a device"
                );
                self.device = Some(device);
            }
            Err(error) => self.give_up(handle, &error),
        }
    }

    fn give_up(&mut self, handle: &CollectionHandle, error: &DeviceError) {
        self.device = None;
        tracing::warn!(collection = handle.name, %error, "searched by exact scans on the cores from here on");
    }

    /// Sends vectors that the device does not have; true when there are more.
    fn send_fresh(&mut self, moment: &Moment<'_>) -> Result<bool, DeviceError> {
        let Some(device) = &mut self.device else { return Ok(false) };
        let mut slots = Vec::new();
        let max = (SENT_BYTES / (device.dim() * size_of::<f32>())).max(1);
        let more = moment.fresh(&mut self.pending, max, &mut slots);
        let mut values = Vec::with_capacity(slots.len() * device.dim());
        slots.iter().for_each(|&slot| values.extend_from_slice(moment.vector(slot)));
        device.write(&slots, &values)?;
        Ok(more)
    }
}

fn search_all(
    device: &mut dyn ExactDevice,
    view: &Dense,
    pin: &nigh_engine::memory::Pin<'_>,
    moment: &Moment<'_>,
    searches: &[Search],
    outcomes: &mut [Outcome],
) -> Result<(), DeviceError> {
    let outcome = |prepared: &Prepared<'_>, found: &[Found]| {
        let hits = sure_hits(moment, prepared, found)?;
        let hits: Vec<query::Found> = hits.into_iter().map(query::Found::from).collect();
        let Search { request, account, handle, .. } = prepared.search;
        // The thread belongs to the device, and its answers are short.
        let mut pace = Whole::unbounded();
        Some(at_once(found_points(
            (view, handle.ids),
            pin,
            &hits,
            &Shown::payloads_if(request.with_rows),
            account,
            &mut pace,
        )))
    };
    let (mut together, live) = (Vec::new(), moment.live());
    for (index, search) in searches.iter().enumerate() {
        let request = &search.request;
        let query = match moment.prepare(&request.vector) {
            Ok(query) => query,
            Err(error) => {
                outcomes[index] = Some(Err(error.into()));
                continue;
            }
        };
        // Some more than are answered, so that a tie at the end shows.
        let wanted = (request.k + (request.k / 4).max(16)).min(K_MAX);
        let mut prepared = Prepared { search, query, wanted, checked: false };
        match request.filter.as_deref().map(|filter| moment.named(filter)) {
            None => together.push((index, prepared)),
            Some(Some(named)) => {
                let query = &prepared.query[..device.dim()];
                let found = device.search(query, wanted, &named)?;
                outcomes[index] = outcome(&prepared, &found[0]);
            }
            Some(None) => {
                (prepared.wanted, prepared.checked) = (K_MAX, true);
                together.push((index, prepared));
            }
        }
    }
    let Some(most) = together.iter().map(|(_, prepared)| prepared.wanted).max() else { return Ok(()) };
    let queries: Vec<f32> =
        together.iter().flat_map(|(_, prepared)| &prepared.query[..device.dim()]).copied().collect();
    let found = device.search(&queries, most, &live)?;
    for ((index, prepared), found) in together.iter().zip(&found) {
        outcomes[*index] = outcome(prepared, &found[..found.len().min(prepared.wanted)]);
    }
    Ok(())
}

/// The `k` nearest matching points among those found, by the engine's own distances; `None` where points that the device left out could
/// be as near.
///
/// The device sums in another order than the engine. How far it is off shows in what it found: a point that was left out is no
/// nearer than the last one found, less twice the largest difference seen.
fn sure_hits(moment: &Moment<'_>, prepared: &Prepared<'_>, found: &[Found]) -> Option<Vec<Hit>> {
    let request = &prepared.search.request;
    let filter = request.filter.as_deref().filter(|_| prepared.checked);
    let mut hits = moment.hits(&prepared.query, found.iter().map(|found| found.row), filter);
    if let Some(last) = found.get(prepared.wanted - 1) {
        let kth = hits.get(request.k - 1)?;
        let theirs =
            |slot| found.iter().find(|found| found.row == slot).map_or(f32::NAN, |found| found.distance);
        let off = hits.iter().map(|hit| (hit.distance - theirs(hit.slot)).abs()).fold(0.0, f32::max);
        // Not so for NaN either.
        let is_sure = kth.distance < last.distance - 2.0 * off;
        if !is_sure {
            return None;
        }
    }
    hits.truncate(request.k);
    Some(hits)
}
