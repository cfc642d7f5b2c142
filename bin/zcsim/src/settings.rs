//! Settings of a replay that commands share: the model of the SSD, and the configuration with some keys changed.

use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use toml::{Table, Value};
use zc_config::Config;
use zc_replay::Ratios;

/// Page mapping of the SSD model.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Mapping {
    /// Each for itself
    Page,
    /// Blocks as a whole, and log blocks
    Log,
}

impl Mapping {
    /// The model that it stands for.
    pub(crate) fn model(self) -> zc_replay::Ssd {
        match self {
            Self::Page => zc_replay::Ssd::default(),
            Self::Log => zc_replay::Ssd::LogBlocks(zc_replay::Blocks::default()),
        }
    }
}

/// `KEY=VALUE`: a key of the configuration, with its section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) key: String,
    pub(crate) value: String,
}

impl FromStr for Setting {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let Some((key, value)) = text.split_once('=') else {
            bail!("\"{text}\" is no setting: it must be KEY=VALUE")
        };
        Ok(Self { key: key.trim().to_owned(), value: value.trim().to_owned() })
    }
}

/// Compression where a trace lacks it.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct RatioArgs {
    /// Mean compression ratio, if the trace has none; default is 2
    #[arg(long, value_name = "X", value_parser = ratio)]
    ratio_mean: Option<f64>,
    /// Deviation of the ratio, if the trace has none; default is 0.5
    #[arg(long, value_name = "X", value_parser = ratio)]
    ratio_deviation: Option<f64>,
}

/// Mean or deviation of a compression ratio.
pub(crate) fn ratio(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "a ratio is a number, 0 or larger".to_owned())
}

impl RatioArgs {
    pub(crate) fn ratios(self) -> Ratios {
        let usual = Ratios::default();
        Ratios {
            mean: self.ratio_mean.unwrap_or(usual.mean),
            deviation: self.ratio_deviation.unwrap_or(usual.deviation),
        }
    }

    /// Returns `true` if any was given.
    pub(crate) const fn are_given(self) -> bool {
        self.ratio_mean.is_some() || self.ratio_deviation.is_some()
    }
}

/// Parses a value as TOML, otherwise as a string: `5 %` and `lz4` need no quotes.
fn value(text: &str) -> Value {
    let line = format!("value = {text}");
    let parsed = line.parse::<Table>().ok().and_then(|table| table.get("value").cloned());
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Puts a setting in. `volume.KEY` is for every volume.
fn put(table: &mut Table, setting: &Setting) -> anyhow::Result<()> {
    let Some((section, key)) = setting.key.split_once('.') else {
        bail!("\"{}\" is no key: it begins with its section, as in cache.dedup", setting.key);
    };
    if section == "cache" && all_volumes_have(table, key) {
        bail!("cache.{key} changes nothing: every volume sets it itself; volume.{key} is for all of them");
    }
    let empty = || Value::Table(Table::new());
    let mut sections: Vec<&mut Table> = match table.entry(section).or_insert_with(empty) {
        Value::Table(section) => vec![section],
        Value::Array(volumes) => volumes.iter_mut().filter_map(Value::as_table_mut).collect(),
        _ => bail!("\"{section}\" is no section"),
    };
    for section in &mut sections {
        section.insert(key.to_owned(), value(&setting.value));
    }
    Ok(())
}

/// Returns `true` if there are volumes, and each has the key in its own section.
fn all_volumes_have(table: &Table, key: &str) -> bool {
    let volumes = table.get("volume").and_then(Value::as_array);
    let has = |volume: &Value| volume.get(key).is_some();
    volumes.is_some_and(|volumes| !volumes.is_empty() && volumes.iter().all(has))
}

/// Changes some keys of a configuration's text.
pub(crate) fn with_settings(text: &str, file: &str, settings: &[Setting]) -> anyhow::Result<Config> {
    if settings.is_empty() {
        return Ok(Config::parse(text, file)?);
    }
    let mut table: Table = text.parse().with_context(|| file.to_owned())?;
    for setting in settings {
        put(&mut table, setting)?;
    }
    Ok(Config::parse(&toml::to_string(&table)?, &format!("{file} with what was set"))?)
}

/// A configuration's text.
pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    // This also reports mistakes in the file, with their lines.
    Config::load(path)?;
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_core::Mode;
    use zc_core::units::SizeOrShare;

    const TEXT: &str = "[cache]\npath = \"c\"\nstate_dir = \"s\"\nsize = \"1 GiB\"\n\
                        [[volume]]\nname = \"a\"\norigin = \"a\"\n[[volume]]\nname = \"b\"\norigin = \"b\"\n";

    fn set(all: &[&str]) -> anyhow::Result<Config> {
        let settings: Vec<Setting> = all.iter().map(|text| text.parse().unwrap()).collect();
        with_settings(TEXT, "file", &settings)
    }

    #[test]
    fn keys_are_changed_for_all_volumes() {
        let config = set(&["cache.size=5%", "cache.dedup=false", "volume.mode=write-back"]).unwrap();
        assert_eq!(config.cache.size, Some(SizeOrShare::Permyriad(500)));
        assert!(!config.cache.dedup && config.volumes.iter().all(|volume| volume.mode == Mode::WriteBack));
        assert_eq!(set(&[]).unwrap().cache.size, Some(SizeOrShare::Bytes(1 << 30)));
    }

    #[test]
    fn mistakes_are_named() {
        let text = |all: &[&str]| set(all).unwrap_err().to_string();
        assert!(text(&["cache.seize=5%"]).contains("seize"), "{}", text(&["cache.seize=5%"]));
        assert!(text(&["dedup=true"]).contains("begins with its section"));
        "cache.size".parse::<Setting>().unwrap_err();
        let shadowed = text(&["volume.compression=zlib", "cache.compression=none"]);
        assert!(shadowed.contains("volume.compression is for all"), "{shadowed}");
        for text in ["nan", "inf", "-1", "x"] {
            ratio(text).unwrap_err();
        }
        assert_eq!(ratio("0"), Ok(0.0));
    }
}
