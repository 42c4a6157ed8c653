//! BPF iterators: which tasks there are, what they have open, and what is in flight.

use std::{
    io::Read,
    mem::{offset_of, size_of},
};

use ioreel_bpf::types::{adoption, rec_hdr, rec_type, rec_uring, uring_slot};
use libbpf_rs::{Iter, MapCore, MapFlags, MapType};

use super::Session;
use crate::{
    CaptureError,
    decode::wire::NO_CPU,
    host::{self, functions::Functions},
};

impl Session<'_> {
    /// Adopts the threads of the target and takes a snapshot of them; returns the records. Call it when active: a
    /// thread is recorded from its adoption, and the fork probe catches threads created meanwhile, so none is missed.
    pub fn adopt(&self) -> Result<Vec<u8>, CaptureError> {
        let doing = "listing the target's threads";
        self.tell_adoption(0, true, true)?;
        let mut records = self.iterate(self.skel.links.adopt.as_ref(), doing)?;
        self.tell_adoption(0, true, false)?;
        // A pass that finds no new thread has seen all of them.
        loop {
            let more = self.iterate(self.skel.links.adopt.as_ref(), doing)?;
            if more.is_empty() {
                break;
            }
            records.extend(more);
        }
        records.extend(self.look()?);
        Ok(records)
    }

    /// Number of tasks that joined by themselves. When it grows, call [`Session::look`].
    pub fn joined(&self) -> u64 {
        self.skel.maps.bss_data.as_deref().map_or(0, |bss| {
            // SAFETY: a valid, aligned u64; the kernel changes it atomically.
            unsafe { std::ptr::from_ref(&bss.joined).read_volatile() }
        })
    }

    /// Snapshot of the tasks adopted since the last one: working directories, descriptors, mapped files.
    pub fn look(&self) -> Result<Vec<u8>, CaptureError> {
        let round = self.round.get();
        // 0 marks children of recorded tasks.
        self.round.set(round.checked_add(1).unwrap_or(1));
        self.tell_adoption(round, false, false)?;
        let links = &self.skel.links;
        let mut records = self.iterate(links.places.as_ref(), "listing working directories")?;
        records.extend(self.iterate(links.descriptors.as_ref(), "listing open descriptors")?);
        records.extend(self.iterate(links.mappings.as_ref(), "listing mapped files")?);
        records.extend(looked());
        Ok(records)
    }

    fn tell_adoption(&self, look_round: u16, adopting: bool, leaders_only: bool) -> Result<(), CaptureError> {
        let mut value = [0u8; size_of::<adoption>()];
        value[..2].copy_from_slice(&self.round.get().to_ne_bytes());
        value[2..4].copy_from_slice(&look_round.to_ne_bytes());
        value[4] = u8::from(adopting);
        value[5] = u8::from(leaders_only);
        self.skel
            .maps
            .adoption
            .update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(CaptureError::bpf("starting a snapshot"))
    }

    /// The kernel's functions with their addresses; empty unless waits are recorded.
    pub(crate) fn symbols(&self) -> Result<Functions, CaptureError> {
        if self.skel.links.symbols.is_none() {
            return Ok(Functions::default());
        }
        let bytes = self.iterate(self.skel.links.symbols.as_ref(), "listing the kernel's functions")?;
        Ok(Functions::read(&bytes))
    }

    /// Records of operations that have started and not ended.
    pub fn in_flight(&self) -> Result<Vec<u8>, CaptureError> {
        let mut records = self.iterate(self.skel.links.in_flight.as_ref(), "listing operations in flight")?;
        let mut left = Vec::new();
        for map in [&self.skel.maps.uring_slots, &self.skel.maps.uring_requests] {
            if !self.skel.maps.bss_data.as_deref().is_some_and(|bss| bss.uring_met) {
                break;
            }
            // A slot of the array is in use when its key is not 0. The hash contains only used ones.
            let array = map.map_type() == MapType::Array;
            for key in map.keys() {
                // A request that ends just now is skipped; its own record came too late to be taken.
                if let Some(slot) = map.lookup(&key, MapFlags::ANY).map_err(CaptureError::bpf("listing requests"))?
                    && let Some((name, state)) = slot.split_at_checked(offset_of!(uring_slot, state))
                    && (!array || name.iter().any(|b| *b != 0))
                    && let Some(rec) = state.get(..size_of::<rec_uring>())
                {
                    left.push(uring_in_flight(rec));
                }
            }
        }
        left.sort_by_key(|(start_ns, _)| *start_ns);
        records.extend(left.into_iter().flat_map(|(_, rec)| rec));
        Ok(records)
    }

    /// Records of operations that wait in stopped threads because the ring was full.
    pub(crate) fn held(&self) -> Result<Vec<u8>, CaptureError> {
        self.iterate(self.skel.links.held.as_ref(), "listing operations of stopped threads")
    }

    pub(super) fn iterate(&self, link: Option<&libbpf_rs::Link>, doing: &'static str) -> Result<Vec<u8>, CaptureError> {
        let link = link.ok_or(CaptureError::Bpf { doing, why: "the iterator is not attached".into() })?;
        let mut records = Vec::new();
        Iter::new(link)
            .map_err(CaptureError::bpf(doing))?
            .read_to_end(&mut records)
            .map_err(CaptureError::os(doing))?;
        Ok(records)
    }
}

/// The record that marks the end of a snapshot: a header, whose time is all that matters.
fn looked() -> Vec<u8> {
    let mut bytes = vec![0; size_of::<rec_hdr>()];
    bytes[8..16].copy_from_slice(&host::monotonic_ns().to_ne_bytes());
    bytes[16..20].copy_from_slice(&(size_of::<rec_hdr>() as u32).to_ne_bytes());
    bytes[20..22].copy_from_slice(&NO_CPU.to_ne_bytes());
    bytes[22] = rec_type::REC_LOOKED.0 as u8;
    bytes
}

/// Completes the record of a request that is still in flight when operations end, and returns its submission time.
/// `rec`: what the probes have filled in so far; its header is empty.
fn uring_in_flight(rec: &[u8]) -> (u64, Vec<u8>) {
    let mut bytes = rec.to_vec();
    let field = |at: usize| rec.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
    let start_ns = field(offset_of!(rec_uring, start_ns));
    let mut put = |at: usize, value: &[u8]| {
        if let Some(place) = bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    };
    let hdr = offset_of!(rec_uring, hdr);
    put(hdr + offset_of!(rec_hdr, end_ns), &start_ns.to_ne_bytes());
    put(hdr + offset_of!(rec_hdr, len_bytes), &(rec.len() as u32).to_ne_bytes());
    put(hdr + offset_of!(rec_hdr, r#type), &[rec_type::REC_URING.0 as u8]);
    (start_ns, bytes)
}
