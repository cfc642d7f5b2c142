//! The pool's device on a ring.
//!
//! Job: turn operations of the pool into operations of the ring and return their results, in memory suitable for
//! direct I/O. Invariants: operations start in the given order; each completes once. It does not retry.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use bytes::Bytes;
use zc_core::{ErrorKind, OpId, usize_from_u32};
use zc_io::{
    AlignedBuf, BlockFile, BufPool, Completion, EventFd, FallocateMode, Memory, Operation, Ring, RingOptions,
    SharedFd, Target, kind_of,
};
use zc_pool::{DeviceOperation, Ended};

use crate::error::OpenError;
use crate::limits::{BUFFERS_BYTES, RING_ENTRIES, RING_OPS_MAX};
use crate::overlay::Overlay;

/// User data of the wake-up in the ring: no operation of a pool has this number.
const WAKE: u64 = 0;

/// Device with its operations in flight.
#[derive(Debug)]
pub(crate) struct Device {
    file: BlockFile,
    ring: Ring,
    event: EventFd,
    buffers: BufPool,
    /// Operations waiting for space in the ring.
    backlog: VecDeque<(Operation, u64)>,
    errors: u64,
    /// Written blocks, if the file must not be changed.
    overlay: Option<Overlay>,
    /// Operations that completed without the ring.
    ended: Vec<(OpId, Ended)>,
}

struct Read(AlignedBuf);

impl AsRef<[u8]> for Read {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Device {
    /// Creates the device; must run on the thread that uses it.
    pub(crate) fn new(file: BlockFile, event: EventFd, look_only: bool) -> Result<Self, OpenError> {
        let ring = Ring::new(RingOptions { entries: RING_ENTRIES, ops_max: RING_OPS_MAX, poll_max_us: 0 })?;
        let buffers = BufPool::new(BUFFERS_BYTES);
        let mut device = Self {
            file,
            ring,
            event,
            buffers,
            backlog: VecDeque::new(),
            errors: 0,
            overlay: look_only.then(Overlay::default),
            ended: Vec::new(),
        };
        device.watch();
        Ok(device)
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn begin(&mut self, op: OpId, operation: DeviceOperation) {
        match (&mut self.overlay, operation) {
            (Some(overlay), DeviceOperation::Write { offset_bytes, bytes }) => {
                self.ended.push((op, Ended::Device(overlay.write(offset_bytes, &bytes))));
            }
            (Some(_), DeviceOperation::Flush | DeviceOperation::Discard { .. }) => {
                self.ended.push((op, Ended::Device(Ok(()))));
            }
            (_, operation) => self.begin_on_ring(op, operation),
        }
    }

    fn begin_on_ring(&mut self, op: OpId, operation: DeviceOperation) {
        let fd = self.file.fd();
        let operation = match operation {
            DeviceOperation::Read { offset_bytes, len_bytes } => {
                Operation::read(fd, offset_bytes, self.memory(usize_from_u32(len_bytes)))
            }
            DeviceOperation::Write { offset_bytes, bytes } => {
                let mut memory = self.memory(bytes.len());
                memory.copy_from_slice(&bytes);
                Operation::write(fd, offset_bytes, memory)
            }
            // Also for block devices: the kernel unmaps, and returns EOPNOTSUPP if the device cannot.
            DeviceOperation::Discard { offset_bytes, len_bytes } => Operation::Fallocate {
                fd: SharedFd::clone(fd),
                mode: FallocateMode::PunchHole,
                offset: offset_bytes,
                len: len_bytes.into(),
            },
            DeviceOperation::Flush => Operation::Fsync { fd: SharedFd::clone(fd), datasync: true },
        };
        self.submit(operation, op.0);
    }

    /// Waits for a completion or wake-up, at most for `timeout`; returns the completions.
    pub(crate) fn wait(
        &mut self,
        timeout: std::time::Duration,
        ended: &mut Vec<(OpId, Ended)>,
    ) -> Result<(), OpenError> {
        let mut completions: Vec<Completion> = Vec::new();
        let timeout = if self.ended.is_empty() { timeout } else { std::time::Duration::ZERO };
        self.ring.submit_and_wait(1, Some(timeout), &mut completions)?;
        ended.append(&mut self.ended);
        for Completion { user, result, operation, .. } in completions {
            if user == WAKE {
                self.watch();
                continue;
            }
            let op = OpId(user);
            ended.push((op, self.ended(result, operation)));
        }
        while self.ring.room() > 0 {
            let Some((operation, user)) = self.backlog.pop_front() else { break };
            self.submit_now(operation, user);
        }
        Ok(())
    }

    /// Returns `true` if operations are in flight.
    pub(crate) fn is_busy(&self) -> bool {
        // One is the wait for a wake-up.
        self.ring.in_flight() > 1 || !self.backlog.is_empty() || !self.ended.is_empty()
    }

    fn ended(&mut self, result: io::Result<usize>, operation: Operation) -> Ended {
        if let (Err(error), Operation::Fallocate { .. }) = (&result, &operation) {
            tracing::info!("store {}: free space is not discarded: {error}", self.file.path().display());
            return Ended::Device(Err(kind_of(error)));
        }
        let result = result.map_err(|error| {
            self.errors += 1;
            // The first error, then exponentially fewer: a device that fails for hours must not fill a disk with its
            // log.
            if self.errors.is_power_of_two() {
                let (count, place) = (self.errors, self.file.path().display());
                tracing::error!(count, "store {place}: {error}");
            }
            kind_of(&error)
        });
        match operation {
            Operation::Read { offset, target, .. } => {
                Ended::Read(result.and_then(|_| self.bytes_of(offset, target)))
            }
            _ => Ended::Device(result.map(|_| ())),
        }
    }

    fn bytes_of(&self, offset_bytes: u64, target: Target) -> Result<Bytes, ErrorKind> {
        let Memory::Buf(mut buf) = target.into_memory() else { return Err(ErrorKind::Io) };
        if let Some(overlay) = &self.overlay {
            overlay.lay_over(offset_bytes, &mut buf);
        }
        Ok(Bytes::from_owner(Read(buf)))
    }

    /// Memory with arbitrary contents.
    fn memory(&self, len_bytes: usize) -> AlignedBuf {
        self.buffers.get(len_bytes).unwrap_or_else(|| AlignedBuf::new(len_bytes))
    }

    fn watch(&mut self) {
        let event = self.event.clone();
        self.submit(Operation::Wait { event }, WAKE);
    }

    fn submit(&mut self, operation: Operation, user: u64) {
        if self.backlog.is_empty() {
            self.submit_now(operation, user);
        } else {
            self.backlog.push_back((operation, user));
        }
    }

    fn submit_now(&mut self, operation: Operation, user: u64) {
        if let Err(full) = self.ring.submit(operation, user) {
            self.backlog.push_front((*full.operation, user));
        }
    }
}
