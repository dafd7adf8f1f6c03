//! The bytes of an event inside a block: numbers as LEB128, times, worlds and keys as differences;
//! it knows no blocks.

use crate::Event;
use crate::flat::{Flat, flatten, pcpu_of};
use crate::kinds::{Coding, Described, spec};

/// Longest text of one event, in bytes; longer ones are cut when written.
pub(crate) const TEXT_MAX: usize = 4096;
/// Most fields that a kind may have in a file.
const FIELDS_MAX: u64 = 32;

/// Appends an unsigned number, 7 bits a byte.
pub(crate) fn put(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Takes an unsigned number off the front; none if it is cut or longer than 64 bits.
pub(crate) fn take(data: &mut &[u8]) -> Option<u64> {
    let mut v = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = data.split_first()?;
        *data = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        v |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(v);
        }
    }
    None
}

fn zigzag(from: u64, to: u64) -> u64 {
    let d = to.wrapping_sub(from) as i64;
    ((d << 1) ^ (d >> 63)) as u64
}

fn unzigzag(from: u64, code: u64) -> u64 {
    from.wrapping_add((code >> 1) ^ (code & 1).wrapping_neg())
}

/// The base of differences. It is reset in every block, so that each block can be read alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Base {
    ns: u64,
    world: u64,
    delta: u64,
}

impl Base {
    /// The base of a block whose first event is at `ns`.
    pub(crate) fn new(ns: u64) -> Base {
        Base { ns, world: 0, delta: 0 }
    }

    /// Appends an event.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, event: &Event) {
        let flat = flatten(&event.kind);
        let own = event.pcpu.map_or(0, |p| u64::from(p.0) + 1);
        put(out, flat.code.into());
        put(out, zigzag(self.ns, event.ns));
        put(out, own);
        self.ns = event.ns;
        let (mut nums, mut texts) = (flat.nums.iter(), flat.texts.iter());
        for (_, coding) in spec(flat.code).map_or(&[][..], |s| s.fields) {
            if *coding == Coding::Text {
                put_text(out, texts.next().map_or("", String::as_str));
            } else {
                self.number(out, *coding, nums.next().copied().unwrap_or(0), own);
            }
        }
    }

    fn number(&mut self, out: &mut Vec<u8>, coding: Coding, v: u64, own: u64) {
        match coding {
            Coding::World => {
                put(out, zigzag(self.world, v));
                self.world = v;
            }
            Coding::Delta => {
                put(out, zigzag(self.delta, v));
                self.delta = v;
            }
            Coding::Pcpu if v != 0 && v == own => put(out, 1),
            Coding::Pcpu => put(out, if v == 0 { 0 } else { v + 1 }),
            Coding::Plain | Coding::Text => put(out, v),
        }
    }

    /// Takes an event off the front.
    pub(crate) fn read(&mut self, data: &mut &[u8], kinds: &Kinds) -> Taken {
        self.try_read(data, kinds).unwrap_or(Taken::Bad)
    }

    fn try_read(&mut self, data: &mut &[u8], kinds: &Kinds) -> Option<Taken> {
        let code = u16::try_from(take(data)?).ok()?;
        let ns = unzigzag(self.ns, take(data)?);
        let own = take(data)?;
        let kind = kinds.find(code)?;
        let mut flat =
            Flat { code, nums: vec![0; kind.nums], texts: vec![String::new(); kind.texts] };
        for (coding, slot) in &kind.fields {
            if *coding == Coding::Text {
                let text = take_text(data)?;
                if let Some(i) = slot {
                    flat.texts[*i] = text.to_owned();
                }
            } else {
                let v = self.take_number(data, *coding, own)?;
                if let Some(i) = slot {
                    flat.nums[*i] = v;
                }
            }
        }
        self.ns = ns;
        if !kind.known {
            return Some(Taken::Unknown);
        }
        let pcpu = if own == 0 { None } else { Some(pcpu_of(own - 1)?) };
        Some(Taken::Event(Event { ns, pcpu, kind: flat.kind()? }))
    }

    fn take_number(&mut self, data: &mut &[u8], coding: Coding, own: u64) -> Option<u64> {
        let v = take(data)?;
        Some(match coding {
            Coding::World => {
                self.world = unzigzag(self.world, v);
                self.world
            }
            Coding::Delta => {
                self.delta = unzigzag(self.delta, v);
                self.delta
            }
            Coding::Pcpu => match v {
                0 => 0,
                1 => own,
                v => v - 1,
            },
            Coding::Plain | Coding::Text => v,
        })
    }
}

