//! Fuzzer: A trace's file of any blocks whose checksums are right, so that the decoder behind them
//! sees any bytes. It judges nothing but that nobody panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = trace::fuzz::fuzz_blocks(data);
});
