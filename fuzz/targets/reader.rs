//! Fuzzer: A trace's file of any bytes: heads, checksums, gaps and what follows them. It judges
//! nothing but that nobody panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = trace::fuzz::fuzz_reader(data);
});