/// What was taken off a block.
pub(crate) enum Taken {
    /// An event.
    Event(Event),
    /// An event of a kind that only newer versions know.
    Unknown,
    /// Nothing that can be read.
    Bad,
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put(out, end as u64);
    out.extend_from_slice(&text.as_bytes()[..end]);
}

fn take_text<'a>(data: &mut &'a [u8]) -> Option<&'a str> {
    let len = usize::try_from(take(data)?).ok()?;
    let (text, rest) = data.split_at_checked(len)?;
    *data = rest;
    std::str::from_utf8(text).ok()
}

/// How the kinds of a file map to those of this version.
pub(crate) struct Kinds(Vec<(u16, Mapped)>);

struct Mapped {
    known: bool,
    nums: usize,
    texts: usize,
    /// Coding of each field in the file, and where it goes; nowhere if this version does not know
    /// it.
    fields: Vec<(Coding, Option<usize>)>,
}

impl Kinds {
    /// The mapping for a file with these kinds.
    pub(crate) fn new(file: &[Described]) -> Kinds {
        Kinds(file.iter().map(|d| (d.code, Mapped::of(d))).collect())
    }

    fn find(&self, code: u16) -> Option<&Mapped> {
        let likely = self.0.get(usize::from(code).wrapping_sub(1)).filter(|k| k.0 == code);
        likely.or_else(|| self.0.iter().find(|k| k.0 == code)).map(|k| &k.1)
    }
}

impl Mapped {
    fn of(d: &Described) -> Mapped {
        let own = spec(d.code).filter(|s| s.name == d.name);
        let count = |text: bool| {
            own.map_or(0, |s| s.fields.iter().filter(|f| (f.1 == Coding::Text) == text).count())
        };
        let slot = |name: &str, coding: Coding| {
            let fields = own?.fields;
            let same = |c: Coding| (c == Coding::Text) == (coding == Coding::Text);
            let at = fields.iter().position(|f| f.0 == name && same(f.1))?;
            Some(fields[..at].iter().filter(|f| same(f.1)).count())
        };
        let fields = d.fields.iter().map(|(n, c)| (*c, slot(n, *c))).collect();
        Mapped { known: own.is_some(), nums: count(false), texts: count(true), fields }
    }
}

/// The table of kinds as bytes: number of kinds; for each its number, name, number of fields, and
/// their codings and names.
pub(crate) fn put_kinds(kinds: &[Described]) -> Vec<u8> {
    let mut out = vec![];
    put(&mut out, kinds.len() as u64);
    for k in kinds {
        put(&mut out, k.code.into());
        put_text(&mut out, &k.name);
        put(&mut out, k.fields.len() as u64);
        for (name, coding) in &k.fields {
            out.push(*coding as u8);
            put_text(&mut out, name);
        }
    }
    out
}

