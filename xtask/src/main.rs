//! `cargo xtask`: the repository's own commands; each is a thin wrapper around a library that does the work.

mod experiment_commands;
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
    Demo(experiment_commands::Demo),
    Lab(experiment_commands::Run),
    LabFetch(lab_commands::Fetch),
    LabSmoke(experiment_commands::Smoke),
    LabShell(lab_commands::Shell),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Task::Demo(arguments) => experiment_commands::demo(&arguments),
        Task::Lab(arguments) => experiment_commands::run(&arguments),
        Task::LabSmoke(arguments) => experiment_commands::smoke(&arguments),
        Task::LabFetch(arguments) => lab_commands::fetch(&arguments),
        Task::LabShell(arguments) => lab_commands::shell(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(error.exit_code())
    })
}
