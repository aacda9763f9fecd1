//! After a backup: stores the catalog, and removes from the archive what is older than it is to be. The removal is a task of its own, which no backup waits
//! for: there may be many thousands of objects. One page of a listing is in memory at a time, and the names of the parts of one segment.

use super::names::{CatalogName, LogObject, PartName, chain_prefix, parse};
use super::sender::put_catalog;
use crate::backup::{BackupError, Names, Store, StoreError};
use crate::core::Core;
use crate::event::some_at_once;
use crate::log::SegmentId;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Objects that are removed at the same time.
const REMOVED_AT_ONCE: usize = 8;

/// On core 0 after a backup.
///
/// # Errors
/// The store does not take the catalog.
pub(crate) async fn retire(core: &Rc<Core>) -> Result<(), BackupError> {
    let (Some(target), Some(options)) = (core.archive_target(), core.options().backup.archive) else {
        return Ok(());
    };
    // The catalog that the run began with comes first.
    let counters = &core.node().archive;
    if !counters.is_begun.load(Relaxed) {
        return Ok(());
    }
    let (store, names) = (target.stores.open(), Names::new(&target.prefix));
    let Some(catalog) = core.ctx.catalog_now(core.keys.archive_entry()).await else { return Ok(()) };
    let now_ms = catalog.unix_ms;
    put_catalog(core, &*store, &names, catalog).await?;
    // If a removal is under way, the next backup sees to the rest.
    if options.retention_ms == 0 || counters.is_removing.swap(true, Relaxed) {
        return Ok(());
    }
    let horizon_ms = now_ms.saturating_sub(options.retention_ms);
    let core = core.clone();
    let env = core.env().clone();
    env.spawn_background(Box::pin(async move {
        let removal = Removal { core: &core, store: &*store, names: &names };
        let removed = removal.run(horizon_ms).await;
        let counters = &core.node().archive;
        counters.is_removing.store(false, Relaxed);
        if let Err(error) = removed {
            counters.failures.fetch_add(1, Relaxed);
            tracing::error!(%error, "what is older than -archive-retention could not be removed; the next backup tries again");
        }
    }));
    Ok(())
}

struct Removal<'a> {
    core: &'a Rc<Core>,
    store: &'a dyn Store,
    names: &'a Names,
}

