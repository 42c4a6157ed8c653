//! A recording from start to end.
//!
//! In: a [`Config`]. Out: a reel, and an [`Outcome`]. May use every stage but `monitor`.

mod call_cost;
mod close;
mod command;
mod config;
mod copies;
mod cpu_budget;
mod limits;
mod main_loop;
pub mod marks;
mod narrow;
mod setup;

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use ioreel_traces::{
    Manifest, ReelWriter, WriterOptions,
    anonymize::Anonymizer,
    manifest::{Cgroup, Command as CommandInfo, Kind, Mount},
    private::Folder,
    rotate::Keep,
    text,
};

pub use config::{Backend, Bound, Config, Herald, Layers, Moment, Observer, Outcome, Progress, Target};
pub use copies::unused;
pub use limits::{End, Limits, MinFree};
pub(crate) use setup::hide_backing_files;

use self::{
    copies::Copies,
    limits::expect_room,
    setup::{leave_own_output_out, take_descriptors, take_snapshot},
};
use crate::record::{
    close::{Closing, close, on_disk, on_disks},
    cpu_budget::Budget,
    main_loop::{Ended, follow},
};
use crate::{
    CaptureError,
    assemble::{Assembler, contents::Contents, context_filter::Sieve, waits::Waits},
    host::{self, mount_sizes, signals},
    pipeline::{
        Message, Pipeline,
        settle::{Settled, drain, settle},
        standing::Standing,
    },
    probes::{
        filter::Filter,
        lossless::{Guardian, sees_all_processes},
        plan::{Content, Vfs},
        session::{Plan, SHORTEST_TICK, Session, Storage, Targets},
    },
    record::{command::Command, marks::Listener},
};

/// A file name in the encoding of reels.
fn name_of(name: &OsStr) -> String {
    text::from_bytes(name.as_bytes()).to_string()
}

/// The disks of the devices named by the user.
fn disks_named(names: &[String]) -> Result<Vec<i64>, CaptureError> {
    let disk = |name: &String| {
        let dev =
            host::block_device(name).map_err(|e| CaptureError::NoDevice { name: name.clone(), why: e.to_string() })?;
        host::disk_of(dev)
            .ok_or_else(|| CaptureError::NoDevice { name: name.clone(), why: "no disk belongs to it".into() })
    };
    names.iter().map(disk).collect()
}

/// Rejects impossible settings before anything is started.
fn refuse_impossible(config: &Config) -> Result<(), CaptureError> {
    if let Target::Processes(pids) = &config.target {
        pids.iter().try_for_each(|pid| host::expect_process(*pid))?;
    }
    expect_room(&config.limits, &config.output)?;
    if config.content == Content::Full && config.anonymize.is_some() {
        return Err(CaptureError::ContentOfNobody);
    }
    if config.lossless && !sees_all_processes() {
        return Err(CaptureError::OtherProcessIds);
    }
    // A command's processes are in this session, so they can be resumed without CAP_KILL.
    let others = !matches!(config.target, Target::Command(_));
    if config.lossless && others && host::capabilities() >> host::CAP_KILL & 1 == 0 {
        return Err(CaptureError::NoKill);
    }
    Ok(())
}

/// The tasks that the probes record.
fn targets_of(config: &Config, command: Option<&Command>) -> Result<Targets, CaptureError> {
    Ok(match (command, &config.target) {
        (Some(c), _) => Targets::Command(c.pid()),
        (None, Target::Processes(pids)) => Targets::Processes(pids.clone()),
        (None, Target::Cgroup(name)) => Targets::Cgroup(host::cgroup_id(name)?),
        (None, Target::All) => Targets::All,
        (None, Target::Command(_)) => Targets::None,
    })
}

/// The settings of the probes.
fn plan_of(config: &Config, target: Targets, devices: &[i64], vfs: Vfs, filter: Filter) -> Plan {
    Plan {
        target,
        fixed_devices: !devices.is_empty(),
        devices: devices.to_vec(),
        ring_bytes: config.ring_bytes,
        lossless: config.lossless,
        ops: true,
        waits: config.waits,
        cache: config.cache,
        vfs,
        content: config.content,
        calls: config.layers != Layers::Block,
        block: config.layers != Layers::Operations,
        filter,
        caller: config.caller,
    }
}

