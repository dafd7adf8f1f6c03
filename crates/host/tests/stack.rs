//! Stack and frames of the scheduler's longest chains of calls: a kernel's verifier accepts 512
//! bytes and 8 frames. They are counted in the object, so no kernel need be booted. Older kernels
//! also count calls in code that is never reached, and so does this.

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SymbolKind};
use std::collections::{BTreeMap, HashMap};

const OBJECT: &str = concat!(env!("OUT_DIR"), "/tandem.bpf.o");
/// Bytes of stack of one chain of calls, and its frames (the kernel's MAX_BPF_STACK and
/// MAX_CALL_FRAMES).
const STACK: u32 = 512;
const FRAMES: usize = 8;
/// Each frame is rounded up to this many bytes where programs are compiled for the CPU.
const ROUND: u32 = 16;

/// A function: bytes of its frame, and the functions that it calls.
#[derive(Default)]
struct Function {
    frame: u32,
    calls: Vec<String>,
}

/// An instruction of the BPF instruction set (RFC 9669).
struct Insn {
    code: u8,
    dst: u8,
    src: u8,
    off: i16,
    imm: i32,
}

fn insn(bytes: &[u8]) -> Insn {
    Insn {
        code: bytes[0],
        dst: bytes[1] & 15,
        src: bytes[1] >> 4,
        off: i16::from_le_bytes([bytes[2], bytes[3]]),
        imm: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    }
}

/// How far below the frame pointer (register 10) the code reaches.
fn frame(code: &[u8]) -> u32 {
    const MOVE: u8 = 0xbf;
    const ADD: u8 = 0x07;
    const FRAME_POINTER: u8 = 10;
    let mut least = 0;
    let mut address = [false; 16];
    for bytes in code.chunks_exact(8) {
        let i = insn(bytes);
        let reaches = match i.code & 7 {
            1 if i.src == FRAME_POINTER => i32::from(i.off),
            2 | 3 if i.dst == FRAME_POINTER => i32::from(i.off),
            7 if i.code == ADD && address[usize::from(i.dst)] => i.imm,
            _ => 0,
        };
        least = least.min(reaches);
        address[usize::from(i.dst)] = i.code == MOVE && i.src == FRAME_POINTER;
    }
    least.unsigned_abs()
}

fn functions() -> BTreeMap<String, Function> {
    const CALL: u8 = 0x85;
    const PROGRAM: u8 = 1;
    let bytes = std::fs::read(OBJECT).expect("the build wrote it");
    let file = object::File::parse(&*bytes).expect("it is an object");
    let mut by_place = HashMap::new();
    let mut found: BTreeMap<String, Function> = BTreeMap::new();
    for symbol in file.symbols().filter(|s| s.kind() == SymbolKind::Text && s.size() > 0) {
        let (name, section) = (symbol.name().expect("a name"), symbol.section_index());
        by_place.insert((section, symbol.address()), name.to_owned());
    }
    for symbol in file.symbols().filter(|s| s.kind() == SymbolKind::Text && s.size() > 0) {
        let index = symbol.section_index().expect("code has a section");
        let section = file.section_by_index(index).expect("the symbol's section");
        let (from, to) = (symbol.address(), symbol.address() + symbol.size());
        let code = &section.data().expect("its code")[from as usize..to as usize];
        let mut function = Function { frame: frame(code), calls: vec![] };
        for (at, relocation) in section.relocations().filter(|(at, _)| (from..to).contains(at)) {
            let i = insn(&code[(at - from) as usize..]);
            let RelocationTarget::Symbol(target) = relocation.target() else { continue };
            if i.code != CALL || i.src != PROGRAM {
                continue;
            }
            let target = file.symbol_by_index(target).expect("the target's symbol");
            let name = match target.kind() {
                // A static function: the section, and the instruction in it less one.
                SymbolKind::Section => by_place
                    .get(&(target.section_index(), (i64::from(i.imm) + 1) as u64 * 8))
                    .expect("a function begins there"),
                _ => target.name().expect("a name"),
            };
            function.calls.push(name.to_owned());
        }
        found.insert(symbol.name().expect("a name").to_owned(), function);
    }
    found
}

/// The most that a chain of calls from a function on costs, and that chain.
fn worst<'f>(
    of: &'f BTreeMap<String, Function>,
    name: &'f str,
    cost: &dyn Fn(&Function) -> u32,
) -> (u32, Vec<&'f str>) {
    let Some(function) = of.get(name) else { return (0, vec![]) };
    let chains = function.calls.iter().map(|c| worst(of, c, cost));
    let (below, mut chain) = chains.max_by_key(|(sum, _)| *sum).unwrap_or_default();
    chain.insert(0, name);
    (below + cost(function), chain)
}

#[test]
fn no_chain_of_calls_is_too_deep_for_a_kernel() {
    let of = functions();
    let bytes = |f: &Function| f.frame.max(1).next_multiple_of(ROUND);
    let most = |cost: &dyn Fn(&Function) -> u32| {
        of.keys().map(|name| worst(&of, name, cost)).max_by_key(|(sum, _)| *sum)
    };
    let (stack, chain) = most(&bytes).expect("the object has functions");
    assert!(stack <= STACK, "{stack} bytes of stack, allowed {STACK}: {}", chain.join(" -> "));
    assert!(stack > STACK / 2, "{stack} bytes: calls are not seen");
    let (frames, chain) = most(&|_| 1).expect("the object has functions");
    assert!(frames as usize <= FRAMES, "{frames} frames, allowed {FRAMES}: {}", chain.join(" -> "));
    assert_eq!(chain.len(), frames as usize);
}
