//! Varied programs, replayed: the tree equals the original's by an independent comparison, or the verdict says what
//! differs and exits accordingly. There is no third case.

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, chown, symlink},
    },
    path::Path,
    process::Command,
};

use rustix::fs::{CWD, FileType, Mode, XattrFlags, lsetxattr, makedev, mknodat};

use crate::harness::{
    assert_valid, describe, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, run, same_tree, succeed, temp_dir, text,
};

/// Bits of the exit status that say that the tree may differ, and how: wrong results, wrong tree, left-out work.
const SAYS_SO: i32 = 4 | 8 | 16;
/// Bit of the exit status for bad timing, which a busy machine causes.
const TIMING: i32 = 32;

/// A program to record in a directory of its own.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Python that prepares the directory, or what lies beside it.
    before: &'static str,
    /// Shell text that is recorded.
    script: &'static str,
    /// The replay repeats everything: the verdict must be that it is faithful.
    repeats: bool,
}

/// Writes a program that runs its arguments as root of a user name space with several ranges of ids, more than five for
/// users.
const RANGES: &str = r#"
open('../ranges.py', 'w').write('''
import ctypes, os, sys
(r, w), (r2, w2) = os.pipe(), os.pipe()
pid = os.fork()
if pid == 0:
    assert ctypes.CDLL(None).unshare(0x10000000) == 0
    os.write(w, b'x'); os.read(r2, 1)
    os.setgid(0); os.setgroups([]); os.setuid(0)
    os.execvp(sys.argv[1], sys.argv[1:])
os.read(r, 1)
users = [(5000, 900000, 1), (0, 100000, 33), (33, 510033, 7), (1000, 300000, 500), (3000, 400000, 1), (4000, 600000, 2), (1500, 310000, 9)]
groups = [(0, 100000, 100), (1000, 700000, 100)]
for name, ranges in (('uid', users), ('gid', groups)):
    open(f'/proc/{pid}/{name}_map', 'w').write(chr(10).join('%d %d %d' % r for r in ranges) + chr(10))
os.write(w2, b'x')
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
''')
"#;

