//! Fuzz targets, one per decoder; what a target checks is in `tests/src/decoders`.

#[doc(hidden)]
pub use libfuzzer_sys::fuzz_target;
#[doc(hidden)]
pub use nigh_tests::decoders::named;

/// Makes this file the fuzz target of the decoder with this name.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        $crate::fuzz_target!(|data: &[u8]| {
            static DECODER: std::sync::LazyLock<fn(&[u8])> = std::sync::LazyLock::new(|| $crate::named($name).run);
            DECODER(data)
        });
    };
}
