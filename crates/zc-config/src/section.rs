//! Parser of one section of the file, key by key.
//!
//! Job: give every value its type, bounds and position, and turn an invalid value into a mistake that names the key.
//! Parsing continues after a mistake with the default, so that one run finds all mistakes. A key that was never
//! requested is a mistake.
//!
//! It does not define the keys (`cache.rs`, `volume.rs`, `service.rs` do).

use core::fmt::Display;
use core::ops::RangeInclusive;
use std::net::SocketAddr;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zc_core::units::{ByteSize, ByteSpan, Micros, Millis, Percent, SizeOrShare};

use crate::address::AddressRange;
use crate::limits;
use crate::window::DestageWindow;

/// Mistake, with its byte position in the text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SpannedMistake {
    pub(crate) at: usize,
    pub(crate) text: String,
}

/// Value with its byte position in the text.
#[derive(Debug, Clone)]
pub(crate) struct Located<T> {
    pub(crate) at: usize,
    pub(crate) value: T,
}

#[derive(Debug)]
pub(crate) struct NamedPath {
    pub(crate) at: usize,
    pub(crate) key: String,
    pub(crate) path: PathBuf,
}

/// Listening address and its key.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) at: usize,
    pub(crate) key: &'static str,
    pub(crate) address: SocketAddr,
}

/// State collected during parsing.
#[derive(Debug, Default)]
pub(crate) struct ParseState {
    pub(crate) found: Vec<SpannedMistake>,
    /// Keys that were requested, by section.
    pub(crate) asked: Vec<(&'static str, &'static str)>,
    pub(crate) key_places: Vec<(String, usize)>,
    pub(crate) paths: Vec<NamedPath>,
    /// All listening addresses, in parsing order.
    pub(crate) listening: Vec<Listening>,
}

impl ParseState {
    pub(crate) fn mistake(&mut self, at: usize, text: String) {
        self.found.push(SpannedMistake { at, text });
    }
}

/// A table of the file.
pub(crate) struct Section<'t, 's> {
    pub(crate) sheet: &'s mut ParseState,
    /// Name of the section in messages: `cache`, `volume`.
    name: &'static str,
    /// Prefix of keys in [`crate::KeyLines`]: `cache.`, `volume "db": `.
    pub(crate) prefix: String,
    pub(crate) at: usize,
    table: Option<&'t DeTable<'t>>,
}

impl<'t, 's> Section<'t, 's> {
    /// Opens the section; `None` for one that the file does not have.
    pub(crate) fn new(
        sheet: &'s mut ParseState,
        name: &'static str,
        value: Option<&'t Spanned<DeValue<'t>>>,
    ) -> Self {
        let (at, table) = value.map_or((0, None), |value| (value.span().start, value.get_ref().as_table()));
        if value.is_some() && table.is_none() {
            sheet.mistake(at, format!("{name}: this is a section, not a value; write [{name}]"));
        }
        Self { sheet, name, prefix: format!("{name}."), at, table }
    }

    /// Reports a mistake in the value of `key`.
    pub(crate) fn mistake(&mut self, at: usize, key: &str, what: impl Display) {
        self.sheet.mistake(at, format!("{}.{key}: {what}", self.name));
    }

    /// Returns the raw value of `key`.
    pub(crate) fn get(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        if !self.sheet.asked.contains(&(self.name, key)) {
            self.sheet.asked.push((self.name, key));
        }
        let value = self.table?.get(key)?;
        self.sheet.key_places.push((format!("{}{key}", self.prefix), value.span().start));
        Some(value)
    }

