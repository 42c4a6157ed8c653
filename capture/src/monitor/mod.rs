//! Everything that loads probes without writing a reel: the live view, the activity of disks during a replay, and the
//! checks of `doctor`.
//!
//! In: disks or tasks to watch. Out: counts per interval, rows of disk activity, or a list of checks. May use every
//! other stage.

pub mod disk_watch;
pub mod doctor;
pub mod live;
