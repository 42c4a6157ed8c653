//! Programs that people run, recorded, and replayed on every file system: no wrong result, nothing out of order, and the
//! same tree in the end.
//!
//! CI replays each once, every one on another file system; with `IOREEL_CORPUS=all` (`make test-corpus`) each is replayed on
//! all of them, at full pace and at the original's.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use crate::harness::{
    assert_valid, describe, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, replays_alike, run, succeed, temp_dir, text, tree,
};

/// A program: its name, what is there before, and what is recorded. Both are shell scripts.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    before: &'static str,
    recorded: &'static str,
}

/// Makes a tree of 300 files in `source`.
const SOURCE: &str =
    "mkdir source; cd source; mkdir -p dir-1/inner dir-2/inner dir-3/inner dir-4/inner dir-5/inner dir-6/inner
    perl -e 'for $d (1..6) { for $f (1..50) { open F, q(>), qq(dir-$d/inner/file-$f); print F $d x ($d * $f * 137) } }'
    ln -s dir-1/inner/file-1 link; ln dir-2/inner/file-2 hard; chmod 600 dir-3/inner/file-3";

/// A thread writes files and renames them into place; another takes them as they come; a third looks for what is not there yet.
const HANDED_OVER: &str = "
import os, threading, time
os.makedirs('in', exist_ok=True); os.makedirs('out', exist_ok=True)
N = 300
def make():
    for i in range(N):
        with open(f'in/tmp-{i}', 'wb') as f: f.write(b'x' * (i * 37 + 1))
        os.rename(f'in/tmp-{i}', f'in/done-{i}')
def take():
    for i in range(N):
        while not os.path.exists(f'in/done-{i}'): time.sleep(0.001)
        with open(f'in/done-{i}', 'rb') as f: data = f.read()
        with open(f'out/{i}', 'wb') as f: f.write(data)
        os.unlink(f'in/done-{i}')
def look():
    for i in range(N):
        for d in ('in', 'out'): os.listdir(d)
threads = [threading.Thread(target=t) for t in (make, take, look)]
[t.start() for t in threads]; [t.join() for t in threads]
";

