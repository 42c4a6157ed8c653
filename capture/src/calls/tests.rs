//! Tests of how arguments become columns.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;

use libc::*;

use super::*;

fn raw(args: [i64; 6]) -> Raw<'static> {
    // As for open descriptors.
    Raw { args, flags: (op_flags::OPF_FILE.0 | op_flags::OPF_FILE2.0) as u16, ..Raw::default() }
}

fn fill(name: &str, r: &Raw<'_>) -> Op {
    let mut op = Op::default();
    (all().find(|c| c.name == name).unwrap().fill)(r, &mut op);
    op
}

#[test]
fn a_small_open_how_is_not_looked_at() {
    let how = |size: i64| fill("openat2", &Raw { ret: -22, extra: [2, 0o600, 8, 0], ..raw([3, 0, 0, size, 0, 0]) });
    assert_eq!((how(24).flags, how(24).aux2), (Some(2), Some(8)));
    assert_eq!((how(8).flags, how(8).mode, how(8).aux2), (None, None, None));
}

#[test]
fn ids_of_user_name_spaces_are_those_of_the_initial_one() {
    let words = |ids: &[u32]| -> Vec<u8> { ids.iter().flat_map(|id| id.to_le_bytes()).collect() };
    let output = words(&[100_005, u32::MAX]);
    let op = fill("fchown", &Raw { output: &output, ..raw([3, 5, -1, 0, 0, 0]) });
    assert_eq!((op.aux, op.aux2, op.value.as_deref()), (Some(5), Some(-1), Some("100005,-1")));
    let op = fill("fchownat", &raw([3, 0, 5, 6, 0, 0]));
    assert_eq!((op.aux, op.aux2, op.value), (Some(5), Some(6), None));
    let output = words(&[0x1f, 1, 1, 2, 3, 4, 5, 6, 7, 8]);
    for (call, aux2) in [("setuid", None), ("setresgid", Some(9)), ("setreuid", Some(9)), ("setfsgid", None)] {
        let op = fill(call, &Raw { output: &output, ..raw([0, 9, 9, 0, 0, 0]) });
        assert_eq!((op.aux2, op.value.as_deref()), (aux2, Some("1,2,3,4,5,6,7,8,0x10000001f")), "{call}");
    }
    let output = words(&[100_050]);
    let op = fill("setgroups", &Raw { input: &words(&[50]), output: &output, ..raw([1, 0, 0, 0, 0, 0]) });
    assert_eq!((op.aux2, op.value), (Some(1), Some(text::from_bytes(&output))));
    let op = fill("setgroups", &Raw { input: &words(&[50]), ..raw([1, 0, 0, 0, 0, 0]) });
    assert_eq!((op.aux2, op.value), (None, Some(text::from_bytes(&words(&[50])))));
    let op = fill("setgroups", &Raw { output: b"x", ..raw([99, 0, 0, 0, 0, 0]) });
    assert_eq!((op.aux2, op.value), (Some(1), None), "too many");
}

#[test]
fn every_call_stands_once() {
    let mut names: Vec<_> = of_all().map(|c| c.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), of_all().count());
    for table in 0..2 {
        let numbers: Vec<_> = of_all().filter_map(|c| c.numbers[table]).collect();
        let each: std::collections::BTreeSet<_> = numbers.iter().collect();
        assert_eq!(numbers.len(), each.len());
        assert!(numbers.iter().all(|n| *n < 512));
    }
    // Only the generic table lacks calls: those older than it.
    assert!(of_all().all(|c| c.numbers[0].is_some()));
    let old: Vec<_> = of_all().filter(|c| c.numbers[1].is_none()).map(|c| c.name).collect();
    let gone = "open creat stat lstat access getdents readlink mkdir rmdir unlink rename link symlink mknod chmod chown \
                lchown utime utimes futimesat dup2 ustat";
    assert_eq!(old, gone.split(' ').filter(|n| !n.is_empty()).collect::<Vec<_>>());
}

