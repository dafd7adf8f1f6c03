//! Opens a compressed x86 kernel image far enough for the kernel chooser to read its BTF; it never
//! writes one.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::error::{LabError, Result};

/// Offsets in the boot protocol's setup header (Documentation/arch/x86/boot.rst).
const SETUP_SECTS: usize = 0x1f1;
const HEADER_MAGIC: usize = 0x202;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;

/// Payload formats by their first bytes. Debian uses zstd; the others go through the tool of that
/// name.
const FORMATS: [(&[u8], &str); 4] = [
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
    (&[0xfd, b'7', b'z', b'X', b'Z'], "xz"),
    (&[0x1f, 0x8b], "gzip"),
    (&[0x02, 0x21, 0x4c, 0x18], "lz4"),
];

fn broken(seen: impl Into<String>) -> LabError {
    LabError::new(
        "kernel image",
        "be read",
        seen,
        "use an x86-64 bzImage with CONFIG_DEBUG_INFO_BTF",
    )
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}

/// The uncompressed ELF kernel inside a bzImage.
pub fn vmlinux(bzimage: &[u8]) -> Result<Vec<u8>> {
    let payload =
        payload(bzimage).ok_or_else(|| broken("no boot protocol header with a payload"))?;
    let format = FORMATS.iter().find(|(magic, _)| payload.starts_with(magic));
    match format {
        Some((_, "zstd")) => unzstd(payload),
        Some((_, tool)) => through(tool, payload),
        None => Err(broken(format!(
            "a payload starting {:02x?}, allowed zstd, xz, gzip, lz4",
            &payload[..payload.len().min(6)]
        ))),
    }
}

fn payload(bzimage: &[u8]) -> Option<&[u8]> {
    if bzimage.get(HEADER_MAGIC..HEADER_MAGIC + 4)? != b"HdrS" {
        return None;
    }
    let sectors = match *bzimage.get(SETUP_SECTS)? {
        0 => 4, // the protocol's default
        n => usize::from(n),
    };
    let start = (sectors + 1) * 512 + word(bzimage, PAYLOAD_OFFSET)?;
    bzimage.get(start..start + word(bzimage, PAYLOAD_LENGTH)?)
}

/// Decodes one zstd frame; the four bytes of size that the kernel's build appends are left over and
/// ignored.
fn unzstd(payload: &[u8]) -> Result<Vec<u8>> {
    let mut source = payload;
    let mut decoder =
        ruzstd::decoding::StreamingDecoder::new(&mut source).map_err(|e| broken(e.to_string()))?;
    let mut out = Vec::with_capacity(64 << 20);
    decoder.read_to_end(&mut out).map_err(|e| broken(e.to_string()))?;
    Ok(out)
}

/// Decompresses through a tool such as `xz`; trailing bytes after the stream make the tool complain
/// but not fail us.
pub fn through(tool: &str, packed: &[u8]) -> Result<Vec<u8>> {
    let trouble = |e: std::io::Error| {
        LabError::new(
            tool,
            "decompress",
            e.to_string(),
            format!("install the package {tool} (xz: xz-utils)"),
        )
    };
    let mut child = Command::new(tool)
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(trouble)?;
    let mut input = child.stdin.take().expect("stdin was asked for");
    let packed = packed.to_vec();
    let feeder = std::thread::spawn(move || input.write_all(&packed).ok());
    let mut out = Vec::new();
    let read = child.stdout.take().expect("stdout was asked for").read_to_end(&mut out);
    feeder.join().ok();
    child.wait().map_err(trouble)?;
    read.map_err(trouble)?;
    if out.is_empty() {
        return Err(LabError::new(
            tool,
            "decompress",
            "no output",
            "the file may be damaged; fetch it again",
        ));
    }
    Ok(out)
}

/// One section of a little-endian 64-bit ELF file.
pub fn elf_section<'a>(elf: &'a [u8], wanted: &str) -> Result<&'a [u8]> {
    find_section(elf, wanted).ok_or_else(|| broken(format!("no section {wanted}")))
}

fn long(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?) as usize)
}

fn find_section<'a>(elf: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    if elf.get(..6)? != [0x7f, b'E', b'L', b'F', 2, 1] {
        return None;
    }
    let half =
        |at: usize| Some(usize::from(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?)));
    let (table, size, count, names) = (long(elf, 0x28)?, half(0x3a)?, half(0x3c)?, half(0x3e)?);
    let header = |i: usize| elf.get(table + i * size..table + (i + 1) * size);
    let body = |h: &[u8]| Some((long(h, 0x18)?, long(h, 0x20)?));
    let (name_start, name_len) = body(header(names)?)?;
    let name_table = elf.get(name_start..name_start + name_len)?;
    (0..count).find_map(|i| {
        let h = header(i)?;
        let name = name_table.get(word(h, 0)?..)?;
        let matches = name.starts_with(wanted.as_bytes()) && name.get(wanted.len()) == Some(&0);
        let (start, len) = body(h)?;
        if matches { elf.get(start..start + len) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 64-bit ELF file with one section `.BTF` besides the name table.
    fn tiny_elf(content: &[u8]) -> Vec<u8> {
        let names = b"\0.BTF\0.shstrtab\0";
        let mut elf = vec![0u8; 64];
        elf[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        let content_at = elf.len() as u64;
        elf.extend(content);
        let names_at = elf.len() as u64;
        elf.extend(names);
        let table = elf.len() as u64;
        elf[0x28..0x30].copy_from_slice(&table.to_le_bytes());
        elf[0x3a..0x40].copy_from_slice(&[64, 0, 2, 0, 1, 0]);
        for (name, at, len) in [(1u32, content_at, content.len()), (6, names_at, names.len())] {
            let mut h = vec![0u8; 64];
            h[..4].copy_from_slice(&name.to_le_bytes());
            h[0x18..0x20].copy_from_slice(&at.to_le_bytes());
            h[0x20..0x28].copy_from_slice(&(len as u64).to_le_bytes());
            elf.extend(h);
        }
        elf
    }

    #[test]
    fn a_section_is_found_by_its_whole_name() {
        let elf = tiny_elf(b"payload");
        assert_eq!(elf_section(&elf, ".BTF").unwrap(), b"payload");
        assert!(elf_section(&elf, ".BT").is_err());
        assert!(elf_section(&elf, ".BTF_ids").is_err());
    }

    #[test]
    fn an_image_without_setup_header_is_refused() {
        let error = vmlinux(&[0u8; 4096]).unwrap_err().to_string();
        assert!(error.contains("no boot protocol header"), "{error}");
    }

    #[test]
    fn an_unknown_payload_is_named_with_the_allowed_formats() {
        let mut image = vec![0u8; 8192];
        image[SETUP_SECTS] = 1;
        image[HEADER_MAGIC..HEADER_MAGIC + 4].copy_from_slice(b"HdrS");
        image[PAYLOAD_LENGTH] = 16;
        let error = vmlinux(&image).unwrap_err().to_string();
        assert!(error.contains("allowed zstd, xz, gzip, lz4"), "{error}");
    }
}
