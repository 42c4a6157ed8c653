//! The real engine: threads, the monotonic clock, system calls.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Condvar, Mutex, OnceLock, PoisonError,
        atomic::{AtomicI64, AtomicU32, Ordering::SeqCst},
    },
    thread,
};

use rustix::{
    fs::Mode,
    io::Errno,
    thread::{UnshareFlags, futex, unshare_unsafe},
};

use crate::{
    ReplayError,
    base::clock::monotonic_ns,
    base::ids::{inherit, limits, take_on},
    base::paths::seen_from,
    contents::{
        buffers::Source,
        data::Data,
        fill::Filler,
        read_checks::{Checks, DataCheck},
        slice_contents::InitialData,
    },
    model::{credentials::Credentials, processes::clone},
    plan::program::{Plan, Root},
    prepare::containment::{Privilege, become_user, close_all},
    run::issue::syscall::call,
    run::{
        handover::Handover,
        issue::{Issuer, cells::Cells},
        load::LoadGate,
        open_initial::open_all,
        outcomes::Outcomes,
        pace::{Base, Clockwork, Pace},
        pieces::{Pieces, Scribe},
        progress::Progress,
        rings::Rings,
        space::Space,
        take_initial_locks,
    },
};

#[cfg(test)]
mod faults;
mod worker;

#[cfg(not(test))]
use crate::run::engine::run_program;
use worker::Worker;

/// Busy-wait before each deadline, ns. In a guest, a sleeping thread wakes up about 50 us late.
pub const DEFAULT_SPIN_NS: i64 = 50_000;
/// Stack size of a replaying thread. Large buffers are not on the stack.
const STACK_BYTES: usize = 256 << 10;

/// Threads that replay at the same time, at most. Each takes kernel memory, which no limit on this process covers.
pub const MOST_THREADS: usize = 4096;
/// The same for a reel that is not trusted.
pub const MOST_UNTRUSTED_THREADS: usize = 512;

/// How operations are issued.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Pace and catch-up policy.
    pub clockwork: Clockwork,
    /// Busy-wait before each deadline.
    pub spin_ns: i64,
    /// Issue nothing, to measure the replayer itself.
    pub skip_calls: bool,
    /// Bytes of outcomes kept in memory. The rest goes to an unnamed file.
    pub memory_bytes: usize,
    /// Threads that run at the same time, at most.
    pub most_threads: usize,
}

/// State shared by all threads of a replay.
#[derive(Debug)]
pub struct World {
    /// The plan.
    pub plan: Arc<Plan>,
    pieces: Pieces,
    cells: Cells,
    source: Source,
    /// Data that is written, and with which reads are compared.
    pub data: Data,
    checks: Option<Checks>,
    space: Space,
    progress: Progress,
    clockwork: Clockwork,
    spin_ns: i64,
    /// Issue nothing. Recorded results stand for those of the kernel.
    skip_calls: bool,
    most_threads: usize,
    privilege: Privilege,
    shift_ns: AtomicI64,
    spun_ns: AtomicI64,
    load: LoadGate,
    handover: Handover,
    /// Time 0 on the monotonic clock.
    epoch_ns: AtomicI64,
    ended_ns: Box<[AtomicI64]>,
    scribe: Scribe,
    warnings: Mutex<Vec<String>>,
    live: Mutex<usize>,
    none_live: Condvar,
    /// Opens once the initial threads have their descriptors and locks, and the thread that started them has closed its
    /// own.
    all_begun: Gate,
    /// Initial descriptors by index in [`Begin::opens`](crate::plan::initial_descriptors::Begin::opens), in the table
    /// of the thread that starts the others.
    opened: OnceLock<Vec<i32>>,
    #[cfg(test)]
    planted: faults::Planted,
}

