//! Compiles the BPF programs and generates their skeletons, including the Rust types of the wire format.

use std::{env, error::Error, path::PathBuf};

use libbpf_cargo::SkeletonBuilder;

include!("objects.rs");

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    for object in OBJECTS {
        let mut builder = SkeletonBuilder::new();
        if let Ok(clang) = env::var("CLANG") {
            builder.clang(clang);
        }
        builder
            .source(PathBuf::from("src/bpf").join(format!("{object}.bpf.c")))
            .clang_args(CLANG_ARGS)
            .build_and_generate(out.join(format!("{object}.skel.rs")))?;
    }
    Ok(())
}
