//! Decides whether a settings file that was read again is taken over: whole, or not at all, with
//! the old one in force.
//!
//! A file that was changed less than a second ago may be half written: it is read again every 100
//! ms until it reads the same twice, has not been changed for 300 ms and can be taken over, or is a
//! second old.

use crate::{HostError, RUN_DIR, SettingsFile, run_dir::write_whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::LiveSettings;
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

/// Where the daemon tells what came of it, in `RUN_DIR`.
const FILE: &str = "reload.json";
/// Least age of a file that can be taken over: a writer pauses for less.
const QUIET: Duration = Duration::from_millis(300);
/// Age of a file whose writing has ended.
const SETTLED: Duration = Duration::from_secs(1);
/// Until it is read again.
pub(crate) const AGAIN: Duration = Duration::from_millis(100);
/// A file that is written all the time is refused in the end: `tandem reload` waits for 5 s.
const PATIENCE: Duration = Duration::from_secs(4);

/// What came of reading the settings file again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reloaded {
    /// How often this daemon has been asked.
    pub number: u64,
    /// How often it took the file over.
    #[serde(default)]
    pub taken: u64,
    /// When it was decided, in ns since 1970.
    pub time_ns: u64,
    /// The daemon's process.
    pub daemon: u32,
    /// Generation of the plan that is in force now.
    pub generation: u64,
    /// The settings file; none if the daemon was started without one.
    pub file: Option<PathBuf>,
    /// Whether it is in force.
    pub ok: bool,
    /// Why not: every reason.
    pub reasons: Vec<String>,
}

impl Reloaded {
    /// Writes it for the caller of `tandem reload`.
    ///
    /// # Errors
    /// `HostError::Object` when /run is not writable.
    pub fn write(&self) -> Result<(), HostError> {
        write_whole(
            &Path::new(RUN_DIR).join(FILE),
            &serde_json::to_string_pretty(self).unwrap_or_default(),
        )
    }

    /// The same in words.
    pub(crate) fn said(&self) -> String {
        let file =
            self.file.as_ref().map_or_else(|| "no file".to_owned(), |f| f.display().to_string());
        if self.ok {
            format!("settings read again from {file}: in force as plan {}", self.generation)
        } else {
            format!(
                "settings read again from {file}: refused, the old ones stay in force:\n  - {}",
                self.reasons.join("\n  - ")
            )
        }
    }

    /// The last one; `None` before the first reload.
    #[must_use]
    pub fn read() -> Option<Reloaded> {
        serde_json::from_str(&fs::read_to_string(Path::new(RUN_DIR).join(FILE)).ok()?).ok()
    }
}

/// Time since 1970 in ns.
pub(crate) fn wall_ns() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

/// What is to be done with a file that was read again.
#[derive(Clone, Debug)]
pub(crate) enum Verdict<T> {
    /// It is taken over, with what was found to fit.
    Take(Box<LiveSettings>, T),
    /// The old one stays in force.
    Refuse(Vec<String>),
    /// It is read again later.
    Wait,
}

/// A reload under way.
#[derive(Debug)]
pub(crate) struct Reload {
    asked: Instant,
    /// When the file is read next.
    due: Instant,
    /// What it said when it was read last.
    text: Option<String>,
}

impl Reload {
    pub(crate) fn new() -> Reload {
        let now = Instant::now();
        Reload { asked: now, due: now, text: None }
    }

    /// Whether the file is to be read now.
    pub(crate) fn is_due(&self) -> bool {
        self.due <= Instant::now()
    }

