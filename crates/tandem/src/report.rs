//! `tandem report`: reads results and traces, and writes one page for a browser; `crates/report`
//! decides its contents.

use crate::{
    Exit, Failure,
    apart::{Named, apart},
    output::Output,
    say::{self, quoted},
};
use ::report::{Given, Options, Source};
use anyhow::Context;
use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};
use units::Span;

/// Draws results and traces as one page that works offline: map, state times, entitlement, ready
/// times, timeline, comparison.
#[derive(clap::Args)]
#[command(
    after_help = "A RUN is a result document (--json of tandem sim or cargo xtask lab, of tandem \
        top --once on a live host), a trace (--trace of tandem sim), or both joined by a comma. \
        LABEL= is its name on the page. A single trace belongs to the run with the same VMs \
        (docs/report.md)."
)]
pub struct Args {
    /// Results, traces or both: [LABEL=]FILE[,FILE]; '-' is standard input.
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<String>,
    /// The page to write, or '-' for standard output.
    #[arg(long, short, value_name = "FILE|-")]
    output: PathBuf,
    /// Heading of the page [default: the scenario's name].
    #[arg(long)]
    title: Option<String>,
    /// Only the runs with this label, of documents with several; may be repeated.
    #[arg(long, value_name = "LABEL")]
    run: Vec<String>,
    /// Show traces from this time after their start on [default: the end of the warm-up].
    #[arg(long, value_name = "TIME")]
    from: Option<Span>,
    /// Show traces up to this time after their start.
    #[arg(long, value_name = "TIME")]
    to: Option<Span>,
    /// Longest idle time of a pCPU during a wait that is not judged wrong.
    #[arg(long, value_name = "TIME", default_value = "100us")]
    brief: Span,
}

/// Runs `tandem report`.
///
/// # Errors
/// `Exit::Input` for files that cannot be used, `Exit::Usage` for an empty part, `Exit::Other` if
/// the page cannot be written, `Exit::Damaged` when it was written and a part of a trace is
/// missing.
pub fn main(args: &Args) -> Result<(), Failure> {
    let (from, to) = (args.from.map(Span::ns), args.to.map(Span::ns));
    if let Some((a, b)) = args.from.zip(args.to).filter(|(a, b)| a >= b) {
        let error = anyhow::anyhow!(
            "--from {a} --to {b}: cannot show that part: seen an empty one, allowed --from before \
                --to"
        );
        return Err(Failure::new(Exit::Usage, error));
    }
    let names: Vec<&str> = args.runs.iter().flat_map(|r| split(r).1).collect();
    let read: Vec<Named<'_>> = names.iter().map(|name| ("a RUN", Path::new(name))).collect();
    apart(&read, &[("--output", &args.output)])?;
    let output = Output::open_or_stdout(&args.output, "the page")?;
    let given = args.runs.iter().map(|r| given(r)).collect::<Result<Vec<_>, _>>()?;
    let lengths = given.iter().flat_map(|g| &g.files).filter_map(|(_, source)| match source {
        Source::Trace(trace) => Some(Span::from_ns(trace.length_ns())),
        Source::Documents(_) => None,
    });
    if let Some((from, end)) = args.from.zip(lengths.max()).filter(|(from, end)| from > end) {
        let error = anyhow::anyhow!(
            "--from {from}: cannot show that part: seen an empty one, allowed up to {end}, where \
                the longest trace ends"
        );
        return Err(Failure::new(Exit::Usage, error));
    }
    let damage = given.iter().flat_map(|g| &g.files).find_map(|(name, source)| match source {
        Source::Trace(trace) => trace.damage_of(name),
        Source::Documents(_) => None,
    });
    let runs = ::report::pair(given, &args.run).map_err(|e| Failure::new(Exit::Input, e))?;
    let options = Options {
        title: args.title.clone(),
        command: command(std::env::args().skip(1)),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        from_ns: from,
        to_ns: to,
        brief_ns: args.brief.ns(),
        ..Options::default()
    };
    let page = ::report::build(runs, &options);
    let text = ::report::page(&page);
    let told = !output.is_stdout();
    output.write(&text)?;
    if !told {
        return whole(damage);
    }
    let runs =
        if page.runs.len() == 1 { "1 run".to_owned() } else { format!("{} runs", page.runs.len()) };
    let path = args.output.display();
    say::line(&format!("{path}: {runs}, {:.1} MB; open it in a browser", text.len() as f64 / 1e6))?;
    whole(damage)
}

fn whole(damage: Option<String>) -> Result<(), Failure> {
    damage.map_or(Ok(()), |text| Err(Failure::new(Exit::Damaged, anyhow::anyhow!(text))))
}

/// Files of a RUN. What is the name of a file as it stands is that file.
fn given(run: &str) -> Result<Given, Failure> {
    let (label, names) = split(run);
    if names.contains(&"") {
        let allowed = "[LABEL=]FILE[,FILE]";
        let error =
            anyhow::anyhow!("RUN '{run}': seen the empty name of a file, allowed {allowed}");
        return Err(Failure::new(Exit::Input, error));
    }
    let files = names.into_iter().map(file).collect::<Result<_, _>>()?;
    Ok(Given { label: label.map(str::to_owned), files })
}

/// The label and the names of the files of a RUN.
fn split(run: &str) -> (Option<&str>, Vec<&str>) {
    if is_file(run) {
        return (None, vec![run]);
    }
    let (label, rest) = match run.split_once('=') {
        Some((label, rest)) if !label.is_empty() => (Some(label), rest),
        _ => (None, run),
    };
    (label, if is_file(rest) { vec![rest] } else { rest.split(',').collect() })
}

fn is_file(name: &str) -> bool {
    name == "-" || Path::new(name).exists()
}

fn file(name: &str) -> Result<(String, Source), Failure> {
    let mut bytes = vec![];
    let (shown, read) = if name == "-" {
        let mut input = files::Bounded::new(io::stdin().lock(), files::PIPE_MAX);
        ("standard input", input.read_to_end(&mut bytes).map(drop))
    } else {
        (name, files::bytes(Path::new(name)).map(|b| bytes = b))
    };
    let next = "name a result document, a trace, or both joined by a comma";
    read.with_context(|| format!("{shown}: cannot read it; {next}"))
        .map_err(|e| Failure::new(Exit::Input, e))?;
    let source = ::report::read(shown, &bytes).map_err(|e| Failure::new(Exit::Input, e))?;
    Ok((shown.to_owned(), source))
}

/// The command line as it can be typed again.
fn command(words: impl Iterator<Item = String>) -> String {
    let quoted = words.map(|w| quoted(&w));
    std::iter::once("tandem".to_owned()).chain(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_typed_again() {
        let words = ["report", "a b.json", "it's", "", "x=1.json,1.trace"].map(str::to_owned);
        assert_eq!(
            command(words.into_iter()),
            r"tandem report 'a b.json' 'it'\''s' '' x=1.json,1.trace"
        );
    }
}
