//! Scopes: what a key may do, and with which collections.

use crate::op::Action;
use std::fmt;

/// Allows one action, or all of them, on the collections that match a pattern. Its text is `action:pattern`.
///
/// The action is `read`, `write`, `admin` or `*` for all; none includes another. The pattern is the full name of a collection,
/// `tenant/name`, or the beginning of one followed by `*`, or `*` alone. An operation that acts on no collection has
/// an empty resource name, which only the pattern `*` matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    text: String,
    /// `None` = all.
    action: Option<Action>,
    pattern: Pattern,
}

const ACTIONS: [Action; 3] = [Action::Read, Action::Write, Action::Admin];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    All,
    Prefix(String),
    Name(String),
}

/// Why a text is no scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAScope {
    text: String,
}

impl fmt::Display for NotAScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a scope: write action:pattern, where the action is read, write, admin or *, and the pattern is a full name such as \
             default/docs, the beginning of one followed by *, or * alone",
            self.text
        )
    }
}

impl Scope {
    /// Reads a scope.
    ///
    /// # Errors
    /// There is no colon, the action is not one of the four, or the pattern is empty.
    pub fn parse(text: &str) -> Result<Scope, NotAScope> {
        let refused = || NotAScope { text: text.to_owned() };
        let (action, pattern) = text.split_once(':').ok_or_else(refused)?;
        let action = match action {
            "*" => None,
            word => Some(ACTIONS.into_iter().find(|action| action.word() == word).ok_or_else(refused)?),
        };
        let pattern = match (pattern, pattern.strip_suffix('*')) {
            ("", _) => return Err(refused()),
            ("*", _) => Pattern::All,
            (_, Some(prefix)) => Pattern::Prefix(prefix.to_owned()),
            (name, None) => Pattern::Name(name.to_owned()),
        };
        Ok(Scope { text: text.to_owned(), action, pattern })
    }

    /// The scope as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it allows `action` on `resource`, the full name of a collection, or empty for what has none.
    pub fn allows(&self, action: Action, resource: &str) -> bool {
        let matches = || match &self.pattern {
            Pattern::All => true,
            Pattern::Prefix(prefix) => !resource.is_empty() && of_partition(resource).starts_with(prefix),
            Pattern::Name(name) => of_partition(resource) == name,
        };
        self.has(action) && matches()
    }

    /// Whether the scope allows `action` on anything.
    pub fn has(&self, action: Action) -> bool {
        self.action.is_none_or(|allowed| allowed == action)
    }
}

/// The name of the collection that a partition belongs to, or the name itself.
fn of_partition(name: &str) -> &str {
    name.split(['#', '@']).next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Action::{Admin, Read, Write};

    fn allows(scope: &str, action: Action, resource: &str) -> bool {
        Scope::parse(scope).unwrap().allows(action, resource)
    }

    #[test]
    fn no_action_includes_another() {
        for (scope, action) in [("read:*", Read), ("write:*", Write), ("admin:*", Admin)] {
            for asked in [Read, Write, Admin] {
                assert_eq!(allows(scope, asked, "default/docs"), asked == action, "{scope} {asked:?}");
                assert_eq!(allows(scope, asked, ""), asked == action, "{scope} {asked:?}");
                assert!(allows("*:*", asked, "") && allows("*:*", asked, "acme/docs"));
            }
        }
    }

    #[test]
    fn patterns_match_full_names() {
        for (pattern, resource, expected) in [
            ("default/docs", "default/docs", true),
            ("default/docs", "default/docs2", false),
            ("default/docs", "default/doc", false),
            ("default/docs", "default/docs#3", true),
            ("default/docs", "default/docs@7", true),
            ("docs", "default/docs", false),
            ("acme/*", "acme/docs", true),
            ("acme/*", "acme/", true),
            ("acme/*", "acme", false),
            ("acme*", "acme2/docs", true),
            ("acme/d*", "acme/e", false),
            ("acme/*", "", false),
            ("default/docs", "", false),
            ("*", "", true),
            ("*", "any/thing", true),
            // A star elsewhere is a character like any other.
            ("a*e/docs", "acme/docs", false),
            ("a:b/c", "a:b/c", true),
        ] {
            assert_eq!(allows(&format!("read:{pattern}"), Read, resource), expected, "{pattern} {resource}");
        }
    }

    #[test]
    fn what_is_no_scope_is_refused_in_its_own_words() {
        for text in ["", "read", "read:", ":x", "Read:*", "reads:*", " read:*", "*", "delete:*", "read*:x"] {
            let refusal = Scope::parse(text).unwrap_err().to_string();
            assert!(
                refusal.starts_with(&format!("{text:?} is not a scope: write action:pattern")),
                "{refusal}"
            );
        }
        assert_eq!(Scope::parse("write:acme/*").unwrap().text(), "write:acme/*");
    }
}
