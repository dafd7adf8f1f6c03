//! The experiments as one page for a browser: each figure with what was published, what is allowed
//! and what was measured. Nothing on it runs; it is drawn here.

use crate::curve::curve;
use crate::{Experiment, LEAST, PEERS, Point, Work};
use report::{escape, still};
use std::{collections::BTreeMap, fmt::Write};

/// Width of a figure, and where its axis begins and ends, in px.
const WIDE: f64 = 1000.0;
const AXIS: (f64, f64) = (540.0, 850.0);
/// Height of a line.
const LINE: f64 = 26.0;

/// The page.
#[must_use]
pub fn page(experiments: &[Experiment], version: &str, seconds: f64) -> String {
    let points = || experiments.iter().flat_map(|e| &e.points);
    let (all, hold) = (points().count(), points().filter(|p| p.holds).count());
    let missed = experiments.iter().filter(|e| !e.holds()).count();
    let mut body = String::new();
    let verdict = if missed == 0 { "good" } else { "bad" };
    let _ = write!(
        body,
        "<header><p class=\"brand\">Tandem</p><h1>The documents' experiments, done again</h1>\
         <p class=\"lead\">{hold} of {all} published figures are reproduced, by {} scenarios in \
         {seconds:.0} s. The command is <code>tandem reproduce</code>.</p>\
         <ul class=\"findings\"><li class=\"{verdict}\"><b>{}</b><span>{}</span></li></ul></header>\
         <p class=\"keys\"><span class=\"key band\">allowed</span><span class=\"key diamond\">\
         published</span><span class=\"key dot\">measured</span>\
         <span class=\"key miss\">measured, outside</span>\
         <span class=\"key range\">least to most of {} seeds</span></p>",
        experiments.len(),
        if missed == 0 { "all" } else { "miss" },
        if missed == 0 {
            "Every experiment is as published.".to_owned()
        } else {
            let names: Vec<String> =
                experiments.iter().filter(|e| !e.holds()).map(|e| escape(&e.name)).collect();
            format!("Not as published: {}.", names.join(", "))
        },
        points().map(|p| p.by_seed.len()).max().unwrap_or(1),
    );
    work(&mut body, experiments);
    experiments.iter().for_each(|e| experiment(&mut body, e));
    still("The documents' experiments, done again", version, &body)
}

fn experiment(out: &mut String, e: &Experiment) {
    let name = escape(&e.name);
    let hold = e.points.iter().filter(|p| p.holds).count();
    let _ = write!(
        out,
        "<section id=\"{name}\"><h2>{name}</h2><p class=\"tells\">{}<br>{}</p>",
        escape(&e.title),
        escape(&e.source)
    );
    let class = if e.holds() { "good" } else { "bad" };
    let oracle = match e.violations {
        0 => String::new(),
        n => format!("; the oracle found {n} violations"),
    };
    let _ = write!(
        out,
        "<ul class=\"findings\"><li class=\"{class}\"><b>{}</b><span>{hold} of {} figures{oracle}. \
         Run it: <code>tandem reproduce {name}</code></span></li></ul>",
        if e.holds() { "holds" } else { "misses" },
        e.points.len()
    );
    let mut rest = &e.points[..];
    while let Some(first) = rest.first() {
        let same = |p: &Point| p.figure == first.figure && p.unit == first.unit;
        let count = rest.iter().take_while(|p| same(p)).count();
        let (one, more) = rest.split_at(count);
        figure(out, one);
        rest = more;
    }
    out.push_str("</section>\n");
}

/// Points of one figure and unit, on one axis.
fn figure(out: &mut String, points: &[Point]) {
    let first = &points[0];
    let numbers = points
        .iter()
        .flat_map(|p| {
            let [least, most] = p.spread.map_or([None; 2], |s| s.map(Some));
            let all = [Some(p.allowed[0]), Some(p.allowed[1]), p.published, least, most];
            all.into_iter().chain(p.beside.iter().map(|b| b.measured))
        })
        .flatten();
    let (mut least, mut most) = numbers.fold((0.0_f64, f64::MIN), |(a, b), n| (a.min(n), b.max(n)));
    if most <= least {
        (least, most) = (least - 1.0, least + 1.0);
    }
    let at = |n: f64| AXIS.0 + (n - least) / (most - least) * (AXIS.1 - AXIS.0);
    let high = LINE * (points.len() as f64 + 1.6);
    let unit = escape(&first.unit);
    let _ = write!(
        out,
        "<h4>{} <small>{}</small></h4>{}<svg class=\"figure\" viewBox=\"0 0 {WIDE} {high}\" \
         role=\"img\" aria-label=\"{}\">",
        escape(&first.figure),
        escape(&place(&first.page)),
        words(points),
        escape(&first.figure)
    );
    ticks(out, [least, f64::midpoint(least, most), most], &at, (high, &unit));
    for (i, p) in points.iter().enumerate() {
        point(out, p, LINE * (i as f64 + 0.6), &at);
    }
    out.push_str("</svg>");
    curve(out, points);
    beside(out, points);
}