    /// Reads the file and decides; `fits` are the reasons against settings that are right in
    /// themselves, or what to take over with them.
    pub(crate) fn decide<T>(
        &mut self,
        file: Option<&SettingsFile>,
        in_force: &LiveSettings,
        fits: &dyn Fn(&LiveSettings) -> Result<T, Vec<String>>,
    ) -> Verdict<T> {
        let Some(file) = file else {
            let reason = "settings: cannot read them again: seen no file, allowed one; restart \
                'tandem run' with --config FILE";
            return Verdict::Refuse(vec![reason.to_owned()]);
        };
        self.due = Instant::now() + AGAIN;
        let age = file.age();
        let settled = age >= SETTLED || self.asked.elapsed() >= PATIENCE;
        let shown = file.path().display();
        let (text, found) = match file.text() {
            Ok(text) => (Some(text.clone()), read(file.path(), &text, in_force, fits)),
            Err(reasons) => {
                let named = |reason| format!("settings {shown}: {reason}");
                (None, Err(reasons.into_iter().map(named).collect()))
            }
        };
        let same = text.is_some() && std::mem::replace(&mut self.text, text.clone()) == text;
        match found {
            Ok((settings, fit)) if settled || (same && age >= QUIET) => {
                Verdict::Take(Box::new(settings), fit)
            }
            Err(reasons) if settled => Verdict::Refuse(reasons),
            _ => Verdict::Wait,
        }
    }
}

/// Settings that can be taken over while the scheduler is loaded.
fn read<T>(
    path: &Path,
    text: &str,
    in_force: &LiveSettings,
    fits: &dyn Fn(&LiveSettings) -> Result<T, Vec<String>>,
) -> Result<(LiveSettings, T), Vec<String>> {
    let settings = LiveSettings::parse(&path.display().to_string(), text).map_err(|e| e.reasons)?;
    let mut reasons = knobs(in_force, &settings);
    match fits(&settings) {
        Ok(fit) if reasons.is_empty() => Ok((settings, fit)),
        fit => {
            reasons.extend(fit.err().into_iter().flatten());
            Err(reasons)
        }
    }
}

