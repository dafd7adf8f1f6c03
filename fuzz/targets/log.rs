//! Fuzzer: A textual log of any letters, read strictly and leniently, printed and read again. It
//! judges nothing but that nobody panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = trace::fuzz::fuzz_log(data);
});
