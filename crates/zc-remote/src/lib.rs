//! A remote NBD export as an origin, without I/O: design.
#![doc = include_str!("../CONSISTENCY.md")]
#![forbid(unsafe_code)]
