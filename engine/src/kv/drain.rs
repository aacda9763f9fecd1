//! A page that is being emptied.

use super::pages::PageId;

/// A page that is being emptied. It is no closed one any more.
pub(super) struct Drain {
    pub(super) page: PageId,
    /// Next word of it.
    pub(super) at: usize,
    pub(super) purpose: Purpose,
}

/// Why a page is emptied, and what may be lost by it.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    /// Room is needed: what cannot be rescued is displaced.
    Evict {
        /// Words that may still be rescued.
        rescue: usize,
    },
    /// Nothing alive may be lost, and most of the page is dead.
    Compact,
    /// Nothing alive may be lost.
    Reserve,
}
