//! What bios carry: by class of content, file, and the program that queued them.

use ioreel_traces::{Reel, Text};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    blocks::{Again, Blocks},
    gaps::Gaps,
    log::Log,
    own_io::{Caused, OwnIo, Timeline, Timelines},
};
use crate::{
    Result,
    events::{
        bios::{Bio, each_bio},
        requests::{Class, MOST_DEVICES},
    },
    meters::share::ShareClock,
};

/// Maximum number of files, and of groups, told apart.
const MOST_GROUPS: usize = 1 << 20;
/// Groups kept at hand.
const RECENT: usize = 8;
/// Maximum number of intervals of a timeline.
const MOST_INTERVALS: usize = 1 << 24;

/// Number, size and time of bios.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flow {
    /// Bios.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// Part of the time in which the devices were busy, ns: see [`ShareClock`].
    pub share_ns: f64,
    /// The same for blocks written again within [`super::blocks::REWRITE_NS`].
    pub rewritten_ns: f64,
    /// The same for blocks read again without a write in between.
    pub reread_ns: f64,
    /// When the first was queued.
    pub first_ns: i64,
    /// When the last was queued.
    pub last_ns: i64,
}

impl Flow {
    fn push(&mut self, bio: &InFlight, share_ns: f64) {
        if self.count == 0 || bio.queue_ns < self.first_ns {
            self.first_ns = bio.queue_ns;
        }
        self.last_ns = self.last_ns.max(bio.queue_ns);
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bio.bytes);
        self.share_ns += share_ns;
        self.rewritten_ns += share_ns * bio.again.rewritten;
        self.reread_ns += share_ns * bio.again.reread;
    }

    /// Adds another flow.
    pub fn add(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.first_ns = if self.count == 0 { other.first_ns } else { self.first_ns.min(other.first_ns) };
        self.last_ns = self.last_ns.max(other.last_ns);
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.share_ns += other.share_ns;
        self.rewritten_ns += other.rewritten_ns;
        self.reread_ns += other.reread_ns;
    }

    /// Mean size, bytes.
    pub fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.count.max(1) as f64
    }
}

/// What a group of bios has in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group {
    /// Device number.
    pub dev: i64,
    /// Read, write, flush, …
    pub op: Class,
    /// Class of the content: `data`, `journal`, …
    pub content: Text,
    /// Name of the thread that queued them.
    pub comm: Text,
    /// Whether it is a recorded thread.
    pub recorded: bool,
    /// Whether they carry a known file.
    pub has_file: bool,
}

struct InFlight {
    queue_ns: i64,
    bytes: u64,
    again: Again,
    group: usize,
    file: Option<i64>,
    dev: i64,
    writes: bool,
}

/// Reads and writes of one file's data.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileFlow {
    /// Device of the last one.
    pub dev: i64,
    /// Reads.
    pub read: Flow,
    /// Writes.
    pub write: Flow,
}

/// All bios.
#[derive(Debug, Default)]
pub struct Traffic {
    /// By what they have in common.
    pub groups: FxHashMap<Group, Flow>,
    /// By file.
    pub files: FxHashMap<i64, FileFlow>,
    /// Time in which a bio was in flight, by device, ns.
    pub busy_ns: FxHashMap<i64, f64>,
    /// Logs, by device.
    pub logs: FxHashMap<i64, Log>,
    /// Where new files begin.
    pub gaps: Gaps,
    /// Number of bios in groups or files beyond the first [`MOST_GROUPS`].
    pub left_out: u64,
}

#[derive(Default)]
struct Pass {
    numbers: FxHashMap<Group, usize>,
    flows: Vec<Flow>,
    files: FxHashMap<i64, FileFlow>,
    clocks: FxHashMap<i64, ShareClock<InFlight>>,
    devices: DeviceNumbers,
    own: Vec<(i64, i64)>,
    blocks: Blocks,
    caused: Vec<Caused>,
    journal: Vec<(i64, i64)>,
    flushes: Vec<(i64, i64)>,
    writes: Vec<(i64, i64)>,
    logs: FxHashMap<i64, Log>,
    gaps: Gaps,
    /// Files written.
    begun: FxHashSet<i64>,
    /// Groups seen last, to look them up without hashing.
    last: Vec<(Group, usize)>,
    left_out: u64,
}

impl Traffic {
    /// Reads the table `bio`.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub(super) fn of(reel: &Reel) -> Result<(Self, OwnIo)> {
        let mut pass = Pass::default();
        each_bio(reel, |bio| pass.push(bio))?;
        Ok(pass.finish())
    }
}