/// The table of kinds of a file; none if it cannot be read or has a coding that this version does
/// not know.
pub(crate) fn take_kinds(mut data: &[u8]) -> Option<Vec<Described>> {
    let data = &mut data;
    let mut kinds = vec![];
    for _ in 0..take(data)? {
        let code = u16::try_from(take(data)?).ok()?;
        let name = take_text(data)?.to_owned();
        let mut fields = vec![];
        let count = take(data).filter(|n| *n <= FIELDS_MAX)?;
        for _ in 0..count {
            let (coding, rest) = data.split_first()?;
            *data = rest;
            let coding = Coding::of_code(*coding)?;
            fields.push((take_text(data)?.to_owned(), coding));
        }
        kinds.push(Described { code, name, fields });
    }
    data.is_empty().then_some(kinds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::described;
    use crate::{Kind, State, Why};
    use units::{PcpuId, WorldId};

    #[test]
    fn numbers_come_back_and_cut_or_overlong_ones_are_refused() {
        for v in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = vec![];
            put(&mut out, v);
            assert_eq!(
                (take(&mut &out[..]), take(&mut &out[..out.len() - 1])),
                (Some(v), None),
                "{v}"
            );
            assert_eq!(unzigzag(77, zigzag(77, v)), v);
        }
        assert_eq!(take(&mut &[0xff; 11][..]), None);
        assert_eq!(
            take(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2][..]),
            None,
            "65 bits"
        );
    }

    #[test]
    fn the_table_of_kinds_comes_back_and_is_refused_when_cut() {
        let bytes = put_kinds(&described());
        assert_eq!(take_kinds(&bytes), Some(described()));
        assert!((0..bytes.len()).all(|n| take_kinds(&bytes[..n]).is_none()));
    }

    fn kinds_with(change: impl Fn(&mut Vec<Described>)) -> Kinds {
        let mut all = described();
        change(&mut all);
        Kinds::new(&take_kinds(&put_kinds(&all)).unwrap())
    }

    fn state(ns: u64, why: Why, on: Option<PcpuId>) -> Event {
        let kind =
            Kind::State { world: WorldId(300), from: Some(State::Run), to: State::Wait, why, on };
        Event { ns, pcpu: Some(PcpuId(2)), kind }
    }

    fn event(taken: Taken) -> Event {
        match taken {
            Taken::Event(e) => e,
            Taken::Unknown => panic!("unknown"),
            Taken::Bad => panic!("bad"),
        }
    }

    /// What a later version may write: a field more in front of a known one, and a kind more.
    #[test]
    fn fields_and_kinds_of_a_later_version_are_passed_over() {
        let kinds = kinds_with(|all| {
            all[0].fields.insert(1, ("guest".to_owned(), Coding::World));
            all[0].fields.push(("note".to_owned(), Coding::Text));
            let fields = vec![("vm".to_owned(), Coding::World), ("text".to_owned(), Coding::Text)];
            all.push(Described { code: 99, name: "later".to_owned(), fields });
        });
        let mut data = vec![1, 20, 3];
        [600, 4].into_iter().for_each(|v| put(&mut data, v));
        data.extend([2, 4, 3, 1, 2, b'h', b'i']);
        data.extend([99, 2, 0, 8, 3, b'a', b'b', b'c']);
        data.extend([4, 2, 3, 1]);
        let (mut base, mut rest) = (Base::new(100), &data[..]);
        assert_eq!(event(base.read(&mut rest, &kinds)), state(110, Why::Slept, Some(PcpuId(2))));
        assert!(matches!(base.read(&mut rest, &kinds), Taken::Unknown));
        let want =
            Event { ns: 112, pcpu: Some(PcpuId(2)), kind: Kind::Unqueued { world: WorldId(305) } };
        assert_eq!(
            (event(base.read(&mut rest, &kinds)), rest.len()),
            (want, 0),
            "differences go on behind what was passed over"
        );
    }

    /// What an earlier version may have written: no reason and no pCPU of a state, in another
    /// order.
    #[test]
    fn fields_that_an_earlier_version_lacks_are_not_told() {
        let kinds = kinds_with(|all| {
            all[0].fields.truncate(3);
            all[0].fields.swap(1, 2);
            all.remove(1);
        });
        let mut data = vec![1, 0, 3];
        put(&mut data, 600);
        data.extend([4, 2]);
        assert_eq!(event(Base::new(7).read(&mut &data[..], &kinds)), state(7, Why::Unknown, None));
        assert!(
            matches!(Base::new(7).read(&mut &[2, 0, 0, 0, 0, 0][..], &kinds), Taken::Bad),
            "a kind that the file does not describe"
        );
    }
}
