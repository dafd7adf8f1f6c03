//! `tandem reproduce` as people call it.

use crate::numa::tandem;
use std::path::PathBuf;

fn file(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("it is written");
    path.to_string_lossy().into_owned()
}

/// A host where two VMs have 1:2 of the time, published as that or as something else.
fn scenario(name: &str, points: &str) -> String {
    let text = format!(
        "duration = '10s'\n[host]\ncores_per_llc = 1\n[[vm]]\nname = 'a'\nvcpus = 1\n\
            [[vm]]\nname = 'b-1'\nvcpus = 1\nshares = 2000\n{points}"
    );
    file(name, &text)
}

fn point(allowed: &str, measure: &str) -> String {
    format!(
        "[[published]]\nfigure = 'VS51 figure 3'\npage = '19'\nwhat = 'a'\n\
        value = 0.5\nallowed = {allowed}\n\
            measure = {{ {measure} }}\n"
    )
}

#[test]
fn what_is_published_is_held_against_what_is_measured() {
    let points = [
        ("[0.49, 0.51]", "of = 'used', vm = ['a'], over = { vm = ['b*'] }"),
        ("[99, 101]", "of = 'used-percent'"),
        ("[95, 105]", "of = 'used', as = 'apart'"),
        ("[45, 55]", "of = 'work', vm = ['b-1'], as = 'gain', over = { policy = 'fifo' }"),
        ("[30, 35]", "of = 'host-percent', vm = ['a']"),
        ("[99, 101]", "of = 'entitled-percent'"),
    ];
    let all: String = points.iter().map(|(allowed, m)| point(allowed, m)).collect();
    let path = scenario("reproduce-all.toml", &all);
    // A policy without shares refuses the scenario.
    let out = tandem(&["reproduce", &path, "--jobs", "1"]);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{text}");
    assert!(text.contains("policy fifo") && text.contains("shares"), "{text}");
    assert!(!text.contains(" of 2: "), "nothing was run: {text}");
    let all =
        all.replace("policy = 'fifo'", "vm = ['a'], policy = 'vtime'").replace("45, 55", "95, 105");
    let path = scenario("reproduce-all.toml", &all);
    let page = file("reproduce.html", "");
    let run = |seeds: &str| {
        let options = ["--jobs", "2", "-o", &page, "--json", "-", "--seeds", seeds];
        tandem(&[&["reproduce", path.as_str()][..], &options].concat())
    };
    let out = run("3");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert!(said.contains("6 of 6: reproduce-all") && said.contains("seed 3"), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("it is JSON");
    let points = json[0]["points"].as_array().expect("a list");
    assert!(points.len() == 6 && points.iter().all(|p| p["holds"] == true), "{points:#?}");
    let page = std::fs::read_to_string(&page).expect("the page is there");
    assert!(page.contains("6 of 6 published figures") && page.contains("<svg"), "{page}");
    assert!(!page.contains("<script"), "nothing runs on it");
}

#[test]
fn a_figure_that_is_missed_fails_the_command_and_says_by_how_much() {
    let path = scenario(
        "reproduce-miss.toml",
        &point("[0.6, 0.7]", "of = 'used', vm = ['a'], over = { vm = ['b-1'] }"),
    );
    let out = tandem(&["reproduce", &path, "--quiet"]);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(6), "{text}");
    assert!(text.contains("VS51 figure 3, a (tandem): seen 0.50"), "{text}");
    assert!(text.contains("allowed 0.600 to 0.700"), "{text}");
    assert!(String::from_utf8_lossy(&out.stdout).contains("MISS"));
    let path = scenario("reproduce-policy.toml", &point("[0, 1]", "of = 'used', policy = 'bvt'"));
    let out = tandem(&["reproduce", &path, "--quiet"]);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{text}");
    assert!(text.contains("policy: seen 'bvt'"), "{text}");
}

