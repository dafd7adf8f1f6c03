//! The scheduler's knobs on the command line.

use crate::{Exit, Failure, say};
use sched_core::{KNOBS, Knob, Knobs};
use std::{collections::BTreeMap, fmt};

/// Lists the scheduler's knobs: name, default, range and meaning.
#[derive(clap::Args)]
pub struct Args {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// A knob for programs.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub(crate) struct Listed {
    /// Its name, as `--set` takes it.
    name: &'static str,
    /// Its default.
    default: u64,
    /// The least that is allowed.
    min: u64,
    /// The most that is allowed.
    max: u64,
    /// Its unit, or `mode`.
    unit: &'static str,
    /// What it does.
    meaning: &'static str,
}

/// The value of the knob `cosched` for strict co-scheduling.
#[cfg(feature = "live")]
const STRICT: u64 = 2;

/// One `--set NAME=VALUE`.
#[derive(Clone, Debug)]
pub struct Setting(pub String, pub u64);

/// Why a `--set` cannot be read.
#[derive(Debug)]
pub enum Unread {
    /// It is no NAME=VALUE.
    Form(String),
    /// No knob has such a value: as a number outside of its range it is refused input.
    Value(String),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unread::Form(text) => write!(
                f,
                "cannot read '{text}': allowed NAME=NUMBER, such as quantum_us=20000, or \
                    cosched=off; 'tandem knobs' lists the names and their values"
            ),
            Unread::Value(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Unread {}

impl std::str::FromStr for Setting {
    type Err = Unread;

    fn from_str(text: &str) -> Result<Setting, Unread> {
        let form = || Unread::Form(text.to_owned());
        let (name, value) = text.split_once('=').ok_or_else(form)?;
        let (name, value) = (name.trim(), value.trim());
        let number = units::knob_value(name, value);
        let number = number.ok_or_else(|| Unread::Value(no_value(name, value)))?;
        Ok(Setting(name.to_owned(), number))
    }
}

/// What is said of a value that is neither a number nor a name.
fn no_value(name: &str, value: &str) -> String {
    let Some(Knob { min, max, unit, default, .. }) = KNOBS.iter().find(|k| k.name == name) else {
        // What is said of a name is not of the value.
        let unknown = Knobs::default().set(name, 0).err();
        return unknown.map_or_else(String::new, |e| e.to_string());
    };
    let modes = units::knob_modes(name);
    let named = if modes.is_empty() { String::new() } else { format!("{} or ", modes.join(", ")) };
    let unit = if modes.is_empty() { format!(" {unit}") } else { String::new() };
    format!(
        "knob '{name}': cannot set '{value}': allowed {named}{min}..{max}{unit}, default {default}"
    )
}

/// The knobs in force: defaults, then the file's, then the command line's.
///
/// # Errors
/// `Exit::Input` for an unknown knob or a value outside its range.
pub fn resolve(file: &BTreeMap<String, u64>, line: &[Setting]) -> Result<Knobs, Failure> {
    let mut knobs = Knobs::default();
    let all = file.iter().map(|(n, v)| (n, *v)).chain(line.iter().map(|s| (&s.0, s.1)));
    for (name, value) in all {
        knobs.set(name, value).map_err(|e| Failure::new(Exit::Input, e))?;
    }
    knobs.check().map_err(|e| Failure::new(Exit::Input, e))?;
    Ok(knobs)
}

/// The same for a live host, whose scheduler has no strict co-scheduling.
///
/// # Errors
/// `Exit::Input` for `cosched=strict` as well.
#[cfg(feature = "live")]
pub fn of_live(file: &BTreeMap<String, u64>, line: &[Setting]) -> Result<Knobs, Failure> {
    let knobs = resolve(file, line)?;
    if knobs.cosched == STRICT {
        return Err(Failure::new(
            Exit::Input,
            anyhow::anyhow!(
                "cosched: cannot be set on a live host: seen strict, allowed off, relaxed; strict \
                 co-scheduling is in the simulator: 'tandem sim NAME --set cosched=strict'"
            ),
        ));
    }
    Ok(knobs)
}

/// Runs `tandem knobs`.
///
/// # Errors
/// Only when the output cannot be written.
pub fn main(args: &Args) -> Result<(), Failure> {
    if args.json {
        let listed = |k: &'static sched_core::Knob| Listed {
            name: k.name,
            default: k.default,
            min: k.min,
            max: k.max,
            unit: k.unit,
            meaning: k.doc,
        };
        say::json(&KNOBS.iter().map(listed).collect::<Vec<_>>())?;
        return Ok(());
    }
    let mut t = views::Table::new(&["<knob", "default", "min", "max", "<unit", "<meaning"]);
    for k in &KNOBS {
        t.row([
            k.name.to_owned(),
            k.default.to_string(),
            k.min.to_string(),
            k.max.to_string(),
            k.unit.to_owned(),
            k.doc.to_owned(),
        ]);
    }
    say::all(&t.text())?;
    Ok(())
}

#[cfg(all(test, feature = "live"))]
mod tests {
    use super::*;

    #[test]
    fn a_live_host_refuses_what_is_in_the_simulator_alone_and_takes_the_rest() {
        let set = |mode: &str| of_live(&BTreeMap::new(), &[mode.parse().expect("a setting")]);
        let refused = set("cosched=strict").expect_err("it is refused");
        assert!(matches!(refused.exit, Exit::Input));
        assert!(refused.error.to_string().starts_with("cosched: cannot be set on a live host"));
        for (mode, value) in [("cosched=off", 0), ("cosched=relaxed", 1)] {
            let taken = set(mode).map_err(|f| f.error).expect("it is taken");
            assert_eq!(taken.cosched, value);
        }
        let taken = set("core_sharing=vm").map_err(|f| f.error).expect("it is taken");
        assert_eq!(taken.core_sharing, 1);
    }
}
