//! Nodes of devices, FIFOs and sockets: which of them the replay has.
//!
//! Whoever made a reel chooses its device numbers. If a replay by root created any node, a user who reaches the target
//! could read and write the disks of this machine. So devices are created only with `--device-nodes`, by root. A whiteout
//! of overlayfs (character device 0:0) opens nothing and is always created. A replay never opens a node.

use ioreel_traces::rows::Tree;

use crate::{
    Call,
    model::{
        machine::Machine,
        names::{Device, InitialState, Kind, Names, NodeId},
    },
    reel::input::Rec,
};

/// A whiteout of overlayfs.
const WHITEOUT: Device = Device { block: false, number: 0 };

/// The kind of file that a recorded mknod creates.
pub(crate) fn made_by_mknod(r: &Rec) -> Kind {
    match Kind::from_mode(r.mode) {
        Kind::Unknown => Kind::Regular,
        kind => kind,
    }
}

/// The device of a mknod, if it creates one and the number was recorded.
pub(crate) fn device_of(r: &Rec) -> Option<Device> {
    let block = r.mode as u32 & libc::S_IFMT == libc::S_IFBLK;
    let number = u32::try_from(r.aux).ok().filter(|_| made_by_mknod(r) == Kind::Device)?;
    Some(Device { block, number })
}

/// The device that a row of `tree` lists.
pub(crate) fn device_of_row(row: &Tree) -> Option<Device> {
    device_listed(&row.kind, row.rdev)
}

/// The device that these columns tell.
pub(crate) fn device_listed(kind: &str, rdev: Option<i64>) -> Option<Device> {
    let (major, minor) = (rdev? >> 20, rdev? & 0xf_ffff);
    let number = u32::try_from(libc::makedev(u32::try_from(major).ok()?, minor as u32)).ok()?;
    matches!(kind, "char" | "block").then_some(Device { block: kind == "block", number })
}

/// Whether a replay creates a node of this kind. `allowed`: devices may be created.
pub(crate) fn is_made(kind: Kind, device: Option<Device>, allowed: bool) -> bool {
    kind != Kind::Device || device == Some(WHITEOUT) || allowed && device.is_some()
}

/// The device of the node that existed at `node` at the start, if the reel has it.
fn device_before(names: &Names, tree: &[Tree], node: NodeId) -> Option<Device> {
    match names.before(node) {
        InitialState::Present { row, .. } => tree.get(*row as usize).and_then(device_of_row),
        _ => None,
    }
}

impl Machine {
    /// Whether devices may be created.
    pub(crate) fn makes_devices(&self) -> bool {
        self.privileged && self.device_nodes
    }

    /// Whether a call creates a device node that is left out.
    pub(crate) fn leaves_node_out(&self, r: &Rec) -> bool {
        let makes = matches!(r.call, Call::Mknod | Call::Mknodat);
        makes && !is_made(made_by_mknod(r), device_of(r), self.makes_devices())
    }

    /// Whether the replay has the same kind of file here.
    pub(crate) fn is_ours(&mut self, node: NodeId) -> bool {
        let kind = self.names.kind(node);
        if matches!(kind, Kind::Fifo | Kind::Socket) || self.names.is_made(node) {
            return true;
        }
        let pre = self.names.pre(node);
        let device = device_before(&self.names, &self.reel.tree, pre);
        kind == Kind::Device && is_made(kind, device, self.makes_devices())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reel::input::UNKNOWN_DEVICE;

    #[test]
    fn a_listed_device_has_the_number_of_a_made_one() {
        for (major, minor) in [(1, 3), (8, 17), (259, 70_000), (0, 0), (4095, (1 << 20) - 1)] {
            let rdev = Some(i64::from(major) << 20 | i64::from(minor));
            let row = Tree { kind: "block".into(), rdev, ..Tree::default() };
            let mode = (libc::S_IFBLK | 0o600) as i32;
            let made = Rec { aux: libc::makedev(major, minor) as i64, mode, ..Rec::none() };
            assert!(device_of(&made).is_some());
            assert_eq!(device_of(&made), device_of_row(&row), "{major}:{minor}");
            assert_eq!(device_of(&Rec { aux: UNKNOWN_DEVICE, ..made }), None);
        }
        assert_eq!(device_of_row(&Tree { kind: "regular".into(), rdev: Some(5), ..Tree::default() }), None);
    }

    #[test]
    fn only_whiteouts_are_made_unasked() {
        let null = Some(Device { block: false, number: 0x103 });
        assert!(is_made(Kind::Device, Some(WHITEOUT), false));
        assert!(!is_made(Kind::Device, Some(Device { block: true, number: 0 }), false));
        assert!(!is_made(Kind::Device, null, false) && is_made(Kind::Device, null, true));
        assert!(!is_made(Kind::Device, None, true));
        assert!(is_made(Kind::Socket, None, false) && is_made(Kind::Fifo, None, false));
    }
}
