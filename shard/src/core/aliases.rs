//! Aliases: names that stand for a collection wherever points are read or written. Changed on core 0, one change at a time, durable
//! before the answer; looked up in the published catalog.

use super::Core;
use super::admin::io_error;
use super::types::OpError;
use crate::alias_file;
use crate::catalog::{Catalog, checked_name, full_name};
use crate::env::call;
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
    /// What it stands for; the collection may have been dropped since.
    pub collection: String,
}

fn refuse(what: String) -> OpError {
    OpError::BadRequest(format!("alias: {what}"))
}

/// Checks one change against a catalog, and makes it there.
fn apply(catalog: &mut Catalog, change: &AliasChange) -> Result<(), OpError> {
    match change {
        AliasChange::Delete { alias } => {
            // A name that cannot be one has no alias.
            if let Some(full) = full_name(alias) {
                catalog.aliases.remove(&full);
            }
        }
        AliasChange::Create { alias, collection } => {
            let full = checked_name(alias).map_err(|error| refuse(error.to_string()))?;
            let target = full_name(collection)
                .ok_or_else(|| refuse(format!("{collection:?} is no name of a collection")))?;
            if catalog.by_name.contains_key(&full) {
                return Err(refuse(format!("{alias:?} is a collection, which it would hide")));
            }
            if catalog.aliases.contains_key(&target) || target == full {
                return Err(refuse(format!("the target {collection:?} is itself an alias")));
            }
            if let Some((other, _)) = catalog.aliases.iter().find(|(_, to)| **to == full) {
                // Its collection has been dropped: an alias in that place would make an alias of an alias.
                return Err(refuse(format!("{alias:?} is what the alias {other:?} stands for")));
            }
            if !catalog.by_name.contains_key(&target) {
                return Err(refuse(format!("there is no collection {collection:?}")));
            }
            catalog.aliases.insert(full, target);
        }
    }
    Ok(())
}

impl Core {
    /// Makes all changes, in order, or none; durable on return.
    ///
    /// # Errors
    /// The first change that is refused: a target that is missing or an alias, a name that a collection has or that may not be one.
    /// File errors.
    pub async fn change_aliases(self: &Rc<Self>, changes: Vec<AliasChange>) -> Result<(), OpError> {
        call(self, 0, move |there| async move { there.change_aliases_on_core_0(&changes).await }).await?
    }

    async fn change_aliases_on_core_0(self: &Rc<Self>, changes: &[AliasChange]) -> Result<(), OpError> {
        let _held = self.catalog_lock.lock().await;
        let before = self.catalog_copy();
        let mut catalog = before.clone();
        changes.iter().try_for_each(|change| apply(&mut catalog, change))?;
        if catalog.aliases == before.aliases {
            return Ok(());
        }
        if let Some(disk) = self.env().disk() {
            let bytes = alias_file::encode(&catalog.aliases);
            disk.replace(Path::new(alias_file::FILE), &bytes).await.map_err(|error| io_error(&error))?;
        }
        self.publish_catalog(catalog);
        Ok(())
    }

    /// Aliases in order, all of them or those of one collection.
    pub fn aliases(&self, collection: Option<&str>) -> Vec<Alias> {
        let target = collection.map(full_name);
        let pin = self.pin();
        let aliases = self.node().catalog.load(&pin).aliases.iter();
        aliases
            .filter(|(_, to)| target.as_ref().is_none_or(|target| target.as_ref() == Some(*to)))
            .map(|(alias, to)| Alias { alias: alias.clone(), collection: to.clone() })
            .collect()
    }
}
