//! Whether the kernel allows programs on entry and exit of its functions: tried, never guessed from a version.

use std::path::Path;

/// Tries it; the error says why not, in few words.
pub(crate) fn attempt() -> Result<(), String> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err("no type information, /sys/kernel/btf/vmlinux".into());
    }
    crate::probes::session::quiet();
    ioreel_bpf::fentry::attempt().map_err(|e| e.to_string())
}
