//! Run states of a world, their legal transitions and the time spent in each; it decides no
//! scheduling.

/// Run state of a world (VS51 "Terminology", spec W2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// On a pCPU.
    Run,
    /// Waiting for a pCPU.
    Ready,
    /// Co-stopped, so that its siblings catch up.
    Costop,
    /// Blocked on a resource, or not yet started.
    Wait,
    /// A halted vCPU.
    WaitIdle,
}

impl State {
    /// Whether the world asks for CPU time: what the ideal counts as demand.
    #[must_use]
    pub fn is_runnable(self) -> bool {
        matches!(self, State::Run | State::Ready | State::Costop)
    }

    /// Whether VS51 lets a world go from this state to `next`: READY → RUN → READY, COSTOP, WAIT
    /// or WAIT_IDLE; COSTOP → READY; a wake-up leads to READY, from where it is dispatched.
    #[must_use]
    pub fn may_become(self, next: State) -> bool {
        match self {
            State::Run => next != State::Run,
            State::Ready => next == State::Run,
            State::Costop | State::Wait | State::WaitIdle => next == State::Ready,
        }
    }

    /// The name that VS51 gives it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Run => "RUN",
            State::Ready => "READY",
            State::Costop => "COSTOP",
            State::Wait => "WAIT",
            State::WaitIdle => "WAIT_IDLE",
        }
    }
}

/// Time a world has spent in each state, in ns. The five do not overlap: their sum is its lifetime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateTimes {
    /// Time in RUN.
    pub run_ns: u64,
    /// Time in READY.
    pub ready_ns: u64,
    /// Time in COSTOP.
    pub costop_ns: u64,
    /// Time in WAIT, without WAIT_IDLE.
    pub wait_ns: u64,
    /// Time in WAIT_IDLE.
    pub wait_idle_ns: u64,
}

impl StateTimes {
    /// Adds time in one state.
    pub fn add(&mut self, state: State, ns: u64) {
        *self.of(state) += ns;
    }

    /// Time in all states.
    #[must_use]
    pub fn lifetime_ns(&self) -> u64 {
        self.run_ns + self.ready_ns + self.costop_ns + self.wait_ns + self.wait_idle_ns
    }

    fn of(&mut self, state: State) -> &mut u64 {
        match state {
            State::Run => &mut self.run_ns,
            State::Ready => &mut self.ready_ns,
            State::Costop => &mut self.costop_ns,
            State::Wait => &mut self.wait_ns,
            State::WaitIdle => &mut self.wait_idle_ns,
        }
    }

    /// The first state in which the two differ: name, own time, the other's.
    #[must_use]
    pub fn differs(mut self, mut other: StateTimes) -> Option<(&'static str, u64, u64)> {
        [State::Run, State::Ready, State::Costop, State::Wait, State::WaitIdle]
            .into_iter()
            .find_map(|s| {
                let (a, b) = (*self.of(s), *other.of(s));
                (a != b).then_some((s.name(), a, b))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_transitions_of_vs51_are_legal() {
        let all = [State::Run, State::Ready, State::Costop, State::Wait, State::WaitIdle];
        let legal: Vec<String> = all
            .iter()
            .flat_map(|a| {
                all.iter()
                    .filter(|b| a.may_become(**b))
                    .map(|b| format!("{}>{}", a.name(), b.name()))
            })
            .collect();
        let want = "RUN>READY RUN>COSTOP RUN>WAIT RUN>WAIT_IDLE READY>RUN COSTOP>READY WAIT>READY \
            WAIT_IDLE>READY";
        assert_eq!(legal.join(" "), want);
    }
}