/// A point: its name, what is allowed and was published, what was measured.
fn point(out: &mut String, p: &Point, y: f64, at: &impl Fn(f64) -> f64) {
    let unit = escape(&p.unit);
    let (from, to) = (at(p.allowed[0]), at(p.allowed[1]));
    let by = if p.policy == "tandem" { String::new() } else { format!(" ({})", p.policy) };
    let _ = write!(
        out,
        "<text x=\"0\" y=\"{:.1}\">{}</text><rect class=\"band\" x=\"{from:.1}\" y=\"{:.1}\" \
         width=\"{:.1}\" height=\"14\" rx=\"3\"/>",
        y + 4.0,
        escape(&format!("{}{by}", p.what)),
        y - 7.0,
        (to - from).max(2.0)
    );
    if let Some(n) = p.published {
        let x = at(n);
        let _ =
            write!(out, "<path class=\"published\" d=\"M{:.1} {y:.1}l6 -6l6 6l-6 6z\"/>", x - 6.0);
    }
    let class = if p.holds { "measured" } else { "missed" };
    if let (Some(n), Some([least, most])) = (p.measured, p.spread) {
        let _ = write!(
            out,
            "<path class=\"range {class}\" d=\"M{:.1} {y:.1}H{:.1}\"/><circle class=\"{class}\" \
             cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\"/>",
            at(least),
            at(most),
            at(n)
        );
    }
    for b in &p.beside {
        let Some(n) = b.measured else { continue };
        let _ = write!(
            out,
            "<circle class=\"beside\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"3.5\"><title>{}: {} \
             {unit}</title></circle>",
            at(n),
            escape(&b.policy),
            short(n)
        );
    }
    let said = match (p.measured, p.published) {
        (Some(m), Some(v)) => format!("{} of {}", short(m), short(v)),
        (Some(m), None) => short(m),
        (None, _) => "none".to_owned(),
    };
    let _ = write!(
        out,
        "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\">{said} {unit}</text>",
        AXIS.1 + 20.0,
        y + 4.0
    );
}

/// Where a figure is in its document.
fn place(page: &str) -> String {
    let numbered = page.starts_with(|c: char| c.is_ascii_digit());
    if numbered { format!("page {page}") } else { page.to_owned() }
}

/// What the document says of a figure, each sentence once.
fn words(points: &[Point]) -> String {
    let mut all: Vec<&str> = points.iter().filter_map(|p| p.says.as_deref()).collect();
    all.dedup();
    if all.is_empty() {
        return String::new();
    }
    let quoted: Vec<String> = all.iter().map(|says| format!("“{}”", escape(says))).collect();
    format!("<p class=\"tells\">{}</p>", quoted.join(" · "))
}

/// Numbers of other policies, a table of them below their figure.
fn beside(out: &mut String, points: &[Point]) {
    let mut policies: Vec<&str> =
        points.iter().flat_map(|p| &p.beside).map(|b| b.policy.as_str()).collect();
    policies.sort_unstable();
    policies.dedup();
    if policies.is_empty() {
        return;
    }
    let head: String = policies.iter().map(|p| format!("<th>{}</th>", escape(p))).collect();
    let unit = escape(&points[0].unit);
    let _ = write!(out, "<table><thead><tr><th>beside it, {unit}</th>{head}</tr></thead><tbody>");
    for p in points.iter().filter(|p| !p.beside.is_empty()) {
        let number = |policy: &&str| {
            let of = p.beside.iter().find(|b| b.policy == *policy);
            let text = of.and_then(|b| b.measured).map_or("-".to_owned(), short);
            format!("<td>{text}</td>")
        };
        let numbers: String = policies.iter().map(number).collect();
        let _ = write!(out, "<tr><td>{}</td>{numbers}</tr>", escape(&p.what));
    }
    out.push_str("</tbody></table>");
}

/// Work under Tandem by that under every other policy, an experiment a row, and why it is less
/// where it is.
fn work(out: &mut String, experiments: &[Experiment]) {
    if experiments.iter().all(|e| e.work.is_empty()) {
        return;
    }
    out.push_str(
        "<section id=\"work\"><h2>Work beside the other systems</h2><p class=\"tells\">Work of \
         all VMs under Tandem by that under each policy, of all runs of an experiment together \
         that the policy can do. Runs are two minutes long at most, by one seed.</p>",
    );
    let heads: String = PEERS.iter().map(|p| format!("<th>{p}</th>")).collect();
    let _ = write!(out, "<table><thead><tr><th></th>{heads}</tr></thead><tbody>");
    for e in experiments {
        let cells: String = e.work.iter().map(cell).collect();
        let _ = write!(out, "<tr><td>{}</td>{cells}</tr>", escape(&e.name));
    }
    out.push_str("</tbody></table>");
    let mut lines = String::new();
    for e in experiments {
        // One line for each run and reason, whatever the policies.
        let mut runs: BTreeMap<(&str, Option<&str>), Vec<String>> = BTreeMap::new();
        for (w, l) in e.work.iter().flat_map(|w| w.less.iter().map(move |l| (w, l))) {
            let by = runs.entry((&l.run, l.why.as_deref())).or_default();
            by.push(format!("{} {:.3}", w.policy, l.ratio));
        }
        for ((run, why), by) in runs {
            let run = if run.is_empty() { String::new() } else { format!(", {}", escape(run)) };
            let class = if why.is_some() { "good" } else { "bad" };
            let _ = write!(
                lines,
                "<li class=\"{class}\"><b>{}{run}</b><span>{}: {}</span></li>",
                escape(&e.name),
                by.join(", "),
                escape(why.unwrap_or("not explained"))
            );
        }
    }
    if !lines.is_empty() {
        let _ = write!(
            out,
            "<p class=\"tells\">Runs with less than {LEAST} of another policy's work:</p>\
             <ul class=\"findings\">{lines}</ul>"
        );
    }
    out.push_str("</section>\n");
}

