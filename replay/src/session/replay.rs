//! A replay from reel to report.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

use ioreel_traces::{
    Reel,
    confine::{Needs, replayer},
    disk::DiskActivity,
    manifest::{Clock, Mount, Replay as Made, Span, State},
};

use crate::{
    ReplayError,
    base::{
        clock::{self, monotonic_ns},
        paths::normal,
    },
    contents::{
        buffers::{Source, WINDOW_BYTES},
        data::Data,
        fill::Filler,
    },
    plan::{planner::PlanOptions, program::Plan},
    prepare::{
        containment::{self, Privilege},
        inside_reel::refuse_inside_reel,
        layout::{self, LayoutReport},
        mapped_targets::{TargetPaths, check_free_space, empty_cache, sync, target_paths},
        page_cache::{CacheStart, Warm, forget},
        path_map::{Map, open_maps},
        restore::Memory,
        target::Target,
        tree::{self, Preparation},
    },
    reel::slice::Slice,
    run::{
        control_group::ControlGroup,
        issue::permitted,
        memory_limit::MemoryLimit,
        pace::Pace,
        space::Space,
        threads::{Manner, World},
    },
    session::{
        apart::apart,
        config::{Config, Phase, Report, Summary},
        limits::{control_group, limit_memory, most_threads},
        report::{Ran, report},
        root_rounds::plan_within,
        watch::Watch,
    },
    verdict::{
        result_reel::{self, Making},
        timing::tell_dues,
    },
};

/// Paced replays begin this long after the epoch is set, so that the first operation is not late.
const LEAD_NS: i64 = 20_000_000;
/// Part of the needed room that is kept free beside it: a file system's own structures.
const ROOM_MARGIN: i64 = 32;

/// A replay, planned and checked, not begun.
#[derive(Debug)]
pub struct Replay {
    config: Config,
    reel: Reel,
    plan: Plan,
    preparation: Preparation,
    /// Bytes of data that files hold at the start, by key.
    prepared: HashMap<u64, i64>,
    target: Target,
    maps: Vec<Map>,
    limit: Option<MemoryLimit>,
    /// Left at the end.
    group: Option<ControlGroup>,
    privilege: Privilege,
    /// What is about to be done.
    pub summary: Summary,
}

impl Replay {
    /// Reads the reel, plans, and checks the target. Must be called while the process has one thread.
    pub fn plan(mut config: Config) -> Result<Self, ReplayError> {
        clock::start();
        let reel = Reel::open(&config.reel)?;
        if reel.manifest.state == State::Recording {
            return Err(ReplayError::Unfinished { path: config.reel });
        }
        check_config(&config)?;
        let group = control_group(&config);
        let force = config.force || config.skip_prepare || config.restored;
        let others: Vec<PathBuf> = config.maps.iter().filter_map(|(_, to)| to.canonicalize().ok()).collect();
        let limit = limit_memory(&mut config)?;
        let target = Target::open_around(&config.target, force, &others)?;
        if config.untrusted {
            config.max_bytes.get_or_insert(target.free_bytes / 2);
        }
        let maps = open_maps(&config.maps, &target, normal, force)?;
        let privilege = containment::acquire()?;
        let mut roots: Vec<Vec<u8>> = config.roots.iter().map(|r| normal(r)).collect();
        if !roots.is_empty() {
            roots.extend(maps.iter().map(|m| m.from.clone()));
        }
        let options = PlanOptions {
            order: config.order,
            without: config.without,
            memory_bytes: config.memory_bytes,
            slice: config.slice,
            scale: config.scale,
            keep_keys: config.data.verify,
            shares_data: target.shares_data && maps.is_empty(),
            subvolumes: target.mount.fstype == "btrfs" && maps.is_empty(),
            roots,
            privileged: privilege.root,
            set_ids: config.set_ids,
            device_nodes: config.device_nodes,
        };
        let reads = Needs::default();
        let (plan, strayed) = apart(config.untrusted, &reads, || plan_within(&reel, &config, options))?;
        let mut preparation = Preparation::of(&plan, privilege.root);
        if config.layout {
            let layouts = apart(config.untrusted, &reads, || layout::read(&reel))?;
            if layouts.is_empty() {
                return Err(ReplayError::NoLayout { path: config.reel });
            }
            preparation.lay_out(&layouts);
        }
        let prepared = if config.data.verify { preparation.data() } else { HashMap::new() };
        let none = Preparation::default();
        let to_make = if config.skip_prepare { &none } else { &preparation };
        let free_bytes = target.free_bytes_for(&plan, privilege);
        let summary = summary_of(config.data.seed, &plan, to_make, (&target, free_bytes), strayed);
        if !config.force_room {
            check_free_space(&maps, to_make)?;
            check_room(&config, &summary)?;
        }
        Ok(Self { config, reel, plan, preparation, prepared, target, maps, limit, group, privilege, summary })
    }

