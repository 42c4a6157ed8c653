//! The result reel: the original's bios with the times and places of the replay.

use std::{
    path::Path,
    sync::mpsc::{SyncSender, sync_channel},
    thread::JoinHandle,
};

use ioreel_traces::{
    Manifest, Reel, ReelError, ReelWriter, WriterOptions,
    host::host,
    manifest::{Clock, Device as Described, Kind, Ledger, Replay, Span},
    rows::{self, Bio},
};

use super::{Config, Report, bios::SECTOR_BYTES, device::Device, fit::Place};
use crate::{ReplayError, base::clock::monotonic_ns};

/// Rows waiting for the writer, at most.
const WAITING: usize = 1 << 16;

/// Writes rows in a thread of its own while bios are issued, since their number is not bounded.
pub(super) struct Result {
    rows: SyncSender<Bio>,
    writer: JoinHandle<std::result::Result<ReelWriter, ReelError>>,
}

impl Result {
    /// Creates the reel. Fails if it exists, before anything is issued.
    pub(super) fn create(path: &Path) -> std::result::Result<Self, ReplayError> {
        let mut writer = ReelWriter::create(path, &Manifest::new(Kind::Replay, "replay"), WriterOptions::default())?;
        let (rows, receiver) = sync_channel::<Bio>(WAITING);
        let writer = std::thread::spawn(move || {
            receiver.iter().try_for_each(|row| writer.bio.push(row))?;
            Ok(writer)
        });
        Ok(Self { rows, writer })
    }

    /// Writes the outcome of a bio. `times`: issue and end, ns of the replay.
    pub(super) fn push(&self, row: &Bio, place: Option<Place>, times: (i64, i64), res: i32) {
        let error = (-res).max(0);
        let row = Bio {
            queue_ns: times.0,
            complete_ns: Some(times.1),
            sector: place.map_or(row.sector, |p| p.offset / SECTOR_BYTES),
            len_bytes: place.map_or(row.len_bytes, |p| p.len),
            error: Some(error),
            rq_id: None,
            cause: None,
            orig_dev: None,
            orig_sector: None,
            ..row.clone()
        };
        // If the writer failed, `close` returns its error.
        let _ = self.rows.send(row);
    }

    pub(super) fn close(
        self,
        original: &Reel,
        config: &Config,
        device: &Device,
        report: &Report,
        dev: i64,
    ) -> std::result::Result<(), ReplayError> {
        drop(self.rows);
        let gone = |_| ReplayError::Io { doing: "writing the result", source: std::io::ErrorKind::Other.into() };
        let mut writer = self.writer.join().map_err(gone)??;
        for task in original.rows::<rows::Task>() {
            writer.tasks.push(task?)?;
        }
        for file in original.rows::<rows::File>() {
            writer.files.push(file?)?;
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let since_ns = monotonic_ns() - report.epoch_ns;
        let name = config.device.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let mut manifest = Manifest::new(Kind::Replay, "replay");
        manifest.host = host();
        manifest.command = original.manifest.command.clone();
        manifest.clock =
            Clock { monotonic_ns: report.epoch_ns, realtime_ns: now.tv_sec * 1_000_000_000 + now.tv_nsec - since_ns };
        manifest.span = Span { elapsed_ns: report.elapsed_ns, ..Span::default() };
        manifest.devices = vec![Described {
            dev,
            name,
            size_bytes: device.size_bytes,
            logical_block_bytes: device.block_bytes,
            ..Described::default()
        }];
        let done = report.done;
        manifest.ledger.insert("bio".into(), Ledger { seen: done, written: done, lost: 0, filtered: 0 });
        manifest.warnings = report.warnings.clone();
        manifest.replay = Some(Replay {
            original: config.reel.display().to_string(),
            pace: report.pace.clone(),
            order: report.order.into(),
            target: config.device.display().to_string(),
            fstype: "block layer".into(),
            original_elapsed_ns: report.original_elapsed_ns,
            done,
            differing: report.wrong,
            faithful: Some(report.faithful),
            verdict: report.sentence.clone(),
            from_ns: None,
            to_ns: None,
            skipped: report.summary.survey.skipped.iter().map(|(why, n)| ((*why).to_owned(), *n)).collect(),
        });
        writer.close(manifest)?;
        Ok(())
    }
}
