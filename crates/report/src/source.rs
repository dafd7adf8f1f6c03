//! The type of a file, detected by its content and not by its name: a result document, several, or
//! a trace; it judges no number.

use trace::{ReadError, Trace};
use views::Document;

/// What a file holds.
#[derive(Debug)]
pub enum Source {
    /// One result document, or an array of them.
    Documents(Vec<Document>),
    /// A trace of one run.
    Trace(Box<Trace>),
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// It looks like JSON and is no result document.
    #[error(
        "{name}: cannot read it as a result document: {cause}; allowed is what `--json` of `tandem \
            sim`, `tandem top` or `cargo xtask lab` writes"
    )]
    Json {
        /// The file.
        name: String,
        /// Why.
        cause: serde_json::Error,
    },
    /// A document without a run.
    #[error(
        "{name}: cannot report it: seen a document without runs, allowed one or more; measure again"
    )]
    Empty {
        /// The file.
        name: String,
    },
    /// It is no trace either.
    #[error("{name}: cannot read it as a trace: {cause}")]
    Trace {
        /// The file.
        name: String,
        /// Why.
        cause: ReadError,
    },
}

/// Finds out what `bytes` are; `name` is for errors.
///
/// # Errors
/// `SourceError` if they are neither documents nor a trace.
pub fn read(name: &str, bytes: &[u8]) -> Result<Source, SourceError> {
    let first = bytes.iter().find(|b| !b.is_ascii_whitespace());
    match first {
        Some(b'{') => one(name, bytes).map(|d| Source::Documents(vec![d])),
        Some(b'[') => {
            let all: Vec<Document> = parse(name, bytes)?;
            if all.is_empty() || all.iter().any(|d| d.runs.is_empty()) {
                return Err(SourceError::Empty { name: name.to_owned() });
            }
            Ok(Source::Documents(all))
        }
        _ => {
            let loaded = trace::load(bytes)
                .map_err(|cause| SourceError::Trace { name: name.to_owned(), cause })?;
            Ok(Source::Trace(Box::new(loaded.trace)))
        }
    }
}

fn parse<'a, T: serde::Deserialize<'a>>(name: &str, bytes: &'a [u8]) -> Result<T, SourceError> {
    serde_json::from_slice(bytes)
        .map_err(|cause| SourceError::Json { name: name.to_owned(), cause })
}

fn one(name: &str, bytes: &[u8]) -> Result<Document, SourceError> {
    let document: Document = parse(name, bytes)?;
    if document.runs.is_empty() {
        return Err(SourceError::Empty { name: name.to_owned() });
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = r#"{"scenario":"a","where":"sim","policy":"tandem","seed":1,"runs":[]}"#;
    const ONE: &str = r#"{"scenario":"a","where":"sim","policy":"tandem","seed":1,"runs":[{"label":"","duration_ns":5,
        "host":{"pcpus":1,"cores":1,"llcs":1,"nodes":1,"sockets":1},"pcpus":[],"pools":[],"vms":[]}]}"#;

    #[test]
    fn content_and_not_the_name_says_what_a_file_is() {
        assert!(
            matches!(read("x.trace", ONE.as_bytes()), Ok(Source::Documents(d)) if d.len() == 1)
        );
        assert!(
            matches!(read("x", format!(" \n[{ONE},{ONE}]").as_bytes()), Ok(Source::Documents(d)) if d.len() == 2)
        );
        let trace = trace::Writer::new(vec![]).unwrap().finish().unwrap();
        assert!(matches!(read("x.json", &trace), Ok(Source::Trace(t)) if t.events.is_empty()));
    }

    #[test]
    fn what_cannot_be_used_is_said_with_the_file_and_the_next_step() {
        let said = |text: &str| read("a.json", text.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            said(EMPTY),
            "a.json: cannot report it: seen a document without runs, allowed one or more; measure \
                again"
        );
        assert_eq!(said("[]"), said(EMPTY));
        assert!(
            said("{\"x\":1}").starts_with(
                "a.json: cannot read it as a result document: missing field `scenario`"
            ),
            "{}",
            said("{\"x\":1}")
        );
        let neither = "a.json: cannot read it as a trace: trace: cannot read it, neither as a \
            trace nor as a log: ";
        assert!(said("no").starts_with(neither), "{}", said("no"));
    }
}