/// Work by that of one policy.
fn cell(w: &Work) -> String {
    let Some(all) = w.all else {
        return format!("<td title=\"it has no {}\">-</td>", escape(&w.lacks.join(", no ")));
    };
    let least = w.less.first().map_or(String::new(), |l| format!(" <small>{:.3}</small>", l.ratio));
    let [done, of] = w.runs;
    let title = if done == of { String::new() } else { format!("{done} of {of} runs") };
    format!("<td title=\"{title}\">{all:.3}{least}</td>")
}

/// Lines of an axis, with their numbers below.
fn ticks(out: &mut String, of: [f64; 3], at: &impl Fn(f64) -> f64, (high, unit): (f64, &str)) {
    for tick in of {
        let x = at(tick);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{:.1}\"/>\
             <text class=\"soft\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{} {unit}</text>",
            high - LINE,
            high - LINE * 0.4,
            short(tick)
        );
    }
}

/// A number with three digits or so.
pub(crate) fn short(n: f64) -> String {
    let text = match n.abs() {
        a if a >= 100.0 => format!("{n:.0}"),
        a if a >= 10.0 => format!("{n:.1}"),
        a if a >= 1.0 || a == 0.0 => format!("{n:.2}"),
        _ => format!("{n:.3}"),
    };
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Beside;

    fn point(what: &str, measured: Option<f64>, holds: bool) -> Point {
        Point {
            figure: "VS51 figure 9".to_owned(),
            page: "22".to_owned(),
            says: Some("by < 10%".to_owned()),
            beside: vec![Beside {
                policy: "eevdf".to_owned(),
                measured: Some(9.25),
                spread: Some([9.0, 9.5]),
            }],
            what: what.to_owned(),
            published: Some(10.0),
            allowed: [8.0, 13.0],
            unit: "%".to_owned(),
            policy: "tandem".to_owned(),
            measured,
            spread: measured.map(|m| [m - 1.0, m + 2.0]),
            by_seed: measured.map_or(vec![None], |m| vec![Some(m - 1.0), Some(m + 2.0)]),
            holds,
        }
    }

    fn drawn(points: Vec<Point>) -> String {
        let e = Experiment {
            name: "x".to_owned(),
            title: "a < b".to_owned(),
            source: String::new(),
            points,
            violations: 0,
            work: vec![],
        };
        page(&[e], "1", 2.0)
    }

    #[test]
    fn what_was_measured_is_beside_what_was_published() {
        let page = drawn(vec![point("one", Some(10.53), true), point("two", Some(20.0), false)]);
        assert!(page.contains("10.5 of 10 %") && page.contains("a &lt; b"), "{page}");
        assert!(page.contains("1 of 2 published figures") && page.contains("Not as published: x."));
        assert_eq!(page.matches("<circle class=\"missed\"").count(), 1);
        assert_eq!(page.matches("class=\"published\"").count(), 2);
        // The axis has what any seed measured: the second goes to its end, and no further.
        assert!(page.contains("least to most of 2 seeds"), "{page}");
        assert_eq!(page.matches("<path class=\"range ").count(), 2);
        assert!(page.contains("H850.0\"/><circle class=\"missed\""), "{page}");
        assert!(page.contains("<small>page 22</small>") && page.contains("“by &lt; 10%”"));
        assert_eq!(page.matches("by &lt; 10%").count(), 1, "the same words once");
        assert_eq!(page.matches("eevdf: 9.25 %").count(), 2);
        assert!(page.contains("<th>eevdf</th>") && page.contains("<td>9.25</td>"));
        assert_eq!(place("slide \"x\""), "slide \"x\"");
        let page = drawn(vec![point("one", None, false)]);
        assert!(page.contains("none %") && !page.contains("<circle class=\"missed"));
        assert!(drawn(vec![point("one", Some(9.0), true)]).contains("Every experiment is as"));
    }

    #[test]
    fn numbers_are_short() {
        let seen = [0.0, 0.0123, 0.9984, 10.53, 123.4, -3.3].map(short);
        assert_eq!(seen, ["0", "0.012", "0.998", "10.5", "123", "-3.3"]);
    }
}
