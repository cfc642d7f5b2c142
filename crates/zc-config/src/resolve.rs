//! Resolution of the file into the configuration: its sections, and the checks across several of them.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zc_core::limits::VOLUMES_MAX;

use crate::key_lines::{KeyLines, volume_key};
use crate::model::{Config, NbdConfig, Tls, VolumeConfig};
use crate::section::{ParseState, Section, brief, nearest};
use crate::{cache, listening, pins, remote, service, shares, store, volume};

const SECTIONS: [&str; 8] = ["cache", "store", "volume", "nbd", "control", "metrics", "sandbox", "log"];

/// Resolves the file. The configuration is valid only if no mistakes were reported; its key lines are still empty.
pub(crate) fn resolve(file: &DeTable<'_>) -> (Config, ParseState) {
    let mut sheet = ParseState::default();
    for key in file.keys() {
        let (at, name) = (key.span().start, key.get_ref().as_ref());
        if SECTIONS.contains(&name) {
            continue;
        }
        let what = match nearest(name, SECTIONS.into_iter()) {
            Some(known) => format!("there is no such section; did you mean \"{known}\"?"),
            None => format!("there is no such section; there are {}", SECTIONS.join(", ")),
        };
        sheet.mistake(at, format!("{}: {what}", brief(name)));
    }
    if !file.contains_key("cache") {
        sheet.mistake(0, "cache: the section [cache] is missing".to_owned());
    }
    let cache = cache::read(Section::new(&mut sheet, "cache", file.get("cache")));
    let stores = store::stores(&mut sheet, file.get("store"));
    let volumes = volumes(&mut sheet, file.get("volume"), &cache);
    let nbd = service::nbd(Section::new(&mut sheet, "nbd", file.get("nbd")));
    let control = service::control(Section::new(&mut sheet, "control", file.get("control")));
    let metrics = service::metrics(Section::new(&mut sheet, "metrics", file.get("metrics")));
    let sandbox = service::sandbox(Section::new(&mut sheet, "sandbox", file.get("sandbox")));
    let log = service::log(Section::new(&mut sheet, "log", file.get("log")));
    let by_default =
        [("cache.state_dir", cache.state_dir.as_path()), ("control.socket", control.socket.as_path())];
    one_key_per_path(&mut sheet, by_default);
    rules_that_need_tls(&mut sheet, &volumes, &nbd);
    listening::check(&mut sheet);
    shares::check(&mut sheet, &volumes, &cache);
    pins::check(&mut sheet, &volumes, &cache);
    store::known_stores(&mut sheet, &volumes, &stores);
    remote::check(&mut sheet, &volumes, &nbd);
    (
        Config {
            cache,
            stores,
            volumes,
            nbd,
            control,
            metrics,
            sandbox,
            log,
            key_lines: KeyLines::default(),
        },
        sheet,
    )
}

fn volumes(
    sheet: &mut ParseState,
    value: Option<&Spanned<DeValue<'_>>>,
    cache: &crate::CacheConfig,
) -> Vec<VolumeConfig> {
    let Some(value) = value else {
        sheet.mistake(0, "volume: there is none; add a [[volume]] with name and origin".to_owned());
        return Vec::new();
    };
    let at = value.span().start;
    let Some(entries) = value.get_ref().as_array() else {
        sheet.mistake(at, "volume: write [[volume]], in double brackets, once for each volume".to_owned());
        return Vec::new();
    };
    let most = usize::from(VOLUMES_MAX);
    if entries.len() > most {
        sheet.mistake(at, format!("volume: {} volumes are more than {most}", entries.len()));
        return Vec::new();
    }
    let mut volumes: Vec<VolumeConfig> = Vec::with_capacity(entries.len());
    for entry in entries {
        let (at, volume) = volume::read(Section::new(sheet, "volume", Some(entry)), cache);
        if !volume.name.is_empty() && volumes.iter().any(|other| other.name == volume.name) {
            let name = brief(&volume.name);
            sheet.mistake(at, format!("volume.name: there is a volume named \"{name}\" already"));
        }
        volumes.push(volume);
    }
    volumes
}

/// A rule that no client could satisfy would close an export permanently.
fn rules_that_need_tls(sheet: &mut ParseState, volumes: &[VolumeConfig], nbd: &NbdConfig) {
    for volume in volumes {
        let rules = [
            ("nbd.tls", volume.nbd.tls && nbd.tls == Tls::Off, "nbd.tls is \"off\""),
            (
                "nbd.allow_certificates",
                !volume.nbd.allow_certificates.is_empty()
                    && (nbd.tls == Tls::Off || nbd.tls_client_ca.is_none()),
                "it needs nbd.tls and nbd.tls_client_ca",
            ),
        ];
        for (key, broken, why) in rules {
            let name = volume_key(&volume.name, key);
            let at = sheet.key_places.iter().find(|(place, _)| *place == name).map_or(0, |(_, at)| *at);
            if broken {
                sheet.mistake(at, format!("volume.{key}: {why}"));
            }
        }
    }
}

/// Two keys must not refer to one file, or to the default of another key.
fn one_key_per_path(sheet: &mut ParseState, by_default: [(&str, &Path); 2]) {
    let plain = |path: &Path| path.components().collect::<PathBuf>();
    let mut seen = std::collections::BTreeMap::new();
    for (key, path) in by_default {
        if sheet.paths.iter().all(|named| named.key != key) {
            seen.insert(plain(path), format!("{key}, where it is by default"));
        }
    }
    for named in &sheet.paths {
        if let Some(other) = seen.insert(plain(&named.path), named.key.clone()) {
            let path = brief(&named.path.to_string_lossy());
            let text = format!("{}: {path} is used already, as {other}", named.key);
            sheet.found.push(crate::section::SpannedMistake { at: named.at, text });
        }
    }
}
