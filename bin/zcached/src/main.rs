//! The zcached daemon.

fn main() {}
