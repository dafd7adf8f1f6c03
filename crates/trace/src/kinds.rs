//! The table of kinds: number, name and fields of each, as a file carries it to describe itself; it
//! knows no values.

/// How a field is written. The numbers are part of the file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Unsigned LEB128.
    Plain = 0,
    /// Difference to the last world named in the block, zigzag.
    World = 1,
    /// Difference to the last field of this coding in the block, zigzag, modulo 2^64.
    Delta = 2,
    /// 0: none; 1: the event's own pCPU; else pCPU + 2.
    Pcpu = 3,
    /// Length as LEB128, then UTF-8.
    Text = 4,
}

impl Coding {
    pub(crate) fn of_code(code: u8) -> Option<Coding> {
        [Coding::Plain, Coding::World, Coding::Delta, Coding::Pcpu, Coding::Text]
            .into_iter()
            .find(|c| *c as u8 == code)
    }
}

/// A kind as a file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) code: u16,
    pub(crate) name: String,
    pub(crate) fields: Vec<(String, Coding)>,
}

/// A kind of this version.
pub(crate) struct Spec {
    pub(crate) code: u16,
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [(&'static str, Coding)],
}

use Coding::{Delta, Pcpu, Plain, Text, World};

/// Every kind that this version knows. Numbers, names of fields and their meaning stay; fields may
/// be added at the end, where 0 or the empty text has to mean unknown.
///
/// A field that may be missing is its number + 1, and 0 stands for none. Texts and numbers are
/// numbered apart, in order.
pub(crate) const KINDS: &[Spec] = &[
    Spec {
        code: 1,
        name: "state",
        fields: &[("world", World), ("from", Plain), ("to", Plain), ("why", Plain), ("on", Pcpu)],
    },
    Spec { code: 2, name: "wake", fields: &[("world", World), ("by", Plain), ("waker", World)] },
    Spec {
        code: 3,
        name: "queued",
        fields: &[("world", World), ("pcpu", Pcpu), ("limit", Plain), ("key", Delta)],
    },
    Spec { code: 4, name: "unqueued", fields: &[("world", World)] },
    Spec {
        code: 5,
        name: "migrate",
        fields: &[("world", World), ("from", Pcpu), ("to", Pcpu), ("why", Plain)],
    },
    Spec { code: 6, name: "switch", fields: &[("from", Plain), ("to", Plain)] },
    Spec { code: 7, name: "idle", fields: &[("begins", Plain)] },
    Spec { code: 8, name: "kick", fields: &[("target", Pcpu), ("how", Plain)] },
    Spec {
        code: 9,
        name: "wait-on",
        fields: &[("world", World), ("event", Plain), ("class", Text)],
    },
    Spec {
        code: 10,
        name: "vtime",
        fields: &[
            ("world", World),
            ("stride", Plain),
            ("from", Delta),
            ("to", Delta),
            ("host", Delta),
            ("why", Text),
        ],
    },
    Spec {
        code: 11,
        name: "account",
        fields: &[("vm", Plain), ("used_ns", Plain), ("entitled", Plain)],
    },
    Spec {
        code: 12,
        name: "world",
        fields: &[("world", World), ("vm", Plain), ("role", Plain), ("name", Text)],
    },
    Spec { code: 13, name: "vm", fields: &[("vm", Plain), ("name", Text), ("pool", Text)] },
    Spec { code: 14, name: "host", fields: &[("pcpus", Plain)] },
    Spec {
        code: 15,
        name: "pcpu",
        fields: &[("smt", Plain), ("core", Plain), ("llc", Plain), ("node", Plain)],
    },
    Spec { code: 16, name: "affinity", fields: &[("world", World), ("allowed", Text)] },
    Spec { code: 17, name: "lost", fields: &[("events", Plain)] },
    Spec { code: 18, name: "mark", fields: &[("text", Text)] },
    Spec { code: 19, name: "guest", fields: &[("world", World), ("inside", Plain)] },
    Spec { code: 20, name: "home", fields: &[("world", World), ("domains", Plain)] },
    Spec {
        code: 21,
        name: "memory",
        fields: &[
            ("vm", Plain),
            ("bytes", Plain),
            ("homes", Plain),
            ("local", Plain),
            ("remote", Plain),
            ("migrations", Plain),
        ],
    },
    // A reader that does not know it has the end of the idle time, which is written before it.
    Spec { code: 22, name: "off-line", fields: &[] },
];

/// The kinds of this version as a file describes them.
pub(crate) fn described() -> Vec<Described> {
    let fields = |s: &Spec| s.fields.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect();
    KINDS
        .iter()
        .map(|s| Described { code: s.code, name: s.name.to_owned(), fields: fields(s) })
        .collect()
}

/// The kind of this version with a number.
pub(crate) fn spec(code: u16) -> Option<&'static Spec> {
    KINDS.get(usize::from(code).checked_sub(1)?).filter(|s| s.code == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_their_number() {
        assert!(KINDS.iter().all(|s| spec(s.code).is_some_and(|t| t.name == s.name)));
        assert!(spec(0).is_none() && spec(KINDS.len() as u16 + 1).is_none());
    }
}
