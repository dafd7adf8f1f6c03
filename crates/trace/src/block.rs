//! Head of a file and of a block, byte by byte, little endian; it does not know the contents of a
//! block.
//!
//! | file head, 16 bytes | | block head, 40 bytes | |
//! |---|---|---|---|
//! | 0..8 | magic | 0..8 | sync marker |
//! | 8..10 | version | 8 | type: 1 kinds, 2 events, 3 names repeated, 4 end |
//! | 10..12 | 0 | 9..12 | 0 |
//! | 12..16 | CRC32 of the above | 12..16 | bytes that follow the head |
//! | | | 16..20 | events in it |
//! | | | 20..24 | number of the block in the file, from 0 |
//! | | | 24..32 | time of its first event, ns |
//! | | | 32..36 | CRC32 of what follows |
//! | | | 36..40 | CRC32 of the head so far |

/// First bytes of a file. The odd ones reveal a file that was sent as text.
pub(crate) const MAGIC: [u8; 8] = *b"\x8aTANDEM\n";
/// Version of heads and codings. New kinds and fields do not change it.
pub(crate) const VERSION: u16 = 1;
/// First bytes of a block.
pub(crate) const SYNC: [u8; 8] = *b"\xf5TdM\xa9\x1a\r\n";
/// Length of the file's head in bytes.
pub(crate) const FILE_HEAD: usize = 16;
/// Length of a block's head in bytes.
pub(crate) const BLOCK_HEAD: usize = 40;
/// Most bytes that follow a block's head; a reader needs no more memory than that.
pub(crate) const BLOCK_MAX: usize = 64 << 10;

/// Types of blocks.
pub(crate) mod kind {
    pub(crate) const KINDS: u8 = 1;
    pub(crate) const EVENTS: u8 = 2;
    pub(crate) const NAMES: u8 = 3;
    pub(crate) const END: u8 = 4;
}

/// Head of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: u8,
    pub(crate) len: u32,
    pub(crate) count: u32,
    pub(crate) number: u32,
    pub(crate) first_ns: u64,
    pub(crate) crc: u32,
}

/// The file's head.
pub(crate) fn file_head() -> [u8; FILE_HEAD] {
    let mut out = [0; FILE_HEAD];
    out[..8].copy_from_slice(&MAGIC);
    out[8..10].copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32fast::hash(&out[..12]);
    out[12..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Version of a file by its head; none if it is not the head of a trace, or damaged.
pub(crate) fn file_version(data: &[u8]) -> Option<u16> {
    let head = data.get(..FILE_HEAD)?;
    let ok = head[..8] == MAGIC && crc32fast::hash(&head[..12]) == u32_at(head, 12);
    ok.then(|| u16::from_le_bytes([head[8], head[9]]))
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}

impl Head {
    pub(crate) fn bytes(&self) -> [u8; BLOCK_HEAD] {
        let mut out = [0; BLOCK_HEAD];
        out[..8].copy_from_slice(&SYNC);
        out[8] = self.kind;
        for (at, v) in [(12, self.len), (16, self.count), (20, self.number), (32, self.crc)] {
            out[at..at + 4].copy_from_slice(&v.to_le_bytes());
        }
        out[24..32].copy_from_slice(&self.first_ns.to_le_bytes());
        let crc = crc32fast::hash(&out[..36]);
        out[36..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The head at the front of `data`; none if there is none, or a damaged one.
    pub(crate) fn of(data: &[u8]) -> Option<Head> {
        let d = data.get(..BLOCK_HEAD)?;
        let first_ns = u64::from(u32_at(d, 24)) | u64::from(u32_at(d, 28)) << 32;
        let head = Head {
            kind: d[8],
            len: u32_at(d, 12),
            count: u32_at(d, 16),
            number: u32_at(d, 20),
            first_ns,
            crc: u32_at(d, 32),
        };
        let ok = d[..8] == SYNC
            && crc32fast::hash(&d[..36]) == u32_at(d, 36)
            && head.len as usize <= BLOCK_MAX;
        ok.then_some(head)
    }
}
