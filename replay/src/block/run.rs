//! The loop that issues bios: one thread, one io_uring.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    sync::mpsc::{Receiver, TryRecvError, sync_channel},
    time::Duration,
};

use super::{
    bios::{Bios, Io, Kind},
    device::Device,
    fit::{Fitting, Place},
    order::{Edge, Order},
    result::Result as ResultReel,
    ring::{MOST_IN_FLIGHT, Ring},
};
use crate::{
    ReplayError,
    base::{clock::monotonic_ns, distribution::Times},
    plan::edge::OrderMode,
    run::pace::{Base, CatchUp, Clockwork, Pace, STALL_NS},
    verdict::{concurrency::Level, timing::Drift},
};

/// Bios read ahead of the first one that has not ended. A later bio can overtake only within this window.
const WINDOW: usize = 16 * 1024;
/// Bios that the reading thread passes at a time.
const READ: usize = 64;
/// Bios submitted at a time.
const BATCH: usize = 64;
/// With a schedule, time 0 is this far ahead, so that the first bio is not late.
const LEAD_NS: i64 = 20_000_000;

/// How bios are issued.
pub(super) struct Manner<'a> {
    pub(super) device: &'a Device,
    pub(super) fitting: &'a Fitting,
    pub(super) clockwork: Clockwork,
    pub(super) order: OrderMode,
    pub(super) spin_ns: i64,
    pub(super) longest_bytes: i64,
    pub(super) dry_run: bool,
    /// Time at which the first bio was queued, then the last.
    pub(super) span_ns: (i64, i64),
}

/// What happened, over all bios.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Time 0 on `CLOCK_MONOTONIC`.
    pub(super) epoch_ns: i64,
    pub(super) done: i64,
    pub(super) bytes: i64,
    /// Bios with a different outcome than in the original, by operation and errno. Errno 0: a short transfer.
    pub(super) differing: BTreeMap<(Kind, i32), i64>,
    pub(super) schedule: Times,
    pub(super) own: Times,
    pub(super) forced: Times,
    /// Bios issued within 10 us, 100 us and 1 ms of the deadline.
    pub(super) within: [i64; 3],
    pub(super) early: i64,
    /// Number of edges, by kind.
    pub(super) edges: BTreeMap<Edge, i64>,
    pub(super) drift_ppm: Option<f64>,
    /// Time from one issue to the next: recorded (stretched by the pace), and in the replay.
    pub(super) gaps: (Times, Times),
    /// By operation: latency in the recording, and in the replay.
    pub(super) latencies: BTreeMap<Kind, (Times, Times)>,
    pub(super) then: Level,
    pub(super) now: Level,
    pub(super) last_end_ns: i64,
    pub(super) original_last_end_ns: i64,
    /// Places that were widened to this device's blocks.
    pub(super) adjusted: i64,
    /// How often a bio had to wait because [`MOST_IN_FLIGHT`] were in flight.
    pub(super) held: i64,
    pub(super) spun_ns: i64,
    pub(super) shift_ns: i64,
    pub(super) cpu_ns: i64,
}

/// A bio from reading to end.
struct Slot {
    io: Io,
    place: Option<Place>,
    /// Number of ends and issues that it still waits for.
    unmet: usize,
    /// Bios that wait for its end, and for its issue.
    after_end: Vec<u64>,
    after_issue: Vec<u64>,
    /// When the last thing that it waited for happened.
    free_ns: i64,
    due_ns: i64,
    start_ns: i64,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// It includes a flush, which is in flight. The bio itself comes after that.
    Flushing,
    InFlight,
    Ended,
}

struct Loop<'a> {
    manner: Manner<'a>,
    ring: Ring,
    order: Order,
    slots: VecDeque<Slot>,
    /// Number of the first slot.
    base: u64,
    /// Bios that wait only for their deadline: the deadline, and the bio's number.
    ready: BinaryHeap<Reverse<(i64, u64)>>,
    /// For pace `load`: the bio whose turn it is.
    turn: u64,
    in_flight: usize,
    /// For pace `load`: since when the bio whose turn it is could be issued, by its turn and the number in flight.
    room_ns: i64,
    dry_ends: Vec<(u64, i32)>,
    drift: Drift,
    last_issue_ns: Option<i64>,
    last_queue_ns: Option<i64>,
    out: Outcome,
}

type Batch = Result<Vec<Io>, ReplayError>;

