//! Restart of a large cache, shown on a sparse image: `cargo run --release -p zc-bench --bin restart -- [DIR] [GIB]`.
//!
//! Makes a cache image of GIB GiB (default 1024) in DIR (default the working directory) whose slots hold headers full
//! of raw 8 KiB extents and no data, then opens it as the daemon would and prints the time until requests could be
//! served, the time until the index is complete, the bytes read and the RAM. The image takes about 0.8 % of its size
//! on disk and is removed at the end.
#![expect(clippy::print_stdout, reason = "it is a program for people")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use zc_cache::CacheManager;
use zc_cache::config::{ManagerConfig, VolumeConfig};
use zc_cache::seam::{Digest, Event};
use zc_cache::startup::{self, FormatOptions, Media};
use zc_core::{
    BufId, BufSlice, Codec, DedupDomain, ErrorKind, ExtentKey, ExtentNo, Fingerprint, FingerprintKind,
    Generation, ReqId, VolumeId, WeuSeq, WeuSlot,
};
use zc_drive::{Backend, Ended, Turns};
use zc_format::{Geometry, PlanOptions, WeuEntry, WeuHeader};

const GIB: u64 = 1 << 30;
const EXTENT: u32 = 8 << 10;

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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(|| PathBuf::from("."), PathBuf::from);
    let gib: u64 = args.next().map_or(Ok(1024), |text| text.parse())?;
    let path = dir.join("zcached-restart.img");
    let outcome = show(&path, gib);
    std::fs::remove_file(&path)?;
    outcome
}

fn show(path: &Path, gib: u64) -> Result<(), Box<dyn std::error::Error>> {
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
    fill(&mut image, &geometry)?;
    println!("headers written in {:.1} s", clock.elapsed().as_secs_f64());

    let clock = now();
    let mut records = Vec::new();
    let opened =
        startup::open(&mut image, &startup::OpenOptions::default(), &mut |record| records.push(*record))?;
    let mut manager = CacheManager::new(config(&geometry), vec![volume(len)], opened.start);
    records.iter().for_each(|record| manager.replay(record));
    let (image, geometry) = (&image, &geometry);
    let mut loading = Loading { manager, image, geometry, read_bytes: 0, error: None };
    let mut turns = Turns::default();
    turns.begin(&mut loading, 0);
    println!("first request could be served after {:.3} s", clock.elapsed().as_secs_f64());
    load(&mut loading, &mut turns)?;
    println!("index complete after {:.1} s", clock.elapsed().as_secs_f64());
    let (manager, read) = (&loading.manager, loading.read_bytes);
    let stats = manager.stats();
    let ram: u64 = manager.ram_by_structure().iter().map(|(_, bytes)| bytes).sum();
    println!(
        "{} extents, {} MiB of headers + {} KiB of other metadata read, {} MiB of RAM, {:.2} bytes an extent",
        stats.file_index_len,
        read >> 20,
        opened.bytes_read >> 10,
        ram >> 20,
        per(ram, stats.file_index_len),
    );
    if stats.file_index_len + stats.file_index_evictions != stats.load_mappings || stats.load_distrusted > 0 {
        return Err("the index does not hold what the headers say".into());
    }
    Ok(())
}

/// Reads the headers that the manager wants; anything else that it asks for at a start succeeds at once.
struct Loading<'a> {
    manager: CacheManager,
    image: &'a Image,
    geometry: &'a Geometry,
    read_bytes: u64,
    /// The first header that could not be read.
    error: Option<Box<dyn std::error::Error>>,
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

    fn read_header(&mut self, slot: WeuSlot) -> Result<Option<Box<WeuHeader>>, ErrorKind> {
        match read_header(self.image, self.geometry, slot) {
            Ok((header, bytes)) => {
                self.read_bytes += bytes;
                Ok(Some(Box::new(header)))
            }
            Err(error) => {
                self.error.get_or_insert(error);
                Err(ErrorKind::Io)
            }
        }
    }
}

/// Goes on until the index is complete.
fn load(loading: &mut Loading<'_>, turns: &mut Turns) -> Result<(), Box<dyn std::error::Error>> {
    turns.settle(loading);
    let mut now_ms = 0;
    while !loading.manager.is_loaded() {
        now_ms += 1;
        turns.handle(loading, Event::Tick { now_ms });
        if let Some(error) = loading.error.take() {
            return Err(error);
        }
    }
    Ok(())
}

fn read_header(
    image: &Image,
    geometry: &Geometry,
    slot: WeuSlot,
) -> Result<(WeuHeader, u64), Box<dyn std::error::Error>> {
    let end = geometry.slot_offset(slot) + u64::from(geometry.weu_bytes);
    let mut tail = vec![0; 16 << 10];
    image.file.read_exact_at(&mut tail, end - (16 << 10))?;
    let header = WeuHeader::decode(&tail, slot, geometry.weu_bytes, geometry.extent_bytes, geometry.salt)?;
    Ok((header, 16 << 10))
}

/// Formats the image and writes a header into every slot, as after a clean stop.
fn fill(image: &mut Image, geometry: &Geometry) -> Result<(), Box<dyn std::error::Error>> {
    let superblock = startup::format(
        image,
        &FormatOptions {
            geometry: geometry.clone(),
            uuid: [7; 16],
            fingerprint_kind: FingerprintKind::Blake3,
            label: "restart".to_owned(),
            now_unix_s: 0,
        },
    )?;
    let step = EXTENT + zc_format::EXTENT_HEADER_BYTES;
    let mut count = geometry.weu_bytes / step;
    while count * step + WeuHeader::encoded_bytes(count) > geometry.weu_bytes {
        count -= 1;
    }
    let mut tail = vec![0; zc_core::usize_from_u32(WeuHeader::encoded_bytes(count))];
    for slot in 0..geometry.slots {
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
        image.write(end - zc_core::u64_from_usize(tail.len()), &tail).map_err(|kind| kind.to_string())?;
    }
    let ended = zc_format::Superblock { session: superblock.session + 1, ..superblock };
    startup::mark_clean(image, &ended, ended.journal_next, 0)?;
    Ok(())
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

#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
fn per(bytes: u64, count: u64) -> f64 {
    bytes as f64 / count.max(1) as f64
}
