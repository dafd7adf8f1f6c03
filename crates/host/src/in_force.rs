//! Settings in force and how often they were read again, for `run`; what a layout depends on by
//! them, for `follow`. Whether a file is taken over, `reload` decides.

use crate::{
    HostError, Reloaded, SettingsFile, Speed, Trust, Which,
    cgroups::Cgroups,
    discover::{FoundVm, Roots},
    layout::{Known, layout},
    reload::{AGAIN, Reload, Verdict, wall_ns},
    settings_file::of_host,
    slots::Slots,
};
use settings::LiveSettings;
use std::time::Duration;
use units::caps::SHARES_MAX;

/// What outlives a load of the scheduler.
pub(crate) struct Lasting {
    file: Option<SettingsFile>,
    settings: LiveSettings,
    /// The users that the settings trust.
    trust: Trust,
    reloads: u64,
    /// Of these so many were taken over.
    taken: u64,
}

impl Lasting {
    /// Settings at the start, the users that they trust, and their file.
    pub(crate) fn new(settings: LiveSettings, trust: Trust, file: Option<SettingsFile>) -> Lasting {
        Lasting { file, settings, trust, reloads: 0, taken: 0 }
    }
}

/// Settings in force on a host that is loaded.
pub(crate) struct InForce<'a> {
    lasting: &'a mut Lasting,
    speed: Speed,
    /// So many are online.
    pcpus: u32,
    /// The knob; 0: by the number of pCPUs.
    system_shares: u64,
    reloading: Option<Reload>,
}

