//! Block replay: issues the bios that a file system gave to a device again, with io_uring, on a block device or a file.
//!
//! * [`bios`] reads the bios in the order in which they were queued, from table `bio` or, without one, from the
//!   requests;
//! * [`fit`] maps their addresses to a device of another size;
//! * [`order`] says which earlier bios each one waits for;
//! * [`device`] opens the device and refuses one that is in use;
//! * [`run`] is the loop that issues bios, [`ring`] its io_uring;
//! * [`report`] compares the replay with the original.
//!
//! `docs/replay.md` describes the options and figures.

mod bios;
mod device;
mod fit;
mod order;
mod report;
mod result;
mod ring;
mod run;

use std::path::PathBuf;

use ioreel_traces::{
    Reel,
    manifest::{Kind, State},
};
use serde::Serialize;

use self::{bios::Bios, device::Device, fit::Fitting};
pub use self::{
    bios::{Kind as IoKind, Survey},
    fit::Fit,
    order::Edge,
    report::{Difference, Report},
};
use crate::{
    ReplayError,
    plan::edge::OrderMode,
    prepare::inside_reel::refuse_inside_reel,
    run::pace::{CatchUp, Clockwork, Pace},
    verdict::judgement::Limits,
};

/// What to replay, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// The reel.
    pub reel: PathBuf,
    /// Block device or regular file to replay on.
    pub device: PathBuf,
    /// Recorded device whose bios are replayed, by name or number. Default: the device with the most bytes read and
    /// written.
    pub source: Option<String>,
    /// Also issue writes, discards and flushes.
    pub allow_writes: bool,
    /// How addresses are mapped to the device.
    pub fit: Fit,
    /// Pace and catch-up policy.
    pub clockwork: Clockwork,
    /// Which order between bios is enforced.
    pub order: OrderMode,
    /// Path of the result reel, if one is written.
    pub result: Option<PathBuf>,
    /// How long to busy-wait before each deadline.
    pub spin_ns: i64,
    /// Limits above which the replay is not faithful.
    pub limits: Limits,
    /// Issue nothing, to measure the replayer itself.
    pub dry_run: bool,
}

/// What a replay is going to do.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Name of the recorded device.
    pub source: String,
    /// Its size, or the end of its highest bio if that is unknown or smaller.
    pub source_bytes: i64,
    /// Path of the device to replay on.
    pub device: String,
    /// Its size.
    pub device_bytes: i64,
    /// Its logical block size.
    pub device_block_bytes: i64,
    /// Which table is replayed: `bio` or `block`.
    pub table: &'static str,
    #[serde(flatten)]
    /// What is going to be issued.
    pub survey: Survey,
}

/// A replay that is ready to start.
#[derive(Debug)]
pub struct BlockReplay {
    config: Config,
    reel: Reel,
    dev: i64,
    device: Device,
    fitting: Fitting,
    /// What it is going to do.
    pub summary: Summary,
}

impl BlockReplay {
    /// Reads the reel once and opens the device. Nothing is issued yet.
    ///
    /// # Errors
    /// If the reel has nothing to replay, the device or the result path cannot be used, or recorded addresses do not
    /// fit.
    pub fn plan(config: Config) -> Result<Self, ReplayError> {
        let reel = Reel::open(&config.reel)?;
        if reel.manifest.state == State::Recording {
            return Err(ReplayError::Unfinished { path: config.reel.clone() });
        }
        refuse_inside_reel(&config.reel, "--device", &config.device)?;
        config.result.iter().try_for_each(|result| refuse_inside_reel(&config.reel, "-o", result))?;
        let for_threads = match config.clockwork {
            Clockwork { catch_up: CatchUp::None, pace } if pace.has_schedule() => Some("--catch-up none"),
            Clockwork { pace: Pace::Think, .. } => Some("--pace think"),
            _ => None,
        };
        if let Some(option) = for_threads {
            let why = format!("{option} has no effect with --layer block, where all bios share one schedule; omit it");
            return Err(ReplayError::Block { path: config.reel, why });
        }
        let (table, dev, mut survey) = bios::survey(&reel, config.source.as_deref(), config.allow_writes)?;
        let known = reel.manifest.device(dev);
        let source_bytes = known.map_or(0, |d| d.size_bytes).max(survey.reach_bytes);
        let device = Device::open(&config.device, config.allow_writes, survey.writes > 0)?;
        let name = known.map(|d| d.name.clone()).filter(|n| !n.is_empty());
        let source = name.unwrap_or_else(|| ioreel_traces::manifest::dev_name(dev));
        let fitting = Fitting::new(config.fit, &source, source_bytes, survey.reach_bytes, &device, &config.device)?;
        survey.longest_bytes = survey.longest_bytes.saturating_add(2 * device.block_bytes);
        let summary = Summary {
            source,
            source_bytes,
            device: config.device.display().to_string(),
            device_bytes: device.size_bytes,
            device_block_bytes: device.block_bytes,
            table: table.name(),
            survey,
        };
        Ok(Self { config, reel, dev, device, fitting, summary })
    }

    /// Runs the replay.
    ///
    /// # Errors
    /// If io_uring is not available, or the reel cannot be read to its end.
    pub fn run(self) -> Result<Report, ReplayError> {
        let writer = match &self.config.result {
            Some(path) if !self.config.dry_run => Some(result::Result::create(path)?),
            _ => None,
        };
        let bios = Bios::new(&self.reel, self.dev, self.config.allow_writes)?;
        let outcome = run::run(
            bios,
            run::Manner {
                device: &self.device,
                fitting: &self.fitting,
                clockwork: self.config.clockwork,
                order: self.config.order,
                spin_ns: self.config.spin_ns,
                longest_bytes: self.summary.survey.longest_bytes,
                dry_run: self.config.dry_run,
                span_ns: (self.summary.survey.first_ns, self.summary.survey.last_ns),
            },
            writer.as_ref(),
        )?;
        let lost = self.reel.manifest.ledger.get(self.summary.table).map_or(0, |l| l.lost);
        let made_up = matches!(self.reel.manifest.kind, Kind::Import | Kind::Synthetic);
        let direct = self.device.direct;
        let report = Report::new(self.summary, &self.config, outcome, if made_up { 0 } else { lost }, direct);
        if let Some(writer) = writer {
            writer.close(&self.reel, &self.config, &self.device, &report, self.dev)?;
        }
        Ok(report)
    }
}
