//! Reads just enough of a kernel's BTF to answer one question for the lab's choice of a kernel and
//! for `tandem doctor`: does this kernel offer a function to BPF programs? It never interprets
//! types beyond their record lengths.
//!
//! Law: a function is callable from BPF iff a `DECL_TAG` named `bpf_kfunc` points at it with
//! component −1. A kernel may have sched_ext switched on and still lack the tags; then every
//! scheduler is refused at load with "func_proto … incompatible with vmlinux", so the tag and not
//! the configuration decides.

/// The section is truncated, or has an unknown kind of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "BTF section: cannot be read: a truncated or unknown record; the kernel may use a newer BTF \
        kind: extend crates/btf"
)]
pub struct Damaged;

const MAGIC: u16 = 0xeb9f;
const KIND_FUNC: u32 = 12;
const KIND_DECL_TAG: u32 = 17;

/// Entry of one kernel function in a kernel's BTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The function exists and is tagged `bpf_kfunc`: BPF programs can call it.
    Callable,
    /// The function exists without the tag: loading a scheduler fails.
    Untagged,
    /// There is no such function: sched_ext is off, or the kernel predates the function.
    Absent,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn u32(&mut self) -> Option<u32> {
        let word = self.bytes.get(self.at..self.at + 4)?;
        self.at += 4;
        Some(u32::from_le_bytes(word.try_into().ok()?))
    }
}

/// Whether `function` is callable from BPF, by a little-endian BTF section.
///
/// # Errors
/// `Damaged` when the section cannot be read to its end.
pub fn kfunc_verdict(btf: &[u8], function: &str) -> Result<Verdict, Damaged> {
    scan(btf, function).ok_or(Damaged)
}

fn scan(btf: &[u8], function: &str) -> Option<Verdict> {
    if u16::from_le_bytes(btf.get(..2)?.try_into().ok()?) != MAGIC {
        return None;
    }
    let mut header = Reader { bytes: btf, at: 4 };
    let (header_len, type_off, type_len) = (header.u32()?, header.u32()?, header.u32()?);
    let (string_off, string_len) = (header.u32()?, header.u32()?);
    let section = |off: u32, len: u32| {
        btf.get((header_len + off) as usize..(header_len + off + len) as usize)
    };
    let strings = section(string_off, string_len)?;
    let is = |offset: u32, name: &str| {
        let end = offset as usize + name.len();
        strings.get(offset as usize..end) == Some(name.as_bytes()) && strings.get(end) == Some(&0)
    };

    let mut types = Reader { bytes: section(type_off, type_len)?, at: 0 };
    let mut id = 0;
    let mut functions = Vec::new();
    let mut tagged = Vec::new();
    while types.at < types.bytes.len() {
        id += 1;
        let (name, info, target) = (types.u32()?, types.u32()?, types.u32()?);
        let (kind, entries) = (info >> 24 & 0x1f, info & 0xffff);
        if kind == KIND_FUNC && is(name, function) {
            functions.push(id);
        }
        if kind == KIND_DECL_TAG {
            let whole = types.u32()? == u32::MAX;
            if whole && is(name, "bpf_kfunc") {
                tagged.push(target);
            }
        } else {
            types.at += trailer_len(kind, entries)?;
        }
    }
    Some(match functions.as_slice() {
        [] => Verdict::Absent,
        ids if ids.iter().any(|id| tagged.contains(id)) => Verdict::Callable,
        _ => Verdict::Untagged,
    })
}

/// Bytes that follow the 12 common bytes of a type record (Documentation/bpf/btf.rst, "Type
/// Encoding").
fn trailer_len(kind: u32, entries: u32) -> Option<usize> {
    let entries = entries as usize;
    Some(match kind {
        1 | 14 => 4,                     // INT, VAR
        3 => 12,                         // ARRAY
        4 | 5 | 15 | 19 => 12 * entries, // STRUCT, UNION, DATASEC, ENUM64
        6 | 13 => 8 * entries,           // ENUM, FUNC_PROTO
        // PTR, FWD, TYPEDEF, qualifiers, FUNC, FLOAT, TYPE_TAG
        2 | 7 | 8 | 9 | 10 | 11 | 12 | 16 | 18 => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBE: &str = "scx_bpf_create_dsq";

    /// A BTF section with an int, a struct, the probe function and, if asked, its tag.
    fn sample(function: &str, tag: Option<&str>) -> Vec<u8> {
        let strings = format!("\0{function}\0{}\0", tag.unwrap_or("x"));
        let tag_at = 2 + function.len() as u32;
        let mut types: Vec<u32> = vec![0, 1 << 24, 4, 32];
        types.extend([0, 4 << 24 | 1, 4, 0, 1, 0]);
        types.extend([0, 13 << 24, 1]);
        types.extend([1, 12 << 24 | 1, 3]);
        if tag.is_some() {
            types.extend([tag_at, 17 << 24, 4, u32::MAX]);
        }
        let type_len = 4 * types.len() as u32;
        let mut out = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, type_len, type_len, strings.len() as u32].iter().chain(&types) {
            out.extend(word.to_le_bytes());
        }
        out.extend(strings.as_bytes());
        out
    }

    #[test]
    fn a_tagged_function_is_callable() {
        let btf = sample(PROBE, Some("bpf_kfunc"));
        assert_eq!(kfunc_verdict(&btf, PROBE).unwrap(), Verdict::Callable);
    }

    #[test]
    fn a_function_without_tag_or_with_another_tag_is_untagged() {
        assert_eq!(kfunc_verdict(&sample(PROBE, None), PROBE).unwrap(), Verdict::Untagged);
        let other = sample(PROBE, Some("bpf_fastcall"));
        assert_eq!(kfunc_verdict(&other, PROBE).unwrap(), Verdict::Untagged);
    }

    #[test]
    fn a_name_that_only_starts_alike_is_absent() {
        let btf = sample("scx_bpf_create_dsq_impl", Some("bpf_kfunc"));
        assert_eq!(kfunc_verdict(&btf, PROBE).unwrap(), Verdict::Absent);
    }

    #[test]
    fn a_truncated_section_is_an_error_not_a_verdict() {
        let btf = sample(PROBE, Some("bpf_kfunc"));
        assert!(kfunc_verdict(&btf[..60], PROBE).is_err());
        assert!(kfunc_verdict(b"junk", PROBE).is_err());
    }
}
