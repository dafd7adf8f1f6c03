//! All tests of the oracle in one program, linked once;
//! each file has a subject.

mod apart;
mod drift;
mod ideals;
mod invariants;
mod promises;
mod realtime;
