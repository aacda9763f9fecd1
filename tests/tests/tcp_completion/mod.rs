//! The binary protocol as in `tests/tcp`, test by test, over completion loops: clients cannot tell which it is.
#![allow(clippy::duplicate_mod, reason = "the same tests, with other loops")]

#[path = "../tcp/common.rs"]
mod common;
#[path = "../tcp/crowd.rs"]
mod crowd;
#[path = "../tcp/fair.rs"]
mod fair;
#[path = "../tcp/framing.rs"]
mod framing;
#[path = "../tcp/golden.rs"]
mod golden;
#[path = "../tcp/keys.rs"]
mod keys;
#[path = "../tcp/order.rs"]
mod order;
#[path = "../tcp/queries.rs"]
mod queries;
#[path = "../tcp/records.rs"]
mod records;
#[path = "../tcp/stages.rs"]
mod stages;
#[path = "../tcp/stop.rs"]
mod stop;
#[path = "../tcp/twin.rs"]
mod twin;

use common::{guarded_server, hex, server};

const LOOPS: &str = "-epoll=false";
