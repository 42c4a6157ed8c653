//! Individual events of a window as JSON: `ioreel.window/1`, described in `docs/json.md`.

use ioreel_analyze::events::{calls::each_call, requests::SECTOR_BYTES};
use ioreel_traces::{Reel, manifest::dev_name};
use serde_json::{Value, json};

use crate::{
    Result,
    report::{Excerpt, Sample, each_request, narrowed},
};

/// Default number of events of each kind.
pub(super) const DEFAULT_LIMIT: usize = 1000;
/// Maximum number, which bounds the memory of an answer.
pub(super) const MOST_LIMIT: usize = 100_000;

/// Parameters of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// The time window.
    pub(super) excerpt: Excerpt,
    /// Only requests of this device, without operations.
    pub(super) dev: Option<i64>,
    /// Only events that overlap with these bytes of the device or file.
    pub(super) bytes: (i64, i64),
    /// Maximum number of events of each kind.
    pub(super) limit: Option<usize>,
}

/// All events in the window, or the slowest if they exceed the limit. Ordered by start.
pub(super) fn list(reel: &Reel, asked: &Asked) -> Result<Value> {
    let window = asked.excerpt.window;
    let limit = asked.limit.unwrap_or(DEFAULT_LIMIT).min(MOST_LIMIT);
    let reel = narrowed(reel, window, asked.excerpt.longest_ns);
    let within = |from: i64, len: i64| from < asked.bytes.1 && from.saturating_add(len.max(1)) > asked.bytes.0;
    let everywhere = asked.bytes == (0, i64::MAX);
    let mut requests = Sample::new(limit, limit);
    each_request(&reel, |r| {
        let there = everywhere || (r.sector >= 0 && within(r.sector.saturating_mul(SECTOR_BYTES), r.len_bytes));
        if window.meets(r.issue_ns, r.last_ns()) && asked.dev.is_none_or(|d| d == r.dev) && there {
            requests.push(r.last_ns().saturating_sub(r.issue_ns), *r);
        }
    })?;
    let mut operations = Sample::new(limit, limit);
    if asked.dev.is_none() {
        each_call(&reel, |c| {
            let there =
                everywhere || c.offset_bytes.is_some_and(|o| within(o, i64::try_from(c.bytes()).unwrap_or(i64::MAX)));
            if !c.by_tool && there && window.meets(c.start_ns, c.end_ns()) {
                let row = json!({
                    "start_ns": c.start_ns, "dur_ns": c.dur_ns, "op": &**c.op, "task_id": c.task_id, "file": c.file,
                    "offset_bytes": c.offset_bytes, "ret": c.ret,
                });
                operations.push(c.dur_ns.unwrap_or(0), row);
            }
        })?;
    }
    let (requests, operations) = (requests.finish(), operations.finish());
    let (request_total, call_total) = (requests.total, operations.total);
    let requests: Vec<Value> = requests
        .slowest(limit)
        .into_iter()
        .map(|r| {
            json!({
                "queue_ns": r.queue_ns, "issue_ns": r.issue_ns, "complete_ns": r.complete_ns, "dev": dev_name(r.dev),
                "sector": r.sector, "len_bytes": r.len_bytes, "op": r.class.name(), "error": r.error,
            })
        })
        .collect();
    let operations = operations.slowest(limit);
    Ok(json!({
        "schema": "ioreel.window/1", "from_ns": window.from_ns, "to_ns": window.to_ns,
        "dev": asked.dev.map(dev_name), "from_bytes": asked.bytes.0, "to_bytes": asked.bytes.1, "limit": limit,
        "requests_total": request_total, "requests_capped": request_total > requests.len() as u64, "requests": requests,
        "operations_total": call_total, "operations_capped": call_total > operations.len() as u64, "operations": operations,
    }))
}
