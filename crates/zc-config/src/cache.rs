//! The section `[cache]`.

use std::path::PathBuf;

use zc_core::limits::{
    ACTIVE_REGIONS_DEFAULT, EXTENT_BYTES_DEFAULT, EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, WEU_BYTES_DEFAULT,
    WEU_BYTES_MAX, WEU_BYTES_MIN,
};
use zc_core::units::{ByteSize, Percent};

use crate::limits;
use crate::model::{CacheConfig, Compression, Fingerprint, MaxRam, Packer, Policy, RegionSize};
use crate::section::{Section, shown, whole};

const DEFAULT_STATE_DIR: &str = "/var/lib/zcached";
const MIB: u32 = 1 << 20;

pub(crate) fn read(mut section: Section<'_, '_>) -> CacheConfig {
    let compression = section.word("compression", Compression::WORDS, Compression::Lz4);
    let threads = section.count("reduce_threads", 0, &limits::REDUCE_THREADS);
    let (weu_bytes, extent_bytes) = geometry(&mut section);
    let (dirty_high_percent, dirty_low_percent) = watermarks(&mut section);
    let fingerprint = section.word("fingerprint", Fingerprint::WORDS, Fingerprint::Blake3);
    let config = CacheConfig {
        path: section.required_path("path", "it names the file or block device of the cache"),
        size: section.size_or_share("size", &limits::CACHE_BYTES),
        journal_path: section.path("journal_path").map(|path| path.value),
        journal_bytes: journal_size(&mut section),
        state_dir: section
            .path("state_dir")
            .map_or_else(|| PathBuf::from(DEFAULT_STATE_DIR), |path| path.value),
        wait_max_ms: section.duration("wait_max", 10_000, &limits::CACHE_WAIT_MS),
        required: section.flag("required").unwrap_or(false),
        weu_bytes,
        extent_bytes,
        compression,
        compression_level: level(&mut section, compression, None),
        fingerprint,
        fingerprint_index_percent: section.percent("fingerprint_index_ratio", 100),
        dedup: section.flag("dedup").unwrap_or(true),
        discard: section.flag("discard"),
        direct: section.flag("direct").unwrap_or(true),
        max_ram: max_ram(&mut section),
        reduce_threads: u16::try_from(threads).unwrap_or(0),
        reduce_cpus: cpus(&mut section, "reduce_cpus"),
        io_threads: u16::try_from(section.count("io_threads", 1, &limits::IO_THREADS)).unwrap_or(1),
        shard_cpus: cpus(&mut section, "shard_cpus"),
        poll_max_us: section.short_duration("poll_max", 0, &limits::POLL_US),
        device_deadline_ms: section.duration("device_deadline", 10_000, &limits::DEVICE_DEADLINE_MS),
        slow_read_ms: section.duration("slow_read", 2_000, &limits::SLOW_READ_MS),
        weu_max_age_ms: section.duration("weu_max_age", 10_000, &limits::WEU_AGE_MS),
        prefetch_threshold_bytes: section.size_u32(
            "prefetch_threshold",
            256 << 10,
            &limits::PREFETCH_THRESHOLD_BYTES,
        ),
        prefetch_max_bytes: section.size_u32("prefetch_max", 128 << 10, &limits::PREFETCH_BYTES),
        read_buffer_bytes: section.size_u32("read_buffer", 4 * MIB, &limits::BUFFER_BYTES),
        learned_recipes_bytes: section
            .size("learned_recipes", &limits::LEARNED_BYTES)
            .or_else(|| (fingerprint == Fingerprint::Sha1).then_some(0)),
        staging_bytes: section.size_u32("staging", 8 * MIB, &limits::BUFFER_BYTES),
        insert_bytes_max: section.size_u32("insert_max", 32 * MIB, &limits::INSERT_BYTES),
        regions_active_max: section.count(
            "regions_active_max",
            ACTIVE_REGIONS_DEFAULT,
            &limits::REGIONS_ACTIVE,
        ),
        region_size: region_size(&mut section),
        policy: section.word("policy", Policy::WORDS, Policy::CostBenefit),
        packer: section.word("packer", Packer::WORDS, Packer::Append),
        dirty_high_percent,
        dirty_low_percent,
        dirty_memory_bytes: section
            .size("dirty_memory", &limits::DIRTY_MEMORY_BYTES)
            .unwrap_or_else(|| 32 * u64::from(MIB)),
        destage_window: section.windows("destage_window").unwrap_or_default(),
        destage_idle_ms: section.duration("destage_idle", 1_000, &limits::DESTAGE_IDLE_MS),
        destage_bytes_per_s: section.size("destage_rate", &limits::DESTAGE_RATE).unwrap_or(0),
        dirty_scrub_ms: section.duration("dirty_scrub", 4 * 3_600_000, &limits::DIRTY_SCRUB_MS),
        prove_hits: section.count("prove_hits", 128, &limits::PROVE_HITS),
        destage_writes: section.count("destage_writes", 16, &limits::DESTAGE_WRITES),
    };
    section.finish();
    config
}

/// High and low watermarks of dirty slots.
fn watermarks(section: &mut Section<'_, '_>) -> (u8, u8) {
    let high = section.percent_in("dirty_high", 50, &limits::DIRTY_HIGH_PERCENT);
    let low = section.percent("dirty_low", 30.min(high));
    if low > high {
        let at = section.get("dirty_low").map_or(section.at, |value| value.span().start);
        let (low, high) = (Percent(low), Percent(high));
        section.mistake(at, "dirty_low", format_args!("{low} is above dirty_high, which is {high}"));
    }
    (high, low)
}

