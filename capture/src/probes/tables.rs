//! Maps that any thread may change during a recording.

use std::mem::size_of;

use ioreel_bpf::{
    IoreelSkel,
    types::{file_id, hidden_key},
};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::CaptureError;

/// Handles of maps that any thread may change during a recording.
#[derive(Debug)]
pub struct Tables {
    devices: MapHandle,
    hidden_files: MapHandle,
    unwanted_files: MapHandle,
}

impl Tables {
    /// Opens the maps of loaded probes.
    pub(super) fn of(skel: &IoreelSkel<'_>) -> Result<Self, CaptureError> {
        let open = CaptureError::bpf("opening a table");
        let all = || -> libbpf_rs::Result<Self> {
            Ok(Self {
                devices: MapHandle::try_from(&skel.maps.devices)?,
                hidden_files: MapHandle::try_from(&skel.maps.hidden_files)?,
                unwanted_files: MapHandle::try_from(&skel.maps.unwanted_files)?,
            })
        };
        all().map_err(open)
    }

    /// Starts to record this disk.
    pub fn add_device(&self, dev: i64) -> Result<(), CaptureError> {
        self.devices
            .update(&(dev as u32).to_ne_bytes(), &[1], MapFlags::ANY)
            .map_err(CaptureError::bpf("naming a device to record"))
    }

    /// Excludes device I/O of this file. `why`: a value of the wire format's `hide`.
    pub fn hide_file(&self, ino: u64, sb_dev: u32, why: u32) -> Result<(), CaptureError> {
        self.hidden_files
            .update(&hidden(ino, sb_dev), &[why as u8], MapFlags::ANY)
            .map_err(CaptureError::bpf("hiding the recorder's own files"))
    }

    /// Ends the exclusion.
    pub(crate) fn show_file(&self, ino: u64, sb_dev: u32) -> Result<(), CaptureError> {
        deleted(self.hidden_files.delete(&hidden(ino, sb_dev)), "hiding the recorder's own files no longer")
    }

    /// Drops calls on this file in the kernel.
    pub(crate) fn leave_out_file(&self, file: file_id) -> Result<(), CaptureError> {
        self.unwanted_files
            .update(&key_of(file), &[1], MapFlags::ANY)
            .map_err(CaptureError::bpf("telling which files are left out"))
    }

    /// Keeps calls on this file again.
    pub(crate) fn keep_file(&self, file: file_id) -> Result<(), CaptureError> {
        deleted(self.unwanted_files.delete(&key_of(file)), "telling which files are kept")
    }

    pub(super) fn duplicate(&self) -> Result<Self, CaptureError> {
        let copy = |m: &MapHandle| MapHandle::try_from(m).map_err(CaptureError::bpf("sharing a table"));
        Ok(Self {
            devices: copy(&self.devices)?,
            hidden_files: copy(&self.hidden_files)?,
            unwanted_files: copy(&self.unwanted_files)?,
        })
    }
}

/// Treats a missing key as success.
fn deleted(done: libbpf_rs::Result<()>, doing: &'static str) -> Result<(), CaptureError> {
    match done {
        Err(e) if e.kind() != libbpf_rs::ErrorKind::NotFound => Err(CaptureError::bpf(doing)(e)),
        _ => Ok(()),
    }
}

fn hidden(ino: u64, sb_dev: u32) -> [u8; size_of::<hidden_key>()] {
    let mut key = [0u8; size_of::<hidden_key>()];
    key[..8].copy_from_slice(&ino.to_ne_bytes());
    key[8..12].copy_from_slice(&sb_dev.to_ne_bytes());
    key
}

fn key_of(file: file_id) -> [u8; size_of::<file_id>()] {
    let mut key = [0u8; size_of::<file_id>()];
    key[..8].copy_from_slice(&file.ino.to_ne_bytes());
    key[8..12].copy_from_slice(&file.dev.to_ne_bytes());
    key[12..16].copy_from_slice(&file.generation.to_ne_bytes());
    key
}
