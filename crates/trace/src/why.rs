//! States of a world and the reasons for a change, with the names and numbers that every format
//! uses; it judges none of them.

use schemars::JsonSchema;
use serde::Serialize;

/// Declares an enum with a stable number and a name for each variant, and both ways back.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant = $code,)*
        }

        impl $name {
            /// Every variant.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// Its number in files and raw records, which stays.
            #[must_use]
            pub fn code(self) -> u8 {
                self as u8
            }

            /// The variant of a number; none if no variant has it.
            #[must_use]
            pub fn of_code(code: u64) -> Option<$name> {
                Self::ALL.iter().copied().find(|v| u64::from(v.code()) == code)
            }

            /// Its name in logs and tables.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// The variant of a name; none if no variant has it.
            #[must_use]
            pub fn of_name(name: &str) -> Option<$name> {
                Self::ALL.iter().copied().find(|v| v.name() == name)
            }
        }
    };
}

named! {
    /// Run state of a world (VS51 "Terminology"); numbers are those of `enum world_state` in
    /// `sched/abi/records.h`.
    State {
        /// Not there: not yet, or no longer.
        None = 0, "NONE";
        /// On a pCPU.
        Run = 1, "RUN";
        /// Waiting for a pCPU.
        Ready = 2, "READY";
        /// Co-stopped, so that its siblings catch up.
        Costop = 3, "COSTOP";
        /// Blocked on a resource.
        Wait = 4, "WAIT";
        /// A halted vCPU.
        WaitIdle = 5, "WAIT_IDLE";
    }
}

named! {
    /// Why a world changed its state.
    Why {
        /// Unknown.
        Unknown = 0, "UNKNOWN";
        /// Its quantum ended.
        Quantum = 1, "QUANTUM";
        /// A world with an earlier deadline took the pCPU.
        Preempted = 2, "PREEMPTED";
        /// It slept of its own accord.
        Slept = 3, "SLEPT";
        /// It was woken.
        Woken = 4, "WOKEN";
        /// It gave the pCPU away.
        Yielded = 5, "YIELDED";
        /// A limit parks it.
        Parked = 6, "PARKED";
        /// A limit lets it go.
        Released = 7, "RELEASED";
        /// It was moved to another pCPU.
        Migrated = 8, "MIGRATED";
        /// It had waited too long and ran whatever its deadline.
        Rescued = 9, "RESCUED";
        /// Its deadline was the earliest.
        Picked = 10, "PICKED";
        /// Its siblings are behind.
        Skewed = 11, "SKEWED";
        /// It came to be.
        Born = 12, "BORN";
        /// It is gone.
        Gone = 13, "GONE";
        /// No change: its present state, as at the start of a recording.
        Told = 14, "TOLD";
        /// Its siblings have caught up.
        CaughtUp = 15, "CAUGHT_UP";
        /// A task of a higher scheduling class, such as a real-time task, took the pCPU.
        Taken = 16, "TAKEN";
    }
}

named! {
    /// Why a world went to another pCPU.
    Move {
        /// Unknown; RDY prints no other.
        Other = 0, "OTHER";
        /// Its waker's pCPU or one near it was chosen.
        Wake = 1, "WAKE";
        /// An idle or less busy pCPU took it.
        Pull = 2, "PULL";
        /// Two worlds changed places.
        Swap = 3, "SWAP";
        /// Its allowed pCPUs changed.
        Affinity = 4, "AFFINITY";
        /// It shared a core while a whole one idled.
        Spread = 5, "SPREAD";
        /// Its home is another node now.
        Home = 6, "HOME";
    }
}

named! {
    /// What a kick does to a pCPU.
    Kick {
        /// Wakes an idle pCPU.
        Idle = 0, "IDLE";
        /// Interrupts what runs there.
        Preempt = 1, "PREEMPT";
    }
}

named! {
    /// What a world is.
    Role {
        /// A host task.
        Host = 0, "HOST";
        /// A vCPU.
        Vcpu = 1, "VCPU";
        /// Another thread of a VM.
        Helper = 2, "HELPER";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back_to_the_variant() {
        for s in State::ALL {
            assert_eq!(
                (State::of_code(u64::from(s.code())), State::of_name(s.name())),
                (Some(*s), Some(*s))
            );
        }
        for w in Why::ALL {
            assert_eq!(
                (Why::of_code(u64::from(w.code())), Why::of_name(w.name())),
                (Some(*w), Some(*w))
            );
        }
        assert_eq!(
            (State::of_code(6), State::of_code(256), Why::of_name("quantum"), Move::of_code(7)),
            (None, None, None, None)
        );
    }

    #[test]
    fn states_have_the_numbers_of_the_schedulers_records() {
        let codes: Vec<(u8, &str)> = State::ALL.iter().map(|s| (s.code(), s.name())).collect();
        assert_eq!(
            codes,
            [(0, "NONE"), (1, "RUN"), (2, "READY"), (3, "COSTOP"), (4, "WAIT"), (5, "WAIT_IDLE")]
        );
    }
}
