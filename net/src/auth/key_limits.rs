//! Limits of an API key: how much may be asked of the server with it.

/// The highest limit on requests per second.
pub const REQUESTS_PER_SECOND_MAX: u64 = 10_000_000;
/// The highest limit on bytes per second.
pub const BYTES_PER_SECOND_MAX: u64 = 1_000_000_000_000;
/// The highest limit on connections.
pub const CONNECTIONS_MAX: u64 = 1_000_000;

/// The limits of an API key; 0 = no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyLimits {
    /// Requests that are let in per second, at most [`REQUESTS_PER_SECOND_MAX`].
    pub requests_per_second: u64,
    /// Bytes of requests and of their answers per second, at most [`BYTES_PER_SECOND_MAX`].
    pub bytes_per_second: u64,
    /// Open connections that use the API key, at most [`CONNECTIONS_MAX`].
    pub connections: u64,
}

impl KeyLimits {
    /// Each limit with its name in records and requests.
    pub fn named(self) -> [(&'static str, u64); 3] {
        [
            ("requests_per_second", self.requests_per_second),
            ("bytes_per_second", self.bytes_per_second),
            ("connections", self.connections),
        ]
    }

    /// Makes limits from their names; `of` returns the value of each name.
    ///
    /// # Errors
    /// The first error of `of`.
    pub fn from_named<E>(mut of: impl FnMut(&'static str) -> Result<u64, E>) -> Result<KeyLimits, E> {
        let [requests, bytes, connections] = KeyLimits::default().named().map(|(name, _)| name);
        Ok(KeyLimits {
            requests_per_second: of(requests)?,
            bytes_per_second: of(bytes)?,
            connections: of(connections)?,
        })
    }

    /// Whether nothing is limited.
    pub fn is_unlimited(self) -> bool {
        self == KeyLimits::default()
    }

    /// Checks that each limit is in its range.
    ///
    /// # Errors
    /// A sentence that names the limit and its range.
    pub fn check(self) -> Result<(), String> {
        let most = [REQUESTS_PER_SECOND_MAX, BYTES_PER_SECOND_MAX, CONNECTIONS_MAX];
        for ((name, limit), most) in self.named().into_iter().zip(most) {
            if limit > most {
                return Err(format!("{name} is {limit}; it must be between 1 and {most}, or 0 for no limit"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_its_range() {
        let most = KeyLimits {
            requests_per_second: REQUESTS_PER_SECOND_MAX,
            bytes_per_second: BYTES_PER_SECOND_MAX,
            connections: CONNECTIONS_MAX,
        };
        assert_eq!((most.check(), KeyLimits::default().check()), (Ok(()), Ok(())));
        for (name, limit) in most.named() {
            let above = KeyLimits::from_named(|other| if other == name { Ok(limit + 1) } else { Err(()) });
            assert!(above.is_err(), "an error of one limit is the error of all");
            let above = KeyLimits::from_named(|other| Ok::<_, ()>(if other == name { limit + 1 } else { 0 }));
            let refusal = above.unwrap().check().unwrap_err();
            let expected = format!("{name} is {}; it must be between 1 and {limit}, or 0", limit + 1);
            assert!(refusal.starts_with(&expected), "{refusal}");
        }
    }
}
