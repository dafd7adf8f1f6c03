//! The simulated host: sched_ext in virtual time around the native build of the scheduler, with
//! workloads, plans and mutants.
//!
//! Data flows one way: `cast` has the VMs and worlds of a scenario, and what each does with CPU
//! time; `engine` takes the next event; `life` powers VMs on and off, by the `agenda`; `plans` does
//! what the daemon does, by the `planner`; `realtime` says when tasks of a higher class take pCPUs;
//! `schedule` does what the kernel does, and calls the scheduler; `kernel` is what the scheduler
//! calls back, and holds it to the contract; `books` has the engine's own accounts, and what the
//! oracle learns; `recorder` writes the trace; `looks` hands out esxtop's counters while a run goes
//! on; `delays` has what a wake-up takes beside the scheduler; `report` reads the accounts into the
//! result document.
//!
//! One seed decides everything: same scenario, options and seed, same bytes. There is no wall
//! clock, no hashed order and no float in any decision.

mod agenda;
mod behaviour;
mod books;
mod cast;
mod chronicle;
mod clock;
mod delays;
mod engine;
mod error;
mod faults;
mod guest;
mod kernel;
mod mutant;
mod numa;
mod options;
mod planner;
mod policies;
mod queues;
mod realtime;
mod recorder;
mod run;
mod terms;
mod timers;
mod truth;
mod watch;

pub use ::contract::{Breach, Feature, Rule};
pub use engine::{EPOCH_UNIX_S, OnLook, Stats, profile};
pub use error::SimError;
pub use mutant::Mutant;
pub use options::{Age, Costs, Options, Ticks};
pub use peers::Peer;
pub use policies::{Policy, PolicyError};
pub use recorder::TraceOut;
pub use run::{
    Outcome, Progress, judge, run, run_scenario, run_scenario_traced, run_traced, run_watched,
};
pub use terms::scheduler_terms;
pub use truth::PcpuTimes;
