//! A figure of several points as a curve: what was published, what is allowed and what was
//! measured, from the first point to the last. It judges nothing.

use crate::{Point, page::short};
use report::escape;
use std::fmt::Write;

/// Fewer points are no curve.
const LEAST: usize = 4;
/// Width of a figure, where its axes begin and end, in px.
const WIDE: f64 = 1000.0;
const X: (f64, f64) = (70.0, 930.0);
const Y: (f64, f64) = (190.0, 14.0);

/// Draws points of one figure and unit; nothing where these are too few, or where one was not
/// measured.
pub(crate) fn curve(out: &mut String, points: &[Point]) {
    let measured: Option<Vec<f64>> = points.iter().map(|p| p.measured).collect();
    let Some(measured) = measured.filter(|m| m.len() >= LEAST) else { return };
    if points.iter().any(|p| p.policy != points[0].policy) {
        return;
    }
    let all = points.iter().flat_map(|p| {
        let beside = p.beside.iter().filter_map(|b| b.measured);
        p.allowed.into_iter().chain(p.published).chain(p.measured).chain(beside)
    });
    let (least, most) = all.fold((0.0_f64, f64::MIN), |(a, b), n| (a.min(n), b.max(n)));
    if most <= least {
        return;
    }
    let x = |i: usize| X.0 + (X.1 - X.0) * i as f64 / (points.len() - 1) as f64;
    let y = |n: f64| Y.0 + (Y.1 - Y.0) * (n - least) / (most - least);
    let (figure, unit) = (escape(&points[0].figure), escape(&points[0].unit));
    let _ = write!(
        out,
        "<svg class=\"figure\" viewBox=\"0 0 {WIDE} 220\" role=\"img\" aria-label=\"{figure}, as a \
         curve\">"
    );
    grid(out, [least, f64::midpoint(least, most), most], &y, &unit);
    let line = |numbers: &[(usize, f64)]| {
        let at = |(i, n): &(usize, f64)| format!("{:.1} {:.1}", x(*i), y(*n));
        format!("M{}", numbers.iter().map(at).collect::<Vec<_>>().join("L"))
    };
    let numbered = |of: &dyn Fn(&Point) -> Option<f64>| -> Vec<(usize, f64)> {
        (0..).zip(points).filter_map(|(i, p)| Some((i, of(p)?))).collect()
    };
    let (low, mut band) = (numbered(&|p| Some(p.allowed[0])), numbered(&|p| Some(p.allowed[1])));
    band.reverse();
    let _ = write!(
        out,
        "<path class=\"band\" d=\"{}z\"/>",
        line(&low.into_iter().chain(band).collect::<Vec<_>>())
    );
    let mut policies: Vec<&str> =
        points.iter().flat_map(|p| &p.beside).map(|b| b.policy.as_str()).collect();
    policies.sort_unstable();
    policies.dedup();
    for policy in policies {
        let of = |p: &Point| p.beside.iter().find(|b| b.policy == policy)?.measured;
        let _ = write!(
            out,
            "<path class=\"curve beside\" d=\"{}\"><title>{}</title></path>",
            line(&numbered(&of)),
            escape(policy)
        );
    }
    let _ = write!(
        out,
        "<path class=\"curve measured\" d=\"{}\"/>",
        line(&measured.into_iter().enumerate().collect::<Vec<_>>())
    );
    for (i, p) in points.iter().enumerate() {
        point(out, p, (x(i), &y), &p.what[shared(points)..]);
    }
    out.push_str("</svg>");
}

/// Lines of the vertical axis, with their numbers.
fn grid(out: &mut String, of: [f64; 3], y: &impl Fn(f64) -> f64, unit: &str) {
    for n in of {
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1}\" y2=\"{:.1}\"/><text \
             class=\"soft\" text-anchor=\"end\" x=\"{}\" y=\"{:.1}\">{} {unit}</text>",
            X.0,
            X.1,
            y(n),
            y(n),
            X.0 - 8.0,
            y(n) + 4.0,
            short(n)
        );
    }
}

/// What was published and measured of a point, and its name below.
fn point(out: &mut String, p: &Point, (x, y): (f64, &impl Fn(f64) -> f64), name: &str) {
    let unit = escape(&p.unit);
    if let Some(n) = p.published {
        let (x, y) = (x - 6.0, y(n));
        let _ = write!(out, "<path class=\"published\" d=\"M{x:.1} {y:.1}l6 -6l6 6l-6 6z\"/>");
    }
    let (class, n) = (if p.holds { "measured" } else { "missed" }, p.measured.unwrap_or(0.0));
    let _ = write!(
        out,
        "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}: {} {unit}\
         </title></circle><text class=\"soft\" text-anchor=\"middle\" x=\"{x:.1}\" \
         y=\"212\">{}</text>",
        y(n),
        escape(&p.what),
        short(n),
        escape(name)
    );
}

/// How long the beginning is that the names of all points share, up to a space.
fn shared(points: &[Point]) -> usize {
    let first = points[0].what.as_str();
    let same = |p: &Point| first.bytes().zip(p.what.bytes()).take_while(|(a, b)| a == b).count();
    let bytes = points.iter().map(same).min().unwrap_or(0);
    first.as_bytes()[..bytes].iter().rposition(|b| *b == b' ').map_or(0, |i| i + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Beside;

    fn points(count: usize) -> Vec<Point> {
        let point = |i: usize| Point {
            figure: "VS51 figure 3".to_owned(),
            page: "19".to_owned(),
            what: format!("shares {i}:7"),
            published: (i != 1).then_some(i as f64),
            says: None,
            allowed: [i as f64 - 0.5, i as f64 + 0.5],
            unit: "s".to_owned(),
            policy: "tandem".to_owned(),
            measured: Some(i as f64),
            spread: None,
            by_seed: vec![],
            holds: i != 2,
            beside: vec![Beside {
                policy: "esx-5.1".to_owned(),
                measured: Some(i as f64 + 0.25),
                spread: None,
            }],
        };
        (0..count).map(point).collect()
    }

    #[test]
    fn four_points_are_a_curve_with_what_was_published_on_it() {
        let drawn = |points: &[Point]| {
            let mut out = String::new();
            curve(&mut out, points);
            out
        };
        assert_eq!(drawn(&points(3)), "");
        let seen = drawn(&points(4));
        assert_eq!(seen.matches("class=\"published\"").count(), 3, "{seen}");
        assert_eq!(seen.matches("<circle class=\"missed\"").count(), 1);
        assert!(seen.contains("<title>esx-5.1</title>") && seen.contains(">2:7</text>"), "{seen}");
        // From the first point to the last, the largest at the top: 3.5 of the band's.
        assert!(seen.contains("class=\"curve measured\" d=\"M70.0 168.0L356.7 124.0L"), "{seen}");
        let mut other = points(4);
        other[2].policy = "cfs".to_owned();
        assert_eq!(drawn(&other), "", "two policies are two curves");
        other = points(4);
        other[3].measured = None;
        assert_eq!(drawn(&other), "");
    }
}
