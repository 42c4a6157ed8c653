//! Every event is accounted for: seen = written + lost + filtered.

use super::{Check, findings::Findings, tables::Sums};
use crate::{
    Manifest,
    format::manifest::{FILE_NAME, Kind, ROW_CLASSES, State},
};

/// Checks the ledger for consistency and against the rows found.
pub(super) fn check(manifest: &Manifest, sums: &Sums, found: &mut Findings) {
    for (class, l) in &manifest.ledger {
        let mut bad = |what: String| found.add(Check::Ledger, FILE_NAME, "ledger", None, || what);
        if [l.seen, l.written, l.lost, l.filtered].iter().any(|n| *n < 0) {
            bad(format!("ledger of {class}: a count is negative"));
        }
        let told = l.written.saturating_add(l.lost).saturating_add(l.filtered);
        if l.seen != told {
            bad(format!(
                "ledger of {class} does not balance: {} seen, but {} written + {} lost + {} filtered = {told}",
                l.seen, l.written, l.lost, l.filtered
            ));
        }
        let rows = sums.event_rows(class);
        if ROW_CLASSES.contains(&class.as_str()) && l.written != rows {
            bad(format!("ledger of {class}: {} written, but the table has {rows} rows of events", l.written));
        }
    }
    if manifest.kind == Kind::Recording && manifest.state == State::Complete {
        for class in ROW_CLASSES.iter().filter(|c| !manifest.ledger.contains_key(**c)) {
            let rows = sums.event_rows(class);
            if rows > 0 {
                found.add(Check::Ledger, FILE_NAME, "ledger", None, || {
                    format!("no ledger for {class}, of which there are {rows} rows")
                });
            }
        }
    }
    let located = manifest.losses.iter().map(|l| l.events).fold(0, i64::saturating_add);
    let lost = manifest.lost();
    if located > lost {
        found.add(Check::Ledger, FILE_NAME, "losses", None, || {
            format!("losses contain {located} events, but the ledger counts only {lost} lost")
        });
    }
    if lost > 0 {
        found.note(format!("{lost} events were lost while recording; `ioreel info` shows which and when"));
    }
    for loss in manifest.losses.iter().filter(|l| l.to_ns < l.from_ns || l.events < 0) {
        found.add(Check::Times, FILE_NAME, "losses", None, || {
            format!("impossible loss: {} events from {} to {} ns", loss.events, loss.from_ns, loss.to_ns)
        });
    }
    if manifest.ledger.values().any(|l| l.filtered > 0) && manifest.left_out.is_empty() {
        found.add(Check::Ledger, FILE_NAME, "left_out", None, || {
            "events were filtered, but left_out does not say why".into()
        });
    }
}
