//! ioctls on files: flags, extents, clones; those of few programs are in `rare`.

use super::{
    caller::{Caller, Open},
    log::Entry,
    ok,
};

/// All of them, in folder `home`.
pub(crate) fn all(c: &mut Caller, home: &str, f: &Open) {
    let t = i64::from(c.thread);
    let request =
        |number: i64, name: Option<&str>| Entry { flags: Some(number), name: name.map(Into::into), ..f.entry() };
    let fd = i64::from(f.fd);
    let mut word = 0_i64;
    let at = (&raw mut word) as i64;
    if c.call(libc::SYS_ioctl, "ioctl", [fd, 0x8008_6601, at], request(0x8008_6601, Some("FS_IOC_GETFLAGS"))) == 0 {
        c.last().aux = Some(word & 0xffff_ffff);
    }
    word = 0x80;
    let at = (&raw mut word) as i64;
    let e = Entry { aux: Some(0x80), ..request(0x4008_6602, Some("FS_IOC_SETFLAGS")) };
    c.call(libc::SYS_ioctl, "ioctl", [fd, 0x4008_6602, at], e);
    word = 0;
    let at = (&raw mut word) as i64;
    if c.call(libc::SYS_ioctl, "ioctl", [fd, 2, at], request(2, Some("FIGETBSZ"))) == 0 {
        c.last().aux = Some(word & 0xffff_ffff);
    }
    let mut extended = [0_u32; 7];
    let e = request(0x801c_581f, Some("FS_IOC_FSGETXATTR"));
    let args = [fd, 0x801c_581f, extended.as_mut_ptr() as i64];
    if c.call(libc::SYS_ioctl, "ioctl", args, e) == 0 {
        (c.last().aux, c.last().aux2, c.last().len_bytes) =
            (Some(extended[0].into()), Some(extended[3].into()), Some(extended[1].into()));
    }
    (extended[0], extended[3]) = (0x80, 0);
    let e = Entry { aux: Some(0x80), aux2: Some(0), ..request(0x401c_5820, Some("FS_IOC_FSSETXATTR")) };
    c.call(libc::SYS_ioctl, "ioctl", [fd, 0x401c_5820, extended.as_ptr() as i64], e);
    // Room for two extents.
    let mut map = [0_u64; 4 + 14];
    (map[0], map[1], map[2], map[3]) = (t as u64, 60_000, 1, 2);
    let e = Entry {
        offset_bytes: Some(t),
        len_bytes: Some(60_000),
        mode: Some(1),
        aux: Some(2),
        ..request(0xc020_660b, Some("FS_IOC_FIEMAP"))
    };
    if c.call(libc::SYS_ioctl, "ioctl", [fd, 0xc020_660b, map.as_mut_ptr() as i64], e) == 0 {
        c.last().aux2 = Some((map[2] >> 32) as i64);
    }
    let trim = [4096_u64, 100 + t as u64, 1 << 20];
    let e = Entry {
        offset_bytes: Some(4096),
        len_bytes: Some(100 + t),
        aux2: Some(1 << 20),
        ..request(0xc018_5879, Some("FITRIM"))
    };
    c.call(libc::SYS_ioctl, "ioctl", [fd, 0xc018_5879, trim.as_ptr() as i64], e);
    c.call(libc::SYS_ioctl, "ioctl", [fd, 0xc004_5878, 0], request(0xc004_5878, Some("FITHAW")));
    let mut label = [0_u8; 256];
    let e = request(0x8100_9431, Some("FS_IOC_GETFSLABEL"));
    if c.call(libc::SYS_ioctl, "ioctl", [fd, 0x8100_9431, label.as_mut_ptr() as i64], e) == 0 {
        let end = label.iter().position(|b| *b == 0).unwrap();
        c.last().value = Some(ioreel_traces::text::from_bytes(&label[..end]).to_string());
    }
    // One that nobody knows.
    let e = Entry { aux: Some(9 + t), ..request(0x7f7f, None) };
    c.call(libc::SYS_ioctl, "ioctl", [fd, 0x7f7f, 9 + t], e);
    let e = Entry { flags: Some(0x8008_6601), name: Some("FS_IOC_GETFLAGS".into()), ..Open::bad(987).entry() };
    c.call(libc::SYS_ioctl, "ioctl", [987, 0x8008_6601, at], e);
    clones(c, home, f);
}

fn clones(c: &mut Caller, home: &str, f: &Open) {
    let to = c.open(format!("{home}/clone"), libc::O_RDWR | libc::O_CREAT, 0o600, true);
    let source = |name: &str, number: i64| Entry {
        fd2: Some(to.fd),
        ofd2: to.ofd,
        file2: to.file,
        flags: Some(number),
        name: Some(name.into()),
        ..f.entry()
    };
    let (offset_bytes, offset2_bytes) = (Some(0), Some(0));
    let e = Entry { offset_bytes, offset2_bytes, len_bytes: Some(0), ..source("FICLONE", 0x4004_9409) };
    c.call(libc::SYS_ioctl, "ioctl", [to.fd.into(), 0x4004_9409, f.fd.into()], e);
    for (offset, len, to_offset) in [(4096, 8192, 65_536), (3, 5, 7)] {
        let range = [i64::from(f.fd), offset, len, to_offset];
        let e = Entry {
            offset_bytes: Some(offset),
            len_bytes: Some(len),
            offset2_bytes: Some(to_offset),
            ..source("FICLONERANGE", 0x4020_940d)
        };
        c.call(libc::SYS_ioctl, "ioctl", [to.fd.into(), 0x4020_940d, range.as_ptr() as i64], e);
    }
    // From a descriptor that is not open.
    let e = Entry { fd: Some(987), ofd: None, file: None, no_file: true, ..source("FICLONE", 0x4004_9409) };
    c.call(libc::SYS_ioctl, "ioctl", [to.fd.into(), 0x4004_9409, 987], e);
    // offset, length, one destination: descriptor, offset, bytes, status.
    let mut same = [4096_i64, 4096, 1, to.fd.into(), 4096, 0, 0];
    let e = Entry {
        offset_bytes: Some(4096),
        len_bytes: Some(4096),
        offset2_bytes: Some(4096),
        aux: Some(1),
        ..source("FIDEDUPERANGE", 0xc018_9436)
    };
    if c.call(libc::SYS_ioctl, "ioctl", [f.fd.into(), 0xc018_9436, same.as_mut_ptr() as i64], e) == 0 {
        (c.last().aux2, c.last().mode) = (Some(same[5]), Some(same[6] as i32));
    }
    ok(c.close(&to));
}
