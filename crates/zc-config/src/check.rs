//! From the file to the configuration: defaults and every check that needs no look at the system.

use std::path::{Path, PathBuf};

use toml::Spanned;
use zc_core::limits;

use crate::model::{
    Admission, CacheConfig, Compression, Config, ControlConfig, Fingerprint, LogConfig, Mode, NbdConfig,
    Policy, RegionSize, VolumeConfig, VolumeNbd,
};
use crate::raw::{self, Opt};
use crate::units::{ByteSize, Millis, Percent};

/// A mistake: where in the text, and what.
type Found = (usize, String);

const DEFAULT_STATE_DIR: &str = "/var/lib/zcached";
const DEFAULT_CONTROL: &str = "/run/zcached/control.sock";
const DEFAULT_LISTEN: &str = "127.0.0.1:10809";

struct Checks {
    found: Vec<Found>,
}

impl Checks {
    fn mistake<T>(&mut self, value: &Spanned<T>, text: String) {
        self.found.push((value.span().start, text));
    }

    fn size(
        &mut self,
        key: &str,
        value: Opt<ByteSize>,
        default: u64,
        range: core::ops::RangeInclusive<u64>,
    ) -> u64 {
        let Some(value) = value else { return default };
        let bytes = value.get_ref().0;
        if !range.contains(&bytes) {
            let (low, high) = (ByteSize(*range.start()), ByteSize(*range.end()));
            self.mistake(&value, format!("{key}: {} is not between {low} and {high}", ByteSize(bytes)));
            return default;
        }
        bytes
    }

    fn small(&mut self, key: &str, value: Opt<ByteSize>, default: u32, max: u32) -> u32 {
        u32::try_from(self.size(key, value, default.into(), 0..=max.into())).unwrap_or(default)
    }

    fn power(&mut self, key: &str, value: Opt<ByteSize>, default: u32, low: u32, high: u32) -> u32 {
        let Some(value) = value else { return default };
        let bytes = value.get_ref().0;
        match u32::try_from(bytes).ok().filter(|b| b.is_power_of_two() && (low..=high).contains(b)) {
            Some(bytes) => bytes,
            None => {
                let (low, high) = (ByteSize(low.into()), ByteSize(high.into()));
                let text =
                    format!("{key}: {} is not a power of two between {low} and {high}", ByteSize(bytes));
                self.mistake(&value, text);
                default
            }
        }
    }

    fn count(
        &mut self,
        key: &str,
        value: Opt<u32>,
        default: u32,
        range: core::ops::RangeInclusive<u32>,
    ) -> u32 {
        let Some(value) = value else { return default };
        let number = *value.get_ref();
        if !range.contains(&number) {
            self.mistake(
                &value,
                format!("{key}: {number} is not between {} and {}", range.start(), range.end()),
            );
            return default;
        }
        number
    }

    fn level(&mut self, key: &str, codec: Compression, value: Option<&Spanned<u8>>) -> u8 {
        let (default, max) = match codec {
            Compression::None | Compression::Lz4 => (0, 0),
            Compression::Zlib => (6, 9),
            Compression::Zstd => (1, 19),
        };
        let Some(value) = value else { return default };
        let level = *value.get_ref();
        if max == 0 && level != 0 {
            self.mistake(value, format!("{key}: this codec has no levels"));
        } else if level > max || (max > 0 && level == 0) {
            self.mistake(value, format!("{key}: {level} is not between 1 and {max}"));
        } else {
            return level;
        }
        default
    }

    fn path(&mut self, key: &str, value: &Spanned<PathBuf>) -> PathBuf {
        if value.get_ref().as_os_str().is_empty() {
            self.mistake(value, format!("{key}: the path is empty"));
        }
        value.get_ref().clone()
    }
}

/// Resolves the file. The configuration is good only if there are no mistakes.
pub(crate) fn resolve(file: raw::File) -> (Config, Vec<Found>) {
    let mut checks = Checks { found: Vec::new() };
    let mut paths: Vec<(usize, PathBuf, String)> = Vec::new();
    let cache_start = file.cache.span().start;
    let raw_cache = file.cache.into_inner();
    paths.push((raw_cache.path.span().start, raw_cache.path.get_ref().clone(), "cache.path".to_owned()));
    let cache = cache(&mut checks, raw_cache);
    if cache.weu_bytes / cache.extent_bytes < 4 {
        checks.found.push((cache_start, "cache.extent_size: a WEU must hold at least 4 extents".to_owned()));
    }
    let mut volumes: Vec<VolumeConfig> = Vec::new();
    if file.volume.is_empty() {
        checks
            .found
            .push((cache_start, "volume: there is none; add a [[volume]] with name and origin".to_owned()));
    }
    for raw in file.volume {
        let volume = volume(&mut checks, &cache, raw, &mut paths);
        if volumes.iter().any(|other| other.name == volume.name) {
            let at = paths.last().map_or(0, |(at, ..)| *at);
            checks.found.push((at, format!("volume.name: there are two volumes named \"{}\"", volume.name)));
        }
        volumes.push(volume);
    }
    if volumes.len() > zc_core::usize_from_u32(limits::VOLUMES_MAX.into()) {
        checks.found.push((cache_start, format!("volume: more than {} volumes", limits::VOLUMES_MAX)));
    }
    let nbd = nbd(&mut checks, file.nbd, &mut paths);
    let socket = match &file.control.socket {
        Some(socket) => {
            paths.push((socket.span().start, socket.get_ref().clone(), "control.socket".to_owned()));
            checks.path("control.socket", socket)
        }
        None => PathBuf::from(DEFAULT_CONTROL),
    };
    overlaps(&mut checks, &paths);
    let log = LogConfig { level: file.log.level.unwrap_or_else(|| "info".to_owned()) };
    (Config { cache, volumes, nbd, control: ControlConfig { socket }, log }, checks.found)
}

