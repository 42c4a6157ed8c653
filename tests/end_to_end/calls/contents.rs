//! What writes wrote: hashes, compressibility and bytes against the files themselves.

use std::{collections::HashMap, fs, path::Path, process::Command};

use ioreel_traces::{
    Reel,
    rows::{Content, Op},
    table::Row,
};

use crate::harness::{
    assert_valid, describe, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    one_line, paths_of, record, run, succeed, temp_dir, text,
};

/// Writes files of known bytes by every call that writes memory, four processes at a time, each file once: what a write
/// wrote can be looked up.
const WORKLOAD: &str = "
import os, sys
base = sys.argv[1]
kinds = {'zero': lambda n: bytes(n), 'random': os.urandom,
         'text': lambda n: (b'so much depends upon a red wheel barrow glazed with rain water. ' * (n // 32 + 1))[:n]}
sizes = [1, 255, 256, 257, 4095, 4096, 4097, 32767, 32768, 32769, 100000, 1 << 20]
def all_of(name, kind):
    make = kinds[kind]
    fd = os.open(f'{base}/{name}-{kind}', os.O_RDWR | os.O_CREAT)
    at = 0
    for n in sizes:
        b = make(n)
        assert os.write(fd, b) == n
        at += n
        assert os.pwrite(fd, b, at) == n
        at += n
        os.lseek(fd, at, 0)
        pieces = [b[:n // 3], b'', b[n // 3:n // 2], b[n // 2:]]
        assert os.writev(fd, pieces) == n
        at += n
        assert os.pwritev(fd, pieces, at) == n
        at += n
        os.lseek(fd, at, 0)
    # A thousand pieces, the most that a vector may have and what fits no page.
    tiny = [bytes([65 + i % 26]) * (i % 7) for i in range(1024)]
    os.writev(fd, tiny)
    os.close(fd)
pids = []
for i in range(4):
    pid = os.fork()
    if not pid:
        for kind in kinds: all_of(f'f{i}', kind)
        os._exit(0)
    pids.append(pid)
for pid in pids: assert os.waitpid(pid, 0)[1] == 0
r, w = os.pipe()
os.write(w, b'to a pipe')
";

/// Enough for what the workload writes at once.
const RINGS: &str = "256";

fn recorded(reel: &Path, base: &Path, options: &[&str]) -> Reel {
    let options = [&["--ring-mib", RINGS, "--settle", "none", "--no-snapshot"], options].concat();
    succeed(&mut record(reel, &options, &["python3", "-c", WORKLOAD, text(base)]));
    assert_valid(reel)
}

fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).as_bytes()[..16].iter().map(|b| format!("{b:02x}")).collect()
}

/// Successful writes to files below `base`, with the path and what was written.
fn writes(reel: &Reel, base: &Path) -> Vec<(Op, String, Vec<u8>)> {
    let paths = paths_of(reel);
    let mut files: HashMap<String, Vec<u8>> = HashMap::new();
    let mut out = Vec::new();
    for op in reel.read::<Op>().unwrap() {
        let path = op.file.and_then(|f| paths.get(&f)).filter(|p| p.starts_with(text(base))).cloned();
        let (Some(path), Some(at), Some(n @ 1..)) = (path, op.offset_bytes, op.ret) else { continue };
        if op.op.contains("write") && op.source != "fault" {
            let bytes = files.entry(path.clone()).or_insert_with(|| fs::read(&path).unwrap());
            let wrote = bytes[at as usize..(at + n) as usize].to_vec();
            out.push((op, path, wrote));
        }
    }
    out
}

pub(crate) fn hashes_are_those_of_the_bytes() {
    let (out, dir) = (temp_dir(), temp_dir());
    let reel = recorded(&out.path().join("x.reel"), dir.path(), &["--content", "hash"]);
    let writes = writes(&reel, dir.path());
    assert_eq!(writes.len(), 4 * 3 * (12 * 4 + 1));
    // By length, then by kind.
    let mut ratios: HashMap<usize, HashMap<&str, i32>> = HashMap::new();
    for (op, path, bytes) in &writes {
        assert_eq!(op.content_hash.as_deref(), Some(&*hash(bytes)), "{op:?} on {path}");
        let permille = op.compressibility_permille.unwrap();
        assert!((0..=1000).contains(&permille), "{op:?}");
        let (_, kind) = path.rsplit_once('-').unwrap();
        ratios.entry(bytes.len()).or_default().insert(kind, permille);
    }
    for (len, by) in ratios.iter().filter(|(len, _)| **len >= 4095) {
        let (random, words, zero) = (by["random"], by["text"], by["zero"]);
        assert!(random < 20 && random < words && words <= zero && zero > 950, "{len}: {by:?}");
    }
    let others = reel.read::<Op>().unwrap().into_iter().filter(|o| o.op == "write" && o.offset_bytes.is_none());
    assert!(others.count() > 0, "a pipe's");
    let ledger = reel.manifest.ledger["contents"];
    assert_eq!((ledger.written, ledger.lost), (writes.len() as i64, 0), "{ledger:?}");
    assert!(!reel.path().join(Content::TABLE).exists());
}

/// Requests to io_uring and to Linux AIO: each block of a file is written once, so the file tells what each wrote.
pub(crate) fn asynchronous_writes() {
    const BLOCKS: usize = 1024;
    let (out, dir) = (temp_dir(), temp_dir());
    let size = format!("--size={}", BLOCKS * 4096);
    for (i, options) in [
        &["--ioengine=io_uring"][..],
        &["--ioengine=io_uring", "--nonvectored=0", "--direct=1"],
        &["--ioengine=io_uring", "--fixedbufs", "--registerfiles", "--direct=1"],
        &["--ioengine=io_uring", "--sqthread_poll"],
        &["--ioengine=io_uring", "--force_async=2"],
        &["--ioengine=libaio", "--direct=1"],
        &["--ioengine=libaio", "--libaio_vectored"],
    ]
    .into_iter()
    .enumerate()
    {
        let file = dir.path().join(format!("file{i}"));
        let name = format!("--filename={}", text(&file));
        let mut fio = vec!["fio", "--name=job", "--iodepth=16", "--rw=randwrite", "--bs=4k", "--refill_buffers"];
        fio.extend([&*name, &*size, "--fallocate=none"]);
        fio.extend(options);
        let reel = out.path().join(format!("{i}.reel"));
        let recording = ["--content", "hash", "--ring-mib", RINGS, "--settle", "none", "--no-snapshot"];
        let output = run(&mut record(&reel, &recording, &fio));
        if options.contains(&"--libaio_vectored") && !output.status.success() {
            // Only newer versions of fio know it.
            continue;
        }
        assert!(output.status.success(), "{options:?}: {}", describe(&output));
        let reel = assert_valid(&reel);
        let writes = writes(&reel, &file);
        let own: Vec<_> = writes.iter().filter(|(op, ..)| op.source != "syscall").collect();
        assert_eq!(own.len(), BLOCKS, "{options:?}: {:?}", reel.manifest.left_out);
        let wrong = own.iter().filter(|(op, _, bytes)| op.content_hash.as_deref() != Some(&*hash(bytes)));
        let untold = own.iter().filter(|(op, ..)| op.content_hash.is_none()).count();
        let left_out = &reel.manifest.left_out;
        assert_eq!((wrong.count(), untold), (0, 0), "{options:?}: {left_out:?} {:?}", own.first());
        let ledger = reel.manifest.ledger["contents"];
        assert_eq!((ledger.written, ledger.lost), (writes.len() as i64, 0), "{options:?}: {ledger:?}");
    }
}

/// A program of i386, by hand: opens `path` for writing, writes `data`, ends.
fn program_of_i386(path: &str, data: &[u8]) -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const HEAD_BYTES: u32 = 52 + 32;
    const CODE_BYTES: u32 = 50;
    let path_at = BASE + HEAD_BYTES + CODE_BYTES;
    let data_at = path_at + path.len() as u32 + 1;
    let total = data_at - BASE + data.len() as u32;
    let word = |w: u32| w.to_le_bytes();
    let set = |register: u8, value: u32| [&[register][..], &word(value)].concat();
    let (eax, ebx, ecx, edx) = (0xb8, 0xbb, 0xb9, 0xba);
    let call = [0xcd, 0x80];
    let code = [
        &set(eax, 5)[..],
        &set(ebx, path_at),
        &set(ecx, (libc::O_CREAT | libc::O_WRONLY) as u32),
        &set(edx, 0o644),
        &call,
        // What it opened is the first argument of the next.
        &[0x89, 0xc3],
        &set(eax, 4),
        &set(ecx, data_at),
        &set(edx, data.len() as u32),
        &call,
        &set(eax, 1),
        &[0x31, 0xdb],
        &call,
    ]
    .concat();
    assert_eq!(code.len() as u32, CODE_BYTES);
    // Elf32_Ehdr and the only Elf32_Phdr, which maps all of it to be read and run.
    let head = [
        &b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0\x01\0\0\0"[..],
        &word(BASE + HEAD_BYTES),
        &word(52),
        &[0; 8],
        &[52, 0, 32, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        &word(1),
        &word(0),
        &word(BASE),
        &word(BASE),
        &word(total),
        &word(total),
        &word(5),
        &word(0x1000),
    ]
    .concat();
    assert_eq!(head.len() as u32, HEAD_BYTES);
    [&head[..], &code, path.as_bytes(), b"\0", data].concat()
}

pub(crate) fn of_a_32_bit_program() {
    let (out, dir) = (temp_dir(), temp_dir());
    let (program, file) = (out.path().join("i386"), dir.path().join("file"));
    let data: Vec<u8> = (0..3000_u32).flat_map(|i| i.to_le_bytes()).collect();
    fs::write(&program, program_of_i386(text(&file), &data)).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let reel = out.path().join("x.reel");
    let options = ["--content", "hash", "--settle", "none", "--no-snapshot"];
    succeed(&mut record(&reel, &options, &[text(&program)]));
    assert_eq!(fs::read(&file).unwrap(), data);
    let reel = assert_valid(&reel);
    let ops: Vec<Op> = reel.read().unwrap();
    let own: Vec<&str> = ops.iter().filter(|o| o.source == "syscall").map(|o| &*o.op).collect();
    assert!(own.ends_with(&["open", "write"]), "{own:?}");
    let writes = writes(&reel, dir.path());
    assert_eq!((writes.len(), writes[0].0.content_hash.as_deref()), (1, Some(&*hash(&data))), "{writes:?}");
}

pub(crate) fn bytes_are_kept() {
    let (out, dir) = (temp_dir(), temp_dir());
    let reel = recorded(&out.path().join("x.reel"), dir.path(), &["--content", "full"]);
    let kept: Vec<Content> = reel.read().unwrap();
    let by_hash: HashMap<&str, &[u8]> = kept.iter().map(|c| (&*c.content_hash, &*c.data.0)).collect();
    assert_eq!(by_hash.len(), kept.len(), "each once");
    for (op, path, bytes) in writes(&reel, dir.path()) {
        assert_eq!(by_hash.get(op.content_hash.as_deref().unwrap()), Some(&&*bytes), "{op:?} on {path}");
    }
    // Made to leave the house, it holds no bytes and no hashes that could be guessed from them.
    let mapped = out.path().join("mapped.reel");
    succeed(&mut ioreel(["anonymize", text(reel.path()), "-o", text(&mapped)]));
    let mapped = assert_valid(&mapped);
    assert!(mapped.read::<Content>().unwrap().is_empty());
    assert!(
        mapped.read::<Op>().unwrap().iter().filter_map(|o| o.content_hash.as_deref()).all(|h| !by_hash.contains_key(h))
    );
}

/// Without the option nothing is looked at; with it, and names hashed, only a keyed hash is kept.
pub(crate) fn only_what_was_asked_for() {
    let (out, dir) = (temp_dir(), temp_dir());
    let file = dir.path().join("file");
    let script = format!("echo data >{}", text(&file));
    let ops = |name: &str, options: &[&str]| {
        let reel = out.path().join(name);
        succeed(&mut record(&reel, options, &["sh", "-c", &script]));
        let reel = assert_valid(&reel);
        let told = reel.read::<Op>().unwrap().into_iter().filter_map(|o| o.content_hash).collect::<Vec<_>>();
        (reel, told)
    };
    let (plain, told) = ops("plain.reel", &[]);
    assert!(told.is_empty() && !plain.manifest.ledger.contains_key("contents"));
    let (_, clear) = ops("clear.reel", &["--content", "hash"]);
    assert!(clear.iter().any(|h| **h == hash(b"data\n")), "{clear:?}");
    let (_, keyed) = ops("keyed.reel", &["--content", "hash", "--anonymize"]);
    assert_eq!(keyed.len(), clear.len());
    assert!(keyed.iter().all(|h| !clear.contains(h)));
    let reel = out.path().join("x.reel");
    let line = one_line(&mut record(&reel, &["--content", "full", "--anonymize"], &["true"]), 1);
    assert!(line.contains("--content full") && !reel.exists(), "{line}");
}

/// What rotation takes away with its operation is in the books as that.
pub(crate) fn rotated_contents_are_counted() {
    let (out, dir) = (temp_dir(), temp_dir());
    let reel = out.path().join("x.reel");
    let program = "import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for i in range(60000): os.pwrite(fd, i.to_bytes(8, 'little'), 8 * (i % 4096))
";
    let options = ["--content", "hash", "--rotate", "--max-size", "300K", "--ring-mib", "256", "--settle", "none"];
    succeed(&mut record(&reel, &options, &["python3", "-c", program, text(&dir.path().join("file"))]));
    let reel = assert_valid(&reel);
    let hashes = reel.rows::<Op>().filter(|op| op.as_ref().unwrap().content_hash.is_some()).count() as i64;
    let ledger = reel.manifest.ledger["contents"];
    assert_eq!((ledger.written, ledger.lost), (hashes, 0), "{ledger:?}");
    assert!(hashes > 0 && ledger.seen >= 60_000, "{hashes}: {ledger:?}");
    let rotated = reel.manifest.left_out["contents dropped again by rotation"];
    assert!(rotated > 0 && ledger.seen == ledger.written + ledger.filtered, "{rotated}: {ledger:?}");
}

/// Hashes that never reach the reel, because its disk is full, are in the books as lost.
pub(crate) fn contents_without_room_on_the_disk() {
    let (dir, small) = (temp_dir(), temp_dir());
    succeed(Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "ioreel-test", text(small.path())]));
    let path = small.path().join("x.reel");
    let program = "import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for i in range(200000): os.pwrite(fd, i.to_bytes(8, 'little'), 8 * (i % 4096))
";
    let options = ["--content", "hash", "--ring-mib", "64", "--settle", "none", "--no-snapshot"];
    let output = run(&mut record(&path, &options, &["python3", "-c", program, text(&dir.path().join("file"))]));
    let read = Reel::open(&path).map(|reel| {
        let hashes = reel.rows::<Op>().filter(|op| op.as_ref().is_ok_and(|op| op.content_hash.is_some())).count();
        (hashes as i64, reel.manifest.ledger["contents"])
    });
    let _ = Command::new("umount").arg(small.path()).status();

    assert_eq!(output.status.code(), Some(1), "{}", describe(&output));
    let (hashes, ledger) = read.unwrap();
    assert_eq!((ledger.written, ledger.seen), (hashes, ledger.written + ledger.lost + ledger.filtered), "{ledger:?}");
    assert!(ledger.lost > 0, "{hashes}: {ledger:?}");
}

/// Bytes that find no room on the disk are told, and leave no table.
pub(crate) fn bytes_without_room_on_the_disk() {
    const WRITES: i64 = 1000;
    let (dir, small) = (temp_dir(), temp_dir());
    succeed(Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "ioreel-test", text(small.path())]));
    let path = small.path().join("x.reel");
    let program = format!(
        "import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for i in range({WRITES}): os.pwrite(fd, os.urandom(4096), i * 4096)
"
    );
    let options = ["--content", "full", "--ring-mib", "64", "--settle", "none", "--no-snapshot"];
    let output = run(&mut record(&path, &options, &["python3", "-c", &program, text(&dir.path().join("file"))]));
    let validated = run(&mut ioreel(["validate", text(&path)]));
    let (reel, folder) = (Reel::open(&path), path.join("contents").exists());
    let _ = Command::new("umount").arg(small.path()).status();

    assert_eq!((output.status.code(), validated.status.code()), (Some(1), Some(0)), "{}", describe(&output));
    let told = format!("{WRITES} rows of contents could not be written");
    assert!(reel.unwrap().manifest.warnings.contains(&told) && !folder, "{}", describe(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&told), "{}", describe(&output));
}

