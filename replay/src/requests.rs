//! Requests to io_uring and of Linux AIO in the plan: a step that submits each, in batches as they were, and one later on
//! where its end is waited for.
//!
//! The model learns of a request when it ends, like of any operation; what it waits for is found when it is submitted.

use std::collections::{HashMap, HashSet};

use crate::{
    Call, Skip,
    input::{NO_FD, NO_ID, NONE, Rec},
    names::Kind,
    plan::{Act, BAD_FD, Range},
    planner::Planner,
    procs::Entry,
    via::{Phase, Via, sqe},
    view::View,
};

/// A request between its submission and its end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Submitted {
    /// It is issued.
    Issued(View),
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
}

/// How a request belongs to the one that its thread submitted before it.
#[derive(Clone, Copy, Debug, Default)]
struct Joined {
    /// By the same call.
    batch: bool,
    /// That one links to it.
    linked: bool,
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
    /// How many of a thread's are issued and have not ended.
    under_way: HashMap<u32, u32>,
    /// Threads that ended before their requests did.
    leaving: HashSet<u32>,
    /// Threads that have entered a call which submits, and submitted nothing since.
    fresh: HashMap<u32, bool>,
    /// Files that were opened right into a ring's table, by ring and slot.
    direct: HashMap<(i64, i32), Direct>,
    /// Those that were open so before the slice: the descriptors that stand for them.
    before: HashMap<(i64, i32), i32>,
    stand_ins: i32,
    /// Open file descriptions by their recorded number.
    pub(crate) ofds: HashMap<i64, u32>,
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
                if !self.silent {
                    self.requests.implied += 1;
                    if self.procs.of(task).alive {
                        let [entered_ns, recorded_ns] =
                            [r.start_ns, r.end_ns].map(|ns| ns.saturating_sub(self.zero_ns));
                        self.push(task, Act::Returned { entered_ns, recorded_ns }, i64::MAX, |_| ());
                    }
                }
            }
            _ => self.submit(r),
        }
    }

    fn submit(&mut self, r: &Rec) {
        let Joined { batch: joins, linked, broken } = self.joins_batch(r);
        if self.silent || r.turn_ns >= self.options.slice.to_ns || self.procs.of(r.task as usize).ended {
            return;
        }
        if !self.procs.of(r.task as usize).alive {
            self.start_root(r.task as usize);
        }
        let mut kept = r.clone();
        kept.ended_before = self.order.ended();
        let v = self.view_of_request(&mut kept);
        // What refused it is not in the reel; and what it cancelled would not be, with it left out.
        let refused = r.sqe_flags & sqe::REFUSED != 0 || r.call == Call::Close && r.ret == -i64::from(libc::EINVAL);
        // Nor would it where nothing that is known did, or where that may not fall short again.
        let unsure = broken || !linked || !self.options.scale.is_none();
        let cancelled = unsure && r.ret == -i64::from(libc::ECANCELED);
        // The descriptor was closed before the thread that carries it out had looked, which may be otherwise now.
        let late = r.sqe_flags & sqe::ASYNC != 0 && v.entry.is_some() && r.ret == -i64::from(libc::EBADF);
        if let Some(why) = v.skip.or((refused || cancelled || late).then_some(Skip::ForeignCause)) {
            if let Some(last) = self.requests.last.get_mut(&r.task) {
                last.broken = true;
            }
            self.requests.open.insert(r.row, Submitted::LeftOut(why));
            return;
        }
        kept.file = self.file_of_request(&kept, &v);
        kept.regular = self.is_regular(&kept, &v);
        if kept.cut_short(None)
            && let Some(last) = self.requests.last.get_mut(&r.task)
        {
            // It cancelled what is linked to it, which it does no more.
            last.broken = true;
        }
        self.requests.open.insert(r.row, Submitted::Issued(v));
        *self.requests.under_way.entry(r.task).or_default() += 1;
        let act = Act::Submit { rec: 0, fd: v.fd, fd2: v.fd2, joins };
        let alike = Act::Call { rec: 0, fd: v.fd, fd2: v.fd2, slot: NONE, list: Range::default() };
        self.push_call(act, kept.clone(), |p, _| p.uses(&kept, &v, &alike));
    }

    fn joins_batch(&mut self, r: &Rec) -> Joined {
        let fresh = self.requests.fresh.insert(r.task, false).unwrap_or(true);
        let links = r.sqe_flags & (sqe::LINK | sqe::HARDLINK) != 0;
        let now = Last { via: r.via, ring: r.ring, start_ns: r.start_ns, links, broken: false };
        let before = self.requests.last.insert(r.task, now);
        let linked = before.is_some_and(|last| (last.via, last.ring, last.links) == (r.via, r.ring, true));
        self.races.submitted(r, linked);
        let Some(last) = before else { return Joined::default() };
        let same_ring = (last.via, last.ring) == (r.via, r.ring);
        let same_call = match r.via {
            // All that one io_submit took begin with it.
            Via::Aio => last.start_ns == r.start_ns,
            _ => !fresh && r.sqe_flags & sqe::BY_KERNEL == 0,
        };
        let broken = same_ring && last.links && last.broken;
        if let Some(now) = self.requests.last.get_mut(&r.task) {
            now.broken = broken;
        }
        Joined { batch: same_ring && (same_call || last.links), linked, broken }
    }

    /// What a request refers to; its own descriptors may be slots of the ring's table.
    pub(crate) fn view_of_request(&mut self, r: &mut Rec) -> View {
        let direct = r.via == Via::Uring && r.sqe_flags & sqe::DIRECT != 0;
        if direct && r.call.opens() {
            if r.fd2 == -1 && r.ret >= 0 {
                // The kernel chose the slot: it is asked for now.
                r.fd2 = r.ret as i32;
            }
            let v = self.view(r);
            if v.skip.is_none() && r.ret >= 0 {
                // What is linked to it is submitted before it ends.
                self.requests.direct.insert((r.ring, r.fd2), Direct { task: r.task, recorded: r.ofd, ofd: None });
            }
            return v;
        }
        if r.sqe_flags & sqe::FIXED == 0 && !direct {
            return self.view(r);
        }
        let slot = r.fd;
        // Another file may have been registered there since.
        let opened = self.requests.direct.get(&(r.ring, slot));
        let here = |d: &&Direct| d.task == r.task && (d.recorded == r.ofd || [d.recorded, r.ofd].contains(&NO_ID));
        let opened = opened.filter(here);
        if opened.is_some() || r.file == NO_ID && r.ret < 0 {
            let skip = if r.in_flight { Some(Skip::InFlight) } else { None };
            let entry = opened.and_then(|d| d.ofd).map(|ofd| Entry { slot: Ok(0), ofd, cloexec: false });
            return View { fd: BAD_FD, skip, entry, ..View::none() };
        }
        let before = self.requests.before.get(&(r.ring, slot)).copied().filter(|_| direct);
        r.fd = self.registered(r).or(before).unwrap_or(NO_FD);
        let mut v = self.view(r);
        r.fd = slot;
        if v.entry.is_none() {
            v.skip = v.skip.or(Some(Skip::UnknownFd));
        }
        v
    }

    /// The file that a request is about, as its descriptor has it: on overlays requests are seen at the file below.
    pub(crate) fn file_of_request(&self, r: &Rec, v: &View) -> i64 {
        let behind = v.entry.map(|e| self.procs.ofds[e.ofd as usize].file).filter(|f| *f != NO_ID);
        if r.via == Via::Call || r.fd == NO_FD { r.file } else { behind.unwrap_or(r.file) }
    }

    /// A descriptor of the file that was registered: of the same open file description, where that is known.
    fn registered(&self, r: &Rec) -> Option<i32> {
        let table = &self.procs.tables.get(self.procs.of(r.task as usize).table)?.value;
        let ofd = self.requests.ofds.get(&r.ofd);
        // Where the description is known no other of that file will do.
        let same = |e: &Entry| match ofd {
            Some(ofd) => e.ofd == *ofd,
            None => r.file != NO_ID && self.procs.ofds[e.ofd as usize].file == r.file,
        };
        table.iter().find(|(_, e)| same(e)).map(|(fd, _)| *fd)
    }

    /// A thread ends: not before its requests do, which others may wait for. Whether it does so later.
    pub(crate) fn leaves_later(&mut self, task: usize) -> bool {
        let task = task as u32;
        self.requests.under_way.get(&task).is_some_and(|n| *n > 0) && {
            self.requests.leaving.insert(task);
            true
        }
    }

    /// Whether the last request of a thread that is at its end has ended.
    pub(crate) fn leaves_now(&mut self, task: u32) -> bool {
        self.requests.leaving.contains(&task)
            && self.requests.under_way.get(&task).is_none_or(|n| *n == 0)
            && self.requests.leaving.remove(&task)
    }

    /// What an ended request referred to when it was submitted; `None` when it is to be issued as a call, since its submission
    /// is not in the plan.
    pub(crate) fn ended(&mut self, r: &Rec) -> Option<View> {
        match self.requests.open.remove(&r.row)? {
            Submitted::Issued(v) => {
                if let Some(n) = self.requests.under_way.get_mut(&r.task) {
                    *n -= 1;
                }
                Some(v)
            }
            Submitted::LeftOut(why) => Some(View { skip: Some(why), ..self.view(r) }),
        }
    }

    /// A file was opened into, or closed in, a ring's table. Whether the request was about one.
    pub(crate) fn direct_change(&mut self, r: &Rec, v: &View) -> bool {
        if !is_of_table(r) {
            return false;
        }
        match r.call {
            Call::Close => {
                self.requests.direct.remove(&(r.ring, r.fd));
                self.requests.before.remove(&(r.ring, r.fd));
            }
            _ => {
                let slot = if r.fd2 == -1 { r.ret as i32 } else { r.fd2 };
                self.requests.before.remove(&(r.ring, slot));
                if self.silent {
                    let kind = self.input.files.get(&r.file).map_or(Kind::Unknown, |f| f.kind);
                    let ofd = self.new_ofd(v.node, r.file, kind, Some(0), r.flags as i32);
                    self.requests.ofds.insert(r.ofd, ofd);
                    let direct = Direct { task: r.task, recorded: r.ofd, ofd: Some(ofd) };
                    self.requests.direct.insert((r.ring, slot), direct);
                }
            }
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
            r.fd = self.requests.before.remove(&(r.ring, r.fd)).unwrap_or(NO_FD);
        } else if r.ret >= 0 {
            let slot = if r.fd2 == -1 { r.ret as i32 } else { r.fd2 };
            let fd = self.requests.stand_in();
            r.ret = fd.into();
            self.requests.before.insert((r.ring, slot), fd);
        }
    }

    /// A slice begins: files that only slots know are opened by descriptors that the recorded program had no use for, and
    /// registered by them.
    pub(crate) fn direct_at_border(&mut self) {
        let mut open: Vec<_> = self.requests.direct.drain().collect();
        open.sort_unstable_by_key(|(place, _)| *place);
        for (place, direct) in open {
            let task = direct.task as usize;
            if let Some(ofd) = direct.ofd.filter(|_| self.procs.of(task).alive) {
                let slot = Ok(self.procs.new_slot(task));
                let fd = self.requests.stand_in();
                self.procs.install(task, fd, Entry { slot, ofd, cloexec: true });
                self.requests.before.insert(place, fd);
            }
        }
    }
}
