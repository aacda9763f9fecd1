//! Aliases: names that stand for a collection wherever points are read or written. Changed on core 0, one change at a time, durable
//! before the answer; looked up in the published catalog.

use super::Core;
use crate::alias_file;
use crate::catalog::{Catalog, checked_name, full_name, within_tenant};
use crate::env::call;
use crate::error::OpError;
use crate::error::io_error;
use crate::twin;
use nigh_engine::quoted::quoted;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

/// One change of aliases. Names as clients write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AliasChange {
    /// Makes an alias, or points it elsewhere.
    Create {
        /// The new name.
        alias: String,
        /// An existing collection.
        collection: String,
    },
    /// Removes an alias; an absent one is fine.
    Delete {
        /// The name.
        alias: String,
    },
}

/// An alias and its target, both as `<tenant>/<name>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The name.
    pub alias: String,
    /// What it stands for.
    pub collection: String,
}

fn refuse(what: String) -> OpError {
    OpError::BadRequest(format!("alias: {what}"))
}

/// Checks one change against a catalog, and makes it there; whether the alias was there before.
fn apply(catalog: &mut Catalog, change: &AliasChange) -> Result<bool, OpError> {
    match change {
        // A name that cannot be one has no alias.
        AliasChange::Delete { alias } => {
            Ok(full_name(alias).is_some_and(|full| catalog.aliases.remove(&full).is_some()))
        }
        AliasChange::Create { alias, collection } => {
            let full = checked_name(alias).map_err(|error| refuse(error.to_string()))?;
            let target = full_name(collection)
                .ok_or_else(|| refuse(format!("{} is no name of a collection", quoted(collection))))?;
            if !within_tenant(&full, &target) {
                return Err(refuse(format!(
                    "{alias:?} and {} belong to different tenants; an alias stands for a collection of its own",
                    quoted(collection)
                )));
            }
            if catalog.by_name.contains_key(&full) || catalog.cold.contains_key(&full) {
                return Err(refuse(format!("{alias:?} is a collection, which it would hide")));
            }
            if catalog.aliases.contains_key(&target) || target == full {
                return Err(refuse(format!("the target {} is itself an alias", quoted(collection))));
            }
            if let Some((other, _)) = catalog.aliases.iter().find(|(_, to)| **to == full) {
                // Its collection is damaged: an alias in that place would make an alias of an alias.
                return Err(refuse(format!("{alias:?} is what the alias {other:?} stands for")));
            }
            if !catalog.by_name.contains_key(&target) && !catalog.cold.contains_key(&target) {
                return Err(refuse(format!("there is no collection {}", quoted(collection))));
            }
            Ok(catalog.aliases.insert(full, target).is_some())
        }
    }
}

impl Core {
    /// Makes all changes, in order, or none; durable on return. Says of each whether its alias was there before.
    ///
    /// # Errors
    /// The first change that is refused: a target that is missing, an alias, or another tenant's, a name that a collection has or that
    /// may not be one. File errors.
    pub async fn change_aliases(self: &Rc<Self>, changes: Vec<AliasChange>) -> Result<Vec<bool>, OpError> {
        call(self, 0, move |there| async move { there.change_aliases_on_core_0(&changes).await }).await?
    }

    /// On core 0: makes these the aliases, all of them or, if one of them cannot be, none; durable on return.
    ///
    /// # Errors
    /// The first alias that cannot be, as [`Self::change_aliases`] refuses it. File errors.
    pub(super) async fn replace_aliases(&self, aliases: &BTreeMap<String, String>) -> Result<(), OpError> {
        let _held = self.catalog_lock.lock().await;
        self.ctx.refuse_while_opening()?;
        let mut catalog = self.ctx.catalog_copy();
        catalog.aliases.clear();
        for (alias, collection) in aliases {
            // As clients write it: the limit on its length is that of a name without the default tenant.
            let alias = alias.strip_prefix("default/").unwrap_or(alias).to_owned();
            let collection = collection.clone();
            apply(&mut catalog, &AliasChange::Create { alias, collection })?;
        }
        self.store_aliases(&catalog.aliases).await?;
        let aliases = catalog.aliases.clone();
        self.ctx.publish_catalog(catalog);
        self.ctx.log_aliases(&aliases).await;
        Ok(())
    }

    async fn change_aliases_on_core_0(
        self: &Rc<Self>,
        changes: &[AliasChange],
    ) -> Result<Vec<bool>, OpError> {
        let _held = self.catalog_lock.lock().await;
        self.ctx.refuse_while_opening()?;
        let before = self.ctx.catalog_copy();
        let mut catalog = before.clone();
        let existed = changes.iter().map(|change| apply(&mut catalog, change));
        let existed: Vec<bool> = existed.collect::<Result<_, _>>()?;
        if catalog.aliases == before.aliases && !self.aliases_behind.get() {
            return Ok(existed);
        }
        if changes.iter().all(|change| matches!(change, AliasChange::Delete { .. })) {
            self.store_fewer_aliases(&catalog.aliases).await?;
        } else {
            self.store_aliases(&catalog.aliases).await?;
        }
        let aliases = catalog.aliases.clone();
        self.ctx.publish_catalog(catalog);
        self.ctx.log_aliases(&aliases).await;
        Ok(existed)
    }

    /// Makes the file of aliases say `aliases`. The caller holds the lock of the catalog, or nothing else is running yet.
    pub(crate) async fn store_aliases(&self, aliases: &BTreeMap<String, String>) -> Result<(), OpError> {
        self.aliases_behind.set(true);
        if let Some(disk) = self.env().disk() {
            let bytes = alias_file::encode(aliases);
            twin::replace(&*disk, Path::new(alias_file::FILE), &bytes)
                .await
                .map_err(|error| io_error(&error))?;
        }
        self.aliases_behind.set(false);
        Ok(())
    }

    /// The same where aliases have only gone: on a full disk it takes room of the reserve.
    pub(crate) async fn store_fewer_aliases(
        &self,
        aliases: &BTreeMap<String, String>,
    ) -> Result<(), OpError> {
        match self.store_aliases(aliases).await {
            Err(OpError::NoSpace(_)) if self.ctx.release_reserve().await => self.store_aliases(aliases).await,
            stored => stored,
        }
    }

    /// Aliases in order, all of them or those of one collection.
    ///
    /// # Errors
    /// [`OpError::Opening`] until they are known.
    pub fn aliases(&self, collection: Option<&str>) -> Result<Vec<Alias>, OpError> {
        self.knows_collections()?;
        let target = collection.map(full_name);
        let pin = self.pin();
        let aliases = self.node().catalog.load(&pin).aliases.iter();
        Ok(aliases
            .filter(|(_, to)| target.as_ref().is_none_or(|target| target.as_ref() == Some(*to)))
            .map(|(alias, to)| Alias { alias: alias.clone(), collection: to.clone() })
            .collect())
    }
}
