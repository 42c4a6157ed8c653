//! File systems as a whole, mounts, extended attributes, file handles, Linux AIO.

use ioreel_bpf::types::{call_desc, call_kind, call_user};
use ioreel_traces::rows::Op;

use super::{
    Raw,
    parts::{AT, FD, OPEN, PATH, PLAIN, calls, input, kind, name, nothing, output, user, word},
};

/// Maximum number of 8-byte words recorded of an extended attribute: 256 bytes hold every ACL of up to 31 entries.
const VALUE_WORDS: u8 = 32;

const fn xattr(desc: call_desc) -> call_desc {
    name(desc, 2)
}

const fn xattr_at(desc: call_desc) -> call_desc {
    name(desc, 4)
}

#[rustfmt::skip]
calls! {
    188 5 "setxattr" input(xattr(PATH), 3, 4, VALUE_WORDS), true, set_attribute;
    189 6 "lsetxattr" input(xattr(PATH), 3, 4, VALUE_WORDS), true, set_attribute;
    190 7 "fsetxattr" input(xattr(FD), 3, 4, VALUE_WORDS), true, set_attribute;
    191 8 "getxattr" xattr(PATH), false, get_attribute;
    192 9 "lgetxattr" xattr(PATH), false, get_attribute;
    193 10 "fgetxattr" xattr(FD), false, get_attribute;
    194 11 "listxattr" PATH, false, |r, op| op.len_bytes = Some(r.args[2]);
    195 12 "llistxattr" PATH, false, |r, op| op.len_bytes = Some(r.args[2]);
    196 13 "flistxattr" FD, false, |r, op| op.len_bytes = Some(r.args[2]);
    197 14 "removexattr" xattr(PATH), true, |r, op| op.name = r.name_text();
    198 15 "lremovexattr" xattr(PATH), true, |r, op| op.name = r.name_text();
    199 16 "fremovexattr" xattr(FD), true, |r, op| op.name = r.name_text();
    463 463 "setxattrat" kind(user(input(xattr_at(AT), 5, 0, VALUE_WORDS), call_user::USER_UTIMBUF, 5, 0), call_kind::CALL_XATTRAT), true, |r, op| {
        get_attribute_at(r, op);
        op.value = op.len_bytes.and_then(|len| r.value_of(len));
    };
    464 464 "getxattrat" user(xattr_at(AT), call_user::USER_UTIMBUF, 5, 0), false, get_attribute_at;
    465 465 "listxattrat" AT, false, |r, op| {
        op.flags = Some(i64::from(r.int(2)));
        op.len_bytes = Some(r.args[4]);
    };
    466 466 "removexattrat" xattr_at(AT), true, |r, op| {
        op.flags = Some(i64::from(r.int(2)));
        op.name = r.name_text();
    };
    468 468 "file_getattr" output(AT, 3, 3), false, |r, op| file_attributes(r, op, r.output);
    469 469 "file_setattr" input(AT, 3, 4, 3), true, |r, op| file_attributes(r, op, r.input);
    137 43 "statfs" output(PATH, 2, 5), false, file_system;
    138 44 "fstatfs" output(FD, 2, 5), false, file_system;
    136 - "ustat" PLAIN, false, |r, op| op.aux = Some(r.args[0]);
    457 457 "statmount" input(PLAIN, 1, 0, 3), false, |r, op| {
        mount_id(r, op);
        op.len_bytes = Some(r.args[2]);
        op.flags = Some(i64::from(r.int(3)));
    };
    458 458 "listmount" input(PLAIN, 1, 0, 3), false, |r, op| {
        mount_id(r, op);
        op.len_bytes = Some(r.args[2]);
        op.flags = Some(i64::from(r.int(3)));
    };
    451 451 "cachestat" output(input(FD, 2, 0, 2), 3, 2), false, |r, op| {
        op.offset_bytes = word::i64(r.input, 0);
        op.len_bytes = word::i64(r.input, 8);
        op.aux = word::i64(r.output, 0);
        op.aux2 = word::i64(r.output, 8);
        op.flags = Some(i64::from(r.int(3)));
    };
    79 17 "getcwd" PLAIN, false, |r, op| op.len_bytes = Some(r.args[1]);
    161 51 "chroot" PATH, false, nothing;
    155 41 "pivot_root" call_desc { path: 1, path2: 2, ..PLAIN }, false, nothing;
    165 40 "mount" input(name(call_desc { path: 1, path2: 2, ..PLAIN }, 3), 5, 0, 0), false, |r, op| {
        op.name = r.name_text();
        op.flags = Some(r.args[3]);
        op.value = (!r.input.is_empty()).then(|| ioreel_traces::text::from_bytes(r.input));
    };
    166 39 "umount2" PATH, false, |r, op| op.flags = Some(i64::from(r.int(1)));
    167 224 "swapon" PATH, false, |r, op| op.flags = Some(i64::from(r.int(1)));
    168 225 "swapoff" PATH, false, nothing;
    179 60 "quotactl" call_desc { path: 2, ..PLAIN }, false, |r, op| {
        op.flags = Some(r.args[0] & 0xffff_ffff);
        op.aux = Some(i64::from(r.int(2)));
    };
    443 443 "quotactl_fd" FD, false, |r, op| {
        op.flags = Some(r.args[1] & 0xffff_ffff);
        op.aux = Some(i64::from(r.int(2)));
    };
    430 430 "fsopen" name(OPEN, 1), false, |r, op| {
        op.name = r.name_text();
        op.flags = Some(i64::from(r.int(1)));
    };
    431 431 "fsconfig" input(name(FD, 3), 4, 0, 0), false, |r, op| {
        op.flags = Some(i64::from(r.int(1)));
        op.name = r.name_text();
        // The commands with a string or a path; the others take no value or a binary one.
        op.value = matches!(r.int(1), 1 | 3 | 4).then(|| ioreel_traces::text::from_bytes(r.input));
        op.aux = Some(i64::from(r.int(4)));
    };
    432 432 "fsmount" call_desc { dirfd: 1, ..OPEN }, false, |r, op| {
        op.flags = Some(i64::from(r.int(1)));
        op.aux = Some(i64::from(r.int(2)));
    };
    433 433 "fspick" call_desc { dirfd: 1, path: 2, ..OPEN }, false, |r, op| op.flags = Some(i64::from(r.int(2)));
    428 428 "open_tree" call_desc { dirfd: 1, path: 2, ..OPEN }, false, |r, op| op.flags = Some(r.args[2] & 0xffff_ffff);
    467 467 "open_tree_attr" input(call_desc { dirfd: 1, path: 2, ..OPEN }, 4, 5, 4), false, mount_attributes;
    429 429 "move_mount" call_desc { dirfd: 1, path: 2, dirfd2: 3, path2: 4, ..PLAIN }, false, |r, op| op.flags = Some(i64::from(r.int(4)));
    442 442 "mount_setattr" input(AT, 4, 5, 4), false, mount_attributes;
    303 264 "name_to_handle_at" kind(output(AT, 3, 16), call_kind::CALL_HANDLE), false, |r, op| {
        op.flags = Some(i64::from(r.int(4)));
        handle(r.output, op);
    };
    304 265 "open_by_handle_at" kind(call_desc { dirfd: 1, ..input(PLAIN, 2, 0, 17) }, call_kind::CALL_HANDLE_OPEN), true, |r, op| {
        op.flags = Some(i64::from(r.int(2)));
        handle(r.input, op);
    };
    319 279 "memfd_create" name(OPEN, 1), false, |r, op| {
        op.name = r.name_text();
        op.flags = Some(r.args[1] & 0xffff_ffff);
    };
    447 447 "memfd_secret" OPEN, false, |r, op| op.flags = Some(r.args[0] & 0xffff_ffff);
    206 0 "io_setup" output(PLAIN, 2, 1), false, |r, op| op.aux = Some(i64::from(r.int(0)));
    207 1 "io_destroy" PLAIN, false, nothing;
    209 2 "io_submit" kind(PLAIN, call_kind::CALL_AIO_SUBMIT), true, |r, op| op.aux = Some(r.args[1]);
    210 3 "io_cancel" PLAIN, false, |r, op| op.aux = Some(r.args[1]);
    208 4 "io_getevents" kind(PLAIN, call_kind::CALL_AIO_GET), false, events;
    333 292 "io_pgetevents" kind(PLAIN, call_kind::CALL_AIO_GET), false, events;
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

/// Type, size and free space of a file system, from `struct statfs` or one of i386's two structs.
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
