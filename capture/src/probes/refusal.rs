//! Which program the kernel refused, and why. libbpf reports this only as log messages.

use std::sync::{Mutex, PoisonError};

use crate::host::error::is_out_of_descriptors;

/// A refused program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) program: String,
    /// Last line of the verifier's log, or the system error.
    pub(super) why: String,
}

/// The last refusal in this process.
static LAST: Mutex<Option<Refusal>> = Mutex::new(None);

/// Examines a message of libbpf.
pub(super) fn note(text: &str) {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(refusal) = read(text, last.as_ref()) {
        *last = Some(refusal);
    }
}

/// Takes the last refusal.
pub(super) fn take() -> Option<Refusal> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Parses a message of the form `prog 'NAME': …: CAUSE`, which may contain the verifier's log.
fn read(text: &str, known: Option<&Refusal>) -> Option<Refusal> {
    let (program, rest) = text.strip_prefix("libbpf: ").unwrap_or(text).strip_prefix("prog '")?.split_once("': ")?;
    let known = known.filter(|k| k.program == program);
    let why = if let Some((_, log)) = rest.split_once("-- BEGIN PROG LOAD LOG --") {
        let log = log.split("-- END PROG LOAD LOG --").next().unwrap_or(log);
        let mut said = log.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("processed "));
        said.next_back()?.to_owned()
    } else if rest.contains("failed") {
        // The verifier's line is more useful than an error number, unless it accepted the program and descriptors ran
        // out.
        let known = known.filter(|_| !is_out_of_descriptors(rest));
        known.map_or_else(|| rest.trim_end().to_owned(), |k| k.why.clone())
    } else {
        return None;
    };
    Some(Refusal { program: program.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str]) -> Option<Refusal> {
        texts.iter().fold(None, |known, text| read(text, known.as_ref()).or(known))
    }

    #[test]
    fn the_verifiers_last_words_are_the_reason() {
        let refusal = of(&[
            "libbpf: prog 'op_enter': relo #4: matching candidate #0\n",
            "libbpf: prog 'op_exit': BPF program load failed: -EACCES\n",
            "libbpf: prog 'op_exit': -- BEGIN PROG LOAD LOG --\n0: r1 = 1\nR9 invalid mem access 'scalar'\nprocessed 19 insns\n-- END PROG LOAD LOG --\n",
            "libbpf: prog 'op_exit': failed to load: -EACCES\n",
            "libbpf: failed to load object 'ioreel_bpf'\n",
        ]);
        let why = "R9 invalid mem access 'scalar'".into();
        assert_eq!(refusal, Some(Refusal { program: "op_exit".into(), why }));
    }

    /// The verifier accepted the program, but no descriptor was left for it.
    #[test]
    fn a_lack_of_descriptors_is_the_reason_whatever_the_verifier_said() {
        let refusal = of(&[
            "libbpf: prog 'op_exit': BPF program load failed: -EMFILE\n",
            "libbpf: prog 'op_exit': -- BEGIN PROG LOAD LOG --\nFunc#38 ('exit_special') is safe for any args that match its prototype\nprocessed 19 insns\n-- END PROG LOAD LOG --\n",
            "libbpf: prog 'op_exit': failed to load: -EMFILE\n",
        ]);
        assert!(refusal.is_some_and(|r| is_out_of_descriptors(&r.why)));
    }

    #[test]
    fn without_a_log_the_error_is() {
        let refusal = of(&["libbpf: prog 'cache_fill': failed to load: -EPERM\n"]);
        assert_eq!(refusal.map(|r| r.why), Some("failed to load: -EPERM".into()));
        assert_eq!(of(&["libbpf: prog 'cache_fill': relo #1: patched\n"]), None);
    }
}
