//! The scenarios that are there, and those whose name is near one that is not.

use std::{fs, path::Path};

/// The folder that holds scenarios by name.
pub(crate) const FOLDER: &str = "scenarios";
/// Names that are given for one that is not there.
const NEAR_MAX: usize = 3;
/// Likeness from which a name is near: 1 for the same name, 0 for one that shares no letter.
const NEAR: f64 = 0.85;

/// Name and title of each scenario below `scenarios/`, by name; the title is empty where the file
/// has none. Scenarios that are refused otherwise are there too.
#[must_use]
pub fn scenarios() -> Vec<(String, String)> {
    let title = |name: &String| {
        let text = fs::read_to_string(Path::new(FOLDER).join(name).join("scenario.toml")).ok()?;
        let table: toml::Table = text.parse().ok()?;
        Some(table.get("title")?.as_str()?.to_owned())
    };
    names().into_iter().map(|n| (title(&n).unwrap_or_default(), n)).map(|(t, n)| (n, t)).collect()
}

/// Names of the folders below `scenarios/` that hold a scenario, in order.
fn names() -> Vec<String> {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let held = entries.filter(|e| e.path().join("scenario.toml").is_file());
    let mut names: Vec<String> = held.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// Scenarios whose name is near `wanted`, the nearest first.
pub(crate) fn near(wanted: &str) -> Vec<String> {
    nearest(wanted, names())
}

fn nearest(wanted: &str, names: Vec<String>) -> Vec<String> {
    let like = |n: String| (strsim::jaro_winkler(wanted, &n), n);
    let mut found: Vec<(f64, String)> = names.into_iter().map(like).collect();
    found.retain(|(likeness, _)| *likeness >= NEAR);
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().take(NEAR_MAX).map(|(_, n)| n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_near_come_nearest_first_and_others_not_at_all() {
        let names = || ["demo", "shares-active", "shares-ratio", "shares-ratio-2x2x2", "sleepers"];
        let near = |wanted| nearest(wanted, names().map(str::to_owned).to_vec());
        assert_eq!(near("shares-rato"), ["shares-ratio", "shares-ratio-2x2x2", "shares-active"]);
        assert_eq!(near("sleeper"), ["sleepers"]);
        assert_eq!(near("dmeo"), ["demo"]);
        assert_eq!(near("no-such-scenario"), [""; 0]);
    }
}