/// Creates the assembler. `t0_ns`, `mounts`: time 0 of the recording, and the mounts at that time.
fn assembler_of(
    config: &Config,
    writer: ReelWriter,
    session: &Session<'_>,
    (t0_ns, mounts): (i64, Vec<Mount>),
    filter: Filter,
) -> Result<Assembler, CaptureError> {
    let mut assembler = Assembler::new(writer, t0_ns, mounts);
    if let Some(waits) = config.waits {
        let op_min_ns = config.filter.min_latency_ns().min(i64::MAX as u64) as i64;
        assembler.waits = Some(Waits::new(waits.min_ns, op_min_ns, session.symbols()?));
    }
    assembler.contents = Contents::of(config.content, config.limits.max_bytes);
    assembler.slow_ns = config.limits.latency.map_or(i64::MAX, |d| d.as_nanos() as i64);
    if filter.is_any() {
        assembler.sieve = Some(Sieve::new(filter, session.tables()?));
    }
    Ok(assembler)
}

/// A warning for each process that ended before its recording started.
fn ended_meanwhile(config: &Config) -> Vec<String> {
    let Target::Processes(pids) = &config.target else { return Vec::new() };
    let ended = pids.iter().filter(|pid| host::expect_process(**pid).is_err());
    ended
        .map(|pid| format!("process {pid} ended while its recording began; little or nothing of it was recorded"))
        .collect()
}

/// Ends the recording of operations. If requested, waits until their changes are on the disks.
fn settle_what_changed(
    config: &Config,
    session: &Session<'_>,
    pipeline: &Pipeline,
    devices: &[i64],
    t0_ns: i64,
) -> Result<Settled, CaptureError> {
    let changed = pipeline.end_of_operations(session.in_flight()?);
    let mut to_sync = on_disk(&changed);
    if config.layers == Layers::Block {
        // Which file systems changed is unknown, so all on recorded disks are synced.
        let disks = if devices.is_empty() { pipeline.disks_met() } else { devices.iter().copied().collect() };
        to_sync = on_disks(&disks);
    }
    Ok(if config.settle && config.layers != Layers::Operations {
        settle(session, pipeline, &to_sync, t0_ns, &|what| config.tell(&Moment::Settling(what)))
    } else {
        Settled::default()
    })
}

