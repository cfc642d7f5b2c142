//! Lossless integer conversions for the 64-bit targets zcached supports.

const _: () = assert!(usize::BITS == 64, "zcached runs on 64-bit machines");

/// Widens a `u32` count or index.
#[must_use]
pub const fn usize_from_u32(value: u32) -> usize {
    value as usize
}

/// Converts a `u64` count or index; lossless because `usize` has 64 bits here.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits, asserted above")]
pub const fn usize_from_u64(value: u64) -> usize {
    value as usize
}

/// Converts a `usize` count or index.
#[must_use]
pub const fn u64_from_usize(value: usize) -> u64 {
    value as u64
}
