//! Requests to io_uring and of Linux AIO in the plan: a step that submits each, in batches as they were, and one later on
//! where its end is waited for.
//!
//! The model learns of a request when it ends, like of any operation; what it waits for is found when it is submitted.

use std::collections::HashMap;

use crate::{
    Call, Skip,
    input::{NO_FD, NO_ID, NONE, Rec},
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

/// What the planner knows of requests.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Those in flight, by row.
    open: HashMap<u32, Submitted>,
    /// By thread.
    last: HashMap<u32, Last>,
    /// Threads that have entered a call which submits, and submitted nothing since.
    fresh: HashMap<u32, bool>,
    /// Files that were opened right into a ring's table: by ring and slot, the thread and the open file description.
    direct: HashMap<(i64, i32), (u32, i64)>,
    /// Open file descriptions by their recorded number.
    pub(crate) ofds: HashMap<i64, u32>,
    /// Calls that made, entered or ended rings: carried out by the requests.
    pub(crate) implied: i64,
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
        let (joins, broken) = self.joins_batch(r);
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
        let cancelled = broken && r.ret == -i64::from(libc::ECANCELED);
        if let Some(why) = v.skip.or((refused || cancelled).then_some(Skip::ForeignCause)) {
            if let Some(last) = self.requests.last.get_mut(&r.task) {
                last.broken = true;
            }
            self.requests.open.insert(r.row, Submitted::LeftOut(why));
            return;
        }
        kept.file = self.file_of_request(&kept, &v);
        kept.regular = self.is_regular(&kept, &v);
        if kept.cut_short()
            && let Some(last) = self.requests.last.get_mut(&r.task)
        {
            // It cancelled what is linked to it, which it does no more.
            last.broken = true;
        }
        self.requests.open.insert(r.row, Submitted::Issued(v));
        let act = Act::Submit { rec: 0, fd: v.fd, fd2: v.fd2, joins };
        let alike = Act::Call { rec: 0, fd: v.fd, fd2: v.fd2, slot: NONE, list: Range::default() };
        self.push_call(act, kept.clone(), |p, _| p.uses(&kept, &v, &alike));
    }

    /// Whether it was submitted by the same call as the one before; and whether one that it is linked to is left out.
    fn joins_batch(&mut self, r: &Rec) -> (bool, bool) {
        let fresh = self.requests.fresh.insert(r.task, false).unwrap_or(true);
        let links = r.sqe_flags & (sqe::LINK | sqe::HARDLINK) != 0;
        let now = Last { via: r.via, ring: r.ring, start_ns: r.start_ns, links, broken: false };
        let Some(last) = self.requests.last.insert(r.task, now) else { return (false, false) };
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
        (same_ring && (same_call || last.links), broken)
    }

    /// What a request refers to; its own descriptors may be slots of the ring's table.
    fn view_of_request(&mut self, r: &mut Rec) -> View {
        let direct = r.via == Via::Uring && r.sqe_flags & sqe::DIRECT != 0;
        if direct && r.call.opens() {
            if r.fd2 == -1 && r.ret >= 0 {
                // The kernel chose the slot: it is asked for now.
                r.fd2 = r.ret as i32;
            }
            let v = self.view(r);
            if v.skip.is_none() && r.ret >= 0 {
                // What is linked to it is submitted before it ends.
                self.requests.direct.insert((r.ring, r.fd2), (r.task, r.ofd));
            }
            return v;
        }
        if r.sqe_flags & sqe::FIXED == 0 && !direct {
            return self.view(r);
        }
        let slot = r.fd;
        // Another file may have been registered there since.
        let opened = self.requests.direct.get(&(r.ring, slot));
        let here = |(task, ofd): &(u32, i64)| *task == r.task && (*ofd == r.ofd || [*ofd, r.ofd].contains(&NO_ID));
        if opened.is_some_and(here) || r.file == NO_ID && r.ret < 0 {
            let skip = if r.in_flight { Some(Skip::InFlight) } else { None };
            return View { fd: BAD_FD, skip, ..View::none() };
        }
        r.fd = self.registered(r).unwrap_or(NO_FD);
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

    /// What an ended request referred to when it was submitted; `None` when it is to be issued as a call, since its submission
    /// is not in the plan.
    pub(crate) fn ended(&mut self, r: &Rec) -> Option<View> {
        match self.requests.open.remove(&r.row)? {
            Submitted::Issued(v) => Some(v),
            Submitted::LeftOut(why) => Some(View { skip: Some(why), ..self.view(r) }),
        }
    }

    /// A file was opened into, or closed in, a ring's table. Whether the request was about one.
    pub(crate) fn direct_change(&mut self, r: &Rec) -> bool {
        if r.via != Via::Uring || r.sqe_flags & sqe::DIRECT == 0 {
            return false;
        }
        match r.call {
            c if c.opens() => true,
            Call::Close => {
                self.requests.direct.remove(&(r.ring, r.fd));
                true
            }
            _ => false,
        }
    }
}
