//! The screen for given samples, sizes and requests: what stands where, and how it is marked.

use crate::config::Config;
use crate::keys::Key;
use crate::line::Tone;
use crate::play::Sample;
use crate::samples::sample;
use crate::state::State;
use crate::term::paint;
use crate::view::{Size, Status, View, view};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

fn state(keys: &str) -> State {
    let mut state = State::new(Config::default());
    press(&mut state, keys);
    state
}

fn press(state: &mut State, keys: &str) {
    for c in keys.chars() {
        state.key(if c == '\n' { Key::Enter } else { Key::Char(c) });
    }
}

fn shown(state: &mut State, width: usize, height: usize) -> View {
    let status = Status { title: "esx01 by tandem".to_owned(), doing: String::new() };
    view(state, Some(&sample(4, false)), &status, Size { width, height })
}

fn text(view: &View) -> Vec<String> {
    view.lines.iter().map(|l| l.text()).collect()
}

/// Names of the rows, in order.
fn names(state: &mut State) -> Vec<String> {
    let lines = text(&shown(state, 140, 40));
    let begin = lines.iter().position(|l| l.contains("NAME")).expect("a header") + 1;
    let column = lines[begin - 1].find("NAME").expect("names");
    let end = lines.iter().skip(begin).position(|l| l.trim().is_empty()).expect("an end");
    lines[begin..begin + end]
        .iter()
        .map(|l| l[column..].split_whitespace().next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn the_screen_is_esxtops() {
    let lines = text(&shown(&mut state(""), 140, 16));
    assert_eq!(
        lines[0],
        "7:34:57pm up 4:31, 5 worlds, 2 VMs, 3 vCPUs; CPU load average: 0.67, 0.67, 0.67"
    );
    assert_eq!(lines[1], "PCPU USED(%):   0.0   7.0  14.0  21.0 AVG:  10.5");
    assert_eq!(lines[2], "PCPU UTIL(%):   0.0   7.0  14.0  21.0 AVG:  10.5");
    assert_eq!(lines[3], "", "no CORE UTIL without hyper-threads");
    let header: Vec<&str> = lines[4].split_whitespace().collect();
    let columns =
        "ID GID NAME NWLD %USED %RUN %SYS %WAIT %VMWAIT %RDY %IDLE %OVRLP %CSTP %MLMTD %SWPWT";
    assert_eq!(header.join(" "), columns);
    let web: Vec<&str> = lines[7].split_whitespace().collect();
    assert_eq!(
        web[..10],
        ["11", "11", "web", "3", "85.00", "85.00", "-", "197.00", "0.00", "14.00+"]
    );
    assert_eq!(web[12], "4.00", "2 a vCPU are not above 3");
    assert!(
        lines[15].starts_with("esx01 by tandem | 5 s | by %USED")
            && lines[15].ends_with("h help  q quit"),
        "{}",
        lines[15]
    );
    assert!(lines.iter().all(|l| l.chars().count() <= 140));
}

#[test]
fn what_passes_a_threshold_is_coloured_and_marked() {
    let mut s = state("");
    names(&mut s);
    press(&mut s, "22e");
    let screen = shown(&mut s, 140, 30);
    let tone = |row: &str, value: &str| {
        let line = screen
            .lines
            .iter()
            .find(|l| l.text().contains(row))
            .unwrap_or_else(|| panic!("no {row}"));
        line.pieces
            .iter()
            .find(|(t, _)| t.trim() == value)
            .map_or_else(|| panic!("no {value} in {}", line.text()), |p| p.1)
    };
    assert_eq!(tone("vmx-vcpu-0", "12.00!"), Tone::Bad, "above 10");
    assert_eq!(tone(" web ", "14.00+"), Tone::Look, "7 for each of two vCPUs");
    assert_eq!(tone("vmx-vcpu-1", "4.00!"), Tone::Bad, "co-stop above 3");
    assert_eq!(tone("vmx-vcpu-1", "2.00"), Tone::World);
    assert_eq!(tone("Database", "7.00+"), Tone::Look);
    assert_eq!(tone("/prod", "21.00+"), Tone::Look, "three vCPUs in it");
    assert_eq!(tone("system", "60.00"), Tone::Plain, "host tasks have no thresholds");
}

#[test]
fn colours_reach_the_terminal_unless_they_are_not_wanted() {
    let screen = shown(&mut state(""), 140, 16);
    let painted = |colours: bool| {
        let mut terminal = Terminal::new(TestBackend::new(140, 16)).expect("a terminal");
        terminal.draw(|f| paint(&screen, f.area(), f.buffer_mut(), colours)).expect("drawn");
        let buffer = terminal.backend().buffer().clone();
        let row = |y: u16| (0..140).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
        let at = row(7).find("14.00+").expect("ready of web") as u16;
        (row(0), buffer[(at, 7)].style())
    };
    let (first, style) = painted(true);
    assert_eq!(first.trim_end(), screen.lines[0].text());
    assert_eq!(style.fg, Some(Color::Yellow));
    let (_, style) = painted(false);
    assert_eq!(style.fg, Some(Color::Reset));
    assert!(style.add_modifier.contains(Modifier::BOLD), "still marked");
}

#[test]
fn rows_are_sorted_filtered_and_expanded_as_asked() {
    assert_eq!(names(&mut state("")), ["/prod", "Database", "web", "system"]);
    assert_eq!(names(&mut state("R")), ["system", "/prod", "web", "Database"]);
    assert_eq!(names(&mut state("N")), ["system", "/prod", "web", "Database"]);
    assert_eq!(names(&mut state("Rr")), ["Database", "web", "/prod", "system"]);
    assert_eq!(names(&mut state("<")), ["/prod", "web", "system", "Database"], "by NWLD");
    assert_eq!(names(&mut state("V")), ["Database", "web"]);
    assert_eq!(names(&mut state("/DATA\n")), ["Database"]);
    let mut s = state("V");
    names(&mut s);
    press(&mut s, "2e");
    assert_eq!(names(&mut s), ["Database", "web", "vmx-vcpu-0", "vmx-vcpu-1", "io?[2J"]);
    press(&mut s, "2");
    press(&mut s, "e");
    assert_eq!(names(&mut s), ["Database", "web"], "from a world its group is closed");
    press(&mut s, "l");
    assert_eq!(names(&mut s), ["web"]);
    press(&mut s, "l");
    assert_eq!(names(&mut s).len(), 2);
}

#[test]
fn the_cursor_stays_on_its_row_when_rows_are_sorted_anew() {
    let mut s = state("");
    names(&mut s);
    press(&mut s, "2");
    let at = |s: &mut State| {
        let screen = shown(s, 140, 40);
        let line = screen.lines.iter().find(|l| l.cursor).expect("a cursor").text();
        line[7..].split_whitespace().next().unwrap_or_default().to_owned()
    };
    assert_eq!(at(&mut s), "Database");
    press(&mut s, "r");
    assert_eq!(at(&mut s), "Database");
    press(&mut s, "R");
    assert_eq!(at(&mut s), "system", "who sorts wants to see the first");
}

#[test]
fn fields_are_switched_and_moved() {
    let header = |s: &mut State| {
        text(&shown(s, 200, 16)).into_iter().find(|l| l.contains("NAME")).expect("a header")
    };
    let words = |s: &mut State| {
        header(s).split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        words(&mut state("fFaGI ")),
        "GID NAME NWLD SWTCH/s MIG/s QEXP/s WAKE/s %LAT_C %DMD EMIN TIMER/s"
    );
    assert_eq!(words(&mut state("fFH ")), "ID GID NAME NWLD AMIN AMAX ASHRS AUNITS");
    assert_eq!(words(&mut state("fF oEE ")), "ID NWLD GID NAME");
    let fields = text(&shown(&mut state("fG"), 80, 24));
    assert_eq!(fields[1], "Now: ABDEFGhiK");
    assert!(fields.iter().any(|l| l.starts_with("* G  EVENTS/s")), "{fields:?}");
    let without = text(&shown(&mut state("fK "), 140, 16));
    assert!(!without.iter().any(|l| l.contains("PCPU")), "K takes the lines above away");
}

#[test]
fn in_80_columns_what_nobody_knows_makes_room() {
    let lines = text(&shown(&mut state(""), 80, 24));
    let header: Vec<&str> = lines[4].split_whitespace().collect();
    assert_eq!(header.join(" "), "ID NAME NWLD %USED %RUN %WAIT %VMWAIT %RDY %IDLE %CSTP %MLMTD");
    assert!(lines[0].contains("; load: ") || lines[0].chars().count() <= 80, "{}", lines[0]);
    assert!(lines.iter().all(|l| l.chars().count() <= 80), "{lines:#?}");
}

#[test]
fn what_does_not_fit_is_scrolled() {
    let mut s = state("");
    let header = |s: &mut State| text(&shown(s, 50, 24))[4].clone();
    let begin = header(&mut s);
    assert!(begin.ends_with('>') && begin.contains("%USED"), "{begin}");
    s.key(Key::Right);
    s.key(Key::Right);
    let right = header(&mut s);
    assert!(
        !right.contains("%USED")
            && !right.contains("%RUN")
            && right.contains("NAME")
            && right.contains("%RDY"),
        "{right}"
    );
    s.key(Key::Left);
    assert!(header(&mut s).contains("%RUN"));
    let mut s = state("V");
    shown(&mut s, 80, 7);
    let rows = |s: &mut State| text(&shown(s, 80, 7)).join("\n");
    assert!(rows(&mut s).contains("Database") && !rows(&mut s).contains("web"), "{}", rows(&mut s));
    s.key(Key::End);
    assert!(rows(&mut s).contains("web") && !rows(&mut s).contains("Database"), "{}", rows(&mut s));
}

#[test]
fn tiny_and_huge_terminals_are_filled_and_not_overrun() {
    let sample = sample(64, true);
    for (width, height) in [(0, 0), (1, 1), (5, 2), (20, 5), (80, 24), (500, 200)] {
        for keys in ["", "h", "f", "s1", "VRe"] {
            let screen =
                view(&mut state(keys), Some(&sample), &Status::default(), Size { width, height });
            assert_eq!(screen.lines.len(), height, "{width}x{height} {keys}");
            let mut terminal =
                Terminal::new(TestBackend::new(width as u16, height as u16)).expect("a terminal");
            terminal.draw(|f| paint(&screen, f.area(), f.buffer_mut(), true)).expect("drawn");
        }
    }
    let waiting = view(&mut state(""), None, &Status::default(), Size { width: 80, height: 24 });
    assert!(waiting.lines[0].text().contains("waiting for the first sample"));
}

#[test]
fn large_hosts_are_wrapped_or_summed_up() {
    let head = |pcpus, smt, width, height| {
        let sample = sample(pcpus, smt);
        let lines =
            text(&view(&mut state(""), Some(&sample), &Status::default(), Size { width, height }));
        lines
            .into_iter()
            .filter(|l| l.contains("UTIL") || l.starts_with("       "))
            .collect::<Vec<_>>()
    };
    let sixteen = head(16, true, 80, 24);
    assert!(
        sixteen[0].starts_with("PCPU UTIL(%):   0.0   7.0")
            && sixteen[1].trim_start().starts_with("63.0"),
        "{sixteen:?}"
    );
    assert!(
        sixteen.iter().any(|l| l.starts_with("CORE UTIL(%):   7.0  21.0  35.0")),
        "{sixteen:?}"
    );
    let large = head(256, false, 80, 24);
    assert_eq!(large.len(), 1);
    let begin = "PCPU UTIL(%): AVG:  49.4  MIN: 0.0 (#0)  MAX: 100.0 (#72)  256 in all, ";
    assert!(large[0].starts_with(begin), "{large:?}");
    assert!(head(64, false, 160, 60)[0].matches(' ').count() > 20, "whole where there is room");
}

#[test]
fn help_tells_keys_columns_thresholds_and_what_to_do() {
    let mut s = state("h");
    let mut all = String::new();
    for _ in 0..20 {
        all += &text(&shown(&mut s, 100, 24))[..23].join("\n");
        all.push('\n');
        s.key(Key::PageDown);
    }
    let words = all.split_whitespace().collect::<Vec<_>>().join(" ");
    for wanted in [
        "expand the highlighted group",
        "%RDY (% of one pCPU): yellow above 5, red above 10",
        "%CSTP (% of one pCPU): red above 3",
        "CPU load average 1 (1.00 = host full): yellow above 0.80, red above 1.00",
        "Take vCPUs away.",
        "N%L (% of its memory): red below 80",
        "NHN (NUMA nodes) Home nodes of the VM",
        "NO_COLOR",
    ] {
        assert!(words.contains(wanted), "{wanted}");
    }
    s.key(Key::Char('x'));
    assert!(text(&shown(&mut s, 100, 24))[0].contains("load average"), "any key leads back");
}

#[test]
fn a_pool_of_a_batch_file_is_marked_for_as_many_vcpus_as_it_may_have() {
    let live = sample(4, false);
    let mut writer = esxtop::BatchWriter::new(vec![], "esx01");
    writer.write(&live.rates).expect("written");
    let file = esxtop::read(&writer.into_inner()[..]).expect("a batch file");
    let rates = esxtop::Recorded::new(file).rates(0).expect("a sample");
    let rows = |sample: &Sample| {
        let status = Status::default();
        let size = Size { width: 160, height: 24 };
        let lines = text(&view(&mut state(""), Some(sample), &status, size));
        let row = |name: &str| {
            let line = lines.iter().find(|l| l.contains(name)).expect("the row").clone();
            line[line.find(name).expect("the name")..]
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        ["/prod", "web", "Database"].map(row)
    };
    let (seen, want) = (rows(&Sample { rates, up_ns: 0 }), rows(&live));
    assert_eq!(seen, want);
    // 21 of three vCPUs is more than 5 of each and not more than 10, 4 is not more than 3 of each.
    assert!(want[0].contains(&"21.00+".to_owned()) && want[0].contains(&"4.00".to_owned()));
}

#[test]
fn the_foot_says_what_is_asked_for_and_what_was_wrong() {
    let foot = |s: &mut State| text(&shown(s, 100, 24)).pop().expect("a foot");
    assert!(foot(&mut state("s2.5")).starts_with("Interval in seconds (0.1 to 3600): 2.5_"));
    assert!(
        foot(&mut state("s0\n"))
            .starts_with("interval: cannot set '0': allowed 0.1 to 3600 seconds")
    );
    let mut recorded = state("").not_live();
    for c in ['s', '0'] {
        recorded.key(Key::Char(c));
    }
    assert!(foot(&mut recorded).starts_with("Interval in seconds (0.001 to 3600): 0_"));
    assert!(foot(&mut state("s2.5\nV/we\n")).contains("| 2.5 s | by %USED | VMs only | with 'we'"));
    assert!(foot(&mut state("x")).starts_with("Key 'x' does nothing; h shows the keys."));
    assert!(foot(&mut state("mU")).starts_with("This panel has no %USED"));
}

#[test]
fn the_memory_panel_has_homes_and_places_of_vms() {
    let mut state = state("em");
    let lines = text(&shown(&mut state, 100, 16));
    assert_eq!(lines[1], "NUMA /MB: 16384 (11264), 16384 (11264)");
    let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(3), "ID GID NAME MEMSZ NHN NMIG NRMEM NLMEM N%L");
    assert_eq!(words(4), "11 11 web 4096.00 0,1 7.00 1024.00 3072.00 75.00!");
    assert_eq!(words(5), "12 12 Database 1024.00 - - - - -", "it has no home");
    assert_eq!(words(6), "", "neither pools nor, though it is expanded, worlds");
    let narrow = text(&shown(&mut state, 34, 16));
    assert_eq!(narrow[1..3], ["NUMA /MB: 16384 (11264)", "          16384 (11264)"]);
    press(&mut state, "e");
    assert!(state.message.as_ref().is_some_and(|m| m.contains("CPU panel")));
    press(&mut state, "R");
    assert!(state.message.as_ref().is_some_and(|m| m.starts_with("This panel has no %RDY")));
    press(&mut state, "fG\nrc");
    assert!(text(&shown(&mut state, 140, 16)).iter().any(|l| l.contains("%RDY")));
    press(&mut state, "m");
    assert!(!text(&shown(&mut state, 100, 16)).iter().any(|l| l.contains("N%L")));
    assert_eq!(names(&mut state), ["Database", "web"], "the other way round");
}
