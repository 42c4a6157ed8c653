//! Where replayed files are, judged by recorded paths alone.

use ioreel_traces::{rows::Op, text::to_bytes};

use crate::{base::paths::is_at_or_below, reel::input::Input};

/// mount_setattr: files get other owners through the mount (linux/mount.h).
const MOUNT_ATTR_IDMAP: i64 = 0x10_0000;

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

    /// Whether anything at or below this directory is replayed.
    pub(crate) fn overlap(&self, dir: &[u8]) -> bool {
        self.contain(dir) || self.0.iter().any(|root| is_at_or_below(root, dir))
    }

    /// Whether a call that a replay does not know has changed files, or where paths lead. Requests of ioctl are judged
    /// by their direction if they have no name: those that only read are harmless.
    pub(crate) fn changed_by(op: &Op) -> bool {
        if op.ret.is_none_or(|ret| ret < 0) || op.source != *"syscall" {
            return false;
        }
        match &*op.op {
            "mount_setattr" | "open_tree_attr" => op.aux.unwrap_or(0) & MOUNT_ATTR_IDMAP != 0,
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

    fn op(name: &str, path: &str) -> Op {
        let text = |p: &str| (!p.is_empty()).then(|| p.into());
        Op { op: name.into(), source: "syscall".into(), ret: Some(0), path: text(path), ..Op::default() }
    }

    #[test]
    fn other_owners_through_a_mount_change_files() {
        let set = |aux, ret| Roots::changed_by(&Op { aux: Some(aux), ret: Some(ret), ..op("mount_setattr", "/srv") });
        assert!(set(MOUNT_ATTR_IDMAP, 0) && !set(1, 0) && !set(MOUNT_ATTR_IDMAP, -1));
    }

    #[test]
    fn nothing_of_the_kernel_is_replayed() {
        let everywhere = Roots::default();
        assert!(everywhere.contain(b"/a") && everywhere.contain(b"/dev/shm/a") && !everywhere.contain(b"/dev/null"));
    }

    #[test]
    fn requests_that_only_ask_change_nothing() {
        let ioctl = |name: Option<&str>, number| {
            Roots::changed_by(&Op { flags: Some(number), name: name.map(Into::into), ..op("ioctl", "") })
        };
        assert!(ioctl(Some("BTRFS_IOC_SUBVOL_CREATE"), 0x5000_940e));
        assert!(!ioctl(Some("FITRIM"), 0xc018_5879) && !ioctl(None, 0x541b) && !ioctl(None, 0x8008_1234));
        assert!(ioctl(None, 0x4008_1234));
        // INO_LOOKUP and WAIT_SYNC of btrfs ask, SUBVOL_SETFLAGS does not.
        assert!(!ioctl(None, 0xd000_9412) && !ioctl(None, 0x4008_9416) && ioctl(None, 0x4008_941a));
    }
}
