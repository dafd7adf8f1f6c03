//! All tests of the planner in one program, linked once; each file has a subject.

mod heap;
mod host;
mod llcs;
mod planner;
mod roam;
mod rounds;
