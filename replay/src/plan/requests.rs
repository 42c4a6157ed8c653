//! Plans io_uring and AIO requests: one step submits a request, in batches as recorded, and a later one waits for its
//! end.
//!
//! A request takes effect in the model when it ends. What it waits for is determined when it is submitted.

use std::collections::{HashMap, HashSet};

use ioreel_traces::{Text, text::from_bytes};

use crate::{
    Call, Skip,
    model::{
        names::{Kind, NO_NODE, ROOT},
        operands::{BAD_FD, Operands},
        processes::Entry,
    },
    plan::resources::Resources,
    plan::{
        planner::Planner,
        program::{Act, Range},
    },
    reel::{
        input::{NO_FD, NO_ID, NONE, Rec},
        submission::{Phase, Via, sqe},
    },
};

/// A request between submission and end.
#[derive(Clone, Debug)]
pub(crate) enum Submitted {
    /// Issued, with substitute paths. These are kept as text, because indices may change until it ends.
    Issued(Operands, [Option<Text>; 2]),
    /// Skipped.
    LeftOut(Skip),
}

/// The last request that a thread submitted.
#[derive(Clone, Copy, Debug)]
struct Last {
    via: Via,
    ring: i64,
    start_ns: i64,
    links: bool,
    /// It starts only after earlier ones have ended.
    follows: bool,
    /// Its result cancels the request linked to it.
    breaks: bool,
    /// It, or an earlier one in its chain, is skipped.
    broken: bool,
}

/// A file that is open only in a slot of a ring's file table.
#[derive(Clone, Copy, Debug)]
struct Direct {
    /// The thread that opened it.
    task: u32,
    /// Id of its open file description in the reel.
    recorded: i64,
    /// Its index in the model; only before a slice.
    ofd: Option<u32>,
    /// Why it is not opened in the replay.
    skip: Option<Skip>,
}

/// Relation of a request to the previous one of its thread.
#[derive(Clone, Copy, Debug, Default)]
struct Joined {
    /// Submitted by the same call.
    batch: bool,
    /// Cancelled by the previous one.
    cancels: bool,
    /// An earlier one in its chain is skipped.
    broken: bool,
}

/// What the planner knows about requests.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Requests in flight, by row.
    open: HashMap<u32, Submitted>,
    /// By thread.
    last: HashMap<u32, Last>,
    /// Requests that have not ended, also before a slice: by row, and their number by thread.
    under_way: HashSet<u32>,
    of_thread: HashMap<u32, u32>,
    /// Threads that ended before their requests.
    leaving: HashSet<u32>,
    /// By thread: it has entered a submitting call and submitted nothing since.
    fresh: HashMap<u32, bool>,
    /// Files opened directly into a ring's table, by ring and slot.
    direct: HashMap<(i64, i32), Direct>,
    /// Those open when the slice starts: the descriptor that stands in for each slot.
    stand_in_of: HashMap<(i64, i32), i32>,
    stand_ins: i32,
    /// Number of calls about rings, which are carried out by the requests.
    pub(crate) implied: i64,
}

impl Requests {
    /// A descriptor number for a slot, which no recorded descriptor has.
    fn stand_in(&mut self) -> i32 {
        self.stand_ins += 1;
        i32::MAX - self.stand_ins
    }
}

/// Whether a request opens a file directly into a ring's table, or closes one there.
pub(crate) fn is_of_table(r: &Rec) -> bool {
    r.via == Via::Uring && r.sqe_flags & sqe::DIRECT != 0 && (r.call.opens() || r.call == Call::Close)
}

impl Planner {
    /// Plans a record that is not an operation of its own.
    pub(crate) fn request(&mut self, r: &Rec) {
        let task = r.task as usize;
        match r.phase {
            Phase::Entered => {
                self.requests.fresh.insert(r.task, true);
            }
            Phase::Returned => {
                if !self.programs.before_slice {
                    self.requests.implied += 1;
                    if self.machine.processes.of(task).alive {
                        let [entered_ns, recorded_ns] =
                            [r.start_ns, r.end_ns].map(|ns| ns.saturating_sub(self.programs.zero_ns));
                        self.programs.push(task, Act::Returned { entered_ns, recorded_ns }, i64::MAX, |_| ());
                    }
                }
            }
            _ => self.submit(r),
        }
    }

