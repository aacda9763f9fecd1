//! The whole store: beside a plain map, under readers on other threads, at its limits.

mod bed;
mod capacity;
mod limits;
mod readers;
mod speed;
mod twin;
