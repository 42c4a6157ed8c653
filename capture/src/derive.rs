//! The tree before the workload.

use ioreel_traces::{Manifest, ReelWriter, Result};

use crate::snapshot::Snapshot;

/// Writes the `tree` table.
pub(crate) fn write_tree(writer: &mut ReelWriter, _manifest: &mut Manifest, snapshot: Snapshot) -> Result<()> {
    let mut rows: Vec<_> = snapshot.entries.into_values().collect();
    rows.sort_by(|a, b| a.path.cmp(&b.path));
    for (order, mut row) in rows.into_iter().enumerate() {
        row.order = order as i64;
        writer.tree.push(row)?;
    }
    Ok(())
}
