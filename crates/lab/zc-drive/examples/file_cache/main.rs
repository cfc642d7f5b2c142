//! A read cache over a file: the cache manager decides, and the backend executes its actions at once.
//!
//! `cargo run -p zc-drive --example file_cache FILE` reads FILE twice and prints the reads that reached it each time.
//! The cache device is memory, and metadata is not kept: the cache is empty at each start.

mod backend;
mod memory;

use std::fs::File;
use std::io::Write as _;

use backend::Cache;
use zc_cache::CacheManager;
use zc_cache::config::{ManagerConfig, VolumeConfig};
use zc_cache::seam::{Event, Request, RequestKind};
use zc_cache::startup::StartState;
use zc_core::{BufId, Codec, FingerprintKind, ReqId, VolumeId, usize_from_u64};
use zc_drive::Turns;
use zc_format::{Geometry, PlanOptions};

/// Bytes of a request.
const REQUEST_BYTES: u64 = 64 << 10;

/// Starts a cache of 256 MiB over a file of `size_bytes`.
fn start(file: File, size_bytes: u64, turns: &mut Turns) -> anyhow::Result<Cache> {
    let (device_bytes, weu_bytes, extent_bytes) = (256 << 20, 2 << 20, 8192);
    let plan = PlanOptions { device_bytes, weu_bytes, extent_bytes, align_bytes: 0, journal_blocks: None };
    let geometry = Geometry::plan(&plan)?;
    let salt = geometry.salt;
    // No stream is recognised: it would be read ahead, and cached from its second read on.
    let config = ManagerConfig {
        prefetch_threshold_bytes: u32::MAX,
        prove_hits: 0,
        ..ManagerConfig::new(geometry, FingerprintKind::Blake3, 1 << 15)
    };
    let volume = VolumeConfig::new(VolumeId(0), size_bytes, 1 << 30);
    let volume = VolumeConfig { dedup: false, codec: Codec::Raw, ..volume };
    let manager = CacheManager::new(config, vec![volume], StartState::fresh());
    let mut cache = Cache {
        manager,
        memory: memory::Memory::default(),
        salt,
        file,
        file_reads: 0,
        reply: Ok(Vec::new()),
    };
    turns.begin(&mut cache, 0);
    turns.settle(&mut cache);
    Ok(cache)
}

/// Reads the whole file twice; returns the reads that reached it, after each time.
fn read_twice(path: &std::path::Path, mut check: impl FnMut(u64, &[u8])) -> anyhow::Result<[u32; 2]> {
    let file = File::open(path)?;
    let requests = file.metadata()?.len() / REQUEST_BYTES;
    let mut turns = Turns::default();
    let mut cache = start(file, requests * REQUEST_BYTES, &mut turns)?;
    let mut reads = [0; 2];
    for number in 0..2 * requests {
        let (buf, offset_bytes) = (BufId(number), number % requests * REQUEST_BYTES);
        cache.memory.bufs.insert(buf, vec![0; usize_from_u64(REQUEST_BYTES)]);
        let (req, volume, kind) = (ReqId(number), VolumeId(0), RequestKind::Read { buf });
        let request = Request { req, volume, offset_bytes, len_bytes: REQUEST_BYTES, kind };
        turns.handle(&mut cache, Event::Submit(request));
        let Ok(bytes) = &cache.reply else { anyhow::bail!("cannot read at byte {offset_bytes}") };
        check(offset_bytes, bytes);
        reads[usize::from(number >= requests)] = cache.file_reads;
    }
    Ok(reads)
}

fn main() -> anyhow::Result<()> {
    let path = std::env::args_os().nth(1).ok_or_else(|| anyhow::anyhow!("usage: file_cache FILE"))?;
    let [first, both] = read_twice(path.as_ref(), |_, _| {})?;
    Ok(writeln!(std::io::stdout(), "{first} reads of the file, then {}", both - first)?)
}

#[cfg(test)]
mod tests;
