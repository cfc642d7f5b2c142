//! The sections `[[volume]]`.

use std::path::PathBuf;

use zc_core::limits::{PINS_MAX, VOLUME_NAME_BYTES_MAX};
use zc_core::units::{ByteSize, SizeOrShare};
use zc_core::{Ack, Destage, Mode, Priority};
use zc_nbd::uri::NbdUri;

use crate::cache::level;
use crate::key_lines::volume_key;
use crate::limits;
use crate::model::{
    Admission, CacheConfig, Compression, OnCacheLoss, OriginReach, StoreOrigin, UblkCopy, VolumeConfig,
    VolumeLimits, VolumeNbd, VolumeUblk,
};
use crate::section::{Located, ParseState, Section, brief};

/// Parses a volume; returns the position of its name as well.
pub(crate) fn read(mut section: Section<'_, '_>, cache: &CacheConfig) -> (usize, VolumeConfig) {
    let name = name(&mut section);
    section.prefix = volume_key(&name.value, "");
    let compression = section.word("compression", Compression::WORDS, cache.compression);
    let inherited = (compression == cache.compression).then_some(cache.compression_level);
    let Origin { text: origin, in_store, remote } = origin(&mut section);
    let create_bytes = create_bytes(&mut section, in_store.is_some());
    let origin_tls = crate::remote::tls(&mut section, remote.as_ref().is_some_and(|uri| uri.tls));
    let is_remote = remote.is_some();
    let reach = reach(&mut section, is_remote);
    if remote.is_some() {
        for key in ["create_size", "direct"] {
            if let Some(at) = section.get(key).map(|value| value.span().start) {
                section.mistake(
                    at,
                    key,
                    "it is for files and block devices, and the origin is an NBD export",
                );
            }
        }
    }
    let config = VolumeConfig {
        name: name.value,
        origin,
        in_store,
        remote,
        origin_tls,
        connections: connections(&mut section, is_remote),
        reach,
        create_bytes,
        mode: section.word("mode", Mode::WORDS, Mode::WriteThrough),
        ack: section.optional_word("ack", Ack::WORDS),
        max_dirty_age_ms: section.duration("max_dirty_age", 30_000, &limits::DIRTY_AGE_MS),
        destage: section.word("destage", Destage::WORDS, Destage::Epoch),
        destage_window: section.windows("destage_window").unwrap_or_else(|| cache.destage_window.clone()),
        on_cache_loss: section.word("on_cache_loss", OnCacheLoss::WORDS, OnCacheLoss::Error),
        full_wait_ms: section.duration("full_wait", 10_000, &limits::FULL_WAIT_MS),
        admission: section.word("admission", Admission::WORDS, Admission::Always),
        sequential_cutoff_bytes: section.size("sequential_cutoff", &limits::SEQUENTIAL_CUTOFF).unwrap_or(0),
        quota: share_of_cache(&mut section, "quota"),
        reserve: share_of_cache(&mut section, "reserve"),
        priority: section.word("priority", Priority::WORDS, Priority::Normal),
        pins: section.spans("pin", PINS_MAX),
        dedup: section.flag("dedup").unwrap_or(cache.dedup),
        dedup_domain: domain(&mut section),
        compression,
        compression_level: level(&mut section, compression, inherited),
        index_share_percent: section.percent("index_share", 100),
        direct: section.flag("direct"),
        nbd: export(&mut section),
        ublk: device(&mut section),
        limits: rates(&mut section),
    };
    section.finish();
    (name.at, config)
}

fn name(section: &mut Section<'_, '_>) -> Located<String> {
    section.required("name", "every volume has one");
    let Some(name) = section.text("name") else { return Located { at: section.at, value: String::new() } };
    let plain = name.value.chars().all(|c| !c.is_control() && !matches!(c, '/' | '"'));
    if name.value.is_empty() || name.value.len() > VOLUME_NAME_BYTES_MAX || !plain {
        let what = format!(
            "a name has 1 to {VOLUME_NAME_BYTES_MAX} bytes, without slashes, quotes and control characters"
        );
        section.mistake(name.at, "name", what);
        return Located { at: name.at, value: String::new() };
    }
    name
}

/// Text of an origin, and its meaning if it is not a path.
#[derive(Default)]
struct Origin {
    text: PathBuf,
    in_store: Option<StoreOrigin>,
    remote: Option<NbdUri>,
}

