//! All tests of the trace in one program, linked once;
//! each file has a subject.

mod common;
mod export;
mod file;
mod fuzz;
mod log;
mod rdy;
mod waits;