/// Writes through a mapping.
const MAPPED: &str = "
import mmap, os
fd = os.open('mapped', os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(fd, 1 << 20)
m = mmap.mmap(fd, 1 << 20)
for i in range(0, 1 << 20, 8192): m[i:i+5] = b'hello'
m.flush(); m.close(); os.pwrite(fd, b'end', 1 << 20); os.close(fd)
";

/// A C project of 24 files, with an archive and a program.
const PROJECT: &str = r#"mkdir src; cd src; echo '#define A 3' >a.h; echo 'int main(void) { return f1(2) - 5; }' >body
    for i in $(seq 24); do echo "int f$i(int);"; printf '#include <stdio.h>\n#include "a.h"\nint f%d(int x) { printf("%%d", x); return x * %d + A; }\n' $i $i >f$i.c; done >main.c
    cat body >>main.c; rm body
    printf 'OBJ := $(patsubst %%.c,%%.o,$(wildcard *.c))\nall: libf.a prog\nprog: $(OBJ)\n\tgcc -o $@ $^\nlibf.a: $(OBJ)\n\trm -f $@; ar rcs $@ $^\n%%.o: %%.c a.h\n\tgcc -c -O1 $< -o $@\n' >Makefile"#;

/// PostMark, 200 files and 800 transactions.
const POSTMARK: &str = r#"mkdir mails
    printf 'set location mails\nset number 200\nset transactions 800\nset seed 7\nset subdirectories 5\nrun\nquit\n' | postmark"#;

/// Lets other users into the folder, and write there.
const LET_IN: &str = "chmod 777 .; d=$PWD; while [ $d != / ]; do chmod a+x $d; d=$(dirname $d); done";

/// A PostgreSQL server with two clients, as the user that it demands to be.
const POSTGRES: &str = "PG=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
    exec setpriv --reuid=postgres --regid=postgres --clear-groups sh -ec \"
    $PG/initdb -D data -A trust -U bench >/dev/null
    $PG/pg_ctl -D data -w -l log -o '-k $PWD -c listen_addresses=' start >/dev/null
    pgbench -h $PWD -U bench -i -q postgres >/dev/null 2>&1
    pgbench -h $PWD -U bench -c 2 -t 100 postgres >/dev/null
    $PG/pg_ctl -D data -w -m fast stop >/dev/null\"";

const MAIL_CONFIG: &str = "(LET_IN)
    printf 'mail_location = maildir:~/Maildir\nlog_path = %s/log\nmail_fsync = always\nbase_dir = %s/run\n' $PWD $PWD >dovecot.conf
    for n in $(seq 30); do { printf 'From: a@example.org\nTo: b@example.org\nSubject: %d\n\n' $n; seq $n $((n + 300)); } >message-$n; done";

/// Dovecot delivers messages, and fetches, deletes, searches and copies them by IMAP.
const DOVECOT: &str = "exec setpriv --reuid=mail --regid=mail --clear-groups env HOME=$PWD/home USER=mail sh -ec '
    mkdir home; for n in $(seq 30); do /usr/lib/dovecot/dovecot-lda -c dovecot.conf -f a@example.org <message-$n; done
    doveadm -c dovecot.conf fetch \"uid size.virtual hdr.subject\" all >fetched
    printf \"a SELECT INBOX\\r\\nb FETCH 1:* (FLAGS BODY[])\\r\\nc STORE 1:5 +FLAGS (\\\\Deleted)\\r\\nd EXPUNGE\\r\\ne SEARCH BODY 77\\r\\nf COPY 1:3 INBOX\\r\\ng LOGOUT\\r\\n\" |
        /usr/lib/dovecot/imap -c dovecot.conf >told'";

pub(crate) const PROGRAMS: [Program; 16] = [
    Program { name: "tar_pack", before: SOURCE, recorded: "tar cf packed.tar source" },
    Program {
        name: "tar_unpack",
        // Made elsewhere: the file system is to be as fresh for the program as it is for a replay.
        before: "here=$PWD; away=$(mktemp -d); cd $away; (SOURCE); tar cf $here/packed.tar -C $away source; rm -r $away",
        recorded: "tar xf packed.tar",
    },
    Program {
        name: "git",
        before: SOURCE,
        recorded: "export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
            git -C source init -q; git -C source add .; git -C source commit -qm one; git clone -q source clone
            echo more >>clone/dir-1/inner/file-1; git -C clone diff >diff; git -C clone commit -qam two; git -C clone gc -q",
    },
    Program {
        name: "rsync",
        before: SOURCE,
        recorded: "rsync -a source/ copy/; echo more >>source/dir-4/inner/file-4; rm -r source/dir-5; rsync -a --delete source/ copy/",
    },
    Program {
        name: "rsync_in_place",
        before: SOURCE,
        recorded: "rsync -a source/ copy/; echo more >>source/dir-4/inner/file-40; rsync -a --inplace --no-whole-file source/ copy/",
    },
    Program {
        name: "sqlite",
        before: "true",
        recorded: "for mode in delete wal; do sqlite3 $mode.db \"pragma journal_mode=$mode; create table t(a integer primary key, b text);
            with recursive n(i) as (select 1 union all select i+1 from n where i<3000) insert into t select i, hex(randomblob(20)) from n;\"
            for i in 1 2 3 4 5; do sqlite3 $mode.db \"update t set b='x' where a % 7 = $i; delete from t where a % 11 = $i;\"; done; sqlite3 $mode.db vacuum; done",
    },
    Program { name: "cp", before: SOURCE, recorded: "cp -r source plain; cp -a source kept; rm -r plain" },
    Program { name: "find_grep", before: SOURCE, recorded: "find source -type f -exec grep -l 11 {} + >found; find source -newer found" },
    Program { name: "handed_over", before: "true", recorded: "(HANDED_OVER)" },
    Program { name: "mapped", before: "true", recorded: "(MAPPED)" },
    Program { name: "compile", before: PROJECT, recorded: "make -s -j2 -C src" },
    Program { name: "postmark", before: "true", recorded: POSTMARK },
    Program { name: "postgresql", before: LET_IN, recorded: POSTGRES },
    Program {
        name: "fio_uring",
        before: "true",
        recorded: "fio --name=job --ioengine=io_uring --iodepth=16 --iodepth_batch=4 --rw=randrw --bs=4k --size=8m --direct=1 --fsync=32 --registerfiles >told",
    },
    Program {
        name: "fio_aio",
        before: "true",
        recorded: "fio --name=job --ioengine=libaio --iodepth=16 --iodepth_batch_submit=8 --rw=randrw --bs=4k --size=8m --direct=1 --fsync=64 >told",
    },
    Program { name: "dovecot", before: MAIL_CONFIG, recorded: DOVECOT },
];

fn shell(script: &str) -> Command {
    let mut c = match script {
        "(HANDED_OVER)" => python(HANDED_OVER),
        "(MAPPED)" => python(MAPPED),
        script => {
            let mut c = Command::new("sh");
            c.args(["-ec", &script.replace("(SOURCE)", SOURCE).replace("(LET_IN)", LET_IN)]);
            c
        }
    };
    c.env("LC_ALL", "C");
    c
}

fn python(script: &str) -> Command {
    let mut c = Command::new("python3");
    c.args(["-S", "-c", script]);
    c
}

fn record_command(command: &Command, reel: &Path, work: &Path, options: &[&str]) {
    let words: Vec<&str> =
        std::iter::once(command.get_program()).chain(command.get_args()).map(|w| w.to_str().unwrap()).collect();
    succeed(record(reel, &[&["--settle", "none"], options].concat(), &words).current_dir(work).env("LC_ALL", "C"));
}

/// Records program `index`, and replays it where it is to be.
pub(crate) fn replays(index: usize) {
    let program = &PROGRAMS[index];
    let all = env::var_os("IOREEL_CORPUS").is_some_and(|v| v == "all");
    let (origin, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let work = origin.path().join("work");
    fs::create_dir(&work).unwrap();
    succeed(shell(program.before).current_dir(&work));
    let reel = out.path().join("program.reel");
    record_command(&shell(program.recorded), &reel, &work, &[]);
    assert_valid(&reel);
    let targets: Vec<Fs> = if all { Fs::ALL.to_vec() } else { vec![Fs::ALL[index % Fs::ALL.len()]] };
    for fs in targets {
        for pace in if all { &["max", "original"][..] } else { &["max"][..] } {
            replay(program.name, fs, pace, &reel, &work);
        }
    }
}

fn replay(name: &str, fs: Fs, pace: &str, reel: &Path, original: &Path) {
    let target = Mounted::new(fs, DEFAULT_SIZE_BYTES);
    let report = replays_alike(&format!("{name} on {}", fs.name()), reel, target.path(), pace);
    let what = format!("{name} on {} at {pace}: {}", fs.name(), report["verdict"]["sentence"]);
    let replayed = target.path().join(original.strip_prefix("/").unwrap());
    let (expected, found) = (tree(original), tree(&replayed));
    let differ: Vec<String> = expected
        .iter()
        .filter(|l| !found.contains(l))
        .map(|l| format!("- {l}"))
        .chain(found.iter().filter(|l| !expected.contains(l)).map(|l| format!("+ {l}")))
        .take(30)
        .collect();
    assert!(differ.is_empty(), "{what}\n{}", differ.join("\n"));
}

/// How often each program is run, recorded and replayed, for its time, all side by side; medians are told.
const ROUNDS: usize = 5;
/// A program that ends sooner is run several times in a row, each in a folder of its own.
const LONG_ENOUGH_S: f64 = 0.5;
/// Of the disks, which take no more room than what is written. On btrfs of a few hundred MiB changes wait for room for metadata, and how often hangs on
/// chance: a rename takes 20 us or 20 ms.
const DISK_BYTES: u64 = 4 << 30;
/// How time inside calls is recorded: with rings that hold all, and a recorder that works when the program has ended. At its
/// side it would take CPUs from calls.
const WITNESS: [&str; 4] = ["--ring-mib", "512", "--cpu-budget", "10"];

/// What one round finds, seconds.
struct Round {
    /// The program.
    itself: f64,
    /// The same as a recording of it tells, and what it spends in calls that a replay issues.
    recorded: f64,
    in_calls: f64,
    /// The replay of what was recorded on ext4.
    replay: f64,
    replay_in_calls: f64,
}

/// Prints what a recording made on ext4 foretells of each file system, beside the program itself there: elapsed time at
/// `think`, and the time inside calls. For `make bench-corpus`; says nothing but figures.
pub(crate) fn foretells(some: &str) {
    const ON: [Fs; 3] = [Fs::Ext4, Fs::Xfs, Fs::Btrfs];
    let mut errors = [Vec::new(), Vec::new()];
    println!("| program | on | itself | recorded | replay | error | in calls | replay | error |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for program in PROGRAMS.iter().filter(|p| some.is_empty() || some[1..].split(',').any(|s| s == p.name)) {
        // The first run of all finds the program's own files on the disk, the others in the page cache.
        seconds_of(program, Fs::Ext4, 1);
        let times = (LONG_ENOUGH_S / seconds_of(program, Fs::Ext4, 1)).ceil().clamp(1.0, 40.0) as usize;
        let mut rounds = ON.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            // The machine's own speed changes within minutes: what is compared follows each other closely.
            let out = temp_dir();
            let reel = recorded_on(Fs::Ext4, program, times, &out.path().join("here.reel"), &[]);
            for (fs, rounds) in ON.into_iter().zip(&mut rounds) {
                rounds.push(round(program, times, fs, &reel, out.path()));
            }
        }
        for (fs, rounds) in ON.into_iter().zip(&rounds) {
            let of = |what: fn(&Round) -> f64| median(rounds.iter().map(what).collect());
            let error = [of(|r| r.replay / r.itself - 1.0), of(|r| r.replay_in_calls / r.in_calls - 1.0)];
            for (all, e) in errors.iter_mut().zip(error) {
                all.push(e);
            }
            println!(
                "| {} x {times} | {} | {:.3} s | {:.3} s | {:.3} s | {:+.1} % | {:.3} s | {:.3} s | {:+.1} % |",
                program.name,
                fs.name(),
                of(|r| r.itself),
                of(|r| r.recorded),
                of(|r| r.replay),
                error[0] * 100.0,
                of(|r| r.in_calls),
                of(|r| r.replay_in_calls),
                error[1] * 100.0
            );
        }
    }
    for (what, all) in ["elapsed", "in calls"].into_iter().zip(&errors) {
        let mean = |of: fn(&f64) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64 * 100.0;
        println!("{what}: mean error {:.1} %, with its sign {:+.1} %", mean(|e| e.abs()), mean(|e| *e));
    }
}

fn round(program: &Program, times: usize, fs: Fs, reel: &Path, out: &Path) -> Round {
    let there = recorded_on(fs, program, times, &out.join(format!("{}.reel", fs.name())), &WITNESS);
    let itself = seconds_of(program, fs, times);
    let replay = report_of(reel, fs, &["--pace", "think"]);
    let foretold = report_of(&there, fs, &["--dry-run"]);
    let seconds =
        |report: &serde_json::Value, what: &str| report.pointer(what).and_then(|ns| ns.as_f64()).unwrap() / 1e9;
    Round {
        itself,
        recorded: seconds(&foretold, "/original_elapsed_ns"),
        in_calls: seconds(&foretold, "/verdict/original_in_calls_ns"),
        replay: seconds(&replay, "/elapsed_ns"),
        replay_in_calls: seconds(&replay, "/verdict/replay_in_calls_ns"),
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A folder on a file system of its own with `times` folders in which the program can begin.
fn begun(program: &Program, fs: Fs, times: usize) -> (Mounted, PathBuf) {
    let mount = Mounted::new(fs, DISK_BYTES);
    let work = mount.path().join("work");
    for n in 1..=times {
        let one = work.join(n.to_string());
        fs::create_dir_all(&one).unwrap();
        succeed(shell(program.before).current_dir(&one));
    }
    succeed(&mut Command::new("sync"));
    (mount, work)
}

/// The program in each of the folders in turn.
fn in_turn(program: &Program) -> Command {
    let one = shell(program.recorded);
    let mut all = Command::new("sh");
    all.args(["-ec", r#"for n in $(ls | sort -n); do (cd $n; "$@"); done"#, "in-turn"]);
    all.arg(one.get_program()).args(one.get_args()).env("LC_ALL", "C");
    all
}

/// A recording made there.
fn recorded_on(fs: Fs, program: &Program, times: usize, reel: &Path, options: &[&str]) -> PathBuf {
    let (_mount, work) = begun(program, fs, times);
    record_command(&in_turn(program), reel, &work, options);
    reel.to_path_buf()
}

fn seconds_of(program: &Program, fs: Fs, times: usize) -> f64 {
    let (_mount, work) = begun(program, fs, times);
    let began = Instant::now();
    succeed(in_turn(program).current_dir(&work));
    began.elapsed().as_secs_f64()
}

fn report_of(reel: &Path, fs: Fs, options: &[&str]) -> serde_json::Value {
    let target = Mounted::new(fs, DISK_BYTES);
    let output = run(ioreel(["replay", text(reel), "--target", text(target.path()), "--json"]).args(options));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", describe(&output)))
}
