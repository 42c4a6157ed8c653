//! Requests to io_uring and of Linux AIO in the plan: a step that submits each, in batches as they were, and one later on
//! where its end is waited for.
//!
//! The model learns of a request when it ends, like of any operation; what it waits for is found when it is submitted.

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

/// A request between its submission and its end.
#[derive(Clone, Debug)]
pub(crate) enum Submitted {
    /// It is issued, by these paths from the target's root: texts may be forgotten until it ends.
    Issued(Operands, [Option<Text>; 2]),
    /// It is left out.
    LeftOut(Skip),
}

/// The last request that a thread submitted.
#[derive(Clone, Copy, Debug)]
struct Last {
    via: Via,
    ring: i64,
    start_ns: i64,
    links: bool,
    /// It begins when what was submitted before it has ended.
    follows: bool,
    /// What is linked to it is cancelled by its own result.
    breaks: bool,
    /// It, or one before it in its chain, is left out.
    broken: bool,
}

/// A file that only a slot of a ring's table knows.
#[derive(Clone, Copy, Debug)]
struct Direct {
    /// The thread that opened it.
    task: u32,
    /// Its open file description, by its recorded number.
    recorded: i64,
    /// And in the model: followed up to a slice alone.
    ofd: Option<u32>,
    /// Why it is not opened in the replay.
    skip: Option<Skip>,
}

/// How a request belongs to the one that its thread submitted before it.
#[derive(Clone, Copy, Debug, Default)]
struct Joined {
    /// By the same call.
    batch: bool,
    /// That one cancels it.
    cancels: bool,
    /// One of its chain is left out.
    broken: bool,
}

/// What the planner knows of requests.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Those in flight, by row.
    open: HashMap<u32, Submitted>,
    /// By thread.
    last: HashMap<u32, Last>,
    /// Those that have not ended, by row, and how many of each thread. Before a slice, too.
    under_way: HashSet<u32>,
    of_thread: HashMap<u32, u32>,
    /// Threads that ended before their requests did.
    leaving: HashSet<u32>,
    /// Threads that have entered a call which submits, and submitted nothing since.
    fresh: HashMap<u32, bool>,
    /// Files that were opened right into a ring's table, by ring and slot.
    direct: HashMap<(i64, i32), Direct>,
    /// Those that were open so before the slice: the descriptors that stand for them.
    stand_in_of: HashMap<(i64, i32), i32>,
    stand_ins: i32,
    /// Calls that made, entered or ended rings: carried out by the requests.
    pub(crate) implied: i64,
}

impl Requests {
    /// The number of a descriptor that stands for a slot, which no recorded one has.
    fn stand_in(&mut self) -> i32 {
        self.stand_ins += 1;
        i32::MAX - self.stand_ins
    }
}

/// Whether it opens a file right into a ring's table, or closes one there.
pub(crate) fn is_of_table(r: &Rec) -> bool {
    r.via == Via::Uring && r.sqe_flags & sqe::DIRECT != 0 && (r.call.opens() || r.call == Call::Close)
}

impl Planner {
    /// A record that is no operation by itself.
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
        // What refused it is not in the reel; and what it cancelled would not be, with it left out.
        let refused = r.sqe_flags & sqe::REFUSED != 0 || r.call == Call::Close && r.ret == -i64::from(libc::EINVAL);
        // Nor would it where nothing that is known did, or where that may not fall short again.
        let unsure = broken || !cancels || !self.machine.footprint.is_none();
        let cancelled = unsure && r.ret == -i64::from(libc::ECANCELED);
        // The descriptor was closed before the thread that carries it out had looked, which may be otherwise now.
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
            // It cancelled what is linked to it, which it does no more.
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
            // All that one io_submit took begin with it.
            Via::Aio => l.start_ns == r.start_ns,
            _ => !fresh && !by_kernel,
        });
        Joined { batch: same_call || linked_to.is_some(), cancels: linked_to.is_some_and(|l| l.breaks), broken }
    }

    /// What a request refers to; its own descriptors may be slots of the ring's table.
    pub(crate) fn operands_of_request(&mut self, r: &mut Rec) -> Operands {
        let direct = r.via == Via::Uring && r.sqe_flags & sqe::DIRECT != 0;
        if direct && r.call.opens() {
            if r.fd2 == -1 && r.ret >= 0 {
                // The kernel chose the slot: it is asked for now.
                r.fd2 = r.ret as i32;
            }
            let v = self.machine.operands(r);
            if v.skip.is_none() && r.ret >= 0 {
                // What is linked to it is submitted before it ends.
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
        // Another file may have been registered there since.
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

    /// A thread ends: not before its requests do, which others may wait for. Whether it does so later.
    pub(crate) fn leaves_later(&mut self, task: usize) -> bool {
        let task = task as u32;
        self.requests.of_thread.get(&task).is_some_and(|n| *n > 0) && {
            self.requests.leaving.insert(task);
            true
        }
    }

    /// A request has ended; whether it was the last of a thread that waits to end.
    pub(crate) fn came_back(&mut self, r: &Rec) -> bool {
        if self.requests.under_way.remove(&r.row)
            && let Some(n) = self.requests.of_thread.get_mut(&r.task)
        {
            *n -= 1;
        }
        self.requests.of_thread.get(&r.task).is_none_or(|n| *n == 0) && self.requests.leaving.remove(&r.task)
    }

    /// What an ended request referred to when it was submitted; `None` when it is to be issued as a call, since its submission
    /// is not in the plan.
    pub(crate) fn ended(&mut self, r: &Rec) -> Option<Operands> {
        match self.requests.open.remove(&r.row)? {
            Submitted::Issued(v, rooted) => {
                let rooted = rooted.map(|path| path.map(|path| self.machine.reel.texts.intern(&path)));
                Some(Operands { rooted, ..v })
            }
            Submitted::LeftOut(why) => {
                // A slot's number is no descriptor's.
                let by_slot = r.sqe_flags & (sqe::FIXED | sqe::DIRECT) != 0;
                let v = if by_slot { Operands::none() } else { self.machine.operands(r) };
                Some(Operands { skip: Some(why), ..v })
            }
        }
    }

    /// A file was opened into, or closed in, a ring's table. Whether the request was about one.
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
            (of_slot.recorded, of_slot.refs) = (r.ofd, 1);
            let direct = Direct { task: r.task, recorded: r.ofd, ofd: Some(ofd), skip: v.skip };
            self.requests.direct.insert((r.ring, slot), direct);
        }
        true
    }

    /// A file is opened into a ring's table, or closed there, by a call, since its submission came before the slice: a descriptor
    /// stands for the slot.
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

    /// A slice begins: files that only slots know are opened by descriptors that the recorded program had no use for, and
    /// registered by them.
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
