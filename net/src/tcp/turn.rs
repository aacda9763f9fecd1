//! When a connection whose requests take long gives way to what else its core has to do.
//!
//! Most requests about keys take a microsecond, and a round of them ends before anybody would notice. An `operate` on a record of
//! megabytes takes milliseconds, whatever its arguments are, and so may anything that moves that many bytes. After these the clock is
//! looked at.

use crate::tcp::ops::KvOp;
use nigh_shard::core::Core;

/// How long a turn is before others get theirs.
const TURN_NS: u64 = 1_000_000;
/// Bytes of arguments and response from which a request may take long.
const LONG_BYTES: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub struct Turn {
    began_ns: u64,
}

impl Turn {
    /// Begins now.
    pub fn begin(core: &Core) -> Turn {
        Turn { began_ns: core.env().now_ns() }
    }

    /// After a request whose arguments and response have so many bytes: whether others have run meanwhile, so that it may be later than
    /// it was.
    pub async fn gives_way(&mut self, core: &Core, op: KvOp, bytes: usize) -> bool {
        if !may_take_long(op, bytes) || !self.is_over(core.env().now_ns()) {
            return false;
        }
        core.env().yield_now().await;
        self.began_ns = core.env().now_ns();
        true
    }

    fn is_over(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.began_ns) >= TURN_NS
    }
}

/// Whether the clock is worth a look after such a request.
#[inline]
pub fn may_take_long(op: KvOp, bytes: usize) -> bool {
    op == KvOp::Operate || bytes >= LONG_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_requests_do_not_look_at_the_clock() {
        assert!(!may_take_long(KvOp::Put, 1000) && !may_take_long(KvOp::Get, LONG_BYTES - 1));
        assert!(may_take_long(KvOp::Operate, 20) && may_take_long(KvOp::Get, LONG_BYTES));
        let turn = Turn { began_ns: 5 };
        assert!(!turn.is_over(0) && !turn.is_over(TURN_NS + 4) && turn.is_over(TURN_NS + 5));
    }
}