/// Contents that find no room, or are longer than is read, are counted, and cost no operation.
pub(crate) fn losses_of_contents_are_counted() {
    let (out, dir) = (temp_dir(), temp_dir());
    let file = dir.path().join("file");
    let program = "import os, sys, signal, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.kill(os.getppid(), signal.SIGSTOP)
for i in range(40): os.write(fd, os.urandom(100000))
os.kill(os.getppid(), signal.SIGCONT)
os.write(fd, bytes(1 << 20))
";
    let reel = out.path().join("x.reel");
    let options = ["--content", "hash", "--ring-mib", "2", "--settle", "none", "--no-snapshot"];
    let output = run(&mut record(&reel, &options, &["python3", "-c", program, text(&file)]));
    assert!(output.status.success());
    succeed(&mut ioreel(["validate", text(&reel)]));
    let reel = Reel::open(&reel).unwrap();
    let m = &reel.manifest;
    // Not one of these operations; what Python does to find itself may be too much for so small rings.
    let writes = writes(&reel, dir.path());
    assert_eq!(writes.len(), 41, "{:?}", m.ledger);
    let (told, untold): (Vec<_>, Vec<_>) = writes.iter().partition(|(op, ..)| op.content_hash.is_some());
    for (op, _, bytes) in &told {
        assert_eq!(op.content_hash.as_deref(), Some(&*hash(bytes)));
    }
    let ledger = m.ledger["contents"];
    let large = m.left_out["contents of writes longer than is read"];
    assert_eq!((large, ledger.lost), (1, untold.len() as i64 - 1), "{ledger:?}");
    assert!(ledger.lost > 20 && !told.is_empty(), "{ledger:?}");
    let located: i64 = m.losses.iter().map(|l| l.events).sum();
    assert_eq!(located, m.lost(), "{:?}", m.losses);
}

