//! Accesses to mapped files, as rows of `ops`.

use std::collections::BTreeMap;

use ioreel_bpf::types::{fault_what, rec_fault};
use ioreel_traces::{Result, Text, rows::Op};

use crate::assemble::Assembler;

/// How precisely accesses to mapped files are seen, for the manifest.
pub(crate) fn resolution() -> BTreeMap<String, String> {
    [(
        "fault",
        "one page: the first touch of each page or group of cached pages by a task, and the first store to a clean \
         folio in each write-back cycle; further loads and stores, and program code, are not seen. On tmpfs hardly \
         anything is seen",
    )]
    .map(|(source, text)| (source.to_owned(), text.to_owned()))
    .into()
}

/// Values for the columns of these rows.
#[derive(Debug)]
pub(crate) struct Words {
    source: Text,
    touch: Text,
    around: Text,
    dirty: Text,
}

impl Default for Words {
    fn default() -> Self {
        Self { source: "fault".into(), touch: "fault".into(), around: "map_pages".into(), dirty: "dirty".into() }
    }
}

impl Assembler {
    /// Makes the row of an access to a mapped file.
    pub(crate) fn fault(&mut self, rec: &rec_fault) -> Result<()> {
        let words = &self.faults;
        let op = match fault_what(rec.what) {
            fault_what::FAULT_TOUCH => words.touch.clone(),
            fault_what::FAULT_AROUND => words.around.clone(),
            fault_what::FAULT_DIRTY => words.dirty.clone(),
            _ => {
                self.counts.strange += 1;
                return Ok(());
            }
        };
        let source = words.source.clone();
        let file = self.file_met(rec.file, rec.sb_dev);
        if rec.what == fault_what::FAULT_DIRTY.0 {
            self.changed.file_systems.insert(file.sb_dev);
        }
        let (pid, tid) = self.thread(rec.task_id);
        let start_ns = self.since(rec.start_ns);
        let op = Op {
            op_id: -1,
            start_ns,
            dur_ns: rec.dur_ns as i64,
            cpu: i32::from(rec.hdr.cpu),
            task_id: i64::from(rec.task_id),
            pid,
            tid,
            op,
            source,
            state: self.complete.clone(),
            file: Some(file.id),
            offset_bytes: Some(rec.offset_bytes as i64),
            len_bytes: Some(i64::from(rec.len_bytes)),
            ret: Some(0),
            ..Op::default()
        };
        self.write(op, rec.other != 0, rec.io != 0).map(drop)
    }
}
