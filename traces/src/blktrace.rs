//! Records of block traces as blktrace(8) writes them: 48 bytes and a payload, in the byte order of the traced machine
//! (include/uapi/linux/blktrace_api.h). Works on bytes only, not on files or reels.

/// Length of a record without its payload.
pub const HEADER_BYTES: usize = 48;
/// The upper 24 bits of a record's first word.
pub const MAGIC: u32 = 0x6561_7400;
/// The version this module reads and writes.
pub const VERSION: u32 = 7;

/// The event: low half of `action`.
pub mod act {
    /// Bio queued.
    pub const QUEUE: u32 = 1;
    /// Bio merged at the end of a request.
    pub const BACK_MERGE: u32 = 2;
    /// Bio merged at the front of a request.
    pub const FRONT_MERGE: u32 = 3;
    /// Request allocated.
    pub const GET_RQ: u32 = 4;
    /// Waiting for a free request.
    pub const SLEEP_RQ: u32 = 5;
    /// Request requeued.
    pub const REQUEUE: u32 = 6;
    /// Request issued to the driver.
    pub const ISSUE: u32 = 7;
    /// A request, a part of it, or a bio completed.
    pub const COMPLETE: u32 = 8;
    /// Queue plugged.
    pub const PLUG: u32 = 9;
    /// Queue unplugged.
    pub const UNPLUG: u32 = 10;
    /// Queue unplugged by a timer or the scheduler.
    pub const UNPLUG_TIMER: u32 = 11;
    /// Request inserted into the scheduler.
    pub const INSERT: u32 = 12;
    /// Bio split in two; the payload is the start sector of the second part.
    pub const SPLIT: u32 = 13;
    /// Bio copied to low memory (bounce buffer).
    pub const BOUNCE: u32 = 14;
    /// Bio remapped to another device or offset.
    pub const REMAP: u32 = 15;
    /// Request aborted.
    pub const ABORT: u32 = 16;
    /// Data of the driver.
    pub const DRIVER_DATA: u32 = 17;
    /// Flag in `action`: the payload starts with a cgroup id.
    pub const CGROUP: u32 = 1 << 8;
}

/// The kind of a note: low half of `action` in a record with [`category::NOTIFY`].
pub mod note {
    /// The payload is the name of thread `pid`.
    pub const PROCESS: u32 = 0;
    /// The payload is the time of day: seconds and ns, 32 bits each.
    pub const TIMESTAMP: u32 = 1;
    /// The payload is text.
    pub const MESSAGE: u32 = 2;
}

/// Category bits: upper half of `action`.
pub mod category {
    /// A read.
    pub const READ: u32 = 1 << 16;
    /// A write, discard or zeroing.
    pub const WRITE: u32 = 1 << 17;
    /// A cache flush, or a flush before this write.
    pub const FLUSH: u32 = 1 << 18;
    /// Synchronous: a task waits for it.
    pub const SYNC: u32 = 1 << 19;
    /// A queue event.
    pub const QUEUE: u32 = 1 << 20;
    /// A requeue.
    pub const REQUEUE: u32 = 1 << 21;
    /// An issue.
    pub const ISSUE: u32 = 1 << 22;
    /// A completion.
    pub const COMPLETE: u32 = 1 << 23;
    /// A driver command, not from a file system.
    pub const PC: u32 = 1 << 25;
    /// Not an I/O event: see [`super::note`].
    pub const NOTIFY: u32 = 1 << 26;
    /// Readahead.
    pub const AHEAD: u32 = 1 << 27;
    /// File-system metadata.
    pub const META: u32 = 1 << 28;
    /// A discard.
    pub const DISCARD: u32 = 1 << 29;
    /// Force unit access.
    pub const FUA: u32 = 1 << 31;
}

/// A record without its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Number per device and CPU, from 1. 0 in notes.
    pub sequence: u32,
    /// Time on the tracer's clock, ns.
    pub time_ns: u64,
    /// First sector of 512 bytes.
    pub sector: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// Event and categories.
    pub action: u32,
    /// Thread that caused the event.
    pub pid: u32,
    /// `major << 20 | minor`.
    pub dev: u32,
    /// CPU.
    pub cpu: u32,
    /// Error of a completion.
    pub error: u16,
    /// Bytes of payload that follow.
    pub payload_bytes: u16,
}

/// Byte order of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endian {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl Endian {
    /// The byte order and version of these four bytes, if they are a magic number.
    pub fn of(magic: [u8; 4]) -> Option<(Self, u32)> {
        let versions = [(Self::Little, u32::from_le_bytes(magic)), (Self::Big, u32::from_be_bytes(magic))];
        versions.into_iter().find(|(_, word)| word & !0xff == MAGIC).map(|(order, word)| (order, word & 0xff))
    }
}

