//! What the parser of TOML says, in the words of the file's writers: the parser names types of the
//! program, and lists the keys of one table alone.

use toml::de::Error;

/// Keys at the top of a scenario that are taken out before the rest is read.
pub(crate) const APART: [&str; 3] = ["run", "published", "less_work"];

/// Types of the program, and what they allow.
const TYPES: [(&str, &str); 6] = [
    ("u8", "a whole number of 0..255"),
    ("u16", "a whole number of 0..65535"),
    ("u32", "a whole number of 0..4294967295"),
    ("u64", "a whole number, 0 or more"),
    ("i64", "a whole number"),
    ("f64", "a number"),
];

/// The error with its place, without an end of line.
pub(crate) fn said(e: &Error) -> String {
    let text = e.to_string();
    let text = text.trim_end();
    match text.strip_suffix(e.message().trim_end()) {
        Some(place) => format!("{place}{}", plain(e.message().trim_end())),
        // The place follows, as the key in which it was.
        None => text.replacen(e.message(), &plain(e.message()), 1),
    }
}

/// The message without its place.
fn plain(message: &str) -> String {
    let message = message.replace("` as i128", "`").replace("` as u128", "`");
    let message = message.as_str();
    if let Some(seen) = message.strip_suffix(", expected any valid TOML value") {
        return format!("{seen}, allowed numbers up to {}", i64::MAX);
    }
    if message.starts_with("unknown field") && message.contains("expected one of `title`, ") {
        return format!("{message}, {}", APART.map(|key| format!("`{key}`")).join(", "));
    }
    let known = TYPES.iter().find_map(|(name, allowed)| {
        Some(format!("{}, allowed {allowed}", message.strip_suffix(&format!(", expected {name}"))?))
    });
    known.unwrap_or_else(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        _cpus: u32,
    }

    fn error(text: &str) -> String {
        said(&toml::from_str::<File>(text).expect_err("it is refused"))
    }

    #[test]
    fn no_type_of_the_program_is_said_and_the_place_is() {
        for (seen, want) in [
            ("-1", "invalid value: integer `-1`, allowed a whole number of 0..4294967295"),
            ("1.5", "invalid type: floating point `1.5`, allowed a whole number of 0..4294967295"),
            (
                "99999999999999999999",
                "invalid type: integer `99999999999999999999`, allowed a whole number of 0",
            ),
        ] {
            let error = error(&format!("_cpus = {seen}"));
            assert!(error.contains("line 1, column 9") && error.contains(want), "{error}");
            assert!(!error.contains("u32") && !error.contains("i128"), "{error}");
        }
        let table = "a = 99999999999999999999".parse::<toml::Table>().expect_err("it is refused");
        let want = "integer `99999999999999999999`, allowed numbers up to 9223372036854775807";
        assert!(said(&table).ends_with(want), "{}", said(&table));
    }
}
