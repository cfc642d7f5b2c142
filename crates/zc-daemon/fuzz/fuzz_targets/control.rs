//! The body with the same name, under libFuzzer.
#![no_main]

#[path = "../bodies/control.rs"]
mod body;
#[path = "../../src/control/request.rs"]
mod request;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
