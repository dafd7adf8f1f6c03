//! `tandem schema`: prints the JSON schema of a document that Tandem writes, for programs that read
//! it; it checks no document.

use crate::{Failure, say};

/// Prints the JSON schema of a document that Tandem writes; its `$id` ends with the version.
#[derive(clap::Args)]
pub struct Args {
    /// The document: result (docs/result.md).
    document: Documented,
}

/// Documents that have a schema.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Documented {
    /// The result document of 'tandem sim --json', 'tandem top --json' and the lab.
    Result,
}

/// Runs `tandem schema`.
///
/// # Errors
/// Only when the output cannot be written.
pub fn main(args: &Args) -> Result<(), Failure> {
    match args.document {
        Documented::Result => say::json(&views::result_schema())?,
    }
    Ok(())
}