/// Linux AIO by its calls: writes of vectors of up to 1024 pieces, several in flight, each of a file's block of its own; with
/// what brings no bytes in memory beside: splices, copies, clones where there are any, stores to mapped files, and an
/// asynchronous write whose result no call takes.
const RARE: &str = r#"
import ctypes, mmap, os, struct, sys
base = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
ctx = ctypes.c_ulong(0)
assert libc.syscall(206, 64, ctypes.byref(ctx)) == 0
def vector(pieces):
    buffers = [ctypes.create_string_buffer(p, max(len(p), 1)) for p in pieces]
    flat = [n for b, p in zip(buffers, pieces) for n in (ctypes.addressof(b), len(p))]
    return buffers, (ctypes.c_uint64 * len(flat))(*flat)
def iocb(opcode, fd, buf, n, at):
    # data, key, rw_flags, opcode, reqprio, fd, buf, nbytes, offset, reserved, flags, resfd
    return ctypes.create_string_buffer(struct.pack('<QIIHhIQQqQII', 0, 0, 0, opcode, 0, fd, buf, n, at, 0, 0, 0), 64)
def submit(blocks):
    addresses = (ctypes.c_uint64 * len(blocks))(*[ctypes.addressof(b) for b in blocks])
    assert libc.syscall(209, ctx, len(blocks), addresses) == len(blocks)
