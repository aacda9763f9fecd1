//! When operations on keys that take long give way to what else their core has to do.
//!
//! Most operations on keys take a microsecond, and a batch of them ends before anybody would notice. A program on a record of
//! megabytes takes milliseconds, whatever its arguments are, and so may anything that moves that many bytes. After these the clock is
//! looked at.

use crate::env::Env;

/// How long a turn is before others get theirs.
const TURN_NS: u64 = 1_000_000;
/// Bytes of an operation and its result from which it may take long.
const LONG_BYTES: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub struct Turn {
    began_ns: u64,
}

impl Turn {
    /// Begins now.
    pub fn begin(env: &dyn Env) -> Turn {
        Turn { began_ns: env.now_ns() }
    }

    /// After an operation that, with its result, has so many bytes: whether others have run meanwhile, so that it may be later than it
    /// was.
    pub async fn gives_way(&mut self, env: &dyn Env, is_program: bool, bytes: usize) -> bool {
        if !may_take_long(is_program, bytes) || !self.is_over(env.now_ns()) {
            return false;
        }
        env.yield_now().await;
        self.began_ns = env.now_ns();
        true
    }

    fn is_over(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.began_ns) >= TURN_NS
    }
}

/// Whether the clock is worth a look after such an operation.
#[inline]
pub fn may_take_long(is_program: bool, bytes: usize) -> bool {
    is_program || bytes >= LONG_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_operations_do_not_look_at_the_clock() {
        assert!(!may_take_long(false, 1000) && !may_take_long(false, LONG_BYTES - 1));
        assert!(may_take_long(true, 20) && may_take_long(false, LONG_BYTES));
        let turn = Turn { began_ns: 5 };
        assert!(!turn.is_over(0) && !turn.is_over(TURN_NS + 4) && turn.is_over(TURN_NS + 5));
    }
}
