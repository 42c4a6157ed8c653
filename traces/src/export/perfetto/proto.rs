//! The protobuf messages of Perfetto that this exporter needs. Field numbers are those of
//! `protos/perfetto/trace/trace_packet.proto` and `track_event/*.proto`.

/// A message under construction.
#[derive(Debug, Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// An integer. Negative values take ten bytes.
    pub(super) fn int(&mut self, field: u32, value: i64) -> &mut Self {
        self.varint(u64::from(field) << 3);
        self.varint(value as u64);
        self
    }

    /// A fixed 64-bit value.
    pub(super) fn fixed(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A floating-point number.
    pub(super) fn double(&mut self, field: u32, value: f64) -> &mut Self {
        self.fixed(field, value.to_bits())
    }

    /// Text, or an embedded message.
    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) -> &mut Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }
}

/// Field numbers.
pub(super) mod field {
    pub(in super::super) const TRACE_PACKET: u32 = 1;

    pub(in super::super) const PACKET_TIMESTAMP: u32 = 8;
    pub(in super::super) const PACKET_SEQUENCE: u32 = 10;
    pub(in super::super) const PACKET_EVENT: u32 = 11;
    pub(in super::super) const PACKET_INTERNED: u32 = 12;
    pub(in super::super) const PACKET_FLAGS: u32 = 13;
    pub(in super::super) const PACKET_TRACK: u32 = 60;

    pub(in super::super) const TRACK_UUID: u32 = 1;
    pub(in super::super) const TRACK_NAME: u32 = 2;
    pub(in super::super) const TRACK_PROCESS: u32 = 3;
    pub(in super::super) const TRACK_THREAD: u32 = 4;
    pub(in super::super) const TRACK_PARENT: u32 = 5;
    pub(in super::super) const TRACK_COUNTER: u32 = 8;
    pub(in super::super) const TRACK_MERGE: u32 = 15;
    pub(in super::super) const TRACK_MERGE_KEY: u32 = 16;

    pub(in super::super) const PROCESS_PID: u32 = 1;
    pub(in super::super) const PROCESS_NAME: u32 = 6;
    pub(in super::super) const THREAD_PID: u32 = 1;
    pub(in super::super) const THREAD_TID: u32 = 2;
    pub(in super::super) const THREAD_NAME: u32 = 5;
    pub(in super::super) const COUNTER_UNIT_NAME: u32 = 6;

    pub(in super::super) const EVENT_CATEGORY: u32 = 3;
    pub(in super::super) const EVENT_ANNOTATION: u32 = 4;
    pub(in super::super) const EVENT_TYPE: u32 = 9;
    pub(in super::super) const EVENT_NAME: u32 = 10;
    pub(in super::super) const EVENT_TRACK: u32 = 11;
    pub(in super::super) const EVENT_VALUE: u32 = 44;
    pub(in super::super) const EVENT_FLOW: u32 = 47;
    pub(in super::super) const EVENT_FLOW_END: u32 = 48;

    pub(in super::super) const ANNOTATION_NAME: u32 = 1;
    pub(in super::super) const ANNOTATION_INT: u32 = 4;
    pub(in super::super) const ANNOTATION_TEXT: u32 = 6;

    pub(in super::super) const INTERNED_CATEGORY: u32 = 1;
    pub(in super::super) const INTERNED_NAME: u32 = 2;
    pub(in super::super) const INTERNED_ANNOTATION: u32 = 3;
    pub(in super::super) const INTERNED_IID: u32 = 1;
    pub(in super::super) const INTERNED_TEXT: u32 = 2;
}

/// `TrackEvent.Type`.
pub(super) mod kind {
    pub(in super::super) const BEGIN: i64 = 1;
    pub(in super::super) const END: i64 = 2;
    pub(in super::super) const COUNTER: i64 = 4;
}

/// `TracePacket.SequenceFlags`: the first resets all interned names, the second says that a packet needs them.
pub(super) mod flag {
    pub(in super::super) const CLEARED: i64 = 1;
    pub(in super::super) const NEEDED: i64 = 2;
}

/// `SiblingMergeBehavior.SIBLING_MERGE_BEHAVIOR_BY_SIBLING_MERGE_KEY`: the viewer merges the lanes of a device into one
/// row.
pub(super) const MERGE_BY_KEY: i64 = 3;
