//! Where replayed files are, judged by recorded paths alone.

use ioreel_traces::{rows::Op, text::to_bytes};

use crate::{base::paths::is_at_or_below, reel::input::Input};

/// mount(2): only flags of the mount, or its propagation, change.
const MS_KEEPS_TREE: i64 = libc::MS_REMOUNT as i64
    | libc::MS_PRIVATE as i64
    | libc::MS_SLAVE as i64
    | libc::MS_SHARED as i64
    | libc::MS_UNBINDABLE as i64;

/// The prefixes that a replay is limited to. Without any: everything but `/proc`, `/sys` and `/dev`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roots(Vec<Vec<u8>>);

/// Whether nothing is ever replayed there.
fn is_of_kernel(path: &[u8]) -> bool {
    let below = |dir: &[u8]| is_at_or_below(path, dir);
    below(b"/proc") || below(b"/sys") || below(b"/dev") && !below(b"/dev/shm")
}

impl Roots {
    pub(crate) fn new(roots: &[Vec<u8>]) -> Self {
        Self(roots.to_vec())
    }

    /// Whether files at this absolute path are replayed.
    pub(crate) fn contain(&self, path: &[u8]) -> bool {
        !is_of_kernel(path) && (self.0.is_empty() || self.0.iter().any(|root| is_at_or_below(path, root)))
    }

    /// Whether paths into the roots lead elsewhere after a mount at this path.
    fn depend_on(&self, path: &[u8]) -> bool {
        // The start of a relative path is not known here.
        path.first() != Some(&b'/')
            || self.contain(path)
            || !is_of_kernel(path) && self.0.iter().any(|root| is_at_or_below(root, path))
    }

    /// Whether a call that a replay does not know has changed files, or where paths lead. Requests of ioctl are judged
    /// by their direction if they have no name: those that only read are harmless.
    pub(crate) fn changed_by(&self, op: &Op) -> bool {
        let at = |path: &Option<ioreel_traces::Text>| path.as_ref().is_none_or(|p| self.depend_on(&to_bytes(p)));
        if op.ret.is_none_or(|ret| ret < 0) || op.source != *"syscall" {
            return false;
        }
        match &*op.op {
            "mount" => op.flags.unwrap_or(0) & MS_KEEPS_TREE == 0 && at(&op.path2),
            "umount2" | "pivot_root" => at(&op.path),
            "move_mount" => at(&op.path2),
            "ioctl" => match op.name.as_deref() {
                Some(name) => {
                    let makes = ["CREATE", "DESTROY", "VERITY", "ENCRYPTION_POLICY", "MOVE_EXT", "SWAP", "RESVSP"];
                    makes.iter().any(|word| name.contains(word))
                }
                // FIONBIO and other requests about sockets and terminals have no direction.
                None => {
                    let request = op.flags.unwrap_or(0);
                    request >> 30 & 1 == 1 && !asks_btrfs(request)
                }
            },
            _ => false,
        }
    }
}

/// Requests to btrfs that pass what they ask for: searches of its trees and names, devices, and waits for removals
/// (linux/btrfs.h).
fn asks_btrfs(request: i64) -> bool {
    const ASK: [i64; 12] = [17, 18, 20, 22, 30, 35, 36, 59, 60, 61, 62, 65];
    request >> 8 & 0xff == 0x94 && ASK.contains(&(request & 0xff))
}

impl Input {
    /// Sets where replayed files are: absolute prefixes, none for everywhere.
    pub(crate) fn set_roots(&mut self, roots: &[Vec<u8>]) {
        self.roots = Roots::new(roots);
        for info in self.files.values_mut() {
            info.within = !info.unlinked && info.path.as_ref().is_some_and(|p| self.roots.contain(&to_bytes(p)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(name: &str, path: &str, path2: &str) -> Op {
        let text = |p: &str| (!p.is_empty()).then(|| p.into());
        Op {
            op: name.into(),
            source: "syscall".into(),
            ret: Some(0),
            path: text(path),
            path2: text(path2),
            ..Op::default()
        }
    }

    #[test]
    fn mounts_matter_where_replayed_files_are() {
        let roots = Roots::new(&[b"/srv/data".to_vec()]);
        let mount = |to: &str, flags| roots.changed_by(&Op { flags: Some(flags), ..op("mount", "tmpfs", to) });
        assert!(mount("/srv/data/x", 0) && mount("/srv", 0) && mount("here", 0));
        assert!(!mount("/srv/other", 0) && !mount("/proc", 0));
        assert!(!mount("/srv/data", libc::MS_REMOUNT as i64), "a remount leaves the tree as it is");
        assert!(!mount("/", (libc::MS_REC | libc::MS_PRIVATE) as i64));
        assert!(roots.changed_by(&op("umount2", "/srv/data/x", "")));
        assert!(!roots.changed_by(&Op { ret: Some(-1), ..op("umount2", "/srv/data/x", "") }));
        let everywhere = Roots::default();
        assert!(everywhere.contain(b"/a") && everywhere.contain(b"/dev/shm/a") && !everywhere.contain(b"/dev/null"));
    }

    #[test]
    fn requests_that_only_ask_change_nothing() {
        let ioctl = |name: Option<&str>, number| {
            let o = Op { flags: Some(number), name: name.map(Into::into), ..op("ioctl", "", "") };
            Roots::default().changed_by(&o)
        };
        assert!(ioctl(Some("BTRFS_IOC_SUBVOL_CREATE"), 0x5000_940e));
        assert!(!ioctl(Some("FITRIM"), 0xc018_5879) && !ioctl(None, 0x541b) && !ioctl(None, 0x8008_1234));
        assert!(ioctl(None, 0x4008_1234));
        // INO_LOOKUP and WAIT_SYNC of btrfs ask, SUBVOL_SETFLAGS does not.
        assert!(!ioctl(None, 0xd000_9412) && !ioctl(None, 0x4008_9416) && ioctl(None, 0x4008_941a));
    }
}
