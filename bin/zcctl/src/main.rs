//! Operate and inspect zcached.

fn main() {}
