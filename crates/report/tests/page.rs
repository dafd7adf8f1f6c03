//! What is around the numbers: which files belong together, names that are no markup, what to look
//! at, the policy of the page.

use crate::common;

use common::*;
use report::{Given, Options, PairError, Source, pair};
use views::{RunResult, Times, Where};

fn json(name: &str, runs: Vec<RunResult>) -> Given {
    Given { label: None, files: vec![(name.to_owned(), Source::Documents(vec![document(runs)]))] }
}

fn traced(name: &str, a: &str) -> Given {
    Given { label: None, files: vec![(name.to_owned(), Source::Trace(Box::new(trace(events(a)))))] }
}

/// Files of each run, and whether it has a document and a trace.
fn shape(given: Vec<Given>) -> Vec<(Vec<String>, bool, bool)> {
    paired(given).into_iter().map(|r| (r.files, r.document.is_some(), r.trace.is_some())).collect()
}

fn files(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

#[test]
fn a_trace_goes_to_the_run_that_has_its_vms() {
    let given = vec![
        json("x.json", vec![result("other", "")]),
        traced("t", "a"),
        json("y.json", vec![result("a", "")]),
    ];
    assert_eq!(
        shape(given),
        [(files(&["x.json"]), true, false), (files(&["y.json", "t"]), true, true)]
    );
}

#[test]
fn a_trace_that_no_run_has_the_vms_of_is_a_run_of_its_own_where_it_was_given() {
    let given =
        vec![traced("t", "stranger"), json("x.json", vec![result("a", "")]), traced("u", "a")];
    assert_eq!(shape(given), [(files(&["t"]), false, true), (files(&["x.json", "u"]), true, true)]);
}

#[test]
fn of_several_runs_with_the_same_vms_the_one_with_the_same_file_name_is_meant() {
    let given = || {
        vec![json("dir.d/one.json", vec![result("a", "")]), json("two.json", vec![result("a", "")])]
    };
    let named = given().into_iter().chain([traced("dir.d/one.trace", "a")]).collect();
    assert_eq!(shape(named)[0].0, files(&["dir.d/one.json", "dir.d/one.trace"]));
    let unnamed = given().into_iter().chain([traced("t", "a")]).collect();
    let error = pair(unnamed, &[]).unwrap_err();
    assert_eq!(error, PairError::Ambiguous { trace: "t".to_owned(), runs: 2 });
    assert!(
        error.to_string().ends_with("choose a run by --run, or give both as RUN.json,t"),
        "{error}"
    );
}

#[test]
fn of_a_document_with_several_runs_some_may_be_chosen() {
    let runs = || vec![result("a", "1:7"), result("a", "7:1")];
    let chosen = pair(vec![json("x", runs()), traced("t", "a")], &files(&["7:1"])).unwrap();
    assert_eq!(
        chosen
            .iter()
            .map(|r| (r.document.as_ref().unwrap().1.label.as_str(), r.trace.is_some()))
            .collect::<Vec<_>>(),
        [("7:1", true)]
    );
    let none = pair(vec![json("x", runs())], &files(&["2:2"])).unwrap_err().to_string();
    assert_eq!(none, "--run 2:2: cannot find it: allowed '1:7', '7:1'");
    let mut together = json("x", runs());
    together.files.extend(traced("t", "a").files);
    let many = pair(vec![together], &[]).unwrap_err().to_string();
    assert!(
        many.starts_with(
            "x,t: cannot put them together: seen 2 runs and 1 traces, allowed one run and one trace"
        ),
        "{many}"
    );
}

#[test]
fn runs_are_called_by_what_tells_them_apart() {
    let named = |given| {
        report::build(paired(given), &Options::default())
            .runs
            .into_iter()
            .map(|r| r.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        named(vec![json("x", vec![result("a", "1:7"), result("a", "7:1")])]),
        ["1:7", "7:1"]
    );
    assert_eq!(named(vec![json("x", vec![result("a", "")])]), ["run 1"]);
    assert_eq!(
        named(vec![json("x", vec![result("a", "")]), json("y", vec![result("a", "")])]),
        ["x", "y"]
    );
    let labelled =
        |l: &str| Given { label: Some(l.to_owned()), ..json("x", vec![result("a", "")]) };
    assert_eq!(named(vec![labelled("before"), labelled("after")]), ["before", "after"]);
    assert_eq!(named(vec![labelled("twice"), labelled("twice")]), ["twice", "twice (2)"]);
    let mut lab = document(vec![result("a", "")]);
    (lab.place, lab.policy) = (Where::Lab, "eevdf".to_owned());
    let lab = Given { label: None, files: vec![("l".to_owned(), Source::Documents(vec![lab]))] };
    assert_eq!(named(vec![json("x", vec![result("a", "")]), lab]), ["sim", "lab"]);
}

#[test]
fn a_name_that_looks_like_markup_stays_a_name() {
    let options =
        Options { title: Some(EVIL.to_owned()), command: EVIL.to_owned(), ..Options::default() };
    let (_, html) = made(vec![both(EVIL)], &options);
    assert_eq!(
        html.matches("</script").count(),
        2,
        "the block of numbers and the script end once each"
    );
    assert!(!html.contains("<img"), "no markup of a name");
    assert_eq!(
        block(&html)["runs"][0]["result"]["vms"][0]["name"],
        EVIL,
        "and it is still the name"
    );
    assert!(html.contains(
        "<title>&lt;/script&gt;&lt;img src=x \
        onerror=document.title=&#39;owned&#39;&gt; · Tandem</title>"
    ));
}

#[test]
fn the_page_refers_to_nothing_outside_of_it() {
    let (_, html) = made(vec![both("a")], &Options::default());
    for (at, _) in html.match_indices("http") {
        let rest = &html[at..];
        let harmless =
            rest.starts_with("http-equiv=") || rest.starts_with("http://www.w3.org/2000/svg'");
        assert!(harmless, "{}", &rest[..rest.len().min(60)]);
    }
    for word in [
        " src=",
        "@import",
        "url(",
        "fetch(",
        "XMLHttpRequest",
        "innerHTML",
        "eval(",
        " style=\"",
        " onclick=\"",
    ] {
        assert!(!html.contains(word), "{word}");
    }
    let policy = html
        .split("Content-Security-Policy\" content=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    let rules: Vec<&str> = policy.split("; ").map(|r| r.split(' ').next().unwrap()).collect();
    assert_eq!(
        rules,
        ["default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"]
    );
    assert!(
        policy.starts_with("default-src 'none'; script-src 'sha256-") && !policy.contains("unsafe"),
        "{policy}"
    );
}

#[test]
fn the_same_inputs_make_the_same_page() {
    let once = || made(vec![both("a")], &Options::default()).1;
    assert_eq!(once(), once());
}

/// Findings of a document with one VM of these times, each 10 ms of life, on a host that is 42 %
/// busy.
fn found(change: impl Fn(&mut Times)) -> Vec<(&'static str, String)> {
    found_on(change, [8500 * US, 0])
}

/// The same on a host whose pCPUs were busy for so long.
fn found_on(change: impl Fn(&mut Times), busy: [u64; 2]) -> Vec<(&'static str, String)> {
    let mut r = result("a", "");
    r.pcpus.iter_mut().zip(busy).for_each(|(p, ns)| p.busy_ns = ns);
    r.vms.truncate(1);
    let t = &mut r.vms[0].times;
    *t = Times { used_ns: 10 * MS, run_ns: 10 * MS, entitled_ns: 10 * MS, ..Times::default() };
    change(t);
    r.vms[0].worlds[0].times = r.vms[0].times;
    let page = report::build(paired(vec![json("x", vec![r])]), &Options::default());
    page.findings.into_iter().map(|f| (f.level, f.text)).collect()
}

#[test]
fn what_to_look_at_follows_the_thresholds() {
    let waits = |ns: u64| move |t: &mut Times| (t.run_ns, t.ready_ns) = (10 * MS - ns, ns);
    assert_eq!(found(waits(499 * US))[0].0, "good");
    assert_eq!(found(waits(500 * US))[0].0, "warn");
    assert_eq!(found(waits(999 * US))[0].0, "warn");
    let bad = found(waits(MS));
    assert_eq!(bad.len(), 1);
    assert!(
        bad[0].0 == "bad"
            && bad[0].1.starts_with("Ready, waiting for a pCPU: a 10.0 %. Users notice from 10 %"),
        "{bad:?}"
    );
    assert!(
        bad[0].1.ends_with(
            "They got what they are entitled to, but others ran when they wanted to: fewer VMs, or \
                fewer that wake at once, would help."
        ),
        "{bad:?}"
    );
    let full = found_on(waits(MS), [10 * MS; 2]);
    assert!(
        full[0].1.ends_with(
            "They got what they are entitled to: the host is asked for more than it has."
        ),
        "{full:?}"
    );
    let short = found(|t| (t.run_ns, t.used_ns, t.ready_ns) = (9 * MS, 9 * MS, MS));
    assert!(
        short.iter().any(|f| f.1.ends_with("a VM got less than its entitlement.")),
        "{short:?}"
    );
    let below = found(|t| t.used_ns = 9_600 * US);
    assert!(
        below[0].0 == "bad" && below[0].1.starts_with("Below what it is entitled to: a by 4.0 %"),
        "{below:?}"
    );
    assert_eq!(found(|t| t.used_ns = 9_700 * US)[0].0, "good", "3 % is usual");
    let costop = |ns: u64| found(move |t| (t.run_ns, t.costop_ns) = (10 * MS - ns, ns));
    assert_eq!((costop(300 * US)[0].0, costop(310 * US)[0].0), ("good", "bad"));
    let limited = found(|t| (t.run_ns, t.ready_ns, t.limited_ns) = (6 * MS, 4 * MS, 4 * MS));
    assert_eq!(
        limited,
        [("note", "Held back by a limit, its own or a pool's: a 40.0 % of the time.".to_owned())]
    );
}

#[test]
fn runs_in_which_nothing_stands_out_are_one_finding() {
    let calm = |label: &str| {
        let mut r = result("a", label);
        r.vms.truncate(1);
        let t =
            Times { used_ns: 10 * MS, run_ns: 10 * MS, entitled_ns: 10 * MS, ..Times::default() };
        (r.vms[0].times, r.vms[0].worlds[0].times) = (t, t);
        r
    };
    let found = |runs| report::build(paired(vec![json("x", runs)]), &Options::default()).findings;
    let three = found(vec![calm("1"), result("a", "2"), calm("3")]);
    assert_eq!(
        three.iter().map(|f| (f.level, f.run)).collect::<Vec<_>>(),
        [("bad", Some(1)), ("bad", Some(1)), ("note", Some(1)), ("good", None)]
    );
    assert!(three[3].text.starts_with("Nothing stands out in 2 runs: "), "{}", three[3].text);
    assert_eq!(found(vec![calm("1")])[0].run, Some(0));
}

#[test]
fn a_missing_input_is_named_with_what_would_provide_it() {
    let mut r = result("a", "");
    r.vms.iter_mut().for_each(|v| v.times.entitled_ns = 0);
    let page = report::build(paired(vec![json("x", vec![r])]), &Options::default());
    let said: Vec<_> = page.runs[0].missing.iter().map(|m| (m.what, m.how.as_str())).collect();
    let trace = "record it: tandem sim pair --seed 7 --trace FILE; then give both: tandem report \
        RUN.json,FILE";
    assert_eq!(said, [("trace", trace), ("entitled", "measure again without --no-check")]);
}

#[test]
fn runs_that_are_ever_busier_are_drawn_as_ready_time_against_utilisation() {
    let run = |label: &str, used: u64| {
        let mut r = result("a", label);
        r.vms.truncate(1);
        r.vms[0].times.used_ns = used;
        r
    };
    let sweep = |runs| report::build(paired(vec![json("x", runs)]), &Options::default()).sweep;
    let rising = sweep(vec![run("1 VM", 2 * MS), run("2 VMs", 8 * MS), run("3 VMs", 16 * MS)]);
    assert_eq!((rising.axes[rising.best].name.as_str(), rising.y), ("host used", "ready"));
    assert_eq!(rising.axes[0].values, [10.0, 40.0, 80.0]);
    assert_eq!(
        (rising.axes[1].name.as_str(), &rising.axes[1].values),
        ("VMs", &vec![1.0, 2.0, 3.0])
    );
    let even = sweep(vec![run("1 VM", 8 * MS), run("2 VMs", 8 * MS), run("3 VMs", 8 * MS)]);
    assert_eq!((even.axes[even.best].name.as_str(), even.y), ("VMs", "used"));
    let nameless = sweep(vec![run("1:7", 8 * MS), run("7:1", 8 * MS), run("4:4", 8 * MS)]);
    assert_eq!(nameless.axes[nameless.best].name, "run");
}
