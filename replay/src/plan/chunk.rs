//! A piece of a thread's program with everything its steps refer to. A replay has only a few pieces in memory.

use crate::{
    Call,
    base::codec::{Get, Put},
    model::processes::Slot,
    plan::{
        dependencies::Stamp,
        edge::{Edge, EdgeKind},
        program::{Act, Range, Step},
        store::Piece,
    },
    reel::{
        input::{NO_FD, NO_ID, NONE, Paths, Rec},
        submission::{Phase, Via},
        user_ids::IdsOf,
    },
};

/// Steps of a piece; about 100 KiB of memory.
pub const CHUNK_STEPS: usize = 512;

/// A piece of a program. Indices and ranges in its steps refer to its own lists.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// Index of its first step in the program.
    pub first: u32,
    /// Steps.
    pub steps: Vec<Step>,
    /// Operations to issue.
    pub recs: Vec<Rec>,
    /// Edges of its steps.
    pub edges: Vec<Edge>,
    /// Lists of slots.
    pub lists: Vec<u32>,
    /// Pairs of slots.
    pub pairs: Vec<(Slot, Slot)>,
    /// Paths, names and values of `recs`.
    pub paths: Paths,
}

/// Columns of a [`Rec`] that most operations leave empty, with their empty value, in the order of encoding.
fn optional(r: &Rec) -> [(i64, i64); 23] {
    let none = i64::from(NONE);
    [
        (r.fd.into(), NO_FD.into()),
        (r.fd2.into(), NO_FD.into()),
        (r.dirfd.into(), NO_FD.into()),
        (r.dirfd2.into(), NO_FD.into()),
        (r.mode.into(), 0),
        (r.path.into(), none),
        (r.path2.into(), none),
        (r.ofd, NO_ID),
        (r.file, NO_ID),
        (r.file2, NO_ID),
        (r.offset_bytes, NO_ID),
        (r.offset2_bytes, NO_ID),
        (r.len_bytes, 0),
        (r.flags, 0),
        (r.aux, 0),
        (r.aux2, 0),
        (r.name.into(), none),
        (r.value.into(), none),
        (r.ret, 0),
        (r.content as i64, 0),
        (r.saved_permille.into(), -1),
        (r.ring, NO_ID),
        (r.sqe_flags.into(), 0),
    ]
}

/// Prefetches into the CPU cache.
fn fetch<T>(at: Option<&T>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(at) = at {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE_BYTES: usize = 64;
        for offset in (0..size_of::<T>()).step_by(LINE_BYTES) {
            // SAFETY: a hint, with an address inside `at`.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(at).byte_add(offset).cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

impl Chunk {
    /// Prefetches the next step and operation. A replay reads its program once, in order, and a cache miss would delay
    /// the next call.
    pub(crate) fn fetch_ahead(&self, step: usize, rec: usize) {
        fetch(self.steps.get(step));
        fetch(self.recs.get(rec));
    }

    /// Approximate size in memory.
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>()
            + self.steps.len() * size_of::<Step>()
            + self.recs.len() * size_of::<Rec>()
            + self.edges.len() * size_of::<Edge>()
            + self.lists.len() * 4
            + self.pairs.len() * 8
            + self.paths.size_bytes()
    }

    /// Encodes the piece.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Put::default();
        out.number(self.first.into());
        out.list(&self.steps, |out, s| {
            match s.act {
                Act::Call { rec, fd, fd2, slot, list } => {
                    out.number(0);
                    out.numbers([rec.into(), fd.into(), fd2.into(), slot.into()]);
                    out.range(list);
                }
                Act::Spawn { task } => {
                    out.number(1);
                    out.number(task.into());
                }
                Act::Close(list) => {
                    out.number(2);
                    out.range(list);
                }
                Act::Unmap(list) => {
                    out.number(3);
                    out.range(list);
                }
                Act::Unshare(list) => {
                    out.number(4);
                    out.range(list);
                }
                Act::Submit { rec, fd, fd2, joins } => {
                    out.number(5);
                    out.numbers([rec.into(), fd.into(), fd2.into(), joins.into()]);
                }
                Act::Become(list) => {
                    out.number(7);
                    out.range(list);
                }
                Act::Returned { entered_ns, recorded_ns } => {
                    out.number(6);
                    out.numbers([entered_ns, recorded_ns]);
                }
                Act::HandIn { slot, place } => out.numbers([9, slot.into(), place.into()]),
                Act::Receive { place, slot } => out.numbers([10, place.into(), slot.into()]),
                Act::Passed { idle_ns, recorded_ns } => {
                    out.number(8);
                    out.numbers([idle_ns, recorded_ns]);
                }
            }
            out.range(s.after);
        });
        let mut last = 0;
        out.list(&self.recs, |out, r| {
            out.number(r.call as i64);
            let kind = r.via.bits() << 5 | r.phase.bits() << 7;
            let marks = [r.in_flight, r.raced, r.regular, r.loose, r.direct];
            let marks = marks.iter().enumerate().fold(0, |set, (i, m)| set | i64::from(*m) << i);
            out.number(marks | kind);
            out.numbers([
                r.task.into(),
                r.row.into(),
                r.start_ns.wrapping_sub(last),
                r.end_ns.wrapping_sub(r.start_ns),
            ]);
            out.numbers([r.together.into(), r.ended_before.into(), r.turn_ns.wrapping_sub(r.start_ns)]);
            last = r.start_ns;
            let columns = optional(r);
            let given = columns.iter().enumerate().fold(0_i64, |set, (i, (v, none))| set | i64::from(v != none) << i);
            out.number(given);
            columns.iter().filter(|(v, none)| v != none).for_each(|(v, _)| out.number(*v));
        });
        out.list(&self.edges, |out, e| {
            out.numbers([e.on.task.into(), e.on.step.into(), e.kind as i64]);
        });
        out.list(&self.lists, |out, n| out.number((*n).into()));
        out.list(&self.pairs, |out, (a, b)| {
            out.number((*a).into());
            out.number((*b).into());
        });
        self.paths.encode(&mut out);
        out.0
    }

    /// Decodes the result of [`Self::encode`]; `None` if invalid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut get = Get(bytes);
        let first = get.number()? as u32;
        let steps = get.list(|get| Some(Step { act: get.act()?, after: get.range()? }))?;
        let mut last = 0;
        let recs = get.list(|get| get.rec(&mut last))?;
        let edges = get.list(|get| {
            let on = Stamp { task: get.number()? as u32, step: get.number()? as u32 };
            Some(Edge { on, kind: *EdgeKind::ALL.get(get.number()? as usize)? })
        })?;
        let lists = get.list(|get| Some(get.number()? as u32))?;
        let pairs = get.list(|get| Some((get.number()? as u32, get.number()? as u32)))?;
        let paths = Paths::decode(&mut get)?;
        Some(Self { first, steps, recs, edges, lists, pairs, paths })
    }
}

