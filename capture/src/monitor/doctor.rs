//! What this machine supports. Every check tries, none relies on a version number.

use std::{fs, path::Path, process::Command};

use libbpf_rs::{MapHandle, MapType};
use serde::Serialize;

use crate::{
    CaptureError,
    host::{self, containers::Found, symbols},
    probes::{
        features::Missing,
        fentry,
        session::{Content, Plan, Program, Session, Storage, Targets, Vfs, WaitsPlan},
    },
};

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It works.
    Ok,
    /// Recording works with restrictions.
    Limited,
    /// Recording does not work.
    Missing,
}

/// A check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What was checked.
    pub what: &'static str,
    /// The result.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it; empty if all is well.
    pub remedy: String,
}

impl Check {
    /// All is well.
    pub fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Ok, found: found.into(), remedy: String::new() }
    }

    /// Something does not work, or not entirely.
    pub fn not(what: &'static str, verdict: Verdict, found: impl Into<String>, remedy: &str) -> Self {
        Self { what, verdict, found: found.into(), remedy: remedy.into() }
    }
}

/// Runs all checks for recording and replaying.
pub fn examine() -> Vec<Check> {
    let mut checks = vec![kernel(), btf(), capabilities(), lockdown(), rings(), probes(), functions(), symbols()];
    checks.extend(file_systems());
    checks.push(containers());
    checks.push(replay());
    checks.push(landlock());
    checks.push(seccomp());
    checks
}

/// Containers that `record --container` finds.
fn containers() -> Check {
    const SHOWN: usize = 12;
    let all = host::containers::containers();
    let words = |c: &Found| {
        let id: String = c.container.id.chars().take(12).collect();
        let name = match (&c.container.pod, &*c.container.name) {
            (Some(pod), name) => format!("{pod}/{name}"),
            (None, "") => id,
            (None, name) => name.to_owned(),
        };
        if c.folder.is_some() { name } else { format!("{name} (not running)") }
    };
    let mut names: Vec<String> = all.iter().take(SHOWN).map(words).collect();
    if all.len() > SHOWN {
        names.push(format!("{} more", all.len() - SHOWN));
    }
    Check::ok("containers", if names.is_empty() { "none found".to_owned() } else { names.join(", ") })
}

fn kernel() -> Check {
    let h = host::host();
    Check::ok("kernel", format!("Linux {} {}, {} CPUs", h.kernel, h.arch, h.cpus))
}

fn btf() -> Check {
    match fs::metadata("/sys/kernel/btf/vmlinux") {
        Ok(m) => Check::ok("type information (BTF)", format!("/sys/kernel/btf/vmlinux, {} KiB", m.len() / 1024)),
        Err(e) => Check::not(
            "type information (BTF)",
            Verdict::Missing,
            format!("/sys/kernel/btf/vmlinux: {e}"),
            "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as all current distributions' are",
        ),
    }
}

fn capabilities() -> Check {
    let caps = host::capabilities();
    let missing: Vec<&str> = [(host::CAP_BPF, "CAP_BPF"), (host::CAP_PERFMON, "CAP_PERFMON")]
        .into_iter()
        .filter(|(bit, _)| caps >> bit & 1 == 0)
        .map(|(_, name)| name)
        .collect();
    if missing.is_empty() {
        Check::ok("capabilities", "CAP_BPF and CAP_PERFMON are held")
    } else {
        Check::not(
            "capabilities",
            Verdict::Missing,
            format!("{} not held", missing.join(" and ")),
            "run as root, or grant them: setcap cap_bpf,cap_perfmon+ep on the binary",
        )
    }
}

fn lockdown() -> Check {
    match fs::read_to_string("/sys/kernel/security/lockdown") {
        Ok(text) if text.contains("[confidentiality]") => Check::not(
            "kernel lockdown",
            Verdict::Missing,
            "confidentiality: BPF may not read kernel memory",
            "boot with lockdown=integrity or less",
        ),
        Ok(text) => Check::ok("kernel lockdown", text.trim()),
        Err(_) => Check::ok("kernel lockdown", "none in this kernel, or securityfs is not mounted"),
    }
}

fn rings() -> Check {
    let opts = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let what = "BPF ring buffer";
    match MapHandle::create(MapType::RingBuf, Some("ioreel_trial"), 0, 0, 1 << 20, &opts) {
        Ok(_) => Check::ok(what, "works"),
        Err(e) => Check::not(
            what,
            Verdict::Missing,
            e.to_string(),
            "needs Linux 5.8 and CAP_BPF; before 5.11 also RLIMIT_MEMLOCK",
        ),
    }
}

/// Enables every program and every option: no recording uses a larger program.
fn everything() -> Plan {
    let allows_fentry = fentry::attempt().is_ok();
    Plan {
        target: Targets::Cgroup(0),
        fixed_devices: true,
        waits: Some(WaitsPlan { min_ns: 0, user_stacks: true }),
        cache: true,
        vfs: Vfs { kernel: allows_fentry, below: allows_fentry },
        content: Content::Full,
        lossless: true,
        ..Plan::default()
    }
}

/// The programs on this kernel, those with the most verified instructions first, and the programs that it lacks or
/// refuses.
///
/// # Errors
/// The kernel refuses a required program.
pub fn programs() -> Result<(Vec<Program>, Vec<String>), CaptureError> {
    let mut storage = Storage::default();
    let session = Session::load(&everything(), &mut storage)?;
    let mut programs = session.programs();
    programs.sort_by_key(|p| std::cmp::Reverse(p.verified));
    Ok((programs, session.missing.iter().map(Missing::tell).collect()))
}

