//! Exchange of the manager with queued requests, events and commands.
//!
//! `session::open` has the tests with two caches; these cover the shard.

use tokio::sync::oneshot;
use zc_cache::seam::{Event, RequestKind};
use zc_core::{BufId, VolumeId};
use zc_ublk::{Request, RequestOp};

use crate::shard::buffers::slice;
use crate::shard::close::Closer;
use crate::shard::commands::Command;
use crate::shard::dispatch::{Shard, ShardParts};
use crate::shard::pause::Replacement;
use crate::shard::pending::Tag;

const V: VolumeId = VolumeId(0);
const BLOCK: u64 = 4096;

/// A shard whose manager is quiet, and one that may take its place.
fn two((parts, closer): (ShardParts, Closer), next: ShardParts) -> (Shard, Box<Replacement>) {
    let shard = Shard::new(parts, closer).unwrap();
    let ShardParts { manager, device, intent, risk, .. } = next;
    let volumes = shard.volumes.iter().map(|(_, volume)| volume.config.clone()).collect();
    (shard, Box::new(Replacement { manager, device, intent, risk, volumes, bytes_read: 0 }))
}

/// A client's write of one block, queued for the manager.
fn write(shard: &mut Shard, block: u16) {
    let request = Request {
        op: RequestOp::Write,
        offset_bytes: u64::from(block) * BLOCK,
        len_bytes: BLOCK,
        fua: false,
    };
    let mut memory = shard.base.buffers.client_memory(V, 4096);
    memory.fill(block.to_le_bytes()[0]);
    let (clients, mut shared) = shard.clients();
    clients.begin_for_device(
        &mut shared,
        (Tag { device: 0, queue: 0, tag: block }, V),
        &request,
        Some(memory),
    );
}

fn end_of_turn(shard: &mut Shard) {
    shard.handle_events(&mut Vec::new());
    shard.pump_pause();
}

/// Buffers and offsets of the writes in line.
fn writes_in_line(shard: &Shard) -> Vec<(BufId, u64)> {
    let write = |event: &Event| match event {
        Event::Submit(request) => match request.kind {
            RequestKind::Write { buf, .. } => Some((buf, request.offset_bytes)),
            _ => None,
        },
        _ => None,
    };
    shard.base.events.iter().filter_map(write).collect()
}

fn pause(shard: &mut Shard) {
    let (reply, mut looked) = oneshot::channel();
    shard.mailbox.send(Command::Look { pause: true, reply });
    shard.take_commands();
    end_of_turn(shard);
    assert!(looked.try_recv().unwrap().is_ok(), "nothing is under way");
}

/// Checks that requests of the same turn are kept.
pub(crate) fn requests_that_are_queued_when_the_manager_is_exchanged_keep_buffers_and_order(
    first: (ShardParts, Closer),
    next: ShardParts,
) {
    let (mut shard, replacement) = two(first, next);
    pause(&mut shard);
    write(&mut shard, 1);
    end_of_turn(&mut shard);
    assert_eq!(shard.pause.waiting(), 1);
    // In one turn, a client's bytes arrive before the wake-up for the command.
    write(&mut shard, 2);
    shard.mailbox.send(Command::Swap(replacement));
    shard.mailbox.send(Command::Resume);
    shard.take_commands();
    end_of_turn(&mut shard);
    assert!(!shard.pause.is_on() && shard.failure.is_none());
    let writes = writes_in_line(&shard);
    assert_eq!(writes.iter().map(|(_, offset)| *offset).collect::<Vec<_>>(), [BLOCK, 2 * BLOCK]);
    for (buf, offset) in writes {
        let byte = (offset / BLOCK).to_le_bytes()[0];
        assert!(shard.base.buffers.read(slice(buf, 0, 4096)).iter().all(|found| *found == byte));
    }
}

/// Checks that events and commands get to the manager that they are for.
pub(crate) fn events_for_the_old_manager_do_not_reach_the_next_one(
    first: (ShardParts, Closer),
    next: ShardParts,
) {
    let (mut shard, replacement) = two(first, next);
    pause(&mut shard);
    // The device of the old manager is lost in the turn in which the next one is there.
    shard.mailbox.send(Command::LoseCache("the old device is gone".to_owned()));
    shard.mailbox.send(Command::Swap(replacement));
    shard.mailbox.send(Command::Resume);
    let (reply, mut stats) = oneshot::channel();
    shard.mailbox.send(Command::Stats(reply));
    shard.take_commands();
    assert!(stats.try_recv().is_err(), "commands behind the exchange wait for it");
    end_of_turn(&mut shard);
    // The loss has to be recorded before the old one is done with.
    while shard.pause.has_replacement() {
        assert!(shard.failure.is_none());
        shard.take_state_changes();
        end_of_turn(&mut shard);
        std::thread::yield_now();
    }
    shard.handle_events(&mut Vec::new());
    assert!(shard.manager.is_healthy(), "the next manager has a device that works");
    assert!(stats.try_recv().unwrap().cache_healthy);
}

/// Checks the bound on the wait.
pub(crate) fn an_exchange_waits_for_operations_of_the_old_manager_and_no_longer_than_a_pause(
    first: (ShardParts, Closer),
    next: ShardParts,
) {
    let (mut shard, replacement) = two(first, next);
    pause(&mut shard);
    shard.manager.begin(0, &mut Vec::new());
    shard.base.tell(Event::DeviceLost);
    let mut actions = Vec::new();
    shard.handle_events(&mut actions);
    assert!(!shard.manager.is_idle(), "its record is under way");
    let now_ms = shard.base.clock.now_ms();
    shard.pause.keep_replacement(replacement, now_ms);
    shard.pump_swap(false);
    assert!(shard.pause.has_replacement() && shard.failure.is_none());
    assert!(!shard.pause.is_replacement_late(now_ms + crate::limits::PAUSE_MAX_MS));
    assert!(shard.pause.is_replacement_late(now_ms + crate::limits::PAUSE_MAX_MS + 1));
}
