//! Operations on aliases: further names of collections.

use crate::limits::ALIAS_ACTIONS_MAX;
use crate::op::{Action, ApiError, Operation, check_name};
use nigh_shard::core::{Alias, AliasChange, Core};
use std::rc::Rc;

/// Makes or removes aliases: either all changes of the request are made, or none.
pub struct ChangeAliases {
    /// The changes, which are made in this order.
    pub changes: Vec<AliasChange>,
}

/// Checks how many changes a request has.
///
/// # Errors
/// There are more than [`ALIAS_ACTIONS_MAX`].
pub fn check_actions(count: usize) -> Result<(), ApiError> {
    match count {
        0..=ALIAS_ACTIONS_MAX => Ok(()),
        _ => Err(ApiError::invalid(format!("a request may have at most {ALIAS_ACTIONS_MAX} actions"))),
    }
}

/// The names on which a change of an alias needs its right: the alias, and the collection that it is to stand for.
pub fn names_of(change: &AliasChange) -> impl Iterator<Item = &str> {
    let (alias, collection) = match change {
        AliasChange::Create { alias, collection } => (alias, Some(collection)),
        AliasChange::Delete { alias } => (alias, None),
    };
    [Some(alias), collection].into_iter().flatten().map(String::as_str)
}

impl Operation for ChangeAliases {
    type Output = Vec<bool>;
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = true;
    fn validate(&self) -> Result<(), ApiError> {
        check_actions(self.changes.len())?;
        self.changes.iter().try_for_each(|change| match change {
            AliasChange::Create { alias, collection } => {
                check_name(alias).and_then(|()| check_name(collection))
            }
            AliasChange::Delete { alias } => check_name(alias),
        })
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<bool>, ApiError> {
        Ok(core.change_aliases(self.changes).await?)
    }
}

/// Aliases in order.
pub struct ListAliases {
    /// Lists only the aliases of this collection; `None` lists all.
    pub target: Option<String>,
}

impl Operation for ListAliases {
    type Output = Vec<Alias>;
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = false;
    // The collection may have been dropped, which is no error here.
    const OF_FAMILY: bool = false;
    const ENTERS: bool = false;
    fn collection(&self) -> &str {
        self.target.as_deref().unwrap_or_default()
    }
    async fn run(self, core: Rc<Core>) -> Result<Vec<Alias>, ApiError> {
        Ok(core.aliases(self.target.as_deref())?)
    }
}
