//! Waits through pipes and sockets.
//!
//! Their data is not replayed, but a reader must wait for the writer. Bytes are counted on both sides of each stream,
//! so that each read waits for the writes whose bytes it read. If a writer is not recorded, or data also moves through
//! calls that are not recorded (send, recv), the counts disagree: a read of more bytes than were written waits for
//! nothing.

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::{
    model::names::Kind,
    plan::dependencies::Order,
    plan::{dependencies::Stamp, edge::EdgeKind, planner::Planner, program::Act},
    reel::{
        input::{NO_ID, Rec},
        submission::Phase,
    },
};

/// A stream: device and inode number of its reading end.
type Key = (i64, i64);

/// Unread writes kept per stream; no pipe holds more.
const UNREAD: usize = 4096;
/// Streams kept; beyond that all are dropped.
const STREAMS: usize = 1 << 16;
/// A write that took longer may have waited for space, ns.
const SWIFT_NS: i64 = 20_000;
/// A thread that reads within 1/8 of its idle time after the data came is taken to have waited for it with poll or
/// similar, which is not recorded. A computation would end within that time only by chance.
const REACTION_SHARE: i64 = 8;

/// A write, or the part of one that was not read yet.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Byte count of the stream at its end.
    end: i64,
    from: Source,
}

/// Where bytes came from.
#[derive(Clone, Copy, Debug)]
struct Source {
    row: u32,
    /// The step that wrote them; `None` before a slice.
    stamp: Option<Stamp>,
    start_ns: i64,
}

#[derive(Debug, Default)]
struct Stream {
    written: i64,
    read: i64,
    unread: VecDeque<Piece>,
    /// Writes that were entered and have not returned.
    in_flight: Vec<Source>,
    /// Steps at which writers closed the stream or ended, and when.
    closed: Vec<(Stamp, i64)>,
    /// The last read: its step, when its thread went on, and when it returned.
    last_read: Option<(Stamp, i64, i64)>,
}

/// The state of all streams.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    streams: HashMap<Key, Stream>,
    /// By thread: the streams that it has written to.
    fed: HashMap<u32, BTreeSet<Key>>,
    /// By thread: return of its last recorded call.
    last_ns: Vec<Option<i64>>,
}

impl Stream {
    /// Takes the next `bytes` out, and returns their writes.
    fn take(&mut self, bytes: i64) -> Vec<Source> {
        let (mut sources, mut covered) = (Vec::new(), self.read);
        self.read += bytes;
        while covered < self.read
            && let Some(piece) = self.unread.front()
        {
            sources.push(piece.from);
            covered = piece.end;
            if covered <= self.read {
                self.unread.pop_front();
            }
        }
        if covered < self.read {
            // More than completed writes have written: a write in flight did, or one that is not recorded.
            match self.in_flight.first() {
                Some(source) => sources.push(*source),
                None => self.read = self.written,
            }
        }
        sources
    }

    /// A write has returned.
    fn put(&mut self, row: u32, bytes: i64) {
        let Some(at) = self.in_flight.iter().position(|s| s.row == row) else { return };
        let from = self.in_flight.remove(at);
        self.written += bytes.max(0);
        if self.written > self.read {
            self.unread.push_back(Piece { end: self.written, from });
        }
        if self.unread.len() > UNREAD {
            self.unread.pop_front();
        }
    }
}

impl Planner {
    /// The stream that a read of this file reads.
    fn stream_of(&self, file: i64) -> Option<Key> {
        let f = self.machine.reel.files.get(&file).filter(|_| file != NO_ID)?;
        matches!(f.kind, Kind::Fifo | Kind::Socket).then_some((f.dev, f.ino))
    }

    /// The stream that a write to this file writes.
    fn stream_into(&self, file: i64) -> Option<Key> {
        let f = self.machine.reel.files.get(&file).filter(|_| file != NO_ID)?;
        match f.kind {
            Kind::Fifo => Some((f.dev, f.ino)),
            Kind::Socket => f.peer_ino.map(|ino| (f.dev, ino)),
            _ => None,
        }
    }

    fn fed_by(&self, r: &Rec) -> Option<Key> {
        match r.call {
            _ if r.phase != Phase::Whole => None,
            c if c.writes() => self.stream_into(r.file),
            c if c.copies() => self.stream_into(r.file2),
            _ => None,
        }
    }

    /// Adds a step for a write to or read from a stream; `uses` adds what it waited for. `None` before a slice.
    fn passes(&mut self, r: &Rec, idle_ns: i64, recorded_ns: i64, uses: impl FnOnce(&mut Order)) -> Option<Stamp> {
        let task = r.task as usize;
        if self.programs.before_slice || self.machine.processes.of(task).ended {
            return None;
        }
        if !self.machine.processes.of(task).alive {
            self.start_root(task);
        }
        let [idle_ns, recorded_ns] = [idle_ns, recorded_ns].map(|ns| ns.saturating_sub(self.programs.zero_ns).max(0));
        Some(self.programs.push(task, Act::Passed { idle_ns, recorded_ns }, recorded_ns, uses))
    }

