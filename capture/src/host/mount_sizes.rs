//! Sizes of mounted file systems. Each statfs has a deadline: an unreachable server or a stopped FUSE daemon never
//! answers.

use std::{path::PathBuf, sync::mpsc, thread, time::Duration};

use ioreel_traces::{host::os_path, manifest::Mount};

/// Time that a file system gets to answer. Local ones need microseconds, servers milliseconds.
const DEADLINE: Duration = Duration::from_secs(1);
/// After this many file systems without an answer, the remaining ones are not queried.
const MAX_SILENT: usize = 4;

/// Total and free bytes.
type Size = Option<(i64, i64)>;

/// Fills in the sizes. Returns warnings: which file systems did not answer in time, and how many were not queried after
/// them. Call it only after the last fork of this process: a blocked thread may remain.
pub(crate) fn fill(mounts: &mut [Mount]) -> Vec<String> {
    let mut warnings = Vec::new();
    let paths: Vec<PathBuf> = mounts.iter().map(|m| os_path(&m.mountpoint)).collect();
    let mut silent = 0;
    let mut next = 0;
    while next < mounts.len() && silent < MAX_SILENT {
        let (sender, sizes) = mpsc::channel();
        let rest = paths[next..].to_vec();
        // The thread blocks forever on a file system that does not answer. It holds nothing that the recorder needs.
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
                warnings.push(format!("the sizes of file systems are unknown: cannot start a thread: {e}"));
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
            // The thread has sent its last result, so this does not block.
            let _ = asking.join();
        }
    }
    if next < mounts.len() {
        warnings.push(format!(
            "the sizes of {} more file systems are unknown: too many did not answer",
            mounts.len() - next
        ));
    }
    warnings
}

fn size_of(path: &PathBuf) -> Size {
    let s = rustix::fs::statvfs(path).ok()?;
    Some(((s.f_blocks * s.f_frsize) as i64, (s.f_bfree * s.f_frsize) as i64))
}
