//! The loaded programs: how often the kernel skipped them, and their sizes.

use std::os::fd::{AsFd, AsRawFd};

use ioreel_bpf::types::{cpu_ledger, second};
use ioreel_traces::manifest::Probe;
use libbpf_rs::{libbpf_sys::bpf_prog_info, skel::Skel};
use serde::Serialize;

use super::Session;

/// A loaded program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Name.
    pub name: String,
    /// Where it is attached: `tp_btf/…`, `iter/…`, and so on.
    pub place: String,
    /// Instructions after the verifier's rewrites.
    pub instructions: u32,
    /// Instructions that the verifier processed; its limit is a million.
    pub verified: u32,
    /// Size of the machine code.
    pub native_bytes: u32,
    /// Time that the kernel took to verify and compile it, and the recorder to prepare the next one.
    pub load_ns: i64,
}

/// Index of the counter of each second program.
const SECOND: [(&str, second); 11] = [
    ("bio_queue", second::SECOND_BIO_QUEUE),
    ("bio_complete", second::SECOND_BIO_COMPLETE),
    ("rq_issue", second::SECOND_RQ_ISSUE),
    ("rq_complete", second::SECOND_RQ_COMPLETE),
    ("uring_submit", second::SECOND_URING_SUBMIT),
    ("uring_complete", second::SECOND_URING_COMPLETE),
    ("fault_touch", second::SECOND_FAULT_TOUCH),
    ("fault_around", second::SECOND_FAULT_AROUND),
    ("task_fork", second::SECOND_TASK_FORK),
    ("task_exec", second::SECOND_TASK_EXEC),
    ("task_exit", second::SECOND_TASK_EXIT),
];

/// Size of a BPF instruction.
const INSTRUCTION_BYTES: u32 = 8;

impl Session<'_> {
    /// Every program with the number of events that it missed.
    pub fn probes(&self) -> Vec<Probe> {
        let mut probes = self.loaded(|program, info| Probe {
            name: program.name().to_string_lossy().into_owned(),
            missed: info.recursion_misses as i64,
        });
        // Of two programs for the same events, either may be skipped. Events missed by both are at most the smaller of
        // the two skip counts. They are also at most the skips of the first minus the events that the second caught
        // after such a skip. For calls, they are at most the entries and exits of threads that neither program saw.
        let ledgers = self.ledgers().unwrap_or_default();
        let unseen = |of: &dyn Fn(&cpu_ledger) -> u64| ledgers.iter().map(|l| of(l) as i64).sum::<i64>();
        for (name, unseen) in [("op_enter", unseen(&|l| l.unseen_begin)), ("op_exit", unseen(&|l| l.unseen_end))] {
            let Some(first) = probes.iter_mut().find(|p| p.name == format!("{name}_first")) else { continue };
            name.clone_into(&mut first.name);
            first.missed = first.missed.min(unseen);
        }
        while let Some(i) = probes.iter().position(|p| p.name.ends_with("_again")) {
            let again = probes.remove(i);
            let name = again.name.trim_end_matches("_again");
            if let Some(first) = probes.iter_mut().find(|p| p.name == name) {
                let caught =
                    SECOND.iter().find(|(n, _)| *n == name).map_or(0, |(_, at)| unseen(&|l| l.caught[at.0 as usize]));
                let alone = if name == "bio_complete" { self.ends.alone(first.missed as u64) as i64 } else { 0 };
                first.missed = alone + (first.missed - alone - caught).clamp(0, again.missed);
            }
        }
        probes
    }

    /// How often the kernel skipped these programs, in total.
    pub(super) fn skipped(&self, names: &[&str]) -> u64 {
        let skips = |program: &libbpf_rs::Program<'_>, info: &bpf_prog_info| {
            if names.iter().any(|n| program.name() == *n) { info.recursion_misses } else { 0 }
        };
        self.loaded(skips).iter().sum()
    }

    /// Every loaded program with its size.
    pub fn programs(&self) -> Vec<Program> {
        // The kernel stores when the load of a program began (kernel/bpf/syscall.c), and programs are loaded one by one.
        let mut starts = self.loaded(|_, info| info.load_time as i64);
        starts.push(self.loaded_at_ns);
        starts.sort_unstable();
        let load_ns = |start: i64| starts.iter().find(|next| **next > start).map_or(0, |next| next - start);
        self.loaded(|program, info| Program {
            name: program.name().to_string_lossy().into_owned(),
            place: program.section().to_string_lossy().into_owned(),
            instructions: info.xlated_prog_len / INSTRUCTION_BYTES,
            verified: info.verified_insns,
            native_bytes: info.jited_prog_len,
            load_ns: load_ns(info.load_time as i64),
        })
    }

    fn loaded<T>(&self, tell: impl Fn(&libbpf_rs::Program<'_>, &bpf_prog_info) -> T) -> Vec<T> {
        let told = |program: libbpf_rs::Program<'_>| {
            let mut info = bpf_prog_info::default();
            let mut len = size_of_val(&info) as u32;
            // By descriptor: enumerating program ids would need CAP_SYS_ADMIN.
            // SAFETY: `info` is `len` bytes of integers, which the kernel fills.
            let failed = unsafe {
                libbpf_rs::libbpf_sys::bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &mut info, &mut len)
            };
            (failed == 0).then(|| tell(&program, &info))
        };
        self.skel.object().progs().filter_map(told).collect()
    }
}
