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
    base::ids::take_on,
    base::paths::seen_from,
    contents::{
        buffers::Source,
        data::Data,
        fill::Filler,
        read_checks::{Checks, DataCheck},
    },
    model::{credentials::Credentials, processes::clone},
    plan::program::{Plan, Root},
    prepare::containment::{Privilege, become_user, close_all},
    run::issue::syscall::call,
    run::{
        issue::{Issuer, cells::Cells},
        load::LoadGate,
        open_initial::open_all,
        outcomes::Outcomes,
        pace::{Base, Clockwork, Pace},
        pieces::{Pieces, Scribe},
        progress::Progress,
        rings::Rings,
        take_initial_locks,
    },
};

#[cfg(test)]
mod faults;
mod worker;

#[cfg(not(test))]
use crate::run::engine::run_program;
use worker::Worker;

/// Of a wait for a deadline, the end is spun away: a sleeper wakes some 50 us late in a guest.
pub const DEFAULT_SPIN_NS: i64 = 50_000;
/// Steps run on the thread's own stack only.
const STACK_BYTES: usize = 256 << 10;

/// How operations are issued.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// When they are due.
    pub clockwork: Clockwork,
    /// Spun away before each deadline.
    pub spin_ns: i64,
    /// They are not: to measure the replayer itself.
    pub skip_calls: bool,
    /// Of what happened, so much is kept in memory, the rest in an unnamed file.
    pub memory_bytes: usize,
}

/// What all threads of a replay share.
#[derive(Debug)]
pub struct World {
    /// The plan.
    pub plan: Arc<Plan>,
    pieces: Pieces,
    cells: Cells,
    source: Source,
    /// What is written, and checked.
    pub data: Data,
    checks: Option<Checks>,
    progress: Progress,
    clockwork: Clockwork,
    spin_ns: i64,
    /// Nothing is issued: recorded results are taken for what the kernel would say.
    skip_calls: bool,
    privilege: Privilege,
    shift_ns: AtomicI64,
    spun_ns: AtomicI64,
    load: LoadGate,
    /// Time 0 on the monotonic clock.
    epoch_ns: AtomicI64,
    ended_ns: Box<[AtomicI64]>,
    scribe: Scribe,
    warnings: Mutex<Vec<String>>,
    live: Mutex<usize>,
    none_live: Condvar,
    /// Threads that nobody makes have what they begin with, their locks among it, and nobody else has it any more.
    all_begun: Gate,
    /// Descriptors of [`Begin::opens`](crate::plan::initial_descriptors::Begin::opens), in the table of the thread that starts all.
    opened: OnceLock<Vec<i32>>,
    #[cfg(test)]
    planted: faults::Planted,
}

/// Opens once.
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

/// A descriptor table in use; whoever drops it last closes what is open.
type Group = Arc<()>;