def reap(n):
    events = ctypes.create_string_buffer(32 * n)
    assert libc.syscall(208, ctx, n, n, events, None) == n
    return [struct.unpack_from('<q', events.raw, 32 * i + 16)[0] for i in range(n)]
fd = os.open(base + '/vectors', os.O_RDWR | os.O_CREAT)
at, kept, blocks = 0, [], []
for count in [1, 31, 32, 33, 63, 64, 65, 500, 1023, 1024]:
    pieces = [os.urandom(1 + (i * 7) % 90) if i % 5 else b'' for i in range(count - 1)] + [os.urandom(700)]
    buffers, v = vector(pieces)
    kept.append((buffers, v))
    blocks.append(iocb(8, fd, ctypes.addressof(v), count, at))
    at += sum(map(len, pieces))
submit(blocks)
# The vectors are the kernel's no more once they have been submitted; what they lead to is, until the end.
for _, v in kept: ctypes.memset(v, 0, ctypes.sizeof(v))
assert sum(reap(len(blocks))) == at
# Nobody takes this one's result by a call.
last = open(base + '/unreaped', 'wb')
data = ctypes.create_string_buffer(b'x' * 4096)
submit([iocb(1, last.fileno(), ctypes.addressof(data), 4096, 0)])
# Not executable: touches of what may be program code are not told.
r, w = os.pipe()
a, b = os.open(base + '/a', os.O_RDWR | os.O_CREAT, 0o600), os.open(base + '/b', os.O_RDWR | os.O_CREAT, 0o600)
os.write(a, b'a' * 5000)
os.write(w, b'piped')
assert os.splice(r, b, 5, offset_dst=100) == 5
assert os.splice(a, w, 3, offset_src=0) == 3
assert os.sendfile(b, a, 0, 1000) == 1000
assert os.copy_file_range(a, b, 2000, 0, 0) == 2000
os.fsync(a)
with mmap.mmap(a, 4096) as m:
    m[0:4] = b'mmap'
