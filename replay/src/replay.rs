//! A replay from reel to report.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
};

use ioreel_traces::{
    Reel,
    disk::DiskActivity,
    manifest::{Clock, Mount, Replay as Made, Span, State},
};
use serde::Serialize;

use crate::{
    ReplayError,
    buffers::Source,
    contain::{self, Privilege},
    engine::Outcome,
    input::Input,
    order::OrderMode,
    output::{self, Making},
    pace::Pace,
    plan::Plan,
    planner::{PlanOptions, plan},
    prepare::{self, Preparation},
    target::{Target, drop_caches},
    verdict::{Difference, Lateness, differences, lateness},
    watch::Watch,
    world::{World, monotonic_ns},
};

/// Paced replays begin this long after the epoch is set, so that the first operation is not late.
const LEAD_NS: i64 = 20_000_000;
/// Part of the needed room that is kept free beside it: a file system's own structures.
const ROOM_MARGIN: i64 = 32;

/// What to replay, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// The reel.
    pub reel: PathBuf,
    /// The directory.
    pub target: PathBuf,
    /// How time passes.
    pub pace: Pace,
    /// What is kept in order.
    pub order: OrderMode,
    /// Where the result goes, if anywhere.
    pub result: Option<PathBuf>,
    /// Replay over what is in the target.
    pub force: bool,
    /// Limits of what is prepared and replayed.
    pub roots: Vec<PathBuf>,
    /// Begin with an empty page cache.
    pub cold: bool,
    /// Spun away before each deadline.
    pub spin_ns: i64,
}

/// What is about to be done.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Operations to issue.
    pub operations: i64,
    /// Threads that issue them.
    pub threads: i64,
    /// Operations that cannot be, by reason.
    pub skipped: BTreeMap<String, i64>,
    /// Files, directories and links to make first.
    pub prepare_items: i64,
    /// Of these, regular files.
    pub prepare_files: i64,
    /// Their room.
    pub prepare_bytes: i64,
    /// Room the workload takes beyond, at its peak.
    pub growth_bytes: i64,
    /// Room there is.
    pub free_bytes: i64,
    /// The target's file system.
    pub fstype: String,
}

/// How it went.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was planned.
    pub summary: Summary,
    /// Operations issued.
    pub done: i64,
    /// Results that differ.
    pub differing: i64,
    /// The same by kind.
    pub differences: Vec<Difference>,
    /// From the start to the end of the last operation.
    pub elapsed_ns: i64,
    /// The same in the original.
    pub original_elapsed_ns: i64,
    /// From the start to the end of syncfs of the target.
    pub synced_ns: i64,
    /// From the start until the original's file systems were synced and quiet.
    pub original_synced_ns: i64,
    /// Timing.
    pub lateness: Lateness,
    /// What else there is to say.
    pub warnings: Vec<String>,
}

/// What to tell while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// So many of so many things are made.
    Preparing(usize, usize),
    /// Operations are being issued.
    Running,
    /// The file system writes out.
    Settling,
}

/// A replay, planned and checked, not begun.
#[derive(Debug)]
pub struct Replay {
    config: Config,
    reel: Reel,
    plan: Plan,
    preparation: Preparation,
    target: Target,
    privilege: Privilege,
    /// What is about to be done.
    pub summary: Summary,
}

impl Replay {
    /// Reads the reel, plans, and checks the target. Must be called while the process has one thread.
    pub fn plan(config: Config) -> Result<Self, ReplayError> {
        let reel = Reel::open(&config.reel)?;
        if reel.manifest.state == State::Recording {
            return Err(ReplayError::Unfinished { path: config.reel });
        }
        let target = Target::open(&config.target, config.force)?;
        let privilege = contain::acquire()?;
        let roots = config.roots.iter().map(|r| normal(r)).collect();
        let options = PlanOptions { order: config.order, roots, privileged: privilege.root };
        let plan = plan(Input::read(&reel)?, options);
        let preparation = Preparation::of(&plan, privilege.root);
        let summary = Summary {
            operations: plan.calls,
            threads: plan.tasks.iter().filter(|t| !t.program.is_empty()).count() as i64,
            skipped: plan.skipped_by_label(),
            prepare_items: preparation.items.len() as i64,
            prepare_files: preparation.files().0,
            prepare_bytes: preparation.bytes,
            growth_bytes: plan.sizes.peak_bytes,
            free_bytes: target.free_bytes,
            fstype: target.mount.fstype.clone(),
        };
        let bytes = summary.prepare_bytes.saturating_add(summary.growth_bytes);
        let needed_bytes = bytes.saturating_add(bytes / ROOM_MARGIN);
        if needed_bytes > target.free_bytes {
            return Err(ReplayError::NoRoom {
                path: config.target,
                needed_bytes,
                prepare_bytes: summary.prepare_bytes,
                growth_bytes: summary.growth_bytes,
                free_bytes: target.free_bytes,
            });
        }
        Ok(Self { config, reel, plan, preparation, target, privilege, summary })
    }

    /// The target's mount.
    pub fn mount(&self) -> &Mount {
        &self.target.mount
    }