fn cache(checks: &mut Checks, raw: raw::Cache) -> CacheConfig {
    let compression = raw.compression.unwrap_or(Compression::Lz4);
    let level = checks.level("cache.compression_level", compression, raw.compression_level.as_ref());
    if let Some(journal) = &raw.journal_path {
        let text = "cache.journal_path: a journal outside the cache device is not offered by this version";
        checks.mistake(journal, text.to_owned());
    }
    let mib = |n: u32| n << 20;
    CacheConfig {
        path: checks.path("cache.path", &raw.path),
        size: raw.size.map(Spanned::into_inner),
        state_dir: raw.state_dir.map_or_else(|| PathBuf::from(DEFAULT_STATE_DIR), Spanned::into_inner),
        weu_bytes: checks.power(
            "cache.weu_size",
            raw.weu_size,
            limits::WEU_BYTES_DEFAULT,
            limits::WEU_BYTES_MIN,
            limits::WEU_BYTES_MAX,
        ),
        extent_bytes: checks.power(
            "cache.extent_size",
            raw.extent_size,
            limits::EXTENT_BYTES_DEFAULT,
            limits::EXTENT_BYTES_MIN,
            limits::EXTENT_BYTES_MAX,
        ),
        compression,
        compression_level: level,
        fingerprint: raw.fingerprint.unwrap_or(Fingerprint::Blake3),
        fingerprint_index_percent: raw.fingerprint_index_ratio.unwrap_or(Percent(100)).0,
        dedup: raw.dedup.unwrap_or(true),
        discard: raw.discard.unwrap_or(false),
        direct: raw.direct.unwrap_or(true),
        max_ram_bytes: checks.size("cache.max_ram", raw.max_ram, 1 << 30, 1 << 20..=1 << 44),
        reduce_threads: raw.reduce_threads.map_or(0, |threads| *threads.get_ref()),
        reduce_cpus: cpus(checks, raw.reduce_cpus.as_ref()),
        weu_max_age_ms: raw.weu_max_age.unwrap_or(Millis(10_000)).0,
        prefetch_threshold_bytes: checks.small(
            "cache.prefetch_threshold",
            raw.prefetch_threshold,
            256 << 10,
            mib(1024),
        ),
        prefetch_max_bytes: checks.small("cache.prefetch_max", raw.prefetch_max, 128 << 10, mib(1)),
        read_buffer_bytes: checks.small("cache.read_buffer", raw.read_buffer, mib(4), mib(1024)),
        staging_bytes: checks.small("cache.staging", raw.staging, mib(8), mib(1024)),
        insert_bytes_max: checks.small("cache.insert_max", raw.insert_max, mib(32), mib(2048)),
        regions_active_max: checks.count(
            "cache.regions_active_max",
            raw.regions_active_max,
            limits::ACTIVE_REGIONS_DEFAULT,
            8..=limits::ACTIVE_REGIONS_MAX / 2,
        ),
        region_size: region_size(checks, raw.region_size.as_ref()),
        policy: raw.policy.unwrap_or(Policy::Lru),
    }
}

fn region_size(checks: &mut Checks, value: Option<&Spanned<String>>) -> RegionSize {
    let Some(value) = value else { return RegionSize::Auto };
    if value.get_ref() == "auto" {
        return RegionSize::Auto;
    }
    let bytes = ByteSize::parse(value.get_ref()).map(|size| size.0);
    match bytes.filter(|bytes| bytes.is_power_of_two() && (128 << 10..=1 << 40).contains(bytes)) {
        Some(bytes) => RegionSize::Bytes(bytes),
        None => {
            let text = format!(
                "cache.region_size: \"{}\" is neither \"auto\" nor a power of two between 128 KiB and 1 TiB",
                value.get_ref()
            );
            checks.mistake(value, text);
            RegionSize::Auto
        }
    }
}

