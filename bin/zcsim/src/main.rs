//! Simulator and fuzzer over the production cache manager.

fn main() {}
