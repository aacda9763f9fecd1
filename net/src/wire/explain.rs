//! What a search says of how it was carried out: one JSON object over every transport.

use nigh_engine::query::LaneReport;
use nigh_shard::core::Explained;
use serde_json::{Value, json};

/// The report of a search, whose times are in microseconds and whose estimates are in nanoseconds.
pub fn explanation(explained: &Explained) -> Value {
    let stages = json!({"waiting": explained.waited_us, "combining": explained.combined_us,
        "copying": explained.copied_us});
    let lanes: Vec<_> = explained.lanes.iter().map(lane).collect();
    json!({"microseconds": explained.us, "stages": stages, "lanes": lanes})
}

fn lane(lane: &LaneReport) -> Value {
    let mut report = json!({"lane": lane.lane, "pool": lane.pool, "hits": lane.hits,
        "microseconds": lane.ns / 1000});
    if let Some(near) = &lane.near {
        let estimate = &near.estimate;
        report["plan"] = near.path.name().into();
        report["exact"] = near.exact.into();
        // A plan that is impossible has an infinite cost, which is `null` in JSON.
        report["estimate"] = json!({"plan": estimate.path.name(), "at_most": estimate.at_most,
            "expected": estimate.expected, "points_ns": estimate.points_ns,
            "walk_ns": estimate.walk_ns, "everything_ns": estimate.everything_ns});
        report["distances"] = near.distances.into();
        report["rejects"] = near.rejects.into();
    }
    if let Some(lists) = &lane.lists {
        report["postings"] = lists.postings.into();
        report["scored"] = lists.scored.into();
    }
    report
}