/// CPU lists in the form of taskset: `0,2-5`.
fn cpus(checks: &mut Checks, value: Option<&Spanned<String>>) -> Vec<u16> {
    let Some(value) = value else { return Vec::new() };
    let part = |text: &str| -> Option<core::ops::RangeInclusive<u16>> {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        (low <= high && high < 4096).then_some(low..=high)
    };
    let text = value.get_ref();
    let list: Option<Vec<_>> = text.split(',').filter(|part| !part.trim().is_empty()).map(part).collect();
    match list {
        Some(list) => list.into_iter().flatten().collect(),
        None => {
            checks.mistake(
                value,
                format!("cache.reduce_cpus: \"{text}\" is not a list of CPUs such as \"0,2-5\""),
            );
            Vec::new()
        }
    }
}

fn volume(
    checks: &mut Checks,
    cache: &CacheConfig,
    raw: Spanned<raw::Volume>,
    paths: &mut Vec<(usize, PathBuf, String)>,
) -> VolumeConfig {
    let raw = raw.into_inner();
    let name = raw.name.get_ref().clone();
    let printable = name.chars().all(|c| !c.is_control() && c != '/');
    if name.is_empty() || name.len() > limits::VOLUME_NAME_BYTES_MAX || !printable {
        let max = limits::VOLUME_NAME_BYTES_MAX;
        checks.mistake(
            &raw.name,
            format!("volume.name: a name has 1 to {max} bytes, without \"/\" or control characters"),
        );
    }
    paths.push((
        raw.origin.span().start,
        raw.origin.get_ref().clone(),
        format!("origin of volume \"{name}\""),
    ));
    let compression = raw.compression.unwrap_or(cache.compression);
    let inherited = if raw.compression.is_none() { cache.compression_level } else { 0 };
    let level = match &raw.compression_level {
        None if raw.compression.is_none() => inherited,
        level => checks.level("volume.compression_level", compression, level.as_ref()),
    };
    let create = raw.create_size.map(|size| checks.size("volume.create_size", Some(size), 0, 4096..=1 << 50));
    VolumeConfig {
        origin: checks.path("volume.origin", &raw.origin),
        create_bytes: create,
        mode: raw.mode.unwrap_or(Mode::WriteThrough),
        admission: raw.admission.unwrap_or(Admission::Always),
        dedup: raw.dedup.unwrap_or(cache.dedup),
        compression,
        compression_level: level,
        index_share_percent: raw.index_share.unwrap_or(Percent(100)).0,
        direct: raw.direct,
        nbd: VolumeNbd {
            export: raw.nbd.export.unwrap_or(true),
            description: raw.nbd.description.unwrap_or_default(),
            read_only: raw.nbd.read_only.unwrap_or(false),
        },
        name,
    }
}

fn nbd(checks: &mut Checks, raw: raw::Nbd, paths: &mut Vec<(usize, PathBuf, String)>) -> NbdConfig {
    let mut listen = Vec::new();
    match raw.listen {
        None => listen.extend(DEFAULT_LISTEN.parse::<std::net::SocketAddr>()),
        Some(addresses) => {
            for address in addresses {
                match address.get_ref().parse() {
                    Ok(parsed) => listen.push(parsed),
                    Err(_) => {
                        let text =
                            format!("nbd.listen: \"{}\" is not an address and port", address.get_ref());
                        checks.mistake(&address, text);
                    }
                }
            }
        }
    }
    let mut unix = Vec::new();
    for path in raw.unix.unwrap_or_default() {
        paths.push((path.span().start, path.get_ref().clone(), "nbd.unix".to_owned()));
        unix.push(checks.path("nbd.unix", &path));
    }
    NbdConfig {
        listen,
        unix,
        connections_max: checks.count("nbd.connections_max", raw.connections_max, 256, 1..=65_536),
        requests_in_flight_max: checks.count(
            "nbd.requests_in_flight_max",
            raw.requests_in_flight_max,
            128,
            1..=4096,
        ),
        bytes_in_flight_max: checks.size(
            "nbd.bytes_in_flight_max",
            raw.bytes_in_flight_max,
            256 << 20,
            u64::from(limits::REQUEST_BYTES_MAX)..=1 << 40,
        ),
        handshake_timeout_ms: raw.handshake_timeout.unwrap_or(Millis(10_000)).0,
    }
}

/// Two keys that name one file.
fn overlaps(checks: &mut Checks, paths: &[(usize, PathBuf, String)]) {
    let plain = |path: &Path| path.components().collect::<PathBuf>();
    for (index, (at, path, key)) in paths.iter().enumerate() {
        let other = paths.iter().take(index).find(|(_, other, _)| plain(other) == plain(path));
        if let Some((_, _, other)) = other {
            checks.found.push((*at, format!("{key}: {} is used already, as {other}", path.display())));
        }
    }
}
