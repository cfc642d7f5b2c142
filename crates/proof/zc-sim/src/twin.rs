//! A start by the index image, held against a start by headers of the same media.
//!
//! Job: have two managers start from what lies on the device now, one by the image that the real one is about to read,
//! one without it, and compare what clients would get: where each extent is read from, and how many slots are in use. Of
//! pinned ranges, what is safe by headers is safe by the image. And the image counts as much of a unit as there is: with
//! the last pin, its last unit is as any other.
//!
//! Invariants: the media are only read, and the run goes on as if nothing had been compared. Devices that lie are not
//! judged: a header that rots is missed by the one and not by the other, and both are right.
//!
//! What it does not do: compare hints of the fingerprint index, or the order within a bucket.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use zc_cache::config::VolumeConfig;
use zc_cache::seam::{Action, Event, ImageBytes, Request, RequestKind};
use zc_cache::startup::StartState;
use zc_cache::{CacheManager, ResidencyRun};
use zc_core::{BufId, ErrorKind, ExtentKey, ExtentNo, Generation, ReqId, WeuSeq, WeuSlot};
use zc_format::{ExpectedExtent, ExtentError, Record, WeuHeader};

use crate::disk::PAGE;
use crate::world::World;

/// Turns after which a start has to be over.
const TURNS_MAX: u32 = 10_000;
/// Where requests of the comparison number from.
const REQUESTS: u64 = 1 << 40;

/// Where an extent is read from.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    state: Vec<ResidencyRun>,
    stored: Vec<ExpectedExtent>,
}

impl Seen {
    /// Returns `true` if all that is read from here is read there, too.
    fn is_part_of(&self, other: &Self) -> bool {
        self.stored.iter().all(|expected| other.stored.contains(expected))
    }
}

/// The unit in each slot that checkpoint and journal name.
fn named_units(records: &[Record]) -> BTreeMap<WeuSlot, (Generation, WeuSeq)> {
    let named = records.iter().filter_map(|record| match *record {
        Record::SlotSealed { slot, generation, weu_seq, .. }
        | Record::SlotDirty { slot, generation, weu_seq } => Some((slot, (generation, weu_seq))),
        _ => None,
    });
    named.collect()
}

/// Returns `true` if checkpoint and journal name another unit than this header is of.
fn is_another(header: &WeuHeader, named: &BTreeMap<WeuSlot, (Generation, WeuSeq)>) -> bool {
    named.get(&header.slot).is_some_and(|unit| *unit != (header.generation, header.weu_seq))
}

/// Where a manager would read an extent from. It is not told how that ends.
fn seen(manager: &mut CacheManager, volume: &VolumeConfig, offset_bytes: u64, len_bytes: u64) -> Seen {
    let mut state = Vec::new();
    manager.residency(volume.id, offset_bytes, len_bytes, &mut state);
    let number = REQUESTS + (u64::from(volume.id.0) << 32) + offset_bytes / 512;
    let kind = RequestKind::Read { buf: BufId(number) };
    let request = Request { req: ReqId(number), volume: volume.id, offset_bytes, len_bytes, kind };
    let mut actions = Vec::new();
    manager.handle(Event::Submit(request), &mut actions);
    let parts = actions.into_iter().filter_map(|action| match action {
        Action::ReadExtents { parts, urgent: true, .. } => Some(parts),
        _ => None,
    });
    let stored = parts.flatten().map(|part| part.expected).collect();
    Seen { state, stored }
}

/// Compares the two ways of a start that the image allows. What differs, if anything.
pub(crate) fn compare_starts(
    world: &mut World,
    start: &StartState,
    records: &[Record],
    volumes: &[VolumeConfig],
) -> Option<String> {
    let lies = world.faults.may_lie() || world.trouble.lied_before || world.trouble.lied_slots;
    if start.index_image.is_none() || lies {
        return None;
    }
    let by_headers = StartState { index_image: None, ..start.clone() };
    let image = twin(world, start.clone(), records, volumes);
    let headers = twin(world, by_headers, records, volumes);
    let (Some((mut image, _)), Some((mut headers, lost))) = (image, headers) else {
        return Some("a start does not end".to_owned());
    };
    if image.stats().load_by_image == 0 {
        return None;
    }
    world.env.note("starts by image compared with headers");
    // Both make room once they have started, and a comparison with the origin may be under way in other slots.
    let found = |manager: &CacheManager| manager.slots_used().0 as u64 + manager.stats().evictions;
    if !(found(&headers)..=found(&headers) + lost.len() as u64).contains(&found(&image)) {
        let found = (found(&image), found(&headers));
        return Some(format!(
            "slots in use after a start by image and by headers: {found:?}, headers lost in {lost:?}"
        ));
    }
    // What a full index or checkpoint has no room for is left out.
    let lacks =
        |manager: &CacheManager| manager.stats().evictions > 0 || manager.stats().file_index_evictions > 0;
    // By the image more units may be of what is pinned, and take the room of others.
    let has_room = image.stats().pinned_units < headers.stats().pinned_units;
    for config in volumes {
        let extent_bytes = u64::from(world.cache.geometry().extent_bytes);
        for offset in (0..config.size_bytes).step_by(world.cache.geometry().extent_bytes as usize) {
            let len = extent_bytes.min(config.size_bytes - offset);
            let key = ExtentKey { volume: config.id, extent: ExtentNo(offset / extent_bytes) };
            let [is_safe, is_safe_there] = [&image, &headers].map(|manager| manager.is_safe(key));
            let [ours, theirs] = [&mut image, &mut headers].map(|manager| seen(manager, config, offset, len));
            // Either may have made room since the last extent.
            let (image_lacks, headers_lack) = (lacks(&image), lacks(&headers) || world.trouble.left_out);
            // A header that rotted, or that the device rolled back, before an earlier start by image: that start
            // missed nothing, and neither does this one.
            let is_lost =
                !ours.stored.is_empty() && ours.stored.iter().all(|expected| lost.contains(&expected.slot));
            let is_missing = image_lacks && ours.is_part_of(&theirs)
                || (headers_lack || is_lost) && theirs.is_part_of(&ours);
            if ours != theirs && !is_missing {
                let what = (config.id, offset / extent_bytes);
                return Some(format!("{what:?} by image: {ours:?}, by headers: {theirs:?}"));
            }
            if ours == theirs && has_room && is_safe_there && !is_safe {
                return Some(format!("{key:?} is pinned, and safe after a start by headers alone"));
            }
        }
    }
    unpin(world, image, volumes)
}

