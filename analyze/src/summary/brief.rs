//! The few totals that `ioreel record` ends with, by the same rules as [`Summary`](super::Summary).

use ioreel_traces::Reel;

use super::Requests;
use crate::{
    Result,
    events::{
        calls::each_call,
        requests::Class,
        scope::Scope,
        targets::{Bytes, Moved},
    },
};

/// Totals of a reel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Brief {
    /// Operations, without ioreel's own.
    pub calls: u64,
    /// Their bytes.
    pub moved: Moved,
    /// Bytes of each device that read or wrote any, most first.
    pub devices: Vec<(i64, Bytes)>,
}

impl Brief {
    /// Reads operations and requests once. A rotated reel counts from the time on from which it is complete.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub fn of(reel: &Reel) -> Result<Self> {
        let scope = Scope::default().of_kept(reel)?;
        let mut brief = Self::default();
        each_call(reel, |call| {
            if !call.by_tool && scope.holds_time(call.start_ns) {
                let (read, written) = call.moved();
                brief.calls += 1;
                brief.moved.add_bytes(read, written);
            }
        })?;
        let bytes = |meter: &super::DeviceMeter| Bytes {
            read_bytes: meter.bytes(Class::Read),
            write_bytes: meter.bytes(Class::Write),
        };
        let devices = Requests::of(reel, &scope)?.devices;
        brief.devices = devices.iter().map(|(dev, meter)| (*dev, bytes(meter))).filter(|(_, b)| b.sum() > 0).collect();
        brief.devices.sort_by_key(|(dev, bytes)| (std::cmp::Reverse(bytes.sum()), *dev));
        Ok(brief)
    }
}
