//! Descriptors that change hands, and nodes of devices and sockets.

use std::{
    fs,
    os::unix::{fs::MetadataExt, net::UnixListener},
    path::Path,
    process::Command,
};

use super::replays::replays_to;
use crate::harness::{
    assert_valid, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, run, succeed, temp_dir, text, tree,
};

/// A parent opens files and passes their descriptors to a worker that may open nothing itself, as mail and web servers
/// do. Each file is closed by the parent before the worker has it.
const SEPARATED: &str = "
import os, socket
here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
os.mkdir('empty')
if os.fork() == 0:
    here.close(); os.chroot('empty'); os.chdir('/'); os.setuid(65534)
    for i in range(20):
        _, fds, _, _ = socket.recv_fds(there, 16, 1)
        for piece in range(4): assert os.write(fds[0], b'w' * 25000) == 25000
        os.close(fds[0])
    os._exit(0)
there.close()
for i in range(20):
    fd = os.open(f'file-{i}', os.O_CREAT | os.O_WRONLY | (os.O_APPEND if i % 3 == 0 else 0), 0o640)
    assert os.write(fd, b'0123456789') == 10
    socket.send_fds(here, [b'next'], [fd]); os.close(fd)
assert os.wait()[1] == 0
";

pub(crate) fn a_separated_worker(fs: Fs) {
    let (origin, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let (work, reel) = (origin.path().join("work"), out.path().join("separated.reel"));
    fs::create_dir(&work).unwrap();
    succeed(record(&reel, &[], &["python3", "-S", "-c", SEPARATED]).current_dir(&work));
    assert_valid(&reel);
    for i in 0..20 {
        assert_eq!(fs::metadata(work.join(format!("file-{i}"))).unwrap().len(), 100_010);
    }
    replays_to(fs, &reel, &work);
}

/// Creates nodes, looks at them, changes and moves them, and those that were there before.
const NODES: &str = "set -e
    mknod null c 1 3; ls -l null old-disk old-socket >/dev/null; chmod 666 null
    mknod disk b 7 300; mv disk moved; mknod pipe p; chmod 600 old-disk
    mknod gone c 1 5; rm gone
    python3 -S -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind(\"bound\"); s.listen()'
    ls -l >list; chmod 700 bound";

fn devices(dir: &Path) -> Vec<(String, u64)> {
    let of = |e: fs::DirEntry| (e.file_name().into_string().unwrap(), e.metadata().unwrap().rdev());
    let mut all: Vec<_> = fs::read_dir(dir).unwrap().map(|e| of(e.unwrap())).collect();
    all.sort();
    all
}

pub(crate) fn device_nodes() {
    let (origin, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let (work, reel) = (origin.path().join("work"), out.path().join("nodes.reel"));
    fs::create_dir(&work).unwrap();
    succeed(Command::new("mknod").arg(work.join("old-disk")).args(["b", "7", "301"]));
    drop(UnixListener::bind(work.join("old-socket")).unwrap());
    succeed(record(&reel, &[], &["sh", "-c", NODES]).current_dir(&work));
    assert_valid(&reel);
    let replay = |allowed: bool| {
        let target = Mounted::new(Fs::Xfs, DEFAULT_SIZE_BYTES);
        let mut command = ioreel(["replay", text(&reel), "--target", text(target.path()), "--max-own-lateness", "1h"]);
        let output = run(command.args(["--json"]).args(if allowed { &["--device-nodes"][..] } else { &[] }));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (target, output.status.code(), report)
    };
    let (target, status, report) = replay(true);
    assert_eq!(status, Some(0), "{:#}", report["verdict"]["sentence"]);
    let replayed = target.path().join(work.strip_prefix("/").unwrap());
    assert_eq!((tree(&replayed), devices(&replayed)), (tree(&work), devices(&work)));

    let (target, status, report) = replay(false);
    let sentence = report["verdict"]["sentence"].as_str().unwrap();
    assert_eq!(status, Some(8 + 16), "{sentence}");
    assert!(sentence.contains("device node, see --device-nodes"), "{sentence}");
    let replayed = target.path().join(work.strip_prefix("/").unwrap());
    let names: Vec<String> = devices(&replayed).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["bound", "list", "old-socket", "pipe"]);
}