"#;

/// Vectors of any length are read; of what brings no bytes of the caller's everything is counted, and told.
pub(crate) fn vectors_and_what_brings_no_bytes() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let (out, dir) = (temp_dir(), mounted.path());
    let path = out.path().join("x.reel");
    let options = ["--content", "hash", "--ring-mib", "64", "--settle", "none", "--no-snapshot"];
    succeed(&mut record(&path, &options, &["python3", "-c", RARE, text(dir)]));
    let reel = assert_valid(&path);
    let vectors: Vec<_> = writes(&reel, &dir.join("vectors")).into_iter().filter(|w| w.0.source == "aio").collect();
    let counts: Vec<i64> = vectors.iter().map(|(op, ..)| op.aux.unwrap()).collect();
    assert_eq!(counts, [1, 31, 32, 33, 63, 64, 65, 500, 1023, 1024]);
    for (op, path, bytes) in &vectors {
        assert_eq!(op.content_hash.as_deref(), Some(&*hash(bytes)), "{op:?} on {path}");
    }
    let told = succeed(&mut ioreel(["info", text(&path)])).stdout;
    let told = String::from_utf8(told).unwrap();
    let m = &reel.manifest;
    for (what, n) in [
        ("contents of splices, copies and clones, which are never in the caller's memory", 3),
        ("contents of first stores to pages of mapped files", 1),
        ("contents of writes whose beginning or end no probe saw", 1),
    ] {
        assert_eq!(m.left_out.get(what), Some(&n), "{what}: {:?}", m.left_out);
        assert!(told.contains(what), "{what} is not in {told}");
    }
    assert!(!m.left_out.contains_key("contents of writes that could not be read from the caller's memory"));
}