/// Records. Prints nothing; warnings are in the manifest.
///
/// Long because it is the sequence of a whole recording: each step uses the results of earlier ones, and a failure
/// cleans up after them.
pub fn record(config: &Config) -> Result<Outcome, CaptureError> {
    let narrowed = narrow::to_caller(config)?;
    let config = narrowed.as_ref().unwrap_or(config);
    let devices = disks_named(&config.devices)?;
    refuse_impossible(config)?;
    let vfs = config.backend.plan(&config.target, config.layers)?;
    let mut manifest = Manifest::new(Kind::Recording, if vfs.any() { "fentry" } else { "tracepoint" });
    manifest.host = host::host();
    manifest.filters.clone_from(&config.filters);
    manifest.waits_min_ns = config.waits.map(|w| w.min_ns);
    manifest.warnings.extend(narrowed.as_ref().map(|_| narrow::WARNING.to_owned()));
    let cwd = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let mut command = match &config.target {
        Target::Command(argv) => {
            let shown = name_of(cwd.as_os_str());
            manifest.command =
                Some(CommandInfo { argv: argv.iter().map(|w| name_of(w)).collect(), cwd: shown, exit_status: None });
            Some(Command::start(argv, config.caller.is_some())?)
        }
        Target::Processes(_) | Target::Cgroup(_) | Target::All => None,
    };
    // The settings below must not affect the command, which is forked already.
    signals::ignore_file_size_limits();
    if config.limits.copies {
        // Loading the probes takes a second, in which a copy may be requested.
        signals::install_trigger();
    }
    take_descriptors();
    let targets = targets_of(config, command.as_ref())?;

    let filter = config
        .filter
        .clone()
        .on_disks(if config.layers == Layers::Block { Vec::new() } else { devices.clone() })
        .also_where_mounted(&host::mounts());
    let plan = plan_of(config, targets, &devices, vfs, filter.clone());
    let mut storage = Storage::default();
    let untouched_ns = call_cost::call_ns();
    let mut session = Session::load(&plan, &mut storage)?;
    // Time that the probes add to every call of every process, recorded or not.
    manifest.cost.call_ns = Some((call_cost::call_ns() - untouched_ns).max(0));
    // Forks, so this process must still have a single thread.
    let guardian = session.stops.as_ref().map(Guardian::start).transpose()?;
    if let Some(guardian) = &guardian {
        session.spare(guardian);
    }
    let names = config.anonymize.as_ref().map(|key| Arc::new(Mutex::new(Anonymizer::reversible(key))));
    // From here on there is something to clean up.
    signals::install();
    if config.limits.copies {
        signals::install_trigger();
    }
    let mut writer = ReelWriter::create_mapped(&config.output, &manifest, options(&config.limits), names)?;
    let folder = writer.folder()?.clone();
    let unbegun = Unbegun(&folder);
    let mut mounts = host::mounts();
    manifest.warnings.extend(mount_sizes::fill(&mut mounts));
    manifest.cgroups = cgroups(config, &plan.target);
    manifest.containers.clone_from(&config.containers);
    leave_own_output_out(&mut writer, &session, &config.output, &mounts)?;

    let snapshot = take_snapshot(config, &plan.target, &mut manifest, &mounts)?;
    not_interrupted()?;
    if devices.is_empty() {
        let tables = session.tables()?;
        for disk in host::mount_of_path(&mounts, &name_of(cwd.as_os_str())).map(host::disks_of).unwrap_or_default() {
            tables.add_device(disk)?;
        }
    }
    hide_backing_files(&session.tables()?, &mounts, &devices)?;

    manifest.clock = host::clock();
    let t0_ns = manifest.clock.monotonic_ns;
    let tables = if devices.is_empty() { Some(session.tables()?) } else { None };
    let assembler = assembler_of(config, writer, &session, (t0_ns, mounts.clone()), filter)?;
    let keep = config
        .limits
        .rotate
        .then(|| Keep { max_bytes: config.limits.max_bytes, span_ns: config.limits.span.map(|d| d.as_nanos() as i64) });
    let standing = Standing::new(manifest.clone(), mounts.clone());
    let pipeline = Pipeline::start(assembler, tables, keep, Some(standing));

    // A recording without marks is better than none.
    let marks = Listener::start(&folder)
        .inspect_err(|e| manifest.warnings.push(format!("`ioreel mark` will not work: {e}")))
        .ok();
    session.activate();
    // The rings contain only records that are later than these, or about these tasks.
    pipeline.send(Message::Records { bytes: session.adopt()?, complete_to_ns: 0 });
    manifest.warnings.extend(ended_meanwhile(config));
    log::info!("{}: the recording has begun", config.output.display());
    config.tell(&Moment::Begun);
    let started = Instant::now();
    if let Err(e) = command.as_mut().map_or(Ok(()), |c| not_interrupted().and_then(|()| c.release())) {
        nothing_ran(&mut session, pipeline, unbegun);
        return Err(e);
    }
    unbegun.begun();
    let mut budget = config.limits.cpu_share.map(Budget::new);
    let mut copies = Copies::new(config, &manifest, &mounts, marks.as_ref());
    let Ended { why, signal } =
        follow(&session, &pipeline, &mut copies, command.as_mut(), started, budget.as_mut(), &folder)?;
    copies.finish(&session, &pipeline)?;
    if let Some(e) = command.as_mut().and_then(Command::refusal) {
        nothing_ran(&mut session, pipeline, Unbegun(&folder));
        return Err(e);
    }

    config.tell(&Moment::Ending);
    // Processed first: what ends after this time is not in the reel.
    let end_ns = host::monotonic_ns();
    session.end_operations();
    let goes_on = session.alive() > 0;
    if let Some(budget) = &mut budget {
        budget.drain_all(&session, &pipeline);
    }
    drain(&session, &pipeline);
    // Also operations of processes that could not be stopped.
    if config.lossless {
        pipeline.send(Message::Records { bytes: session.held()?, complete_to_ns: end_ns });
    }
    let Settled { rows: settled, cut } = settle_what_changed(config, &session, &pipeline, &devices, t0_ns)?;
    manifest.warnings.extend(cut);
    session.end();
    // By now, probes that were running when recording was switched off have stored their records.
    std::thread::sleep(SHORTEST_TICK);
    drain(&session, &pipeline);

    manifest.marks = marks.map(|m| m.marks(t0_ns)).unwrap_or_default();
    let status = command.as_mut().and_then(Command::poll);
    if let Some(c) = &mut manifest.command {
        c.exit_status = status;
    }
    manifest.cost.waited_ns = budget.map_or(0, |b| b.waited.as_nanos() as i64);
    manifest.ended = why.word().into();
    manifest.span.settle_ns = if config.settle { host::monotonic_ns() - end_ns } else { 0 };
    let Some(assembled) = pipeline.finish() else {
        return Err(CaptureError::Os {
            doing: "writing the reel",
            source: std::io::Error::other("the writer thread died"),
        });
    };
    let still_running = command.as_ref().filter(|_| status.is_none()).map(Command::pid);
    let closed =
        close(config, &folder, manifest, &session, assembled, Closing { settled, snapshot, mounts, end_ns, goes_on });
    // Last, because a probe that was preempted at the switch may have stopped a process since.
    if let (Some(guardian), Some(stops)) = (guardian, &session.stops) {
        stops.resume_all();
        guardian.dismiss();
    }
    closed.map(|(manifest, error)| Outcome { manifest, status, error, still_running, why, signal })
}

