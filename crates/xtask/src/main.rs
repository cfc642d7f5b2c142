//! Development tasks that are more than cargo.

fn main() {}