/// Issues all bios.
pub(super) fn run(mut bios: Bios, manner: Manner<'_>, result: Option<&ResultReel>) -> Result<Outcome, ReplayError> {
    let (sender, receiver) = sync_channel::<Batch>(WINDOW / READ);
    std::thread::scope(|threads| {
        // Reading blocks while a batch of rows is decoded. The loop must not.
        let reader = threads.spawn(move || {
            loop {
                let mut batch = Vec::with_capacity(READ);
                while batch.len() < READ {
                    match bios.next() {
                        Ok(Some(io)) => batch.push(io),
                        Ok(None) => break,
                        Err(e) => {
                            // If the loop has ended, it has returned its own error.
                            let _ = sender.send(Err(e));
                            return Level::default();
                        }
                    }
                }
                if batch.is_empty() || sender.send(Ok(batch)).is_err() {
                    return bios.level();
                }
            }
        });
        let pace = manner.clockwork.pace;
        let began_ns = cpu_ns();
        let mut this = Loop {
            ring: Ring::new(manner.device, manner.longest_bytes)?,
            order: Order::new(manner.order),
            slots: VecDeque::new(),
            base: 0,
            ready: BinaryHeap::new(),
            turn: 0,
            in_flight: 0,
            room_ns: i64::MIN,
            dry_ends: Vec::new(),
            drift: Drift::new(manner.span_ns.0, manner.span_ns.1),
            last_issue_ns: None,
            last_queue_ns: None,
            out: Outcome { epoch_ns: monotonic_ns(), ..Outcome::default() },
            manner,
        };
        this.issue_all(&receiver, result)?;
        drop(receiver);
        this.out.cpu_ns = cpu_ns() - began_ns;
        this.out.drift_ppm = pace.has_schedule().then(|| this.drift.ppm()).flatten();
        this.out.then = reader.join().unwrap_or_default();
        Ok(this.out)
    })
}

/// CPU time of this process so far.
fn cpu_ns() -> i64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