/// A size without a journal path is a mistake.
fn journal_size(section: &mut Section<'_, '_>) -> Option<u64> {
    let bytes = section.size("journal_size", &limits::JOURNAL_BYTES)?;
    if section.get("journal_path").is_none() {
        let at = section.get("journal_size").map_or(section.at, |value| value.span().start);
        section.mistake(at, "journal_size", "it is the size of a journal file, and there is no journal_path");
    }
    Some(bytes)
}

/// Unit and extent size. Both are powers of two, so a smaller extent divides the unit.
fn geometry(section: &mut Section<'_, '_>) -> (u32, u32) {
    let weu = section.power_of_two("weu_size", WEU_BYTES_DEFAULT, WEU_BYTES_MIN, WEU_BYTES_MAX);
    let extent =
        section.power_of_two("extent_size", EXTENT_BYTES_DEFAULT, EXTENT_BYTES_MIN, EXTENT_BYTES_MAX);
    let least = limits::EXTENTS_PER_WEU_MIN;
    if weu.value / extent.value < least {
        let (extent_bytes, weu_bytes) = (ByteSize(extent.value.into()), ByteSize(weu.value.into()));
        let what = format!(
            "{extent_bytes} is too large for a WEU of {weu_bytes}, which must hold at least {least} extents"
        );
        section.mistake(extent.at.max(weu.at), "extent_size", what);
    }
    (weu.value, extent.value)
}

/// Returns the level for `codec`: configured, inherited, or the codec's default.
pub(crate) fn level(section: &mut Section<'_, '_>, codec: Compression, inherited: Option<u8>) -> u8 {
    let value = section.get("compression_level");
    let default = inherited.unwrap_or_else(|| codec.levels().map_or(0, |(default, _)| default));
    let Some(value) = value else { return default };
    let level = whole(value.get_ref()).and_then(|level| u8::try_from(level).ok());
    let what = match (codec.levels(), level) {
        (Some((_, max)), Some(level)) if (1..=max).contains(&level) => return level,
        (Some((_, max)), _) => {
            format!("{} is not between 1 and {max}, the levels of {}", shown(value.get_ref()), codec.word())
        }
        (None, _) => format!("compression \"{}\" has no levels", codec.word()),
    };
    section.mistake(value.span().start, "compression_level", what);
    default
}

fn max_ram(section: &mut Section<'_, '_>) -> MaxRam {
    let value = section.get("max_ram").map(|value| value.get_ref().as_str());
    match value {
        None | Some(Some("auto")) => MaxRam::Auto,
        Some(_) => section.size("max_ram", &limits::RAM_BYTES).map_or(MaxRam::Auto, MaxRam::Bytes),
    }
}

fn region_size(section: &mut Section<'_, '_>) -> RegionSize {
    let Some(value) = section.get("region_size") else { return RegionSize::Auto };
    let text = value.get_ref().as_str();
    if text == Some("auto") {
        return RegionSize::Auto;
    }
    let bytes = text
        .and_then(|text| text.parse().ok().map(|ByteSize(bytes)| bytes))
        .or_else(|| whole(value.get_ref()));
    if let Some(bytes) = bytes.filter(|b| b.is_power_of_two() && limits::REGION_BYTES.contains(b)) {
        return RegionSize::Bytes(bytes);
    }
    let (low, high) = (ByteSize(*limits::REGION_BYTES.start()), ByteSize(*limits::REGION_BYTES.end()));
    let what =
        format!("{} is neither \"auto\" nor a power of two between {low} and {high}", shown(value.get_ref()));
    section.mistake(value.span().start, "region_size", what);
    RegionSize::Auto
}

/// Parses CPU lists in the form of taskset, `"0,2-5"`, or as numbers, `[0, 2, 3]`. Sorted, without duplicates.
fn cpus(section: &mut Section<'_, '_>, key: &'static str) -> Vec<u16> {
    let Some(value) = section.get(key) else { return Vec::new() };
    let list = match value.get_ref() {
        toml::de::DeValue::String(text) => cpu_ranges(text),
        toml::de::DeValue::Array(entries) => {
            entries.iter().map(|entry| cpu(whole(entry.get_ref())?)).collect::<Option<Vec<_>>>()
        }
        _ => None,
    };
    let Some(mut list) = list else {
        let what = format!("{} is not a list of CPUs such as \"0,2-5\" or [0, 2]", shown(value.get_ref()));
        section.mistake(value.span().start, key, what);
        return Vec::new();
    };
    list.sort_unstable();
    list.dedup();
    list
}

fn cpu(number: u64) -> Option<u16> {
    u16::try_from(number).ok().filter(|cpu| *cpu < limits::CPUS_MAX)
}

fn cpu_ranges(text: &str) -> Option<Vec<u16>> {
    let mut listed = std::collections::BTreeSet::new();
    if text.trim().is_empty() {
        return Some(Vec::new());
    }
    if text.len() > limits::CPU_LIST_BYTES_MAX {
        return None;
    }
    for part in text.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high) = (cpu(low.trim().parse().ok()?)?, cpu(high.trim().parse().ok()?)?);
        if low > high {
            return None;
        }
        listed.extend(low..=high);
    }
    Some(listed.into_iter().collect())
}