    /// Parses the value of `key`; reports a mistake with the expectation if `read` returns `None`.
    fn read<T>(
        &mut self,
        key: &'static str,
        expected: impl Display,
        read: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Option<Located<T>> {
        let value = self.get(key)?;
        self.convert(key, value, expected, read)
    }

    fn convert<T>(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        expected: impl Display,
        read: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Option<Located<T>> {
        let at = value.span().start;
        let read = read(value.get_ref());
        if read.is_none() {
            self.mistake(at, key, format_args!("{} is not {expected}", shown(value.get_ref())));
        }
        read.map(|value| Located { at, value })
    }

    /// `true` or `false`.
    pub(crate) fn flag(&mut self, key: &'static str) -> Option<bool> {
        self.read(key, "true or false", |value| value.as_bool()).map(|flag| flag.value)
    }

    pub(crate) fn text(&mut self, key: &'static str) -> Option<Located<String>> {
        self.read(key, "a string in quotes", |value| value.as_str().map(str::to_owned))
    }

    pub(crate) fn word<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)], default: T) -> T {
        let Some(value) = self.get(key) else { return default };
        let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
        let known = |value: &DeValue<'_>| words.iter().find(|(name, _)| value.as_str() == Some(*name));
        let expected =
            if let [only] = *names { only.to_owned() } else { format!("one of {}", names.join(", ")) };
        self.convert(key, value, expected, known).map_or(default, |word| word.value.1)
    }

    /// Parses one of the words, if present.
    pub(crate) fn optional_word<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let (_, first) = words.first()?;
        let first = *first;
        self.get(key)?;
        Some(self.word(key, words, first))
    }

    /// A whole number in `range`.
    pub(crate) fn count(&mut self, key: &'static str, default: u32, range: &RangeInclusive<u32>) -> u32 {
        let Some(number) = self.read(key, "a whole number", whole) else { return default };
        let Some(fits) = u32::try_from(number.value).ok().filter(|number| range.contains(number)) else {
            let (low, high) = range.clone().into_inner();
            self.mistake(number.at, key, format_args!("{} is not between {low} and {high}", number.value));
            return default;
        };
        fits
    }

    /// Parses a whole number, if present.
    pub(crate) fn optional_count(&mut self, key: &'static str, range: &RangeInclusive<u32>) -> Option<u32> {
        self.get(key).is_some().then(|| self.count(key, *range.start(), range))
    }

    /// Parses a size, if present.
    pub(crate) fn size(&mut self, key: &'static str, range: &RangeInclusive<u64>) -> Option<u64> {
        let size = self.read(key, ByteSize::EXPECTED, byte_size)?;
        self.in_range(key, size.at, ByteSize(size.value), &ByteSize(*range.start()), &ByteSize(*range.end()))
            .map(|size| size.0)
    }

    /// A size with a default, of at most 4 GiB.
    pub(crate) fn size_u32(&mut self, key: &'static str, default: u32, range: &RangeInclusive<u64>) -> u32 {
        self.size(key, range).and_then(|size| u32::try_from(size).ok()).unwrap_or(default)
    }

    pub(crate) fn power_of_two(
        &mut self,
        key: &'static str,
        default: u32,
        low: u32,
        high: u32,
    ) -> Located<u32> {
        let default = Located { at: self.at, value: default };
        let Some(size) = self.read(key, ByteSize::EXPECTED, byte_size) else { return default };
        let fits = u32::try_from(size.value).ok();
        let Some(value) = fits.filter(|bytes| bytes.is_power_of_two() && (low..=high).contains(bytes)) else {
            let (bytes, low, high) = (ByteSize(size.value), ByteSize(low.into()), ByteSize(high.into()));
            self.mistake(
                size.at,
                key,
                format_args!("{bytes} is not a power of two between {low} and {high}"),
            );
            return default;
        };
        Located { at: size.at, value }
    }

    /// A size, or a share from 0.01 % to 100 %.
    pub(crate) fn size_or_share(
        &mut self,
        key: &'static str,
        range: &RangeInclusive<u64>,
    ) -> Option<SizeOrShare> {
        let size = self.read(key, SizeOrShare::EXPECTED, |value| match value {
            DeValue::String(text) => text.parse().ok(),
            other => whole(other).map(SizeOrShare::Bytes),
        })?;
        match size.value {
            SizeOrShare::Bytes(bytes) => {
                let (low, high) = (ByteSize(*range.start()), ByteSize(*range.end()));
                self.in_range(key, size.at, ByteSize(bytes), &low, &high)?;
            }
            SizeOrShare::Permyriad(share) if !(1..=10_000).contains(&share) => {
                self.mistake(size.at, key, format_args!("{} is not between 0.01 % and 100 %", size.value));
                return None;
            }
            SizeOrShare::Permyriad(_) => {}
        }
        Some(size.value)
    }

    /// A share from 0 % to 100 %.
    pub(crate) fn percent(&mut self, key: &'static str, default: u8) -> u8 {
        let share = self.read(key, Percent::EXPECTED, |value| match value {
            DeValue::String(text) => text.parse().ok(),
            other => whole(other).and_then(Percent::new),
        });
        share.map_or(default, |share| share.value.0)
    }

    /// A share in `range`.
    pub(crate) fn percent_in(&mut self, key: &'static str, default: u8, range: &RangeInclusive<u8>) -> u8 {
        let share = self.percent(key, default);
        if range.contains(&share) {
            return share;
        }
        let at = self.get(key).map_or(self.at, |value| value.span().start);
        let (low, high) = (Percent(*range.start()), Percent(*range.end()));
        self.mistake(at, key, format_args!("{} is not between {low} and {high}", Percent(share)));
        default
    }

    pub(crate) fn duration(&mut self, key: &'static str, default: u64, range: &RangeInclusive<u64>) -> u64 {
        let Some(time) = self.read(key, Millis::EXPECTED, |value| value.as_str()?.parse::<Millis>().ok())
        else {
            return default;
        };
        let (low, high) = (Millis(*range.start()), Millis(*range.end()));
        self.in_range(key, time.at, time.value, &low, &high).map_or(default, |time| time.0)
    }

    pub(crate) fn short_duration(
        &mut self,
        key: &'static str,
        default: u32,
        range: &RangeInclusive<u32>,
    ) -> u32 {
        let Some(time) = self.read(key, Micros::EXPECTED, |value| value.as_str()?.parse::<Micros>().ok())
        else {
            return default;
        };
        let (low, high) = (Micros((*range.start()).into()), Micros((*range.end()).into()));
        let time = self.in_range(key, time.at, time.value, &low, &high);
        time.and_then(|time| u32::try_from(time.0).ok()).unwrap_or(default)
    }

    fn in_range<T: PartialOrd + Display>(
        &mut self,
        key: &str,
        at: usize,
        value: T,
        low: &T,
        high: &T,
    ) -> Option<T> {
        if (low..=high).contains(&&value) {
            return Some(value);
        }
        self.mistake(at, key, format_args!("{value} is not between {low} and {high}"));
        None
    }

    /// Parses a non-empty path, and records it among the files of the configuration.
    pub(crate) fn path(&mut self, key: &'static str) -> Option<Located<PathBuf>> {
        let path = self.text(key)?;
        self.checked_path(key, path)
    }

    /// Parses the mandatory path of `key`.
    pub(crate) fn required_path(&mut self, key: &'static str, what: &str) -> PathBuf {
        self.required(key, what);
        self.path(key).map_or_else(PathBuf::new, |path| path.value)
    }

    /// Reports a mistake if `key` is missing.
    pub(crate) fn required(&mut self, key: &'static str, what: &str) {
        let missing = self.table.is_none_or(|table| !table.contains_key(key));
        // A malformed section was reported when it was opened.
        if missing && self.table.is_some() {
            self.mistake(self.at, key, format_args!("it is missing; {what}"));
        }
    }

    fn checked_path(&mut self, key: &str, path: Located<String>) -> Option<Located<PathBuf>> {
        if path.value.is_empty() || path.value.contains('\0') {
            self.mistake(path.at, key, "the path is empty or has a zero byte");
            return None;
        }
        let value = PathBuf::from(path.value);
        let key = format!("{}{key}", self.prefix);
        self.sheet.paths.push(NamedPath { at: path.at, key, path: value.clone() });
        Some(Located { at: path.at, value })
    }

    /// A list of strings of at most `most` entries.
    pub(crate) fn list(&mut self, key: &'static str, most: usize) -> Option<Vec<Located<String>>> {
        let value = self.get(key)?;
        let Some(entries) = value.get_ref().as_array() else {
            let what = format!("{} is not a list in brackets", shown(value.get_ref()));
            self.mistake(value.span().start, key, what);
            return None;
        };
        if entries.len() > most {
            self.mistake(value.span().start, key, format_args!("more than {most} entries"));
            return None;
        }
        let text = |value: &DeValue<'_>| value.as_str().map(str::to_owned);
        Some(
            entries.iter().filter_map(|entry| self.convert(key, entry, "a string in quotes", text)).collect(),
        )
    }

    pub(crate) fn ranges(&mut self, key: &'static str) -> Vec<AddressRange> {
        let mut ranges = Vec::new();
        for entry in self.list(key, limits::ALLOWED_MAX).unwrap_or_default() {
            match entry.value.parse() {
                Ok(range) => ranges.push(range),
                Err(error) => {
                    self.mistake(entry.at, key, format_args!("\"{}\" is {error}", brief(&entry.value)));
                }
            }
        }
        ranges
    }

    /// A list of times of day.
    pub(crate) fn windows(&mut self, key: &'static str) -> Option<Vec<DestageWindow>> {
        let mut windows = Vec::new();
        for entry in self.list(key, limits::WINDOWS_MAX)? {
            match entry.value.parse() {
                Ok(window) => windows.push(window),
                Err(error) => {
                    self.mistake(entry.at, key, format_args!("\"{}\" is {error}", brief(&entry.value)));
                }
            }
        }
        Some(windows)
    }

    pub(crate) fn spans(&mut self, key: &'static str, most: usize) -> Vec<ByteSpan> {
        let mut spans = Vec::new();
        for entry in self.list(key, most).unwrap_or_default() {
            match entry.value.parse() {
                Ok(span) => spans.push(span),
                Err(error) => self.mistake(entry.at, key, error),
            }
        }
        spans
    }

    /// Parses a path that is only read, and may occur more than once.
    pub(crate) fn read_path(&mut self, key: &'static str) -> Option<Located<PathBuf>> {
        let path = self.text(key)?;
        if path.value.is_empty() || path.value.contains('\0') {
            self.mistake(path.at, key, "the path is empty or has a zero byte");
            return None;
        }
        Some(Located { at: path.at, value: PathBuf::from(path.value) })
    }

    pub(crate) fn sockets(&mut self, key: &'static str, most: usize) -> Vec<PathBuf> {
        let entries = self.list(key, most).unwrap_or_default();
        entries.into_iter().filter_map(|entry| self.checked_socket(key, entry)).collect()
    }

    pub(crate) fn socket(&mut self, key: &'static str) -> Option<PathBuf> {
        let path = self.text(key)?;
        self.checked_socket(key, path)
    }

    fn checked_socket(&mut self, key: &str, path: Located<String>) -> Option<PathBuf> {
        let most = limits::SOCKET_PATH_BYTES_MAX;
        if path.value.len() > most {
            let what = format_args!("{} bytes are too long for a Unix socket, {most} fit", path.value.len());
            self.mistake(path.at, key, what);
            return None;
        }
        self.checked_path(key, path).map(|path| path.value)
    }

    /// Reports unknown keys. Called after every key was read.
    pub(crate) fn finish(self) {
        let Some(table) = self.table else { return };
        for key in table.keys() {
            let (at, name) = (key.span().start, key.get_ref().as_ref());
            let keys = || self.sheet.asked.iter().filter(|(section, _)| *section == self.name);
            if keys().any(|(_, known)| *known == name) {
                continue;
            }
            let what = match nearest(name, keys().map(|(_, known)| *known)) {
                Some(known) => format!("there is no such key; did you mean \"{known}\"?"),
                None => "there is no such key".to_owned(),
            };
            self.sheet.mistake(at, format!("{}.{}: {what}", self.name, brief(name)));
        }
    }
}

