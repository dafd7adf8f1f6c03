//! The timeline's rows: every piece, or the short ones merged so that a page stays small; sums are
//! made elsewhere.
//!
//! Law: with a resolution of r ns, a piece of r or longer is unchanged. Shorter neighbours become
//! one piece with the code that took most of their time, marked as mixed, of at most 2 r. So a row
//! over T ns has at most 2 T / r + 1 pieces, and no moment is lost.

use std::collections::BTreeMap;

/// Most pieces on a page: about 9 bytes each, so a little more than two megabytes.
pub(crate) const PIECES_MAX: usize = 240_000;

/// A piece of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Begin, in ns.
    pub(crate) from: u64,
    /// End, in ns.
    pub(crate) to: u64,
    /// What it was.
    pub(crate) code: u32,
}

/// A row that is being filled, in the order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    pieces: Vec<Piece>,
}

impl Lane {
    /// Adds a piece behind the others, and joins it to the last if it is the same.
    pub(crate) fn push(&mut self, from: u64, to: u64, code: u32) {
        let from = self.pieces.last().map_or(from, |l| l.to.max(from));
        if from >= to {
            return;
        }
        match self.pieces.last_mut() {
            Some(last) if last.to == from && last.code == code => last.to = to,
            _ => self.pieces.push(Piece { from, to, code }),
        }
    }

    /// Time that is not in a hole, in ns.
    pub(crate) fn filled_ns(&self) -> u64 {
        self.pieces.iter().map(|p| p.to - p.from).sum()
    }

    /// Fills every hole from `from` to `to` with code 0.
    pub(crate) fn close(&mut self, from: u64, to: u64) {
        let old = std::mem::take(&mut self.pieces);
        let mut at = from;
        for p in old {
            self.push(at, p.from, 0);
            self.push(p.from, p.to, p.code);
            at = p.to;
        }
        self.push(at, to, 0);
    }

    /// Pairs of length and code × 2, + 1 where pieces shorter than `resolution` were joined.
    fn joined(&self, resolution: u64) -> Vec<(u64, u64)> {
        let mut out = vec![];
        let mut short = Short::default();
        for p in &self.pieces {
            let ns = p.to - p.from;
            if ns >= resolution {
                short.end(&mut out);
                out.push((ns, u64::from(p.code) * 2));
            } else {
                if short.ns + ns > 2 * resolution {
                    short.end(&mut out);
                }
                short.add(ns, p.code);
            }
        }
        short.end(&mut out);
        out
    }
}

/// Short neighbours.
#[derive(Default)]
struct Short {
    ns: u64,
    count: usize,
    codes: BTreeMap<u32, u64>,
}

impl Short {
    fn add(&mut self, ns: u64, code: u32) {
        self.ns += ns;
        self.count += 1;
        *self.codes.entry(code).or_default() += ns;
    }

    fn end(&mut self, out: &mut Vec<(u64, u64)>) {
        let all = std::mem::take(self);
        // Of two that took as long, the one with the smaller code.
        if let Some((code, _)) = all.codes.iter().max_by_key(|(code, ns)| (**ns, u32::MAX - **code))
        {
            out.push((all.ns, u64::from(*code) * 2 + u64::from(all.count > 1)));
        }
    }
}

/// Resolution and rows, so that there are at most `most` pieces if `span` and the number of rows
/// allow it.
pub(crate) fn reduce(lanes: &[Lane], span: u64, most: usize) -> (u64, Vec<Vec<u64>>) {
    let mut resolution = 0;
    loop {
        let joined: Vec<Vec<(u64, u64)>> = lanes.iter().map(|l| l.joined(resolution)).collect();
        if joined.iter().map(Vec::len).sum::<usize>() <= most || resolution > span {
            return (
                resolution,
                joined
                    .into_iter()
                    .map(|l| l.into_iter().flat_map(|p| [p.0, p.1]).collect())
                    .collect(),
            );
        }
        resolution = next(resolution);
    }
}

/// The next of 1, 2, 5, 10, … µs.
fn next(ns: u64) -> u64 {
    let mut step = 1000;
    for factor in [2, 5, 2].into_iter().cycle() {
        if step > ns {
            break;
        }
        step = if factor == 5 { step / 2 * 5 } else { step * 2 };
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row with a long piece, then 1,000 of 10 ns, of which every third has code 2.
    fn lane() -> Lane {
        let mut lane = Lane::default();
        lane.push(0, 50_000, 7);
        (0..1000).for_each(|i| {
            lane.push(50_000 + i * 10, 50_010 + i * 10, if i % 3 == 0 { 2 } else { 1 })
        });
        lane.close(0, 100_000);
        lane
    }

    #[test]
    fn steps_of_resolution_are_round() {
        let mut steps = vec![0];
        (0..7).for_each(|_| steps.push(next(*steps.last().unwrap())));
        assert_eq!(steps, [0, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000]);
    }

    #[test]
    fn with_room_for_all_every_piece_is_as_it_was() {
        let (resolution, lanes) = reduce(&[lane()], 100_000, 10_000);
        assert_eq!(resolution, 0);
        assert_eq!(lanes[0][..6], [50_000, 14, 10, 4, 20, 2]);
        assert_eq!(lanes[0].chunks(2).map(|p| p[0]).sum::<u64>(), 100_000);
    }

    #[test]
    fn without_room_short_pieces_become_one_that_is_marked_and_no_time_is_lost() {
        let (resolution, lanes) = reduce(&[lane()], 100_000, 20);
        assert_eq!(resolution, 1000);
        assert!(lanes[0].len() <= 40, "{:?}", lanes[0]);
        assert_eq!(lanes[0].chunks(2).map(|p| p[0]).sum::<u64>(), 100_000);
        assert_eq!(lanes[0][..4], [50_000, 14, 1990, 3], "mostly code 1, mixed");
        assert_eq!(lanes[0][lanes[0].len() - 2..], [40_000, 0], "the hole at the end");
    }

    #[test]
    fn more_lanes_than_room_still_end() {
        let (resolution, lanes) = reduce(&[lane(), lane(), lane()], 100_000, 1);
        assert!(resolution > 100_000);
        assert_eq!(lanes.iter().map(|l| l.len() / 2).collect::<Vec<_>>(), [1, 1, 1]);
    }
}