impl Piece for Chunk {
    fn size_bytes(&self) -> usize {
        self.size_bytes()
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.encode()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::decode(bytes)
    }
}

impl Put {
    fn range(&mut self, range: Range) {
        self.number(range.from.into());
        self.number(range.len.into());
    }
}

impl Get<'_> {
    fn act(&mut self) -> Option<Act> {
        Some(match self.number()? {
            0 => Act::Call {
                rec: self.number()? as u32,
                fd: self.number()? as i32,
                fd2: self.number()? as i32,
                slot: self.number()? as u32,
                list: self.range()?,
            },
            1 => Act::Spawn { task: self.number()? as u32 },
            2 => Act::Close(self.range()?),
            3 => Act::Unmap(self.range()?),
            4 => Act::Unshare(self.range()?),
            5 => Act::Submit {
                rec: self.number()? as u32,
                fd: self.number()? as i32,
                fd2: self.number()? as i32,
                joins: self.number()? != 0,
            },
            7 => Act::Become(self.range()?),
            9 => Act::HandIn { slot: self.number()? as u32, place: self.number()? as u32 },
            10 => Act::Receive { place: self.number()? as u32, slot: self.number()? as u32 },
            8 => Act::Passed { idle_ns: self.number()?, recorded_ns: self.number()? },
            _ => Act::Returned { entered_ns: self.number()?, recorded_ns: self.number()? },
        })
    }

    /// Decodes an operation. `last`: entry of the previous one.
    fn rec(&mut self, last: &mut i64) -> Option<Rec> {
        let call = *Call::ALL.get(self.number()? as usize)?;
        let bits = self.number()?;
        let (task, row) = (self.number()? as u32, self.number()? as u32);
        let start_ns = self.number()?.wrapping_add(*last);
        let end_ns = self.number()?.wrapping_add(start_ns);
        let (together, ended_before) = (self.number()? as u32, self.number()? as u32);
        let turn_ns = self.number()?.wrapping_add(start_ns);
        *last = start_ns;
        let given = self.number()?;
        let mut column = |i: u32, none: i64| if given & 1 << i == 0 { Some(none) } else { self.number() };
        let none = i64::from(NONE);
        Some(Rec {
            call,
            in_flight: bits & 1 != 0,
            changes_unknown: false,
            // Of use only to the model.
            ids: IdsOf::Thread,
            raced: bits & 2 != 0,
            regular: bits & 4 != 0,
            loose: bits & 8 != 0,
            direct: bits & 16 != 0,
            task,
            row,
            start_ns,
            end_ns,
            together,
            ended_before,
            follows: false,
            turn_ns,
            fd: column(0, NO_FD.into())? as i32,
            fd2: column(1, NO_FD.into())? as i32,
            dirfd: column(2, NO_FD.into())? as i32,
            dirfd2: column(3, NO_FD.into())? as i32,
            mode: column(4, 0)? as i32,
            path: column(5, none)? as u32,
            path2: column(6, none)? as u32,
            ofd: column(7, NO_ID)?,
            file: column(8, NO_ID)?,
            file2: column(9, NO_ID)?,
            offset_bytes: column(10, NO_ID)?,
            offset2_bytes: column(11, NO_ID)?,
            len_bytes: column(12, 0)?,
            flags: column(13, 0)?,
            aux: column(14, 0)?,
            aux2: column(15, 0)?,
            name: column(16, none)? as u32,
            value: column(17, none)? as u32,
            ret: column(18, 0)?,
            content: column(19, 0)? as u64,
            saved_permille: column(20, -1)? as i16,
            ring: column(21, NO_ID)?,
            sqe_flags: column(22, 0)? as i32,
            via: Via::from_bits(bits >> 5),
            phase: Phase::from_bits(bits >> 7),
        })
    }

    fn range(&mut self) -> Option<Range> {
        Some(Range { from: self.number()? as u32, len: self.number()? as u32 })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_piece_comes_back_as_it_was() {
        let mut c = Chunk { first: 1024, ..Chunk::default() };
        let path = c.paths.push(b"a/b");
        let value = c.paths.push(b"with\0zero");
        for i in 0..40 {
            let call = Call::ALL[i * 2];
            let id = if i % 2 == 0 { NO_ID } else { i as i64 };
            c.recs.push(Rec {
                call,
                raced: i % 3 == 0,
                regular: i % 4 == 0,
                loose: i % 5 == 0,
                direct: i % 7 == 0,
                task: i as u32,
                row: 7 * i as u32,
                start_ns: i64::MAX / 2 - 5 * i as i64,
                end_ns: i64::MAX / 2,
                turn_ns: -9,
                ret: -(i as i64),
                path,
                value,
                file: id,
                offset_bytes: id,
                len_bytes: i64::MAX,
                content: if i % 2 == 0 { u64::MAX - 7 } else { 0 },
                saved_permille: (i as i16 % 3) * 300,
                aux2: i64::MIN,
                via: Via::Aio,
                phase: Phase::Ended,
                sqe_flags: 3,
                ..Rec::none()
            });
            c.steps.push(Step {
                act: Act::Call { rec: i as u32, fd: -100, fd2: -1, slot: NONE, list: Range { from: 3, len: 2 } },
                after: Range { from: i as u32, len: 1 },
            });
            let on = Stamp { task: 2, step: crate::plan::dependencies::FINISH };
            c.edges.push(Edge { on, kind: EdgeKind::ALL[i % EdgeKind::ALL.len()] });
        }
        for act in [
            Act::Spawn { task: 9 },
            Act::Close(Range { from: 1, len: 2 }),
            Act::Unmap(Range::default()),
            Act::Unshare(Range { from: 0, len: 1 }),
            Act::Become(Range { from: 0, len: 1 }),
            Act::Submit { rec: 3, fd: -1, fd2: 7, joins: true },
            Act::Returned { entered_ns: 3, recorded_ns: i64::MIN },
            Act::Passed { idle_ns: 5, recorded_ns: i64::MAX },
            Act::HandIn { slot: 6, place: 1 },
            Act::Receive { place: 1, slot: NONE },
        ] {
            c.steps.push(Step { act, after: Range::default() });
        }
        (c.lists, c.pairs) = (vec![5, NONE, 7], vec![(1, 2)]);
        let bytes = c.encode();
        let back = Chunk::decode(&bytes).unwrap();
        assert_eq!(format!("{:?}", c.recs), format!("{:?}", back.recs));
        assert_eq!(
            format!("{:?}{:?}{:?}{:?}", c.steps, c.edges, c.lists, c.pairs),
            format!("{:?}{:?}{:?}{:?}", back.steps, back.edges, back.lists, back.pairs)
        );
        assert_eq!(
            (back.first, back.paths.bytes(path), back.paths.bytes(value)),
            (1024, &b"a/b"[..], &b"with\0zero"[..])
        );
        assert!((0..bytes.len()).all(|n| Chunk::decode(&bytes[..n]).is_none()), "a cut piece is none");
    }
}
