//! ublk devices on the data plane.
//!
//! Job: run the operations of a [`Server`] on the shard's ring, return its tags' requests, and complete them.
//!
//! Invariants: a started request is completed with its reply. While the daemon stops, no new ones are started: the
//! kernel keeps them, and re-issues them to the daemon that takes the device over. A device without remaining tags is
//! released, its files closed, and its waiter notified.
//!
//! It does not add, start or remove devices (`control/ublk` does), or start requests (`clients` does).

use std::io;
use std::sync::mpsc;

use zc_core::{ErrorKind, Map, VolumeId};
use zc_io::{AlignedBuf, Arena, Operation, Segment};
use zc_ublk::{Request, Server, TagAction};

use crate::limits::{CLOSING_MAX, RING_WORK_OPS};
use crate::shard::base::Base;
use crate::shard::pending::{Pending, RingId, Tag};
use crate::shard::volumes::Volumes;

/// A device to be served.
#[derive(Debug)]
pub struct NewDevice {
    /// The kernel's device.
    pub server: Server,
    /// Volume that it serves.
    pub volume: VolumeId,
    /// Receives success, or the reason of a failure.
    pub answer: mpsc::Sender<Result<(), String>>,
    /// Dropped when the device is released.
    pub gone: mpsc::Sender<()>,
}

#[derive(Debug)]
struct UblkDevice {
    server: Server,
    volume: VolumeId,
    /// Ring of each queue: the kernel accepts the commands of a queue from one thread only.
    rings: Vec<RingId>,
    /// Dropped last: whoever waits for it may remove the device then.
    gone: mpsc::Sender<()>,
}

/// Result of a tag's operation.
#[derive(Debug)]
pub(crate) enum TagEvent {
    /// A request, with the bytes of a write.
    Asks { volume: VolumeId, request: Request, memory: Option<AlignedBuf> },
    /// The kernel is removing the device: its outstanding requests do not block that.
    Leaves { device: u32, volume: VolumeId },
}

/// The devices that are served, by number.
#[derive(Debug, Default)]
pub(crate) struct Devices(Map<u32, UblkDevice>);

impl Devices {
    /// Serves a device, besides this number of connections.
    pub(crate) fn serve(
        &mut self,
        base: &mut Base,
        volumes: &mut Volumes,
        new: NewDevice,
        connections: usize,
    ) {
        let NewDevice { mut server, volume, answer, gone } = new;
        let queues = server.tags().map(|(queue, _)| usize::from(queue) + 1).max().unwrap_or(0);
        let rings: Vec<RingId> = (0..queues).map(|_| base.io.ring_for_client()).collect();
        let refusal = self.refusal_of(base, (&server, &rings), connections);
        let is_refused = refusal.is_err();
        let _asker_left = answer.send(refusal);
        if is_refused {
            rings.into_iter().for_each(|ring| base.io.client_has_left(ring));
            return;
        }
        // The volume may have grown since the device was planned.
        server.grow(volumes.used(volume).config.size_bytes);
        let device = server.id();
        for (queue, tag) in server.tags() {
            let operation = server.fetch(queue, tag);
            let ring = rings[usize::from(queue)];
            base.io.submit_on(ring, operation, Pending::Ublk(Tag { device, queue, tag }));
        }
        let before = self.0.insert(device, UblkDevice { server, volume, rings, gone });
        assert!(before.is_none(), "the kernel gives a number to one device at a time");
    }

    /// Returns the reason why a device cannot be served, if any: each of its tags permanently occupies an entry of its
    /// queue's ring.
    fn refusal_of(
        &self,
        base: &Base,
        (server, rings): (&Server, &[RingId]),
        connections: usize,
    ) -> Result<(), String> {
        if !base.stopping.is_running() {
            return Err("the daemon is stopping".to_owned());
        }
        for ring in base.io.rings() {
            let served: usize =
                self.0.values().map(|device| tags_on(ring, &device.server, &device.rings)).sum();
            let others = served + connections + CLOSING_MAX + RING_WORK_OPS;
            let (tags, left) = (tags_on(ring, server, rings), base.io.places().saturating_sub(others));
            if tags > left {
                return Err(format!(
                    "its {tags} requests are more than the {left} that can still be served at once: detach other volumes, \
                     or lower its ublk.queues and ublk.queue_depth"
                ));
            }
        }
        Ok(())
    }

    /// Extends the range of devices of a volume that has grown. The kernel sends no such requests before it is
    /// notified.
    pub(crate) fn grow(&mut self, volume: VolumeId, size_bytes: u64) {
        for device in self.0.values_mut().filter(|device| device.volume == volume) {
            device.server.grow(size_bytes);
        }
    }

    /// Returns `true` if a volume is a device.
    pub(crate) fn serves(&self, volume: VolumeId) -> bool {
        self.0.values().any(|device| device.volume == volume)
    }

    pub(crate) fn volume_of(&self, tag: Tag) -> VolumeId {
        let Some(device) = self.0.get(&tag.device) else { panic!("{tag:?} belongs to no device") };
        device.volume
    }

    fn device(&mut self, tag: Tag) -> &mut UblkDevice {
        let Some(device) = self.0.get_mut(&tag.device) else { panic!("{tag:?} belongs to no device") };
        device
    }

    /// Handles the completion of an operation of a tag.
    pub(crate) fn ended(
        &mut self,
        base: &mut Base,
        tag: Tag,
        result: io::Result<usize>,
        operation: Operation,
    ) -> Option<TagEvent> {
        let device = self.device(tag);
        let volume = device.volume;
        let memory = |len_bytes| base.buffers.client_memory(volume, len_bytes);
        let step = device.server.ended(tag.queue, tag.tag, result, operation, memory);
        self.step(base, tag, step)
    }

    fn step(&mut self, base: &mut Base, tag: Tag, step: TagAction) -> Option<TagEvent> {
        match step {
            TagAction::Submit(operation) => {
                let ring = self.device(tag).rings[usize::from(tag.queue)];
                base.io.submit_on(ring, operation, Pending::Ublk(tag));
                None
            }
            TagAction::Serve { request, memory } if base.stopping.is_running() => {
                Some(TagEvent::Asks { volume: self.volume_of(tag), request, memory })
            }
            TagAction::Serve { .. } => None,
            TagAction::Gone if self.device(tag).server.is_gone() => {
                if let Some(UblkDevice { server, rings, gone, .. }) = self.0.remove(&tag.device) {
                    rings.into_iter().for_each(|ring| base.io.client_has_left(ring));
                    // The files first.
                    drop(server);
                    drop(gone);
                }
                None
            }
            TagAction::Gone => Some(TagEvent::Leaves { device: tag.device, volume: self.volume_of(tag) }),
        }
    }

    /// Completes a request; `read` has the data of a read.
    pub(crate) fn answer(
        &mut self,
        base: &mut Base,
        tag: Tag,
        read: Option<&Arena>,
        error: Option<ErrorKind>,
    ) {
        let bytes = read.map(|arena| Segment::whole(arena.read_lease(0..arena.len())));
        let result = match error {
            Some(kind) => Err(i32::try_from(kind.errno().0).unwrap_or(1)),
            None => Ok(bytes),
        };
        let step = self.device(tag).server.complete(tag.queue, tag.tag, result);
        let came = self.step(base, tag, step);
        assert!(came.is_none(), "an answer goes to the kernel, and nothing comes of it at once");
    }
}

/// Requests of a device that a ring has.
fn tags_on(ring: RingId, server: &Server, rings: &[RingId]) -> usize {
    server.tags().filter(|(queue, _)| rings[usize::from(*queue)] == ring).count()
}
