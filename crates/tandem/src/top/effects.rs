//! Options of `tandem top` that would have no effect in the form that the others ask for.

use super::Args;
use crate::{Exit, Failure, say};

/// Refuses an option that has no effect, and says with what it has one.
///
/// # Errors
/// `Exit::Usage` for the first.
pub(super) fn refuse(args: &Args) -> Result<(), Failure> {
    if args.once && args.json && !args.is_live() {
        let next = match &args.sim {
            Some(name) => format!(", or make one by: tandem sim {} --json -", say::quoted(name)),
            None => String::new(),
        };
        let text = format!(
            "--once --json: cannot use it here: seen {}, of which there are samples and no result \
                document, allowed of this host; take --json -n 1 for one sample{next}",
            if args.file.is_some() { "--file" } else { "--sim" }
        );
        return Err(Failure::new(Exit::Usage, anyhow::anyhow!(text)));
    }
    let tables = args.wants_tables();
    let lines = !tables && (args.batch || args.json);
    const TABLES: &str = "tables of this host";
    let useless = [
        ("--worlds", args.worlds && lines, "tables and screens"),
        ("--pools", args.pools && !tables, TABLES),
        ("--settings", args.settings && !tables, TABLES),
        ("--step", args.step.is_some() && !tables, TABLES),
        ("--filter", !args.filter.is_empty() && tables, "screens, --batch and --json"),
        ("--panel", args.panel.is_some() && lines, "screens"),
        ("--pace", args.pace.is_some() && args.is_live(), "--sim and --file"),
        ("--fast", args.fast && args.is_live(), "--sim and --file"),
        ("--count", args.count.is_some() && args.once && args.json, "--once without --json"),
    ];
    let Some((option, _, with)) = useless.into_iter().find(|u| u.1) else { return Ok(()) };
    let form = match (tables, lines) {
        (true, _) => TABLES,
        (_, true) => "lines of samples",
        _ => "a screen",
    };
    let text = format!(
        "{option}: cannot use it here: seen {form}, on which it has no effect, allowed with \
            {with}; leave it out"
    );
    Err(Failure::new(Exit::Usage, anyhow::anyhow!(text)))
}
