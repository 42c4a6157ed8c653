//! ioctl on files, directories and block devices. Known requests fill columns of their own; all others are recorded
//! with their number.

use ioreel_bpf::types::call_kind;
use ioreel_traces::{rows::Op, text};

use super::{
    Raw,
    parts::{FD, calls, kind, word},
};

#[rustfmt::skip]
calls! {
    16 29 "ioctl" kind(FD, call_kind::CALL_IOCTL), true, ioctl;
}

/// A request known by name.
pub struct Request {
    /// Its number in argument 2.
    pub number: u32,
    /// Its name in the kernel's headers.
    pub name: &'static str,
    fill: fn(&Raw<'_>, &mut Op),
}

macro_rules! requests {
    ($( $number:literal $name:literal $fill:expr; )*) => {
        /// Requests known by name (linux/fs.h, fiemap.h, btrfs.h).
        pub const REQUESTS: &[Request] = &[ $( Request { number: $number, name: $name, fill: $fill }, )* ];
    };
}

requests! {
    0x0000_0001 "FIBMAP" |r, op| {
        op.aux = word::u32(r.input, 0);
        op.aux2 = word::u32(r.output, 0);
    };
    0x0000_0002 "FIGETBSZ" |r, op| op.aux = word::u32(r.output, 0);
    0x4004_9409 "FICLONE" |r, op| {
        from_argument(r, op, Some(r.args[2] as i32));
        (op.offset_bytes, op.offset2_bytes, op.len_bytes) = (Some(0), Some(0), Some(0));
    };
    0x4020_940d "FICLONERANGE" |r, op| {
        from_argument(r, op, word::i32(r.input, 0).map(|fd| fd as i32));
        op.offset_bytes = word::i64(r.input, 8);
        op.len_bytes = word::i64(r.input, 16);
        op.offset2_bytes = word::i64(r.input, 24);
    };
    0xc018_9436 "FIDEDUPERANGE" |r, op| {
        op.offset_bytes = word::i64(r.input, 0);
        op.len_bytes = word::i64(r.input, 8);
        op.aux = word::u16(r.input, 16);
        op.fd2 = word::i32(r.input, 24).map(|fd| fd as i32);
        op.offset2_bytes = word::i64(r.input, 32);
        op.aux2 = word::i64(r.output, 40);
        op.mode = word::i32(r.output, 48).map(|status| status as i32);
    };
    0x8008_6601 "FS_IOC_GETFLAGS" |r, op| op.aux = word::u32(r.output, 0);
    0x8004_6601 "FS_IOC_GETFLAGS" |r, op| op.aux = word::u32(r.output, 0);
    0x4008_6602 "FS_IOC_SETFLAGS" |r, op| op.aux = word::u32(r.input, 0);
    0x4004_6602 "FS_IOC_SETFLAGS" |r, op| op.aux = word::u32(r.input, 0);
    0x8008_7601 "FS_IOC_GETVERSION" |r, op| op.aux = word::u32(r.output, 0);
    0x8004_7601 "FS_IOC_GETVERSION" |r, op| op.aux = word::u32(r.output, 0);
    0x4008_7602 "FS_IOC_SETVERSION" |r, op| op.aux = word::u32(r.input, 0);
    0x4004_7602 "FS_IOC_SETVERSION" |r, op| op.aux = word::u32(r.input, 0);
    0x801c_581f "FS_IOC_FSGETXATTR" |r, op| extended(op, r.output);
    0x401c_5820 "FS_IOC_FSSETXATTR" |r, op| extended(op, r.input);
    0xc020_660b "FS_IOC_FIEMAP" |r, op| {
        op.offset_bytes = word::i64(r.input, 0);
        op.len_bytes = word::i64(r.input, 8);
        op.mode = word::u32(r.input, 16).map(|flags| flags as i32);
        op.aux = word::u32(r.input, 24);
        op.aux2 = word::u32(r.output, 20);
    };
    0xc018_5879 "FITRIM" |r, op| {
        op.offset_bytes = word::i64(r.input, 0);
        op.len_bytes = word::i64(r.input, 8);
        op.aux2 = word::i64(r.input, 16);
        op.aux = word::i64(r.output, 8);
    };
    0xc004_5877 "FIFREEZE" |_, _| ();
    0xc004_5878 "FITHAW" |_, _| ();
    0x8100_9431 "FS_IOC_GETFSLABEL" |r, op| label(op, r.output);
    0x4100_9432 "FS_IOC_SETFSLABEL" |r, op| label(op, r.input);
    0x4080_6685 "FS_IOC_ENABLE_VERITY" |_, _| ();
    0x5000_9401 "BTRFS_IOC_SNAP_CREATE" |r, op| snapshot(r, op);
    0x5000_9417 "BTRFS_IOC_SNAP_CREATE_V2" |r, op| {
        snapshot(r, op);
        op.aux = word::i64(r.input, 16);
    };
    0x5000_940e "BTRFS_IOC_SUBVOL_CREATE" |r, op| below(r, op);
    0x5000_9418 "BTRFS_IOC_SUBVOL_CREATE_V2" |r, op| {
        below(r, op);
        op.aux = word::i64(r.input, 16);
    };
    0x5000_940f "BTRFS_IOC_SNAP_DESTROY" |r, op| below(r, op);
    0x5000_943f "BTRFS_IOC_SNAP_DESTROY_V2" |r, op| {
        op.aux = word::i64(r.input, 16);
        if op.aux.is_some_and(|flags| flags & SPEC_BY_ID != 0) {
            op.aux2 = word::i64(r.input, 56);
        } else {
            below(r, op);
        }
    };
    0x0000_1277 "BLKDISCARD" |_, _| ();
    0x0000_127f "BLKZEROOUT" |_, _| ();
    0x0000_1261 "BLKFLSBUF" |_, _| ();
    0x8008_1272 "BLKGETSIZE64" |r, op| op.aux = word::i64(r.output, 0);
}

/// `BTRFS_SUBVOL_SPEC_BY_ID`: the union that otherwise starts with a name holds a subvolume id.
const SPEC_BY_ID: i64 = 1 << 4;

fn ioctl(r: &Raw<'_>, op: &mut Op) {
    let number = r.args[1] as u32;
    op.flags = Some(number.into());
    match REQUESTS.iter().find(|q| q.number == number) {
        Some(request) => {
            op.name = Some(request.name.into());
            (request.fill)(r, op);
        }
        // A request without a direction passes a number in the argument, or nothing.
        None if number >> 30 == 0 => op.aux = Some(r.args[2]),
        None => {}
    }
}

/// The argument holds the source; the descriptor of the call is the destination. The probes swap the files in the same
/// way (`argument_is_source`).
fn from_argument(r: &Raw<'_>, op: &mut Op, source: Option<i32>) {
    op.fd = source;
    op.fd2 = Some(r.args[0] as i32);
}

fn snapshot(r: &Raw<'_>, op: &mut Op) {
    from_argument(r, op, word::i32(r.input, 0).map(|fd| fd as i32));
    op.dirfd2 = op.fd2;
    op.path2 = r.name_text();
}

/// A subvolume inside the directory of the descriptor.
fn below(r: &Raw<'_>, op: &mut Op) {
    op.dirfd = Some(r.args[0] as i32);
    op.path = r.name_text();
}

/// `struct fsxattr`.
fn extended(op: &mut Op, bytes: &[u8]) {
    op.aux = word::u32(bytes, 0);
    op.len_bytes = word::u32(bytes, 4);
    op.aux2 = word::u32(bytes, 12);
}

fn label(op: &mut Op, bytes: &[u8]) {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    op.value = (!bytes.is_empty()).then(|| text::from_bytes(&bytes[..end]));
}
