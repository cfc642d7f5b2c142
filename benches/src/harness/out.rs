//! Reports as files.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;

/// Writes a report into a folder, and prints where it is.
///
/// # Errors
/// The file or the standard output cannot be written.
pub fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    writeln!(std::io::stdout(), "{}", path.display())?;
    Ok(())
}