    fn submit(&mut self, r: &Rec) {
        let Joined { batch: joins, cancels, broken } = self.joins_batch(r);
        if !r.in_flight && !self.machine.processes.of(r.task as usize).ended && self.requests.under_way.insert(r.row) {
            *self.requests.of_thread.entry(r.task).or_default() += 1;
        }
        if self.programs.before_slice
            || r.turn_ns >= self.options.slice.to_ns
            || self.machine.processes.of(r.task as usize).ended
        {
            return;
        }
        if !self.machine.processes.of(r.task as usize).alive {
            self.start_root(r.task as usize);
        }
        let mut kept = r.clone();
        kept.ended_before = self.programs.dependencies.ended();
        kept.follows = self.requests.last.get(&r.task).is_some_and(|l| l.follows);
        let v = self.operands_of_request(&mut kept);
        // The cause of its refusal is not in the reel.
        let refused = r.sqe_flags & sqe::REFUSED != 0 || r.call == Call::Close && r.ret == -i64::from(libc::EINVAL);
        // A cancellation recurs only if the recorded cause is known and recurs: it is in the plan, and scaled files may
        // not make it succeed.
        let unsure = broken || !cancels || !self.machine.footprint.is_none();
        let cancelled = unsure && r.ret == -i64::from(libc::ECANCELED);
        // The descriptor was closed before the kernel worker looked it up. The replay may have another timing.
        let closed_early = r.sqe_flags & sqe::ASYNC != 0 && v.entry.is_some() && r.ret == -i64::from(libc::EBADF);
        if let Some(why) = v.skip.or((refused || cancelled || closed_early).then_some(Skip::ForeignCause)) {
            if let Some(last) = self.requests.last.get_mut(&r.task) {
                last.broken = true;
            }
            self.requests.open.insert(r.row, Submitted::LeftOut(why));
            return;
        }
        kept.file = self.machine.file_of_request(&kept, &v);
        self.machine.leave_out_set_ids(&mut kept, v.node);
        kept.regular = self.machine.is_regular(&kept, &v);
        if kept.cut_short(None)
            && let Some(last) = self.requests.last.get_mut(&r.task)
        {
            // It cancelled the request linked to it, but succeeds now.
            last.broken = true;
        }
        let rooted = v.rooted.map(|path| path.map(|path| from_bytes(self.machine.reel.texts.paths.bytes(path))));
        self.requests.open.insert(r.row, Submitted::Issued(v, rooted));
        self.from_top |= v.substitute_paths(&mut kept);
        let act = Act::Submit { rec: 0, fd: v.fd, fd2: v.fd2, joins };
        let alike = Act::Call { rec: 0, fd: v.fd, fd2: v.fd2, slot: NONE, list: Range::default() };
        self.programs.push_call(&mut self.machine, act, kept.clone(), |machine, order, lists, _| {
            Resources { machine, order, lists }.uses(&kept, &v, &alike);
        });
    }