impl Loop<'_> {
    fn now_ns(&self) -> i64 {
        monotonic_ns() - self.out.epoch_ns
    }

    fn issue_all(&mut self, bios: &Receiver<Batch>, result: Option<&ResultReel>) -> Result<(), ReplayError> {
        let mut all_read = false;
        let mut ends = Vec::new();
        // Time 0 comes only after the window is full or the last bio is read.
        while !all_read && self.slots.len() < WINDOW {
            match bios.recv() {
                Ok(batch) => batch?.into_iter().for_each(|io| self.take_in(io)),
                Err(_) => all_read = true,
            }
        }
        self.start();
        loop {
            // A few at a time: due bios must not wait for others to be read.
            if !all_read && self.slots.len() < WINDOW {
                let batch = if self.slots.is_empty() {
                    bios.recv().map_err(|_| TryRecvError::Disconnected)
                } else {
                    bios.try_recv()
                };
                match batch {
                    Ok(batch) => batch?.into_iter().for_each(|io| self.take_in(io)),
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => all_read = true,
                }
            }
            if self.slots.is_empty() && all_read {
                return Ok(());
            }
            let issued = self.issue_due()?;
            ends.append(&mut self.dry_ends);
            self.ring.ends(&mut ends);
            let now_ns = self.now_ns();
            let ended = ends.len();
            for (number, res) in ends.drain(..) {
                self.end(number, res, now_ns, result)?;
            }
            if issued + ended == 0 {
                self.wait(all_read)?;
            }
        }
    }

    /// Sets time 0.
    fn start(&mut self) {
        let scheduled = self.manner.clockwork.pace.has_schedule();
        self.out.epoch_ns = monotonic_ns() + if scheduled { LEAD_NS } else { 0 };
        // The bios in the window could not be issued before time 0.
        self.slots.iter_mut().for_each(|s| s.free_ns = if scheduled { i64::MIN } else { 0 });
    }

    /// Adds a bio that was read.
    fn take_in(&mut self, io: Io) {
        let number = self.base + self.slots.len() as u64;
        let place = (io.kind != Kind::Flush).then(|| self.manner.fitting.place(io.row.sector, io.row.len_bytes));
        self.out.adjusted += i64::from(place.is_some_and(|p| p.adjusted));
        let waits = self.order.next(number, &io, place);
        // Without a schedule, a bio can be issued as soon as there is room for it in the window.
        let free_ns = if self.manner.clockwork.pace.has_schedule() { i64::MIN } else { self.now_ns() };
        let mut slot = Slot {
            due_ns: self.manner.clockwork.pace.due_ns(io.queue_ns(), Base::default()).unwrap_or(i64::MIN),
            io,
            place,
            unmet: 0,
            after_end: Vec::new(),
            after_issue: Vec::new(),
            free_ns,
            start_ns: 0,
            stage: Stage::Waiting,
        };
        for (kind, on) in waits.ends {
            let Some(other) = self.slot(on) else { continue };
            other.after_end.push(number);
            slot.unmet += 1;
            *self.out.edges.entry(kind).or_default() += 1;
        }
        if let Some(other) = waits.issue.and_then(|on| self.slot(on)).filter(|s| s.stage == Stage::Waiting) {
            other.after_issue.push(number);
            slot.unmet += 1;
        }
        if slot.unmet == 0 {
            self.ready.push(Reverse((slot.due_ns, number)));
        }
        self.out.original_last_end_ns = self.out.original_last_end_ns.max(slot.io.complete_ns);
        let queue_ns = slot.io.queue_ns();
        if let Some(last) = self.last_queue_ns.replace(queue_ns) {
            self.out.gaps.0.add(self.manner.clockwork.pace.stretched_ns(queue_ns - last));
        }
        self.slots.push_back(slot);
    }

    fn slot(&mut self, number: u64) -> Option<&mut Slot> {
        let at = number.checked_sub(self.base)?;
        self.slots.get_mut(usize::try_from(at).ok()?)
    }

    /// The next bio to issue: its deadline and number. `None` if no bio is ready, or at pace `load` if none may go.
    fn next(&mut self) -> Option<(i64, u64)> {
        let Reverse((due_ns, number)) = *self.ready.peek()?;
        if self.manner.clockwork.pace == Pace::Load {
            let in_flight = self.in_flight;
            let may_go = number == self.turn && self.slot(number)?.io.may_join(in_flight);
            return may_go.then_some((due_ns, number));
        }
        Some((due_ns.saturating_add(self.out.shift_ns), number))
    }

    /// A bio has ended. At pace `load`, a bio that needs this room was waiting for the device until now.
    fn leave(&mut self, now_ns: i64) {
        let before = self.in_flight;
        self.in_flight -= 1;
        self.out.now.set(now_ns, self.in_flight);
        if self.slot(self.turn).is_some_and(|s| !s.io.may_join(before)) {
            self.room_ns = now_ns;
        }
    }

    fn issue_due(&mut self) -> Result<usize, ReplayError> {
        let mut issued = 0;
        let mut now_ns = self.now_ns();
        while let Some((due_ns, number)) = self.next() {
            if self.in_flight >= MOST_IN_FLIGHT {
                self.out.held += 1;
                break;
            }
            if due_ns > now_ns {
                break;
            }
            self.ready.pop();
            self.turn += 1;
            self.issue(number, due_ns, now_ns)?;
            issued += 1;
            if issued % BATCH == 0 {
                self.ring.submit()?;
                now_ns = self.now_ns();
            }
        }
        if issued > 0 {
            self.ring.submit()?;
        }
        Ok(issued)
    }

    fn issue(&mut self, number: u64, due_ns: i64, now_ns: i64) -> Result<(), ReplayError> {
        let clockwork = self.manner.clockwork;
        // From now on it is the next bio's turn.
        let room_ns = std::mem::replace(&mut self.room_ns, now_ns);
        let room_ns = if clockwork.pace == Pace::Load { room_ns } else { i64::MIN };
        let late_ns = now_ns.saturating_sub(due_ns);
        if clockwork.pace.has_schedule() && clockwork.catch_up == CatchUp::Shift && late_ns > STALL_NS {
            self.out.shift_ns += late_ns;
        }
        let Some(slot) = self.slot(number) else { return Ok(()) };
        slot.start_ns = now_ns;
        // Without a schedule, the deadline is the time at which the bio could be issued.
        slot.due_ns = if clockwork.pace.has_schedule() { due_ns } else { slot.free_ns.max(room_ns).max(0) };
        let (io, place, due_ns, free_ns) = (&slot.io, slot.place, slot.due_ns, slot.free_ns);
        let (kind, fua, queue_ns) = (io.kind, io.is_fua(), io.queue_ns());
        let first = if io.flushes() { Kind::Flush } else { kind };
        slot.stage = if first == kind { Stage::InFlight } else { Stage::Flushing };
        let waiting = std::mem::take(&mut slot.after_issue);
        let could_ns = free_ns.max(due_ns);
        let out = &mut self.out;
        out.schedule.add(now_ns.saturating_sub(due_ns));
        out.own.add(now_ns.saturating_sub(could_ns));
        out.forced.add(could_ns.saturating_sub(due_ns));
        out.early += i64::from(now_ns < due_ns);
        for (n, limit) in out.within.iter_mut().zip([10_000, 100_000, 1_000_000]) {
            *n += i64::from(now_ns.saturating_sub(due_ns) <= limit);
        }
        self.drift.add(queue_ns, due_ns, now_ns);
        if let Some(last) = self.last_issue_ns.replace(now_ns) {
            out.gaps.1.add(now_ns - last);
        }
        self.in_flight += 1;
        out.now.set(now_ns, self.in_flight);
        if self.manner.dry_run {
            self.dry_ends.push((number, place.map_or(0, |p| p.len as i32)));
        } else {
            self.ring.issue(number, first, place.unwrap_or(Place { offset: 0, len: 0, adjusted: false }), fua)?;
        }
        waiting.into_iter().for_each(|other| self.met(other, now_ns));
        Ok(())
    }

    /// Something that bio `number` waits for has happened at `now_ns`.
    fn met(&mut self, number: u64, now_ns: i64) {
        let Some(slot) = self.slot(number) else { return };
        slot.unmet -= 1;
        slot.free_ns = slot.free_ns.max(now_ns);
        if slot.unmet == 0 {
            let due_ns = slot.due_ns;
            self.ready.push(Reverse((due_ns, number)));
        }
    }

    fn end(&mut self, number: u64, mut res: i32, now_ns: i64, result: Option<&ResultReel>) -> Result<(), ReplayError> {
        let dry_run = self.manner.dry_run;
        let Some(slot) = self.slot(number) else { return Ok(()) };
        let (kind, place, fua) = (slot.io.kind, slot.place, slot.io.is_fua());
        if slot.stage == Stage::Flushing && res >= 0 && !dry_run {
            slot.stage = Stage::InFlight;
            if let Some(place) = place {
                self.ring.issue(number, kind, place, fua)?;
                return self.ring.submit();
            }
        }
        if let Some(place) = place
            && kind == Kind::Discard
            && res < 0
        {
            res = self.ring.discard_again(place, res).unwrap_or(res);
        }
        let Some(slot) = self.slot(number) else { return Ok(()) };
        slot.stage = Stage::Ended;
        let start_ns = slot.start_ns;
        let took_ns = slot.io.row.complete_ns.map(|c| c.saturating_sub(slot.io.queue_ns()));
        let waiting = std::mem::take(&mut slot.after_end);
        if let Some(result) = result {
            result.push(&slot.io.row, place, (start_ns, now_ns), res);
        }
        let out = &mut self.out;
        let len = place.map_or(0, |p| p.len);
        let whole = !matches!(kind, Kind::Read | Kind::Write) || i64::from(res) == len;
        if res < 0 || !whole {
            *out.differing.entry((kind, (-res).max(0))).or_default() += 1;
        } else {
            out.bytes = out.bytes.saturating_add(len);
        }
        out.done += 1;
        let (then, now) = out.latencies.entry(kind).or_default();
        took_ns.into_iter().for_each(|t| then.add(t));
        now.add(now_ns - start_ns);
        out.last_end_ns = out.last_end_ns.max(now_ns);
        self.leave(now_ns);
        self.order.ended(number);
        waiting.into_iter().for_each(|other| self.met(other, now_ns));
        while self.slots.pop_front_if(|s| s.stage == Stage::Ended).is_some() {
            self.base += 1;
        }
        Ok(())
    }

    /// Nothing can be done now: waits for a completion or for the next deadline.
    fn wait(&mut self, all_read: bool) -> Result<(), ReplayError> {
        let next = self.next().map(|(due_ns, _)| due_ns).filter(|_| self.in_flight < MOST_IN_FLIGHT);
        let now_ns = self.now_ns();
        match next {
            Some(due_ns) => {
                let sleep_ns = due_ns.saturating_sub(now_ns).saturating_sub(self.manner.spin_ns);
                if sleep_ns > 0 {
                    // Wake up in time to take bios from the reading thread.
                    let most_ns = if all_read { i64::MAX } else { READ_AGAIN_NS };
                    return self.ring.wait(Some(Duration::from_nanos(sleep_ns.min(most_ns).unsigned_abs())));
                }
                std::hint::spin_loop();
                self.out.spun_ns += self.now_ns() - now_ns;
                Ok(())
            }
            None if self.in_flight > 0 && (all_read || self.slots.len() >= WINDOW) => self.ring.wait(None),
            None => self.ring.wait(Some(Duration::from_nanos(READ_AGAIN_NS.unsigned_abs()))),
        }
    }
}

/// The loop asks the reading thread for more bios at least this often, ns.
const READ_AGAIN_NS: i64 = 1_000_000;
