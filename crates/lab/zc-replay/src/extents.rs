//! Requests cut into extents, each with a key of its own.
//!
//! Invariants: two extents have one key only if they are the same extent of the same device. Devices are numbered in
//! the order in which they come.

use zc_core::limits::EXTENT_BYTES_MIN;
use zc_core::{Map, Set, u64_from_usize};
use zc_trace::limits::ADDRESS_MAX;
use zc_trace::{Op, Request, TraceError};

use crate::error::ReplayError;

/// Bits of an extent's number: addresses have 62.
const NUMBER_BITS: u32 = 50;
/// Devices of a trace.
const DEVICES_MAX: u64 = 1 << (63 - NUMBER_BITS);

const _: () = assert!(ADDRESS_MAX / EXTENT_BYTES_MIN as u64 <= 1 << NUMBER_BITS);

/// Cuts requests into extents.
#[derive(Debug)]
pub struct Extents {
    extent_bytes: u64,
    devices: Map<u32, u64>,
}

impl Extents {
    /// For extents of this size.
    ///
    /// # Panics
    /// If it is no power of two or below [`EXTENT_BYTES_MIN`].
    #[must_use]
    pub fn new(extent_bytes: u32) -> Self {
        assert!(extent_bytes.is_power_of_two() && extent_bytes >= EXTENT_BYTES_MIN);
        Self { extent_bytes: u64::from(extent_bytes), devices: Map::default() }
    }

    /// Keys of all extents that a request touches, below 2^63; none for a flush.
    ///
    /// # Errors
    /// There are too many devices.
    pub fn keys(&mut self, request: &Request) -> Result<impl Iterator<Item = u64> + use<>, ReplayError> {
        let next = u64_from_usize(self.devices.len());
        let device = *self.devices.entry(request.device).or_insert(next);
        if device >= DEVICES_MAX {
            return Err(ReplayError::Devices { max: DEVICES_MAX });
        }
        let first = request.offset_bytes / self.extent_bytes;
        let end =
            if request.len_bytes == 0 { first } else { request.end_bytes().div_ceil(self.extent_bytes) };
        let base = device << NUMBER_BITS;
        Ok((first..end).map(move |number| base | number))
    }
}

/// Number of different extents that a trace reads or writes; discards do not count, since they insert nothing. Takes
/// about ten bytes of memory for each.
///
/// # Errors
/// Errors of the trace.
pub fn footprint(
    requests: impl Iterator<Item = Result<Request, TraceError>>,
    extent_bytes: u32,
) -> Result<u64, ReplayError> {
    let mut extents = Extents::new(extent_bytes);
    let mut seen = Set::default();
    for request in requests {
        let request = request?;
        if request.op != Op::Discard {
            seen.extend(extents.keys(&request)?);
        }
    }
    Ok(u64_from_usize(seen.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(device: u32, offset_bytes: u64, len_bytes: u32) -> Request {
        Request::new(0, Op::Read, offset_bytes, len_bytes).on(device)
    }

    #[test]
    fn every_extent_touched_has_its_key() {
        let mut extents = Extents::new(8192);
        let mut keys = |device, offset, len| -> Vec<u64> {
            extents.keys(&request(device, offset, len)).unwrap().collect()
        };
        assert_eq!(keys(7, 0, 1), [0]);
        assert_eq!(keys(7, 8191, 2), [0, 1]);
        assert_eq!(keys(7, 8192, 8192), [1]);
        assert_eq!(keys(9, 8192, 8193), [(1 << 50) + 1, (1 << 50) + 2]);
        assert_eq!(keys(7, 8192, 0), [0; 0]);
    }

    #[test]
    fn footprints_count_extents_once() {
        let all = [request(0, 0, 4096), request(0, 4096, 8192), request(1, 0, 512), request(0, 0, 4096)];
        assert_eq!(footprint(all.into_iter().map(Ok), 4096).unwrap(), 4);
        assert_eq!(footprint(all.into_iter().map(Ok), 16384).unwrap(), 2);
        let trim = Request::new(0, Op::Discard, 0, 1 << 20);
        assert_eq!(footprint(all.into_iter().chain([trim]).map(Ok), 4096).unwrap(), 4);
    }

    #[test]
    fn too_many_devices_are_an_error() {
        let all = (0..9000).map(|device| Ok(request(device, 0, 1)));
        assert!(matches!(footprint(all, 4096), Err(ReplayError::Devices { max: 8192 })));
    }
}
