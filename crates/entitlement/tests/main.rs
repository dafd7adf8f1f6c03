//! All tests of the planner in one program, linked once;
//! each file has a subject.

mod admit;
mod fluid;
mod placed;
mod solver;
mod tree;
mod trees;