impl Removal<'_> {
    async fn run(&self, horizon_ms: u64) -> Result<(), StoreError> {
        let runs = self.runs().await?;
        let Some(oldest) = oldest_needed(&runs, horizon_ms) else { return Ok(()) };
        // Catalogs first: without them nobody takes what is left of their time for something that can be restored.
        let old = runs.iter().flat_map(|(_, catalogs)| catalogs).filter(|catalog| **catalog < oldest);
        self.remove(old.map(|catalog| catalog.key(self.names)).collect()).await?;
        for (run, _) in runs.iter().filter(|(run, _)| *run < oldest.generation) {
            self.remove_parts_of(*run).await?;
        }
        self.remove_old_segments(oldest).await
    }

    /// The runs that the archive has, with their catalogs, in order.
    async fn runs(&self) -> Result<Vec<(u64, Vec<CatalogName>)>, StoreError> {
        let all = self.names.of_log();
        let (mut runs, mut after): (Vec<(u64, Vec<CatalogName>)>, Option<String>) = (Vec::new(), None);
        while !self.core.is_stopping() {
            let page = self.store.list(&all, after.as_deref()).await?;
            // Whatever else the first run of the page has is passed over.
            let first =
                page.objects.first().map(|object| object.key[all.len()..].split('/').next().unwrap_or(""));
            let Some(first) = first else {
                match page.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
                continue;
            };
            after = Some(format!("{all}{first}~"));
            if let Ok(run) = first.parse() {
                runs.push((run, self.catalogs(&format!("{all}{first}/catalog/")).await?));
            }
        }
        Ok(runs)
    }

    async fn catalogs(&self, prefix: &str) -> Result<Vec<CatalogName>, StoreError> {
        let (mut catalogs, mut after): (Vec<CatalogName>, Option<String>) = (Vec::new(), None);
        loop {
            let page = self.store.list(prefix, after.as_deref()).await?;
            let found = page.objects.iter().filter_map(|object| match parse(self.names, &object.key)? {
                LogObject::Catalog(catalog) => Some(catalog),
                LogObject::Part(_) => None,
            });
            catalogs.extend(found);
            after = page.next;
            if after.is_none() {
                catalogs.sort_unstable();
                return Ok(catalogs);
            }
        }
    }

    async fn remove(&self, keys: Vec<String>) -> Result<(), StoreError> {
        for keys in keys.chunks(REMOVED_AT_ONCE) {
            if self.core.is_stopping() {
                return Ok(());
            }
            let removed = some_at_once(keys, REMOVED_AT_ONCE, |key| self.store.delete(key)).await;
            removed.into_iter().collect::<Result<(), StoreError>>()?;
        }
        Ok(())
    }

    /// All parts of a run that has ended before everything that is needed.
    async fn remove_parts_of(&self, run: u64) -> Result<(), StoreError> {
        let prefix = format!("{}{run:010}/", self.names.of_log());
        let mut after: Option<String> = None;
        while !self.core.is_stopping() {
            let page = self.store.list(&prefix, after.as_deref()).await?;
            let is_part = |key: &String| matches!(parse(self.names, key), Some(LogObject::Part(_)));
            let keys = page.objects.into_iter().map(|object| object.key).filter(is_part);
            self.remove(keys.collect()).await?;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// The segments of the run of `oldest` that end before it. A segment is kept or removed as a whole.
    async fn remove_old_segments(&self, oldest: CatalogName) -> Result<(), StoreError> {
        let prefix = format!("{}{:010}/", self.names.of_log(), oldest.generation);
        let (mut after, mut segment): (Option<String>, Vec<PartName>) = (None, Vec::new());
        while !self.core.is_stopping() {
            let page = self.store.list(&prefix, after.as_deref()).await?;
            let mut kept: Option<SegmentId> = None;
            for object in page.objects {
                let Some(LogObject::Part(part)) = parse(self.names, &object.key) else { continue };
                if segment.first().is_some_and(|first| first.id != part.id) {
                    self.remove_segment(&mut segment).await?;
                }
                match part.last_ms < oldest.unix_ms {
                    true => segment.push(part),
                    // It is needed, and so is everything behind it.
                    false => {
                        segment.clear();
                        kept = Some(part.id);
                        break;
                    }
                }
            }
            after = match kept {
                Some(id) => Some(format!("{}~", chain_prefix(self.names, id.generation, id.core))),
                None => page.next,
            };
            if after.is_none() {
                break;
            }
        }
        self.remove_segment(&mut segment).await
    }

    async fn remove_segment(&self, segment: &mut Vec<PartName>) -> Result<(), StoreError> {
        self.remove(segment.drain(..).map(|part| part.key(self.names)).collect()).await
    }
}

/// The catalog that restores need of those that are older than the horizon. The catalog of a backup is stored at its end, and its snapshots need what was
/// logged since the catalog of the backup before. The first catalog of a run is none of a backup.
fn oldest_needed(runs: &[(u64, Vec<CatalogName>)], horizon_ms: u64) -> Option<CatalogName> {
    let of_backups = runs.iter().flat_map(|(_, catalogs)| catalogs.iter().skip(1));
    let old = of_backups.filter(|catalog| catalog.unix_ms <= horizon_ms);
    old.rev().nth(1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalogs_that_runs_begin_with_do_not_count_as_those_of_backups() {
        let run = |generation, times: &[u64]| {
            let catalog = |(position, unix_ms): (usize, &u64)| CatalogName {
                generation,
                position: position as u64,
                unix_ms: *unix_ms,
            };
            (generation, times.iter().enumerate().map(catalog).collect::<Vec<_>>())
        };
        let runs = [run(1, &[10, 20, 30]), run(2, &[35]), run(3, &[40, 50]), run(4, &[60])];
        let oldest = |horizon_ms| oldest_needed(&runs, horizon_ms).map(|catalog| catalog.unix_ms);
        assert_eq!([29, 30, 49, 50, 70].map(oldest), [None, Some(20), Some(20), Some(30), Some(30)]);
    }
}
