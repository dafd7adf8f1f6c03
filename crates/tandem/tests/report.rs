//! The command `tandem report`: the files that it writes, its messages, and its exit code.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn tandem(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tandem"))
        .args(words)
        .current_dir(ROOT)
        .output()
        .expect("it runs")
}

/// Exit code, standard output and error of a command.
fn ends(words: &[&str]) -> (i32, String, String) {
    let done = tandem(words);
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (done.status.code().expect("it ended by itself"), text(&done.stdout), text(&done.stderr))
}

fn file(name: &str) -> String {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).to_string_lossy().into_owned()
}

/// A result document of a scenario.
fn measured(name: &str, scenario: &str) -> String {
    let path = file(name);
    let (code, _, error) = ends(&["sim", scenario, "--json", &path]);
    assert_eq!(code, 0, "{error}");
    path
}

/// The block of JSON in a page.
fn block(page: &str) -> serde_json::Value {
    let html = fs::read_to_string(page).expect("a page");
    let json =
        html.split("<script type=\"application/json\" id=\"data\">").nth(1).expect("a block");
    serde_json::from_str(json.split("</script>").next().expect("its end")).expect("JSON")
}

#[test]
fn the_command_of_a_page_measures_the_same_run_again() {
    let scenario = file("it's two.toml");
    let two = "duration = '9s'\n[host]\ncores_per_llc = 2\n[[vm]]\nname = 'a'\nvcpus = 3\n\
        workload = { kind = 'io', work = '3ms', sleep = '2ms', dist = 'exponential' }\n\
        [[run]]\nlabel = 'as it is'\n[[run]]\nlabel = '$HOME 2:1'\n";
    fs::write(&scenario, two).expect("written");
    let (json, page) = (file("again.json"), file("again.html"));
    let options = ["--set", "quantum_us=10000", "--duration", "4s", "--seed", "77", "--no-check"];
    let chosen = ["--policy", "mutant:no-pull", "--run", "$HOME 2:1", "--json", &json];
    let (code, _, error) = ends(&[&["sim", &scenario][..], &options, &chosen].concat());
    assert_eq!(code, 0, "{error}");
    assert_eq!(ends(&["report", &json, "-o", &page]).0, 0);
    let repeat = block(&page)["runs"][0]["repeat"].as_str().expect("a command").to_owned();
    let words = repeat.strip_prefix("tandem ").expect("tandem's");
    let mut shell = Command::new("sh");
    let pasted = format!("exec \"$0\" {words} --json -");
    let again = shell.args(["-c", &pasted, env!("CARGO_BIN_EXE_tandem")]).current_dir(ROOT);
    let again = again.output().expect("it starts");
    assert_eq!(
        String::from_utf8_lossy(&again.stdout),
        fs::read_to_string(&json).expect("the document"),
        "{repeat}"
    );
}

#[test]
fn a_page_has_the_results_of_its_documents_and_the_command_that_made_it() {
    let (document, page) = (measured("one.json", "demo"), file("one.html"));
    let (code, said, error) = ends(&["report", &document, "-o", &page, "--title", "Two words"]);
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(
        said.starts_with(&format!("{page}: 1 run, 0."))
            && said.ends_with(" MB; open it in a browser\n"),
        "{said}"
    );
    let (seen, want) = (block(&page), fs::read_to_string(&document).expect("a document"));
    let want: serde_json::Value = serde_json::from_str(&want).expect("JSON");
    assert_eq!(seen["runs"][0]["result"], want["runs"][0]);
    assert_eq!(seen["title"], "Two words");
    assert_eq!(seen["command"], format!("tandem report {document} -o {page} --title 'Two words'"));
}

#[test]
fn runs_are_named_chosen_and_set_side_by_side() {
    let (demo, shares) = (measured("demo.json", "demo"), measured("shares.json", "shares-ratio"));
    let page = file("two.html");
    let (code, said, error) = ends(&[
        "report",
        &format!("before={demo}"),
        &shares,
        "--run",
        "1:7",
        "--run",
        "",
        "-o",
        &page,
    ]);
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(said.contains(": 2 runs, "), "{said}");
    let runs = block(&page)["runs"].clone();
    assert_eq!((&runs[0]["name"], &runs[0]["files"][0]), (&"before".into(), &demo.as_str().into()));
    assert_eq!(runs[1]["result"]["label"], "1:7");
    let (_, html, _) = ends(&["report", &demo, "-o", "-"]);
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
}

#[test]
fn what_cannot_be_used_is_refused_with_its_code() {
    let page = file("none.html");
    let (code, _, error) = ends(&["report", "no-such-file.json", "-o", &page]);
    assert!(
        code == 3
            && error.starts_with(
                "tandem: no-such-file.json: cannot read it; name a result \
            document, a trace, or both"
            ),
        "{error}"
    );
    let (code, _, error) = ends(&["report", "docs/exit-codes.md", "-o", &page]);
    assert!(
        code == 3 && error.starts_with("tandem: docs/exit-codes.md: cannot read it as a trace"),
        "{error}"
    );
    let demo = measured("refused.json", "demo");
    let (code, _, error) = ends(&["report", &demo, "--run", "x", "-o", &page]);
    assert_eq!(
        (code, error.as_str()),
        (3, "tandem: --run x: cannot find it: seen no run with a label; leave --run out\n")
    );
    let (code, _, error) = ends(&["report", &demo, "--from", "2s", "--to", "1s", "-o", &page]);
    assert!(
        code == 2 && error.contains("seen an empty one, allowed --from before --to"),
        "{error}"
    );
    let (code, _, error) = ends(&["report", &demo, "-o", "no/such/folder/x.html"]);
    assert!(
        code == 1 && error.starts_with("tandem: no/such/folder/x.html: cannot write the page"),
        "{error}"
    );
    assert!(!Path::new(&page).exists(), "nothing was written");
}
