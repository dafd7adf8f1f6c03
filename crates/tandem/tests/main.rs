//! All tests of the command line in one program, linked once;
//! each file has a subject.

mod apart;
mod inputs;
mod metrics;
mod numa;
mod output;
mod perfetto;
mod reader_gone;
mod report;
mod reproduce;
mod said;
mod schema;
#[cfg(feature = "live")]
mod signals;
mod sim_names;
mod top;
mod top_screen;
mod trace;
mod vnuma;
