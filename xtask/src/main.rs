//! `cargo xtask`: the repository's own commands; each is a thin wrapper around a library that does the work.

mod lab_commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The repository's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    LabFetch(lab_commands::Fetch),
    LabShell(lab_commands::Shell),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Task::LabFetch(arguments) => lab_commands::fetch(&arguments),
        Task::LabShell(arguments) => lab_commands::shell(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(error.exit_code())
    })
}