    /// A call was entered. What it writes can be read before it returns.
    pub(crate) fn flow_entered(&mut self, id: u32) {
        let Some(r) = self.machine.reel.recs.get(id as usize).and_then(|r| r.as_deref()) else { return };
        let Some(key) = self.fed_by(r) else { return };
        if !self.programs.dependencies.keeps(EdgeKind::Pipe) && !self.programs.before_slice {
            return;
        }
        let r = r.clone();
        let stamp = self.passes(&r, r.start_ns, r.start_ns, |_| ());
        if self.pipes.streams.len() >= STREAMS {
            self.pipes.streams.clear();
            self.pipes.fed.clear();
        }
        let stream = self.pipes.streams.entry(key).or_default();
        stream.in_flight.push(Source { row: r.row, stamp, start_ns: r.start_ns });
        self.pipes.fed.entry(r.task).or_default().insert(key);
    }

    /// A call has taken effect (a submission: is about to be issued). If it read from a stream, its thread goes on
    /// after the writes whose bytes it read.
    pub(crate) fn flowed(&mut self, r: &Rec) {
        let task = r.task as usize;
        if self.pipes.last_ns.len() <= task {
            self.pipes.last_ns.resize(task + 1, None);
        }
        let idle_ns = self.pipes.last_ns[task].replace(r.end_ns).unwrap_or(r.start_ns);
        if r.phase != Phase::Whole {
            return;
        }
        if (r.call.reads() || r.call.copies()) && r.ret >= 0 && r.len_bytes > 0 {
            self.flow_took(r, idle_ns);
        }
        if let Some(key) = self.fed_by(r) {
            self.flow_gave(r, key);
        }
        if r.call == crate::Call::Close
            && let Some(key) = self.stream_into(r.file)
        {
            self.flow_closes(r, &BTreeSet::from([key]));
        }
    }

    fn flow_took(&mut self, r: &Rec, idle_ns: i64) {
        let Some(stream) = self.stream_of(r.file).and_then(|key| self.pipes.streams.get_mut(&key)) else { return };
        // Writes and their start times. A read waits for the first of its bytes; the others arrived meanwhile.
        let wrote: Vec<(Option<Stamp>, i64)> = if r.ret == 0 {
            std::mem::take(&mut stream.closed).into_iter().map(|(stamp, at_ns)| (Some(stamp), at_ns)).collect()
        } else {
            stream.take(r.ret).into_iter().map(|s| (s.stamp, s.start_ns)).collect()
        };
        let stamps: Vec<Stamp> = wrote.iter().filter_map(|(stamp, _)| *stamp).filter(|s| s.task != r.task).collect();
        if stamps.is_empty() && stream.in_flight.is_empty() {
            return;
        }
        let first_ns = wrote.first().map_or(i64::MIN, |(_, at_ns)| *at_ns);
        let last_ns = wrote.iter().map(|(_, at_ns)| *at_ns).max().unwrap_or(i64::MIN).min(r.end_ns);
        let reacted_ns = r.start_ns.saturating_sub(first_ns);
        let (idle_ns, recorded_ns) = if first_ns > r.start_ns {
            (r.start_ns, last_ns)
        } else if first_ns > idle_ns && reacted_ns.saturating_mul(REACTION_SHARE) <= r.start_ns - idle_ns {
            (idle_ns, last_ns)
        } else {
            (r.start_ns, r.start_ns)
        };
        let me =
            self.passes(r, idle_ns, recorded_ns, |order| stamps.iter().for_each(|s| order.after(*s, EdgeKind::Pipe)));
        if let Some(stream) = self.stream_of(r.file).and_then(|key| self.pipes.streams.get_mut(&key)) {
            stream.last_read = me.map(|me| (me, recorded_ns, r.end_ns));
        }
    }

    fn flow_gave(&mut self, r: &Rec, key: Key) {
        let Some(stream) = self.pipes.streams.get_mut(&key) else { return };
        stream.put(r.row, r.ret);
        // The pipe was full, and its reader made space.
        let room = stream.last_read.filter(|(by, _, end_ns)| by.task != r.task && *end_ns > r.start_ns);
        if let Some((by, at_ns, _)) = room.filter(|_| r.ret > 0 && r.end_ns - r.start_ns > SWIFT_NS) {
            self.passes(r, r.start_ns, at_ns.clamp(r.start_ns, r.end_ns), |order| order.after(by, EdgeKind::Pipe));
        }
    }

    fn flow_closes(&mut self, r: &Rec, keys: &BTreeSet<Key>) {
        let fed = self.pipes.fed.get(&r.task).is_some_and(|fed| keys.iter().any(|k| fed.contains(k)));
        let Some(stamp) = fed.then(|| self.passes(r, r.start_ns, r.start_ns, |_| ())).flatten() else { return };
        for key in keys {
            if let Some(stream) = self.pipes.streams.get_mut(key) {
                stream.closed.push((stamp, r.start_ns));
            }
        }
    }

    /// A thread ends, which closes the descriptors that only it had.
    pub(crate) fn flow_ends(&mut self, task: usize, exit_ns: i64) {
        let Some(fed) = self.pipes.fed.get(&(task as u32)).cloned() else { return };
        let r = Rec { task: task as u32, start_ns: exit_ns, end_ns: exit_ns, ..Rec::none() };
        self.flow_closes(&r, &fed);
        self.pipes.fed.remove(&(task as u32));
    }
}