    /// Prepares the target, replays, settles, and writes the result.
    pub fn run(self, mut watch: impl Watch, mut tell: impl FnMut(Phase)) -> Result<Report, ReplayError> {
        let Self { config, reel, plan, preparation, target, privilege, summary } = self;
        let writer = config.result.as_deref().map(output::create).transpose()?;
        contain::lift_limits();
        let longest = plan.recs.iter().filter(|r| r.call.writes()).map(|r| r.len_bytes.max(0)).max().unwrap_or(0);
        let source = Source::new(1, longest as usize)?;
        let world = Arc::new(World::new(plan, source, config.pace, config.spin_ns, privilege));
        let (told, phases) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let (items, directory, inner) = (preparation.items, target.path.clone(), world.clone());
        let paced = config.pace != Pace::Max;
        let launcher = thread::Builder::new()
            .name("launcher".into())
            .spawn(move || {
                launch(&inner, &directory, &items, &told, &may_go, if paced { LEAD_NS } else { 0 }, privilege)
            })
            .map_err(|source| ReplayError::Io { doing: "starting a thread", source })?;
        let mut warnings = Vec::new();
        if reel.manifest.lost() > 0 {
            let lost = reel.manifest.lost();
            warnings.push(format!("{lost} events were lost while recording: results that depended on them differ"));
        }
        for phase in phases {
            tell(phase);
            if phase == Phase::Running {
                // What was prepared must not be written out while the replay is measured.
                target.sync();
                watch.begin();
                if config.cold
                    && let Err(e) = drop_caches()
                {
                    warnings.push(format!("the page cache could not be emptied: {e}; --cold needs root"));
                }
                // Fails only when the launcher is gone, which its result tells.
                let _ = go.send(());
            }
        }
        let failed = || ReplayError::Io { doing: "replaying", source: std::io::Error::other("a thread panicked") };
        warnings.extend(launcher.join().map_err(|_| failed())??);
        tell(Phase::Settling);
        let sync_start_ns = monotonic_ns() - world.epoch_ns();
        let sync_ret = target.sync();
        let sync_end_ns = monotonic_ns() - world.epoch_ns();
        let seen = watch.end(world.epoch_ns()).unwrap_or_else(|why| {
            warnings.push(why);
            DiskActivity::default()
        });
        warnings.extend(world.take_warnings());
        let mut outcomes = world.take_outcomes();
        let lateness = lateness(&world.plan, config.pace, &mut outcomes);
        let report = judge(&world.plan, &reel, &outcomes, lateness, summary, sync_end_ns, warnings);
        if let Some(writer) = writer {
            let making = making(&config, &report, &world, &target, (sync_start_ns, sync_ret), seen);
            output::write(writer, &reel, &world.plan, &outcomes, making)?;
        }
        Ok(report)
    }
}

/// Runs in a thread of its own, which enters the target and never leaves it.
fn launch(
    world: &Arc<World>,
    target: &Path,
    items: &[prepare::Item],
    told: &mpsc::Sender<Phase>,
    may_go: &mpsc::Receiver<()>,
    lead_ns: i64,
    privilege: Privilege,
) -> Result<Vec<String>, ReplayError> {
    contain::enter(target)?;
    let mut warnings = prepare::make(items, |done| {
        // A listener that is gone needs no telling.
        let _ = told.send(Phase::Preparing(done, items.len()));
    })?;
    warnings.extend(contain::let_users_in(&world.plan, privilege));
    let _ = told.send(Phase::Running);
    let _ = may_go.recv();
    // Recorded descriptors must never reach one of ioreel's own: this thread's table is a copy, emptied here,
    // and all others descend from it.
    contain::close_all();
    world.run(lead_ns);
    Ok(warnings)
}

fn judge(
    plan: &Plan,
    reel: &Reel,
    outcomes: &[Outcome],
    lateness: Lateness,
    summary: Summary,
    sync_end_ns: i64,
    warnings: Vec<String>,
) -> Report {
    let span = &reel.manifest.span;
    let (differing, differences) = differences(plan, outcomes);
    Report {
        done: outcomes.len() as i64,
        differing,
        differences,
        elapsed_ns: outcomes.iter().map(|o| o.end_ns).max().unwrap_or(0),
        original_elapsed_ns: plan.last_end_ns,
        synced_ns: sync_end_ns,
        original_synced_ns: span.elapsed_ns.max(plan.last_end_ns).saturating_add(span.settle_ns),
        lateness,
        warnings,
        summary,
    }
}

fn making(
    config: &Config,
    report: &Report,
    world: &World,
    target: &Target,
    (sync_start_ns, sync_ret): (i64, i64),
    seen: DiskActivity,
) -> Making {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let since = monotonic_ns() - world.epoch_ns();
    Making {
        replay: Made {
            original: config.reel.display().to_string(),
            pace: config.pace.name().into(),
            order: match config.order {
                OrderMode::Resource => "resource".into(),
                OrderMode::Thread => "thread".into(),
            },
            target: config.target.display().to_string(),
            fstype: target.mount.fstype.clone(),
            original_elapsed_ns: report.original_elapsed_ns,
            done: report.done,
            differing: report.differing,
            skipped: report.summary.skipped.clone(),
        },
        clock: Clock { monotonic_ns: world.epoch_ns(), realtime_ns: now.tv_sec * 1_000_000_000 + now.tv_nsec - since },
        span: Span { elapsed_ns: report.elapsed_ns, settle_ns: report.synced_ns - report.elapsed_ns },
        mount: target.mount.clone(),
        warnings: report.warnings.clone(),
        sync_start_ns,
        sync_ret,
        seen,
    }
}

/// An absolute path without dots and doubled slashes, as bytes.
fn normal(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let mut out = Vec::new();
    for part in path.components() {
        match part {
            std::path::Component::Normal(name) => {
                out.push(b'/');
                out.extend_from_slice(name.as_bytes());
            }
            std::path::Component::ParentDir => {
                out.truncate(out.iter().rposition(|b| *b == b'/').unwrap_or(0));
            }
            _ => {}
        }
    }
    if out.is_empty() { b"/".to_vec() } else { out }
}
