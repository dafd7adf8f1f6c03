//! All tests of the report in one program, linked once;
//! each file has a subject.

mod browser;
mod common;
mod numbers;
mod page;
