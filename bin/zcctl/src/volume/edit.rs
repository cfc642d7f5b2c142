//! Edits volumes in the text of a configuration: add, remove, change. Everything else stays as written.
//!
//! Job: edit a text. Invariants: comments, order and spelling of unchanged parts stay. A comment directly above a
//! volume's heading is removed with the volume; one separated by an empty line stays. A new volume is placed after the
//! last one.
//!
//! It is independent of keys. The daemon checks the result.

use anyhow::{Context as _, anyhow, bail};
use toml_edit::{ArrayOfTables, DocumentMut, Item, RawString, Table, TableLike, Value};
use zc_core::units::ByteSize;

/// The array of tables that volumes are.
const VOLUMES: &str = "volume";
/// Keys whose values are always text.
const TEXTS: [&str; 4] = ["name", "origin", "dedup_domain", "nbd.description"];

/// `KEY=VALUE` from a command line: a key such as `mode` or `nbd.export`, and a value in TOML or, if it is none, a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) key: String,
    value: String,
}

impl Setting {
    pub(crate) fn new(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), value: value.to_owned() }
    }

    fn to_toml(&self) -> Value {
        if TEXTS.contains(&self.key.as_str()) && !self.value.starts_with(['"', '\'']) {
            return Value::from(self.value.as_str());
        }
        self.value.trim().parse().unwrap_or_else(|_| Value::from(self.value.as_str()))
    }
}

impl std::str::FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, such as mode=write-back")?;
        let plain = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        };
        let key = key.trim();
        if !key.split('.').all(plain) || key.split('.').count() > 2 {
            return Err(format!("\"{key}\" is not a key: write one such as mode or nbd.export"));
        }
        Ok(Self::new(key, value))
    }
}

/// The text with another volume.
///
/// # Errors
/// If the text is not TOML, has volumes in another form, or already has one of that name.
pub(crate) fn add(text: &str, name: &str, settings: &[Setting]) -> anyhow::Result<String> {
    let mut document = parse(text)?;
    if document.get(VOLUMES).is_none() {
        document.insert(VOLUMES, Item::ArrayOfTables(ArrayOfTables::new()));
    }
    let volumes = volumes(&mut document)?;
    if place_of(volumes, name).is_some() {
        bail!("the configuration has a volume \"{name}\" already; `zcctl volume set` changes it");
    }
    let mut table = Table::new();
    table.decor_mut().set_prefix("\n");
    put(&mut table, &Setting::new("name", name))?;
    for setting in settings {
        put(&mut table, setting)?;
    }
    volumes.push(table);
    Ok(document.to_string())
}

/// The text without a volume.
///
/// # Errors
/// As for [`add`], or if there is no such volume.
pub(crate) fn remove(text: &str, name: &str) -> anyhow::Result<String> {
    let mut document = parse(text)?;
    let volumes = volumes(&mut document)?;
    let place = place_of(volumes, name).ok_or_else(|| missing(name))?;
    let gone = volumes.get(place).context("the volume is there")?;
    let (from, kept) = (gone.position().unwrap_or(isize::MAX), kept_above(&prefix_of(gone)));
    volumes.remove(place);
    if volumes.is_empty() {
        document.remove(VOLUMES);
    }
    if !kept.is_empty() {
        keep_before_next(&mut document, from, &kept);
    }
    Ok(document.to_string())
}

/// The text with other settings of a volume.
///
/// # Errors
/// As of [`remove`].
pub(crate) fn set(text: &str, name: &str, settings: &[Setting]) -> anyhow::Result<String> {
    let mut document = parse(text)?;
    let volumes = volumes(&mut document)?;
    let place = place_of(volumes, name).ok_or_else(|| missing(name))?;
    let table = volumes.get_mut(place).context("the volume is there")?;
    for setting in settings {
        put(table, setting)?;
    }
    Ok(document.to_string())
}

