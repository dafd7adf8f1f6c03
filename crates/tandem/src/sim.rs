//! `tandem sim`: runs a scenario in the simulated host.

use crate::Failure;

/// Runs a scenario in the simulated host.
#[derive(clap::Args)]
pub struct Args {
    /// Scenario.
    scenario: String,
}

pub fn main(args: &Args) -> Result<(), Failure> {
    let _ = &args.scenario;
    Ok(())
}
