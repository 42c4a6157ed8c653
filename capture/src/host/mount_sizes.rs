//! Sizes of mounted file systems, asked of each with a deadline: a dead server or a stopped FUSE daemon never answers.

use std::{path::PathBuf, sync::mpsc, thread, time::Duration};

use ioreel_traces::{host::os_path, manifest::Mount};

/// Time that a file system has to answer. Local ones take microseconds, servers milliseconds.
const DEADLINE: Duration = Duration::from_secs(1);
/// File systems that may fail to answer before the others are no longer asked.
const MAX_SILENT: usize = 4;

/// Total and free bytes.
type Size = Option<(i64, i64)>;

/// Fills in the sizes. A file system that does not answer in time is named in a warning, and its sizes stay as they are.
pub(super) fn fill(mounts: &mut [Mount]) {
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
        let Ok(asking) = asking else { return };
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
                    log::warn!(
                        "{at}: the file system did not answer within {} s; its size is unknown",
                        DEADLINE.as_secs()
                    );
                }
            }
            next += 1;
        }
        if answered {
            // It has sent its last answer.
            let _ = asking.join();
        }
    }
}

fn size_of(path: &PathBuf) -> Size {
    let s = rustix::fs::statvfs(path).ok()?;
    Some(((s.f_blocks * s.f_frsize) as i64, (s.f_bfree * s.f_frsize) as i64))
}
