// What build.rs and the tests compile, and how.

/// BPF objects: their sources are `src/bpf/NAME.bpf.c`.
const OBJECTS: &[&str] = &["ioreel", "empty", "ksyms", "fentry"];

/// v3: atomics that return the old value, which the sequence numbers need.
const CLANG_ARGS: &[&str] = &["-Isrc/bpf", "-Wall", "-Werror", "-Wno-unused-function", "-O2", "-mcpu=v3"];