/// A gate that opens once.
#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    fn wait(&self) {
        let mut is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_open {
            is_open = self.opened.wait(is_open).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A descriptor table in use. Whoever drops it last closes what is open in it.
type Group = Arc<()>;

impl World {
    /// The state of a replay that is ready to start.
    pub(crate) fn new(
        plan: Plan,
        source: Source,
        (data, prepared): (Data, HashMap<u64, i64>),
        space: Space,
        manner: Manner,
        privilege: Privilege,
    ) -> Result<Self, ReplayError> {
        let checks = data.is_checked().then(|| {
            let files = plan.keys.files().iter();
            let left = |(file, key): (&i64, &u64)| Some((*file, plan.keys.written.left(*file, *prepared.get(key)?)));
            let copied = plan.keys.copied.iter().map(|file| (*file, InitialData { data_bytes: 0, foreign: true }));
            Checks::new(files.filter_map(left).chain(copied))
        });
        let threads = plan.tasks.len();
        let plan = Arc::new(plan);
        let world = Self {
            cells: Cells::new(&plan),
            progress: Progress::new(threads),
            ended_ns: (0..threads).map(|_| AtomicI64::new(0)).collect(),
            source,
            data,
            checks,
            space,
            clockwork: manner.clockwork,
            spin_ns: manner.spin_ns,
            skip_calls: manner.skip_calls,
            most_threads: manner.most_threads,
            privilege,
            shift_ns: AtomicI64::new(0),
            spun_ns: AtomicI64::new(0),
            load: LoadGate::default(),
            handover: Handover::default(),
            epoch_ns: AtomicI64::new(0),
            scribe: Scribe::start(threads, manner.memory_bytes)?,
            pieces: Pieces::start(&plan)?,
            warnings: Mutex::default(),
            live: Mutex::new(0),
            opened: OnceLock::new(),
            all_begun: Gate::default(),
            none_live: Condvar::new(),
            plan,
            #[cfg(test)]
            planted: faults::planted(),
        };
        for (i, task) in world.plan.tasks.iter().enumerate() {
            if task.program.is_empty() {
                world.progress.finish(i as u32);
            }
        }
        Ok(world)
    }

    /// Opens and maps what threads have before their first step. Returns warnings. The caller is the thread that will
    /// call [`Self::run`]: it is inside the target and has no open descriptor.
    pub fn begin(&self, filler: &Filler) -> Vec<String> {
        let handover = self.handover.start(&self.plan.receipts);
        let (fds, mut warnings) = open_all(&self.plan, &self.cells, (filler, &self.space));
        warnings
            .extend(handover.err().map(|e| format!("descriptors that messages brought cannot be handed over: {e}")));
        if self.plan.from_top {
            warnings.extend(self.cells.open_top().err().map(|e| format!("opening the target's root: {e}")));
        }
        warnings.extend(take_initial_locks::take_shared(&self.plan, &fds));
        // Set only once.
        let _ = self.opened.set(fds);
        warnings
    }

    /// Runs the replay. Time 0 is `lead_ns` from now. Returns when the last thread has ended. The calling thread is
    /// inside the target and has only the descriptors that [`Self::begin`] opened.
    pub fn run(self: &Arc<Self>, lead_ns: i64) {
        self.epoch_ns.store(monotonic_ns() + lead_ns, SeqCst);
        let roots = || self.plan.tasks.iter().enumerate().filter(|(_, t)| t.at_start && !t.program.is_empty());
        if self.clockwork.pace == Pace::Load {
            roots().for_each(|(i, t)| self.load.set(i as u32, t.first_turn_ns));
        }
        for (i, task) in roots() {
            // At paces `max` and `load`, an initial thread acts at once. At the others, its think time counts from time
            // 0.
            let free = matches!(self.clockwork.pace, Pace::Max | Pace::Load);
            let recorded_ns = if free { task.start_ns } else { 0 };
            self.start(i as u32, Base { recorded_ns, ..Base::default() }, None);
        }
        if !self.skip_calls {
            // The initial threads have copies of these descriptors now.
            close_all();
        }
        // Only now: as long as a description is open here too, closing it elsewhere does not release its locks.
        self.all_begun.open();
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        while *live > 0 {
            live = self.none_live.wait(live).unwrap_or_else(PoisonError::into_inner);
        }
        self.handover.end();
    }

    /// Time 0 on the monotonic clock.
    pub fn epoch_ns(&self) -> i64 {
        self.epoch_ns.load(SeqCst)
    }

    /// How much the schedule moved later for all threads.
    pub fn shift_ns(&self) -> i64 {
        self.shift_ns.load(SeqCst)
    }

    /// Time spent busy-waiting for deadlines, including time without a CPU.
    pub fn spun_ns(&self) -> i64 {
        self.spun_ns.load(SeqCst)
    }

    /// The outcomes. Call it once, after the end.
    pub fn take_outcomes(&self) -> Result<Outcomes, ReplayError> {
        self.scribe.finish()
    }

    /// Result of the data checks. `None` if data was not checked.
    pub fn checked(&self) -> Option<DataCheck> {
        self.checks.as_ref().map(Checks::found)
    }

    /// The limit on disk space that ended the replay.
    pub fn passed_bytes(&self) -> Option<i64> {
        self.space.is_exhausted().then(|| self.space.max_bytes())
    }

    /// What went wrong, apart from results.
    pub fn take_warnings(&self) -> Vec<String> {
        let mut all = std::mem::take(&mut *self.warnings.lock().unwrap_or_else(PoisonError::into_inner));
        all.extend(self.cells.direct.told());
        all.extend(self.cells.plain.told());
        all.extend(self.handover.told());
        if self.load.is_given_up() {
            all.push(
                "the recorded number of operations in flight was not kept: the reel's order contradicts itself".into(),
            );
        }
        all
    }

    fn warn_once(&self, text: String) {
        let mut all = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains(&text) {
            all.push(text);
        }
    }

    fn warn(&self, text: String) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    /// Creates the thread of `task` and waits until it has its own tables.
    fn start(self: &Arc<Self>, task: u32, base: Base, parent: Option<&Group>) {
        let ready = Arc::new(AtomicU32::new(0));
        let (world, signal) = (self.clone(), ready.clone());
        let shared = self.plan.tasks[task as usize].clone_flags & clone::FILES != 0;
        let group = parent.filter(|_| shared).cloned().unwrap_or_default();
        let is_root = parent.is_none();
        let limits = limits();
        {
            let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            if *live >= self.most_threads {
                drop(live);
                let most_threads = self.most_threads;
                self.warn_once(format!(
                    "more than {most_threads} threads would run at once; the operations of those beyond were not issued"
                ));
                self.abandon(task);
                return;
            }
            *live += 1;
        }
        let made = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            inherit(limits);
            world.be_born(task, is_root);
            signal.store(1, SeqCst);
            // Waking fails only for an invalid address.
            let _ = futex::wake(&signal, futex::Flags::PRIVATE, 1);
            if is_root && !world.plan.begin.opens.is_empty() {
                world.all_begun.wait();
            }
            world.live(task, base, group);
        });
        if let Err(e) = made {
            self.warn(format!("cannot start a thread ({e}); its operations were not issued"));
            self.abandon(task);
            self.leave();
            return;
        }
        while ready.load(SeqCst) == 0 {
            let _ = futex::wait(&ready, futex::Flags::PRIVATE, 0, None);
        }
    }

    /// Marks a thread that will never run, and its descendants, as ended, so that nothing waits for them.
    fn abandon(&self, task: u32) {
        let mut left = vec![task];
        while let Some(task) = left.pop() {
            self.progress.finish(task);
            self.load.set(task, None);
            left.extend_from_slice(self.plan.tasks[task as usize].program.spawned());
        }
    }

    fn leave(&self) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        *live -= 1;
        if *live == 0 {
            self.none_live.notify_all();
        }
    }

    /// Does what fork does: gives the thread its own tables with the parent's contents, except tables that it shares.
    fn be_born(&self, task: u32, is_root: bool) {
        let plan = &self.plan.tasks[task as usize];
        let mut flags = UnshareFlags::empty();
        flags.set(UnshareFlags::FS, is_root || plan.clone_flags & clone::FS == 0);
        flags.set(UnshareFlags::FILES, is_root || plan.clone_flags & clone::FILES == 0);
        if self.skip_calls {
            return;
        }
        // SAFETY: no Rust value owns descriptors of this thread.
        if let Err(e) = unsafe { unshare_unsafe(flags) } {
            self.warn(format!("cannot give a thread its own descriptor table: {e}"));
        }
        for (from, to) in &plan.copies {
            self.cells.set(*to, self.cells.fd(*from as i32));
        }
        if let Some(root) = &plan.root {
            self.be_root(task, root, is_root);
        } else if let Some(who) = &plan.begins_as {
            self.take_on(who, false);
        }
    }

    fn be_root(&self, task: u32, root: &Root, is_root: bool) {
        let told = |doing: &str, path: &[u8], e: Errno| {
            self.warn(format!("{doing} {}: {e}", String::from_utf8_lossy(path)));
        };
        let opened = self.opened.get().map_or(&[][..], Vec::as_slice);
        if let Some(fd) = root.cwd_open.and_then(|i| opened.get(i as usize)) {
            // SAFETY: open in this thread's table, which is a copy of the starting thread's.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw((*fd).max(0)) };
            if let Err(e) = rustix::process::fchdir(fd) {
                told("entering the working directory, which was removed,", &root.cwd, e);
            }
        } else if let Err(e) = rustix::process::chdir(seen_from(&root.cwd, &root.root_of_starter)) {
            told("entering the working directory", &root.cwd, e);
        }
        // The table contains the descriptors of all initial threads. Those of other threads are closed.
        let mut mine = HashSet::new();
        for (open, slot) in &root.fds {
            let Some(fd) = opened.get(*open as usize).copied().filter(|fd| *fd >= 0) else { continue };
            if mine.insert(fd) {
                self.cells.set(*slot, fd);
            } else {
                // SAFETY: open in this thread's table, and no Rust value owns it.
                self.cells.set(*slot, unsafe { libc::dup(fd) });
            }
        }
        if is_root {
            for fd in opened.iter().filter(|fd| **fd >= 0 && !mine.contains(fd)) {
                // SAFETY: as above.
                unsafe { libc::close(*fd) };
            }
        }
        take_initial_locks::take_own(&self.plan, task, opened).into_iter().for_each(|w| self.warn(w));
        if root.root != root.root_of_starter
            && let Err(e) = rustix::process::chroot(seen_from(&root.root, &root.root_of_starter))
        {
            told("entering the recorded root", &root.root, e);
        }
        rustix::process::umask(Mode::from_bits_truncate(root.umask as u32));
        self.take_on(&root.who, is_root);
    }

    /// `is_root`: the thread still has all privileges. Otherwise it has those of another recorded thread.
    fn take_on(&self, who: &Credentials, is_root: bool) {
        let taken = match is_root || !self.privilege.root {
            true => become_user(self.privilege, who),
            false => match take_on(call, who.words(), Some(&[])) {
                ret if ret < 0 => Err(std::io::Error::from_raw_os_error(-ret as i32)),
                _ => Ok(()),
            },
        };
        if let Err(e) = taken {
            self.warn(format!("taking on the recorded user {}: {e}", who.user.effective));
        }
    }

    fn live(self: Arc<Self>, task: u32, base: Base, group: Group) {
        // Sets the timer slack to 1 ns, so that sleeps do not end up to 50 us late. Threads created from here inherit
        // it.
        // SAFETY: plain integers.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        let data = (&self.source, &self.data);
        let issuer = Issuer::new(&self.cells, data, &self.space, self.plan.set_ids);
        let rings = Rings::new(&self.cells, data, &self.space, &self.plan.ring_flags);
        let mut worker = Worker { world: &self, task, issuer, rings, pieces: [None, None], group, spun_ns: 0 };
        #[cfg(not(test))]
        let base = run_program(&self.plan, task, self.clockwork, base, &mut worker);
        #[cfg(test)]
        let base = faults::run(&self.plan, task, self.clockwork, base, &mut worker, self.planted);
        let recorded_end = self.plan.tasks[task as usize].exit_ns.unwrap_or(base.recorded_ns);
        self.ended_ns[task as usize].store(base.due_ns(recorded_end), SeqCst);
        worker.rings.end().into_iter().for_each(|told| self.warn_once(told));
        let Worker { group, spun_ns, .. } = worker;
        self.spun_ns.fetch_add(spun_ns, SeqCst);
        if self.clockwork.pace == Pace::Load {
            self.load.set(task, None);
        }
        if Arc::into_inner(group).is_some() && !self.skip_calls {
            // Closes what a process leaves open at its end. The kernel does the same when the thread ends, but that may
            // be after threads that wait for this one go on.
            // SAFETY: closes numbers that only this group used.
            unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
        }
        self.progress.finish(task);
        self.leave();
    }
}
