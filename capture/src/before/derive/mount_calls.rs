//! Calls that make, move and remove mounts.

use ioreel_traces::{mounting::Mounting, rows::Op};

use super::{Deriver, mounts::Real};

impl Deriver {
    /// Follows a call on mounts. `seen`, `seen2`: its paths, as far as known.
    pub(super) fn mounts_change(&mut self, op: &Op, ret: i64, flags: i32, seen: Option<&str>, seen2: Option<&str>) {
        // What fsopen and fsmount open is found by its file.
        if ret < 0 {
            return;
        }
        match &*op.op {
            "mount" => {
                let shown = match Mounting::of(op.flags.unwrap_or(0)) {
                    Mounting::Reconfigure | Mounting::Propagate { .. } => return,
                    Mounting::New => Some(self.places.mounts.other()),
                    Mounting::Bind { .. } => self.led(op, seen).map(|from| from.path),
                    Mounting::Move => self.taken_off(op, seen),
                };
                self.mounted(op, shown, seen2);
            }
            // Under the topmost mount, or to change the peer group.
            "move_mount" if op.flags.unwrap_or(0) & 0x300 != 0 => self.places.lose(op.task_id),
            "move_mount" => {
                let shown = if op.path.as_deref().is_none_or(str::is_empty) {
                    self.attached(op.file)
                } else {
                    self.taken_off(op, seen)
                };
                self.mounted(op, shown, seen2);
            }
            "umount2" => {
                if let (Some(at), Some(space)) = (self.led(op, seen), self.space(op))
                    && let Some(point) = at.point.or_else(|| self.places.mounts.point_of(space, &at.path))
                {
                    self.places.mounts.unmount(space, &point);
                }
            }
            "pivot_root" => self.root_changed(op, seen, seen2),
            "fsopen" | "fsmount" => {
                if let Some(file) = op.file {
                    self.mounted_elsewhere.insert(file);
                }
            }
            // Without flags, the kind of namespace is unknown.
            "setns" if flags == 0 || flags & libc::CLONE_NEWNS != 0 => self.places.lose(op.task_id),
            _ => {}
        }
    }

    fn space(&self, op: &Op) -> Option<usize> {
        Some(self.places.of(op.task_id)?.mounts)
    }

    fn led(&self, op: &Op, seen: Option<&str>) -> Option<Real> {
        Some(self.places.mounts.real(self.space(op)?, seen?))
    }

    /// What a descriptor of a mount that is attached nowhere stands for.
    fn attached(&mut self, file: Option<i64>) -> Option<String> {
        let file = file?;
        if self.mounted_elsewhere.contains(&file) {
            return Some(self.places.mounts.other());
        }
        self.files.name_of(file).map(|name| name.trim_end_matches('/').to_owned())
    }

    /// Takes the mount at this path off. Returns what it shows.
    fn taken_off(&mut self, op: &Op, seen: Option<&str>) -> Option<String> {
        let (from, space) = (self.led(op, seen)?, self.space(op)?);
        let mounted = from.point.as_ref().and_then(|point| self.places.mounts.unmount(space, point));
        Some(mounted.unwrap_or(from.path))
    }

    fn mounted(&mut self, op: &Op, shown: Option<String>, seen: Option<&str>) {
        let followed = match (shown, self.led(op, seen), self.space(op)) {
            (Some(shown), Some(to), Some(space)) => self.places.mounts.mount(space, to.over(), shown),
            _ => false,
        };
        if !followed {
            self.places.lose(op.task_id);
        }
    }

    fn root_changed(&mut self, op: &Op, seen: Option<&str>, seen2: Option<&str>) {
        let (Some(seen), Some(new), Some(put), Some(space)) =
            (seen, self.led(op, seen), self.led(op, seen2), self.space(op))
        else {
            return self.places.lose(op.task_id);
        };
        // The new root is no longer mounted where it was.
        if let Some(point) = new.point.clone().or_else(|| self.places.mounts.point_of(space, &new.path)) {
            self.places.mounts.unmount(space, &point);
        }
        let Some(old) = self.places.mounts.pivot(space, new.path.clone()) else { return self.places.lose(op.task_id) };
        // pivot_root(".", ".") leaves the old root above the new one, to be unmounted.
        let stays = put.path != new.path;
        if stays && !self.places.mounts.mount(space, put.over(), old) {
            return self.places.lose(op.task_id);
        }
        self.places.pivot(space, seen, seen2.filter(|_| stays));
    }
}
