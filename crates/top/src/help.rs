//! Help: keys, colours, and every counter as declared, with its thresholds and advice; it has no
//! texts of its own for them.

use crate::keys::KEYS;
use crate::line::{Line, Tone};
use esxtop::{COUNTERS, Counter, Panel, Unit};

/// What NHN says, which is no number.
const HOMES: &str = "Home nodes of the VM: that of each of its parts, if it is wide. Above the \
    table, memory of each node in MiB, and what is free of it.";

/// Help for a screen of that width.
pub(crate) fn lines(width: usize) -> Vec<Line> {
    let mut out = vec![
        Line::of("tandem top: esxtop's CPU and memory panels for this host", Tone::Sorted),
        Line::default(),
    ];
    out.push(Line::of("Keys (* not esxtop's, or used otherwise there)", Tone::Sorted));
    for (keys, what) in KEYS {
        paragraph(&mut out, &format!("  {keys:<14}"), what, width, Tone::Plain);
    }
    out.push(Line::default());
    out.push(Line::of("Colours", Tone::Sorted));
    paragraph(&mut out, "  12.34+  ", "yellow: worth a look", width, Tone::Look);
    paragraph(&mut out, "  12.34!  ", "red: people notice", width, Tone::Bad);
    let rest = "Thresholds are for one vCPU: those of a VM or pool are multiplied by its vCPUs. \
        Host tasks have none. A dash is what \
                nobody knows. Where room is short, columns that nobody knows are left out. NO_COLOR=1 in the environment leaves colours out.";
    paragraph(&mut out, "  ", rest, width, Tone::Plain);
    let panels = [
        (Panel::CpuHead, "Above the table"),
        (Panel::Cpu, "Columns of the CPU panel"),
        (Panel::Memory, "Columns of the memory panel"),
    ];
    for (panel, title) in panels {
        out.push(Line::default());
        out.push(Line::of(title, Tone::Sorted));
        for c in COUNTERS.iter().filter(|c| c.panels.contains(&panel)) {
            counter(&mut out, c, width);
        }
    }
    out.push(Line::of("  NHN (NUMA nodes)", Tone::Head));
    paragraph(&mut out, "      ", HOMES, width, Tone::Plain);
    out
}

fn counter(out: &mut Vec<Line>, c: &Counter, width: usize) {
    let number = |v: f64| if c.unit == Unit::Load { format!("{v:.2}") } else { v.to_string() };
    let mut title = format!("  {} ({})", c.column, c.unit.name());
    let marks = [
        (c.thresholds.look, "yellow above"),
        (c.thresholds.bad, "red above"),
        (c.thresholds.least, "red below"),
    ];
    let marks: Vec<String> = marks
        .iter()
        .filter_map(|(limit, mark)| Some(format!("{mark} {}", number((*limit)?))))
        .collect();
    if !marks.is_empty() {
        title += &format!(": {}", marks.join(", "));
    }
    let bad = c.thresholds.bad.or(c.thresholds.least);
    let tone = match (c.thresholds.look, bad) {
        (_, Some(_)) => Tone::Bad,
        (Some(_), None) => Tone::Look,
        (None, None) => Tone::Head,
    };
    out.push(Line::of(title, tone));
    paragraph(out, "      ", c.meaning, width, Tone::Plain);
    paragraph(out, "      ", c.advice, width, Tone::World);
}

/// Words within a width, the first line behind `begin`, the others as far in.
fn paragraph(out: &mut Vec<Line>, begin: &str, text: &str, width: usize, tone: Tone) {
    let indent = " ".repeat(begin.len());
    let mut line = begin.to_owned();
    for word in text.split_whitespace() {
        let some = line.len() > begin.len();
        if some && line.chars().count() + 1 + word.chars().count() > width {
            out.push(Line::of(std::mem::replace(&mut line, indent.clone()), tone));
        } else if some {
            line.push(' ');
        }
        line.push_str(word);
    }
    out.push(Line::of(line, tone));
}
