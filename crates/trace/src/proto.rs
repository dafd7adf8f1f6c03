//! Writes fields of protocol buffers (varint, fixed 64 bits, bytes); it knows no message.
//!
//! By hand, because Perfetto's export needs five messages and about twenty fields: a generator and
//! its runtime would be more.

/// A message under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    fn key(&mut self, field: u32, wire: u32) {
        crate::wire::put(&mut self.0, u64::from(field << 3 | wire));
    }

    pub(crate) fn uint(&mut self, field: u32, v: u64) -> &mut Message {
        self.key(field, 0);
        crate::wire::put(&mut self.0, v);
        self
    }

    pub(crate) fn fixed64(&mut self, field: u32, v: u64) -> &mut Message {
        self.key(field, 1);
        self.0.extend_from_slice(&v.to_le_bytes());
        self
    }

    pub(crate) fn bytes(&mut self, field: u32, v: &[u8]) -> &mut Message {
        self.key(field, 2);
        crate::wire::put(&mut self.0, v.len() as u64);
        self.0.extend_from_slice(v);
        self
    }

    pub(crate) fn message(&mut self, field: u32, v: &Message) -> &mut Message {
        self.bytes(field, &v.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_the_encoding_guide_shows() {
        let mut m = Message::default();
        m.uint(1, 150).bytes(2, b"testing");
        assert_eq!(m.0, b"\x08\x96\x01\x12\x07testing");
        let mut outer = Message::default();
        outer.message(3, Message::default().uint(1, 150)).fixed64(47, 1);
        assert_eq!(outer.0, b"\x1a\x03\x08\x96\x01\xf9\x02\x01\0\0\0\0\0\0\0");
    }
}
