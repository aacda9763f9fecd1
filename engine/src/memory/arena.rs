//! Address-space arenas.
/// Why an arena could not be made or grown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// The kernel refused the reservation.
    #[error("reserving {bytes} bytes of address space failed: {source}")]
    Reserve {
        /// Bytes asked for.
        bytes: usize,
        /// The kernel's answer.
        source: std::io::Error,
    },
}
/// `capacity` rows of `row_len` values of `T`, zeroed, reserved in one piece (anonymous, no swap reserve), committed
/// by first touch. Rows start 64-byte aligned when `row_len * size_of::<T>()` is a multiple of 64. `T` must be valid as all-zero bytes
/// (sealed trait `Zeroable`: u8, i8, u16, u32, u64, f32, AtomicU8/16/32/64, AtomicPtr).
pub struct Arena<T> {
    _t: std::marker::PhantomData<T>,
}
impl<T> Arena<T> {
    /// Reserves the arena. Huge pages are advised when the reservation is at least 2 MiB.
    pub fn reserve(capacity: usize, row_len: usize) -> Result<Self, ArenaError> {
        let _ = (capacity, row_len);
        todo!()
    }
    /// Rows reserved.
    pub fn capacity(&self) -> usize {
        todo!()
    }
    /// Values per row.
    pub fn row_len(&self) -> usize {
        todo!()
    }
    /// Row `slot`, shared. Panics when out of range (debug and release).
    /// # Safety
    /// No thread may be writing the row through [`Self::row_mut_unchecked`] meanwhile.
    pub unsafe fn row(&self, slot: usize) -> &[T] {
        let _ = slot;
        todo!()
    }
    /// Pointer to row `slot` (for kernels and prefetch); no bounds check in release.
    pub fn row_ptr(&self, slot: usize) -> *const T {
        let _ = slot;
        todo!()
    }
    /// Exclusive access to a row no reader may see (fresh or reclaimed slot).
    /// # Safety
    /// The caller is the only writer and no reader can reach `slot`.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn row_mut_unchecked(&self, slot: usize) -> &mut [T] {
        let _ = slot;
        todo!()
    }
    /// Tells the kernel that rows `from..to` are no longer needed (whole pages only); they read as zero again.
    pub fn release(&self, from: usize, to: usize) {
        let _ = (from, to);
    }
}
