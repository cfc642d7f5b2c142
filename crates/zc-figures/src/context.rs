//! What a figure may use: how large it may be, and folders with traces.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use zc_replay::{Ratios, Trace};
use zc_trace::{Format, Options, Reader};

use crate::error::FigureError;

/// How large a figure's runs are.
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

/// What a figure may use.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// How large its runs are.
    pub scale: Scale,
    /// Folder with block traces.
    pub traces: Option<PathBuf>,
    /// Folder with files whose compression is measured; `/usr` if none is named.
    pub files: Option<PathBuf>,
    /// Folder with the FIU traces of Nitro's evaluation: files whose names begin with `webvm`, `homes` and `mail`.
    pub fiu: Option<PathBuf>,
}

impl Context {
    /// Loads the trace in the folder of block traces whose name begins so; `None` if no folder was named.
    ///
    /// # Errors
    /// The folder has no such trace, or it cannot be read.
    pub fn trace(&self, prefix: &str) -> Result<Option<Trace>, FigureError> {
        self.traces.as_deref().map(|folder| load(folder, prefix, None, usize::MAX)).transpose()
    }
}

/// Loads all files of a folder whose names begin so, in order of their names, as one trace.
pub(crate) fn load(
    folder: &Path,
    prefix: &str,
    format: Option<Format>,
    lines_max: usize,
) -> Result<Trace, FigureError> {
    let failed = |source| FigureError::File { path: folder.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(FigureError::NoTrace { path: folder.to_owned(), prefix: prefix.to_owned() });
    }
    let open = |path: &PathBuf| {
        Reader::open(path, Options { format, strict: false })
            .map_err(|source| FigureError::Trace { path: path.clone(), source })
    };
    let readers = paths.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    Ok(Trace::load(readers.into_iter().flatten().take(lines_max), Ratios::default())?)
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
    fn traces_are_found_by_the_beginning_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let keep = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let print = "0123456789abcdef0123456789abcdef";
        keep("homes.2", &format!("3 1 p 8 8 W 6 0 {print}\n"));
        keep("homes.1", &format!("1 1 p 0 8 R 6 0 {print}\n2 1 p 64 8 W 6 0 {print}\n"));
        let trace = load(folder.path(), "homes", Some(Format::Fiu), usize::MAX).unwrap();
        assert_eq!((trace.requests(), trace.footprint_bytes()), (3, 3 * 4096));
        let error = load(folder.path(), "mail", None, 1).unwrap_err().to_string();
        assert!(error.contains("\"mail\""), "{error}");
    }
}
