//! The pCPUs of a host that is loaded: which are on line, and what is to be done when that changes.

use units::PcpuSet;

/// pCPUs as they were seen last.
pub(crate) struct Pcpus {
    /// Those that were on line at the load: the scheduler has a place for these alone.
    known: PcpuSet,
    online: PcpuSet,
}

/// What has changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// Nothing.
    Nothing,
    /// Known pCPUs have come or gone: what there is to say.
    Online(String),
    /// pCPUs have come that the scheduler has no place for: it has to be loaded anew.
    New(PcpuSet),
    /// These went off line while the scheduler was being loaded: it does not know.
    Missed(PcpuSet),
}

impl Pcpus {
    /// A host that was loaded with these.
    pub(crate) fn new(known: PcpuSet) -> Pcpus {
        Pcpus { online: known.clone(), known }
    }

    /// Those that are on line.
    pub(crate) fn online(&self) -> &PcpuSet {
        &self.online
    }

    /// Takes note of what the scheduler has on line and of what the kernel has.
    pub(crate) fn look(&mut self, scheduler: PcpuSet, kernel: &PcpuSet) -> Changed {
        let new = minus(kernel, &self.known);
        if !new.is_empty() {
            return Changed::New(new);
        }
        // The kernel tells the scheduler of a pCPU that goes before it lists it no more, and of one
        // that comes after it lists it.
        let missed = minus(&scheduler, kernel);
        if !missed.is_empty() {
            return Changed::Missed(missed);
        }
        let before = std::mem::replace(&mut self.online, scheduler);
        let (came, gone) = (minus(&self.online, &before), minus(&before, &self.online));
        let said =
            [(came, "on line again"), (gone, "off line")].map(|(set, what)| said(&set, what));
        let said: Vec<String> = said.into_iter().flatten().collect();
        if said.is_empty() {
            return Changed::Nothing;
        }
        let (there, known) = (self.online.len(), self.known.len());
        Changed::Online(format!("{}: {there} of {known} are there now", said.join(", ")))
    }
}

fn minus(all: &PcpuSet, but: &PcpuSet) -> PcpuSet {
    all.iter().filter(|p| !but.contains(*p)).collect()
}

fn said(set: &PcpuSet, what: &str) -> Option<String> {
    match set.len() {
        0 => None,
        1 => Some(format!("pCPU {set} is {what}")),
        _ => Some(format!("pCPUs {set} are {what}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_pcpus_come_and_go_and_a_new_one_asks_for_a_load() {
        let set = |text: &str| text.parse::<PcpuSet>().unwrap();
        let mut pcpus = Pcpus::new(set("0-3"));
        let mut look = |scheduler: &str, kernel: &str| pcpus.look(set(scheduler), &set(kernel));
        assert_eq!(look("0-3", "0-3"), Changed::Nothing);
        // The kernel lists a pCPU that goes for a while yet.
        let gone = "pCPUs 2-3 are off line: 2 of 4 are there now";
        assert_eq!(look("0-1", "0-3"), Changed::Online(gone.to_owned()));
        assert_eq!(look("0-1", "0-1"), Changed::Nothing);
        let swapped = "pCPU 2 is on line again, pCPU 0 is off line: 2 of 4 are there now";
        assert_eq!(look("1-2", "1-2"), Changed::Online(swapped.to_owned()));
        assert_eq!(look("1-2", "1,3"), Changed::Missed(set("2")));
        assert_eq!(look("1-2", "1-2,5"), Changed::New(set("5")));
        assert_eq!(pcpus.online(), &set("1-2"));
    }
}
