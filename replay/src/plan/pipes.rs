//! Who waited for whom through pipes and sockets.
//!
//! What goes through them is not replayed, but whoever read had to wait until somebody wrote. Bytes are counted on both sides
//! of each stream, so that every read is known to follow the writes whose bytes it took. Where no end of a stream is a recorded
//! thread's, or calls that are not recorded moved bytes as well (send, recv), counts disagree: a read of more than was written
//! waits for nothing.

use std::collections::{HashMap, VecDeque};

use crate::{
    model::names::Kind,
    plan::dependencies::Order,
    plan::{dependencies::Stamp, edge::EdgeKind, planner::Planner, program::Act},
    reel::{
        input::{NO_ID, Rec},
        submission::Phase,
    },
};

/// A stream by the device and inode number of where it is read.
type Key = (i64, i64);

/// Writes that nobody reads are forgotten: no pipe holds more.
const UNREAD: usize = 4096;
/// Streams that nobody ends are, too.
const STREAMS: usize = 1 << 16;
/// A write that took longer than this may have waited for room.
const SWIFT_NS: i64 = 20_000;
/// A thread that reads within this share of its idle time after the data came has waited for it (by poll and the like, which are
/// not recorded); what it would compute for as long ends so by chance only.
const REACTION_SHARE: i64 = 8;

/// A write, or the part of one that was not read yet.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Bytes of the stream up to its end.
    end: i64,
    from: Source,
}

/// Where bytes came from.
#[derive(Clone, Copy, Debug)]
struct Source {
    row: u32,
    /// The step at which they were written; none before a slice.
    stamp: Option<Stamp>,
    start_ns: i64,
}

#[derive(Debug, Default)]
struct Stream {
    written: i64,
    read: i64,
    unread: VecDeque<Piece>,
    /// Entered and not returned.
    in_flight: Vec<Source>,
    /// Where those who wrote closed it, or ended, and when.
    closed: Vec<(Stamp, i64)>,
    /// The last read, when its thread went on, and when it returned.
    last_read: Option<(Stamp, i64, i64)>,
}

/// What is known of all streams.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    streams: HashMap<Key, Stream>,
    /// By thread: what it has written to.
    fed: HashMap<u32, Vec<Key>>,
    /// By thread: when its last recorded call returned.
    last_ns: Vec<Option<i64>>,
}

impl Stream {
    /// Who wrote the next `bytes`, which are taken out.
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
            // More than calls have written that returned: by one that has not, or by somebody else.
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
    /// The stream that a read of this file takes from.
    fn stream_of(&self, file: i64) -> Option<Key> {
        let f = self.machine.reel.files.get(&file).filter(|_| file != NO_ID)?;
        matches!(f.kind, Kind::Fifo | Kind::Socket).then_some((f.dev, f.ino))
    }

    /// The stream that a write to this file goes into.
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

    /// A point of a thread's program at which it wrote or read; `uses` names what that waited for. `None` before a slice.
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

    /// A call that has been entered: what it writes can be read before it returns.
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
        let fed = self.pipes.fed.entry(r.task).or_default();
        if !fed.contains(&key) {
            fed.push(key);
        }
    }

    /// A call has taken effect, or is about to be issued where it takes from a stream: its thread goes on when those have written
    /// whose bytes it took.
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
            self.flow_closes(r, &[key]);
        }
    }

    fn flow_took(&mut self, r: &Rec, idle_ns: i64) {
        let Some(stream) = self.stream_of(r.file).and_then(|key| self.pipes.streams.get_mut(&key)) else { return };
        // Who wrote, and when. A read waits for the first of these bytes; the others came meanwhile.
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
        // A pipe that was full: its reader made room.
        let room = stream.last_read.filter(|(by, _, end_ns)| by.task != r.task && *end_ns > r.start_ns);
        if let Some((by, at_ns, _)) = room.filter(|_| r.ret > 0 && r.end_ns - r.start_ns > SWIFT_NS) {
            self.passes(r, r.start_ns, at_ns.clamp(r.start_ns, r.end_ns), |order| order.after(by, EdgeKind::Pipe));
        }
    }

    fn flow_closes(&mut self, r: &Rec, keys: &[Key]) {
        let fed = self.pipes.fed.get(&r.task).is_some_and(|fed| keys.iter().any(|k| fed.contains(k)));
        let Some(stamp) = fed.then(|| self.passes(r, r.start_ns, r.start_ns, |_| ())).flatten() else { return };
        for key in keys {
            if let Some(stream) = self.pipes.streams.get_mut(key) {
                stream.closed.push((stamp, r.start_ns));
            }
        }
    }

    /// A thread ends, and with it what only it had open.
    pub(crate) fn flow_ends(&mut self, task: usize, exit_ns: i64) {
        let Some(fed) = self.pipes.fed.get(&(task as u32)).cloned() else { return };
        let r = Rec { task: task as u32, start_ns: exit_ns, end_ns: exit_ns, ..Rec::none() };
        self.flow_closes(&r, &fed);
        self.pipes.fed.remove(&(task as u32));
    }
}
