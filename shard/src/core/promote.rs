//! Promotion: the files of a cold collection are fetched into its directory and opened, and then its stub is removed. Until that moment a start
//! finds the collection cold, and removes what was fetched.

use super::Core;
use super::backups::store_error;
use super::restore::{Part, write_files};
use super::room::{Attempt, Spared, no_room};
use crate::backup::{StoreError, fetch_store, read_snapshot};
use crate::catalog::{ColdCollection, CollectionHandle};
use crate::checkpoint::{Manifest, collection_dir};
use crate::cold_stub;
use crate::env::call_own;
use crate::error::{OpError, io_error};
use crate::restored_mark;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The most promotions that fetch at the same time: each holds some pieces in memory.
const FETCHING_MAX: usize = 4;
/// How often a collection is loaded until it fits; after each load that did not fit, another collection is evicted.
const LOADS_MAX: usize = 16;

/// Counts a promotion that fetches, until dropped.
struct Fetching<'a>(&'a Core);

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        let cold = &self.0.cold;
        cold.fetching.set(cold.fetching.get() - 1);
        cold.fetched.notify();
    }
}

impl Core {
    async fn begin_fetching(&self) -> Fetching<'_> {
        let cold = &self.cold;
        while cold.fetching.get() >= FETCHING_MAX {
            cold.fetched.wait().await;
        }
        cold.fetching.set(cold.fetching.get() + 1);
        Fetching(self)
    }

    /// On core 0, with the lock of its name: brings a collection back.
    ///
    /// # Errors
    /// The store or the disk failed, or there is no room. The collection is cold as before.
    pub(super) async fn promote(self: &Rc<Self>, cold: &Arc<ColdCollection>) -> Result<(), OpError> {
        let target = self.target_of(&cold.stub)?;
        let _fetching = self.begin_fetching().await;
        let (key, store) = (&cold.stub.key, target.stores.open());
        let snapshot = read_snapshot(self.env(), &*store, key).await.map_err(|error| store_error(&error))?;
        let mut parts = self.parts_of(key, &snapshot, &cold.name, cold.uid)?;
        if snapshot.stores[0].uid != cold.uid || parts[0].config.family() != cold.config.family() {
            let why = "it is a snapshot of another collection".to_owned();
            return Err(store_error(&StoreError::Damaged { key: key.clone(), why }));
        }
        // The configuration in the directory is the one that counts.
        parts[0].config = (*cold.config).clone();
        self.settle(cold).await?;
        // An earlier eviction or promotion may have left files.
        self.remove_cold_data(cold.uid, cold.config.family()).await?;
        self.check_device(&parts[0].config).await?;
        self.check_disk_room(snapshot.bytes()).await?;
        let images = snapshot.stores.iter().flat_map(|store| &store.files);
        let image_bytes = images.filter(|file| file.name.ends_with(".img")).map(|file| file.bytes).sum();
        let _reserved = self.make_room_for(cold.stub.memory_bytes.unwrap_or(image_bytes)).await?;

        let fetched = async {
            let disk = self.env().disk().expect("stubs lie on a disk");
            let rate = self.options().backup.bytes_per_second;
            let mut manifests = Vec::new();
            for (index, (part, store)) in parts.iter().zip(&snapshot.stores).enumerate() {
                let dir = collection_dir(part.uid);
                if index > 0 {
                    // Without a `collection.json` a start would take the directory of the index for damage.
                    disk.create_dir(&dir).await.map_err(|error| io_error(&error))?;
                    restored_mark::store(&*disk, &dir, &[]).await.map_err(|error| io_error(&error))?;
                }
                let owner = self.node().owner_of(part.uid, self.env().cores());
                let (uid, target, store) = (part.uid, target.clone(), store.clone());
                let manifest = call_own(self, owner, move |there| async move {
                    fetch_store(&there.ctx, &target, &store, &collection_dir(uid), uid, rate).await
                });
                manifests.push(manifest.await?);
            }
            let handle = self.load_fetched(&parts, manifests).await?;
            // On the disk, the index of the tokens becomes a collection before the documents do.
            if let Err(error) = write_files(&*disk, &parts[1..]).await {
                return Err(io_error(&error));
            }
            self.unstub(cold).await?;
            Ok(handle)
        };
        let handle = match fetched.await {
            Ok(handle) => handle,
            Err(error) => {
                self.disown_parts(&parts).await;
                if cold.is_settled.load(Relaxed)
                    && let Err(error) = self.remove_cold_data(cold.uid, cold.config.family()).await
                {
                    tracing::warn!(collection = cold.name, %error, "files of a cold collection remain; its promotion or the next start removes them");
                }
                return Err(error);
            }
        };
        let (uid, store, key) = (cold.uid, cold.stub.store, key.clone());
        call_own(self, handle.owner, move |there| async move {
            there.collections.note_snapshot(uid, store, key);
        })
        .await;
        if let Some(activity) = &handle.activity {
            // It has not been used yet, and whoever waits for it must not see it leave again.
            activity.touch(self.env().index(), self.env().now_ns());
        }
        let _catalog = self.catalog_lock.lock().await;
        let mut catalog = self.ctx.catalog_copy();
        catalog.cold.remove(&cold.name);
        catalog.by_name.insert(cold.name.clone(), handle);
        self.ctx.publish_catalog(catalog);
        Ok(())
    }

    /// Makes sure that the disk says that a collection is cold, before its files are touched.
    async fn settle(&self, cold: &ColdCollection) -> Result<(), OpError> {
        if cold.is_settled.load(Relaxed) {
            return Ok(());
        }
        let disk = self.env().disk().expect("stubs lie on a disk");
        let stored = cold_stub::store(&*disk, &collection_dir(cold.uid), &cold.stub).await;
        stored.map_err(|error| io_error(&error))?;
        cold.is_settled.store(true, Relaxed);
        Ok(())
    }

    /// Removes a stub: from here on a start finds the collection that was fetched.
    async fn unstub(&self, cold: &ColdCollection) -> Result<(), OpError> {
        let disk = self.env().disk().expect("stubs lie on a disk");
        let Err(error) = cold_stub::remove(&*disk, &collection_dir(cold.uid)).await else { return Ok(()) };
        // The stub may have been removed all the same, so it is stored again.
        cold.is_settled.store(false, Relaxed);
        if let Err(again) = self.settle(cold).await {
            tracing::error!(collection = cold.name, %again, "it is unknown whether the disk has the stub of a cold collection; its files stay");
        }
        Err(io_error(&error))
    }

    /// Opens what was fetched. As long as it does not fit into memory, other collections are evicted.
    async fn load_fetched(
        self: &Rc<Self>,
        parts: &[Part],
        manifests: Vec<Manifest>,
    ) -> Result<Arc<CollectionHandle>, OpError> {
        let _one_at_a_time = self.cold.loading.lock().await;
        for _ in 0..LOADS_MAX {
            match self.load_parts(parts, &manifests).await {
                Err(OpError::NoMemory(why)) => {
                    self.disown_parts(parts).await;
                    let _room = self.cold.room.lock().await;
                    if self.evict_least_recent(Spared::Nothing).await != Attempt::Left {
                        return Err(OpError::NoMemory(why));
                    }
                }
                loaded => return loaded,
            }
        }
        Err(no_room())
    }

    async fn load_parts(
        self: &Rc<Self>,
        parts: &[Part],
        manifests: &[Manifest],
    ) -> Result<Arc<CollectionHandle>, OpError> {
        let mut handles = Vec::new();
        for (part, manifest) in parts.iter().zip(manifests) {
            let owner = self.node().owner_of(part.uid, self.env().cores());
            let (uid, name, config) = (part.uid, part.name.clone(), part.config.clone());
            let manifest = manifest.clone();
            let handle = call_own(self, owner, move |there| async move {
                there.open_restored(uid, name, config, manifest).await
            });
            handles.push(handle.await?);
        }
        self.join_parts(handles).await
    }
}
