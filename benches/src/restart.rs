//! `cargo xtask bench restart`: restart of a large cache, on a sparse image.
//!
//! Job: make a cache of `--gib` GiB in `--dir` whose slots hold headers full of raw 8
//! KiB extents and no data. It opens the cache as the daemon would: by its headers, and after a clean stop by the index
//! image. It prints the time until requests could be served, the CPU time until the index is complete, the bytes read and
//! the RAM. The file takes about 1 % of its size on disk and is removed at the end.
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use zc_cache::CacheManager;
use zc_cache::config::{ManagerConfig, VolumeConfig};
use zc_cache::seam::{Digest, Event};
use zc_cache::startup::{self, FormatOptions, Media};
use zc_core::limits::BLOCK_BYTES;
use zc_core::{
    BufId, BufSlice, Codec, DedupDomain, ErrorKind, ExtentKey, ExtentNo, Fingerprint, FingerprintKind,
    Generation, ReqId, VolumeId, WeuSeq, WeuSlot,
};
use zc_drive::{Backend, Ended, Metadata, Turns};
use zc_format::{Geometry, PlanOptions, WeuEntry, WeuHeader};

const GIB: u64 = 1 << 30;
const EXTENT: u32 = 8 << 10;
/// Bytes that are read of a header: all of it.
const HEADER_BYTES: usize = 16 << 10;
/// Slots without a header: a start that finds none free evicts some.
const FREE_SLOTS: u32 = 8;

struct Image {
    file: File,
    len: u64,
}

impl Media for Image {
    fn len_bytes(&self) -> u64 {
        self.len
    }
    fn read(&mut self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), ErrorKind> {
        self.file.read_exact_at(buf, offset_bytes).map_err(|_| ErrorKind::Io)
    }
    fn write(&mut self, offset_bytes: u64, data: &[u8]) -> Result<(), ErrorKind> {
        self.file.write_all_at(data, offset_bytes).map_err(|_| ErrorKind::Io)
    }
    fn flush(&mut self) -> Result<(), ErrorKind> {
        self.file.sync_data().map_err(|_| ErrorKind::Io)
    }
}

/// Restart a large cache on a sparse image
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder for the image, which takes about 1 % of its size
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Size of the cache
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..))]
    gib: u64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.dir)?;
    let path = args.dir.join("zcached-restart.img");
    let outcome = show(&path, args.gib);
    std::fs::remove_file(&path)?;
    outcome
}

fn show(path: &Path, gib: u64) -> anyhow::Result<()> {
    let len = gib * GIB;
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    file.set_len(len)?;
    let mut image = Image { file, len };
    let geometry = Geometry::plan(&PlanOptions {
        device_bytes: len,
        weu_bytes: 2 << 20,
        extent_bytes: EXTENT,
        align_bytes: 0,
        journal_blocks: None,
    })?;
    println!("image of {gib} GiB, {} slots of 2 MiB", geometry.slots);
    let clock = now();
    let geometry = fill(&mut image, &geometry)?;
    println!("headers written in {:.1} s", clock.elapsed().as_secs_f64());
    start(&mut image, &geometry, false)?;
    start(&mut image, &geometry, true)
}