/// Call numbers from an installed kernel header.
fn numbers_in(header: &str) -> HashMap<String, u16> {
    let text = std::fs::read_to_string(header).unwrap();
    let line = |line: &str| {
        let mut words = line.strip_prefix("#define __NR")?.split_whitespace();
        let name = words.next()?;
        // `__NR3264_`: calls that have another name on 32-bit architectures.
        let name = name.strip_prefix("3264_").or_else(|| name.strip_prefix('_'))?;
        Some((if name == "fstatat" { "newfstatat" } else { name }.to_owned(), words.next()?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn numbers_are_those_of_the_kernels_headers() {
    let mut headers = vec![(1, "/usr/include/asm-generic/unistd.h")];
    if cfg!(target_arch = "x86_64") {
        let asm = ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"];
        headers.push((0, asm.into_iter().find(|p| std::path::Path::new(p).exists()).unwrap()));
    }
    for (table, header) in headers {
        let known = numbers_in(header);
        assert!(known.len() > 250, "{header}: {}", known.len());
        let last = known.iter().filter(|(name, _)| *name != "syscalls").map(|(_, nr)| *nr).max().unwrap();
        for call in of_all() {
            // Headers may be older than the table: numbers above theirs are accepted.
            let expected = known.get(call.name).copied().or(call.numbers[table].filter(|nr| *nr > last));
            assert_eq!(call.numbers[table], expected, "{} in {header}", call.name);
        }
    }
}

#[test]
fn plain_reads_and_appends_get_their_true_position() {
    let read = Raw { ret: 10, pos: (100, 110), ..raw([3, 0, 64, 0, 0, 0]) };
    assert_eq!(fill("read", &read).offset_bytes, Some(100));
    let append = Raw { ret: 50, pos: (0, 150), ..raw([3, 0, 50, 0, 0, 0]) };
    assert_eq!(fill("write", &append).offset_bytes, Some(100), "an append acts at the end, not at the old position");
    let failed = Raw { ret: -9, pos: (7, 7), ..raw([3, 0, 50, 0, 0, 0]) };
    assert_eq!(fill("write", &failed).offset_bytes, Some(7));
    let closed = Raw { ret: -9, flags: 0, ..raw([3, 0, 50, 0, 0, 0]) };
    assert_eq!(fill("write", &closed).offset_bytes, None, "a descriptor that is not open has none");
    let pipe = Raw { ret: 50, pos: (0, 0), ..raw([3, 0, 50, 0, 0, 0]) };
    assert_eq!(fill("write", &pipe).offset_bytes, None, "a pipe has no position");
}

#[test]
fn calls_that_wait_for_each_other_get_their_own_ranges() {
    // A and B enter at position 0. A is served first, but its return is seen after B's.
    let b = Raw { ret: 50, pos: (0, 150), ..raw([3, 0, 50, 0, 0, 0]) };
    assert_eq!(fill("write", &b).offset_bytes, Some(100));
    let a = Raw { ret: 100, pos: (0, 150), moved: std::slice::from_ref(&(100..150)), ..raw([3, 0, 100, 0, 0, 0]) };
    assert_eq!(fill("write", &a).offset_bytes, Some(0));
}

#[test]
fn preadv2_with_minus_one_uses_the_file_position() {
    let r = Raw { ret: 4, pos: (20, 24), extra: [4, 0, 0, 0], ..raw([3, 0, 1, -1, 0, 8]) };
    let op = fill("preadv2", &r);
    assert_eq!((op.offset_bytes, op.aux2, op.flags, op.len_bytes), (Some(20), Some(1), Some(8), Some(4)));
}

#[test]
fn times_keep_their_special_values() {
    let r = Raw { extra: [1, 5, 2, UTIME_OMIT], ..raw([-100, 1, 1, 0, 0, 0]) };
    let op = fill("utimensat", &r);
    assert_eq!((op.aux, op.aux2), (Some(1_000_000_005), Some(TIME_OMIT)));
    let null = Raw { extra: [0, -1, 0, 0], ..raw([-100, 1, 0, 0, 0, 0]) };
    assert_eq!(fill("utimensat", &null).aux2, Some(TIME_NOW));
    let old = Raw { extra: [3, 4, 0, 0], ..raw([1, 1, 0, 0, 0, 0]) };
    assert_eq!((fill("utime", &old).aux, fill("utime", &old).aux2), (Some(3_000_000_000), Some(4_000_000_000)));
}

#[test]
fn the_creation_mode_counts_only_where_something_may_be_created() {
    let r = raw([-100, 1, i64::from(O_RDONLY), 0o7777, 0, 0]);
    assert_eq!(fill("openat", &r).mode, None);
    let r = raw([-100, 1, i64::from(O_CREAT), 0o640, 0, 0]);
    assert_eq!(fill("openat", &r).mode, Some(0o640));
}

#[test]
fn every_number_of_the_32_bit_entry_stands_once() {
    let mut numbers: Vec<_> = compat().iter().map(|c| c.nr).collect();
    numbers.sort_unstable();
    let all_of_them = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), all_of_them);
    assert!(numbers.iter().all(|n| *n < 512));
    // i386 reaches every 64-bit call that it has, except those named in the document.
    let missing = all().filter(|c| !compat().iter().any(|m| m.call.is_some_and(|x| x.name == c.name)));
    let names: Vec<_> = missing.map(|c| c.name).collect();
    assert!(names.iter().all(|n| n.starts_with("io_") || n.ends_with("msg")), "{names:?}");
}

#[test]
fn split_offsets_are_joined() {
    let of = |nr: usize, args: [i64; 6]| {
        let c = compat().iter().find(|c| c.nr == nr).unwrap();
        let mut r = Raw { flags: op_flags::OPF_COMPAT.0 as u16, input: &[5, 1, 6, 0, 7, 0, 8, 0], ..raw(args) };
        (c.fix)(&mut r);
        let mut op = Op::default();
        (c.call.unwrap().fill)(&r, &mut op);
        op
    };
    let short = text::from_bytes(&[5, 1, 0, 0, 6, 0, 0, 0]);
    assert_eq!(of(81, [2, 1, 0, 0, 0, 0]).value.as_deref(), Some(&*short), "groups of 16 bits");
    let fallocate = of(324, [3, 1, 0xffff_f000, 2, 5, 1]);
    assert_eq!((fallocate.offset_bytes, fallocate.len_bytes), (Some(0x2_ffff_f000), Some(0x1_0000_0005)));
    let advice = of(272, [3, 7, 1, 9, 0, 4]);
    assert_eq!((advice.offset_bytes, advice.len_bytes, advice.flags), (Some(0x1_0000_0007), Some(9), Some(4)));
    assert_eq!(of(92, [1, 0xffff_ffff, 0, 0, 0, 0]).len_bytes, Some(-1), "a negative length stays one");
    assert_eq!(of(182, [1, 0xffff, 7, 0, 0, 0]).aux, Some(-1), "a 16-bit id of -1 leaves the owner");
}

#[test]
fn locks_of_every_layout() {
    let mut wide = [0_u8; 32];
    wide[0] = 1;
    wide[2] = 2;
    wide[8..16].copy_from_slice(&(-5_i64).to_le_bytes());
    wide[16..24].copy_from_slice(&77_i64.to_le_bytes());
    let r = Raw { input: &wide, ..raw([3, F_SETLK.into(), 0x1000, 0, 0, 0]) };
    let op = fill("fcntl", &r);
    assert_eq!((op.mode, op.aux2, op.offset_bytes, op.len_bytes, op.aux), (Some(1), Some(2), Some(-5), Some(77), None));
    let mut packed = [0_u8; 24];
    packed[4..12].copy_from_slice(&9_i64.to_le_bytes());
    packed[12..20].copy_from_slice(&8_i64.to_le_bytes());
    let compat = op_flags::OPF_COMPAT.0 as u16;
    let r = Raw { input: &packed, flags: compat, ..raw([3, 13, 0x1000, 0, 0, 0]) };
    let op = fill("fcntl", &r);
    assert_eq!((op.flags, op.offset_bytes, op.len_bytes), (Some(F_SETLK.into()), Some(9), Some(8)));
}
