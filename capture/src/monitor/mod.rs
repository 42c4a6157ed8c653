//! Everything that loads probes without writing a recording: the live view, the activity of given disks, and the check of
//! what this machine supports.
//!
//! In: disks or tasks to watch. Out: counts per interval, rows of disk activity, or a list of checks. May use every other
//! stage.

pub mod disk_watch;
pub mod doctor;
pub mod live;
