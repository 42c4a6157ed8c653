//! `copy-up`: a whole file copied by an overlay because a part or its owner changed.

use super::{
    finding::{Confidence, Evidence, Part},
    support::{Draft, S},
};
use crate::facts::Facts;

const SQL: &str = "SELECT o.start_ns, o.dur_ns, o.path FROM 'ops/*.parquet' o JOIN 'files/*.parquet' f USING (file) WHERE o.op LIKE \
                   'open%' AND o.flags & 3 <> 0 AND f.real_file IS NOT NULL ORDER BY o.dur_ns DESC";

pub(super) fn detect(facts: &Facts) -> Option<Draft> {
    let copies = facts.calls.copy_ups;
    if copies.count == 0 {
        return None;
    }
    let share_s = copies.share_ns / S / facts.calls.copied_up.len().max(1) as f64;
    let files =
        facts.calls.copied_up.iter().map(|path| Part { name: path.clone(), count: 1, bytes: 0, share_s }).collect();
    Some(Draft {
        summary: format!(
            "{} opens for writing on an overlay take {:.1} ms on average: the file is copied up first",
            copies.count,
            copies.mean_ns() / 1e6
        ),
        cost_ns: copies.share_ns,
        time_ns: Some(copies.time_ns),
        confidence: Confidence::Medium,
        evidence: Evidence { files, ..Evidence::default() }
            .window(copies.first_ns, copies.last_ns)
            .figure("opens", copies.count as f64)
            .figure("the longest, ms", copies.max_ns as f64 / 1e6)
            .sql(SQL),
        remedy: "Keep files that change in a volume, not in the image; mount the overlay with metacopy=on if only owners and modes \
                 change; put both layers on a file system with reflinks."
            .into(),
        check: "Record again with the files in a volume: the opens take microseconds".into(),
    })
}