    /// The target's mount.
    pub fn mount(&self) -> &Mount {
        &self.target.mount
    }

    /// Makes the tree that the workload found, and writes it out.
    pub fn prepare(self, mut tell: impl FnMut(Phase)) -> Result<Prepared, ReplayError> {
        let Self { config, plan, preparation, target, maps, group, privilege, .. } = self;
        let how = HowMade { laid: config.layout, untrusted: config.untrusted };
        let filler = Data::new(config.data, plan.told, HashMap::new()).filler();
        containment::lift_limits();
        let (told, phases) = mpsc::channel();
        let directory = target_paths(&target, &maps);
        let maker = thread::Builder::new()
            .name("launcher".into())
            .spawn(move || make_inside(&plan, &directory, (&preparation.items, &filler, how), &told, privilege))
            .map_err(|source| ReplayError::Io { doing: "starting a thread", source })?;
        phases.into_iter().for_each(&mut tell);
        let failed = || ReplayError::Io { doing: "preparing", source: std::io::Error::other("a thread panicked") };
        let prepared = maker.join().map_err(|_| failed())??;
        tell(Phase::Settling);
        sync(&target, &maps);
        drop(group);
        Ok(prepared)
    }

    /// Prepares the target, replays, settles, and writes the result.
    pub fn run(self, mut watch: impl Watch, mut tell: impl FnMut(Phase)) -> Result<Report, ReplayError> {
        let Self { config, reel, plan, preparation, prepared, target, maps, limit, group, privilege, summary } = self;
        let writer = config.result.as_deref().filter(|_| !config.dry_run).map(result_reel::create).transpose()?;
        containment::lift_limits();
        let items = preparation.items;
        let started = start(&config, plan, (items, prepared), (&target, &maps), privilege)?;
        let Started { world, launcher, phases, go, resident } = started;
        let mut warnings = Vec::new();
        if world.plan.calls == 0 && !config.slice.is_whole() {
            warnings.push("no replayed operation took effect between --from and --to".into());
        }
        let mut cpu_before_ns = cpu_ns();
        for phase in phases {
            tell(phase);
            if phase == Phase::Prepared {
                // What was prepared must not be written out while the replay is measured.
                sync(&target, &maps);
                warnings.extend(empty_cache(config.cache, &reel));
                // Refused, the launcher finds nobody who lets it go, and ends.
                limit.as_ref().map_or(Ok(()), MemoryLimit::enter)?;
            }
            if phase == Phase::Running {
                watch.begin();
                cpu_before_ns = cpu_ns();
            }
            if matches!(phase, Phase::Prepared | Phase::Running) {
                // Fails only when the launcher is gone, which its result tells.
                let _ = go.send(());
            }
        }
        let failed = || ReplayError::Io { doing: "replaying", source: std::io::Error::other("a thread panicked") };
        let prepared = launcher.join().map_err(|_| failed())??;
        warnings.extend(prepared.warnings);
        warnings.extend(target.take_back());
        let cpu_ns = cpu_ns() - cpu_before_ns;
        tell(Phase::Settling);
        let sync_start_ns = monotonic_ns() - world.epoch_ns();
        let sync_ret = if config.dry_run { 0 } else { sync(&target, &maps) };
        let sync_end_ns = monotonic_ns() - world.epoch_ns();
        let memory = limit.as_ref().map(MemoryLimit::leave);
        let seen = watch.end(world.epoch_ns()).unwrap_or_else(|why| {
            warnings.push(why);
            DiskActivity::default()
        });
        warnings.extend(world.take_warnings());
        if let Some(max_bytes) = world.passed_bytes() {
            return Err(ReplayError::SpaceExhausted { path: config.reel, max_bytes });
        }
        let mut outcomes = world.take_outcomes()?;
        let ran = Ran {
            summary,
            warnings,
            layout: prepared.layout,
            resident_bytes: resident.load(Relaxed),
            cpu_ns,
            synced_ns: sync_end_ns,
            memory,
        };
        let report = report(&config, &reel, (&target, &maps), &world, &outcomes, ran)?;
        if let Some(writer) = writer {
            if matches!(config.clockwork.pace, Pace::Max | Pace::Load) {
                tell_dues(&world.plan, &mut outcomes)
                    .map_err(|source| ReplayError::Io { doing: "keeping outcomes", source })?;
            }
            let making = making(&config, &report, &world, &target, (sync_start_ns, sync_ret), seen);
            let writes = Needs::to_write(config.result.as_deref());
            let (reel, plan) = (&reel, &world.plan);
            let write = move || result_reel::write(writer, reel, plan, &outcomes, making);
            apart(config.untrusted, &writes, write)?;
        }
        drop(group);
        Ok(report)
    }
}

