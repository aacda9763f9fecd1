//! Tests of the whole collection against an exact naive twin.
mod bed;
mod cell_codes;
mod cells;
mod checks;
mod churn;
mod dear;
mod device;
mod filtered;
mod follow;
mod given_up;
mod images;
mod keys;
mod lanes;
mod many;
mod named;
mod persistent;
mod phrases;
mod readers;
mod tuning;
mod walk;

/// Long forms of the tests run with `NIGH_TEST_LONG=1`.
fn rounds(short: usize, long: usize) -> usize {
    if std::env::var("NIGH_TEST_LONG").is_ok_and(|value| value == "1") { long } else { short }
}
