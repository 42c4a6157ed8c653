//! Names of system calls that several stages and crates treat alike.

/// Calls that set ids of users and groups of a process. Column `value` has these ids.
pub const SET_IDS: &[&str] =
    &["setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid", "setgroups"];