/// Parses a path, a volume of a store, or an NBD export.
fn origin(section: &mut Section<'_, '_>) -> Origin {
    const SCHEMES: [&str; 4] = ["nbd:", "nbds:", "nbd+unix:", "nbds+unix:"];
    let is_uri = |text: &str| SCHEMES.iter().any(|scheme| text.starts_with(scheme));
    if let Some(value) = section.get("origin")
        && let Some(text) = value.get_ref().as_str().filter(|text| is_uri(text))
    {
        return remote_origin(section, value.span().start, text);
    }
    let path = section.required_path("origin", "it names the file or block device behind the volume");
    let in_store = match StoreOrigin::parse(&path) {
        None => None,
        Some(Ok(in_store)) => Some(in_store),
        Some(Err(what)) => {
            let at = section.get("origin").map_or(section.at, |value| value.span().start);
            section.mistake(at, "origin", what);
            None
        }
    };
    Origin { text: path, in_store, remote: None }
}

fn remote_origin(section: &mut Section<'_, '_>, at: usize, text: &str) -> Origin {
    match text.parse::<NbdUri>() {
        Ok(uri) => Origin { text: uri.to_string().into(), in_store: None, remote: Some(uri) },
        Err(error) => {
            section.mistake(at, "origin", error);
            Origin::default()
        }
    }
}

fn reach(section: &mut Section<'_, '_>, is_remote: bool) -> OriginReach {
    if let Some(at) = section.get("origin_deadline").filter(|_| is_remote).map(|value| value.span().start) {
        let what = "it is for files, block devices and volumes of stores; for an NBD export it is 10 s";
        section.mistake(at, "origin_deadline", what);
    }
    let deadline_ms =
        section.duration("origin_deadline", limits::ORIGIN_DEADLINE_DEFAULT_MS, &limits::ORIGIN_DEADLINE_MS);
    let is_set = section.get("outage_max").is_some();
    let outage_max_ms = is_set.then(|| section.duration("outage_max", 0, &limits::OUTAGE_MS));
    OriginReach { deadline_ms, outage_max_ms }
}

fn connections(section: &mut Section<'_, '_>, is_remote: bool) -> u32 {
    if let Some(at) = section.get("connections").filter(|_| !is_remote).map(|value| value.span().start) {
        section.mistake(at, "connections", "it is for origins that are NBD exports");
    }
    section.count("connections", limits::CONNECTIONS_DEFAULT, &limits::ORIGIN_CONNECTIONS)
}

fn domain(section: &mut Section<'_, '_>) -> String {
    let Some(name) = section.text("dedup_domain") else { return String::new() };
    let most = limits::DOMAIN_NAME_BYTES_MAX;
    if name.value.len() > most || name.value.chars().any(char::is_control) {
        let what = format!("a domain has a name of at most {most} bytes, without control characters");
        section.mistake(name.at, "dedup_domain", what);
        return String::new();
    }
    name.value
}

fn create_bytes(section: &mut Section<'_, '_>, is_in_store: bool) -> Option<u64> {
    let bytes = section.size("create_size", &limits::ORIGIN_BYTES)?;
    let at = section.get("create_size").map_or(section.at, |value| value.span().start);
    if is_in_store && bytes > limits::STORE_ORIGIN_BYTES_MAX {
        let (size, most) = (ByteSize(bytes), limits::STORE_ORIGIN_BYTES_MAX);
        let what = format_args!(
            "{size} is more than a volume of a store can have, which is {most} bytes ({} TiB)",
            most >> 40
        );
        section.mistake(at, "create_size", what);
        return None;
    }
    if !bytes.is_multiple_of(u64::from(zc_core::SECTOR_BYTES)) {
        section.mistake(at, "create_size", format_args!("{bytes} bytes are not whole sectors of 512"));
        return None;
    }
    Some(bytes)
}

fn export(volume: &mut Section<'_, '_>) -> VolumeNbd {
    let value = volume.get("nbd");
    let prefix = format!("{}nbd.", volume.prefix);
    let sheet: &mut ParseState = volume.sheet;
    let mut section = Section::new(sheet, "volume.nbd", value);
    section.prefix = prefix;
    let config = VolumeNbd {
        export: section.flag("export").unwrap_or(true),
        description: description(&mut section),
        read_only: section.flag("read_only").unwrap_or(false),
        allow: section.ranges("allow"),
        tls: section.flag("tls").unwrap_or(false),
        allow_certificates: names(&mut section),
    };
    section.finish();
    config
}

