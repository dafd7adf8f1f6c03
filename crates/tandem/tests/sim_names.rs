//! `tandem sim` without a scenario, or with one that is not there, says which there are.

use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Exit code and standard error in `folder`; nothing is on standard output.
fn refused(folder: &str, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    let done = command.args(words).current_dir(folder).output().expect("it starts");
    assert!(done.stdout.is_empty(), "{words:?}");
    (done.status.code(), String::from_utf8(done.stderr).expect("UTF-8"))
}

#[test]
fn sim_without_a_name_lists_every_scenario_with_its_title_and_says_how_to_run_one() {
    let (code, error) = refused(ROOT, &["sim"]);
    assert_eq!(code, Some(2));
    let want = "tandem: sim: cannot run: seen no name, allowed one of these; run one by 'tandem \
        sim NAME', or a file of your own by 'tandem sim FILE' (docs/scenarios.md)\n\n";
    assert!(error.starts_with(want), "{error}");
    let rows: Vec<(&str, &str)> = error[want.len()..]
        .lines()
        .skip(2)
        .map(|l| l.split_once(' ').map(|(name, title)| (name, title.trim())).expect(l))
        .collect();
    let folders = std::fs::read_dir(format!("{ROOT}/scenarios")).expect("a folder");
    let scenarios = folders.filter(|e| e.as_ref().unwrap().path().join("scenario.toml").is_file());
    assert_eq!(rows.len(), scenarios.count());
    for (name, title) in rows {
        let file = format!("{ROOT}/scenarios/{name}/scenario.toml");
        let file: toml::Table = std::fs::read_to_string(file).unwrap().parse().unwrap();
        assert_eq!(file["title"].as_str(), Some(title), "{name}");
    }
    let (code, error) = refused("/", &["sim", "--seed", "7"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("seen no name, and no folder scenarios/ here; run one by"), "{error}");
}

#[test]
fn a_name_that_is_not_there_is_answered_with_those_that_are_near() {
    for words in [["sim", "shares-rato"], ["plan", "--scenario=shares-rato"]] {
        let (code, error) = refused(ROOT, &words);
        assert_eq!(code, Some(3), "{error}");
        let near =
            "the name of a folder under scenarios/, such as shares-ratio, shares-ratio-2x2x2";
        assert!(error.contains(near), "{error}");
    }
    let (code, error) = refused(ROOT, &["sim", "no-such-scenario"]);
    assert_eq!(code, Some(3));
    assert!(error.ends_with("the name of a folder under scenarios/\n"), "{error}");
}
