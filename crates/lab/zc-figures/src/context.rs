//! Settings of a figure: scale, and folders with traces.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use zc_core::Codec;
use zc_replay::{Ratios, Trace};
use zc_trace::{Format, Options, Reader, Request, TraceError};

use crate::Ablation;
use crate::error::FigureError;

/// zlib at the level that Linux takes by default.
pub(crate) const ZLIB: Codec = Codec::Zlib(6);

/// Scale of a figure's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Seconds per figure: volumes and write-evict units of an eighth, fewer points.
    #[default]
    Small,
    /// Minutes per figure.
    Full,
}

impl Scale {
    /// One of two values.
    pub fn pick<T>(self, small: T, full: T) -> T {
        match self {
            Self::Small => small,
            Self::Full => full,
        }
    }
}

/// Settings of a figure.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// Scale of its runs.
    pub scale: Scale,
    /// Folder with block traces.
    pub traces: Option<PathBuf>,
    /// Folder with files whose compression is measured; `/usr` if none is named.
    pub files: Option<PathBuf>,
    /// Folder with the FIU traces of Nitro's evaluation: files, or folders of them, with names that begin with
    /// `webvm`, `homes` and `mail`, or with FIU's original names.
    pub fiu: Option<PathBuf>,
    /// Ablation of the models, to find the shapes that depend on it.
    pub ablation: Option<Ablation>,
}

impl Context {
    /// Returns `true` if this is left out.
    pub(crate) fn ablates(&self, ablation: Ablation) -> bool {
        self.ablation == Some(ablation)
    }

    /// Returns `true` if contents do not repeat.
    pub(crate) fn are_unique(&self) -> bool {
        self.ablates(Ablation::UniqueContents) || self.ablates(Ablation::Irreducible)
    }

    /// Returns `true` if contents do not compress.
    pub(crate) fn are_incompressible(&self) -> bool {
        self.ablates(Ablation::Incompressible) || self.ablates(Ablation::Irreducible)
    }

    /// Mean and variance of the compression ratio of contents that have this one.
    pub(crate) fn ratio(&self, usual: (f64, f64)) -> (f64, f64) {
        if self.are_incompressible() { (1.0, 0.0) } else { usual }
    }

    /// Returns the capacity of a cache for `bytes` bytes.
    pub(crate) fn room(&self, bytes: u64, everything: u64) -> u64 {
        match self.ablation {
            Some(Ablation::EndlessRoom) => everything,
            Some(Ablation::LittleRoom) => bytes / 8,
            _ => bytes,
        }
    }

    /// Loads the trace in the folder of block traces whose name begins so; `None` if no folder was named.
    ///
    /// # Errors
    /// The folder has no such trace, or it cannot be read.
    pub fn trace(&self, prefix: &str) -> Result<Option<Trace>, FigureError> {
        let all = |folder| load(folder, &[prefix], None, usize::MAX).map(|(trace, _)| trace);
        self.traces.as_deref().map(all).transpose()
    }
}

/// Loads all files of a folder whose names begin so, in order of their names and of the numbers in them, as
/// one trace, one after the other in time; also how many lines were bad. A folder of such a name stands for its files.
pub(crate) fn load(
    folder: &Path,
    prefixes: &[&str],
    format: Option<Format>,
    lines_max: usize,
) -> Result<(Trace, u64), FigureError> {
    let mut paths = Vec::new();
    for path in entries(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        paths.extend(if path.is_dir() { entries(&path)? } else { vec![path] });
    }
    paths.sort_by_cached_key(|path| natural(&path.to_string_lossy()));
    let none = || FigureError::NoTrace { path: folder.to_owned(), prefix: prefixes.join("\" or \"") };
    if paths.is_empty() {
        return Err(none());
    }
    let open = |path: &PathBuf| {
        Reader::open(path, Options { format, ..Options::default() })
            .map_err(|source| FigureError::Trace { path: path.clone(), source })
    };
    let mut readers = paths.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let lines = following(&mut readers).take(lines_max);
    let trace = Trace::load(lines, Ratios::default())?;
    let bad = readers.iter().map(Reader::bad_count).sum();
    if trace.requests() == 0 {
        return Err(FigureError::EmptyTrace { path: folder.to_owned(), prefix: prefixes.join(", "), bad });
    }
    Ok((trace, bad))
}

/// Times of several traces as one: every reader counts from the first request of its own.
#[derive(Debug, Default)]
struct Timeline {
    /// Initial clock value of the first trace.
    zero_ns: Option<u64>,
    /// When the present trace begins, once that is known.
    begins_ns: Option<u64>,
    /// The last request so far.
    last_ns: u64,
}

impl Timeline {
    /// Returns the time of a request of the present trace. The trace begins at its clock's time if that is later than
    /// all earlier ones, and directly after them otherwise: clocks may restart with every file.
    fn place(&mut self, clock_ns: u64, time_ns: u64) -> u64 {
        let begins = match (self.begins_ns, self.zero_ns) {
            (Some(begins), _) => begins,
            (None, Some(zero)) => clock_ns.saturating_sub(zero).max(self.last_ns.saturating_add(1)),
            (None, None) => 0,
        };
        self.zero_ns.get_or_insert(clock_ns);
        self.begins_ns = Some(begins);
        let placed = begins.saturating_add(time_ns);
        self.last_ns = self.last_ns.max(placed);
        placed
    }
}

