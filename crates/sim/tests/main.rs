//! All tests of the simulator in one program, so that it is linked once: each file has a subject.
//! `hot_path` forks and `ablate` switches mechanisms off: they are programs of their own.

mod cores;
mod cosched;
mod draw;
mod engine;
mod fair_work;
mod gaming;
mod gangs;
mod guests;
mod hardware;
mod homes;
mod host_tasks;
mod hotplug;
mod limit_changes;
mod linux;
mod long_life;
mod looks;
mod many_limits;
mod mutants;
mod numa;
mod overcommit;
mod peers;
mod pinned;
mod placement;
mod planner;
mod policies;
mod random_hosts;
mod random_trees;
mod realtime;
mod scenarios;
mod tasks;
mod text;
mod trace;
mod trace_numbers;
mod wakeups;
mod xen;
