//! Requests of clients: kinds, ranges and written bytes.

use zc_cache::seam::{Request, RequestKind};
use zc_core::{Ack, BufId, Mode, ReqId, VolumeId};

use crate::clients::{Client, ClientKind};
use crate::content::{self, SECTOR};
use crate::coverage::{KNOWN_CONTENTS, NEW_CONTENTS};
use crate::settings::{reconfigure, serve_volume};
use crate::world::World;

pub(crate) fn span(world: &mut World, volume: usize, max: usize) -> (usize, usize) {
    let size = world.volumes[volume].size_bytes as usize;
    let extent = world.cache.geometry().extent_bytes as usize;
    let (align, len) = match world.env.random_range(0..10) {
        0..=3 => (extent, extent * world.env.random_range(1..=(max / extent).max(1))),
        4..=6 => (4096, 4096),
        _ => (SECTOR, SECTOR * world.env.random_range(1..=(max / SECTOR).min(40))),
    };
    let hot = if world.env.random_bool(0.6) { size / 3 } else { size };
    let hot = world.plan.habits.hot_bytes.map_or(hot, |most| hot.min(most));
    let offset = world.env.random_range(0..hot) / align * align;
    (offset, len.min(size - offset))
}

pub(crate) fn submit(
    world: &mut World,
    volume: usize,
    offset: usize,
    len: usize,
    kind: RequestKind,
    client: ClientKind,
) {
    world.env.advance();
    let start = world.env.now();
    let buffered = world.writes_back(volume) || world.state.may_be_dirty(volume);
    let config = &world.volumes[volume];
    let settled = (config.mode == Mode::WriteBack && config.write_back.ack == Ack::Durable)
        .then_some(world.volumes.changes(volume));
    let client = Client::new(volume, offset, len, client, start).under(buffered, settled);
    let req = world.clients.ask(client);
    world.submitted(Request {
        req,
        volume: VolumeId(volume as u16),
        offset_bytes: offset as u64,
        len_bytes: len as u64,
        kind,
    });
}

/// Issues a request that no manager received to the next one; its time of issue is now.
pub(crate) fn begin_again(world: &mut World, req: ReqId) {
    world.env.advance();
    let now = world.env.now();
    let (client, issued) = world.clients.issue_again(req, now).expect("held back");
    let (volume, sectors) = (client.volume(), client.sectors());
    let is_buffered = world.writes_back(volume) || world.state.may_be_dirty(volume);
    if let Some((client, _)) = world.clients.issue_again(req, now) {
        client.may_be_buffered(is_buffered);
    }
    for sector in sectors {
        world.models.issue_again(volume, sector, issued, now);
    }
}

pub(crate) fn random_request(world: &mut World) {
    let volume = world.env.random_range(0..world.volumes.len());
    request_of(world, volume);
}

/// Submits a request of any other volume, if there is one.
pub(crate) fn request_of_another(world: &mut World, volume: usize) {
    let others: Vec<usize> = (0..world.volumes.len()).filter(|other| *other != volume).collect();
    if others.is_empty() {
        return world.step_or_tick();
    }
    let other = others[world.env.random_range(0..others.len())];
    let before = world.volumes.changes(volume);
    request_of(world, other);
    debug_assert_eq!(before, world.volumes.changes(volume), "a volume that goes is not configured");
}

fn request_of(world: &mut World, volume: usize) {
    serve_volume(world, volume);
    let (offset, len) = span(world, volume, 128 << 10);
    if len == 0 {
        return;
    }
    request(world, volume, offset, len);
}

pub(crate) fn request(world: &mut World, volume: usize, offset: usize, len: usize) {
    let buf = world.clients.new_buf();
    let flushes = world.plan.habits.flushes;
    match world.env.random_range(0..95 + flushes) {
        0..50 => {
            world.memory.insert(buf, vec![0xaa; len]);
            submit(world, volume, offset, len, RequestKind::Read { buf }, ClientKind::Read(buf));
        }
        50..86 => write(world, volume, offset, len, buf),
        86..89 => clear(world, volume, offset, len, true),
        89..92 => clear(world, volume, offset, len, false),
        92 => {
            let warms = world.clients.next().is_multiple_of(2);
            let kind = if warms { RequestKind::Warm } else { RequestKind::Prefetch };
            submit(world, volume, offset, len, kind, ClientKind::Hint);
        }
        93..95 => reconfigure(world),
        _ => submit(world, volume, 0, 0, RequestKind::Flush, ClientKind::Flush),
    }
}

/// Submits a request that changes no settings.
pub(crate) fn client_request(world: &mut World, volume: usize, offset: usize, len: usize) {
    let buf = world.clients.new_buf();
    match world.env.random_range(0..10) {
        _ if len == 0 => {}
        0..4 => {
            world.memory.insert(buf, vec![0xaa; len]);
            submit(world, volume, offset, len, RequestKind::Read { buf }, ClientKind::Read(buf));
        }
        4..8 => write(world, volume, offset, len, buf),
        8 => clear(world, volume, offset, len, true),
        _ => submit(world, volume, 0, 0, RequestKind::Flush, ClientKind::Flush),
    }
}

pub(crate) fn write(world: &mut World, volume: usize, offset: usize, len: usize, buf: BufId) {
    fill(world, volume, offset, len, buf);
    let fua = world.env.random_bool(world.plan.habits.fua);
    submit(world, volume, offset, len, RequestKind::Write { buf, fua }, ClientKind::Write { fua });
}

/// Creates the bytes of a write, and records them in the models.
pub(crate) fn fill(world: &mut World, volume: usize, offset: usize, len: usize, buf: BufId) {
    let extent = world.cache.geometry().extent_bytes as usize;
    let start = world.env.now() + 1;
    let shared = world.env.random_bool(world.plan.habits.duplicates);
    let zero = world.env.random_bool(0.05);
    let turned = world.clients.next().checked_div(world.plan.habits.pool_turns).unwrap_or(0) % 1000;
    let pool = 12 * turned as usize;
    let mut data = vec![0; len];
    for (index, sector) in data.chunks_mut(SECTOR).enumerate() {
        let at = offset + index * SECTOR;
        let within = (at % extent / SECTOR) as u64;
        let id = if zero {
            0
        } else if shared {
            // Whole extents with one of 12 contents.
            let pick = (at / extent * 7 + world.clients.next() as usize / 3) % 12 + pool;
            64 * (1 + pick as u64) + within
        } else {
            world.clients.new_content()
        };
        content::fill(id, sector);
        world.models.issue(volume, at / SECTOR, id, start);
    }
    world.env.note(if zero || shared { KNOWN_CONTENTS } else { NEW_CONTENTS });
    world.memory.insert(buf, data);
}

pub(crate) fn clear(world: &mut World, volume: usize, offset: usize, len: usize, trim: bool) {
    let start = world.env.now() + 1;
    for sector in offset / SECTOR..(offset + len) / SECTOR {
        world.models.discard(volume, sector, start);
    }
    let fua = world.env.random_bool(0.1);
    let kind =
        if trim { RequestKind::Trim { fua } } else { RequestKind::WriteZeroes { no_hole: false, fua } };
    submit(world, volume, offset, len, kind, ClientKind::Clear { trim, fua });
}