/// A list of texts among the settings of a volume; empty if it is not there.
///
/// # Errors
/// As of [`remove`]; or it is no list of texts.
pub(crate) fn texts(text: &str, name: &str, key: &str) -> anyhow::Result<Vec<String>> {
    let mut document = parse(text)?;
    let volumes = volumes(&mut document)?;
    let place = place_of(volumes, name).ok_or_else(|| missing(name))?;
    let Some(item) = volumes.get(place).and_then(|table| table.get(key)) else { return Ok(Vec::new()) };
    let wrong = || anyhow!("{key} of the volume \"{name}\" is no list of texts");
    let list = item.as_array().ok_or_else(wrong)?;
    list.iter().map(|entry| entry.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

/// Returns the text with the cache on another device of this size. The size is only written if the text has one.
///
/// # Errors
/// The text is no TOML, or has no cache.
pub(crate) fn set_cache(text: &str, path: &str, size_bytes: u64) -> anyhow::Result<String> {
    let mut document = parse(text)?;
    let cache = document.get_mut("cache").and_then(Item::as_table_like_mut);
    let cache = cache.context("the configuration has no cache")?;
    put(cache, &Setting::new("path", path))?;
    if cache.get("size").is_some() {
        put(cache, &Setting::new("size", &ByteSize(size_bytes).to_string()))?;
    }
    Ok(document.to_string())
}

fn missing(name: &str) -> anyhow::Error {
    anyhow!("the configuration has no volume \"{name}\"")
}

fn parse(text: &str) -> anyhow::Result<DocumentMut> {
    text.parse().context("the configuration is not TOML")
}

fn volumes(document: &mut DocumentMut) -> anyhow::Result<&mut ArrayOfTables> {
    let item = document.get_mut(VOLUMES).context("the configuration has no volume")?;
    item.as_array_of_tables_mut().context(
        "the configuration has its volumes in one list; write each under a heading of its own, [[volume]]",
    )
}

fn place_of(volumes: &ArrayOfTables, name: &str) -> Option<usize> {
    volumes.iter().position(|volume| volume.get("name").and_then(Item::as_str) == Some(name))
}

/// Sets a key, which keeps its place and comments if it is there.
fn put(table: &mut dyn TableLike, setting: &Setting) -> anyhow::Result<()> {
    let (table, key) = match setting.key.split_once('.') {
        None => (table, setting.key.as_str()),
        Some((group, key)) => {
            let dotted = || {
                let mut table = Table::new();
                table.set_dotted(true);
                Item::Table(table)
            };
            let group_item = table.entry(group).or_insert_with(dotted);
            let group =
                group_item.as_table_like_mut().with_context(|| format!("{group} is not a group of keys"))?;
            (group, key)
        }
    };
    let mut value = setting.to_toml();
    match table.get_mut(key) {
        Some(Item::Value(old)) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        Some(_) => bail!("{} is not a key with a value", setting.key),
        None => drop(table.insert(key, Item::Value(value))),
    }
    Ok(())
}

fn prefix_of(table: &Table) -> String {
    let prefix = table.decor().prefix().and_then(RawString::as_str);
    prefix.unwrap_or_default().to_owned()
}

/// Returns the lines above a heading that are not its own comment: up to the last empty line.
fn kept_above(prefix: &str) -> String {
    let mut end = 0;
    let mut at = 0;
    for line in prefix.split_inclusive('\n') {
        at += line.len();
        if line.trim().is_empty() {
            end = at;
        }
    }
    let kept = &prefix[..end];
    if kept.trim().is_empty() { String::new() } else { kept.to_owned() }
}

/// Puts comments above the heading that follows a place, or at the end.
fn keep_before_next(document: &mut DocumentMut, from: isize, kept: &str) {
    let mut next: Option<&mut Table> = None;
    for (_, item) in document.iter_mut() {
        let tables: Vec<&mut Table> = match item {
            Item::Table(table) => vec![table],
            Item::ArrayOfTables(tables) => tables.iter_mut().collect(),
            _ => Vec::new(),
        };
        for table in tables {
            let place = table.position().unwrap_or(isize::MAX);
            let before = next.as_ref().and_then(|next| next.position()).unwrap_or(isize::MAX);
            if place > from && (next.is_none() || place < before) {
                next = Some(table);
            }
        }
    }
    match next {
        Some(table) => {
            let below = prefix_of(table);
            let below = below.strip_prefix('\n').unwrap_or(&below);
            table.decor_mut().set_prefix(format!("{kept}{below}"));
        }
        None => {
            let trailing = document.trailing().as_str().unwrap_or_default().to_owned();
            document.set_trailing(format!("{kept}{trailing}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# The machine in the cellar.
[cache]
path = "/srv/cache"   # an SSD

# One [[volume]] per origin.

# The database.
[[volume]]
name = "db"
origin = "/dev/sdb" # the fast one
# Nightly dumps are sequential.
mode = "write-through"
nbd.export = true

[[volume]]
origin = "/dev/sdc"
name = 'vm'
[volume.ublk]
attach = true

# Who may connect.
[nbd]
listen = []
"#;

    fn settings(texts: &[&str]) -> Vec<Setting> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_cache_that_moves_keeps_its_comments_and_a_size_is_that_of_the_new_device() {
        let moved = set_cache(TEXT, "/dev/ssd2", 5 << 30).unwrap();
        assert_eq!(moved, TEXT.replace("/srv/cache", "/dev/ssd2"));
        let sized = TEXT.replace("# an SSD", "# an SSD\nsize = \"1 GiB\" # of two");
        let moved = set_cache(&sized, "/dev/ssd2", 5 << 30).unwrap();
        assert_eq!(moved, sized.replace("/srv/cache", "/dev/ssd2").replace("1 GiB", "5 GiB"));
        assert!(set_cache("[nbd]\n", "/dev/ssd2", 1).unwrap_err().to_string().contains("no cache"));
    }

    /// Lines that one text has and the other lacks, in order.
    fn differ<'t>(one: &'t str, other: &str) -> Vec<&'t str> {
        let mut left: Vec<&str> = other.lines().collect();
        let mut own = Vec::new();
        for line in one.lines() {
            match left.iter().position(|known| *known == line) {
                Some(place) => drop(left.remove(place)),
                None => own.push(line),
            }
        }
        own
    }

    #[test]
    fn a_volume_that_comes_stands_behind_the_last_one_and_nothing_else_changes() {
        let given =
            settings(&["origin=/dev/sdd", "mode=write-back", "nbd.read_only=true", "create_size=10 GiB"]);
        let added = add(TEXT, "new", &given).unwrap();
        let place = TEXT.find("\n# Who may connect.").unwrap();
        let (before, after) = TEXT.split_at(place);
        let volume = "\n[[volume]]\nname = \"new\"\norigin = \"/dev/sdd\"\nmode = \"write-back\"\nnbd.read_only = \
            true\n\
                      create_size = \"10 GiB\"\n";
        assert_eq!(added, format!("{before}{volume}{after}"));
        assert!(add(TEXT, "vm", &given).unwrap_err().to_string().contains("already"));
        assert_eq!(remove(&added, "new").unwrap(), TEXT);
    }

    #[test]
    fn a_volume_goes_with_its_own_comments_and_groups_alone() {
        let gone = remove(TEXT, "vm").unwrap();
        assert_eq!(
            differ(TEXT, &gone).join("|"),
            "[[volume]]|origin = \"/dev/sdc\"|name = 'vm'|[volume.ublk]|attach = true|"
        );
        assert_eq!(differ(&gone, TEXT), [""; 0]);
        let gone = remove(TEXT, "db").unwrap();
        assert!(gone.contains("# One [[volume]] per origin.\n\n[[volume]]\norigin = \"/dev/sdc\""), "{gone}");
        assert!(!gone.contains("database") && !gone.contains("sequential"), "{gone}");
        let none = remove(&gone, "vm").unwrap();
        assert!(none.contains("# One [[volume]] per origin.\n\n# Who may connect.\n[nbd]"), "{none}");
        assert!(remove(TEXT, "x").unwrap_err().to_string().contains("no volume \"x\""));
    }

    #[test]
    fn a_setting_changes_in_its_place_with_its_comment() {
        let given = settings(&[
            "origin=/dev/sde",
            "mode=write-back",
            "nbd.export=false",
            "nbd.allow=[\"192.0.2.1\"]",
        ]);
        let set = set(TEXT, "db", &given).unwrap();
        assert_eq!(
            differ(&set, TEXT),
            [
                "origin = \"/dev/sde\" # the fast one",
                "mode = \"write-back\"",
                "nbd.export = false",
                "nbd.allow = [\"192.0.2.1\"]"
            ]
        );
        let grouped =
            super::set(TEXT, "vm", &settings(&["ublk.attach=false", "ublk.queues=4", "dedup=false"]))
                .unwrap();
        assert!(
            grouped.contains("name = 'vm'\ndedup = false\n[volume.ublk]\nattach = false\nqueues = 4\n"),
            "{grouped}"
        );
    }

    #[test]
    fn a_list_of_texts_is_read() {
        let pins = set(TEXT, "db", &settings(&["pin=[\"0-8 KiB\", \"1 GiB-\"]"])).unwrap();
        assert_eq!(texts(&pins, "db", "pin").unwrap(), ["0-8 KiB", "1 GiB-"]);
        assert_eq!(texts(&pins, "vm", "pin").unwrap(), [""; 0]);
        assert!(texts(&pins, "db", "mode").unwrap_err().to_string().contains("no list"));
        texts(&pins, "x", "pin").unwrap_err();
    }

    #[test]
    fn values_are_toml_or_text() {
        let shown = |text: &str| text.parse::<Setting>().unwrap().to_toml().to_string();
        for (given, toml) in [
            ("ublk.queues=4", "4"),
            ("dedup=true", "true"),
            ("mode=write-back", "\"write-back\""),
            ("max_dirty_age=30 s", "\"30 s\""),
            ("index_share=\"50 %\"", "\"50 %\""),
            ("nbd.description=2024", "\"2024\""),
            ("origin=C=1", "\"C=1\""),
            ("nbd.description=a \"b\"", "'a \"b\"'"),
        ] {
            assert_eq!(shown(given), toml, "{given}");
        }
        for wrong in ["mode", "=x", "a.b.c=1", "a b=1", ".a=1"] {
            wrong.parse::<Setting>().unwrap_err();
        }
    }

    #[test]
    fn other_forms_of_volumes_are_refused() {
        let list = "[cache]\npath = \"/c\"\n";
        assert!(remove(list, "a").unwrap_err().to_string().contains("no volume"));
        assert!(add(list, "a", &[]).unwrap().ends_with("\n[[volume]]\nname = \"a\"\n"));
        let list = "volume = [{ name = \"a\", origin = \"/a\" }]\n";
        assert!(add(list, "b", &[]).unwrap_err().to_string().contains("[[volume]]"));
        add("[cache", "b", &[]).unwrap_err();
    }
}
