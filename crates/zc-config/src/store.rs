//! The sections `[[store]]`, and origins that are volumes of a store.

use std::path::Path;

use toml::Spanned;
use toml::de::DeValue;

use crate::key_lines::{store_key, volume_key};
use crate::limits;
use crate::model::{StoreConfig, StoreOrigin, VolumeConfig};
use crate::section::{Located, ParseState, Section, brief};

/// Prefix of an origin that is a volume of a store.
const SCHEME: &str = "store:";

impl StoreOrigin {
    /// Parses `store:STORE/VOLUME` or `store:STORE/VOLUME@SNAPSHOT`. Returns `None` for a path; an error if only the
    /// prefix matches.
    pub(crate) fn parse(origin: &Path) -> Option<Result<Self, String>> {
        let rest = origin.to_str()?.strip_prefix(SCHEME)?;
        let parts = rest.split_once('/').filter(|(store, volume)| !store.is_empty() && !volume.is_empty());
        Some(match parts {
            Some((store, volume)) => Ok(Self { store: store.to_owned(), volume: volume.to_owned() }),
            None => Err(format!("\"{SCHEME}{}\" is not {SCHEME}STORE/VOLUME", brief(rest))),
        })
    }
}

pub(crate) fn stores(sheet: &mut ParseState, value: Option<&Spanned<DeValue<'_>>>) -> Vec<StoreConfig> {
    let Some(value) = value else { return Vec::new() };
    let at = value.span().start;
    let Some(entries) = value.get_ref().as_array() else {
        sheet.mistake(at, "store: write [[store]], in double brackets, once for each store".to_owned());
        return Vec::new();
    };
    if entries.len() > limits::STORES_MAX {
        sheet.mistake(at, format!("store: {} stores are more than {}", entries.len(), limits::STORES_MAX));
        return Vec::new();
    }
    let mut stores: Vec<StoreConfig> = Vec::with_capacity(entries.len());
    for entry in entries {
        let (at, store) = read(Section::new(sheet, "store", Some(entry)));
        if !store.name.is_empty() && stores.iter().any(|other| other.name == store.name) {
            let name = brief(&store.name);
            sheet.mistake(at, format!("store.name: there is a store named \"{name}\" already"));
        }
        stores.push(store);
    }
    stores
}

fn read(mut section: Section<'_, '_>) -> (usize, StoreConfig) {
    let name = name(&mut section);
    section.prefix = store_key(&name.value, "");
    let config = StoreConfig {
        name: name.value,
        path: section.required_path("path", "it names the file or block device of the store"),
        direct: section.flag("direct"),
        page_cache_bytes: section.size("page_cache", &limits::PAGE_CACHE_BYTES).unwrap_or(64 << 20),
        fingerprint_index_bytes: section
            .size("fingerprint_index", &limits::FINGERPRINT_INDEX_BYTES)
            .unwrap_or(32 << 20),
        workers: section.count("workers", 0, &limits::REDUCE_THREADS),
        clean_below_percent: section.percent_in("clean_below", 15, &limits::CLEAN_PERCENT),
        clean_until_percent: section.percent_in("clean_until", 20, &limits::CLEAN_PERCENT),
        clean_bytes_per_s: section.size("clean_rate", &limits::CLEAN_RATE).unwrap_or(64 << 20),
        gather: section.flag("gather").unwrap_or(false),
        discard: section.flag("discard").unwrap_or(true),
    };
    if config.clean_until_percent < config.clean_below_percent {
        let at = section.get("clean_until").map_or(section.at, |value| value.span().start);
        let what = "is below clean_below; the cleaner would end before it begins";
        section.mistake(at, "clean_until", what);
    }
    section.finish();
    (name.at, config)
}

fn name(section: &mut Section<'_, '_>) -> Located<String> {
    section.required("name", "volumes name the store by it");
    let Some(name) = section.text("name") else { return Located { at: section.at, value: String::new() } };
    let plain = name.value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if name.value.is_empty() || name.value.len() > limits::STORE_NAME_BYTES_MAX || !plain {
        let most = limits::STORE_NAME_BYTES_MAX;
        let what = format!("a name has 1 to {most} bytes of letters, digits, '.', '_' and '-'");
        section.mistake(name.at, "name", what);
        return Located { at: name.at, value: String::new() };
    }
    name
}

/// Checks that origins name existing stores.
pub(crate) fn known_stores(sheet: &mut ParseState, volumes: &[VolumeConfig], stores: &[StoreConfig]) {
    for volume in volumes {
        let Some(origin) = &volume.in_store else { continue };
        if stores.iter().any(|store| store.name == origin.store) {
            continue;
        }
        let key = volume_key(&volume.name, "origin");
        let at = sheet.key_places.iter().find(|(place, _)| *place == key).map_or(0, |(_, at)| *at);
        let store = brief(&origin.store);
        sheet.mistake(
            at,
            format!("volume.origin: there is no store \"{store}\"; add a [[store]] with that name"),
        );
    }
}
