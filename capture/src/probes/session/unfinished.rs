//! Bios and requests that had not ended when the recording ended.

use std::mem::offset_of;

use ioreel_bpf::types::{bio_flags, bio_slot, rec_bio, rec_rq, rq_slot};
use libbpf_rs::{MapCore, MapFlags};

use super::Session;
use crate::{CaptureError, decode::wire};

/// Elements per batch lookup.
const BATCH: u32 = 1024;

/// Bios and requests left in the block layer's tables, the earliest first. Hidden ones are not included.
#[derive(Debug, Default)]
pub(crate) struct Unended {
    pub(crate) bios: Vec<rec_bio>,
    pub(crate) requests: Vec<rec_rq>,
}

impl Session<'_> {
    /// Call this after the recording has ended: the tables no longer change.
    pub(crate) fn unended(&self) -> Result<Unended, CaptureError> {
        const DOING: &str = "listing I/O in flight";
        let maps = &self.skel.maps;
        let mut out = Unended::default();
        let values = |map: &libbpf_rs::Map<'_>| -> Result<Vec<Vec<u8>>, CaptureError> {
            let batches = map.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY);
            Ok(batches.map_err(CaptureError::bpf(DOING))?.map(|(_, value)| value).collect())
        };
        out.bios.extend(values(&maps.bio_slots)?.iter().filter(|v| is_taken(v)).filter_map(|v| unended_bio(v)));
        // This hash has no empty slots. Few recordings ever use it.
        for key in maps.bios_more.keys() {
            let value = maps.bios_more.lookup(&key, MapFlags::ANY).map_err(CaptureError::bpf(DOING))?;
            out.bios.extend(value.and_then(|v| unended_bio(&v)));
        }
        let mut rq_id = self.skel.maps.bss_data.as_deref().map_or(0, |bss| bss.next_rq_id);
        for slot in values(&maps.rq_slots)?.iter().filter(|v| is_taken(v)) {
            let Some(slot) = wire::whole::<rq_slot>(slot).filter(|s| s.hide == 0) else { continue };
            rq_id += 1;
            out.requests.push(rec_rq {
                rq_id,
                queue_ns: slot.queue_ns,
                issue_ns: slot.issue_ns,
                sector: slot.sector,
                dev: slot.dev,
                len_bytes: slot.len_bytes,
                opf: slot.opf,
                issue_cpu: slot.cpu,
                requeues: slot.requeues,
                no_end: 1,
                ..Default::default()
            });
        }
        out.bios.sort_by_key(|b| b.queue_ns);
        out.requests.sort_by_key(|r| r.issue_ns);
        Ok(out)
    }
}

impl Session<'_> {
    /// Whether a bio that a recorded task queued on one of these disks has not ended. If the table cannot be read: no.
    pub(crate) fn has_own_in_flight(&self, disks: &[i64]) -> bool {
        let Ok(mut slots) = self.skel.maps.bio_slots.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY) else {
            return false;
        };
        let is_own = |bio: rec_bio| bio.task_id != 0 && disks.contains(&i64::from(bio.dev));
        slots.any(|(_, slot)| is_taken(&slot) && unended_bio(&slot).is_some_and(is_own))
    }
}

/// Both kinds of slots start with their key; a key of 0 marks a free slot.
fn is_taken(slot: &[u8]) -> bool {
    slot.iter().take(size_of::<u64>()).any(|b| *b != 0)
}

fn unended_bio(slot: &[u8]) -> Option<rec_bio> {
    let mut bio = wire::whole::<rec_bio>(slot.get(offset_of!(bio_slot, rec)..)?)?;
    bio.flags = (bio.flags & !(bio_flags::BIOF_PEEK_LATER.0 as u8)) | bio_flags::BIOF_NO_END.0 as u8;
    (bio.hide == 0).then_some(bio)
}