impl World {
    /// Ready to start.
    pub fn new(
        plan: Plan,
        source: Source,
        (data, prepared): (Data, HashMap<u64, i64>),
        manner: Manner,
        privilege: Privilege,
    ) -> Result<Self, ReplayError> {
        let checks = data.is_checked().then(|| {
            let files = plan.keys.files().iter();
            let left = |(file, key): (&i64, &u64)| Some((*file, plan.keys.written.left(*file, *prepared.get(key)?)));
            Checks::new(files.filter_map(left))
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
            clockwork: manner.clockwork,
            spin_ns: manner.spin_ns,
            skip_calls: manner.skip_calls,
            privilege,
            shift_ns: AtomicI64::new(0),
            spun_ns: AtomicI64::new(0),
            load: LoadGate::default(),
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

    /// Opens and maps what threads have before their first step. Called by the thread inside the target that is to call
    /// [`Self::run`], and that has no descriptor open. What could not be done.
    pub fn begin(&self, filler: &Filler) -> Vec<String> {
        let (fds, mut warnings) = open_all(&self.plan, &self.cells, filler);
        if self.plan.from_top {
            warnings.extend(self.cells.open_top().err().map(|e| format!("opening the target's root: {e}")));
        }
        warnings.extend(take_initial_locks::take_shared(&self.plan, &fds));
        // Asked once.
        let _ = self.opened.set(fds);
        warnings
    }

    /// Runs everything from time 0, which is `lead_ns` from now; called by a thread inside the target that has
    /// no descriptor open but what [`Self::begin`] opened. Returns when the last thread has ended.
    pub fn run(self: &Arc<Self>, lead_ns: i64) {
        self.epoch_ns.store(monotonic_ns() + lead_ns, SeqCst);
        let roots = || self.plan.tasks.iter().enumerate().filter(|(_, t)| t.at_start && !t.program.is_empty());
        if self.clockwork.pace == Pace::Load {
            roots().for_each(|(i, t)| self.load.set(i as u32, t.first_turn_ns));
        }
        for (i, task) in roots() {
            // At pace max a thread without a recorded parent is free at once; else it computes until it acts.
            let free = matches!(self.clockwork.pace, Pace::Max | Pace::Load);
            let recorded_ns = if free { task.start_ns } else { 0 };
            self.start(i as u32, Base { recorded_ns, ..Base::default() }, None);
        }
        if !self.skip_calls {
            // Those who need what was open at the start have it.
            close_all();
        }
        // Not before: what is open here, too, keeps its locks.
        self.all_begun.open();
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        while *live > 0 {
            live = self.none_live.wait(live).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Time 0 on the monotonic clock.
    pub fn epoch_ns(&self) -> i64 {
        self.epoch_ns.load(SeqCst)
    }

    /// By how much the schedule moved later for all threads.
    pub fn shift_ns(&self) -> i64 {
        self.shift_ns.load(SeqCst)
    }

    /// Time spent spinning before deadlines; times without a CPU meanwhile are in it.
    pub fn spun_ns(&self) -> i64 {
        self.spun_ns.load(SeqCst)
    }

    /// What happened; to be called after the end, once.
    pub fn take_outcomes(&self) -> Result<Outcomes, ReplayError> {
        self.scribe.finish()
    }

    /// What checking of data found; `None` when it was not wanted.
    pub fn checked(&self) -> Option<DataCheck> {
        self.checks.as_ref().map(Checks::found)
    }

    /// What went wrong beside results.
    pub fn take_warnings(&self) -> Vec<String> {
        let mut all = std::mem::take(&mut *self.warnings.lock().unwrap_or_else(PoisonError::into_inner));
        all.extend(self.cells.direct.told());
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

    /// Makes the thread of `task` and waits until it has its own tables.
    fn start(self: &Arc<Self>, task: u32, base: Base, parent: Option<&Group>) {
        let ready = Arc::new(AtomicU32::new(0));
        let (world, signal) = (self.clone(), ready.clone());
        let shared = self.plan.tasks[task as usize].clone_flags & clone::FILES != 0;
        let group = parent.filter(|_| shared).cloned().unwrap_or_default();
        let is_root = parent.is_none();
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let made = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            world.be_born(task, is_root);
            signal.store(1, SeqCst);
            // Waking fails only for a bad address.
            let _ = futex::wake(&signal, futex::Flags::PRIVATE, 1);
            if is_root && !world.plan.begin.opens.is_empty() {
                world.all_begun.wait();
            }
            world.live(task, base, group);
        });
        if let Err(e) = made {
            self.warn(format!("a thread could not be made ({e}); its operations were not issued"));
            self.abandon(task);
            self.leave();
            return;
        }
        while ready.load(SeqCst) == 0 {
            let _ = futex::wait(&ready, futex::Flags::PRIVATE, 0, None);
        }
    }

    /// Those who wait for a thread that will never run must not wait for ever.
    fn abandon(&self, task: u32) {
        self.progress.finish(task);
        self.load.set(task, None);
        for child in self.plan.tasks[task as usize].program.spawned() {
            self.abandon(*child);
        }
    }

    fn leave(&self) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        *live -= 1;
        if *live == 0 {
            self.none_live.notify_all();
        }
    }

    /// What fork does: tables of its own, with the parent's contents, unless shared.
    fn be_born(&self, task: u32, is_root: bool) {
        let plan = &self.plan.tasks[task as usize];
        let mut flags = UnshareFlags::empty();
        flags.set(UnshareFlags::FS, is_root || plan.clone_flags & clone::FS == 0);
        flags.set(UnshareFlags::FILES, is_root || plan.clone_flags & clone::FILES == 0);
        if self.skip_calls {
            return;
        }
        // SAFETY: descriptors are plain numbers to this thread, owned by no Rust value.
        if let Err(e) = unsafe { unshare_unsafe(flags) } {
            self.warn(format!("a thread could not get tables of its own: {e}"));
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
            // SAFETY: open in the table this thread has got a copy of.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw((*fd).max(0)) };
            if let Err(e) = rustix::process::fchdir(fd) {
                told("entering the working directory, which was removed,", &root.cwd, e);
            }
        } else if let Err(e) = rustix::process::chdir(seen_from(&root.cwd, &root.root_of_starter)) {
            told("entering the working directory", &root.cwd, e);
        }
        // Tables begin with all that anybody has open: what is not this one's closes.
        let mut mine = HashSet::new();
        for (open, slot) in &root.fds {
            let Some(fd) = opened.get(*open as usize).copied().filter(|fd| *fd >= 0) else { continue };
            if mine.insert(fd) {
                self.cells.set(*slot, fd);
            } else {
                // SAFETY: plain numbers; open in this thread's table.
                self.cells.set(*slot, unsafe { libc::dup(fd) });
            }
        }
        if is_root {
            for fd in opened.iter().filter(|fd| **fd >= 0 && !mine.contains(fd)) {
                // SAFETY: likewise.
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

    /// `is_root`: it has all rights yet, as the thread that starts the replay; else those of another.
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
        // Sleeps end on time rather than up to 50 us late; threads made from here inherit it.
        // SAFETY: plain integers.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        let issuer = Issuer::new(&self.cells, &self.source, &self.data, self.plan.set_ids);
        let rings = Rings::new(&self.cells, &self.source, &self.data, &self.plan.ring_flags);
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
            // What a process leaves open closes at its end; done here, since a thread's own end may come
            // after those who wait for it go on.
            // SAFETY: closes numbers that only this group used.
            unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
        }
        self.progress.finish(task);
        self.leave();
    }
}
