//! The origin as a zcached store on an array, in the place of the capacity-optimized system behind Nitro's cache (Li
//! et al., USENIX ATC 2014, section 3.1).
//!
//! Job: execute reads and writes of volumes with the daemon's own pool ([`zc_drive::pool::Drive`]), whose operations
//! take the time of the array's disks. The pool decides placement, page reads and the scattering by deduplication.
//!
//! Invariants: blocks are generated from their fingerprints, as large under LZ4 as in the trace. Filling takes no
//! time. The array has write memory, so that the log reaches the disks in whole stripes.
//!
//! It processes one request at a time. A request queues behind earlier ones at the disks, but its batch of the log is
//! its own.

use std::sync::Arc;

use bytes::Bytes;
use zc_core::{Codec, Map, u64_from_usize, usize_from_u32, usize_from_u64};
use zc_drive::pool::{Blank, Drive, DriveError, Machine};
use zc_pool::{DeviceOperation, Ended, RequestKind};
use zc_store::{CatalogChange, CatalogOp, Config, FLAG_DEDUP, RootId};
use zc_trace::{Content, Op};

use super::devices::Disks;
use super::timing::Timing;
use crate::content::{BLOCK_BYTES, ContentId, Contents};
use crate::error::ReplayError;
use crate::load::{Step, Trace, block_key, split_key};
use crate::work::VOLUME_GAP;

/// Bytes of a chunk, and their binary logarithm.
const CHUNK_BYTES: u64 = 8 << 10;
const CHUNK_SHIFT: u8 = 13;
const SEGMENT_BYTES: u32 = 1 << 20;
/// Space beside the contents of volumes: reserves, pages, and garbage.
const SPARE_BYTES: u64 = 192 << 20;
/// Bytes of one write while a store is filled.
const FILL_BYTES: u64 = 1 << 20;
/// Fingerprints in memory for each page there: a tenth of its memory.
const PRINTS_PER_PAGE: usize = 16;
/// Pages in memory, and fingerprints, at least.
const PAGES_MIN: usize = 64;
const PRINTS_MIN: usize = 1 << 12;

/// The disks, and the bytes on them.
#[derive(Debug)]
struct Array {
    disks: Disks,
    bytes: Vec<u8>,
    /// Operations take time.
    is_timed: bool,
}

impl Machine for Array {
    fn begin(&mut self, now_ns: u64, operation: &DeviceOperation) -> (u64, Ended) {
        let (at_ns, ended) = match operation {
            DeviceOperation::Read { offset_bytes, len_bytes } => {
                let at = usize_from_u64(*offset_bytes);
                let bytes = Bytes::copy_from_slice(&self.bytes[at..at + usize_from_u32(*len_bytes)]);
                let len_bytes = u64::from(*len_bytes);
                (
                    self.timed(now_ns, |disks| disks.read(now_ns, *offset_bytes, len_bytes)),
                    Ended::Read(Ok(bytes)),
                )
            }
            DeviceOperation::Write { offset_bytes, bytes } => {
                let at = usize_from_u64(*offset_bytes);
                self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
                let len_bytes = u64_from_usize(bytes.len());
                (self.timed(now_ns, |disks| disks.append(now_ns, len_bytes)), Ended::Device(Ok(())))
            }
            // The memory keeps acknowledged writes.
            DeviceOperation::Flush | DeviceOperation::Discard { .. } => (now_ns, Ended::Device(Ok(()))),
        };
        (at_ns, ended)
    }
}

impl Array {
    fn timed(&mut self, now_ns: u64, work: impl FnOnce(&mut Disks) -> u64) -> u64 {
        if self.is_timed { work(&mut self.disks) } else { now_ns }
    }
}

/// Present contents of a trace's volumes.
#[derive(Debug)]
struct Held {
    contents: Arc<Contents>,
    blocks: Map<u64, ContentId>,
}

/// An array with a store of ours on it.
#[derive(Debug)]
pub struct Store {
    drive: Drive<Array>,
    timing: Timing,
    device_bytes: u64,
    /// Volumes of the trace, in its order.
    shown: Vec<RootId>,
    /// The next volume or snapshot.
    next: u16,
    held: Option<Held>,
    /// The store's time when that of a replay began.
    began_ns: u64,
    failed: Option<DriveError>,
}

/// A volume or a snapshot of a [`Store`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Root(RootId);

/// The bytes of a block.
fn block(print: u128, lz4_bytes: u32, out: &mut Vec<u8>) {
    let end = out.len() + usize_from_u32(BLOCK_BYTES);
    let noise_end = out.len() + usize_from_u32(lz4_bytes.min(BLOCK_BYTES));
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    let seed = (print >> 64) as u64 ^ Contents::hash(print as u64);
    let mut word = 0;
    while out.len() < noise_end {
        out.extend_from_slice(&Contents::hash(seed.wrapping_add(word)).to_le_bytes());
        word += 1;
    }
    out.resize(end, 0);
}

