//! Threads in user name spaces: their ids are others in the initial one, which files have.

use crate::{
    Call,
    model::{access_lists, machine::Machine},
    reel::{
        input::{NONE, Rec},
        user_ids::IdsOf,
    },
};

impl Machine {
    /// Whether it names users whose ids in the initial user name space are unknown. The ids in access lists are not
    /// translated.
    pub(crate) fn names_unknown_users(&self, r: &Rec) -> bool {
        let maps = self.processes.of(r.task as usize).maps_users;
        // No groups are none everywhere.
        if r.call == Call::Setgroups && r.aux == 0 {
            return false;
        }
        if r.call.chowns() || r.call.sets_user() {
            return match r.ids {
                IdsOf::Initial => false,
                IdsOf::Thread => maps,
                IdsOf::Unknown => true,
            };
        }
        let text = |at: u32| if at == NONE { &[][..] } else { self.reel.texts.paths.bytes(at) };
        maps && r.call.sets_attribute() && access_lists::is_list(text(r.name)) && access_lists::names_any(text(r.value))
    }
}