/// Loads and attaches the programs of a recording; they stay inactive.
fn probes() -> Check {
    let what = "probes (tracepoints, iterators)";
    let mut storage = Storage::default();
    match Session::load(&everything(), &mut storage) {
        Ok(session) => {
            let loaded = format!("{} load and attach", session.probes().len());
            let missing: Vec<String> = session.missing.iter().map(Missing::tell).collect();
            if session.missing.iter().any(|m| m.refused.is_some()) {
                let remedy = "recordings work without; `ioreel -vv doctor` shows the verifier's log";
                return Check::not(what, Verdict::Limited, format!("{loaded}; {}", missing.join("; ")), remedy);
            }
            if missing.is_empty() {
                return Check::ok(what, format!("all {loaded}"));
            }
            Check::not(
                what,
                Verdict::Limited,
                format!("{loaded}; {}", missing.join("; ")),
                "a newer kernel has them; recordings work without",
            )
        }
        Err(e) => Check::not(
            what,
            Verdict::Missing,
            e.to_string(),
            "needs Linux 6.1 or newer with BTF tracepoints; `ioreel -vv doctor` shows the verifier's log",
        ),
    }
}

fn functions() -> Check {
    let what = "kernel functions (fentry)";
    match fentry::attempt() {
        Ok(()) => Check::ok(what, "allowed: --backend fentry records file I/O by the kernel itself"),
        Err(why) => Check::not(
            what,
            Verdict::Limited,
            format!("refused: {why}"),
            "the NFS server, loop devices and files under overlays are not recorded; stock distribution kernels allow it \
             (CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS)",
        ),
    }
}

fn symbols() -> Check {
    let what = "kernel symbol addresses";
    match symbols::end_ios().warning {
        None => Check::ok(what, "readable: direct I/O and metadata are attributed"),
        Some(why) => Check::not(
            what,
            Verdict::Limited,
            why,
            "use Linux 6.0 or newer (iter/ksym), or sysctl kernel.kptr_restrict=1 and CAP_SYSLOG, or run as root",
        ),
    }
}

fn file_systems() -> Vec<Check> {
    const TOOLS: [(&str, &str, &str); 3] = [
        ("ext4", "mkfs.ext4", "apt-get install e2fsprogs"),
        ("xfs", "mkfs.xfs", "apt-get install xfsprogs"),
        ("btrfs", "mkfs.btrfs", "apt-get install btrfs-progs"),
    ];
    let supported = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let known = |fs: &str| supported.split_whitespace().any(|w| w == fs);
    TOOLS
        .into_iter()
        .map(|(fs, tool, remedy)| {
            let what = match fs {
                "ext4" => "making and mounting ext4",
                "xfs" => "making and mounting xfs",
                _ => "making and mounting btrfs",
            };
            let found = ["/usr/sbin", "/sbin", "/usr/bin"].iter().map(|d| Path::new(d).join(tool)).find(|p| p.exists());
            match found {
                None => Check::not(what, Verdict::Limited, format!("{tool} is not installed"), remedy),
                Some(_) if !known(fs) && !loads(fs) => Check::not(
                    what,
                    Verdict::Limited,
                    "this kernel does not support it",
                    "load its module (modprobe), or replay on another file system",
                ),
                Some(path) => Check::ok(what, format!("{} is installed, the kernel supports {fs}", path.display())),
            }
        })
        .collect()
}

/// Whether the module of a file system can be loaded; does not load it.
fn loads(fs: &str) -> bool {
    Command::new("modprobe").args(["-n", "-q", fs]).status().is_ok_and(|s| s.success())
}

/// What confines commands that only read reels and traces, and replays of reels that are not trusted.
fn landlock() -> Check {
    const VERSION: u32 = 1;
    let what = "confining files and network (Landlock)";
    // SAFETY: with this flag, the kernel only returns the version of its rules.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION) };
    match version {
        4.. => Check::ok(what, format!("version {version}: files, programs and network")),
        1.. => Check::ok(what, format!("version {version}: files and programs")),
        _ => Check::not(
            what,
            Verdict::Limited,
            "not in this kernel: readers and untrusted replays are not confined by it",
            "boot a kernel since Linux 5.13 with landlock in the list lsm=…",
        ),
    }
}

fn seccomp() -> Check {
    let what = "confining system calls (seccomp)";
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    if actions.split_whitespace().any(|a| a == "errno") {
        Check::ok(what, "readers and untrusted replays make only the calls that they need")
    } else {
        Check::not(
            what,
            Verdict::Limited,
            "not in this kernel: calls of readers and untrusted replays are not filtered",
            "use a kernel built with CONFIG_SECCOMP_FILTER=y, as all current distributions' are",
        )
    }
}

fn replay() -> Check {
    let what = "containing a replay (namespaces)";
    // SAFETY: the child only calls unshare and exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: as above.
        unsafe {
            let root = libc::geteuid() == 0;
            let flags = libc::CLONE_NEWNS | if root { 0 } else { libc::CLONE_NEWUSER };
            libc::_exit(i32::from(libc::unshare(flags) != 0));
        }
    }
    let mut status = 1;
    if pid > 0 {
        // SAFETY: waits for the child forked above.
        unsafe { libc::waitpid(pid, &mut status, 0) };
    }
    if pid > 0 && status == 0 {
        Check::ok(what, "a private mount namespace is possible")
    } else {
        Check::not(
            what,
            Verdict::Limited,
            "refused: a replay cannot be confined to its target",
            "run as root, or allow user namespaces: sysctl kernel.unprivileged_userns_clone=1",
        )
    }
}
