//! Trace packets: tracks, slices and counters. Each name is written once.

use std::{collections::HashMap, io::Write};

use super::proto::{Message, field as f, flag, kind};

/// The single sequence of all packets.
const SEQUENCE: i64 = 1;

/// Value of an annotation.
pub(super) enum Value<'a> {
    Int(i64),
    Text(&'a str),
}

/// A slice.
pub(super) struct Slice<'a> {
    pub(super) track: u64,
    pub(super) category: &'static str,
    pub(super) name: &'a str,
    pub(super) from_ns: i64,
    pub(super) to_ns: i64,
    pub(super) notes: &'a [(&'static str, Value<'a>)],
    pub(super) flows: &'a [u64],
    pub(super) ends: &'a [u64],
}

/// Writes packets.
pub(super) struct Trace<W> {
    out: W,
    iids: HashMap<(u32, String), i64>,
    begun: bool,
    next_track: u64,
}

impl<W: Write> Trace<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, iids: HashMap::new(), begun: false, next_track: 0 }
    }

    pub(super) fn finish(mut self) -> std::io::Result<()> {
        self.out.flush()
    }

    fn packet(&mut self, mut packet: Message) -> std::io::Result<()> {
        let flags = if self.begun { flag::NEEDED } else { flag::CLEARED | flag::NEEDED };
        self.begun = true;
        packet.int(f::PACKET_SEQUENCE, SEQUENCE).int(f::PACKET_FLAGS, flags);
        let mut whole = Message::default();
        whole.bytes(f::TRACE_PACKET, &packet.0);
        self.out.write_all(&whole.0)
    }

    /// Writes a track; `fill` adds its kind.
    pub(super) fn track(
        &mut self,
        name: &str,
        parent: Option<u64>,
        fill: impl FnOnce(&mut Message),
    ) -> std::io::Result<u64> {
        self.next_track += 1;
        let uuid = self.next_track;
        let mut track = Message::default();
        track.int(f::TRACK_UUID, uuid as i64);
        if !name.is_empty() {
            track.bytes(f::TRACK_NAME, name.as_bytes());
        }
        if let Some(parent) = parent {
            track.int(f::TRACK_PARENT, parent as i64);
        }
        fill(&mut track);
        let mut packet = Message::default();
        packet.bytes(f::PACKET_TRACK, &track.0);
        self.packet(packet)?;
        Ok(uuid)
    }

    /// The id of a name. A new name is added to `interned`.
    fn iid(&mut self, what: u32, name: &str, interned: &mut Message) -> i64 {
        let next = self.iids.len() as i64 + 1;
        if let Some(iid) = self.iids.get(&(what, name.to_owned())) {
            return *iid;
        }
        self.iids.insert((what, name.to_owned()), next);
        let mut entry = Message::default();
        entry.int(f::INTERNED_IID, next).bytes(f::INTERNED_TEXT, name.as_bytes());
        interned.bytes(what, &entry.0);
        next
    }

    fn event(&mut self, at_ns: i64, event: &Message, interned: &Message) -> std::io::Result<()> {
        let mut packet = Message::default();
        packet.int(f::PACKET_TIMESTAMP, at_ns.max(0));
        if !interned.0.is_empty() {
            packet.bytes(f::PACKET_INTERNED, &interned.0);
        }
        packet.bytes(f::PACKET_EVENT, &event.0);
        self.packet(packet)
    }

    pub(super) fn slice(&mut self, s: &Slice<'_>) -> std::io::Result<()> {
        let (mut event, mut interned) = (Message::default(), Message::default());
        let category = self.iid(f::INTERNED_CATEGORY, s.category, &mut interned);
        let name = self.iid(f::INTERNED_NAME, s.name, &mut interned);
        event.int(f::EVENT_TYPE, kind::BEGIN).int(f::EVENT_TRACK, s.track as i64);
        event.int(f::EVENT_CATEGORY, category).int(f::EVENT_NAME, name);
        for (name, value) in s.notes {
            let mut note = Message::default();
            note.int(f::ANNOTATION_NAME, self.iid(f::INTERNED_ANNOTATION, name, &mut interned));
            match value {
                Value::Int(n) => note.int(f::ANNOTATION_INT, *n),
                Value::Text(t) => note.bytes(f::ANNOTATION_TEXT, t.as_bytes()),
            };
            event.bytes(f::EVENT_ANNOTATION, &note.0);
        }
        for id in s.flows {
            event.fixed(f::EVENT_FLOW, *id);
        }
        for id in s.ends {
            event.fixed(f::EVENT_FLOW_END, *id);
        }
        self.event(s.from_ns, &event, &interned)?;
        let mut end = Message::default();
        end.int(f::EVENT_TYPE, kind::END).int(f::EVENT_TRACK, s.track as i64);
        self.event(s.to_ns.max(s.from_ns), &end, &Message::default())
    }

    pub(super) fn counter(&mut self, track: u64, at_ns: i64, value: f64) -> std::io::Result<()> {
        let mut event = Message::default();
        event.int(f::EVENT_TYPE, kind::COUNTER).int(f::EVENT_TRACK, track as i64).double(f::EVENT_VALUE, value);
        self.event(at_ns, &event, &Message::default())
    }
}

/// Lanes for overlapping slices. Each slice gets the lowest free lane.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// Track of each lane, and the end of its last slice.
    lanes: Vec<(u64, i64)>,
}

impl Lanes {
    /// The lane for a slice; `make` creates a new one if all are in use. Slices must arrive in order of their start.
    pub(super) fn place<E>(
        &mut self,
        from_ns: i64,
        to_ns: i64,
        make: impl FnOnce(usize) -> Result<u64, E>,
    ) -> Result<u64, E> {
        let to_ns = to_ns.max(from_ns);
        if let Some(lane) = self.lanes.iter_mut().find(|(_, end)| *end <= from_ns) {
            lane.1 = to_ns;
            return Ok(lane.0);
        }
        let track = make(self.lanes.len())?;
        self.lanes.push((track, to_ns));
        Ok(track)
    }
}
