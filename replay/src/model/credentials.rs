//! Credentials: which user and group ids a recorded thread had, followed through set*id calls and execs.
//!
//! A file system looks at the effective ids and those for files (fsuid, fsgid); access(2) looks at the real ones.

use crate::{Call, base::ids::Words, model::machine::Machine, reel::input::Rec};

/// Ids of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Real.
    pub real: u32,
    /// Effective.
    pub effective: u32,
    /// Saved.
    pub saved: u32,
    /// For files.
    pub files: u32,
}

/// A thread's user and group; further groups are not followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub user: Ids,
    /// Group.
    pub group: Ids,
}

impl Ids {
    /// The same for all.
    pub fn all(id: u32) -> Self {
        Self { real: id, effective: id, saved: id, files: id }
    }

    /// After setuid, setreuid, setresuid, setfsuid, or the same of groups, that succeeded (kernel/sys.c); -1 leaves an id.
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
                // It tells nobody when it is refused.
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
    /// A user and a group throughout.
    pub fn plain(uid: u32, gid: u32) -> Self {
        Self { user: Ids::all(uid), group: Ids::all(gid) }
    }

    /// After a call that succeeded.
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

    /// After a program was started that runs as these.
    pub(crate) fn executed(self, uid: u32, gid: u32) -> Self {
        let of = |ids: Ids, id: u32| Ids { real: ids.real, ..Ids::all(id) };
        Self { user: of(self.user, uid), group: of(self.group, gid) }
    }

    /// What a thread takes on.
    pub(crate) fn words(&self) -> Words {
        let of = |i: Ids| [i.real, i.effective, i.files];
        let ([a, b, c], [d, e, f]) = (of(self.user), of(self.group));
        [a, b, c, d, e, f]
    }
}

impl Machine {
    /// A thread becomes somebody else: the record learns who.
    pub(crate) fn users_change(&mut self, r: &Rec, kept: &mut Rec) {
        if !r.call.sets_user() || r.ret < 0 {
            return;
        }
        let who = &mut self.processes.uses[r.task as usize].who;
        *who = who.after(r);
        let words = who.words();
        self.users_change |= words != Words::default();
        let [ruid, euid, fsuid, rgid, egid, fsgid] = words.map(i64::from);
        (kept.aux, kept.aux2, kept.offset_bytes) = (ruid, euid, fsuid);
        (kept.offset2_bytes, kept.len_bytes, kept.flags) = (rgid, egid, fsgid);
    }

    /// Whether a thread may open a file that it has open once more, whatever for: by its handle.
    pub(crate) fn may_reopen(&self, task: usize) -> bool {
        let user = self.processes.of(task).who.user;
        self.privileged && user.effective == 0 && user.files == 0
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
        assert_eq!(both.words(), [7, 7, 7, 0, 50, 50]);
        assert_eq!(both.executed(0, 50).words(), [7, 0, 0, 0, 50, 50], "a program of root's");
    }
}
