//! Whether the kernel supports programs on entry and exit of its functions. It tries, because the version does not
//! tell.

use std::path::Path;

/// Loads and attaches a test program. The error is a short reason.
pub(crate) fn attempt() -> Result<(), String> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err("no type information, /sys/kernel/btf/vmlinux".into());
    }
    crate::probes::session::quiet();
    ioreel_bpf::fentry::attempt().map_err(|e| e.to_string())
}
