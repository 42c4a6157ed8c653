//! The loaded programs: how often they were skipped, and how large they are.

use std::os::fd::{AsFd, AsRawFd};

use ioreel_bpf::types::{cpu_ledger, second};
use ioreel_traces::manifest::Probe;
use libbpf_rs::{libbpf_sys::bpf_prog_info, skel::Skel};
use serde::Serialize;

use super::Session;

/// A loaded program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// What it is attached to, `tp_btf/…` or `iter/…`.
    pub place: String,
    /// Instructions as the kernel keeps them.
    pub instructions: u32,
    /// Instructions that the verifier went through, of the million that it would at most.
    pub verified: u32,
    /// Machine code.
    pub native_bytes: u32,
}

/// What the second of two programs counts its own by.
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

/// Of a BPF instruction as the kernel keeps it.
const INSTRUCTION_BYTES: u32 = 8;

impl Session<'_> {
    /// Every program with the number of events that the kernel has not told it of.
    pub fn probes(&self) -> Vec<Probe> {
        let mut probes = self.loaded(|program, info| Probe {
            name: program.name().to_string_lossy().into_owned(),
            missed: info.recursion_misses as i64,
        });
        // Of two programs for the same events either may be skipped. The events that both were skipped for are no more
        // than the fewer of their skips, nor than the first's without those that the second then told of; of calls, no
        // more than the threads' halves of calls that neither has seen.
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

    /// How often the kernel has skipped these programs.
    pub(super) fn skipped(&self, names: &[&str]) -> u64 {
        let skips = |program: &libbpf_rs::Program<'_>, info: &bpf_prog_info| {
            if names.iter().any(|n| program.name() == *n) { info.recursion_misses } else { 0 }
        };
        self.loaded(skips).iter().sum()
    }

    /// Every loaded program with its size.
    pub fn programs(&self) -> Vec<Program> {
        self.loaded(|program, info| Program {
            name: program.name().to_string_lossy().into_owned(),
            place: program.section().to_string_lossy().into_owned(),
            instructions: info.xlated_prog_len / INSTRUCTION_BYTES,
            verified: info.verified_insns,
            native_bytes: info.jited_prog_len,
        })
    }

    fn loaded<T>(&self, tell: impl Fn(&libbpf_rs::Program<'_>, &bpf_prog_info) -> T) -> Vec<T> {
        let told = |program: libbpf_rs::Program<'_>| {
            let mut info = bpf_prog_info::default();
            let mut len = size_of_val(&info) as u32;
            // By descriptor: to go through the ids of all programs takes CAP_SYS_ADMIN.
            // SAFETY: `info` is `len` bytes of plain integers, which the kernel fills.
            let failed = unsafe {
                libbpf_rs::libbpf_sys::bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &mut info, &mut len)
            };
            (failed == 0).then(|| tell(&program, &info))
        };
        self.skel.object().progs().filter_map(told).collect()
    }
}
