//! Operations on the registry of API keys.

use crate::auth::Authenticator;
use crate::auth::registry::{KeyError, ListedKey, NewKey, Registry};
use crate::op::{Action, ApiError, ErrorKind, Operation};
use nigh_shard::core::Core;
use nigh_shard::env::{self, Length};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Adds an API key to the registry.
pub struct AddKey {
    /// Has the registry.
    pub auth: Arc<dyn Authenticator>,
    /// The API key.
    pub key: NewKey,
}

/// Revokes an API key. Requests with it are refused from then on, on open connections as well.
pub struct RevokeKey {
    /// Has the registry.
    pub auth: Arc<dyn Authenticator>,
    /// The token of the API key.
    pub token: String,
}

/// Lists the API keys of the registry, without their tokens.
pub struct ListKeys {
    /// Has the registry.
    pub auth: Arc<dyn Authenticator>,
}

/// The secret is not shown.
impl fmt::Debug for RevokeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RevokeKey")
    }
}

pub(super) fn registry(auth: &dyn Authenticator) -> Result<&Registry, ApiError> {
    auth.registry().ok_or_else(|| {
        ApiError::new(
            ErrorKind::Unmet,
            "no key registry is configured on this node; -keys-file names its file",
        )
    })
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> ApiError {
        match error {
            KeyError::Invalid(reason) => ApiError::invalid(reason),
            KeyError::Exists => ApiError::new(ErrorKind::Exists, "a key with this token exists already"),
            KeyError::Unknown => ApiError::new(ErrorKind::NotFound, "there is no key with this token"),
            KeyError::WouldLockOut => ApiError::new(
                ErrorKind::Conflict,
                "the API keys of the snapshot would not give the sender of this request the right admin on everything; send it with an API key that has this right in the snapshot",
            ),
            KeyError::Unwritten(error) => {
                tracing::error!(target: "nigh", %error, "the API key file could not be written");
                let reason = "the API key file could not be written, so the change has no effect on this server; see the server log";
                ApiError::new(ErrorKind::Storage, reason)
            }
        }
    }
}

/// The most changes that may be under way in the process. Each has a thread of its own, and they wait for each other.
const CHANGES_MAX: usize = 16;
static CHANGES: AtomicUsize = AtomicUsize::new(0);

/// Counts a change while it is under way.
struct Change;

impl Change {
    /// Begins a change.
    ///
    /// # Errors
    /// Too many are under way.
    fn begin() -> Result<Change, ApiError> {
        let more = |count| (count < CHANGES_MAX).then_some(count + 1);
        match CHANGES.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(_) => Ok(Change),
            Err(_) => {
                let reason = "too many changes of API keys are under way; try again";
                Err(ApiError::new(ErrorKind::Unavailable, reason))
            }
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        CHANGES.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Changes the registry on a thread of its own, because the disk may take long.
pub(super) async fn changed(
    core: &Core,
    auth: Arc<dyn Authenticator>,
    change: impl FnOnce(&Registry) -> Result<(), KeyError> + Send + 'static,
    refused: impl FnOnce(KeyError) -> ApiError + Send + 'static,
) -> Result<(), ApiError> {
    let counted = Change::begin()?;
    let change = move || {
        let _counted = counted;
        change(registry(&*auth)?).map_err(refused)
    };
    let failed = || ApiError::new(ErrorKind::Internal, "the change of the API keys ended without a result");
    env::train(core.env(), Length::Short, change).await.unwrap_or_else(|| Err(failed()))
}

impl Operation for AddKey {
    type Output = ();
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = true;
    const OF_FAMILY: bool = false;
    fn validate(&self) -> Result<(), ApiError> {
        for (field, value) in [("token", &self.key.token), ("tenant", &self.key.tenant)] {
            if value.is_empty() {
                return Err(ApiError::invalid(format!("key: {field} is required")));
            }
        }
        self.key.check().map_err(ApiError::invalid)
    }
    async fn run(self, core: Rc<Core>) -> Result<(), ApiError> {
        let key = self.key;
        changed(&core, self.auth, move |registry| registry.add(&key), ApiError::from).await
    }
}

impl Operation for RevokeKey {
    type Output = ();
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = true;
    const OF_FAMILY: bool = false;
    fn validate(&self) -> Result<(), ApiError> {
        match self.token.is_empty() {
            true => Err(ApiError::invalid("key: token is required")),
            false => Ok(()),
        }
    }
    async fn run(self, core: Rc<Core>) -> Result<(), ApiError> {
        let token = self.token;
        changed(&core, self.auth, move |registry| registry.revoke(&token), ApiError::from).await
    }
}

impl Operation for ListKeys {
    type Output = Vec<ListedKey>;
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = false;
    const OF_FAMILY: bool = false;
    async fn run(self, _: Rc<Core>) -> Result<Vec<ListedKey>, ApiError> {
        Ok(registry(&*self.auth)?.list())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_under_way_have_a_bound() {
        let begun: Vec<Change> = (0..CHANGES_MAX).map(|_| Change::begin().unwrap()).collect();
        assert_eq!(Change::begin().err().map(|error| error.kind), Some(ErrorKind::Unavailable));
        drop(begun);
        assert!(Change::begin().is_ok());
    }
}
