//! Simulated device of the store: executes, fails, forgets or misplaces operations, dies and returns.

use rand::RngExt as _;
use zc_core::{BufId, Codec, ErrorKind, OpId};
use zc_store::seam::{Encoded, FetchPart, FetchTo, PieceData};
use zc_store::{Action, Event, Store, Superblock, payload_crc};

use super::world::{Buf, CHUNK, Pending, SEGMENT, StoreCanary, World, stored_bytes, stored_len};
use crate::disk::PAGE;

/// Distance between the superblocks.
const SUPERBLOCK_STEP: usize = 64 << 10;

/// Completes one operation in flight.
pub(crate) fn step(world: &mut World) {
    if world.pending.is_empty() {
        return;
    }
    let index = world.rng.random_range(0..world.pending.len());
    let pending = world.pending.swap_remove(index);
    let event = perform(world, pending);
    world.give(event);
}

fn perform(world: &mut World, pending: Pending) -> Event {
    match pending.action {
        Action::ReadBlock { op, offset_bytes } => {
            let at = offset_bytes as usize;
            let block = world.disk.seen[at..at + PAGE].first_chunk().map(|block| Box::new(*block));
            Event::BlockRead { op, result: block.ok_or(ErrorKind::Io) }
        }
        Action::WriteBatch { .. } | Action::WriteSuperblock { .. } => perform_write(world, &pending.action),
        Action::Discard { op, .. } if world.rng.random_bool(0.02) => {
            world.note("discards refused");
            Event::Done { op, result: Err(ErrorKind::Io) }
        }
        // Contents may stay, which is cheaper here than zeros that a power cut may undo block by block.
        Action::Discard { op, .. } if world.rng.random_bool(0.9) => Event::Done { op, result: Ok(()) },
        Action::Discard { op, .. } => {
            world.note("discards that clear");
            let (_, at, bytes) = write_of(world, &pending.action);
            world.disk.write_now(at, &bytes);
            Event::Done { op, result: Ok(()) }
        }
        Action::FlushDevice { op } => {
            if world.happens(world.faults.write_errors) {
                world.note("flush errors");
                world.fenced = true;
                world.lost_unflushed = true;
                world.disk.lose_unflushed(&mut world.rng, |_| true);
                return Event::Done { op, result: Err(ErrorKind::Io) };
            }
            world.disk.flush(pending.issued, &mut world.rng);
            Event::Done { op, result: Ok(()) }
        }
        Action::Fetch { op, parts, to, .. } => fetch(world, op, &parts, to, &pending.memory),
        Action::Encode { op, chunks, codec } => {
            let chunks = chunks.into_iter().map(|raw| encode(world, raw, codec)).collect();
            Event::Encoded { op, chunks }
        }
        other => unreachable!("{other:?} takes effect at once"),
    }
}

/// Encodes a chunk: some stay raw, the others are shortened, each to its own length.
fn encode(world: &mut World, raw: zc_core::BufSlice, codec: Codec) -> Encoded {
    let Buf::Raw(value) = world.bufs[&raw.buf] else { unreachable!("a chunk was given raw") };
    let len_bytes = stored_len(value);
    let bytes = stored_bytes(value, len_bytes);
    let crc = payload_crc(&bytes);
    if len_bytes == CHUNK {
        return Encoded { bytes: raw, codec: Codec::Raw, crc };
    }
    let buf = world.buf(Buf::Stored(bytes));
    Encoded { bytes: zc_core::BufSlice { buf, start_bytes: 0, len_bytes }, codec, crc }
}

fn write_of(world: &World, action: &Action) -> (OpId, usize, Vec<u8>) {
    match action {
        Action::WriteBatch { op, offset_bytes, len_bytes, header, pieces } => {
            let mut bytes = vec![0; *len_bytes as usize];
            bytes[..PAGE].copy_from_slice(&header[..]);
            for piece in pieces {
                let data = match &piece.data {
                    PieceData::Payload(slice) => world.bytes_of(*slice),
                    PieceData::Page(page) => page.to_vec(),
                };
                let at = piece.offset_bytes as usize;
                bytes[at..at + data.len()].copy_from_slice(&data);
            }
            (*op, *offset_bytes as usize, bytes)
        }
        Action::WriteSuperblock { op, copy, superblock } => {
            (*op, Superblock::offset_bytes(*copy) as usize, superblock.encode(*copy).to_vec())
        }
        Action::Discard { op, offset_bytes, len_bytes } => {
            (*op, *offset_bytes as usize, vec![0; *len_bytes as usize])
        }
        other => unreachable!("{other:?} is no write"),
    }
}