/// With the last pin, the last unit is as any other. What is wrong with that, if anything.
fn unpin(world: &mut World, mut image: CacheManager, volumes: &[VolumeConfig]) -> Option<String> {
    if image.stats().pinned_units == 0 {
        return None;
    }
    world.env.note("starts by image with pinned ranges");
    let mut actions = Vec::new();
    for config in volumes {
        let unpinned = VolumeConfig { pins: Vec::new(), ..config.clone() };
        image.handle(Event::Configure(Box::new(unpinned)), &mut actions);
    }
    for now_ms in (world.env.now_ms() + u64::from(TURNS_MAX)..).take(TURNS_MAX as usize) {
        if image.pins().is_empty() {
            break;
        }
        image.handle(Event::Tick { now_ms }, &mut actions);
    }
    let left = (image.pins(), image.stats().pinned_units);
    (left != (Vec::new(), 0)).then(|| format!("what is left without pins after a start by image: {left:?}"))
}

/// A manager that has started from the media as they are, and the slots whose header it could not read, or whose
/// header is not that of the unit that checkpoint and journal name.
fn twin(
    world: &World,
    start: StartState,
    records: &[Record],
    volumes: &[VolumeConfig],
) -> Option<(CacheManager, BTreeSet<WeuSlot>)> {
    let mut manager = CacheManager::new(world.config.clone(), volumes.to_vec(), start);
    records.iter().for_each(|record| manager.replay(record));
    let mut actions = Vec::new();
    manager.begin(world.env.now_ms(), &mut actions);
    let mut pending: VecDeque<Action> = actions.drain(..).collect();
    let named = named_units(records);
    let (mut now_ms, mut lost) = (world.env.now_ms(), BTreeSet::new());
    for _ in 0..TURNS_MAX {
        let action = pending.pop_front();
        let event = match &action {
            Some(action) => answer(world, action),
            None if manager.is_loaded() => return Some((manager, lost)),
            None => {
                now_ms += 1;
                Some(Event::Tick { now_ms })
            }
        };
        if let Some(event) = event {
            if let Event::HeaderRead { result: Ok(header), .. } = &event
                && let Some(Action::ReadHeader { slot, .. }) = action
                && header.as_ref().is_none_or(|header| is_another(header, &named))
            {
                lost.insert(slot);
            }
            manager.handle(event, &mut actions);
            pending.extend(actions.drain(..));
        }
    }
    None
}

/// What is told of the end of an action: reads bring what lies there, changes end well, origins are not there.
fn answer(world: &World, action: &Action) -> Option<Event> {
    let geometry = world.cache.geometry();
    Some(match action {
        Action::ReadHeader { op, slot, .. } => {
            let at = geometry.slot_offset(*slot) as usize;
            let (weu, extent) = (geometry.weu_bytes, geometry.extent_bytes);
            let bytes = &world.cache.disk().seen[at..at + weu as usize];
            let header = WeuHeader::decode(bytes, *slot, weu, extent, geometry.salt);
            Event::HeaderRead { op: *op, result: Ok(header.ok().map(Box::new)) }
        }
        Action::ReadImage { op, area, first_block, blocks } => {
            let at = geometry.image_block_offset(*area, *first_block) as usize;
            let bytes = world.cache.disk().seen[at..at + *blocks as usize * PAGE].to_vec();
            Event::ImageRead { op: *op, result: Ok(ImageBytes(bytes)) }
        }
        Action::ReadExtents { op, parts, .. } => {
            let parts = parts.iter().map(|_| Err(ExtentError::Checksum)).collect();
            Event::ExtentsRead { op: *op, result: Ok(parts) }
        }
        Action::OriginRead { op, .. } => Event::OriginDone { op: *op, result: Err(ErrorKind::Io) },
        Action::OriginFlush { op, .. } => Event::OriginDone { op: *op, result: Ok(()) },
        other => Event::DeviceDone { op: other.device_op()?, result: Ok(()) },
    })
}