fn change(op: CatalogOp, id: RootId, source: RootId, size_bytes: u64) -> CatalogChange {
    CatalogChange {
        op,
        id,
        source,
        codec: Codec::Lz4,
        chunk_shift: CHUNK_SHIFT,
        size_chunks: size_bytes.div_ceil(CHUNK_BYTES),
        flags: FLAG_DEDUP,
        name: format!("root-{}", id.0),
    }
}

impl Store {
    /// Creates an empty store for `volume_bytes` of volumes. Its page memory is that of the profile, scaled like the
    /// timing.
    ///
    /// # Errors
    /// The store cannot be created.
    /// The store cannot be made.
    pub fn new(timing: &Timing, volume_bytes: u64) -> Result<Self, ReplayError> {
        let device_bytes = (volume_bytes + SPARE_BYTES).next_multiple_of(u64::from(SEGMENT_BYTES));
        let pages = usize_from_u64(timing.profile.disk.store_memory_bytes / u64::from(BLOCK_BYTES));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of it")]
        let scaled =
            |count: usize, least: usize| ((count as f64 * timing.memory_scale.min(1.0)) as usize).max(least);
        let config = Config {
            cache_pages: scaled(pages, PAGES_MIN),
            fingerprints_max: scaled(pages * PRINTS_PER_PAGE, PRINTS_MIN),
            ..Config::default()
        };
        let blank = Blank::new(device_bytes, SEGMENT_BYTES, config)?;
        let mut bytes = vec![0; usize_from_u64(device_bytes)];
        blank.format(|offset_bytes, block| {
            let at = usize_from_u64(offset_bytes);
            bytes[at..at + block.len()].copy_from_slice(block);
        });
        let disks = Disks::new(timing.profile.disk, device_bytes, timing.memory_scale);
        let drive = Drive::open(&blank, Array { disks, bytes, is_timed: false })?;
        Ok(Self {
            drive,
            timing: *timing,
            device_bytes,
            shown: Vec::new(),
            next: 1,
            held: None,
            began_ns: 0,
            failed: None,
        })
    }

    /// Creates a store with the volumes of a trace and their initial contents.
    pub(super) fn of(trace: &Trace, timing: &Timing) -> Result<Self, ReplayError> {
        let mut store = Self::new(timing, trace.footprint_bytes())?;
        for span in trace.spans() {
            let root = store.volume(*span)?;
            store.shown.push(root.0);
        }
        let mut blocks: Vec<(u64, ContentId)> = trace.initial.iter().map(|(key, id)| (*key, *id)).collect();
        blocks.sort_unstable();
        for run in blocks.chunk_by(|one, other| one.0 + 1 == other.0) {
            for part in run.chunks(usize_from_u64(FILL_BYTES) / usize_from_u32(BLOCK_BYTES)) {
                let mut data = Vec::new();
                for (_, id) in part {
                    trace.contents.bytes(*id, &mut data);
                }
                let (volume, first) = split_key(part[0].0);
                let root = store.shown[usize::from(volume)];
                store.put(root, first * u64::from(BLOCK_BYTES), data)?;
            }
        }
        Ok(store)
    }

    fn catalog(&mut self, op: CatalogOp, source: RootId, size_bytes: u64) -> Result<Root, ReplayError> {
        let id = RootId(self.next);
        self.next += 1;
        let source = if op == CatalogOp::Create { id } else { source };
        self.drive.catalog(change(op, id, source, size_bytes))?;
        Ok(Root(id))
    }

    /// A new volume.
    ///
    /// # Errors
    /// The store cannot have it.
    pub fn volume(&mut self, size_bytes: u64) -> Result<Root, ReplayError> {
        // A cache may read up to a whole number of its extents.
        let whole = size_bytes.next_multiple_of(u64::from(zc_core::limits::EXTENT_BYTES_MAX));
        self.catalog(CatalogOp::Create, RootId(0), whole)
    }

    /// A snapshot of a volume.
    ///
    /// # Errors
    /// The store cannot have it.
    pub fn snapshot(&mut self, volume: Root) -> Result<Root, ReplayError> {
        self.catalog(CatalogOp::Snapshot, volume.0, 0)
    }

    /// A volume that begins as a snapshot.
    ///
    /// # Errors
    /// The store cannot have it.
    pub fn clone_of(&mut self, snapshot: Root) -> Result<Root, ReplayError> {
        self.catalog(CatalogOp::Clone, snapshot.0, 0)
    }

    /// A volume or snapshot goes.
    ///
    /// # Errors
    /// The store fails.
    pub fn delete(&mut self, root: Root) -> Result<(), ReplayError> {
        Ok(self.drive.catalog(change(CatalogOp::Delete, root.0, root.0, 0))?)
    }