/// Refuses options that contradict each other or the reel.
fn check_config(config: &Config) -> Result<(), ReplayError> {
    refuse_inside_reel(&config.reel, "--target", &config.target)?;
    config.maps.iter().try_for_each(|(_, to)| refuse_inside_reel(&config.reel, "--map", to))?;
    config.result.iter().try_for_each(|result| refuse_inside_reel(&config.reel, "-o", result))?;
    if config.slice.from_ns >= config.slice.to_ns {
        let Slice { from_ns, to_ns } = config.slice;
        return Err(ReplayError::NoSlice { from_ns, to_ns });
    }
    if config.untrusted && config.set_ids {
        return Err(ReplayError::Untrusted { path: config.reel.clone() });
    }
    if config.memory.is_some() && (config.force || config.skip_prepare) {
        return Err(ReplayError::Foreign);
    }
    Ok(())
}

/// What is about to be done.
fn summary_of(
    seed: u64,
    plan: &Plan,
    to_make: &Preparation,
    (target, free_bytes): (&Target, i64),
    strayed: i64,
) -> Summary {
    Summary {
        operations: plan.calls,
        threads: plan.tasks.iter().filter(|t| !t.program.is_empty()).count() as i64,
        skipped: plan.skipped_by_label(),
        unknown: plan.unknown.clone(),
        strayed,
        set_ids_left_out: plan.set_ids_left_out + plan.begin.set_ids_left_out + to_make.set_ids_left_out,
        device_nodes_left_out: plan.device_nodes_left_out + to_make.device_nodes_left_out,
        implied: plan.implied,
        seed,
        prepare_items: to_make.items.len() as i64,
        prepare_files: to_make.files().0,
        prepare_bytes: to_make.bytes,
        growth_bytes: plan.sizes.peak_bytes,
        free_bytes,
        fstype: target.mount.fstype.clone(),
    }
}

/// Refuses a target without room for what is prepared and written, and more than was allowed.
fn check_room(config: &Config, summary: &Summary) -> Result<(), ReplayError> {
    let bytes = summary.prepare_bytes.saturating_add(summary.growth_bytes);
    let needed_bytes = bytes.saturating_add(bytes / ROOM_MARGIN);
    if let Some(max_bytes) = config.max_bytes.filter(|max| bytes > *max) {
        return Err(ReplayError::TooMuch { path: config.reel.clone(), needed_bytes: bytes, max_bytes });
    }
    if needed_bytes > summary.free_bytes {
        return Err(ReplayError::NoRoom {
            path: config.target.clone(),
            needed_bytes,
            prepare_bytes: summary.prepare_bytes,
            growth_bytes: summary.growth_bytes,
            free_bytes: summary.free_bytes,
        });
    }
    Ok(())
}

