//! File systems as a whole, mounts, extended attributes, handles, Linux AIO.

use ioreel_bpf::types::{call_desc, call_kind, call_user};
use ioreel_traces::rows::Op;
use libc::*;

use super::{
    Raw,
    parts::{AT, FD, OPEN, PATH, PLAIN, calls, input, kind, name, nothing, output, user, word},
};

/// Numbers that libc does not have, or not on every platform.
mod new {
    use libc::c_long;
    pub(super) const SYS_IO_PGETEVENTS: c_long = 333;
    pub(super) const SYS_CACHESTAT: c_long = 451;
    pub(super) const SYS_STATMOUNT: c_long = 457;
    pub(super) const SYS_LISTMOUNT: c_long = 458;
    pub(super) const SYS_SETXATTRAT: c_long = 463;
    pub(super) const SYS_GETXATTRAT: c_long = 464;
    pub(super) const SYS_LISTXATTRAT: c_long = 465;
    pub(super) const SYS_REMOVEXATTRAT: c_long = 466;
    pub(super) const SYS_OPEN_TREE_ATTR: c_long = 467;
    pub(super) const SYS_FILE_GETATTR: c_long = 468;
    pub(super) const SYS_FILE_SETATTR: c_long = 469;
}
use new::*;

/// Most 8-byte words taken of an extended attribute: 256 bytes hold every ACL of up to 31 entries.
const VALUE_WORDS: u8 = 32;

const fn xattr(desc: call_desc) -> call_desc {
    name(desc, 2)
}

const fn xattr_at(desc: call_desc) -> call_desc {
    name(desc, 4)
}

