//! A device in memory with a cost model.
//!
//! Job: keep bytes, count operations, compute their completion times.
//!
//! Invariants: one operation at a time, in the order of submission. The same operations take the same time on every
//! machine.
//!
//! It does not lose, tear or reorder anything; `zc-sim` does.

use bytes::Bytes;
use zc_core::{u64_from_usize, usize_from_u32, usize_from_u64};
use zc_pool::{DeviceOperation, Ended};
use zc_store::limits::BLOCK_BYTES;

const NS_PER_S: u128 = 1_000_000_000;

/// Costs of operations.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// Name.
    pub name: &'static str,
    /// Seek to another place. An operation that starts slightly after the end of the last one waits for the gap to
    /// pass.
    pub seek_ns: u64,
    /// Per operation.
    pub operation_ns: u64,
    /// Per flush.
    pub flush_ns: u64,
    /// Transfer rate of one operation.
    pub bytes_per_s: u64,
}

/// An SSD with a fifth of the operations of a fast one.
pub const SSD: Model =
    Model { name: "SSD", seek_ns: 0, operation_ns: 20_000, flush_ns: 200_000, bytes_per_s: 1_000_000_000 };

/// Bytes that are passed over, not sought past: a track or so.
const NEAR_BYTES: u64 = 1 << 20;

/// A disk with 7,200 rotations a minute: half a rotation and an average movement of the arm.
pub const DISK: Model = Model {
    name: "disk",
    seek_ns: 12_000_000,
    operation_ns: 50_000,
    flush_ns: 8_000_000,
    bytes_per_s: 180_000_000,
};

impl Model {
    /// Returns the cost of an operation that continues the last one.
    #[must_use]
    pub fn transfer_ns(&self, len_bytes: u64) -> u64 {
        let transfer_ns = u128::from(len_bytes) * NS_PER_S / u128::from(self.bytes_per_s.max(1));
        self.operation_ns.saturating_add(u64::try_from(transfer_ns).unwrap_or(u64::MAX))
    }
}

/// Counts of a device's operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Writes.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Operations that did not begin at the end of the one before, or a little behind it.
    pub seeks: u64,
}

impl Tally {
    /// Returns the difference to an earlier reading.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            writes: self.writes - before.writes,
            written_bytes: self.written_bytes - before.written_bytes,
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            flushes: self.flushes - before.flushes,
            seeks: self.seeks - before.seeks,
        }
    }
}

/// The device.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    model: Model,
    bytes: Vec<u8>,
    tally: Tally,
    /// Completion time of all submitted operations.
    free_at_ns: u64,
    /// End of the last operation.
    at_bytes: u64,
    /// The last operation was a read: its last block is in the device's buffer.
    has_read: bool,
}

impl Device {
    /// A device with these bytes.
    pub(crate) const fn new(model: Model, bytes: Vec<u8>) -> Self {
        Self {
            model,
            bytes,
            tally: Tally { writes: 0, written_bytes: 0, reads: 0, read_bytes: 0, flushes: 0, seeks: 0 },
            free_at_ns: 0,
            at_bytes: 0,
            has_read: false,
        }
    }

    /// Returns the operations so far.
    pub(crate) const fn tally(&self) -> Tally {
        self.tally
    }

    /// Executes an operation submitted now; returns its completion time and result.
    pub(crate) fn begin(&mut self, now_ns: u64, operation: &DeviceOperation) -> (u64, Ended) {
        let (cost_ns, ended) = match operation {
            DeviceOperation::Read { offset_bytes, len_bytes } => {
                let at = usize_from_u64(*offset_bytes);
                let bytes = Bytes::copy_from_slice(&self.bytes[at..at + usize_from_u32(*len_bytes)]);
                self.tally.reads += 1;
                self.tally.read_bytes += u64::from(*len_bytes);
                (self.moves(*offset_bytes, u64::from(*len_bytes), true), Ended::Read(Ok(bytes)))
            }
            DeviceOperation::Write { offset_bytes, bytes } => {
                let at = usize_from_u64(*offset_bytes);
                self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
                self.tally.writes += 1;
                self.tally.written_bytes += u64_from_usize(bytes.len());
                (self.moves(*offset_bytes, u64_from_usize(bytes.len()), false), Ended::Device(Ok(())))
            }
            DeviceOperation::Discard { .. } => (0, Ended::Device(Ok(()))),
            DeviceOperation::Flush => {
                self.tally.flushes += 1;
                (self.model.flush_ns, Ended::Device(Ok(())))
            }
        };
        self.free_at_ns = self.free_at_ns.max(now_ns) + cost_ns;
        (self.free_at_ns, ended)
    }

    fn moves(&mut self, offset_bytes: u64, len_bytes: u64, is_read: bool) -> u64 {
        let held_bytes = if is_read && self.has_read { u64::from(BLOCK_BYTES) } else { 0 };
        let behind_bytes = offset_bytes.checked_sub(self.at_bytes.saturating_sub(held_bytes));
        let passed_bytes = behind_bytes.map(|bytes| bytes.saturating_sub(held_bytes));
        let passed_bytes = passed_bytes.filter(|bytes| *bytes <= NEAR_BYTES);
        (self.at_bytes, self.has_read) = (offset_bytes + len_bytes, is_read);
        self.tally.seeks += u64::from(passed_bytes.is_none());
        match passed_bytes {
            Some(passed_bytes) if self.model.seek_ns > 0 => self.model.transfer_ns(passed_bytes + len_bytes),
            Some(_) => self.model.transfer_ns(len_bytes),
            None => self.model.transfer_ns(len_bytes) + self.model.seek_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_queue_and_only_those_far_away_seek() {
        let mut device = Device::new(DISK, vec![0; 4 << 20]);
        let write = |offset_bytes| DeviceOperation::Write { offset_bytes, bytes: vec![1; 4096].into() };
        let transfer_ns = DISK.transfer_ns(4096);
        assert_eq!(device.begin(5, &write(0)).0, 5 + transfer_ns, "it begins where the heads are");
        assert_eq!(device.begin(6, &write(4096)).0, 5 + 2 * transfer_ns, "behind the first one");
        assert_eq!(device.begin(7, &write(4096)).0, 5 + 3 * transfer_ns + DISK.seek_ns);
        let (_, ended) = device.begin(0, &DeviceOperation::Read { offset_bytes: 4096, len_bytes: 4096 });
        assert!(matches!(ended, Ended::Read(Ok(bytes)) if bytes[..] == [1; 4096]));
        let tally =
            Tally { writes: 3, written_bytes: 12_288, reads: 1, read_bytes: 4096, flushes: 0, seeks: 2 };
        assert_eq!(device.tally(), tally);
    }

    #[test]
    fn a_read_may_begin_with_the_block_that_the_last_read_ended_with() {
        let mut device = Device::new(DISK, vec![0; 4 << 20]);
        let read = |offset_bytes| DeviceOperation::Read { offset_bytes, len_bytes: 8192 };
        let transfer_ns = DISK.transfer_ns(8192);
        assert_eq!(device.begin(0, &read(0)).0, transfer_ns);
        assert_eq!(device.begin(0, &read(4096)).0, 2 * transfer_ns, "the block is in the buffer");
        assert_eq!(device.begin(0, &read(4096)).0, 3 * transfer_ns + DISK.seek_ns, "not all that was read");
    }
}
