//! Paths of counters in a batch file, `\\host\object(instance)\counter`, and names made safe for
//! them; it decides nothing else.
//!
//! Public readers take paths apart by hand, so a name has to be without the marks that they look
//! for:
//!
//! | mark | what trips over it |
//! |---|---|
//! | `,` | yukiuuh/react-esxtop-viewer `csvFormat.ts` splits the header at each comma, quoted or
//! not |
//! | `"` | the same takes what is between the first two quotes; iceiilin/elk strips quotes after
//! splitting |
//! | `\` | nithintitta/ESXTOP-BATCHMODE-VIEWER takes the last two parts between them,
//! mu853/esxtop2report the 4th and 5th |
//! | `(` `)` | akshaykalia-chd/esxtopdrillv3 ends the object at the first `(`; react-esxtop-viewer
//! `esxtopTree.ts` ends the instance at `)` |
//! | `:` | react-esxtop-viewer parts the group of `Vcpu` from its world at the second colon |
//! | `%` | react-esxtop-viewer decodes the header as a URI, column by column: `%41` would be `A` in
//! some and not in others |
//! | line breaks, controls | all read line by line |
//!
//! Letters beyond ASCII stay: these readers take the file for UTF-8.

use std::{borrow::Cow, fmt};

/// What stands for a mark that a name must not have.
const INSTEAD: char = '_';

/// A name of a VM, pool, world or host, safe within a path. Names that become the same are
/// distinguished by the ids beside them.
#[must_use]
pub fn clean(name: &str) -> Cow<'_, str> {
    let unsafe_mark = |c: char| {
        matches!(c, ',' | '"' | '\\' | '(' | ')' | ':' | '%' | '\u{2028}' | '\u{2029}' | '\u{feff}')
            || c.is_control()
    };
    if name.trim().is_empty() {
        Cow::Owned(INSTEAD.to_string())
    } else if name.contains(unsafe_mark) {
        Cow::Owned(name.chars().map(|c| if unsafe_mark(c) { INSTEAD } else { c }).collect())
    } else {
        Cow::Borrowed(name)
    }
}

/// What a path is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// `Physical Cpu Load`.
    Load,
    /// `Physical Cpu`.
    Pcpu,
    /// `Group Cpu`.
    Group,
    /// `Vcpu`.
    World,
    /// `Group Memory`.
    VmMemory,
    /// The host's memory, disks, networks and all else that ESXi has.
    Other,
}

/// A path taken apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path {
    /// The host.
    pub host: String,
    /// The object, such as `Group Cpu`; empty where a path has none.
    pub object: String,
    /// Which of them, such as `1:system`; none where there is one only.
    pub instance: Option<String>,
    /// The counter, such as `% Ready`.
    pub counter: String,
}

impl Path {
    /// Takes a path apart; `None` where it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Path> {
        let (host, rest) = text.strip_prefix("\\\\")?.split_once('\\')?;
        let (object, counter) = rest.rsplit_once('\\').unwrap_or(("", rest));
        let instance = object.strip_suffix(')').and_then(|o| o.split_once('('));
        let (object, instance) = instance
            .map_or((object, None), |(object, instance)| (object, Some(instance.to_owned())));
        let owned = str::to_owned;
        Some(Path { host: owned(host), object: owned(object), instance, counter: owned(counter) })
    }

    /// What it is about.
    #[must_use]
    pub fn kind(&self) -> ObjectKind {
        use crate::Object;
        let known = [
            (Object::Load, ObjectKind::Load),
            (Object::Pcpu, ObjectKind::Pcpu),
            (Object::Group, ObjectKind::Group),
            (Object::World, ObjectKind::World),
            (Object::Memory, ObjectKind::VmMemory),
        ];
        known
            .into_iter()
            .find(|(object, _)| object.name() == self.object)
            .map_or(ObjectKind::Other, |k| k.1)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\\\\{}\\", self.host)?;
        match (&self.instance, self.object.is_empty()) {
            (Some(instance), _) => write!(f, "{}({instance})\\", self.object)?,
            (None, false) => write!(f, "{}\\", self.object)?,
            (None, true) => {}
        }
        f.write_str(&self.counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_the_marks_that_readers_look_for_and_nothing_else() {
        assert_eq!(clean("a,b\"c\\d(e)f:g%41h\ni\tj\u{2028}k"), "a_b_c_d_e_f_g_41h_i_j_k");
        assert_eq!(["", "  "].map(|n| clean(n).into_owned()), ["_", "_"]);
        for name in ["VM_web-01", "Größe", "データベース", "two words", "a.b/c;d'e"] {
            assert!(matches!(clean(name), Cow::Borrowed(n) if n == name), "{name}");
        }
    }

    /// Text, host, object, instance, counter and kind of a path.
    type RealPath =
        (&'static str, &'static str, &'static str, Option<&'static str>, &'static str, ObjectKind);

    /// Paths of real files.
    const PATHS: [RealPath; 8] = [
        (
            r"\\local\Memory\Memory Overcommit (1 Minute Avg)",
            "local",
            "Memory",
            None,
            "Memory Overcommit (1 Minute Avg)",
            ObjectKind::Other,
        ),
        (
            r"\\local\Physical Cpu Load\Cpu Load (1 Minute Avg)",
            "local",
            "Physical Cpu Load",
            None,
            "Cpu Load (1 Minute Avg)",
            ObjectKind::Load,
        ),
        (
            r"\\local\Physical Cpu(_Total)\% Util Time",
            "local",
            "Physical Cpu",
            Some("_Total"),
            "% Util Time",
            ObjectKind::Pcpu,
        ),
        (
            r"\\localhost\Group Cpu(28868:Ted_DEV_ORA)\% Used",
            "localhost",
            "Group Cpu",
            Some("28868:Ted_DEV_ORA"),
            "% Used",
            ObjectKind::Group,
        ),
        (
            r"\\192.168.18.5\Vcpu(3497860:diskless vm 2:5421591:vmx)\% CPU Latency",
            "192.168.18.5",
            "Vcpu",
            Some("3497860:diskless vm 2:5421591:vmx"),
            "% CPU Latency",
            ObjectKind::World,
        ),
        (
            r"\\h\Physical Disk(a(b)c)\Reads/sec",
            "h",
            "Physical Disk",
            Some("a(b)c"),
            "Reads/sec",
            ObjectKind::Other,
        ),
        (
            r"\\h\Physical Disk(a\b)\Reads/sec",
            "h",
            "Physical Disk",
            Some(r"a\b"),
            "Reads/sec",
            ObjectKind::Other,
        ),
        (r"\\MACHINE\% C2 Time", "MACHINE", "", None, "% C2 Time", ObjectKind::Other),
    ];

    #[test]
    fn paths_of_real_files_are_taken_apart_and_put_together_again() {
        for (text, host, object, instance, counter, kind) in PATHS {
            let path = Path::parse(text).unwrap();
            assert_eq!(
                (
                    path.host.as_str(),
                    path.object.as_str(),
                    path.instance.as_deref(),
                    path.counter.as_str()
                ),
                (host, object, instance, counter)
            );
            assert_eq!((path.kind(), path.to_string().as_str()), (kind, text));
        }
        assert_eq!(["", "x", r"\h\o\c", r"\\h"].map(Path::parse), [None, None, None, None]);
    }
}
