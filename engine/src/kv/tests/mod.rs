//! The whole store: beside a plain map, under readers on other threads, at its limits.

mod bed;
mod limits;
mod twin;
