//! `tandem numa` as people call it.

use std::process::{Command, Output};

fn tandem(args: &[&str]) -> Output {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    Command::new(env!("CARGO_BIN_EXE_tandem"))
        .current_dir(root)
        .args(args)
        .output()
        .expect("tandem starts")
}

#[test]
fn every_decision_on_a_home_is_explained() {
    let out = tandem(&["numa", "explain", "three-on-two", "vm-1", "--run", "4-vcpu"]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{out:?}");
    for part in ["vm-1, client 0: 4 vCPUs, home node", "homes by reason: fairness", "too little"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("vm-2"), "{text}");
    let out = tandem(&[
        "numa",
        "explain",
        "three-on-two",
        "--run",
        "2-vcpu",
        "--duration",
        "30s",
        "--json",
    ]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("it is JSON");
    assert_eq!(json[0][1].as_array().map(Vec::len), Some(3), "{json}");
}

#[test]
fn what_is_not_there_is_refused_with_what_is() {
    for (args, part) in [
        (["demo", "x"], "seen no [numa] with [hardware]"),
        (["three-on-two", "x"], "VM: seen 'x', allowed vm-1, vm-2, vm-3"),
        (["three-on-two", "--run=x"], "--run: seen 'x', allowed '4-vcpu'"),
    ] {
        let out = tandem(&["numa", "explain", args[0], args[1]]);
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{text}");
        assert!(text.contains(part), "{part} in {text}");
    }
}
