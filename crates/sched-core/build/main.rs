//! Compiles the scheduler natively and writes its records, caps and knobs as Rust; it decides no
//! layout itself.

mod emit;
mod read;

use std::{env, fs, path::Path};

/// Headers of `sched/abi`, each after those that it needs.
const HEADERS: [&str; 10] = [
    "caps.h",
    "ids.h",
    "knobs.h",
    "host.h",
    "pcpu.h",
    "vm.h",
    "world.h",
    "limiter.h",
    "node.h",
    "trace.h",
];

fn main() {
    let sched = Path::new("../../sched");
    println!("cargo::rerun-if-changed={}", sched.display());
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let out = Path::new(&out);
    let text = |name: &str| {
        let path = sched.join("abi").join(name);
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("{}: cannot read: {e}", path.display()));
        (path.display().to_string(), text)
    };
    let mut schema = read::Schema::default();
    for (path, text) in HEADERS.map(text) {
        schema.header(&path, &text).unwrap_or_else(|e| panic!("{e}"));
    }
    let (path, list) = text("knobs.def");
    schema.knobs(&path, &list).unwrap_or_else(|e| panic!("{e}"));
    let write = |name: &str, text: String| {
        fs::write(out.join(name), text).unwrap_or_else(|e| panic!("{name}: cannot write: {e}"))
    };
    write("records.rs", emit::records(&schema));
    write("knobs.rs", emit::knobs(&schema));
    write("layout.c", emit::layout_c(&schema));
    write("layout.rs", emit::layout_rust(&schema));
    let mut build = cc::Build::new();
    if env::var_os("CARGO_FEATURE_ABLATE").is_some() {
        build.define("TANDEM_ABLATE", None);
    }
    build
        .file(sched.join("glue/native.c"))
        .file(out.join("layout.c"))
        .include(sched)
        .opt_level(2)
        .std("gnu11")
        .warnings(true)
        .extra_warnings(true)
        .compile("tandem_sched");
}
