//! The body with the same name, under libFuzzer.
#![no_main]

#[path = "../bodies/store_index.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