/// Knobs that are not as they were: the scheduler was loaded with them.
fn knobs(old: &LiveSettings, new: &LiveSettings) -> Vec<String> {
    let shown = |value: Option<&u64>| value.map_or("its default".to_owned(), u64::to_string);
    let mut names: Vec<&String> = old.knobs.keys().chain(new.knobs.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let changed = names.into_iter().filter(|n| old.knobs.get(*n) != new.knobs.get(*n));
    let reason = |name: &String| {
        let (seen, allowed) = (shown(new.knobs.get(name)), shown(old.knobs.get(name)));
        format!(
            "knob '{name}': cannot change while the scheduler is loaded: seen {seen}, allowed \
                {allowed}; restart 'tandem run'"
        )
    };
    changed.map(reason).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{made_up::MadeUp, process};
    use settings::Called;
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    const OLD: &str = "[[vm]]\nname = \"web\"\nshares = 100\n[knobs]\nquantum_us = 20000\n";

    fn settings(text: &str) -> LiveSettings {
        LiveSettings::parse("t.toml", text).unwrap()
    }

    /// A settings file that was changed so many ms ago.
    fn file(t: &MadeUp, text: &str, ms: u64) -> SettingsFile {
        t.put("tandem.toml", text.as_bytes());
        let path = t.path("tandem.toml");
        let at = SystemTime::now() - Duration::from_millis(ms);
        fs::File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        SettingsFile::of(path, process::effective_uid())
    }

    fn refusal(verdict: &Verdict<()>) -> &[String] {
        if let Verdict::Refuse(reasons) = verdict { reasons } else { panic!("{verdict:?}") }
    }

    fn shares(verdict: &Verdict<()>) -> Option<u32> {
        let Verdict::Take(s, ()) = verdict else { panic!("{verdict:?}") };
        s.vm(Called { name: "web", named: true, cgroup: "/" })?.attributes(1).shares
    }

    #[test]
    fn a_file_that_is_right_is_taken_over_at_once() {
        let t = MadeUp::new("reload-right");
        let path = file(&t, &OLD.replace("100", "300"), 5000);
        assert_eq!(
            shares(&Reload::new().decide(Some(&path), &settings(OLD), &|_| Ok(()))),
            Some(300)
        );
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_with_every_reason() {
        let t = MadeUp::new("reload-wrong");
        let refuse = |text: &str, fits: &dyn Fn(&LiveSettings) -> Result<(), Vec<String>>| {
            let path = file(&t, text, 5000);
            refusal(&Reload::new().decide(Some(&path), &settings(OLD), fits)).to_vec()
        };
        let seen = refuse(
            "[[vm]]\nname = \"web\"\nshares = 0\nburst = \"1ms\"\nlimit = -1\n",
            &|_| Ok(()),
        );
        assert_eq!(seen.len(), 2);
        assert!(
            seen[0].starts_with("vm 'web': shares: cannot use 0: allowed 1..262144"),
            "{seen:?}"
        );
        let changed = OLD.replace("20000", "30000\nslice_min_us = 3000");
        assert_eq!(
            refuse(&changed, &|_| Err(vec!["pool 'x': no".to_owned()])),
            [
                "knob 'quantum_us': cannot change while the scheduler is loaded: seen 30000, \
                    allowed 20000; restart 'tandem run'",
                "knob 'slice_min_us': cannot change while the scheduler is loaded: seen 3000, \
                    allowed its default; restart 'tandem run'",
                "pool 'x': no",
            ]
        );
        let gone = Reload { asked: Instant::now() - PATIENCE, ..Reload::new() }.decide(
            Some(&SettingsFile::of(t.path("gone"), None)),
            &settings(OLD),
            &|_| Ok(()),
        );
        assert!(
            refusal(&gone)[0].contains(
                "gone: cannot read it: No such file or directory (os error 2); give a file"
            ),
            "{gone:?}"
        );
        assert_eq!(
            refusal(&Reload::new().decide(None, &settings(OLD), &|_| Ok(()))),
            ["settings: cannot read them again: seen no file, allowed one; restart 'tandem run' \
                    with --config FILE"]
        );
    }

    #[test]
    fn a_file_that_another_user_can_write_is_refused() {
        let t = MadeUp::new("reload-writable");
        let path = file(&t, &OLD.replace("100", "300"), 5000);
        let decide = || Reload::new().decide(Some(&path), &settings(OLD), &|_| Ok(()));
        assert_eq!(shares(&decide()), Some(300));
        fs::set_permissions(path.path(), Permissions::from_mode(0o622)).unwrap();
        let reasons = refusal(&decide()).to_vec();
        let shown = path.path().display();
        assert_eq!(
            reasons,
            [format!(
                "settings {shown}: mode: cannot use it: seen 0622, allowed one by which only the \
                    owner can write; chmod go-w {shown}"
            )]
        );
    }

    #[test]
    fn a_file_that_is_half_written_is_read_again_until_it_is_whole() {
        let t = MadeUp::new("reload-half");
        let (old, whole) = (
            LiveSettings::default(),
            "[[vm]]\nname = \"web\"\nshares = 700\n[[vm]]\nname = \"db\"\n",
        );
        let mut reload = Reload::new();
        let mut decide = |text: &str, ms| {
            let path = file(&t, text, ms);
            reload.decide(Some(&path), &old, &|_| Ok(()))
        };
        assert!(matches!(decide(&whole[..10], 0), Verdict::Wait));
        assert!(matches!(decide(&whole[..10], 0), Verdict::Wait), "it cannot be parsed");
        // Cut so that it is a whole shorter file: it must read the same twice, without a change for
        // a while.
        let cut = whole.rfind("[[vm]]").unwrap();
        assert!(matches!(decide(&whole[..cut], 0), Verdict::Wait));
        assert!(matches!(decide(&whole[..cut], 200), Verdict::Wait));
        assert!(matches!(decide(whole, 350), Verdict::Wait));
        assert_eq!(shares(&decide(whole, 450)), Some(700));
        // Half a file without further changes is refused once it is a second old.
        let refused = decide(&whole[..10], 2000);
        assert!(
            refusal(&refused)[0].starts_with("cannot parse: TOML parse error at line 2"),
            "{refused:?}"
        );
        // One that is written all the time, after four.
        let mut reload = Reload { asked: Instant::now() - PATIENCE, ..Reload::new() };
        let path = file(&t, &whole[..10], 0);
        assert_eq!(refusal(&reload.decide(Some(&path), &old, &|_| Ok(()))).len(), 1);
    }
}