fn perform_write(world: &mut World, action: &Action) -> Event {
    let (op, at, bytes) = write_of(world, action);
    if world.happens(world.faults.write_errors) {
        world.note("write errors");
        world.fenced = true;
        let kept = world.rng.random_range(0..=bytes.len() / 512) * 512;
        world.disk.write_now(at, &bytes[..kept]);
        let kind = if world.rng.random_bool(0.5) { ErrorKind::Io } else { ErrorKind::NoSpace };
        return Event::Done { op, result: Err(kind) };
    }
    if world.happens(world.faults.lost) {
        world.note("writes lost");
        return Event::Done { op, result: Ok(()) };
    }
    let at = if world.happens(world.faults.misdirected) {
        world.note("writes misdirected");
        let blocks = (world.disk.seen.len() - bytes.len()) / PAGE;
        world.rng.random_range(0..=blocks) * PAGE
    } else {
        at
    };
    world.disk.write_now(at, &bytes);
    Event::Done { op, result: Ok(()) }
}

fn fetch(world: &mut World, op: OpId, parts: &[FetchPart], to: FetchTo, memory: &[Option<Vec<u8>>]) -> Event {
    let mut results = Vec::new();
    for (number, (part, memory)) in (0..).zip(parts.iter().zip(memory)) {
        let len = part.stored.stored_bytes as usize;
        let at = Superblock::device_offset(part.stored.place, SEGMENT) as usize;
        let on_disk = || world.disk.seen.get(at..at + len).map(<[u8]>::to_vec).unwrap_or_default();
        let bytes = memory.clone().unwrap_or_else(on_disk);
        let trusts = world.canary == Some(StoreCanary::TrustContents) && bytes.len() >= 8;
        let good = trusts || payload_crc(&bytes) == part.stored.crc;
        if memory.is_some() {
            world.note("contents from memory");
        }
        if let FetchTo::Stored(first) = to {
            world.bufs.insert(BufId(first.0 + number), Buf::Stored(bytes.clone()));
        }
        if let (true, FetchTo::Decoded(dest)) = (good, to)
            && let Some(Buf::Dest(values)) = world.bufs.get_mut(&dest)
        {
            let value = u64::from_le_bytes(*bytes.first_chunk().expect("a chunk has eight bytes"));
            values[(part.dest_offset_bytes / CHUNK) as usize] = value;
        }
        results.push(if good { Ok(()) } else { Err(ErrorKind::Corrupt) });
    }
    Event::Fetched { op, results }
}

/// Flips some stored bits.
pub(crate) fn rot(world: &mut World) {
    world.note("bits rotted");
    world.rots += 1;
    let blocks = world.disk.seen.len() / PAGE;
    let at = world.rng.random_range(0..blocks) * PAGE + world.rng.random_range(0..PAGE);
    let magic = &world.disk.seen[at / PAGE * PAGE..][4..8];
    world.is_metadata_rotten |= magic == b"zcSp" || magic == b"zcSb" || at < 2 * SUPERBLOCK_STEP;
    let byte = world.disk.seen[at] ^ (1 << world.rng.random_range(0..8));
    world.disk.damage(at, &[byte]);
}

/// Cuts the power. Writes in flight happen or not.
pub(crate) fn cut(world: &mut World) {
    for pending in core::mem::take(&mut world.pending) {
        let is_write = matches!(
            pending.action,
            Action::WriteBatch { .. } | Action::WriteSuperblock { .. } | Action::Discard { .. }
        );
        if is_write && world.rng.random_bool(0.5) {
            let (_, at, bytes) = write_of(world, &pending.action);
            world.disk.write_now(at, &bytes);
        }
    }
    if world.rng.random_bool(0.8) {
        world.disk.power_cut(&mut world.rng);
    }
    forget(world);
}

/// Ends the daemon with its memory.
pub(crate) fn forget(world: &mut World) {
    world.say(|| "--- crash".to_owned());
    world.pending.clear();
    world.bufs.clear();
    world.waiting.clear();
    world.opened = None;
    world.stopped = false;
    world.fenced = false;
    world.lost_unflushed = false;
    world.has_dropped = false;
    world.rots_before = core::mem::take(&mut world.rots);
    let mut out = Vec::new();
    world.store = Store::open(world.config.clone(), world.rng.random(), &mut out);
    world.restart(out);
}
