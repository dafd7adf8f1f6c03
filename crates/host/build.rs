//! Compiles the scheduler's BPF object with clang and generates its skeleton.

use std::{env, path::PathBuf, process::Command};

fn clang() -> String {
    let candidates = ["clang-19", "clang-20", "clang-21", "clang-18", "clang"];
    let works = |c: &&&str| Command::new(c).arg("--version").output().is_ok_and(|o| o.status.success());
    env::var("CLANG").unwrap_or_else(|_| candidates.iter().find(works).copied().unwrap_or("clang").to_string())
}

fn main() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../sched");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it")).join("tandem.skel.rs");
    libbpf_cargo::SkeletonBuilder::new()
        .source(root.join("glue/tandem.bpf.c"))
        .clang(clang())
        .clang_args(["-mcpu=v3".into(), "-Wall".into(), "-Werror".into(), std::ffi::OsString::from(format!("-I{}", root.display()))])
        .build_and_generate(&out)
        .expect("sched/glue/tandem.bpf.c must compile: install clang 18 or later, libelf-dev and zlib1g-dev");
    println!("cargo:rerun-if-changed={}", root.display());
    println!("cargo:rerun-if-env-changed=CLANG");
}