fn device(volume: &mut Section<'_, '_>) -> VolumeUblk {
    let value = volume.get("ublk");
    let prefix = format!("{}ublk.", volume.prefix);
    let sheet: &mut ParseState = volume.sheet;
    let mut section = Section::new(sheet, "volume.ublk", value);
    section.prefix = prefix;
    let count = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
    let config = VolumeUblk {
        attach: section.flag("attach").unwrap_or(false),
        queues: count(section.count("queues", 1, &limits::UBLK_QUEUES)),
        queue_depth: count(section.count("queue_depth", 128, &limits::UBLK_DEPTH)),
        request_bytes_max: section.size_u32("request_max", 512 << 10, &limits::UBLK_REQUEST_BYTES),
        copy: section.word("copy", UblkCopy::WORDS, UblkCopy::Auto),
    };
    let complaint = |section: &mut Section<'_, '_>, key: &'static str, what: String| {
        let at = section.get(key).map_or(section.at, |value| value.span().start);
        section.mistake(at, key, what);
    };
    let (tags, most) =
        (u32::from(config.queues) * u32::from(config.queue_depth), zc_core::limits::UBLK_TAGS_MAX);
    if tags > most {
        let what =
            format!("{} queues of {} requests are more than {most}", config.queues, config.queue_depth);
        complaint(&mut section, "queue_depth", what);
    }
    if !config.request_bytes_max.is_multiple_of(zc_core::limits::BLOCK_BYTES) {
        let what = format!("{} bytes are not whole pages of 4 KiB", config.request_bytes_max);
        complaint(&mut section, "request_max", what);
    }
    section.finish();
    config
}

fn rates(volume: &mut Section<'_, '_>) -> VolumeLimits {
    let value = volume.get("limits");
    let prefix = format!("{}limits.", volume.prefix);
    let sheet: &mut ParseState = volume.sheet;
    let mut section = Section::new(sheet, "volume.limits", value);
    section.prefix = prefix;
    let limits = VolumeLimits {
        iops: section.count("iops", 0, &limits::IOPS),
        read_iops: section.count("read_iops", 0, &limits::IOPS),
        write_iops: section.count("write_iops", 0, &limits::IOPS),
        iops_burst: section.optional_count("iops_burst", &limits::IOPS_BURST),
        bytes_per_s: bytes_per_s(&mut section, "bytes_per_s"),
        read_bytes_per_s: bytes_per_s(&mut section, "read_bytes_per_s"),
        write_bytes_per_s: bytes_per_s(&mut section, "write_bytes_per_s"),
        bytes_burst: section.size("bytes_burst", &limits::BYTES_BURST),
        origin_iops: section.count("origin_iops", 0, &limits::IOPS),
        origin_bytes_per_s: bytes_per_s(&mut section, "origin_bytes_per_s"),
    };
    section.finish();
    limits
}

/// Returns no bytes if the key is absent.
fn share_of_cache(section: &mut Section<'_, '_>, key: &'static str) -> SizeOrShare {
    let none = SizeOrShare::Bytes(0);
    let size = section.size_or_share(key, &limits::CACHE_SHARE).unwrap_or(none);
    if let SizeOrShare::Bytes(bytes @ 1..limits::CACHE_SHARE_MIN) = size {
        let at = section.get(key).map_or(section.at, |value| value.span().start);
        let (bytes, least) = (ByteSize(bytes), ByteSize(limits::CACHE_SHARE_MIN));
        section.mistake(
            at,
            key,
            format_args!("{bytes} is less than {least}, two small units; \"0 B\" is none"),
        );
        return none;
    }
    size
}

fn bytes_per_s(section: &mut Section<'_, '_>, key: &'static str) -> u64 {
    let bytes = section.size(key, &limits::BYTES_PER_S).unwrap_or(0);
    if (1..limits::BYTES_PER_S_MIN).contains(&bytes) {
        let at = section.get(key).map_or(section.at, |value| value.span().start);
        let (bytes, least) = (ByteSize(bytes), ByteSize(limits::BYTES_PER_S_MIN));
        section.mistake(at, key, format_args!("{bytes} is less than {least}; 0 is no limit"));
        return 0;
    }
    bytes
}

/// Parses DNS names as in certificates.
fn names(section: &mut Section<'_, '_>) -> Vec<String> {
    let mut names = Vec::new();
    for entry in section.list("allow_certificates", limits::ALLOWED_MAX).unwrap_or_default() {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if entry.value.is_empty() || !entry.value.chars().all(plain) {
            let what = format_args!("\"{}\" is not a DNS name", brief(&entry.value));
            section.mistake(entry.at, "allow_certificates", what);
        } else {
            names.push(entry.value);
        }
    }
    names
}

fn description(section: &mut Section<'_, '_>) -> String {
    let Some(text) = section.text("description") else { return String::new() };
    let most = limits::DESCRIPTION_BYTES_MAX;
    if text.value.len() > most {
        section.mistake(text.at, "description", format_args!("more than {most} bytes"));
        return String::new();
    }
    text.value
}