    fn put(&mut self, root: RootId, offset_bytes: u64, data: Vec<u8>) -> Result<(), ReplayError> {
        self.drive.ask(RequestKind::Write { root, offset_bytes, data: data.into(), known: Vec::new() })?;
        Ok(())
    }

    /// Writes blocks that follow each other. It takes no time.
    ///
    /// # Errors
    /// The store takes no more.
    pub fn write(&mut self, volume: Root, first_block: u64, contents: &[Content]) -> Result<(), ReplayError> {
        let mut data = Vec::new();
        contents.iter().for_each(|content| {
            block(content.fingerprint, content.lz4_bytes.unwrap_or(BLOCK_BYTES), &mut data);
        });
        self.put(volume.0, first_block * u64::from(BLOCK_BYTES), data)
    }

    /// Passes `ns` of idle time, in the store's clock while it is filled: it may clean and gather.
    ///
    /// # Errors
    /// The store fails.
    /// The store fails.
    pub fn rest(&mut self, ns: u64) -> Result<(), ReplayError> {
        Ok(self.drive.rest(ns)?)
    }

    /// The volumes of the next trace are these, in the order in which it names them.
    pub fn show(&mut self, roots: &[Root]) {
        self.shown = roots.iter().map(|root| root.0).collect();
    }

    /// Starts a replay: writes have the contents of this trace. Disks are idle.
    pub(super) fn begin(&mut self, trace: &Trace) {
        self.held = Some(Held { contents: Arc::clone(&trace.contents), blocks: trace.initial.clone() });
        self.began_ns = self.drive.now_ns();
        let disks = Disks::new(self.timing.profile.disk, self.device_bytes, self.timing.memory_scale);
        self.drive.machine_mut().disks = disks;
    }

    /// Time begins to count, or ends.
    pub(super) const fn set_timed(&mut self, is_timed: bool) {
        self.drive.machine_mut().is_timed = is_timed;
    }

    /// Ends a replay.
    ///
    /// # Errors
    /// The first failure of the store.
    /// What the store could not do.
    pub(super) fn end(&mut self) -> Result<(), ReplayError> {
        self.set_timed(false);
        self.failed.take().map_or(Ok(()), |error| Err(error.into()))
    }

    /// Records the writes of a step as the contents of their blocks.
    pub(super) fn note(&mut self, step: &Step, trace: &Trace) {
        let Some(held) = &mut self.held else { return };
        if step.op == Op::Write {
            for block in 0..step.blocks {
                let key = block_key(step.volume, step.first_block + u64::from(block));
                held.blocks.insert(key, trace.written[usize_from_u32(step.contents_at + block)]);
            }
        }
    }

    /// Submits a request at a moment of the replay; returns the time of its completion.
    fn ask(&mut self, now_ns: u64, kind: RequestKind) -> u64 {
        match self.drive.ask_at(self.began_ns + now_ns, kind) {
            Ok((at_ns, _)) => at_ns - self.began_ns,
            Err(error) => {
                self.failed.get_or_insert(error);
                now_ns
            }
        }
    }

    fn root(&self, place: u64) -> Option<RootId> {
        self.shown.get(usize_from_u64(place / VOLUME_GAP)).copied()
    }

    /// A read: when it is done.
    pub(super) fn read(&mut self, now_ns: u64, place: u64, bytes: u64) -> u64 {
        let Some(root) = self.root(place) else { return now_ns };
        let len_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.ask(now_ns, RequestKind::Read { root, offset_bytes: place % VOLUME_GAP, len_bytes })
    }

    /// A write: when it is answered.
    pub(super) fn overwrite(&mut self, now_ns: u64, place: u64, bytes: u64) -> u64 {
        let (Some(root), Some(held)) = (self.root(place), &self.held) else { return now_ns };
        let volume = u16::try_from(place / VOLUME_GAP).unwrap_or(u16::MAX);
        let offset_bytes = place % VOLUME_GAP;
        let mut data = Vec::new();
        for number in
            offset_bytes / u64::from(BLOCK_BYTES)..(offset_bytes + bytes).div_ceil(u64::from(BLOCK_BYTES))
        {
            let id = held.blocks.get(&block_key(volume, number)).copied().unwrap_or(ContentId::ZERO);
            held.contents.bytes(id, &mut data);
        }
        self.ask(now_ns, RequestKind::Write { root, offset_bytes, data: data.into(), known: Vec::new() })
    }

    /// Nanoseconds that all disks were at work, and how many there are.
    pub(super) fn busy(&self) -> (u64, u64) {
        self.drive.machine().disks.busy()
    }
}

impl Contents {
    /// Appends the bytes of a block.
    fn bytes(&self, id: ContentId, out: &mut Vec<u8>) {
        if id == ContentId::ZERO {
            out.resize(out.len() + usize_from_u32(BLOCK_BYTES), 0);
        } else {
            let (print, lz4_bytes) = self.made_of(id);
            block(print, lz4_bytes, out);
        }
    }
}