pub(crate) const PROGRAMS: &[Program] = &[
    Program {
        name: "odd_files_of_tar",
        before: "",
        script: "tar xpf ../odd.tar; rm -r odd/gone; ls -lR odd >/dev/null",
        repeats: false,
    },
    Program {
        name: "copies_with_attributes",
        before: "",
        script: "cp -a ../odd copy; cp -a copy again",
        repeats: false,
    },
    Program {
        name: "rsync",
        before: "",
        script: "rsync -aHAX ../odd/ there; chmod 700 there; rsync -aHAX --delete ../odd/ there",
        repeats: false,
    },
    Program {
        name: "git",
        before: "",
        script: "git init -q r; cd r; git config user.email a@b; git config user.name n; i=0; while [ $i -lt 12 ]; do \
                 echo $i >f$i; git add f$i; git commit -qm $i; i=$((i+1)); done; git gc -q; git checkout -q -b other HEAD~5",
        repeats: true,
    },
    Program {
        name: "modes_and_owners",
        before: "",
        script: "umask 027; mkdir -p a/b c; for i in 1 2 3 4 5 6 7 8; do : >a/f$i; : >a/b/g$i; ln a/f$i c/h$i; done; \
                 chmod -R u=rwX,g=rX,o= a; chmod 1777 c; chmod g+s a/b; : >a/b/late; mkdir a/b/d; chown -R 1000:1001 a; \
                 chown -h 5:6 c/h1; chmod 4755 a/f2; chown 7 a/f2; chmod 0 a/f3; ln -s f3 a/l; chown -h 9:9 a/l; chmod 2750 c",
        repeats: true,
    },
    Program {
        name: "sqlite",
        before: "",
        script: "python3 -c \"import sqlite3\nfor i in range(3):\n c=sqlite3.connect('d.db'); c.execute('create table if not exists t(a,b)'); \
                 c.executemany('insert into t values(?,?)',[(j,'x'*j) for j in range(200)]); c.commit(); c.execute('vacuum'); c.close()\"",
        repeats: true,
    },
    Program {
        name: "processes_of_python",
        before: "",
        script: "python3 -c \"import multiprocessing as m,os\ndef w(i):\n os.makedirs(f'd{i%3}',exist_ok=True); open(f'd{i%3}/f{i}','w').write('x'*i*100); \
                 os.rename(f'd{i%3}/f{i}',f'd{i%3}/g{i}')\nif __name__=='__main__':\n p=m.Pool(4); p.map(w,range(60)); p.close(); p.join()\"",
        repeats: false,
    },
    Program {
        name: "moves_and_links",
        before: "",
        script: "mkdir -p a/b/c d; for i in 1 2 3 4 5 6; do echo $i >a/b/f$i; ln a/b/f$i a/b/c/l$i; ln -s ../f$i a/b/c/s$i; done; \
                 mv a/b d/moved; mv d/moved/c a/c; mv -T a/c/l1 d/moved/f1; rm d/moved/f2; cp -al a e; mv a/c/s3 a/; rm -r a/c; truncate -s 5000 e/c/l3",
        repeats: true,
    },
    Program {
        name: "descriptors_by_message",
        before: "",
        script: "python3 -c \"import socket,os,array\na,b=socket.socketpair()\nif os.fork()==0:\n a.close()\n for i in range(20):\n  \
                 m,f,_,_=socket.recv_fds(b,1,1); os.write(f[0],b'y'*100000); os.close(f[0])\n os._exit(0)\nb.close()\nfor i in range(20):\n \
                 f=os.open(f'f{i}',os.O_CREAT|os.O_WRONLY,0o644); os.write(f,b'x'*10); socket.send_fds(a,[b'm'],[f]); os.close(f)\na.close(); os.wait()\"",
        repeats: false,
    },
    Program {
        name: "device_nodes_and_sockets",
        before: "",
        script: "mknod n c 1 3; mknod b b 7 200; mkfifo p; ls -l; python3 -c \"import socket; s=socket.socket(socket.AF_UNIX); s.bind('s')\"; \
                 ls -l s; mv n m; chmod 600 m; rm b",
        repeats: false,
    },
    Program {
        name: "user_name_space",
        before: "",
        script: "chown 1000:1000 .; setpriv --reuid 1000 --regid 1000 --clear-groups unshare -Ur sh -c 'echo a >f; mkdir d; chown 0:0 f; cp -p f d/g'",
        repeats: true,
    },
    Program {
        name: "root_in_a_user_name_space",
        before: "import os\nopen('others','w').write('x'); os.chmod('others',0o600); os.chown('others',7,7)\n",
        script: "unshare -Ur sh -c 'echo a >f; chown 0 f; chmod 4755 f; echo b >>f; mkdir -m 2770 d; echo c >d/g; cat others; echo x >>others; \
                 chown 5 f; chown 0 others; rm others; ln f d/h; mknod n c 1 3; touch -t 202001010000 d'; echo end >end",
        repeats: true,
    },
    Program {
        name: "archive_in_a_user_name_space",
        before: RANGES,
        script: "chown 100000:100000 .; python3 ../ranges.py sh -c 'tar xpf ../odd.tar --exclude odd/null; chown 1234:40 odd/f0; chown -R :1010 odd/sticky; \
                 chmod 2775 odd/sticky; mkdir odd/sticky/sub; echo x >odd/sticky/sub/f; chown -h 3000 odd/soft; chown 5000 odd/f5; rm -r odd/gone; echo t >>odd/f4'",
        repeats: true,
    },
    Program {
        name: "users_in_a_user_name_space",
        before: RANGES,
        script: "chown 100000:100000 .; chmod 777 .; python3 ../ranges.py sh -c 'echo r >roots; chmod 600 roots; chown 1001:1002 roots; cat roots >copy; \
                 setpriv --reuid 1001 --regid 1010 --clear-groups sh -c \"cat roots; echo u >users; chown 0 users; mkdir d; echo v >d/e; cat copy\"; \
                 setpriv --reuid 7 --regid 8 --groups 1010,9 sh -c \"echo w >d/no; cat roots; echo x >x; chgrp 1010 x; chgrp 1011 x\"; rm d/e; echo y >d/mine; \
                 unshare -Ur sh -c \"echo z >deeper; chown 0:0 deeper; chown 1 deeper\"; :'",
        repeats: true,
    },
    Program {
        name: "lists_in_a_user_name_space",
        before: RANGES,
        script: "chown 100000:100000 .; python3 ../ranges.py tar --acls --xattrs -xpf ../odd.tar --exclude odd/null; ls -l odd",
        repeats: false,
    },
    Program {
        name: "mounts_of_its_own",
        before: "",
        script: "mkdir m; unshare -m sh -c 'mount -t tmpfs none m; echo a >m/inside; mkdir m/d; mkdir m/real kept; \
                 mount --bind kept m/real; echo b >m/real/f; cat m/inside'; ls -l m",
        repeats: true,
    },
    Program {
        name: "bind_mounts",
        before: "import os\nos.mkdir('from'); os.mkdir('to'); open('from/before','w').write('x'*5000); os.symlink('before','from/link')",
        script: "unshare -m sh -c 'mount --bind from to; cat to/link to/before; echo a >to/f; mkdir to/d; mv to/f to/d/g; ln to/d/g from/h; \
                 cd to/d; echo c >in; ls ../..; echo d >../up; cd ../..; rm to/before; mkdir x; mount --move to x; echo e >x/moved; \
                 echo f >to/under; umount x; echo g >x/own; touch file over; mount --bind file over; echo h >>over; chmod 600 over'; echo i >over",
        repeats: true,
    },
    Program {
        name: "mounts_in_mounts",
        before: "import os\nfor d in ['a/from/s','b/c/to','x','y']: os.makedirs(d)",
        script: "unshare -m sh -c 'mount --bind a/from b/c/to; cd b/c/to/s; echo 2 >../../two; echo 3 >../three; cd -P ..; echo 4 >../four; mkdir ../five; cd -P ../five; \
                 echo 5 >here; cd -P ../../..; mount --bind x b/c/to/s; echo 6 >b/c/to/s/six; echo 7 >a/from/s/seven; mount --bind b/c/to y; echo 8 >y/s/eight; umount y; \
                 mount --rbind b/c/to y; echo 9 >y/s/nine; ln -s ../../ten b/c/to/link; echo 10 >b/c/to/link; umount y/s; echo 11 >y/s/eleven'; ls b/c/to a/from x y",
        repeats: true,
    },
    Program {
        name: "new_root",
        before: "import os,shutil\nos.makedirs('root/bin'); os.mkdir('root/old'); os.mkdir('data'); shutil.copy('/bin/busybox','root/bin/')\n\
                 for n in ['sh','mkdir','umount','mv','cat','ls','chmod','mount']: os.symlink('busybox','root/bin/'+n)\n\
                 os.symlink('/data','root/to'); os.symlink('../../data/up','root/up')",
        script: "unshare -m sh -c 'mount --bind root root; mkdir root/data; mount --bind data root/data; cd root; pivot_root . old; \
                 exec /bin/sh -c \"cd /; umount -l /old; echo a >/file; mkdir /d; echo b >/data/in; mv /file /d/g; cat /d/g; ls /; chmod 700 /d; (cd /data; echo c >rel; echo d >/to/e; echo f >/up; cat ../../../to/e; echo g >../../top)\"'",
        repeats: true,
    },
    Program {
        name: "a_sandbox",
        before: "import os\nfor d in ['m','data']: os.mkdir(d)",
        script: "python3 -c \"import ctypes,os\nl=ctypes.CDLL(None,use_errno=True); w=os.getcwd()\n\
                 def ok(r): assert r==0, ctypes.get_errno()\n\
                 m=lambda s,t,k,f: ok(l.mount(s,t.encode(),k,f,None))\n\
                 b=lambda s,t: m(s.encode(),t,None,0xd000)\n\
                 if l.syscall(56,0x20000|17,0,0,0,0)==0:\n \
                 m(None,'/',None,0x8c000); m(b'tmpfs',w+'/m',b'tmpfs',6); os.chdir(w+'/m')\n \
                 os.mkdir('newroot'); b('newroot','newroot'); os.mkdir('oldroot'); ok(l.syscall(155,(w+'/m').encode(),b'oldroot')); os.chdir('/')\n \
                 os.mkdir('newroot/data'); os.mkdir('newroot/proc'); b('oldroot/proc','/newroot/proc'); b('/oldroot'+w+'/data','/newroot/data')\n \
                 f=os.open('/newroot/data',os.O_PATH); b('/oldroot'+w+'/data',f'/proc/self/fd/{f}') if os.path.exists('/proc') else None\n \
                 ok(l.umount2(b'oldroot',2)); o=os.open('/',os.O_DIRECTORY); os.chdir('/newroot'); ok(l.syscall(155,b'.',b'.')); os.fchdir(o); ok(l.umount2(b'.',2)); os.chdir('/')\n \
                 os.mkdir('/data/d'); open('/data/d/f','w').write('inside'); os.rename('/data/d/f','/data/g'); open('/gone','w').write('x'); os._exit(0)\n\
                 assert os.wait()[1]==0\nopen('m/own','w').write('here'); open('data/after','w').write('y'); print(os.listdir('data'))\"",
        repeats: true,
    },
    Program {
        name: "detached_mounts",
        before: "import os\nfor d in ['a','b','nr/d']: os.makedirs(d)",
        script: "python3 -c \"import ctypes,os\nl=ctypes.CDLL(None,use_errno=True); w=os.getcwd()\n\
                 def ok(r): assert r==0, ctypes.get_errno()\n\
                 m=lambda s,t,f: ok(l.mount(s,t,None,f,None))\n\
                 ok(l.unshare(0x20000)); m(None,b'/',0x44000); t=l.syscall(428,-100,b'a',1); assert t>=0; os.close(t); m(b'a',b'b',0x1000); os.chdir('b'); ok(l.umount2((w+'/b').encode(),2))\n\
                 open('../up','w').write('1'); os.chdir(w); open('b/own','w').write('2')\n\
                 m(b'nr',b'nr',0x1000); os.chdir('nr'); ok(l.syscall(155,b'.',b'.')); ok(l.umount2(b'.',2)); os.chdir('/d')\n\
                 open('../h','w').write('3'); open('/d/../../g','w').write('4')\"; ls a b nr",
        repeats: true,
    },
    Program {
        name: "links_of_proc",
        before: "",
        script: "chmod 600 /dev/stdout >out; sh -c 'echo x >/dev/stderr' 2>err; mkdir /proc/self/cwd/own; \
                 sleep 9 & mkdir /proc/$!/cwd/others; kill $!; ln -s /proc/self/cwd cw; echo a >cw/y; :",
        repeats: false,
    },
    Program {
        name: "overlay",
        before: "import os\nfor d in ['low','up','work','all']: os.mkdir(d)\nopen('low/f','w').write('x'*9000)",
        script: "unshare -m sh -c 'mount -t overlay -o lowerdir=low,upperdir=up,workdir=work none all; echo a >>all/f; echo b >all/new; rm all/new'",
        repeats: false,
    },
    Program {
        name: "access_lists",
        before: "",
        script: "python3 -c \"import os,struct\nl=lambda *e: struct.pack('<I',2)+b''.join(struct.pack('<HHI',*x) for x in e)\nn=0xffffffff\n\
                 open('f','w').close(); os.mkdir('d'); os.setxattr('f','system.posix_acl_access',l((1,6,n),(2,4,1000),(4,4,n),(16,6,n),(32,0,n)))\n\
                 os.chmod('f',0o640); os.setxattr('d','system.posix_acl_default',l((1,7,n),(4,5,n),(32,0,n))); open('d/x','w').close(); os.mkdir('d/y')\"; \
                 cp -a f g; cp -a d e",
        repeats: false,
    },
    Program {
        name: "lists_of_directories",
        before: "import os,struct\nl=lambda *e: struct.pack('<I',2)+b''.join(struct.pack('<HHI',*x) for x in e)\nn=0xffffffff\n\
                 d=l((1,7,n),(2,7,1000),(4,5,n),(16,7,n),(32,1,n))\nos.mkdir('had'); os.setxattr('had','system.posix_acl_default',d)\n",
        script: "umask 022; echo x >had/f; mkdir had/d; echo y >had/d/g; python3 -c \"import os; os.mkdir('new'); \
                 os.setxattr('new','system.posix_acl_default',os.getxattr('had','system.posix_acl_default'))\"; echo z >new/h; mkdir new/e; chmod 604 new/h",
        repeats: true,
    },
    Program {
        name: "attributes_that_nothing_touches",
        before: "import os,struct\nl=lambda *e: struct.pack('<I',2)+b''.join(struct.pack('<HHI',*x) for x in e)\nn=0xffffffff\n\
                 for f in ['f','g','moved','set']: open(f,'w').write(f); os.setxattr(f,'user.a',bytes(range(256)))\n\
                 os.setxattr('f','system.posix_acl_access',l((1,6,n),(2,4,1000),(4,4,n),(16,6,n),(32,0,n)))\nos.mkdir('d'); os.setxattr('d','trusted.t',b'')",
        script: "echo x >>g; mv moved d/here; python3 -c \"import os; os.setxattr('set','user.b',b'2',os.XATTR_CREATE); os.removexattr('set','user.a')\"",
        repeats: true,
    },
    Program {
        name: "without_cap_fsetid",
        before: "",
        script: "touch f g; chown :5 f; chmod 6755 g; setpriv --bounding-set -fsetid sh -c 'chmod 2755 f; echo x >>g; mkdir d; chgrp 5 d; chmod 2775 d; mkdir d/e; echo y >d/h'",
        repeats: false,
    },
    Program {
        name: "modes_of_sockets",
        before: "import os,struct\nl=lambda *e: struct.pack('<I',2)+b''.join(struct.pack('<HHI',*x) for x in e)\nn=0xffffffff\n\
                 os.mkdir('d'); os.setxattr('d','system.posix_acl_default',l((1,7,n),(2,7,1000),(4,5,n),(16,7,n),(32,1,n)))",
        script: "umask 027; python3 -c \"import os,socket\ndef at(path,mode=None):\n s=socket.socket(socket.AF_UNIX)\n if mode is not None: os.fchmod(s.fileno(),mode)\n \
                 s.bind(path)\nat('plain'); at('narrow',0o600); at('d/listed')\"",
        repeats: false,
    },
    Program {
        name: "changed_by_others",
        before: "import os,time\nopen('had','w').write('x'); open('going','w').close()\n\
                 if os.fork()==0:\n os.setsid(); [os.close(n) for n in range(3)]\n \
                 for _ in range(6000):\n  if os.path.exists('go'):\n   open('other','w').write('y'*100); os.chmod('had',0o600); os.unlink('going'); os.mkdir('sub'); \
                 open('sub/f','w').close(); open('done','w').close(); break\n  time.sleep(0.01)\n os._exit(0)",
        script: "echo >go; while [ ! -e done ]; do sleep 0.02; done; ls >/dev/null; rm done",
        repeats: false,
    },
    Program {
        name: "a_folder_from_elsewhere",
        before: "import os\nos.makedirs('../big/sub/deep')\nfor i in range(300): open(f'../big/sub/{i}','w').write('x'*i)\n\
                 os.link('../big/sub/1','../big/hard'); os.symlink('sub/2','../big/soft'); os.chmod('../big/sub/3',0o4711)",
        script: "mv ../big big; echo y >>big/sub/7; rm big/sub/8; mkdir big/sub/deep/new",
        repeats: true,
    },
    Program {
        name: "linked_outside",
        before: "import os\nopen('f','w').write('x'); os.link('f','../outside')",
        script: "echo y >>f; chmod 600 f",
        repeats: false,
    },
];

