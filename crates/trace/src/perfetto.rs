//! Export for ui.perfetto.dev in its native format, as a stream; it draws what `tracks.rs` says and
//! no more.
//!
//! Numbers of messages and fields are those of `trace_packet.proto`, `track_descriptor.proto`,
//! `track_event.proto`, `counter_descriptor.proto` and `debug_annotation.proto` of Perfetto's
//! stable TrackEvent interface.

use crate::Event;
use crate::proto::Message;
use crate::tracks::{Flow, Sink, Track, draw};
use std::io::{self, Write};

mod trace {
    pub(super) const PACKET: u32 = 1;
}

mod packet {
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE_ID: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const SEQUENCE_FLAGS: u32 = 13;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
    /// Value of SEQUENCE_FLAGS: the first packet of its sequence.
    pub(super) const STATE_CLEARED: u64 = 1;
}

mod descriptor {
    pub(super) const UUID: u32 = 1;
    pub(super) const NAME: u32 = 2;
    pub(super) const PARENT: u32 = 5;
    pub(super) const COUNTER: u32 = 8;
}

mod event {
    pub(super) const ANNOTATION: u32 = 4;
    pub(super) const TYPE: u32 = 9;
    pub(super) const TRACK: u32 = 11;
    pub(super) const NAME: u32 = 23;
    pub(super) const DOUBLE_VALUE: u32 = 44;
    pub(super) const FLOW: u32 = 47;
    pub(super) const FLOW_ENDS: u32 = 48;
    pub(super) const BEGIN: u64 = 1;
    pub(super) const END: u64 = 2;
    pub(super) const INSTANT: u64 = 3;
    pub(super) const VALUE: u64 = 4;
}

mod annotation {
    pub(super) const STRING: u32 = 6;
    pub(super) const NAME: u32 = 10;
}

/// Number of the one sequence of packets that is written.
const SEQUENCE: u64 = 1;

/// Writes these events, which are in the order of time, for Perfetto.
///
/// # Errors
/// What `out` says when it refuses.
pub fn write(events: &[Event], out: impl Write) -> io::Result<()> {
    let mut sink = Packets { out, first: true };
    draw(events, &mut sink)?;
    sink.out.flush()
}

struct Packets<W: Write> {
    out: W,
    first: bool,
}

/// Number of a track in the file: its class in the upper half, its own number in the lower.
fn uuid(track: Track) -> u64 {
    let (class, id) = match track {
        Track::Host => (1, 0),
        Track::Pcpu(p) => (2, u32::from(p.0)),
        Track::Vm(vm) => (3, vm.map_or(u32::MAX, |v| v.0.into())),
        Track::World(_, w) => (4, w.0),
        Track::Used(vm) => (5, vm.0.into()),
        Track::Entitled(vm) => (6, vm.0.into()),
        Track::Waiting => (7, 0),
        Track::Idle => (8, 0),
        Track::Local(vm) => (9, vm.0.into()),
    };
    class << 32 | u64::from(id)
}

fn parent(track: Track) -> Option<Track> {
    match track {
        Track::Pcpu(_) | Track::Waiting | Track::Idle => Some(Track::Host),
        Track::World(vm, _) => Some(Track::Vm(vm)),
        Track::Used(vm) | Track::Entitled(vm) | Track::Local(vm) => Some(Track::Vm(Some(vm))),
        Track::Host | Track::Vm(_) => None,
    }
}

impl<W: Write> Packets<W> {
    fn packet(&mut self, ns: Option<u64>, field: u32, body: &Message) -> io::Result<()> {
        let mut packet = Message::default();
        if let Some(ns) = ns {
            packet.uint(packet::TIMESTAMP, ns);
        }
        packet.uint(packet::SEQUENCE_ID, SEQUENCE);
        if std::mem::take(&mut self.first) {
            packet.uint(packet::SEQUENCE_FLAGS, packet::STATE_CLEARED);
        }
        packet.message(field, body);
        let mut outer = Message::default();
        outer.message(trace::PACKET, &packet);
        self.out.write_all(&outer.0)
    }

    fn event(
        &mut self,
        ns: u64,
        track: Track,
        kind: u64,
        name: Option<&str>,
        flow: Option<Flow>,
        mut body: Message,
    ) -> io::Result<()> {
        body.uint(event::TYPE, kind).uint(event::TRACK, uuid(track));
        if let Some(name) = name {
            body.bytes(event::NAME, name.as_bytes());
        }
        match flow {
            Some(Flow::From(id)) => body.fixed64(event::FLOW, id),
            Some(Flow::To(id)) => body.fixed64(event::FLOW_ENDS, id),
            None => &mut body,
        };
        self.packet(Some(ns), packet::TRACK_EVENT, &body)
    }
}

impl<W: Write> Sink for Packets<W> {
    fn track(&mut self, track: Track, name: &str) -> io::Result<()> {
        let mut body = Message::default();
        body.uint(descriptor::UUID, uuid(track)).bytes(descriptor::NAME, name.as_bytes());
        if let Some(parent) = parent(track) {
            body.uint(descriptor::PARENT, uuid(parent));
        }
        let counts = matches!(
            track,
            Track::Used(_) | Track::Entitled(_) | Track::Local(_) | Track::Waiting | Track::Idle
        );
        if counts {
            body.message(descriptor::COUNTER, &Message::default());
        }
        self.packet(None, packet::TRACK_DESCRIPTOR, &body)
    }

    fn begin(
        &mut self,
        ns: u64,
        track: Track,
        name: &str,
        notes: &[(&str, String)],
        flow: Option<Flow>,
    ) -> io::Result<()> {
        let mut body = Message::default();
        for (key, value) in notes {
            let mut note = Message::default();
            note.bytes(annotation::NAME, key.as_bytes())
                .bytes(annotation::STRING, value.as_bytes());
            body.message(event::ANNOTATION, &note);
        }
        self.event(ns, track, event::BEGIN, Some(name), flow, body)
    }

    fn end(&mut self, ns: u64, track: Track) -> io::Result<()> {
        self.event(ns, track, event::END, None, None, Message::default())
    }

    fn instant(&mut self, ns: u64, track: Track, name: &str, flow: Option<Flow>) -> io::Result<()> {
        self.event(ns, track, event::INSTANT, Some(name), flow, Message::default())
    }

    fn counter(&mut self, ns: u64, track: Track, value: f64) -> io::Result<()> {
        let mut body = Message::default();
        body.fixed64(event::DOUBLE_VALUE, value.to_bits());
        self.event(ns, track, event::VALUE, None, None, body)
    }
}