    fn joins_batch(&mut self, r: &Rec) -> Joined {
        let fresh = self.requests.fresh.insert(r.task, false).unwrap_or(true);
        let fell = r.ret < 0 || (r.call.reads() || r.call.writes()) && r.ret < r.len_bytes;
        let now = Last {
            via: r.via,
            ring: r.ring,
            start_ns: r.start_ns,
            links: r.sqe_flags & (sqe::LINK | sqe::HARDLINK) != 0,
            follows: r.sqe_flags & sqe::DRAIN != 0,
            breaks: r.sqe_flags & sqe::LINK != 0 && fell,
            broken: false,
        };
        let last = self.requests.last.insert(r.task, now).filter(|l| (l.via, l.ring) == (r.via, r.ring));
        let by_kernel = r.sqe_flags & sqe::BY_KERNEL != 0;
        // A chain ends with the call that submits it.
        let linked_to = last.filter(|l| l.links && (by_kernel || !fresh));
        self.races.submitted(r, linked_to.is_some());
        let broken = linked_to.is_some_and(|l| l.broken);
        if let Some(now) = self.requests.last.get_mut(&r.task) {
            now.broken = broken;
            now.follows |= linked_to.is_some();
        }
        let same_call = last.is_some_and(|l| match r.via {
            // All requests of one io_submit start with it.
            Via::Aio => l.start_ns == r.start_ns,
            _ => !fresh && !by_kernel,
        });
        Joined { batch: same_call || linked_to.is_some(), cancels: linked_to.is_some_and(|l| l.breaks), broken }
    }

    /// Resolves the operands of a request. Its descriptors may be slots of the ring's table.
    pub(crate) fn operands_of_request(&mut self, r: &mut Rec) -> Operands {
        let direct = r.via == Via::Uring && r.sqe_flags & sqe::DIRECT != 0;
        if direct && r.call.opens() {
            if r.fd2 == -1 && r.ret >= 0 {
                // The kernel chose the slot. The replay asks for the same one.
                r.fd2 = r.ret as i32;
            }
            let v = self.machine.operands(r);
            if v.skip.is_none() && r.ret >= 0 {
                // Linked requests are submitted before this one ends.
                self.requests
                    .direct
                    .insert((r.ring, r.fd2), Direct { task: r.task, recorded: r.ofd, ofd: None, skip: None });
            }
            return v;
        }
        if r.sqe_flags & sqe::FIXED == 0 && !direct {
            return self.machine.operands(r);
        }
        let slot = r.fd;
        // Another file may have been registered in the slot since.
        let opened = self.requests.direct.get(&(r.ring, slot));
        let here = |d: &&Direct| d.task == r.task && (d.recorded == r.ofd || [d.recorded, r.ofd].contains(&NO_ID));
        let opened = opened.filter(here);
        if opened.is_some() || r.file == NO_ID && r.ret < 0 {
            let skip = if r.in_flight { Some(Skip::InFlight) } else { None };
            let entry = opened.and_then(|d| d.ofd).map(|ofd| Entry { slot: Ok(0), ofd, cloexec: false });
            return Operands { fd: BAD_FD, skip, entry, ..Operands::none() };
        }
        let before = self.requests.stand_in_of.get(&(r.ring, slot)).copied().filter(|_| direct);
        r.fd = self.machine.registered(r).or(before).unwrap_or(NO_FD);
        let mut v = self.machine.operands(r);
        r.fd = slot;
        if v.entry.is_none() {
            v.skip = v.skip.or(Some(Skip::UnknownFd));
        }
        v
    }

    /// A thread ends: not before its requests, since others may wait for those. Returns whether it ends later.
    pub(crate) fn leaves_later(&mut self, task: usize) -> bool {
        let task = task as u32;
        self.requests.of_thread.get(&task).is_some_and(|n| *n > 0) && {
            self.requests.leaving.insert(task);
            true
        }
    }

    /// A request has ended. Returns whether it was the last one of a thread that waits to end.
    pub(crate) fn came_back(&mut self, r: &Rec) -> bool {
        if self.requests.under_way.remove(&r.row)
            && let Some(n) = self.requests.of_thread.get_mut(&r.task)
        {
            *n -= 1;
        }
        self.requests.of_thread.get(&r.task).is_none_or(|n| *n == 0) && self.requests.leaving.remove(&r.task)
    }

