//! All tests of the metrics in one program, linked once;
//! each file has a subject.

mod endpoint;
mod exposition;
