//! What is printed for people: names that a terminal would obey, numbers that are cut off, command
//! lines that are to be pasted.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Exit code, standard output and standard error.
fn ends(words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    let Output { status, stdout, stderr } =
        command.args(words).current_dir(ROOT).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

fn file(name: &str, content: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).expect("written");
    path.to_string_lossy().into_owned()
}

#[test]
fn a_terminal_obeys_no_name_and_documents_keep_it() {
    let host = "title = \"t\"\nduration = \"2s\"\nwarmup = \"1s\"\n[host]\ncores_per_llc = 1\n";
    let vm = "[[vm]]\nname = \"a\\u001b[31m\\u009bb\"\nvcpus = 1\n";
    let fine = file("obeyed.toml", &format!("{host}{vm}"));
    let trace = file("obeyed.trace", "");
    let bad = file("refused.toml", &format!("{host}{vm}shares = 0\n"));
    let all: [(&[&str], i32); 7] = [
        (&["sim", &fine, "--trace", &trace], 0),
        (&["sim", &fine, "--json", "-"], 0),
        (&["plan", "--scenario", &fine], 0),
        (&["admit", "--scenario", &fine, "--vm", "x", "--reservation", "1%"], 3),
        (&["sim", &bad], 3),
        (&["trace", "waits", &trace], 0),
        (&["top", "--sim", &fine, "--once", "-d", "500ms"], 0),
    ];
    for (words, want) in all {
        let (code, out, error) = ends(words);
        assert_eq!(code, want, "{words:?}: {error}");
        let obeyed = |text: &str| text.chars().any(|c| c.is_control() && c != '\n');
        let shown = if words.contains(&"-") { &error } else { &out };
        assert!(!obeyed(shown) && !obeyed(&error), "{words:?}: {out:?} {error:?}");
        assert!(format!("{shown}{error}").contains("a?[31m?b"), "{words:?}: {out} {error}");
    }
    let json = ends(&["sim", &fine, "--json", "-"]).1;
    let document: views::Document = serde_json::from_str(&json).expect("a document");
    assert_eq!(document.runs[0].vms[0].name, "a\u{1b}[31m\u{9b}b");
}

#[test]
fn a_breach_of_the_contract_ends_with_the_command_that_replays_it() {
    let breach = ["sim", "smoke", "--policy", "mutant:lost-enqueue", "--seed", "3"];
    let (code, _, error) = ends(&breach);
    assert_eq!(code, 6, "{error}");
    assert!(error.starts_with("tandem: scenario smoke (seed 3): world "), "{error}");
    let replay = error.lines().last().and_then(|l| l.strip_prefix("replay: tandem "));
    assert_eq!(replay, Some("sim smoke --seed 3 --policy mutant:lost-enqueue"), "{error}");
}

#[test]
fn what_a_policy_lacks_is_said_once_with_the_remedy() {
    let knobs = ["--set", "quantum_us=20000", "--set", "costop_us=3000"];
    let (code, _, error) = ends(&[&["sim", "smoke", "--policy", "cfs"][..], &knobs].concat());
    let want = "tandem: scenario smoke: cannot run it with policy cfs, which has no knobs \
        ('costop_us', 'quantum_us'); run it with tandem, or leave out --set\n";
    assert_eq!((code, error.as_str()), (3, want));
    let (code, _, error) = ends(&["sim", "pools-nested", "--policy", "fifo"]);
    let pools = error.matches("no pools (pool 'prod', pool 'web', pool 'db', ").count();
    assert!((code, pools) == (3, 1) && error.contains("take that out of the scenario"), "{error}");
}

#[test]
fn violations_are_all_counted_and_the_replay_can_be_pasted() {
    let demo = fs::read_to_string(Path::new(ROOT).join("scenarios/demo/scenario.toml")).unwrap();
    let path = file("it's a demo.toml", &demo);
    let faulty = ["--policy", "mutant:wrong-slowest", "--duration", "15s"];
    let (code, out, error) = ends(&[&["sim", &path][..], &faulty].concat());
    assert_eq!(code, 6, "{out}{error}");
    let json = ends(&[&["sim", &path, "--json", "-"][..], &faulty].concat()).1;
    let document: views::Document = serde_json::from_str(&json).expect("a document");
    let violated = document.runs[0].checked.as_ref().expect("it is checked").violated;
    assert!(violated > 100, "{violated}");
    assert!(error.contains(&format!("\n  and {} more\n", violated - 20)), "{error}");
    let replay = error.split("\nreplay: tandem ").nth(1).expect("a replay").trim_end();
    let pasted = format!("exec \"$0\" {replay}");
    let mut shell = Command::new("sh");
    let again = shell.args(["-c", &pasted, env!("CARGO_BIN_EXE_tandem")]).current_dir(ROOT);
    let again = again.output().expect("it starts");
    assert_eq!(again.status.code(), Some(6), "{replay}");
    assert_eq!(String::from_utf8_lossy(&again.stderr), error);
}