impl<'a> InForce<'a> {
    /// Settings for so many pCPUs; `system_shares` is the knob.
    pub(crate) fn new(
        lasting: &'a mut Lasting,
        roots: &Roots,
        pcpus: u32,
        system_shares: u64,
    ) -> InForce<'a> {
        let speed = Speed::of(roots, lasting.settings.host.mhz);
        InForce { lasting, speed, pcpus, system_shares, reloading: None }
    }

    /// The settings.
    pub(crate) fn settings(&self) -> &LiveSettings {
        &self.lasting.settings
    }

    /// The users that they trust.
    pub(crate) fn trust(&self) -> &Trust {
        &self.lasting.trust
    }

    /// Which processes are followed.
    pub(crate) fn which(&self) -> Which<'_> {
        Which::Trusted(self.trust(), self.settings())
    }

    /// What a layout depends on.
    pub(crate) fn known(&self) -> Known<'_> {
        self.known_by(self.settings(), self.speed)
    }

    /// The same by other settings.
    fn known_by<'s>(&self, settings: &'s LiveSettings, speed: Speed) -> Known<'s> {
        let InForce { pcpus, system_shares, .. } = *self;
        let system_shares = match system_shares {
            0 => (pcpus * 1000).min(SHARES_MAX as u32),
            n => n as u32,
        };
        Known { settings, speed, pcpus, system_shares }
    }

    /// So many pCPUs are online from now on.
    pub(crate) fn set_pcpus(&mut self, pcpus: u32) {
        self.pcpus = pcpus;
    }

    /// A reload is asked for; one under way begins anew.
    pub(crate) fn ask(&mut self) {
        self.reloading = Some(Reload::new());
    }

    /// How long the loop waits at most while a reload is under way.
    pub(crate) fn again(&self) -> Option<Duration> {
        self.reloading.as_ref().map(|_| AGAIN)
    }

    /// Reads the settings file again if that is due, and takes it over if the VMs can be laid out
    /// by it. Once decided: every reason against the file; none if it is in force.
    pub(crate) fn read_again(&mut self, roots: &Roots, slots: &Slots) -> Option<Vec<String>> {
        let mut reload = self.reloading.take_if(|r| r.is_due())?;
        let found: Vec<FoundVm> = slots.found().cloned().collect();
        let fits = |settings: &LiveSettings| {
            let trust = of_host(settings, roots)?;
            let speed = Speed::of(roots, settings.host.mhz);
            let cgroups = Cgroups::read(roots, &found, settings, &trust);
            layout(&found, &cgroups, &self.known_by(settings, speed)).map(|_| trust)
        };
        match reload.decide(self.lasting.file.as_ref(), self.settings(), &fits) {
            Verdict::Wait => {
                self.reloading = Some(reload);
                None
            }
            Verdict::Refuse(reasons) => Some(reasons),
            Verdict::Take(settings, trust) => {
                self.speed = Speed::of(roots, settings.host.mhz);
                (self.lasting.settings, self.lasting.trust) = (*settings, trust);
                Some(vec![])
            }
        }
    }

    /// Tells what came of a reload: reasons against the file, and the plan in force now.
    pub(crate) fn tell(
        &mut self,
        reasons: Vec<String>,
        generation: u64,
        say: &dyn Fn(&str),
    ) -> Result<(), HostError> {
        let outcome = self.outcome(reasons, generation);
        say(&outcome.said());
        outcome.write()
    }

    /// What came of a reload, which counts from now on.
    fn outcome(&mut self, reasons: Vec<String>, generation: u64) -> Reloaded {
        let ok = reasons.is_empty();
        self.lasting.reloads += 1;
        self.lasting.taken += u64::from(ok);
        Reloaded {
            number: self.lasting.reloads,
            taken: self.lasting.taken,
            time_ns: wall_ns(),
            daemon: std::process::id(),
            generation,
            file: self.lasting.file.as_ref().map(|f| f.path().to_owned()),
            ok,
            reasons,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::MadeUp;
    use std::{fs, time::SystemTime};

    #[test]
    fn a_file_that_is_refused_changes_no_settings_and_reloads_are_counted() {
        let t = MadeUp::new("in-force");
        let path = t.path("tandem.toml");
        let put = |text: &str| {
            t.put("tandem.toml", text.as_bytes());
            let at = SystemTime::now() - Duration::from_secs(5);
            fs::File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
        };
        let file = SettingsFile::of(path.clone(), None);
        let mut lasting = Lasting::new(LiveSettings::default(), Trust::default(), Some(file));
        let mut now = InForce::new(&mut lasting, &t.roots(), 4, 0);
        let seen = |now: &InForce| (now.known().speed.mhz, now.known().system_shares);
        assert_eq!((now.read_again(&t.roots(), &Slots::default()), now.again()), (None, None));
        put("[host]\nmhz = 3000\n[[vm]]\nname = \"web\"\nshares = 0\n");
        now.ask();
        let refused = now.read_again(&t.roots(), &Slots::default()).unwrap();
        assert_eq!((refused.len(), seen(&now), now.again()), (1, (2000, 4000), None));
        let said = now.outcome(refused.clone(), 7).said();
        assert_eq!(
            said,
            format!(
                "settings read again from {}: refused, the old ones stay in force:\n  - {}",
                path.display(),
                refused[0]
            )
        );
        // An unknown user is a reason too; a known one is trusted from now on.
        t.put("passwd", b"bob:x:1000:1000::/:\n");
        put("[host]\nmhz = 3000\n[trust]\nusers = [\"eve\"]\n");
        now.ask();
        assert_eq!(now.read_again(&t.roots(), &Slots::default()).unwrap().len(), 1);
        assert_eq!((seen(&now), now.trust().trusts(1000)), ((2000, 4000), false));
        put("[host]\nmhz = 3000\n[trust]\nusers = [\"bob\"]\n");
        now.ask();
        assert_eq!(now.read_again(&t.roots(), &Slots::default()), Some(vec![]));
        assert_eq!((seen(&now), now.trust().trusts(1000)), ((3000, 4000), true));
        let taken = now.outcome(vec![], 8);
        assert_eq!((taken.number, taken.taken, taken.generation, taken.ok), (2, 1, 8, true));
        // The next load begins with the settings and counts of this one.
        let now = InForce::new(&mut lasting, &t.roots(), 2, 500);
        assert_eq!((seen(&now), now.lasting.reloads), ((3000, 500), 2));
        assert!(now.trust().trusts(1000));
    }
}