/// A reel that is deleted unless its recording starts.
struct Unbegun<'a>(&'a Folder);

impl Unbegun<'_> {
    fn begun(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unbegun<'_> {
    fn drop(&mut self) {
        // Best effort.
        let _ = self.0.remove_this_reel();
    }
}

/// An error if a signal has requested the end.
fn not_interrupted() -> Result<(), CaptureError> {
    signals::waiting_end().map_or(Ok(()), |signal| Err(CaptureError::Interrupted { signal }))
}

/// Removes the reel after its writer has ended.
fn nothing_ran(session: &mut Session<'_>, pipeline: Pipeline, reel: Unbegun<'_>) {
    session.end();
    drop(pipeline.finish());
    drop(reel);
}

/// Options of the writer. A reel with a size limit gets small segments, because whole segments are dropped.
fn options(limits: &Limits) -> WriterOptions {
    const SEGMENTS: i64 = 16;
    const ROW_BYTES: i64 = 12;
    const LEAST_ROWS: usize = 4096;
    const ROWS_ON_A_BUDGET: usize = 32 * 1024;
    let mut usual = WriterOptions::default();
    if limits.cpu_share.is_some() {
        // Closing a segment uses the CPU for some time without a break.
        usual.segment_rows = ROWS_ON_A_BUDGET;
    }
    if let Some(span) = limits.span {
        usual.segment_age = usual.segment_age.min(span / SEGMENTS as u32).max(Duration::from_millis(100));
    }
    match limits.max_bytes {
        Some(max) => WriterOptions {
            segment_rows: ((max / SEGMENTS / ROW_BYTES) as usize).clamp(LEAST_ROWS, usual.segment_rows),
            ..usual
        },
        None => usual,
    }
}

/// Control groups of what is recorded.
fn cgroups(config: &Config, target: &Targets) -> Vec<Cgroup> {
    match &config.target {
        Target::Cgroup(name) => {
            host::cgroup_folder(name).ok().and_then(|f| host::cgroup::of_folder(&f)).into_iter().collect()
        }
        _ => host::cgroup::of_processes(target.pids()),
    }
}

/// Waits for a command that outlived its recording; returns its wait status.
pub fn wait_for(pid: u32) -> i32 {
    let mut status = 0;
    loop {
        // SAFETY: waits for a child of this process.
        let r = unsafe { libc::waitpid(pid as i32, &mut status, 0) };
        if r >= 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return status;
        }
        if let Some(s) = signals::take()
            && !s.reached_the_command()
        {
            // SAFETY: signals a child that has not been reaped.
            unsafe { libc::kill(pid as i32, s.signal) };
        }
    }
}