/// Opens the cache, completes its index, and stops in order.
fn start(image: &mut Image, geometry: &Geometry, is_by_image: bool) -> anyhow::Result<()> {
    println!("start by {}:", if is_by_image { "the index image" } else { "headers" });
    let (clock, began) = (now(), cpu_time());
    let mut records = Vec::new();
    let opened = startup::open(image, &startup::OpenOptions::default(), &mut |record| records.push(*record))?;
    let mut manager = CacheManager::new(config(geometry), vec![volume(image.len)], opened.start);
    records.iter().for_each(|record| manager.replay(record));
    let mut loading = Loading { manager, image, geometry, read_bytes: 0, stopped: None };
    let mut turns = Turns::default();
    turns.begin(&mut loading, 0);
    println!("first request could be served after {:.3} s", clock.elapsed().as_secs_f64());
    let now_ms = load(&mut loading, &mut turns);
    println!(
        "index complete after {:.1} s, {:.1} s of CPU",
        clock.elapsed().as_secs_f64(),
        (cpu_time() - began).as_secs_f64()
    );
    let (manager, read) = (&loading.manager, loading.read_bytes);
    let stats = manager.stats();
    let ram: u64 = manager.ram_by_structure().iter().map(|(_, bytes)| bytes).sum();
    println!(
        "{} extents, {} MiB of headers or image + {} KiB of other metadata read, {} MiB of RAM, {:.2} bytes an extent",
        stats.file_index_len,
        read >> 20,
        opened.bytes_read >> 10,
        ram >> 20,
        per(ram, stats.file_index_len),
    );
    let is_whole = is_by_image
        || stats.file_index_len + stats.file_index_evictions == stats.load_mappings
            && stats.load_distrusted == 0;
    if !is_whole || (stats.load_by_image > 0) != is_by_image {
        anyhow::bail!("the index does not hold what the cache says, or was not made as it should be");
    }
    let began = cpu_time();
    stop(&mut loading, &mut turns, now_ms)?;
    let written = loading.manager.stats().image_bytes_written;
    let (journal_next, named) = (loading.manager.journal_next(), loading.manager.index_image());
    startup::mark_clean(loading.image, &opened.superblock, journal_next, named)?;
    let took = (cpu_time() - began).as_secs_f64();
    println!("stopped in {took:.1} s of CPU, {} MiB of image written", written >> 20);
    Ok(())
}

/// Stops in order, and leaves an index image.
fn stop(loading: &mut Loading<'_>, turns: &mut Turns, mut now_ms: u64) -> anyhow::Result<()> {
    turns.handle(loading, Event::Stop);
    while loading.stopped.is_none() {
        now_ms += 1;
        turns.handle(loading, Event::Tick { now_ms });
    }
    match loading.stopped {
        Some(true) => Ok(()),
        _ => anyhow::bail!("the stop was not clean"),
    }
}

/// Reads headers or index image for the manager, and writes its metadata.
struct Loading<'a> {
    manager: CacheManager,
    image: &'a mut Image,
    geometry: &'a Geometry,
    read_bytes: u64,
    /// Result of the stop: `true` if it was clean.
    stopped: Option<bool>,
}

impl Backend for Loading<'_> {
    fn manager(&mut self) -> &mut CacheManager {
        &mut self.manager
    }

    fn reply(&mut self, _req: ReqId, _result: Ended) {}

    fn hash(&mut self, _src: BufSlice, _domain: &DedupDomain) -> Digest {
        unreachable!("a start hashes nothing")
    }

    fn compress(&mut self, _src: BufSlice, _codec: Codec, _max_bytes: u32, _out: BufId) -> Option<u32> {
        unreachable!("a start compresses nothing")
    }

    /// The probed contents of the cache equal those of the origin.
    fn compare(&mut self, _left: BufSlice, _right: BufSlice) -> bool {
        true
    }

    fn read_header(&mut self, slot: WeuSlot) -> Result<Option<Box<WeuHeader>>, ErrorKind> {
        let geometry = self.geometry;
        let mut tail = vec![0; HEADER_BYTES];
        let len = zc_core::u64_from_usize(HEADER_BYTES);
        let end = geometry.slot_offset(slot) + u64::from(geometry.weu_bytes);
        self.image.read(end - len, &mut tail)?;
        self.read_bytes += len;
        let header = WeuHeader::decode(&tail, slot, geometry.weu_bytes, geometry.extent_bytes, geometry.salt);
        Ok(header.ok().map(Box::new))
    }

    fn read_image(&mut self, area: usize, first_block: u64, blocks: u32) -> Result<Vec<u8>, ErrorKind> {
        let mut bytes = vec![0; zc_core::usize_from_u32(blocks * BLOCK_BYTES)];
        self.image.read(self.geometry.image_block_offset(area, first_block), &mut bytes)?;
        self.read_bytes += zc_core::u64_from_usize(bytes.len());
        Ok(bytes)
    }

    fn write_metadata(&mut self, metadata: Metadata) -> Ended {
        let (offset_bytes, bytes) = metadata.encode(self.geometry);
        self.image.write(offset_bytes, &bytes)
    }

    fn stopped(&mut self, clean: bool) {
        self.stopped = Some(clean);
    }
}