#[rustfmt::skip]
calls! {
    SYS_setxattr "setxattr" input(xattr(PATH), 3, 4, VALUE_WORDS), true, set_attribute;
    SYS_lsetxattr "lsetxattr" input(xattr(PATH), 3, 4, VALUE_WORDS), true, set_attribute;
    SYS_fsetxattr "fsetxattr" input(xattr(FD), 3, 4, VALUE_WORDS), true, set_attribute;
    SYS_getxattr "getxattr" xattr(PATH), false, get_attribute;
    SYS_lgetxattr "lgetxattr" xattr(PATH), false, get_attribute;
    SYS_fgetxattr "fgetxattr" xattr(FD), false, get_attribute;
    SYS_listxattr "listxattr" PATH, false, |r, op| op.len_bytes = Some(r.args[2]);
    SYS_llistxattr "llistxattr" PATH, false, |r, op| op.len_bytes = Some(r.args[2]);
    SYS_flistxattr "flistxattr" FD, false, |r, op| op.len_bytes = Some(r.args[2]);
    SYS_removexattr "removexattr" xattr(PATH), true, |r, op| op.name = r.name_text();
    SYS_lremovexattr "lremovexattr" xattr(PATH), true, |r, op| op.name = r.name_text();
    SYS_fremovexattr "fremovexattr" xattr(FD), true, |r, op| op.name = r.name_text();
    SYS_SETXATTRAT "setxattrat" kind(user(input(xattr_at(AT), 5, 0, VALUE_WORDS), call_user::USER_UTIMBUF, 5, 0), call_kind::CALL_XATTRAT), true, |r, op| {
        get_attribute_at(r, op);
        op.value = op.len_bytes.and_then(|len| r.value_of(len));
    };
    SYS_GETXATTRAT "getxattrat" user(xattr_at(AT), call_user::USER_UTIMBUF, 5, 0), false, get_attribute_at;
    SYS_LISTXATTRAT "listxattrat" AT, false, |r, op| {
        op.flags = Some(i64::from(r.int(2)));
        op.len_bytes = Some(r.args[4]);
    };
    SYS_REMOVEXATTRAT "removexattrat" xattr_at(AT), true, |r, op| {
        op.flags = Some(i64::from(r.int(2)));
        op.name = r.name_text();
    };
    SYS_FILE_GETATTR "file_getattr" output(AT, 3, 3), false, |r, op| file_attributes(r, op, r.output);
    SYS_FILE_SETATTR "file_setattr" input(AT, 3, 4, 3), true, |r, op| file_attributes(r, op, r.input);
    SYS_statfs "statfs" output(PATH, 2, 5), false, file_system;
    SYS_fstatfs "fstatfs" output(FD, 2, 5), false, file_system;
    SYS_ustat "ustat" PLAIN, false, |r, op| op.aux = Some(r.args[0]);
    SYS_STATMOUNT "statmount" input(PLAIN, 1, 0, 3), false, |r, op| {
        mount_id(r, op);
        op.len_bytes = Some(r.args[2]);
        op.flags = Some(i64::from(r.int(3)));
    };
    SYS_LISTMOUNT "listmount" input(PLAIN, 1, 0, 3), false, |r, op| {
        mount_id(r, op);
        op.len_bytes = Some(r.args[2]);
        op.flags = Some(i64::from(r.int(3)));
    };
    SYS_CACHESTAT "cachestat" output(input(FD, 2, 0, 2), 3, 2), false, |r, op| {
        op.offset_bytes = word::i64(r.input, 0);
        op.len_bytes = word::i64(r.input, 8);
        op.aux = word::i64(r.output, 0);
        op.aux2 = word::i64(r.output, 8);
        op.flags = Some(i64::from(r.int(3)));
    };
    SYS_getcwd "getcwd" PLAIN, false, |r, op| op.len_bytes = Some(r.args[1]);
    SYS_chroot "chroot" PATH, false, nothing;
    SYS_pivot_root "pivot_root" call_desc { path: 1, path2: 2, ..PLAIN }, false, nothing;
    SYS_mount "mount" input(name(call_desc { path: 1, path2: 2, ..PLAIN }, 3), 5, 0, 0), false, |r, op| {
        op.name = r.name_text();
        op.flags = Some(r.args[3]);
        op.value = (!r.input.is_empty()).then(|| ioreel_traces::text::from_bytes(r.input));
    };
    SYS_umount2 "umount2" PATH, false, |r, op| op.flags = Some(i64::from(r.int(1)));
    SYS_swapon "swapon" PATH, false, |r, op| op.flags = Some(i64::from(r.int(1)));
    SYS_swapoff "swapoff" PATH, false, nothing;
    SYS_quotactl "quotactl" call_desc { path: 2, ..PLAIN }, false, |r, op| {
        op.flags = Some(r.args[0] & 0xffff_ffff);
        op.aux = Some(i64::from(r.int(2)));
    };
    SYS_quotactl_fd "quotactl_fd" FD, false, |r, op| {
        op.flags = Some(r.args[1] & 0xffff_ffff);
        op.aux = Some(i64::from(r.int(2)));
    };
    SYS_fsopen "fsopen" name(OPEN, 1), false, |r, op| {
        op.name = r.name_text();
        op.flags = Some(i64::from(r.int(1)));
    };
    SYS_fsconfig "fsconfig" input(name(FD, 3), 4, 0, 0), false, |r, op| {
        op.flags = Some(i64::from(r.int(1)));
        op.name = r.name_text();
        // Strings and paths; other commands take none or binary data.
        op.value = matches!(r.int(1), 1 | 3 | 4).then(|| ioreel_traces::text::from_bytes(r.input));
        op.aux = Some(i64::from(r.int(4)));
    };
    SYS_fsmount "fsmount" call_desc { dirfd: 1, ..OPEN }, false, |r, op| {
        op.flags = Some(i64::from(r.int(1)));
        op.aux = Some(i64::from(r.int(2)));
    };
    SYS_fspick "fspick" call_desc { dirfd: 1, path: 2, ..OPEN }, false, |r, op| op.flags = Some(i64::from(r.int(2)));
    SYS_open_tree "open_tree" call_desc { dirfd: 1, path: 2, ..OPEN }, false, |r, op| op.flags = Some(r.args[2] & 0xffff_ffff);
    SYS_OPEN_TREE_ATTR "open_tree_attr" input(call_desc { dirfd: 1, path: 2, ..OPEN }, 4, 5, 4), false, mount_attributes;
    SYS_move_mount "move_mount" call_desc { dirfd: 1, path: 2, dirfd2: 3, path2: 4, ..PLAIN }, false, |r, op| op.flags = Some(i64::from(r.int(4)));
    SYS_mount_setattr "mount_setattr" input(AT, 4, 5, 4), false, mount_attributes;
    SYS_name_to_handle_at "name_to_handle_at" kind(output(AT, 3, 16), call_kind::CALL_HANDLE), false, |r, op| {
        op.flags = Some(i64::from(r.int(4)));
        handle(r.output, op);
    };
    SYS_open_by_handle_at "open_by_handle_at" kind(call_desc { dirfd: 1, ..input(PLAIN, 2, 0, 17) }, call_kind::CALL_HANDLE_OPEN), true, |r, op| {
        op.flags = Some(i64::from(r.int(2)));
        handle(r.input, op);
    };
    SYS_memfd_create "memfd_create" name(OPEN, 1), false, |r, op| {
        op.name = r.name_text();
        op.flags = Some(r.args[1] & 0xffff_ffff);
    };
    SYS_memfd_secret "memfd_secret" OPEN, false, |r, op| op.flags = Some(r.args[0] & 0xffff_ffff);
    SYS_io_setup "io_setup" output(PLAIN, 2, 1), false, |r, op| op.aux = Some(i64::from(r.int(0)));
    SYS_io_destroy "io_destroy" PLAIN, false, nothing;
    SYS_io_submit "io_submit" kind(PLAIN, call_kind::CALL_AIO_SUBMIT), true, |r, op| op.aux = Some(r.args[1]);
    SYS_io_cancel "io_cancel" PLAIN, false, |r, op| op.aux = Some(r.args[1]);
    SYS_io_getevents "io_getevents" kind(PLAIN, call_kind::CALL_AIO_GET), false, events;
    SYS_IO_PGETEVENTS "io_pgetevents" kind(PLAIN, call_kind::CALL_AIO_GET), false, events;
}

