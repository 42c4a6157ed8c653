// What build.rs and the tests compile, and with which options.

/// BPF objects; the source of each is `src/bpf/NAME.bpf.c`.
const OBJECTS: &[&str] = &["ioreel", "empty", "ksyms", "fentry"];

/// `-mcpu=v3` has atomics that return the old value, which the sequence numbers need.
const CLANG_ARGS: &[&str] = &["-Isrc/bpf", "-Wall", "-Werror", "-Wno-unused-function", "-O2", "-mcpu=v3"];
