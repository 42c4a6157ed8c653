//! Compiles the BPF programs and generates their skeletons, the wire format's Rust types among them.

use std::{env, error::Error, path::PathBuf};

use libbpf_cargo::SkeletonBuilder;

/// One BPF object: its source below `src/bpf` and the skeleton's file name.
const OBJECTS: &[(&str, &str)] = &[
    ("ioreel.bpf.c", "ioreel.skel.rs"),
    ("empty.bpf.c", "empty.skel.rs"),
    ("ksyms.bpf.c", "ksyms.skel.rs"),
    ("fentry.bpf.c", "fentry.skel.rs"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    for (source, skeleton) in OBJECTS {
        let mut builder = SkeletonBuilder::new();
        if let Ok(clang) = env::var("CLANG") {
            builder.clang(clang);
        }
        builder
            .source(PathBuf::from("src/bpf").join(source))
            // v3: atomics that return the old value, which the sequence numbers need.
            .clang_args(["-Isrc/bpf", "-Wall", "-Werror", "-Wno-unused-function", "-O2", "-mcpu=v3"])
            .build_and_generate(out.join(skeleton))?;
    }
    Ok(())
}