fn set_attribute(r: &Raw<'_>, op: &mut Op) {
    op.name = r.name_text();
    op.len_bytes = Some(r.args[3]);
    op.value = r.value_of(r.args[3]);
    op.aux = Some(i64::from(r.int(4)));
}

fn get_attribute(r: &Raw<'_>, op: &mut Op) {
    op.name = r.name_text();
    op.len_bytes = Some(r.args[3]);
}

/// `extra` is a `struct xattr_args`: a pointer, then size and flags.
fn get_attribute_at(r: &Raw<'_>, op: &mut Op) {
    op.name = r.name_text();
    op.flags = Some(i64::from(r.int(2)));
    if r.extra_known() {
        op.len_bytes = Some(r.extra[1] & 0xffff_ffff);
        op.aux = Some(r.extra[1] >> 32);
    }
}

/// `struct file_attr`.
fn file_attributes(r: &Raw<'_>, op: &mut Op, bytes: &[u8]) {
    op.flags = Some(i64::from(r.int(4)));
    op.aux = word::i64(bytes, 0);
    op.len_bytes = word::u32(bytes, 8);
    op.aux2 = word::u32(bytes, 16);
}

/// Type, size and room of a file system, of `struct statfs` and i386's two.
fn file_system(r: &Raw<'_>, op: &mut Op) {
    let w = r.output;
    let (kind, unit, blocks, free) = match (r.is_compat(), r.args[5]) {
        (false, _) => (word::i64(w, 0), word::i64(w, 8), word::i64(w, 16), word::i64(w, 32)),
        (true, super::compat::WIDE_STATFS) => (word::u32(w, 0), word::u32(w, 4), word::i64(w, 8), word::i64(w, 24)),
        (true, _) => (word::u32(w, 0), word::u32(w, 4), word::u32(w, 8), word::u32(w, 16)),
    };
    let bytes = |n: Option<i64>| Some(n?.saturating_mul(unit?));
    op.aux = kind;
    op.len_bytes = bytes(blocks);
    op.aux2 = bytes(free);
}

/// `struct mnt_id_req`.
fn mount_id(r: &Raw<'_>, op: &mut Op) {
    op.aux = word::i64(r.input, 8);
    op.aux2 = word::i64(r.input, 16);
}

/// `struct mount_attr`.
fn mount_attributes(r: &Raw<'_>, op: &mut Op) {
    op.flags = Some(r.args[2] & 0xffff_ffff);
    op.aux = word::i64(r.input, 0);
    op.aux2 = word::i64(r.input, 8);
}

/// `struct file_handle`: length and type, then the bytes.
fn handle(bytes: &[u8], op: &mut Op) {
    op.len_bytes = word::u32(bytes, 0);
    op.aux = word::i32(bytes, 4);
    let len = op.len_bytes.and_then(|n| usize::try_from(n).ok());
    op.value = len.and_then(|n| bytes.get(8..8 + n)).map(ioreel_traces::text::from_bytes);
}

fn events(r: &Raw<'_>, op: &mut Op) {
    op.aux = Some(r.args[1]);
    op.aux2 = Some(r.args[2]);
}