/// A directory of everything that an archive can hold, and the archive.
fn odd_files(beside: &Path) {
    let odd = beside.join("odd");
    fs::create_dir_all(odd.join("gone/deep")).unwrap();
    fs::create_dir_all(odd.join("sticky")).unwrap();
    fs::write(odd.join("gone/deep/x"), "x").unwrap();
    let set = |name: &str, mode| fs::set_permissions(odd.join(name), fs::Permissions::from_mode(mode)).unwrap();
    for (i, mode) in [0o600, 0o644, 0o4755, 0o2711, 0o000, 0o444].into_iter().enumerate() {
        let name = format!("f{i}");
        fs::write(odd.join(&name), vec![b'a'; i * 3001]).unwrap();
        chown(odd.join(&name), Some(1000 + i as u32), Some(50)).unwrap();
        set(&name, mode);
    }
    let sparse = fs::File::create(odd.join("sparse")).unwrap();
    sparse.set_len(10 << 20).unwrap();
    fs::hard_link(odd.join("f1"), odd.join("sticky/hard")).unwrap();
    symlink("f1", odd.join("soft")).unwrap();
    symlink("no where", odd.join(std::ffi::OsStr::from_bytes(b"\xff odd\nname"))).unwrap();
    std::os::unix::fs::lchown(odd.join("soft"), Some(33), Some(44)).unwrap();
    set("sticky", 0o3777);
    mknodat(CWD, odd.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    mknodat(CWD, odd.join("null"), FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(1, 3)).unwrap();
    lsetxattr(odd.join("f1"), "user.note", b"text", XattrFlags::empty()).unwrap();
    lsetxattr(odd.join("sticky"), "user.dir", b"1", XattrFlags::empty()).unwrap();
    let list: Vec<u8> = [
        &[2, 0, 0, 0][..],
        &entry(1, 6, u32::MAX),
        &entry(2, 4, 1000),
        &entry(4, 4, u32::MAX),
        &entry(0x10, 6, u32::MAX),
        &entry(0x20, 0, u32::MAX),
    ]
    .concat();
    lsetxattr(odd.join("f0"), "system.posix_acl_access", &list, XattrFlags::empty()).unwrap();
    succeed(Command::new("tar").args([
        "--xattrs",
        "--acls",
        "-cf",
        text(&beside.join("odd.tar")),
        "-C",
        text(beside),
        "odd",
    ]));
}

fn entry(tag: u16, perm: u16, id: u32) -> [u8; 8] {
    let ([a, b], [c, d], [e, f, g, h]) = (tag.to_le_bytes(), perm.to_le_bytes(), id.to_le_bytes());
    [a, b, c, d, e, f, g, h]
}

/// Records program `index` and replays it onto each file system.
pub(crate) fn or_says_so(index: usize) {
    let program = &PROGRAMS[index];
    let (origin, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let (work, reel) = (origin.path().join("here/work"), out.path().join("program.reel"));
    fs::create_dir_all(&work).unwrap();
    odd_files(&origin.path().join("here"));
    succeed(Command::new("python3").args(["-c", program.before]).current_dir(&work));
    succeed(record(&reel, &["--settle", "none"], &["sh", "-c", program.script]).current_dir(&work));
    assert_valid(&reel);
    let root = text(&work);
    let all = std::env::var_os("IOREEL_CORPUS").is_some_and(|which| which == "all");
    let kinds = if all { &[Fs::Ext4, Fs::Tmpfs, Fs::Xfs, Fs::Btrfs][..] } else { &[Fs::Xfs, Fs::Tmpfs] };
    for &fs in kinds {
        let target = Mounted::new(fs, DEFAULT_SIZE_BYTES);
        let words = ["replay", text(&reel), "--target", text(target.path()), "--root", root, "--set-ids", "--json"];
        let output = run(&mut ioreel(words));
        let status = output.status.code().unwrap_or(-1);
        assert!(status >= 0 && status & 3 == 0, "{}: {}", program.name, describe(&output));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let verdict = &report["verdict"];
        let replayed = target.path().join(root.trim_start_matches('/'));
        let differs = same_tree::differences(&work, &replayed, false);
        let (what, sentence) = (format!("{} on {}", program.name, fs.name()), verdict["sentence"].to_string());
        assert_eq!(verdict["status"], status, "{what}");
        assert!(status & SAYS_SO != 0 || differs.is_empty(), "{what}: {sentence}\n{}", differs.join("\n"));
        // The verdict on the tree is not worse than the tree.
        let claimed = &verdict["tree"]["examples"];
        assert!(status & 8 == 0 || !differs.is_empty(), "{what}: {sentence}\n{claimed:#}");
        if program.repeats {
            assert_eq!(status & !TIMING, 0, "{what}: {sentence}\n{claimed:#}\n{:#}", verdict["left_out"]);
        }
        println!("{what}: status {status}, {} properties differ; {sentence}", differs.len());
    }
}

/// The comparison finds each kind of difference, so that its silence means something.
pub(crate) fn the_comparison_itself() {
    let (origin, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    odd_files(origin.path());
    let (a, b) = (origin.path().join("odd"), origin.path().join("copy"));
    succeed(Command::new("cp").args(["-a", text(&a), text(&b)]));
    assert_eq!(same_tree::differences(&a, &b, true), Vec::<String>::new());
    let plants = [
        ("chmod 601 f0", "f0: mode"),
        ("chown 9 f1", "f1: owner"),
        ("chown :9 sticky", "sticky: owner"),
        ("truncate -s +1 f2", "f2: size"),
        ("printf b | dd of=f3 conv=notrunc status=none", "f3: content"),
        ("ln f4 another", "f4: link count"),
        ("rm soft; ln -s f2 soft; chown -h 33:44 soft", "soft: target"),
        ("rm null; mknod -m 666 null c 1 5", "null: device"),
        ("rm fifo; mknod -m 640 fifo c 1 3", "fifo: type"),
        ("python3 -c \"import os; os.setxattr('f5','user.x',b'1')\"", "f5: attributes"),
        ("cp -p f1 x; rm sticky/hard; mv x sticky/hard", "sticky/hard: same file as"),
        ("rm sparse", "sparse: missing"),
    ];
    for (i, (plant, expected)) in plants.into_iter().enumerate() {
        let copy = out.path().join(format!("copy-{i}"));
        succeed(Command::new("cp").args(["-a", text(&a), text(&copy)]));
        succeed(Command::new("sh").args(["-ec", plant]).current_dir(&copy));
        let found = same_tree::differences(&a, &copy, true);
        assert!(found.iter().any(|d| d.starts_with(expected)), "{plant}: {found:#?}");
    }
}
