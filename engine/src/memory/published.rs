//! One value swung whole: readers see the old or the new, never a mixture.
use super::{Domain, Pin};
/// A pointer to an immutable `T` that one owner replaces.
pub struct Published<T> {
    _t: std::marker::PhantomData<T>,
}
impl<T: Send + Sync> Published<T> {
    /// Publishes `value`.
    pub fn new(value: T) -> Self {
        let _ = value;
        todo!()
    }
    /// The current value, valid while pinned.
    pub fn load<'p>(&'p self, pin: &'p Pin<'_>) -> &'p T {
        let _ = pin;
        todo!()
    }
    /// Owner only: publishes `value`; the old one is to be kept in a [`super::Limbo`] until quiescent, then dropped.
    pub fn swap(&self, value: T) -> Box<T> {
        let _ = value;
        todo!()
    }
    /// Domain type mention (no cost).
    #[doc(hidden)]
    pub fn _domain(_: &Domain) {}
}
