//! Fuzzer: Records of a scheduler's ring, of any bytes. It judges nothing but that nobody panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = trace::fuzz::fuzz_raw(data);
});
