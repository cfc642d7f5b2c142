//! Real input: files of this machine, one after another in a raw image.
//!
//! Invariants: files are in order of sorted names, so the same machine yields the same image; they begin at multiples
//! of 4 KiB; symbolic links and special files are not followed or opened; unreadable files are skipped.

use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use zc_core::u64_from_usize;

use super::traffic::Bars;
use super::volumes::BLOCK_BYTES;

/// Default input folders, with the bytes taken from each.
const DEFAULT_ROOTS: [&str; 3] = ["/usr/lib", "/usr/bin", "/usr/share"];
const DEFAULT_BYTES_PER_ROOT: u64 = 100 << 20;
/// Files begin at multiples of this.
const ALIGN_BYTES: u64 = 4 << 10;
const CHUNK_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) files: u64,
    pub(crate) image_bytes: u64,
    pub(crate) roots: Vec<PathBuf>,
}

/// Writes the image to `target`.
pub(crate) fn gather(paths: &[PathBuf], target: &Path, bars: &Bars) -> anyhow::Result<Gathered> {
    let default = paths.is_empty();
    let roots: Vec<PathBuf> =
        if default { DEFAULT_ROOTS.iter().map(PathBuf::from).collect() } else { paths.to_vec() };
    for root in &roots {
        // A default root that a machine lacks is no mistake of the user.
        ensure!(default || root.exists(), "there is no {}", root.display());
    }
    // Copies of files that not every user may read.
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(target);
    let file = file.with_context(|| format!("cannot create {}", target.display()))?;
    let mut image = Image { out: BufWriter::new(file), at: 0, files: 0, buffer: vec![0; CHUNK_BYTES] };
    let bar = bars.counting("gathering");
    for root in &roots {
        let limit = if default { image.at + DEFAULT_BYTES_PER_ROOT } else { u64::MAX };
        image.add(root, limit, target, &mut |at| bar.set_position(at))?;
    }
    bar.finish_and_clear();
    let image_bytes = image.finish().with_context(|| format!("cannot write {}", target.display()))?;
    Ok(Gathered { files: image.files, image_bytes, roots })
}

struct Image {
    out: BufWriter<File>,
    at: u64,
    files: u64,
    buffer: Vec<u8>,
}

impl Image {
    /// Adds a file, or all files below a directory, until the image has `limit` bytes.
    fn add(
        &mut self,
        root: &Path,
        limit: u64,
        target: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> anyhow::Result<()> {
        let skip = std::fs::canonicalize(target).ok();
        let mut waiting = vec![root.to_owned()];
        // A named path may be a link; links below it are not followed.
        let mut named = true;
        while let Some(path) = waiting.pop() {
            if self.at >= limit {
                return Ok(());
            }
            let metadata = if named { std::fs::metadata(&path) } else { std::fs::symlink_metadata(&path) };
            named = false;
            let Ok(metadata) = metadata else { continue };
            if metadata.is_dir() {
                let Ok(entries) = std::fs::read_dir(&path) else { continue };
                let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
                found.sort_unstable_by(|a, b| b.cmp(a));
                waiting.append(&mut found);
            } else if metadata.is_file() && std::fs::canonicalize(&path).ok() != skip {
                self.add_file(&path, limit).with_context(|| format!("cannot write {}", target.display()))?;
                progress(self.at);
            }
        }
        Ok(())
    }

    /// Errors of the input end the file, errors of the image are errors.
    fn add_file(&mut self, path: &Path, limit: u64) -> std::io::Result<()> {
        let Ok(mut file) = File::open(path) else { return Ok(()) };
        let start = self.at;
        while self.at < limit {
            let Ok(got) = file.read(&mut self.buffer) else { break };
            if got == 0 {
                break;
            }
            self.out.write_all(&self.buffer[..got])?;
            self.at += u64_from_usize(got);
        }
        self.files += u64::from(self.at > start);
        self.pad(ALIGN_BYTES)
    }

    fn pad(&mut self, align: u64) -> std::io::Result<()> {
        self.at = self.at.next_multiple_of(align);
        self.out.seek(SeekFrom::Start(self.at)).map(drop)
    }

    fn finish(&mut self) -> std::io::Result<u64> {
        self.pad(BLOCK_BYTES)?;
        self.out.flush()?;
        self.out.get_ref().set_len(self.at)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_concatenated_in_order_at_aligned_offsets() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("in");
        std::fs::create_dir_all(root.join("b")).unwrap();
        std::fs::write(root.join("b/x"), [2; 5000]).unwrap();
        std::fs::write(root.join("a"), [1; 10]).unwrap();
        std::fs::write(root.join("c"), [3; 1]).unwrap();
        std::os::unix::fs::symlink(root.join("a"), root.join("b/link")).unwrap();
        let target = dir.path().join("image");
        let gathered = gather(std::slice::from_ref(&root), &target, &Bars::new()).unwrap();
        assert_eq!((gathered.files, gathered.image_bytes), (3, 16 << 10));
        let image = std::fs::read(&target).unwrap();
        assert_eq!(
            [image[0], image[9], image[10], image[4096], image[9095], image[9096]],
            [1, 1, 0, 2, 2, 0]
        );
        assert_eq!((image[12_288], image[12_289], image.len()), (3, 0, 16 << 10));
        gather(&[dir.path().join("none")], &target, &Bars::new()).unwrap_err();
    }
}