/// The requests of all traces, one trace after the other.
fn following(readers: &mut [Reader]) -> impl Iterator<Item = Result<Request, TraceError>> + '_ {
    let mut readers = readers.iter_mut();
    let (mut reader, mut timeline) = (readers.next(), Timeline::default());
    std::iter::from_fn(move || {
        loop {
            let present = reader.as_mut()?;
            let Some(request) = present.next() else {
                reader = readers.next();
                timeline.begins_ns = None;
                continue;
            };
            let clock_ns = present.began_ns().unwrap_or(0);
            return Some(
                request
                    .map(|request| Request { time_ns: timeline.place(clock_ns, request.time_ns), ..request }),
            );
        }
    })
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, FigureError> {
    let failed = |source| FigureError::File { path: folder.to_owned(), source };
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect()
}

/// Splits a name at its numbers, so that "x.10" is sorted after "x.9".
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = vec![(String::new(), String::new())];
    for letter in name.chars() {
        if let Some((text, digits)) = parts.last_mut() {
            match (letter.is_ascii_digit(), digits.is_empty()) {
                (true, _) => digits.push(letter),
                (false, true) => text.push(letter),
                (false, false) => parts.push((letter.to_string(), String::new())),
            }
        }
    }
    parts.into_iter().map(|(text, digits)| (text, digits.parse().unwrap_or(0))).collect()
}

/// Applies a function to all items on all CPUs; results in the order of the items.
pub(crate) fn each<T: Sync, R: Send>(
    items: &[T],
    make: impl Fn(&T) -> Result<R, FigureError> + Sync,
) -> Result<Vec<R>, FigureError> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        while let Some((number, item)) = {
            let number = next.fetch_add(1, Ordering::Relaxed);
            items.get(number).map(|item| (number, item))
        } {
            let made = make(item);
            done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((number, made));
        }
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cpus.min(items.len())).for_each(|_| drop(scope.spawn(work))));
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, made)| made).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_errors_come_through() {
        let numbers: Vec<u32> = (0..100).collect();
        assert_eq!(each(&numbers, |n| Ok(n * 2)).unwrap(), (0..100).map(|n| n * 2).collect::<Vec<_>>());
        let broken = each(&numbers, |n| match n {
            42 => Err(FigureError::Simulator { what: "no".to_owned() }),
            n => Ok(*n),
        });
        assert_eq!(broken.unwrap_err().to_string(), "no");
    }

    #[test]
    fn files_follow_each_other_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let print = "0123456789abcdef0123456789abcdef";
        // Milliseconds by the clock of each file: the second continues the first, the third restarts.
        for (number, times) in [(1, [1000, 1500]), (2, [4000, 4100]), (3, [1000, 1200])] {
            let line = |ms: u64| format!("{} 1 p {} 8 R 6 0 {print}\n", ms * 1_000_000, ms * 8);
            let text = times.map(line).concat();
            std::fs::write(folder.path().join(format!("mail.{number}")), text).unwrap();
        }
        let (trace, _) = load(folder.path(), &["mail"], Some(Format::Fiu), usize::MAX).unwrap();
        assert_eq!(trace.duration_ms(), 3300, "3100 and 1 ns to the end of the second, then 200");
        let open = |number: u32| {
            let path = folder.path().join(format!("mail.{number}"));
            Reader::open(&path, Options { format: Some(Format::Fiu), ..Options::default() }).unwrap()
        };
        let mut readers = [1, 2, 3].map(open);
        let times: Vec<u64> =
            following(&mut readers).map(|request| request.unwrap().time_ns / 1000).collect();
        assert_eq!(times, [0, 500_000, 3_000_000, 3_100_000, 3_100_000, 3_300_000]);
    }

    #[test]
    fn traces_are_found_by_the_beginning_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let keep = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let print = "0123456789abcdef0123456789abcdef";
        keep("homes.10", &format!("30 1 p 8 8 W 6 0 {print}\n"));
        keep("homes.2", &format!("1 1 p 0 8 R 6 0 {print}\n2 1 p 64 8 W 6 0 {print}\nnothing\n"));
        let homes = |lines_max| load(folder.path(), &["homes"], Some(Format::Fiu), lines_max).unwrap();
        let (trace, bad) = homes(usize::MAX);
        assert_eq!((trace.requests(), trace.footprint_bytes(), bad), (3, 3 * 4096, 1));
        assert_eq!(homes(2).0.spans(), [9 * 4096], "the second file comes before the tenth");
        std::fs::create_dir(folder.path().join("mail-01")).unwrap();
        let error = load(folder.path(), &["mail", "cheetah"], None, 1).unwrap_err().to_string();
        assert!(error.contains("\"mail\" or \"cheetah\""), "{error}");
        // The first line may be a header, which is no bad line.
        keep("mail-01/cheetah.1", "nothing\nnothing\n");
        let error = load(folder.path(), &["mail"], Some(Format::Fiu), 9).unwrap_err().to_string();
        assert!(error.contains("no request in mail") && error.contains("1 bad line"), "{error}");
    }
}
