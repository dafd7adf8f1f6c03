//! The workload of a world, described as data.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use units::Span;

/// How a mean time is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Dist {
    /// Always the mean.
    #[default]
    Fixed,
    /// Exponential with that mean, cut at 16 times the mean.
    Exponential,
}

/// The behaviour of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Workload {
    /// Always halted.
    Idle,
    /// Never stops wanting CPU.
    #[default]
    Burn,
    /// RDY's CPU burner: so much CPU work, then a sleep that starts when the work is done.
    Duty {
        /// CPU time of one piece of work.
        work: Span,
        /// Sleep after it.
        sleep: Span,
    },
    /// A piece of work released at every period, whether or not the last one is done.
    Periodic {
        /// Time between releases.
        period: Span,
        /// CPU time of one release.
        work: Span,
    },
    /// An I/O-like sleeper: short work, then a wait for a device.
    Io {
        /// Mean CPU time of one piece of work.
        work: Span,
        /// Mean wait.
        sleep: Span,
        /// How both are spread.
        #[serde(default)]
        dist: Dist,
        /// Whether a vCPU halts meanwhile, or waits in its emulator.
        #[serde(default = "halts")]
        halts: bool,
    },
    /// One of the vCPUs that share the VM's one spinlock: computes, takes the lock, computes with
    /// it, releases it.
    Spinlock {
        /// Mean CPU time of the work outside.
        think: Span,
        /// CPU time that the lock is held for.
        hold: Span,
        /// Whether the first vCPU that waits gets the lock next, even if it does not run; otherwise
        /// a vCPU that runs when the lock is free.
        #[serde(default)]
        ticket: bool,
        /// How `think` is spread.
        #[serde(default)]
        dist: Dist,
    },
    /// One of the vCPUs that wait for each other after each piece of work.
    Barrier {
        /// Mean CPU time of one piece of work.
        work: Span,
        /// How it is spread.
        #[serde(default)]
        dist: Dist,
        /// CPU time that it spins for before it halts until the last has come; it never halts if
        /// left out.
        spin: Option<Span>,
    },
    /// Computes in its guest, then calls its emulator, which computes for it on the same pCPU: a
    /// device that is emulated.
    Exits {
        /// Mean CPU time in the guest before each call.
        work: Span,
        /// CPU time of the emulator in each.
        emulate: Span,
        /// How `work` is spread.
        #[serde(default)]
        dist: Dist,
    },
    /// Works, sends the next vCPU of its VM an interrupt, and spins until that one has handled it.
    Ipi {
        /// Mean CPU time of one piece of work.
        work: Span,
        /// CPU time that handling takes.
        handle: Span,
        /// How `work` is spread.
        #[serde(default)]
        dist: Dist,
    },
    /// One of the host tasks that pass a token round a ring of pipes: the task with the token
    /// works, wakes the next task synchronously, and sleeps until the token comes back. vCPUs of
    /// several VMs do the same: each wakes the vCPU of its own number in the next VM.
    Pipe {
        /// Mean CPU time of one piece of work, system calls included.
        work: Span,
        /// How it is spread.
        #[serde(default)]
        dist: Dist,
        /// Number of tasks or VMs in each ring, 2 or more; `count` is a multiple of it.
        #[serde(default = "pair")]
        ring: u32,
    },
}

/// What a guest does while a device works.
fn halts() -> bool {
    true
}

/// A ring of a writer and a reader.
fn pair() -> u32 {
    2
}

impl Workload {
    /// Whether it waits for other vCPUs of its VM.
    #[must_use]
    pub fn has_siblings(&self) -> bool {
        matches!(self, Workload::Spinlock { .. } | Workload::Barrier { .. } | Workload::Ipi { .. })
    }

    /// Its name in a scenario.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Workload::Idle => "idle",
            Workload::Burn => "burn",
            Workload::Duty { .. } => "duty",
            Workload::Periodic { .. } => "periodic",
            Workload::Io { .. } => "io",
            Workload::Spinlock { .. } => "spinlock",
            Workload::Barrier { .. } => "barrier",
            Workload::Exits { .. } => "exits",
            Workload::Ipi { .. } => "ipi",
            Workload::Pipe { .. } => "pipe",
        }
    }

    /// Reasons why this workload cannot be run, each without its object's name.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let mut out = vec![];
        let mut at_least_us = |what: &str, span: Span| {
            if span.ns() < 1_000 {
                out.push(format!("workload.{what}: seen {span}, allowed 1us or more"));
            }
        };
        match *self {
            Workload::Idle | Workload::Burn => {}
            Workload::Duty { work, sleep } | Workload::Io { work, sleep, .. } => {
                at_least_us("work", work);
                at_least_us("sleep", sleep);
            }
            Workload::Periodic { period, work } => {
                at_least_us("period", period);
                at_least_us("work", work);
            }
            Workload::Spinlock { think, hold, .. } => {
                at_least_us("think", think);
                at_least_us("hold", hold);
            }
            // A barrier that halts at once spins for 0.
            Workload::Barrier { work, .. } | Workload::Pipe { work, .. } => {
                at_least_us("work", work);
            }
            Workload::Exits { work, emulate, .. } => {
                at_least_us("work", work);
                at_least_us("emulate", emulate);
            }
            Workload::Ipi { work, handle, .. } => {
                at_least_us("work", work);
                at_least_us("handle", handle);
            }
        }
        out
    }
}

