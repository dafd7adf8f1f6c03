//! `cargo xtask`: the repository's own commands; each is a thin wrapper around a library that does
//! the work.

#![deny(clippy::print_stdout)] // say.rs: it panics without a reader

mod ablate;
mod agree;
mod bench_commands;
mod campaign;
mod ci;
mod drill_commands;
mod experiment_commands;
mod figures;
mod fuzz_commands;
mod history;
mod house;
mod lab_commands;
mod measured;
mod perfetto_fetch;
mod say;
mod simulated;
mod tidy;
mod witness;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// The repository's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    Ablate(ablate::Ablate),
    Agree(agree::Agree),
    Bench(bench_commands::Bench),
    Campaign(campaign::Campaign),
    Ci(ci::Ci),
    Demo(experiment_commands::Demo),
    Fuzz(fuzz_commands::Fuzz),
    House(house::House),
    Lab(experiment_commands::Run),
    LabDrill(drill_commands::RunDrill),
    LabFetch(lab_commands::Fetch),
    LabSmoke(experiment_commands::Smoke),
    LabShell(lab_commands::Shell),
    Measured(measured::Measured),
    PerfettoFetch(perfetto_fetch::Fetch),
    Simulated(simulated::Simulated),
    Tidy(tidy::Tidy),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Task::Ci(arguments) => Ok(ci::main(&arguments, &Arguments::command())),
        Task::Tidy(arguments) => Ok(tidy::main(&arguments, &Arguments::command())),
        Task::Ablate(arguments) => ablate::run(&arguments),
        Task::Agree(arguments) => agree::run(&arguments),
        Task::Bench(arguments) => bench_commands::run(&arguments),
        Task::Campaign(arguments) => campaign::run(&arguments, &Arguments::command()),
        Task::Demo(arguments) => experiment_commands::demo(&arguments),
        Task::House(arguments) => house::run(&arguments),
        Task::Fuzz(arguments) => fuzz_commands::run(&arguments),
        Task::PerfettoFetch(arguments) => perfetto_fetch::run(&arguments),
        Task::Lab(arguments) => experiment_commands::run(&arguments),
        Task::LabSmoke(arguments) => experiment_commands::smoke(&arguments),
        Task::LabDrill(arguments) => drill_commands::run(&arguments),
        Task::LabFetch(arguments) => lab_commands::fetch(&arguments),
        Task::Measured(arguments) => measured::run(&arguments),
        Task::Simulated(arguments) => simulated::run(&arguments),
        Task::LabShell(arguments) => lab_commands::shell(&arguments),
    };
    say::end(result.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(error.exit_code())
    }))
}