/// A replay whose threads are at work.
struct Started {
    world: Arc<World>,
    launcher: thread::JoinHandle<Result<Prepared, ReplayError>>,
    /// What the launcher is at.
    phases: mpsc::Receiver<Phase>,
    /// Lets it go on.
    go: mpsc::Sender<()>,
    /// Bytes that were read into the page cache.
    resident: Arc<AtomicI64>,
}

/// Starts the thread that makes the items and then runs the plan.
fn start(
    config: &Config,
    plan: Plan,
    (items, prepared): (Vec<tree::Item>, HashMap<u64, i64>),
    (target, maps): (&Target, &[Map]),
    privilege: Privilege,
) -> Result<Started, ReplayError> {
    let source = Source::new(config.data.seed, (plan.longest_write_bytes as usize).min(WINDOW_BYTES))?;
    let manner = Manner {
        clockwork: config.clockwork,
        spin_ns: config.spin_ns,
        skip_calls: config.dry_run,
        memory_bytes: config.memory_bytes,
        most_threads: most_threads(config),
    };
    let data = Data::new(config.data, plan.told, plan.keys.files().clone());
    let filler = data.filler();
    let space = space_of(config, target, maps, target.free_bytes_for(&plan, privilege))?;
    let world = Arc::new(World::new(plan, source, (data, prepared), space, manner, privilege)?);
    let (told, phases) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let (directory, inner) = (target_paths(target, maps), world.clone());
    let remembering = config.memory.clone().map(|memory| (memory, world.data.filler()));
    let make = !config.restored && !config.skip_prepare;
    let warm = Warm::of(config.cache, &world.plan, &items, config.scale);
    let start = config.cache;
    let resident = Arc::new(AtomicI64::new(0));
    let read = resident.clone();
    let free = matches!(config.clockwork.pace, Pace::Max | Pace::Load);
    let lead_ns = if free { 0 } else { LEAD_NS };
    let (dry, how) = (config.dry_run, HowMade { laid: config.layout, untrusted: config.untrusted });
    let launcher = thread::Builder::new()
        .name("launcher".into())
        .spawn(move || {
            if dry {
                inner.run(lead_ns);
                return Ok(Prepared::default());
            }
            let filler = &filler;
            let before = Before { items: &items, make, how, filler, remembering, start, warm: &warm, read: &read };
            launch(&inner, &directory, before, &told, &may_go, lead_ns, privilege)
        })
        .map_err(|source| ReplayError::Io { doing: "starting a thread", source })?;
    Ok(Started { world, launcher, phases, go, resident })
}

/// The limit on what calls may take on the disks of the target and of mapped directories: `--max-bytes`, and a part of
/// the free space stays free in any case.
fn space_of(config: &Config, target: &Target, maps: &[Map], free_bytes: i64) -> Result<Space, ReplayError> {
    if config.dry_run {
        return Ok(Space::unlimited());
    }
    let targets = || maps.iter().map(|m| &m.to).chain([target]);
    let free_bytes = maps.iter().fold(free_bytes, |sum: i64, m| sum.saturating_add(m.to.free_bytes));
    let most_bytes = free_bytes - free_bytes / ROOM_MARGIN;
    let dirs = targets().map(Target::descriptor).collect::<Result<_, _>>()?;
    Space::limited(dirs, config.max_bytes.unwrap_or(i64::MAX).min(most_bytes))
}

/// CPU time of this process so far.
fn cpu_ns() -> i64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// How a tree is made.
#[derive(Clone, Copy)]
struct HowMade {
    /// As it lay.
    laid: bool,
    /// By a confined thread.
    untrusted: bool,
}

