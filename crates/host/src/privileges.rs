//! Gives up every privilege that the daemon does not need, for good: what is found wrong with it
//! later reaches no further than these capabilities.
#![allow(unsafe_code)]

use caps::{CapSet, Capability, CapsHashSet};

use crate::{HostError, live};

/// What the daemon needs for as long as it runs, and for what.
const NEEDED: [(Capability, &str); 4] = [
    (Capability::CAP_BPF, "load the scheduler, also when pCPUs come or go; call its programs"),
    (Capability::CAP_PERFMON, "load programs that read the kernel's records"),
    // whether a process of any user has /dev/kvm open
    (Capability::CAP_SYS_PTRACE, "read /proc/PID/fd and /proc/PID/exe"),
    (Capability::CAP_DAC_READ_SEARCH, "list /proc/PID/fd of other users' processes"),
];

/// In force only while KVM is hooked (`raised`): without it the kernel does not give out the BTF of
/// its modules. KVM may be loaded at any time.
const HOOKS: Capability = Capability::CAP_SYS_ADMIN;

/// Puts this process before other host tasks, and keeps the capabilities that the daemon needs and
/// no other; no program that it might start has more. To be called before it starts threads.
///
/// # Errors
/// `HostError::Object` when one that it needs is missing, or the kernel refuses.
pub fn settle() -> Result<(), HostError> {
    live::come_first(); // the last use of CAP_SYS_NICE
    keep(&NEEDED, HOOKS).map_err(|(seen, next)| {
        HostError::object("this process", "keep the privileges that it needs", seen, &next)
    })
}

/// What comes of work that needs the BTF of modules.
pub(crate) fn raised<T>(work: impl FnOnce() -> T) -> T {
    // Where it is missing the work says what it could not do.
    let up = caps::raise(None, CapSet::Effective, HOOKS);
    let done = work();
    if up.is_ok() && caps::drop(None, CapSet::Effective, HOOKS).is_err() {
        std::process::abort(); // not seen: giving up is always allowed
    }
    done
}

/// Keeps these in force, and one more, where it is there, to be raised for a while; of the calling
/// thread and of threads that it starts.
fn keep(needed: &[(Capability, &str)], later: Capability) -> Result<(), (String, String)> {
    let failed = |e: caps::errors::CapsError| (e.to_string(), "run it as root".to_owned());
    let has = caps::read(None, CapSet::Permitted).map_err(failed)?;
    if let Some((missing, what)) = needed.iter().find(|(c, _)| !has.contains(c)) {
        let next = format!("run it as root; in a unit of systemd allow {missing}: to {what}");
        return Err((format!("no {missing}"), next));
    }
    // Otherwise a program that root starts has in force what is permitted here.
    const NO_ROOT: libc::c_ulong = 0b11; // SECBIT_NOROOT and its lock
    // SAFETY: here and below: numbers only; it changes flags of this thread.
    let set = unsafe { libc::prctl(libc::PR_SET_SECUREBITS, NO_ROOT, 0, 0, 0) };
    if set != 0 && has.contains(&Capability::CAP_SETPCAP) {
        return Err((std::io::Error::last_os_error().to_string(), "report this".to_owned()));
    }
    let mut kept: CapsHashSet = needed.iter().map(|(c, _)| *c).collect();
    caps::set(None, CapSet::Effective, &kept).map_err(failed)?;
    kept.extend(has.contains(&later).then_some(later));
    caps::set(None, CapSet::Permitted, &kept).map_err(failed)?;
    caps::clear(None, CapSet::Inheritable).map_err(failed)?;
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        let e = std::io::Error::last_os_error();
        return Err((e.to_string(), "run a kernel of 3.5 or later".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A line of a thread's status.
    fn status(text: &str, key: &str) -> String {
        let line = text.lines().find(|l| l.starts_with(key)).unwrap_or_default();
        line.rsplit(':').next().unwrap_or_default().trim().to_owned()
    }

    #[test]
    fn what_is_not_needed_is_gone_also_from_programs_that_it_starts() {
        let has = caps::read(None, CapSet::Permitted).unwrap();
        let Some(one) = has.iter().copied().find(|c| *c != Capability::CAP_CHOWN) else {
            return println!("skipped: this user has no capability to give up");
        };
        let has_setpcap = has.contains(&Capability::CAP_SETPCAP);
        std::thread::spawn(move || {
            keep(&[(one, "")], one).unwrap();
            let left = CapsHashSet::from([one]);
            for set in [CapSet::Permitted, CapSet::Effective] {
                assert_eq!(caps::read(None, set).unwrap(), left);
            }
            assert!(keep(&[(Capability::CAP_CHOWN, "x")], one).is_err(), "what is gone stays gone");
            let child = Command::new("cat").arg("/proc/self/status").output().unwrap();
            let child = String::from_utf8(child.stdout).unwrap();
            let mut bits = u64::from_str_radix(&status(&child, "CapEff"), 16).unwrap();
            if !has_setpcap {
                bits &= !(1 << one.index());
            }
            assert_eq!((bits, status(&child, "NoNewPrivs").as_str()), (0, "1"));
        })
        .join()
        .unwrap();
        assert_eq!(caps::read(None, CapSet::Permitted).unwrap(), has, "of one thread only");
    }

    #[test]
    fn what_is_kept_for_later_is_in_force_only_while_it_is_raised() {
        let has = caps::read(None, CapSet::Permitted).unwrap();
        let Some(one) = has.iter().copied().find(|c| *c != HOOKS) else {
            return println!("skipped: this user has no capability to give up");
        };
        std::thread::spawn(move || {
            keep(&[(one, "")], HOOKS).unwrap();
            let in_force = || caps::read(None, CapSet::Effective).unwrap().contains(&HOOKS);
            assert_eq!(
                (in_force(), raised(in_force), in_force()),
                (false, has.contains(&HOOKS), false)
            );
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_missing_privilege_is_named_with_what_it_is_for() {
        std::thread::spawn(|| {
            caps::clear(None, CapSet::Effective).unwrap();
            caps::clear(None, CapSet::Permitted).unwrap();
            let (seen, next) = keep(&NEEDED, HOOKS).unwrap_err();
            assert_eq!(seen, "no CAP_BPF");
            assert!(next.contains("allow CAP_BPF: to load the scheduler"), "{next}");
        })
        .join()
        .unwrap();
    }
}
