//! Requests to origins that have a thread of their own.
//!
//! Job: check a request against the origin, zero the memory of a read beyond its end, and copy the data of a write.

use bytes::{Bytes, BytesMut};
use zc_core::{ErrorKind, SECTOR_BYTES, usize_from_u64};
use zc_io::{Segment, Target};
use zc_origin::OriginRequest;

/// Returns the reason if an origin of `len_bytes` cannot carry out a request.
pub(super) fn objection(request: &OriginRequest, len_bytes: u64, is_writable: bool) -> Option<ErrorKind> {
    let ((offset, len), sector) = (request.extent(), u64::from(SECTOR_BYTES));
    let end = offset.checked_add(len);
    if !offset.is_multiple_of(sector) || !len.is_multiple_of(sector) || end.is_none() {
        return Some(ErrorKind::Invalid);
    }
    if matches!(request, OriginRequest::Read { .. } | OriginRequest::Flush) {
        return None;
    }
    if !is_writable {
        return Some(ErrorKind::ReadOnly);
    }
    end.filter(|end| *end > len_bytes).map(|_| ErrorKind::Invalid)
}

/// Zeroes the part of a read beyond the end of an origin of `len_bytes`. Returns the length of the part before it.
pub(super) fn zero_beyond(target: &mut Target, offset: u64, len_bytes: u64) -> usize {
    let inside = usize_from_u64(len_bytes.saturating_sub(offset)).min(target.len_bytes());
    target.bytes_mut()[inside..].fill(0);
    inside
}

/// Copies the data of a write, which the origin keeps for longer than the memory of the request may last.
pub(super) fn gathered(segments: &[Segment]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(segments.iter().map(Segment::len_bytes).sum());
    segments.iter().for_each(|segment| bytes.extend_from_slice(segment.bytes()));
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_io::AlignedBuf;

    #[test]
    fn changes_stay_within_the_origin_and_take_whole_sectors() {
        let trim = |offset, len| OriginRequest::Trim { offset, len, fua: false };
        let of = |offset, len| objection(&trim(offset, len), 8192, true);
        assert_eq!((of(0, 8192), of(7680, 512)), (None, None));
        for (offset, len) in [(7680, 1024), (8192, 512), (1, 512), (0, 511), (u64::MAX - 511, 1024)] {
            assert_eq!(of(offset, len), Some(ErrorKind::Invalid), "{len} at {offset}");
        }
        assert_eq!(objection(&trim(0, 512), 8192, false), Some(ErrorKind::ReadOnly));
        assert_eq!(objection(&OriginRequest::Flush, 8192, false), None);
    }

    #[test]
    fn a_read_has_zeros_beyond_the_end() {
        for (offset, inside) in [(0, 1024), (7680, 512), (8192, 0), (1 << 40, 0)] {
            let mut target = Target::whole(AlignedBuf::new(1024));
            target.bytes_mut().fill(7);
            assert_eq!(zero_beyond(&mut target, offset, 8192), inside);
            let (before, beyond) = target.bytes().split_at(inside);
            assert!(before.iter().all(|byte| *byte == 7) && beyond.iter().all(|byte| *byte == 0));
        }
    }
}