/// A window of time in which a workload is active, written `5s..20s`; either side may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Start, from the start of the run.
    pub from: Span,
    /// End; `None` is the end of the run.
    pub to: Option<Span>,
}

impl Serialize for Window {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.to {
            Some(to) => s.collect_str(&format_args!("{}..{to}", self.from)),
            None => s.collect_str(&format_args!("{}..", self.from)),
        }
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Window, D::Error> {
        let text = String::deserialize(d)?;
        let bad = || {
            D::Error::custom(format!(
                "window: cannot read '{text}': allowed FROM..TO as in '5s..20s', '..20s' or '5s..'"
            ))
        };
        let (from, to) = text.split_once("..").ok_or_else(bad)?;
        let part = |t: &str| {
            if t.trim().is_empty() {
                Ok(None)
            } else {
                t.parse::<Span>().map(Some).map_err(D::Error::custom)
            }
        };
        let window = Window { from: part(from)?.unwrap_or(Span::ZERO), to: part(to)? };
        if window.to.is_some_and(|t| t <= window.from) { Err(bad()) } else { Ok(window) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ScenarioError, raw::parse};

    fn scenario(rest: &str) -> Result<crate::Scenario, ScenarioError> {
        parse("t.toml", "t", &format!("[host]\ncores_per_llc = 4\n{rest}\n"))
    }

    /// Why a VM of two vCPUs with these keys is refused.
    fn refused(keys: &str) -> Vec<String> {
        match scenario(&format!("[[vm]]\nname = 'a'\nvcpus = 2\n{keys}")) {
            Err(ScenarioError::Invalid { reasons, .. }) => reasons,
            other => panic!("{keys}: {other:?}"),
        }
    }

    #[test]
    fn vcpus_that_wait_for_each_other_are_read_with_their_defaults_and_written_as_read() {
        let kinds = [
            "{ kind = 'spinlock', think = '20us', hold = '5us' }",
            "{ kind = 'spinlock', think = '20us', hold = '5us', ticket = false, dist = \
                'exponential' }",
            "{ kind = 'barrier', work = '1ms' }",
            "{ kind = 'barrier', work = '1ms', spin = '0s', dist = 'exponential' }",
            "{ kind = 'ipi', work = '1ms', handle = '5us' }",
            "{ kind = 'exits', work = '1ms', emulate = '5us', dist = 'exponential' }",
        ];
        let text = format!(
            "[[vm]]\nname = 'a'\nvcpus = 6\nwatchdog = '20ms'\nvcpu_workloads = [{}]",
            kinds.join(", ")
        );
        let spec = scenario(&text).expect("it is read").runs.remove(0).spec;
        let (think, hold, ms) = (Span::from_ns(20_000), Span::from_ns(5_000), Span::from_ms(1));
        let lock = |dist| Workload::Spinlock { think, hold, ticket: false, dist };
        let barrier = |spin, dist| Workload::Barrier { work: ms, spin, dist };
        let all = [
            lock(Dist::Fixed),
            lock(Dist::Exponential),
            barrier(None, Dist::Fixed),
            barrier(Some(Span::ZERO), Dist::Exponential),
            Workload::Ipi { work: ms, handle: hold, dist: Dist::Fixed },
            Workload::Exits { work: ms, emulate: hold, dist: Dist::Exponential },
        ];
        assert_eq!(spec.vms[0].vcpu_workloads.as_deref(), Some(&all[..]));
        assert_eq!(spec.vms[0].watchdog, Some(Span::from_ms(20)));
        assert!(
            all[..5].iter().all(Workload::has_siblings)
                && !all[5].has_siblings()
                && !Workload::Burn.has_siblings()
        );
        let written = toml::to_string(&spec).expect("it is written");
        let again = parse("t.toml", "t", &written).expect("it is read again").runs.remove(0).spec;
        assert_eq!(again.vms[0].vcpu_workloads, spec.vms[0].vcpu_workloads);
    }

    /// Why so many host tasks with these keys are refused; nothing if they are not.
    fn refused_tasks(count: u32, workload: &str) -> Vec<String> {
        let text = format!("[[host_task]]\nname = 't'\ncount = {count}\nworkload = {workload}");
        match scenario(&text) {
            Err(ScenarioError::Invalid { reasons, .. }) => reasons,
            Err(other) => panic!("{workload}: {other:?}"),
            Ok(_) => vec![],
        }
    }

    #[test]
    fn rings_of_pipes_are_pairs_by_default_and_only_whole_ones_of_host_tasks_are_taken() {
        let pipe = |keys: &str| format!("{{ kind = 'pipe', work = '5us'{keys} }}");
        let text =
            format!("[[host_task]]\nname = 't'\ncount = 4\nworkload = {}", pipe(", ring = 4"));
        let tasks = scenario(&text).expect("it is read").runs.remove(0).spec.host_tasks;
        let (work, dist) = (Span::from_ns(5_000), Dist::Fixed);
        assert_eq!(tasks.len(), 4);
        assert!(tasks.iter().all(|t| t.workload == Workload::Pipe { work, dist, ring: 4 }));
        assert_eq!(refused_tasks(4, &pipe("")), [""; 0]);
        assert_eq!(
            refused_tasks(3, &pipe("")),
            ["host_task 't': count: seen 3, allowed a multiple of workload.ring (2)"]
        );
        assert_eq!(
            refused_tasks(1, &pipe(", ring = 1")),
            ["host_task 't': workload.ring: seen 1, allowed 2 or more"]
        );
        assert_eq!(
            refused_tasks(2, "{ kind = 'pipe', work = '999ns' }"),
            ["host_task 't': workload.work: seen 999ns, allowed 1us or more"]
        );
    }

    #[test]
    fn vms_pass_tokens_in_whole_rings_of_one_size() {
        let pipe = |ring: u32| format!("{{ kind = 'pipe', work = '5us', ring = {ring} }}");
        let mixed = |a: u32, b: u32| format!("vcpu_workloads = [{}, {}]", pipe(a), pipe(b));
        let of = |text: &str| {
            let text = format!("[[vm]]\nname = 'a'\nvcpus = 2\n{text}\n");
            scenario(&text).map(|mut s| s.runs.remove(0).spec.vms)
        };
        let burns = format!("count = 4\nvcpu_workloads = [{}, {{ kind = 'burn' }}]", pipe(4));
        assert_eq!(of(&burns).expect("it is read").len(), 4);
        assert_eq!(
            refused(&format!("workload = {}", pipe(2))),
            ["vm 'a': count: seen 1, allowed a multiple of workload.ring (2)"]
        );
        assert_eq!(
            refused(&format!("count = 2\nworkload = {}", pipe(1))),
            ["vm 'a': workload.ring: seen 1, allowed 2 or more"]
        );
        assert_eq!(
            refused(&format!("count = 4\n{}", mixed(2, 4))),
            ["vm 'a': vcpu_workloads.ring: seen 2 and 4, allowed one of them: VMs of a ring pass \
                 all their tokens in the same order"]
        );
    }

    #[test]
    fn vcpus_that_cannot_be_added_are_refused_with_the_reason() {
        assert_eq!(
            refused("hot_add = ['0s']"),
            ["vm 'a': hot_add: seen 0s, allowed times after start (0s) and before stop"]
        );
        assert_eq!(
            refused("hot_add = ['1s', '2s']"),
            ["vm 'a': hot_add: seen 2 times, allowed fewer than its 2 vCPUs"]
        );
    }

    #[test]
    fn what_vcpus_that_wait_for_each_other_may_not_be_is_refused_with_its_reason() {
        let of = |kind: &str| refused(&format!("workload = {{ kind = {kind} }}"));
        let short =
            |what: &str| vec![format!("vm 'a': workload.{what}: seen 999ns, allowed 1us or more")];
        assert_eq!(of("'spinlock', think = '999ns', hold = '1us'"), short("think"));
        assert_eq!(of("'spinlock', think = '1us', hold = '999ns'"), short("hold"));
        assert_eq!(of("'barrier', work = '999ns'"), short("work"));
        assert_eq!(of("'ipi', work = '999ns', handle = '1us'"), short("work"));
        assert_eq!(of("'ipi', work = '1us', handle = '999ns'"), short("handle"));
        assert_eq!(of("'exits', work = '999ns', emulate = '1us'"), short("work"));
        assert_eq!(of("'exits', work = '1us', emulate = '999ns'"), short("emulate"));
        assert_eq!(
            refused("watchdog = '999us'"),
            ["vm 'a': watchdog: seen 999us, allowed 1ms or more"]
        );
        let lock = |ticket| {
            format!("{{ kind = 'spinlock', think = '1us', hold = '1us', ticket = {ticket} }}")
        };
        assert_eq!(
            refused(&format!("vcpu_workloads = [{}, {}]", lock(true), lock(false))),
            ["vm 'a': vcpu_workloads.ticket: seen true and false, allowed one of them: a VM has \
                    one lock"]
        );
        for kind in [
            "spinlock', think = '1ms', hold = '1ms'",
            "barrier', work = '1ms'",
            "ipi', work = '1ms', handle = '1ms'",
            "exits', work = '1ms', emulate = '1ms'",
        ] {
            let text =
                scenario(&format!("[[host_task]]\nname = 't'\nworkload = {{ kind = '{kind} }}"))
                    .expect_err("refused")
                    .to_string();
            let name = kind.split('\'').next().unwrap_or("");
            let reason =
                format!("host_task 't': workload.kind: seen '{name}', allowed in a [[vm]] only");
            assert!(text.contains(&reason), "{reason} in {text}");
        }
    }
}