impl Pass {
    fn push(&mut self, bio: &Bio<'_>) {
        let end_ns = bio.complete_ns.unwrap_or(bio.queue_ns);
        let group = Group {
            dev: bio.dev,
            op: bio.class,
            content: bio.content.clone(),
            comm: bio.comm.clone(),
            recorded: bio.task_id.is_some(),
            has_file: bio.file.is_some(),
        };
        let known = self.clocks.len() < MOST_DEVICES || self.clocks.contains_key(&bio.dev);
        let Some(group) = self.number(group).filter(|_| known) else {
            self.left_out += 1;
            return;
        };
        self.note(bio, end_ns);
        let item = InFlight {
            queue_ns: bio.queue_ns,
            bytes: bio.len_bytes.max(0).unsigned_abs(),
            again: self.blocks.push(bio),
            group,
            file: bio.file,
            dev: bio.dev,
            writes: bio.class == Class::Write,
        };
        let (flows, files) = (&mut self.flows, &mut self.files);
        let clock = self.clocks.entry(bio.dev).or_default();
        clock.start(bio.queue_ns, end_ns, item, &mut |item, share_ns| count(flows, files, &item, share_ns));
    }

    fn number(&mut self, group: Group) -> Option<usize> {
        if let Some((_, number)) = self.last.iter().find(|(last, _)| *last == group) {
            return Some(*number);
        }
        let next = self.flows.len();
        let number = match self.numbers.get(&group) {
            Some(number) => *number,
            None if next >= MOST_GROUPS => return None,
            None => {
                self.numbers.insert(group.clone(), next);
                self.flows.push(Flow::default());
                next
            }
        };
        if self.last.len() >= RECENT {
            self.last.remove(0);
        }
        self.last.push((group, number));
        Some(number)
    }

    fn note(&mut self, bio: &Bio<'_>, end_ns: i64) {
        let interval = (bio.queue_ns, end_ns);
        let keep = |to: &mut Vec<(i64, i64)>| {
            if to.len() < MOST_INTERVALS {
                to.push(interval);
            }
        };
        if &**bio.content == "journal" {
            keep(&mut self.journal);
            if bio.class == Class::Write {
                self.logs.entry(bio.dev).or_default().push(bio.queue_ns, bio.sector, bio.end_sector());
            }
        }
        if bio.class == Class::Write && &**bio.content == "data" {
            let is_first = bio.file.is_some_and(|file| self.begun.len() < MOST_GROUPS && self.begun.insert(file));
            self.gaps.push(bio.dev, bio.sector, bio.end_sector(), is_first && bio.file_offset_bytes == Some(0));
        }
        match bio.class {
            Class::Flush => keep(&mut self.flushes),
            Class::Write => keep(&mut self.writes),
            _ => {}
        }
        if bio.task_id.is_some() {
            keep(&mut self.own);
        }
        if let (Some(op_id), Some(device)) = (bio.cause, self.devices.number_of(bio.dev)) {
            self.caused.push(Caused {
                op_id,
                device,
                queue_ns: bio.queue_ns,
                complete_ns: end_ns,
                len_bytes: u32::try_from(bio.len_bytes).unwrap_or(0),
                reads: bio.class == Class::Read,
            });
        }
    }

    fn finish(mut self) -> (Traffic, OwnIo) {
        let (flows, files) = (&mut self.flows, &mut self.files);
        let mut busy_ns = FxHashMap::default();
        for (dev, mut clock) in self.clocks {
            clock.finish(&mut |item, share_ns| count(flows, files, &item, share_ns));
            busy_ns.insert(dev, clock.busy_ns());
        }
        let timelines = Timelines {
            journal: Timeline::of(self.journal),
            flushes: Timeline::of(self.flushes),
            writes: Timeline::of(self.writes),
            own: Timeline::of(self.own),
        };
        let io = OwnIo::new(self.caused, self.devices.all, timelines);
        let traffic = Traffic {
            groups: self.numbers.into_iter().map(|(group, i)| (group, self.flows[i])).collect(),
            files: self.files,
            busy_ns,
            logs: self.logs,
            gaps: self.gaps,
            left_out: self.left_out,
        };
        (traffic, io)
    }
}

/// Devices, numbered in the order in which they appear.
#[derive(Default)]
struct DeviceNumbers {
    all: Vec<i64>,
    numbers: FxHashMap<i64, u16>,
}

impl DeviceNumbers {
    /// Number of a device. `None` if there are too many.
    fn number_of(&mut self, dev: i64) -> Option<u16> {
        if let Some(number) = self.numbers.get(&dev) {
            return Some(*number);
        }
        let number = u16::try_from(self.all.len()).ok()?;
        self.all.push(dev);
        self.numbers.insert(dev, number);
        Some(number)
    }
}

fn count(flows: &mut [Flow], files: &mut FxHashMap<i64, FileFlow>, item: &InFlight, share_ns: f64) {
    if let Some(flow) = flows.get_mut(item.group) {
        flow.push(item, share_ns);
    }
    if let Some(file) = item.file
        && (files.len() < MOST_GROUPS || files.contains_key(&file))
    {
        let flow = files.entry(file).or_default();
        flow.dev = item.dev;
        let flow = if item.writes { &mut flow.write } else { &mut flow.read };
        flow.push(item, share_ns);
    }
}