/// Enters the target for good, and makes the tree there.
fn make_inside(
    plan: &Plan,
    target: &TargetPaths,
    (items, filler, how): (&[tree::Item], &Filler, HowMade),
    told: &mpsc::Sender<Phase>,
    privilege: Privilege,
) -> Result<Prepared, ReplayError> {
    containment::enter(&target.0, &target.1)?;
    if how.untrusted {
        let submits = plan.tasks.iter().any(|t| t.program.submits());
        replayer(&permitted::calls(submits, plan.receipts.iter().any(|n| *n > 0)));
    }
    let mut warnings = tree::make(items, filler, |done| {
        // A listener that is gone needs no telling.
        let _ = told.send(Phase::Preparing(done, items.len()));
    })?;
    let layout = how.laid.then(|| layout::look(items));
    warnings.extend(containment::let_users_in(plan, privilege));
    Ok(Prepared { warnings, layout })
}

/// What there is to say of what was made before the start.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// What could not be made.
    pub warnings: Vec<String>,
    /// How near files came to how they lay, where that was wanted.
    pub layout: Option<LayoutReport>,
}

/// What there is before the start.
struct Before<'a> {
    items: &'a [tree::Item],
    /// It is made.
    make: bool,
    how: HowMade,
    filler: &'a Filler,
    /// It is remembered.
    remembering: Option<(Memory, Filler)>,
    /// What the page cache is to hold.
    start: CacheStart,
    warm: &'a Warm,
    /// Bytes that were read for that.
    read: &'a AtomicI64,
}

/// Runs in a thread of its own, which enters the target and never leaves it.
fn launch(
    world: &Arc<World>,
    target: &TargetPaths,
    before: Before<'_>,
    told: &mpsc::Sender<Phase>,
    may_go: &mpsc::Receiver<()>,
    lead_ns: i64,
    privilege: Privilege,
) -> Result<Prepared, ReplayError> {
    let Before { items, make, how, filler, remembering, start, warm, read } = before;
    let to_make = if make { items } else { &[] };
    let mut prepared = make_inside(
        &world.plan,
        target,
        (to_make, filler, HowMade { laid: how.laid && make, ..how }),
        told,
        privilege,
    )?;
    if let Some((memory, filler)) = remembering {
        memory.remember(items, filler, target);
    }
    // Recorded descriptors must never reach one of ioreel's own: this thread's table is a copy, emptied here,
    // and all others descend from it.
    containment::close_all();
    prepared.warnings.extend(world.begin(filler));
    let _ = told.send(Phase::Prepared);
    if may_go.recv().is_err() {
        return Ok(prepared);
    }
    // All is written out.
    if start != CacheStart::Prepared {
        forget(items);
    }
    read.store(warm.read(), Relaxed);
    let _ = told.send(Phase::Running);
    if may_go.recv().is_err() {
        return Ok(prepared);
    }
    world.run(lead_ns);
    Ok(prepared)
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
            pace: report.pace.clone(),
            order: report.order.into(),
            target: config.target.display().to_string(),
            fstype: target.mount.fstype.clone(),
            original_elapsed_ns: report.original_elapsed_ns,
            done: report.done,
            differing: report.verdict.results.classes.wrong,
            faithful: Some(report.verdict.faithful),
            verdict: report.verdict.sentence.clone(),
            skipped: report.summary.skipped.clone(),
            from_ns: report.slice.map(|s| s.from_ns),
            to_ns: report.slice.map(|s| s.to_ns).filter(|to| *to < i64::MAX),
        },
        clock: Clock { monotonic_ns: world.epoch_ns(), realtime_ns: now.tv_sec * 1_000_000_000 + now.tv_nsec - since },
        span: Span {
            elapsed_ns: report.elapsed_ns,
            settle_ns: report.synced_ns.unwrap_or(report.elapsed_ns) - report.elapsed_ns,
            ..Span::default()
        },
        mount: target.mount.clone(),
        warnings: report.warnings.clone(),
        sync_start_ns,
        sync_ret,
        seen,
    }
}
