//! Values of a line or a record: requests, device numbers, products.
//!
//! Invariant: arithmetic on a trace's values is checked.

use crate::limits::ADDRESS_MAX;
use crate::request::{Op, Request};

/// A request, nothing (a header, a comment, an event of another kind), or an error.
pub(crate) type Parsed = Result<Option<Request>, &'static str>;

/// Bits of a device number that are its minor.
pub(crate) const MINOR_BITS: u32 = 20;
pub(crate) const MINOR_MASK: u32 = (1 << MINOR_BITS) - 1;
pub(crate) const SECTOR: u64 = zc_core::SECTOR_BYTES as u64;

pub(crate) fn times(value: u64, factor: u64) -> Result<u64, &'static str> {
    value.checked_mul(factor).ok_or("a number is out of range")
}

/// A device number as Linux packs it: twelve bits of major, twenty of minor.
pub(crate) fn device_number(major: u64, minor: u64) -> Result<u64, &'static str> {
    if minor > u64::from(MINOR_MASK) {
        return Err("a device number is out of range");
    }
    times(major, 1 << MINOR_BITS)?.checked_add(minor).ok_or("a device number is out of range")
}

/// A request, once its numbers are known to be sane.
pub(crate) fn request(
    time_ns: u64,
    device: u64,
    op: Op,
    offset_bytes: u64,
    len_bytes: u64,
) -> Result<Request, &'static str> {
    let device = u32::try_from(device).map_err(|_| "a device number is out of range")?;
    let len_bytes = u32::try_from(len_bytes).map_err(|_| "a length is out of range")?;
    if len_bytes == 0 && op.has_range() {
        return Err("a length is zero");
    }
    if offset_bytes.checked_add(u64::from(len_bytes)).is_none_or(|end| end > ADDRESS_MAX) {
        return Err("an address is out of range");
    }
    Ok(Request::new(time_ns, op, offset_bytes, len_bytes).on(device))
}
