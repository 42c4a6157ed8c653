//! Sizes of mounted file systems, asked of each with a deadline: a dead server or a stopped FUSE daemon never answers.

use std::{path::PathBuf, sync::mpsc, thread, time::Duration};

use ioreel_traces::{host::os_path, manifest::Mount};

/// Time that a file system has to answer. Local ones take microseconds, servers milliseconds.
const DEADLINE: Duration = Duration::from_secs(1);
/// File systems that may fail to answer before the others are no longer asked.
const MAX_SILENT: usize = 4;

/// Total and free bytes.
type Size = Option<(i64, i64)>;

/// Fills in the sizes. Warnings: the file systems that did not answer in time, and how many were not asked after them. Must not be
/// called before the process's last fork: a thread may stay behind.
pub(crate) fn fill(mounts: &mut [Mount]) -> Vec<String> {
    let mut warnings = Vec::new();
    let paths: Vec<PathBuf> = mounts.iter().map(|m| os_path(&m.mountpoint)).collect();
    let mut silent = 0;
    let mut next = 0;
    while next < mounts.len() && silent < MAX_SILENT {
        let (sender, sizes) = mpsc::channel();
        let rest = paths[next..].to_vec();
        // A thread that asks a silent file system waits for good. It holds nothing that the recorder needs.
        let asking = thread::Builder::new().name("mount-sizes".into()).spawn(move || {
            for path in rest {
                if sender.send(size_of(&path)).is_err() {
                    break;
                }
            }
        });
        let asking = match asking {
            Ok(asking) => asking,
            Err(e) => {
                warnings.push(format!("the sizes of file systems are unknown: starting a thread: {e}"));
                return warnings;
            }
        };
        let mut answered = true;
        while next < mounts.len() && answered {
            match sizes.recv_timeout(DEADLINE) {
                Ok(Some((total_bytes, free_bytes))) => {
                    (mounts[next].total_bytes, mounts[next].free_bytes) = (total_bytes, free_bytes);
                }
                Ok(None) => {}
                Err(_) => {
                    answered = false;
                    silent += 1;
                    let at = paths[next].display();
                    let time_s = DEADLINE.as_secs();
                    warnings
                        .push(format!("{at}: the file system did not answer within {time_s} s; its size is unknown"));
                }
            }
            next += 1;
        }
        if answered {
            // It has sent its last answer.
            let _ = asking.join();
        }
    }
    if next < mounts.len() {
        warnings.push(format!("{} more file systems were not asked for their sizes", mounts.len() - next));
    }
    warnings
}

fn size_of(path: &PathBuf) -> Size {
    let s = rustix::fs::statvfs(path).ok()?;
    Some(((s.f_blocks * s.f_frsize) as i64, (s.f_bfree * s.f_frsize) as i64))
}