    /// The operands of an ended request as of its submission. `None` if its submission is not in the plan: it is then
    /// issued as a call.
    pub(crate) fn ended(&mut self, r: &Rec) -> Option<Operands> {
        match self.requests.open.remove(&r.row)? {
            Submitted::Issued(v, rooted) => {
                let rooted = rooted.map(|path| path.map(|path| self.machine.reel.texts.intern(&path)));
                Some(Operands { rooted, ..v })
            }
            Submitted::LeftOut(why) => {
                // A slot number is not a descriptor number.
                let by_slot = r.sqe_flags & (sqe::FIXED | sqe::DIRECT) != 0;
                let v = if by_slot { Operands::none() } else { self.machine.operands(r) };
                Some(Operands { skip: Some(why), ..v })
            }
        }
    }

    /// A file was opened into or closed in a ring's table. Returns whether the request was about one.
    pub(crate) fn direct_change(&mut self, r: &Rec, v: &Operands) -> bool {
        if !is_of_table(r) {
            return false;
        }
        let closes = r.call == Call::Close;
        let slot = match (closes, r.fd2) {
            (true, _) => r.fd,
            (false, -1) => r.ret as i32,
            (false, slot) => slot,
        };
        if self.programs.before_slice || closes {
            let gone = self.requests.direct.remove(&(r.ring, slot)).and_then(|d| d.ofd);
            let last = gone.and_then(|ofd| self.machine.processes.unref(ofd));
            self.closed(last);
        }
        let task = r.task as usize;
        if let Some(fd) = self.requests.stand_in_of.remove(&(r.ring, slot)) {
            let (old, last) = self.machine.processes.remove(task, fd);
            if let Some(cell) = old.and_then(|e| e.slot.ok()) {
                let list = self.programs.slot_list(task, [cell]);
                self.programs.push(task, Act::Close(list), i64::MAX, |_| ());
            }
            self.closed(last);
        }
        if self.programs.before_slice && !closes {
            let kind = self.machine.reel.files.get(&r.file).map_or(Kind::Unknown, |f| f.kind);
            let node = if v.node == NO_NODE { ROOT } else { v.node };
            let ofd = self.new_ofd(node, r.file, kind, Some(0), r.flags as i32);
            let of_slot = &mut self.machine.processes.ofds[ofd as usize];
            (of_slot.recorded, of_slot.refs, of_slot.mount) = (r.ofd, 1, v.mount);
            let direct = Direct { task: r.task, recorded: r.ofd, ofd: Some(ofd), skip: v.skip };
            self.requests.direct.insert((r.ring, slot), direct);
        }
        true
    }

    /// Opens a file into a ring's table, or closes one there, by a call, because the submission was before the slice. A
    /// descriptor stands in for the slot.
    pub(crate) fn outside_table(&mut self, r: &mut Rec) {
        if !is_of_table(r) {
            return;
        }
        if r.call == Call::Close {
            r.fd = self.requests.stand_in_of.remove(&(r.ring, r.fd)).unwrap_or(NO_FD);
        } else if r.ret >= 0 {
            let slot = if r.fd2 == -1 { r.ret as i32 } else { r.fd2 };
            let fd = self.requests.stand_in();
            r.ret = fd.into();
            self.requests.stand_in_of.insert((r.ring, slot), fd);
        }
    }

    /// At the start of a slice: files that are open only in ring slots are opened with stand-in descriptors, and
    /// registered from those.
    pub(crate) fn direct_at_slice_start(&mut self) {
        let mut open: Vec<_> = self.requests.direct.drain().collect();
        open.sort_unstable_by_key(|(place, _)| *place);
        for (place, direct) in open {
            let task = direct.task as usize;
            if let Some(ofd) = direct.ofd.filter(|_| self.machine.processes.of(task).alive) {
                let slot = direct.skip.map_or_else(|| Ok(self.machine.processes.new_slot(task)), Err);
                let fd = self.requests.stand_in();
                self.machine.processes.install(task, fd, Entry { slot, ofd, cloexec: true });
                self.machine.processes.unref(ofd);
                self.requests.stand_in_of.insert(place, fd);
            }
        }
    }
}
