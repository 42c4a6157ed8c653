//! Closes a reel.

use super::ReelWriter;
use crate::{
    Manifest, Result,
    format::manifest::{ROW_CLASSES, State},
};

impl ReelWriter {
    /// Closes every segment and writes the final manifest, with `segments`, `cost.reel_bytes` and `state` filled in. If
    /// a segment cannot be written (disk full), now or earlier, the state is `truncated`, and the segments written
    /// before form a valid reel. In that state, the ledger's `written` is what is on disk, and the rest of `seen` is
    /// lost.
    ///
    /// # Errors
    /// If a segment or the manifest cannot be written.
    pub fn close(mut self, mut manifest: Manifest) -> Result<Manifest> {
        let flushed = self.flush_all_tasks();
        manifest.segments = self.segments();
        let lost = self.lost();
        if !lost.is_empty() || flushed.is_err() || manifest.state == State::Truncated {
            self.settle_ledger(&mut manifest);
        }
        // The ledger already contains the other ones.
        let untold = lost.iter().filter(|(table, _)| !ROW_CLASSES.contains(&table.as_str()));
        manifest.warnings.extend(untold.map(|(table, rows)| format!("{rows} rows of {table} could not be written")));
        self.reserve.release();
        manifest.cost.reel_bytes = manifest.segments.values().flatten().map(|s| s.bytes).sum();
        if manifest.state == State::Recording {
            manifest.state = if lost.is_empty() && flushed.is_ok() { State::Complete } else { State::Truncated };
        }
        self.write_manifest(&manifest)?;
        flushed.map(|()| self.with_kept(&manifest))
    }

    /// Corrects the ledger of a reel that ends early to what is on disk, because its maker stopped counting at the
    /// failure.
    fn settle_ledger(&mut self, manifest: &mut Manifest) {
        each_table!(self, t => {
            if ROW_CLASSES.contains(&t.name())
                && let Some(ledger) = manifest.ledger.get_mut(t.name())
            {
                ledger.written = t.events_written;
            }
        });
        for ledger in manifest.ledger.values_mut() {
            ledger.seen = ledger.seen.max(ledger.written + ledger.filtered);
            ledger.lost = ledger.seen - ledger.written - ledger.filtered;
        }
    }
}
