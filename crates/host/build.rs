//! Compiles the BPF objects of the scheduler with clang and generates their skeletons.

use std::{env, path::PathBuf, process::Command};

fn clang() -> String {
    let candidates = ["clang-19", "clang-20", "clang-21", "clang-18", "clang"];
    let works =
        |c: &&&str| Command::new(c).arg("--version").output().is_ok_and(|o| o.status.success());
    env::var("CLANG")
        .unwrap_or_else(|_| candidates.iter().find(works).copied().unwrap_or("clang").to_string())
}

fn main() {
    let root =
        PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../sched");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    for name in ["tandem", "guest"] {
        let source = root.join(format!("glue/{name}.bpf.c"));
        libbpf_cargo::SkeletonBuilder::new()
            .source(&source)
            .obj(out.join(format!("{name}.bpf.o")))
            .clang(clang())
            .clang_args([
                "-mcpu=v3".into(),
                "-Wall".into(),
                "-Werror".into(),
                std::ffi::OsString::from(format!("-I{}", root.display())),
            ])
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .unwrap_or_else(|e| {
                panic!(
                    "{} must compile: {e:#}; install clang 18 or later, libelf-dev and zlib1g-dev",
                    source.display()
                )
            });
    }
    println!("cargo:rerun-if-changed={}", root.display());
    println!("cargo:rerun-if-env-changed=CLANG");
}
