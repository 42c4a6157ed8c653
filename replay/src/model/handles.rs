//! File handles (name_to_handle_at): the names that they stand for.

use crate::{
    Skip,
    model::{machine::Machine, names::ROOT, operands::Operands},
    reel::input::{NO_ID, NONE, Rec},
};

impl Machine {
    /// A handle stands for the name from which it was made. An open by handle becomes an open by name.
    pub(crate) fn look_at_handle(&mut self, r: &Rec, v: &mut Operands) -> Result<(), Skip> {
        if r.ret < 0 {
            return Err(Skip::ForeignCause);
        }
        let value = if r.value == NONE { &[][..] } else { self.reel.texts.paths.bytes(r.value) };
        let node = self.handles.get(value).copied().ok_or(Skip::OutOfSight)?;
        // The file may have been renamed since.
        let here = r.file == NO_ID || self.named_files.get(node) == Some(r.file);
        let node = if here { node } else { self.named_files.name_of(r.file).unwrap_or(node) };
        let root = self.processes.places[self.processes.of(r.task as usize).place].value.own_root;
        if root != ROOT || self.names.exists(node) != Some(true) {
            return Err(Skip::OutOfSight);
        }
        v.node = node;
        self.names.area(node).map_or(Ok(()), Err)
    }
}
