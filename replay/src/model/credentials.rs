//! Credentials: user and group ids of the recorded threads, followed through set*id calls and execs.
//!
//! File systems check the effective ids and those for files (fsuid, fsgid); access(2) uses the real ones.

use crate::{
    Call,
    base::ids::{IN_USER_NS, KEEP_SET_IDS, OVER_FILES, Words},
    model::machine::Machine,
    reel::{
        input::{NONE, Rec},
        user_ids,
    },
};

/// The ids of a thread, for users or for groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Real.
    pub real: u32,
    /// Effective.
    pub effective: u32,
    /// Saved.
    pub saved: u32,
    /// For file access (fsuid, fsgid).
    pub files: u32,
}

/// User and group ids of a thread. Supplementary groups are not followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// User ids.
    pub user: Ids,
    /// Group ids.
    pub group: Ids,
    /// In another user name space than the initial one: [`IN_USER_NS`] and the capabilities that it has there over files.
    /// Otherwise 0.
    pub over_files: u32,
}

impl Ids {
    /// Sets all four to one id.
    pub fn all(id: u32) -> Self {
        Self { real: id, effective: id, saved: id, files: id }
    }

    /// The ids after a successful setuid, setreuid, setresuid or setfsuid, or the same for groups (kernel/sys.c). -1
    /// keeps an id.
    fn set(self, how: SetIds, ids: [i64; 3], privileged: bool) -> Self {
        let or = |i: usize, old: u32| if ids[i] as u32 == u32::MAX { old } else { ids[i] as u32 };
        let id = ids[0] as u32;
        match how {
            SetIds::One if privileged => Self::all(id),
            SetIds::One => Self { effective: id, files: id, ..self },
            SetIds::Two => {
                let (real, effective) = (or(0, self.real), or(1, self.effective));
                let saved = if ids[0] as u32 != u32::MAX || effective != self.real { effective } else { self.saved };
                Self { real, effective, saved, files: effective }
            }
            SetIds::Three => {
                let effective = or(1, self.effective);
                Self { real: or(0, self.real), effective, saved: or(2, self.saved), files: effective }
            }
            SetIds::Files => {
                let known = [self.real, self.effective, self.saved, self.files].contains(&id);
                // setfsuid does not report a refusal.
                if privileged || known { Self { files: id, ..self } } else { self }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SetIds {
    One,
    Two,
    Three,
    Files,
}

impl Credentials {
    /// One user and one group id throughout.
    pub fn plain(uid: u32, gid: u32) -> Self {
        Self { user: Ids::all(uid), group: Ids::all(gid), over_files: 0 }
    }

    /// With these effective capabilities in another user name space; `None` in the initial one.
    pub(crate) fn with(self, capabilities: Option<i64>) -> Self {
        Self { over_files: capabilities.map_or(0, |bits| IN_USER_NS | bits as u32 & OVER_FILES), ..self }
    }

    /// The same in a new user name space, in which a thread has all capabilities.
    pub(crate) fn in_new_user_ns(self) -> Self {
        self.with(Some(-1))
    }

    /// Whether it is root as the initial user name space knows it: nothing is denied to it.
    pub(crate) fn is_root(&self) -> bool {
        self.user.effective == 0 && self.user.files == 0 && self.over_files == 0
    }

    /// Whether it may set the set-group-ID bit of a file of any group. In a user name space: of any that has an id there.
    pub(crate) fn keeps_group_bit(&self) -> bool {
        if self.over_files == 0 { self.user.files == 0 } else { self.over_files & KEEP_SET_IDS != 0 }
    }

    /// The ids after a successful call.
    fn after(self, r: &Rec) -> Self {
        let ids = [r.aux, r.aux2, r.flags];
        let privileged = self.user.effective == 0;
        let (how, group) = match r.call {
            Call::Setuid => (SetIds::One, false),
            Call::Setgid => (SetIds::One, true),
            Call::Setreuid => (SetIds::Two, false),
            Call::Setregid => (SetIds::Two, true),
            Call::Setresuid => (SetIds::Three, false),
            Call::Setresgid => (SetIds::Three, true),
            Call::Setfsuid => (SetIds::Files, false),
            Call::Setfsgid => (SetIds::Files, true),
            _ => return self,
        };
        match group {
            true => Self { group: self.group.set(how, ids, privileged), ..self },
            false => Self { user: self.user.set(how, ids, privileged), ..self },
        }
    }

    /// The ids after an exec, given the effective ids of the new program.
    pub(crate) fn executed(self, uid: u32, gid: u32) -> Self {
        let of = |ids: Ids, id: u32| Ids { real: ids.real, ..Ids::all(id) };
        Self { user: of(self.user, uid), group: of(self.group, gid), ..self }
    }

    /// The ids that the replay thread sets.
    pub(crate) fn words(&self) -> Words {
        let of = |i: Ids| [i.real, i.effective, i.files];
        let ([a, b, c], [d, e, f]) = (of(self.user), of(self.group));
        [a, b, c, d, e, f, self.over_files]
    }
}

impl Machine {
    /// Applies a change of user or group, and stores the resulting ids in `kept`, to be set in the replay.
    pub(crate) fn users_change(&mut self, r: &Rec, kept: &mut Rec) {
        if !r.call.sets_user() || r.ret < 0 {
            return;
        }
        let known = (r.call != Call::Setgroups && r.value != NONE)
            .then(|| user_ids::credentials(self.reel.texts.paths.bytes(r.value)))
            .flatten();
        let used = &mut self.processes.uses[r.task as usize];
        used.who = match known {
            Some(([uid, euid, suid, fsuid, gid, egid, sgid, fsgid], capabilities)) => {
                (used.who_known, used.maps_users) = (true, true);
                let user = Ids { real: uid, effective: euid, saved: suid, files: fsuid };
                let group = Ids { real: gid, effective: egid, saved: sgid, files: fsgid };
                Credentials { user, group, over_files: 0 }.with(Some(capabilities))
            }
            None => used.who.after(r),
        };
        let words = used.who.words();
        self.users_change |= words != Words::default();
        let [ruid, euid, fsuid, rgid, egid, fsgid, _] = words.map(i64::from);
        (kept.aux, kept.aux2, kept.offset_bytes) = (ruid, euid, fsuid);
        (kept.offset2_bytes, kept.len_bytes, kept.flags) = (rgid, egid, fsgid);
        kept.mode = words[6] as i32;
    }

    /// A change of user that cannot be followed: whom the thread's files belong to is unknown.
    pub(crate) fn user_lost(&mut self, r: &Rec) {
        if r.call.sets_user() && r.call != Call::Setgroups && r.ret >= 0 {
            self.processes.uses[r.task as usize].who_known = false;
        }
    }

    /// Whether a thread may reopen a file that it has open, with any access mode, through its handle.
    pub(crate) fn may_reopen(&self, task: usize) -> bool {
        self.privileged && self.processes.of(task).who.is_root()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(who: Credentials, call: Call, ids: [i64; 3]) -> Credentials {
        who.after(&Rec { call, aux: ids[0], aux2: ids[1], flags: ids[2], ..Rec::none() })
    }

    #[test]
    fn ids_change_as_the_kernel_has_it() {
        let root = Credentials::plain(0, 0);
        let user = |w: Credentials| [w.user.real, w.user.effective, w.user.saved, w.user.files];
        let dropped = after(root, Call::Setuid, [1000, 0, 0]);
        assert_eq!(user(dropped), [1000; 4]);
        let for_now = after(root, Call::Setresuid, [-1, 1000, -1]);
        assert_eq!(user(for_now), [0, 1000, 0, 1000]);
        assert_eq!(user(after(for_now, Call::Setuid, [0, 0, 0])), [0; 4]);
        assert_eq!(user(after(root, Call::Setreuid, [-1, 1000, 0])), [0, 1000, 1000, 1000]);
        assert_eq!(user(after(root, Call::Setreuid, [1000, 0, 0])), [1000, 0, 0, 0]);
        let files = after(root, Call::Setfsuid, [1000, 0, 0]);
        assert_eq!(user(files), [0, 0, 0, 1000]);
        assert_eq!(user(after(dropped, Call::Setfsuid, [5, 0, 0])), [1000; 4], "refused, and silently");
        let both = after(after(root, Call::Setregid, [-1, 50, 0]), Call::Setresuid, [7, 7, 7]);
        assert_eq!(both.words(), [7, 7, 7, 0, 50, 50, 0]);
        assert_eq!(both.executed(0, 50).words(), [7, 0, 0, 0, 50, 50, 0], "a program of root's");
    }
}
