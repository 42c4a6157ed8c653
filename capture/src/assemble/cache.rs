//! Page cache events become rows.

use ioreel_bpf::types::{cache_event, rec_cache};
use ioreel_traces::{Result, rows::Cache};

use crate::assemble::{Assembler, block};

/// Value of the column for the event.
fn word(event: u32) -> Option<&'static str> {
    Some(match cache_event(event) {
        cache_event::CACHE_FILL => "fill",
        cache_event::CACHE_READAHEAD => "readahead",
        cache_event::CACHE_DIRTY => "dirty",
        cache_event::CACHE_WRITEBACK => "writeback",
        cache_event::CACHE_EVICT => "evict",
        _ => return None,
    })
}

impl Assembler {
    /// Makes the row of a page cache event.
    pub(crate) fn cache(&mut self, rec: &rec_cache) -> Result<()> {
        let Some(event) = word(rec.event) else {
            self.counts.strange += 1;
            return Ok(());
        };
        self.task_met(rec.task_id, rec.hdr.end_ns);
        let file = self.file_met(rec.file, rec.sb_dev);
        self.counts.cache += 1;
        let time_ns = self.since(rec.hdr.end_ns).max(0);
        self.writer.cache.push(Cache {
            time_ns,
            cpu: i32::from(rec.hdr.cpu),
            task_id: (rec.task_id != 0).then_some(i64::from(rec.task_id)),
            comm: block::comm(&rec.comm),
            event: event.into(),
            file: file.id,
            offset_bytes: rec.offset_bytes as i64,
            len_bytes: rec.len_bytes as i64,
            sb_dev: i64::from(rec.sb_dev),
        })
    }
}