impl Record {
    /// Parses a record whose magic number was checked before.
    pub fn parse(header: &[u8; HEADER_BYTES], order: Endian) -> Self {
        let u16_at = |at: usize| {
            let b = [header[at], header[at + 1]];
            if order == Endian::Little { u16::from_le_bytes(b) } else { u16::from_be_bytes(b) }
        };
        let u32_at = |at: usize| {
            let b = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            if order == Endian::Little { u32::from_le_bytes(b) } else { u32::from_be_bytes(b) }
        };
        let u64_at = |at: usize| {
            let (first, second) = (u64::from(u32_at(at)), u64::from(u32_at(at + 4)));
            if order == Endian::Little { first | second << 32 } else { first << 32 | second }
        };
        Self {
            sequence: u32_at(4),
            time_ns: u64_at(8),
            sector: u64_at(16),
            bytes: u32_at(24),
            action: u32_at(28),
            pid: u32_at(32),
            dev: u32_at(36),
            cpu: u32_at(40),
            error: u16_at(44),
            payload_bytes: u16_at(46),
        }
    }

    /// The record as stored in a file, little-endian, without its payload.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&(MAGIC | VERSION).to_le_bytes());
        out[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        out[8..16].copy_from_slice(&self.time_ns.to_le_bytes());
        out[16..24].copy_from_slice(&self.sector.to_le_bytes());
        out[24..28].copy_from_slice(&self.bytes.to_le_bytes());
        out[28..32].copy_from_slice(&self.action.to_le_bytes());
        out[32..36].copy_from_slice(&self.pid.to_le_bytes());
        out[36..40].copy_from_slice(&self.dev.to_le_bytes());
        out[40..44].copy_from_slice(&self.cpu.to_le_bytes());
        out[44..46].copy_from_slice(&self.error.to_le_bytes());
        out[46..].copy_from_slice(&self.payload_bytes.to_le_bytes());
        out
    }

    /// The event without categories and the cgroup flag.
    pub fn act(&self) -> u32 {
        self.action & 0xffff & !act::CGROUP
    }

    /// Whether all these category bits are set.
    pub fn is(&self, categories: u32) -> bool {
        self.action & categories == categories
    }

    /// Whether it is a process name or time of day. Such a note carries the time of its creation, and blkparse does not
    /// print it.
    pub fn is_silent_note(&self) -> bool {
        self.is(category::NOTIFY) && self.act() != note::MESSAGE
    }

    /// The letter that blkparse prints, or the kind of the note.
    pub fn event(&self) -> &'static str {
        if self.is(category::NOTIFY) {
            return match self.act() {
                note::PROCESS => "process",
                note::TIMESTAMP => "timestamp",
                note::MESSAGE => "message",
                _ => "?",
            };
        }
        match self.act() {
            act::QUEUE => "Q",
            act::BACK_MERGE => "M",
            act::FRONT_MERGE => "F",
            act::GET_RQ => "G",
            act::SLEEP_RQ => "S",
            act::REQUEUE => "R",
            act::ISSUE => "D",
            act::COMPLETE => "C",
            act::PLUG => "P",
            act::UNPLUG => "U",
            act::UNPLUG_TIMER => "UT",
            act::INSERT => "I",
            act::SPLIT => "X",
            act::BOUNCE => "B",
            act::REMAP => "A",
            act::ABORT => "abort",
            act::DRIVER_DATA => "driver",
            _ => "?",
        }
    }
}

/// A thread name as payload of a note: padded with zeroes, cut at 16 bytes.
pub fn padded(name: &[u8]) -> [u8; 16] {
    let mut out = [0; 16];
    let len = name.len().min(15);
    out[..len].copy_from_slice(&name[..len]);
    out
}

/// The payload without a leading cgroup id.
pub fn own_payload<'a>(record: &Record, payload: &'a [u8]) -> &'a [u8] {
    let skip = if record.action & act::CGROUP != 0 { 8 } else { 0 };
    payload.get(skip..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_in_either_byte_order() {
        let record = Record {
            sequence: 1,
            time_ns: 0x0102_0304_0506_0708,
            sector: u64::MAX - 9,
            bytes: 2,
            action: 0x8102_0007,
            pid: 3,
            dev: 8 << 20 | 5,
            cpu: 4,
            error: 0xfffb,
            payload_bytes: 6,
        };
        let little = record.to_bytes();
        assert_eq!(Endian::of([little[0], little[1], little[2], little[3]]), Some((Endian::Little, VERSION)));
        assert_eq!(Record::parse(&little, Endian::Little), record);
        let mut big = little;
        for (at, width) in
            [(0, 4), (4, 4), (8, 8), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4), (40, 4), (44, 2), (46, 2)]
        {
            big[at..at + width].reverse();
        }
        assert_eq!(Endian::of([big[0], big[1], big[2], big[3]]), Some((Endian::Big, VERSION)));
        assert_eq!(Record::parse(&big, Endian::Big), record);
        assert_eq!(Endian::of(*b"PAR1"), None);
    }
}