/// Returns a non-negative whole number.
pub(crate) fn whole(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn byte_size(value: &DeValue<'_>) -> Option<u64> {
    match value {
        DeValue::String(text) => text.parse().ok().map(|ByteSize(bytes)| bytes),
        other => whole(other),
    }
}

/// Formats a value for messages.
pub(crate) fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{:?}", brief(text)),
        DeValue::Integer(number) => brief(number.as_str()),
        DeValue::Float(number) => brief(number.as_str()),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a section".to_owned(),
    }
}

/// Truncates text of unknown origin, and removes characters that move a terminal's cursor.
pub(crate) fn brief(text: &str) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    let mut brief: String = text.chars().take(limits::SHOWN_CHARS_MAX).map(plain).collect();
    if text.chars().nth(limits::SHOWN_CHARS_MAX).is_some() {
        brief.push_str("...");
    }
    brief
}

/// Returns the known key that is at most two edits away.
pub(crate) fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    if name.len() > limits::SHOWN_CHARS_MAX {
        return None;
    }
    known
        .map(|key| (edits(name, key), key))
        .filter(|(edits, key)| *edits <= 2 && edits * 2 < key.len())
        .min()
        .map(|(_, key)| key)
}

/// Levenshtein distance, one row at a time.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (line, from) in a.chars().enumerate() {
        let mut diagonal = line;
        let mut left = line + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, to) in row.iter_mut().skip(1).zip(b.chars()) {
            let best = (diagonal + usize::from(from != to)).min(*cell + 1).min(left + 1);
            diagonal = *cell;
            *cell = best;
            left = best;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        for (a, b, count) in [("", "", 0), ("kitten", "sitting", 3), ("mode", "mod", 1), ("", "abc", 3)] {
            assert_eq!((edits(a, b), edits(b, a)), (count, count), "{a} {b}");
        }
        assert_eq!(nearest("extend_size", ["extent_size", "weu_size"].into_iter()), Some("extent_size"));
        assert_eq!(nearest("colour", ["extent_size", "weu_size"].into_iter()), None);
    }

    #[test]
    fn long_or_wild_text_is_cut() {
        assert_eq!(brief("a\u{1b}b"), "a?b");
        assert_eq!(brief(&"x".repeat(90)), format!("{}...", "x".repeat(80)));
        assert_eq!(brief(&"x".repeat(80)), "x".repeat(80));
    }
}