/// Runs until the index is complete; returns the clock.
fn load(loading: &mut Loading<'_>, turns: &mut Turns) -> u64 {
    turns.settle(loading);
    let mut now_ms = 0;
    while !loading.manager.is_loaded() {
        now_ms += 1;
        turns.handle(loading, Event::Tick { now_ms });
    }
    now_ms
}

/// Formats the image and writes a header into every slot, as after a clean stop.
fn fill(image: &mut Image, planned: &Geometry) -> anyhow::Result<Geometry> {
    let superblock = startup::format(
        image,
        &FormatOptions {
            geometry: planned.clone(),
            uuid: [7; 16],
            fingerprint_kind: FingerprintKind::Blake3,
            label: "restart".to_owned(),
            now_unix_s: 0,
        },
    )?;
    // With the salt of this cache.
    let geometry = superblock.geometry.clone();
    let step = EXTENT + zc_format::EXTENT_HEADER_BYTES;
    let mut count = geometry.weu_bytes / step;
    while count * step + WeuHeader::encoded_bytes(count) > geometry.weu_bytes {
        count -= 1;
    }
    let mut tail = vec![0; zc_core::usize_from_u32(WeuHeader::encoded_bytes(count))];
    for slot in 0..geometry.slots - FREE_SLOTS {
        let entries = (0..count)
            .map(|index| entry(u64::from(slot) * u64::from(count) + u64::from(index), index * step));
        let header = WeuHeader {
            slot: WeuSlot(slot),
            generation: Generation(1),
            weu_seq: WeuSeq((1 << 32) + u64::from(slot)),
            session: superblock.session + 1,
            entries: entries.collect(),
        };
        header.encode_into(&mut tail, geometry.salt);
        let end = geometry.slot_offset(WeuSlot(slot)) + u64::from(geometry.weu_bytes);
        image.write(end - zc_core::u64_from_usize(tail.len()), &tail)?;
    }
    let ended = zc_format::Superblock { session: superblock.session + 1, ..superblock };
    startup::mark_clean(image, &ended, ended.journal_next, 0)?;
    Ok(geometry)
}

fn entry(number: u64, offset_bytes: u32) -> WeuEntry {
    let mut print = [0; 32];
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    print[..8].copy_from_slice(&(mixed ^ (mixed >> 29)).to_le_bytes());
    WeuEntry {
        key: ExtentKey { volume: VolumeId(0), extent: ExtentNo(number) },
        offset_bytes,
        stored_bytes: EXTENT,
        codec: Codec::Raw,
        fingerprint: Fingerprint(print),
        dirty: None,
    }
}

fn volume(len: u64) -> VolumeConfig {
    VolumeConfig::new(VolumeId(0), len, 256 << 20)
}

fn config(geometry: &Geometry) -> ManagerConfig {
    let extents = geometry.device_bytes / u64::from(EXTENT);
    ManagerConfig {
        journal_delay_ms: 50,
        regions_active_max: 128,
        ..ManagerConfig::new(geometry.clone(), FingerprintKind::Blake3, extents)
    }
}

#[expect(clippy::disallowed_methods, reason = "the program's one clock")]
fn now() -> Instant {
    Instant::now()
}

/// Returns the CPU time of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
fn per(bytes: u64, count: u64) -> f64 {
    bytes as f64 / count.max(1) as f64
}
