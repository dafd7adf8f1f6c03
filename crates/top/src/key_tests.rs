//! Keys as a state machine: what each asks for outside, and what leads where.

use crate::config::{Config, SortBy};
use crate::keys::{Action, KEYS, Key};
use crate::state::{Ask, Mode, State};
use esxtop::Metric;

fn after(keys: &str) -> (State, Action) {
    let mut state = State::new(Config::default());
    let mut last = Action::None;
    for c in keys.chars() {
        let key = match c {
            '\n' => Key::Enter,
            '\x1b' => Key::Escape,
            '\x08' => Key::Backspace,
            '\x03' => Key::Interrupt,
            c => Key::Char(c),
        };
        last = state.key(key);
    }
    (state, last)
}

#[test]
fn whatever_keys_and_options_set_is_read_back() {
    let begin = [0.001, 0.05, 0.1, 1.0 / 3.0, 3600.0]
        .map(|interval_s| Config { interval_s, ..Config::default() });
    for config in begin {
        let mut state = State::new(config).not_live();
        // Each setting that there is comes up: a panel's fields, their orders, and all columns.
        let keys = "mVrNo<gDf\x1bfgGhAbDefijk\x1boABdkKEe\x1bcRUs0.001\ns0.025\ns3600\nVr";
        let columns = [">", "<", "r"].map(|key| key.repeat(60)).concat();
        for c in keys.chars().chain(columns.chars()) {
            let key = match c {
                '\n' => Key::Enter,
                '\x1b' => Key::Escape,
                c => Key::Char(c),
            };
            state.key(key);
            let text = state.config.text();
            assert_eq!(Config::parse(&text).as_ref(), Ok(&state.config), "after {c}: {text}");
        }
    }
    let mut live = State::new(Config::default());
    "s0.05\n".chars().for_each(|c| {
        live.key(if c == '\n' { Key::Enter } else { Key::Char(c) });
    });
    assert!(live.config.interval_s == 5.0, "this host is not looked at so often");
}

#[test]
fn keys_ask_for_what_has_to_be_done_outside() {
    let action = |keys: &str| after(keys).1;
    assert_eq!(["q", "\x03", "hq", "s\x03", "f\x03"].map(action), [Action::Quit; 5]);
    assert_eq!([" ", "W", "p"].map(action), [Action::Refresh, Action::Write, Action::Pause]);
    assert_eq!([",", "."].map(action), [Action::Step(-1), Action::Step(1)]);
    assert_eq!(
        [action("s2\n"), action("s\n"), action("s-1\n"), action("sx\n")],
        [Action::Interval, Action::None, Action::None, Action::None]
    );
    assert_eq!(
        [action("j90\n"), action("jx\n"), action("j9")],
        [Action::Jump(90.0), Action::None, Action::None]
    );
    assert_eq!(
        [action("sq"), action("/q"), action("fq")],
        [Action::None; 3],
        "q is a letter there, or leads back"
    );
}

#[test]
fn a_line_is_edited_taken_or_given_up() {
    assert_eq!(after("s12\x08").0.mode, Mode::Prompt(Ask::Interval, "1".to_owned()));
    assert_eq!(after("s0.5\n").0.config.interval_s, 0.5);
    assert_eq!(after("s99999\n").0.config.interval_s, 5.0);
    assert_eq!(after("s7\x1b").0.config.interval_s, 5.0);
    assert_eq!(after("/web\n").0.filter, "web");
    assert_eq!(after("/web\n/\x08\n").0.filter, "we", "it begins with what is there");
    assert_eq!(after("/web\n\x1b").0.filter, "", "Escape shows all again");
    assert!(
        after(&format!("/{}", "x".repeat(500))).0.mode == Mode::Prompt(Ask::Filter, "x".repeat(64))
    );
}

#[test]
fn sorting_is_esxtops_and_goes_from_column_to_column() {
    let sort = |keys: &str| (after(keys).0.config.cpu.sort, after(keys).0.config.cpu.reverse);
    assert_eq!(sort("R"), (SortBy::Metric(Metric::Ready), false));
    assert_eq!(sort("Rr"), (SortBy::Metric(Metric::Ready), true));
    assert_eq!(sort("RrU"), (SortBy::Metric(Metric::Used), false));
    assert_eq!(sort("N"), (SortBy::Gid, false));
    assert_eq!(sort(">"), (SortBy::Metric(Metric::Run), false));
    assert_eq!(sort("<<"), (SortBy::Name, false));
    assert_eq!(sort("<<<<<<"), (SortBy::Gid, false));
    assert_eq!(
        sort(&">".repeat(50)),
        (SortBy::Metric(Metric::SwapWait), false),
        "it stops at the last column"
    );
}

#[test]
fn each_key_of_the_table_does_something() {
    for (keys, _) in KEYS {
        for word in
            keys.split_whitespace().filter(|w| w.chars().count() == 1 && *w != "*" && *w != "c")
        {
            let (state, action) = after(word);
            let said = state.message.clone().unwrap_or_default();
            assert!(!said.contains("does nothing"), "{word}");
            assert!(
                action != Action::None || state != after("").0 || "2 8 e l U".contains(word),
                "{word}"
            );
        }
    }
}
