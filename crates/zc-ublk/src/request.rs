//! Requests in the kernel's representation.

use zc_core::SECTOR_BYTES;

use crate::uapi::{IoDescriptor, op};

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOp {
    /// Reads bytes.
    Read,
    /// Writes bytes, which accompany it.
    Write,
    /// Makes all acknowledged writes durable.
    Flush,
    /// Releases the range.
    Discard,
    /// Makes the range read as zero.
    WriteZeroes {
        /// `true` if its space must stay allocated.
        no_hole: bool,
    },
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Kind.
    pub op: RequestOp,
    /// First byte; a multiple of 512, as is the length.
    pub offset_bytes: u64,
    /// Length in bytes; 0 for a flush.
    pub len_bytes: u64,
    /// `true` if it must be durable before completion.
    pub fua: bool,
}

impl Request {
    /// Parses a descriptor. Returns `None` for an unsupported operation, a range outside `size_bytes`, or a transfer
    /// larger than `data_bytes_max`.
    pub(crate) fn of(raw: &IoDescriptor, size_bytes: u64, data_bytes_max: u32) -> Option<Self> {
        let sector = u64::from(SECTOR_BYTES);
        let op = match raw.op_flags & op::MASK {
            op::READ => RequestOp::Read,
            op::WRITE => RequestOp::Write,
            op::FLUSH => RequestOp::Flush,
            op::DISCARD => RequestOp::Discard,
            op::WRITE_ZEROES => RequestOp::WriteZeroes { no_hole: raw.op_flags & op::NO_UNMAP != 0 },
            _ => return None,
        };
        if op == RequestOp::Flush {
            return Some(Self { op, offset_bytes: 0, len_bytes: 0, fua: false });
        }
        let offset_bytes = raw.start_sector.checked_mul(sector)?;
        let len_bytes = u64::from(raw.nr_sectors) * sector;
        let moves_bytes = matches!(op, RequestOp::Read | RequestOp::Write);
        let fits = offset_bytes.checked_add(len_bytes)? <= size_bytes
            && len_bytes > 0
            && (!moves_bytes || len_bytes <= u64::from(data_bytes_max));
        fits.then_some(Self { op, offset_bytes, len_bytes, fua: raw.op_flags & op::FUA != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(op_flags: u32, start_sector: u64, nr_sectors: u32) -> IoDescriptor {
        IoDescriptor { op_flags, nr_sectors, start_sector, addr: 0 }
    }

    fn read(raw: IoDescriptor) -> Option<Request> {
        Request::of(&raw, 1 << 20, 64 << 10)
    }

    #[test]
    fn descriptors_become_requests() {
        let write = read(descriptor(op::WRITE | op::FUA, 8, 16)).unwrap();
        assert_eq!(
            (write.op, write.offset_bytes, write.len_bytes, write.fua),
            (RequestOp::Write, 4096, 8192, true)
        );
        assert_eq!(read(descriptor(op::FLUSH, 99, 0)).unwrap().len_bytes, 0);
        let zeroes = read(descriptor(op::WRITE_ZEROES | op::NO_UNMAP, 0, 2048)).unwrap();
        assert_eq!((zeroes.op, zeroes.len_bytes), (RequestOp::WriteZeroes { no_hole: true }, 1 << 20));
    }

    #[test]
    fn what_no_device_has_is_refused() {
        assert_eq!(read(descriptor(op::READ, 2047, 2)), None);
        assert_eq!(read(descriptor(op::READ, u64::MAX, 1)), None);
        assert_eq!(read(descriptor(op::READ, u64::MAX / 512, 1)), None);
        assert_eq!(read(descriptor(op::READ, 0, 0)), None);
        assert_eq!(read(descriptor(op::WRITE, 0, 129)), None);
        assert_eq!(read(descriptor(4, 0, 1)), None);
        assert_eq!(read(descriptor(0x0d, 0, 1)), None);
    }
}
