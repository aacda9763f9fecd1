//! What a store is made with, and the pages that follow from its budget.

/// Pages are no larger than that.
const PAGE_BYTES_MAX: usize = 1 << 30;

/// A page is the largest power of two that is at most this part of the budget: a store has some pages that are hardly used, and a node has
/// many stores.
const PAGES_WANTED: usize = 64;

/// Fewer pages cannot be written and emptied in turns.
const PAGES_MIN: usize = 2;

/// How one store keeps its entries.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of pages, table of keys and wheel of deadlines. What the latter two take is taken from the pages, up to half of them.
    pub budget_bytes: usize,
    /// Smallest page: a power of two from 512. A product takes [`Config::PAGE_BYTES_MIN`]; tests take less.
    pub page_bytes_min: usize,
    /// Live records of a page that is emptied for reuse are copied into the page being written, at most half a page of them.
    pub relocating_eviction: bool,
    /// A rewrite with a value of the same length overwrites the old one where it lies.
    pub in_place_same_size: bool,
    /// Only records that were read or rewritten since they were last copied are copied again.
    pub sieve_visited_bit: bool,
}

/// Why a store cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not even two of the smallest pages.
    #[error(
        "a budget of {budget_bytes} bytes is too small for a store of keys: it needs {needed_bytes} bytes"
    )]
    BudgetTooSmall {
        /// As configured.
        budget_bytes: usize,
        /// The least that would do.
        needed_bytes: usize,
    },
    /// The kernel gives no address space.
    #[error(transparent)]
    Memory(#[from] crate::memory::ArenaError),
}

/// Pages of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// A power of two.
    pub page_bytes: usize,
    /// Pages that fit the budget, at least 2.
    pub pages: usize,
}

impl Config {
    /// Smallest page of a product.
    pub const PAGE_BYTES_MIN: usize = 256 << 10;

    /// A budget with every other setting at its default: all of the policies off.
    pub fn new(budget_bytes: usize) -> Config {
        Config {
            budget_bytes,
            page_bytes_min: Self::PAGE_BYTES_MIN,
            relocating_eviction: false,
            in_place_same_size: false,
            sieve_visited_bit: false,
        }
    }

    /// The pages: the largest power of two that is at most a 64th of the budget, within the smallest page and 1 GiB.
    ///
    /// # Errors
    /// [`ConfigError::BudgetTooSmall`], with what would be enough.
    ///
    /// # Panics
    /// When `page_bytes_min` is not a power of two from 512 to 1 GiB.
    pub fn geometry(&self) -> Result<Geometry, ConfigError> {
        let min = self.page_bytes_min;
        assert!(
            min.is_power_of_two() && (512..=PAGE_BYTES_MAX).contains(&min),
            "a smallest page of {min} bytes"
        );
        let part = (self.budget_bytes / PAGES_WANTED).max(1);
        let page_bytes = (1 << part.ilog2()).clamp(min, PAGE_BYTES_MAX);
        let pages = self.budget_bytes / page_bytes;
        if pages < PAGES_MIN {
            let (budget_bytes, needed_bytes) = (self.budget_bytes, PAGES_MIN * min);
            return Err(ConfigError::BudgetTooSmall { budget_bytes, needed_bytes });
        }
        Ok(Geometry { page_bytes, pages })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_the_budget() {
        let geometry = |budget| Config::new(budget).geometry().unwrap();
        let mib = 1 << 20;
        assert_eq!(geometry(mib / 2), Geometry { page_bytes: mib / 4, pages: 2 });
        assert_eq!(geometry(31 * mib), Geometry { page_bytes: mib / 4, pages: 124 });
        assert_eq!(geometry(32 * mib), Geometry { page_bytes: mib / 2, pages: 64 });
        assert_eq!(geometry(1000 * mib), Geometry { page_bytes: 8 * mib, pages: 125 });
        assert_eq!(geometry(200 << 30), Geometry { page_bytes: 1 << 30, pages: 200 });
        let error = Config::new(mib / 2 - 1).geometry().unwrap_err();
        assert!(error.to_string().contains("524288"), "{error}");
        assert!(Config::new(0).geometry().is_err());
        let small = Config { page_bytes_min: 512, ..Config::new(20_000) };
        assert_eq!(small.geometry().unwrap(), Geometry { page_bytes: 512, pages: 39 });
    }
}
