//! Rows that a replay takes for another call with the same effect on files.

use crate::{
    Call,
    reel::{
        bind,
        input::{NO_FD, NO_ID, NONE, Rec},
    },
};

/// In column `flags` of a mkdirat: it creates a subvolume of btrfs, which takes the same name, mode and owner.
pub(crate) const SUBVOLUME: i64 = 1;
/// `BTRFS_SUBVOL_RDONLY`, also in these flags.
pub(crate) const READ_ONLY: i64 = 2;

/// Rewrites such a row of `op`.
pub(super) fn rewrite(r: &mut Rec, op: &str) {
    bind::as_mknod(r, op);
    match r.call {
        Call::SubvolCreate | Call::SubvolCreateV2 => {
            r.flags = SUBVOLUME | r.aux & READ_ONLY;
            (r.call, r.mode, r.aux) = (Call::Mkdirat, 0o777, 0);
        }
        Call::SnapCreate | Call::SnapCreateV2 => (r.call, r.flags) = (Call::SnapCreate, r.aux & READ_ONLY),
        Call::SnapDestroy | Call::SnapDestroyV2 => (r.call, r.flags) = (Call::SnapDestroy, 0),
        _ => return,
    }
    r.name = NONE;
    if r.call != Call::SnapCreate {
        // The directory, which `dirfd` names too.
        (r.fd, r.ofd, r.file) = (NO_FD, NO_ID, NO_ID);
    }
}

/// Whether it creates a subvolume.
pub(crate) fn makes_subvolume(r: &Rec) -> bool {
    r.call == Call::Mkdirat && r.flags & SUBVOLUME != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(call: Call, aux: i64) -> Rec {
        let mut r = Rec { call, aux, fd: 3, dirfd: 3, dirfd2: 4, name: 7, flags: 0x5000_9418, ..Rec::none() };
        rewrite(&mut r, "ioctl");
        r
    }

    #[test]
    fn a_subvolume_is_a_directory_that_is_made_in_another_way() {
        for (call, aux, flags) in [
            (Call::SubvolCreate, 0, SUBVOLUME),
            (Call::SubvolCreateV2, 4, SUBVOLUME),
            (Call::SubvolCreateV2, 2, SUBVOLUME | READ_ONLY),
        ] {
            let r = rewritten(call, aux);
            assert_eq!((r.call, r.flags, r.mode, r.fd, r.dirfd), (Call::Mkdirat, flags, 0o777, NO_FD, 3));
            assert!(makes_subvolume(&r));
        }
        let r = rewritten(Call::SnapCreateV2, 2);
        assert_eq!((r.call, r.flags, r.fd, r.name), (Call::SnapCreate, READ_ONLY, 3, NONE));
        let r = rewritten(Call::SnapDestroyV2, 16);
        assert_eq!((r.call, r.flags, r.fd, r.dirfd), (Call::SnapDestroy, 0, NO_FD, 3));
        assert!(!makes_subvolume(&Rec { call: Call::Mkdirat, ..Rec::none() }));
    }
}
