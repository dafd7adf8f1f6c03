//! All tests of the batch files in one program, linked once;
//! each file has a subject.

mod common;
mod damage;
mod read;
mod viewers;
