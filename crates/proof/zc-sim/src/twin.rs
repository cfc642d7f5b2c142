//! Comparison of a start from the index image with a start from the headers of the same media.
//!
//! Job: start two managers from the device's current contents, one from the image that the real manager is about to
//! read, one without it. Compare the results for clients: the location that each extent is read from, and the number
//! of slots in use. Pinned extents that are safe by headers must be safe by the image. The image must also count each
//! unit completely: without its last pin, a unit is treated as any other.
//!
//! Invariants: the media are only read, and the run continues as if nothing had been compared. Lying devices are not
//! checked: a corrupt header is detected by one manager and not by the other, and both are right.
//!
//! It does not compare hints of the fingerprint index, or the order within a bucket.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter::repeat_n;

use zc_cache::config::VolumeConfig;
use zc_cache::seam::{Action, Event, ImageBytes, Request, RequestKind};
use zc_cache::startup::StartState;
use zc_cache::{CacheManager, Residency, ResidencyRun};
use zc_core::{BufId, ErrorKind, ExtentKey, ExtentNo, Generation, ReqId, SECTOR_BYTES, WeuSeq, WeuSlot};
use zc_format::{ExpectedExtent, ExtentError, Record, WeuHeader};

use crate::disk::PAGE;
use crate::world::World;

/// Turns after which a start must have finished.
const TURNS_MAX: u32 = 10_000;
/// First request number of the comparison.
const REQUESTS: u64 = 1 << 40;

/// Sources that an extent is read from.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    state: Vec<ResidencyRun>,
    stored: Vec<ExpectedExtent>,
}

impl Seen {
    /// Returns `true` if all sources are also sources of `other`.
    fn is_part_of(&self, other: &Self) -> bool {
        self.stored.iter().all(|expected| other.stored.contains(expected))
    }

    /// Returns `true` if `other` differs in zero sectors alone, which it reads from the origin.
    fn lacks_zeros_alone(&self, other: &Self) -> bool {
        let sectors = |seen: &Self| -> Vec<Residency> {
            let runs = seen.state.iter();
            runs.flat_map(|run| repeat_n(run.residency, (run.len_bytes / u64::from(SECTOR_BYTES)) as usize))
                .collect()
        };
        let (ours, theirs) = (sectors(self), sectors(other));
        let is_lacking = |pair: (&Residency, &Residency)| {
            pair.0 == pair.1 || pair == (&Residency::Zero, &Residency::OriginOnly)
        };
        self.stored == other.stored && ours.len() == theirs.len() && ours.iter().zip(&theirs).all(is_lacking)
    }
}

/// Returns the unit in each slot that checkpoint and journal name.
fn named_units(records: &[Record]) -> BTreeMap<WeuSlot, (Generation, WeuSeq)> {
    let named = records.iter().filter_map(|record| match *record {
        Record::SlotSealed { slot, generation, weu_seq, .. }
        | Record::SlotDirty { slot, generation, weu_seq } => Some((slot, (generation, weu_seq))),
        _ => None,
    });
    named.collect()
}

/// Returns `true` if checkpoint and journal name a unit in this slot, and the slot's header is not that unit's.
fn is_lost(
    slot: WeuSlot,
    header: Option<&WeuHeader>,
    named: &BTreeMap<WeuSlot, (Generation, WeuSeq)>,
) -> bool {
    let found = header.map(|header| (header.generation, header.weu_seq));
    named.get(&slot).is_some_and(|unit| Some(*unit) != found)
}

/// Returns the sources that a manager would read an extent from. The read is not completed.
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

/// Compares the two start paths that the image allows. Returns their difference, if any.
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
    // Both managers evict after their start, and comparisons with the origin may be in progress.
    let found = |manager: &CacheManager| manager.slots_used().0 as u64 + manager.stats().evictions;
    if !(found(&headers)..=found(&headers) + lost.len() as u64).contains(&found(&image)) {
        let found = (found(&image), found(&headers));
        return Some(format!(
            "slots in use after a start by image and by headers: {found:?}, headers lost in {lost:?}"
        ));
    }
    // Entries beyond the capacity of a full index or checkpoint are left out.
    let lacks =
        |manager: &CacheManager| manager.stats().evictions > 0 || manager.stats().file_index_evictions > 0;
    // The image may pin more units, which take capacity from others.
    let has_room = image.stats().pinned_units < headers.stats().pinned_units;
    for config in volumes {
        let extent_bytes = u64::from(world.cache.geometry().extent_bytes);
        for offset in (0..config.size_bytes).step_by(world.cache.geometry().extent_bytes as usize) {
            let len = extent_bytes.min(config.size_bytes - offset);
            let key = ExtentKey { volume: config.id, extent: ExtentNo(offset / extent_bytes) };
            let [is_safe, is_safe_there] = [&image, &headers].map(|manager| manager.is_safe(key));
            let [ours, theirs] = [&mut image, &mut headers].map(|manager| seen(manager, config, offset, len));
            // Either may have evicted since the last extent.
            let (image_lacks, headers_lack) = (lacks(&image), lacks(&headers) || world.trouble.left_out);
            // A header may have been corrupted, or rolled back by the device, before an earlier start from the image.
            // That start missed nothing, and neither does this one.
            // Zero sectors are recorded in headers as well, and do not name theirs.
            let is_excused = if ours.stored.is_empty() {
                !lost.is_empty() && ours.lacks_zeros_alone(&theirs)
            } else {
                ours.stored.iter().all(|expected| lost.contains(&expected.slot))
            };
            let is_missing = image_lacks && ours.is_part_of(&theirs)
                || (headers_lack || is_excused) && theirs.is_part_of(&ours);
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

/// Checks that a unit without its last pin is treated as any other. Returns a violation, if any.
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

/// Returns a manager started from the current media. Also returns the slots whose header was unreadable, or is not
/// that of the unit named by checkpoint and journal.
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
                && is_lost(slot, header.as_deref(), &named)
            {
                lost.insert(slot);
            }
            manager.handle(event, &mut actions);
            pending.extend(actions.drain(..));
        }
    }
    None
}

/// Returns the completion of an action: reads return the stored bytes, changes succeed, and origins are absent.
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
