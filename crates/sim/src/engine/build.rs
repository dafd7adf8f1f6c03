//! Builds the engine of a run, with all its rooms.

use super::{Engine, Stats, hardware};
use crate::agenda::Agenda;
use crate::books::Books;
use crate::cast::{self, Cast};
use crate::clock::{Clock, Lateness};
use crate::delays::Delays;
use crate::kernel::Kernel;
use crate::mutant::Mutant;
use crate::numa::{self, Numa};
use crate::options::Options;
use crate::planner::Planner;
use crate::realtime::Realtime;
use crate::terms::scheduler_terms;
use crate::truth::Truth;
use crate::watch::Watch;
use check::{CoreSharing, SchedulerTerms};
use contract::{Scheduler, Task};
use dice::Stream;
use sched_core::Knobs;
use settings::{Change, PlacedPool, Run};
use units::{PcpuSet, Span};

/// What a run is built from.
pub(crate) struct Terms<'r> {
    pub(crate) run: &'r Run,
    pub(crate) options: &'r Options,
    pub(crate) seed: u64,
    pub(crate) duration: Span,
    pub(crate) knobs: &'r Knobs,
    pub(crate) pools: Vec<PlacedPool>,
    /// Settings that are to change.
    pub(crate) changes: Vec<Change>,
}

impl<P: Scheduler> Engine<P> {
    /// The engine of a run under this scheduler.
    pub(crate) fn new(policy: P, terms: Terms<'_>) -> Engine<P> {
        let (spec, topology) = (&terms.run.spec, &terms.run.topology);
        let (seed, pcpus, worlds) = (terms.seed, topology.pcpus(), cast::count(spec));
        let given = Some(terms.knobs.system_shares as u32).filter(|shares| *shares > 0);
        let system_shares = given.unwrap_or(1000 * pcpus as u32);
        let truth = Truth::new(worlds, spec.vms.len() + 1, topology);
        let mut watch = Watch::new(topology, worlds, held_to(&terms));
        spec.numa().into_iter().for_each(|n| watch.home_terms(numa::terms(n)));
        let lateness = Lateness {
            most_ns: spec.host.timer_late.ns(),
            random: Stream::new(seed, "timers of the host"),
        };
        let ticks = (terms.options.ticks, 1_000_000_000 / u64::from(spec.host.hz));
        let (mut numa, memory): (Option<Numa>, _) =
            Numa::new(spec, topology, worlds, terms.options.policy.mutant()).unzip();
        if let Some(numa) = &mut numa {
            numa.set_charge(topology, terms.knobs.divided_charge());
        }
        let tasks = (0..worlds as u32).map(|world| Task { world, ..Task::ZERO });
        Engine {
            policy,
            kernel: Kernel::new(pcpus, worlds, Stream::new(seed, "the scheduler's own")),
            tasks: tasks.collect(),
            clock: Clock::new((pcpus, worlds), ticks, terms.duration.ns(), lateness),
            cause: (None, 0),
            books: Books::new(truth, watch, worlds),
            cast: Cast::new(spec, &terms.pools, system_shares, seed),
            agenda: Agenda::new(spec, &terms.changes),
            planner: Planner::new(
                terms.pools,
                terms.changes,
                PcpuSet::first(pcpus),
                given,
                (topology.places().iter().map(|p| p.core).collect(), terms.knobs.divided_charge()),
            ),
            realtime: Realtime::new(&spec.realtime, pcpus, seed),
            hardware: hardware::build(spec, topology).map(|h| h.with_memory(memory)),
            numa,
            stats: Stats::default(),
            costs: terms.options.costs,
            delays: Delays::new(&spec.host, (pcpus, worlds), seed),
            deaf: terms.options.policy.mutant() == Some(Mutant::LostKick),
            start: None,
            looks: None,
        }
    }
}

/// What the oracle holds the run to, if there is one.
fn held_to(terms: &Terms<'_>) -> Option<SchedulerTerms> {
    let (host, options) = (&terms.run.spec.host, terms.options);
    let cosched = |t: SchedulerTerms| t.cosched.filter(|_| options.policy.is_tandem());
    options.check.then(|| scheduler_terms(terms.knobs, host.hz)).map(|t| SchedulerTerms {
        timer_late: host.timer_late,
        idle_exit: host.idle_exit.map_or(Span::ZERO, |[_, most]| most),
        spread: t.spread.filter(|_| options.policy.is_tandem()),
        cores: t.cores.filter(|_| options.policy.is_tandem()),
        sharing: if options.policy.is_tandem() { t.sharing } else { CoreSharing::Any },
        cosched: cosched(t),
        ..t
    })
}