#[test]
fn crossings_and_cells_are_counted_over_runs() {
    let runs: String = [1, 2, 3, 4]
        .map(|n| format!("[[run]]\nlabel = '{n} VMs'\nset = {{ \"c.count\" = {n} }}\n"))
        .concat();
    let vm = "[[vm]]\nname = 'c'\ncount = 1\nvcpus = 1\n";
    let head = "duration = '2s'\n[host]\ncores_per_llc = 1\n";
    let crossing =
        point("[2.45, 2.55]", "of = 'slowdown', run = ' VMs', as = 'crossing', at = 2.5");
    let cells = point(
        "[100, 100]",
        "of = 'used', as = 'cells', at = -1, run = '*', over = { policy = 'vtime' }",
    );
    let none = point(
        "[0, 0]",
        "of = 'used', as = 'cells', at = 1, run = '*', over = { policy = 'vtime' }",
    );
    // 2 s by a slowdown of 1 to 4: 100 % more to 50 % less.
    let most =
        point("[98, 102]", "of = 'used', as = 'most', run = '*', over = { of = 'slowdown' }");
    let points = format!("{crossing}{cells}{none}{most}");
    let path = file("reproduce-runs.toml", &format!("{head}{points}{vm}{runs}"));
    let out = tandem(&["reproduce", &path, "--seeds", "1"]);
    let (text, said) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{text}{said}");
    assert!(said.contains("8 of 8"), "{said}");
}

#[test]
fn a_figure_is_the_mean_of_seeds_and_the_first_is_the_scenarios() {
    let text = "duration = '2s'\nseed = 5\n[host]\ncores_per_llc = 1\n[[vm]]\nname = 'a'\n\
        vcpus = 1\nworkload = { kind = 'io', work = '5ms', sleep = '5ms', dist = 'exponential' }\n";
    let points = point("[0, 100]", "of = 'used-percent'");
    let path = file("reproduce-seeds.toml", &format!("{text}{points}"));
    let by_seed = |seeds: &str| -> Vec<f64> {
        let out = tandem(&["reproduce", &path, "--json", "-", "--quiet", "--seeds", seeds]);
        let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("it is JSON");
        let point = &json[0]["points"][0];
        let list = point["by_seed"].as_array().expect("a list");
        let all: Vec<f64> = list.iter().map(|n| n.as_f64().expect("a number")).collect();
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = all.iter().copied().fold(0.0, f64::max);
        assert_eq!(
            (point["spread"][0].as_f64(), point["spread"][1].as_f64()),
            (Some(least), Some(most))
        );
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!((point["measured"].as_f64().expect("a number") - mean).abs() < 1e-9, "{point}");
        all
    };
    let (one, four) = (by_seed("1"), by_seed("4"));
    assert_eq!((one.len(), four.len(), one[0]), (1, 4, four[0]));
    assert!(four[1..].iter().all(|n| *n != four[0]), "{four:?}");
    let out = tandem(&["sim", &path, "--seed", "6", "--json", "-"]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("it is JSON");
    let used = json["runs"][0]["vms"][0]["used_ns"].as_f64().expect("a number");
    assert!((used / 2e7 - four[1]).abs() < 1e-6, "{used} {four:?}");
}

#[test]
fn other_policies_are_shown_beside_a_figure_and_held_against_nothing() {
    let of = |beside: &str| {
        let figure = point("[0.49, 0.51]", "of = 'used', vm = ['a'], over = { vm = ['b-1'] }");
        let path = scenario("reproduce-beside.toml", &format!("{figure}beside = ['{beside}']\n"));
        tandem(&["reproduce", &path, "--json", "-", "--quiet", "--seeds", "1"])
    };
    let out = of("vtime");
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("it is JSON");
    let point = &json[0]["points"][0];
    assert!(out.status.success() && point["page"] == "19", "{point}");
    let (beside, measured) = (&point["beside"][0], point["measured"].as_f64());
    let number = beside["measured"].as_f64().expect("a number");
    assert!(beside["policy"] == "vtime" && (0.4..0.6).contains(&number), "{beside}");
    assert_ne!(Some(number), measured, "another policy has another number");
    // One that refuses the scenario, and one that there is not.
    for (policy, says) in [("fifo", "shares"), ("bvt", "policy: seen 'bvt'")] {
        let out = of(policy);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(3) && said.contains(says), "{said}");
    }
}
