//! Tests of the BPF sources that a build for this machine does not cover.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    collections::BTreeSet,
    env,
    path::{Path, PathBuf},
};

use libbpf_cargo::SkeletonBuilder;
use libbpf_rs::ObjectBuilder;

include!("../objects.rs");

/// Names of the programs and maps of an object compiled for this architecture.
fn compiled(object: &str, arch: &str, out: &Path) -> BTreeSet<String> {
    let path = out.join(format!("{object}.{arch}.o"));
    let define = format!("-D__TARGET_ARCH_{arch}");
    let mut builder = SkeletonBuilder::new();
    if let Ok(clang) = env::var("CLANG") {
        builder.clang(clang);
    }
    builder
        .source(PathBuf::from("src/bpf").join(format!("{object}.bpf.c")))
        .obj(&path)
        .clang_args(CLANG_ARGS.iter().copied().chain([define.as_str()]))
        .build()
        .unwrap();
    let open = ObjectBuilder::default().open_file(&path).unwrap();
    let programs = open.progs().map(|p| p.name().to_string_lossy().into_owned());
    programs.chain(open.maps().map(|m| m.name().to_string_lossy().into_owned())).collect()
}

#[test]
fn programs_are_the_same_on_every_architecture() {
    let out = tempfile::tempdir().unwrap();
    for object in OBJECTS {
        let x86 = compiled(object, "x86", out.path());
        assert!(!x86.is_empty());
        assert_eq!(x86, compiled(object, "arm64", out.path()), "{object}");
    }
}
