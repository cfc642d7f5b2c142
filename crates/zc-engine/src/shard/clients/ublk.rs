//! ublk devices on the data plane.
//!
//! Job: run the operations of a [`Server`] on the shard's ring and turn its requests into client requests (see
//! `request`).
//!
//! Invariants: a request that was begun is given back when it is answered. While the daemon stops, no new ones are
//! begun: the kernel keeps them, and issues them again to the daemon that takes the device over. A device whose tags
//! are all gone is let go, its files closed, and whoever waits for that is told.
//!
//! What it does not do: add, start or remove devices (`control/ublk` does).

use std::io;
use std::sync::mpsc;

use zc_core::{ErrorKind, VolumeId};
use zc_io::{AlignedBuf, Operation, Segment};
use zc_nbd::server::Command;
use zc_ublk::{Request, RequestOp, Server, Step};

use crate::limits::{CLOSING_MAX, RING_WORK_OPS};
use crate::shard::Shard;
use crate::shard::clients::request::{Asked, Asker, Body, Incoming};
use crate::shard::pending::Pending;

/// A tag of a queue of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    device: u32,
    queue: u16,
    tag: u16,
}

impl Tag {
    pub(crate) const fn is_of(self, device: u32) -> bool {
        self.device == device
    }
}

/// A device to be served.
#[derive(Debug)]
pub(crate) struct NewDevice {
    pub(crate) server: Server,
    pub(crate) volume: VolumeId,
    /// Takes whether it is served, or why not.
    pub(crate) answer: mpsc::Sender<Result<(), String>>,
    /// Dropped when the device is let go.
    pub(crate) gone: mpsc::Sender<()>,
}

/// A device that is served.
#[derive(Debug)]
pub(crate) struct UblkDevice {
    server: Server,
    volume: VolumeId,
    /// Dropped last: whoever waits for it may remove the device then.
    gone: mpsc::Sender<()>,
}

impl UblkDevice {
    pub(crate) const fn volume(&self) -> VolumeId {
        self.volume
    }
}

impl Shard {
    pub(crate) fn serve_device(&mut self, new: NewDevice) {
        let NewDevice { mut server, volume, answer, gone } = new;
        let refusal = self.refusal_of(&server);
        let is_refused = refusal.is_err();
        let _asker_left = answer.send(refusal);
        if is_refused {
            return;
        }
        // The volume may have grown since the device was planned.
        server.grow(self.volume_mut(volume).config.size_bytes);
        let device = server.id();
        for (queue, tag) in server.tags() {
            let operation = server.fetch(queue, tag);
            self.submit(operation, Pending::Ublk(Tag { device, queue, tag }));
        }
        let before = self.ublk.insert(device, UblkDevice { server, volume, gone });
        assert!(before.is_none(), "the kernel gives a number to one device at a time");
    }

    /// Why a device cannot be served, if so: each of its tags takes a place of the ring all the time.
    fn refusal_of(&self, server: &Server) -> Result<(), String> {
        if !self.stopping.is_running() {
            return Err("the daemon is stopping".to_owned());
        }
        let served: usize = self.ublk.values().map(|device| device.server.tags().count()).sum();
        let others = served + self.limits.connections + CLOSING_MAX + RING_WORK_OPS;
        let (tags, left) = (server.tags().count(), self.ring_ops.saturating_sub(others));
        if tags > left {
            return Err(format!(
                "its {tags} requests are more than the {left} that can still be served at once: detach other volumes, or \
                 lower its ublk.queues and ublk.queue_depth"
            ));
        }
        Ok(())
    }

    /// Devices of a volume that has grown take requests up to its end. The kernel makes none before it is told.
    pub(crate) fn grow_devices(&mut self, volume: VolumeId, size_bytes: u64) {
        for device in self.ublk.values_mut().filter(|device| device.volume == volume) {
            device.server.grow(size_bytes);
        }
    }

    fn device(&mut self, tag: Tag) -> &mut UblkDevice {
        let Some(device) = self.ublk.get_mut(&tag.device) else { panic!("{tag:?} belongs to no device") };
        device
    }

    /// An operation of a tag ended.
    pub(crate) fn ublk_ended(&mut self, tag: Tag, result: io::Result<usize>, operation: Operation) {
        let buffers = &self.buffers;
        let Some(device) = self.ublk.get_mut(&tag.device) else { panic!("{tag:?} belongs to no device") };
        let volume = device.volume;
        let memory = |len_bytes| buffers.client_memory(volume, len_bytes);
        let step = device.server.ended(tag.queue, tag.tag, result, operation, memory);
        self.ublk_step(tag, step);
    }

    fn ublk_step(&mut self, tag: Tag, step: Step) {
        match step {
            Step::Submit(operation) => self.submit(operation, Pending::Ublk(tag)),
            Step::Serve { request, memory } if self.stopping.is_running() => {
                let volume = self.device(tag).volume;
                self.ask_limits_of_device((tag, volume), request, memory);
            }
            Step::Serve { .. } => {}
            Step::Gone if self.device(tag).server.is_gone() => {
                if let Some(UblkDevice { server, gone, .. }) = self.ublk.remove(&tag.device) {
                    // The files first.
                    drop(server);
                    drop(gone);
                }
            }
            Step::Gone => {
                let volume = self.device(tag).volume;
                self.let_device_go_on(tag.device, volume);
            }
        }
    }

    pub(crate) fn begin_ublk(&mut self, tag: Tag, request: Request, memory: Option<AlignedBuf>) {
        let volume = self.device(tag).volume;
        let incoming = Incoming { from: Asker::Ublk(tag), volume, asked: asked(&request) };
        match memory {
            Some(memory) => {
                self.budget_bytes += zc_core::u64_from_usize(memory.held_bytes());
                self.begin_write_from(incoming, memory);
            }
            None => self.begin(incoming),
        }
    }

    /// A request has its answer.
    pub(crate) fn answer_ublk(&mut self, tag: Tag, body: &Body, error: Option<ErrorKind>) {
        let bytes = match body {
            Body::Read { arena, .. } => Some(Segment::whole(arena.read_lease(0..arena.len()))),
            _ => None,
        };
        let result = match error {
            Some(kind) => Err(i32::try_from(kind.errno().0).unwrap_or(1)),
            None => Ok(bytes),
        };
        let step = self.device(tag).server.complete(tag.queue, tag.tag, result);
        self.ublk_step(tag, step);
    }
}

/// What a request of a device asks for.
pub(crate) fn asked(request: &Request) -> Asked {
    let (command, no_hole) = match request.op {
        RequestOp::Read => (Command::Read, false),
        RequestOp::Write => (Command::Write, false),
        RequestOp::Flush => (Command::Flush, false),
        RequestOp::Discard => (Command::Trim, false),
        RequestOp::WriteZeroes { no_hole } => (Command::WriteZeroes, no_hole),
    };
    Asked {
        command,
        offset: request.offset_bytes,
        length: request.len_bytes,
        fua: request.fua,
        no_hole,
        fast_zero: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_keep_their_meaning() {
        let of = |op, fua| asked(&Request { op, offset_bytes: 512, len_bytes: 1024, fua });
        let write = of(RequestOp::Write, true);
        assert_eq!((write.command, write.offset, write.length, write.fua), (Command::Write, 512, 1024, true));
        let zeroes = of(RequestOp::WriteZeroes { no_hole: true }, false);
        assert_eq!((zeroes.command, zeroes.no_hole, zeroes.fast_zero), (Command::WriteZeroes, true, false));
        assert_eq!(of(RequestOp::Discard, false).command, Command::Trim);
    }
}
