//! The command `tandem metrics`, without a daemon.

use std::process::{Command, Output};

fn tandem(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tandem")).args(words).output().expect("it runs")
}

fn json(words: &[&str]) -> serde_json::Value {
    let done = tandem(words);
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).expect("JSON")
}

#[test]
fn the_list_has_every_metric_with_meaning_and_advice_as_a_table_and_as_json() {
    let list = json(&["metrics", "--list", "--json"]);
    let list = list.as_array().unwrap();
    let table = String::from_utf8(tandem(&["metrics", "--list"]).stdout).unwrap();
    assert_eq!(table.lines().count(), list.len() + 2);
    for metric in list {
        let name = metric["name"].as_str().unwrap();
        assert!(table.lines().any(|l| l.starts_with(&format!("{name} "))), "{name}");
        assert!(
            ["type", "unit", "meaning", "advice"].iter().all(|key| metric[key].is_string()),
            "{metric}"
        );
    }
    let used = list.iter().find(|m| m["name"] == "tandem_vm_used_seconds_total").unwrap();
    assert_eq!(
        (&used["type"], &used["unit"], &used["labels"]),
        (&"counter".into(), &"seconds".into(), &["vm", "pool", "id"][..].into())
    );
}

#[test]
fn the_dashboard_is_json_with_panels() {
    let board = json(&["metrics", "--dashboard"]);
    assert_eq!(board["title"], "Tandem");
    assert!(board["panels"].as_array().unwrap().len() > 10);
}

#[test]
fn options_that_exclude_each_other_end_with_2() {
    for words in [["--list", "--dashboard"], ["--prometheus", "--list"], ["--json", "--dashboard"]]
    {
        assert_eq!(
            tandem(&[&["metrics"], &words[..]].concat()).status.code(),
            Some(2),
            "{words:?}"
        );
    }
}

/// Where no scheduler of ours is loaded, that is a number and not an error.
#[cfg(feature = "live")]
#[test]
fn without_a_daemon_it_says_that_nothing_is_loaded() {
    if std::fs::read_to_string("/sys/kernel/sched_ext/root/ops")
        .is_ok_and(|ops| ops.trim() == "tandem")
    {
        return; // another process uses this host
    }
    let done = tandem(&["metrics"]);
    let text = String::from_utf8(done.stdout).unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(text.contains("\ntandem_scheduler_loaded 0\n") && text.ends_with("# EOF\n"), "{text}");
    let version = env!("CARGO_PKG_VERSION");
    let plain = String::from_utf8(tandem(&["metrics", "--prometheus"]).stdout).unwrap();
    assert!(
        plain.contains(&format!("\ntandem_build_info{{version=\"{version}\"}} 1\n"))
            && !plain.contains("# EOF"),
        "{plain}"
    );
}

#[cfg(not(feature = "live"))]
#[test]
fn a_tandem_without_the_live_host_says_so_with_4() {
    let done = tandem(&["metrics"]);
    assert_eq!(done.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&done.stderr).contains("built without the live host"));
}
