//! Writes the inputs that fuzzers begin with into FOLDER/TARGET/corpus, for `cargo xtask fuzz`:
//! traces of small hosts as file, log and raw records, and RDY's sample. The same bytes each time,
//! so that none has to be kept.

use std::path::Path;
use std::{env, fs, io};

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Draw, any, file, host};
use trace::log::{Style, print};
use trace::{Event, to_raw};

const RDY: &str = include_str!("../tests/data/rdy.log");
/// Inputs of each kind, from a few events to some hundred.
const ROUNDS: u64 = 24;

/// Events of a small host, with some that no host makes among them.
fn events(round: u64) -> Vec<Event> {
    let mut r = Draw::new(round * 77 + 1);
    let mut out = host(
        round + 1,
        1 + (round % 4) as u16,
        2 + (round % 7) as u32,
        4 + (round * round) as usize,
    );
    for _ in 0..round * 2 {
        let at = r.below(out.len() as u64) as usize;
        let odd = any(&mut r);
        out.insert(at, Event { ns: out[at].ns, ..odd });
    }
    out
}

fn main() -> io::Result<()> {
    let Some(folder) = env::args_os().nth(1) else {
        return Err(io::Error::other("no folder was given"));
    };
    let write = |target: &str, name: &str, data: &[u8]| {
        let folder = Path::new(&folder).join(target).join("corpus");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("seed-{name}")), data)
    };
    for round in 0..ROUNDS {
        let (events, name) = (events(round), round.to_string());
        let whole = file(&events);
        write("reader", &name, &whole)?;
        write("blocks", &name, &whole)?;
        let style = if round % 2 == 0 { Style::Full } else { Style::Rdy };
        write("log", &name, print(&events, style, 1).as_bytes())?;
        let raw: Vec<u8> = events.iter().filter_map(|e| to_raw(e).ok()).flatten().collect();
        write("raw", &name, &raw)?;
    }
    write("log", "rdy", RDY.as_bytes())
}
