//! `zcctl store import` and `export`: between an image and a volume of a store.
//!
//! Invariants: the source is opened and examined before anything is made. A volume or file that a failed copy has made is
//! removed again. Holes are skipped on both ways, so that the work follows the contents.
//!
//! It does not copy through a daemon, whose exports do that.

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use rustix::fs::OFlags;
use zc_core::u64_from_usize;
use zc_pool_io::limits::CHUNK_SHIFT;
use zc_pool_io::{Order, VolumeOptions, create_volume, find};
use zc_store::{BLOCK, RootId};

use super::cli::Named;
use super::driver::{Driver, warn_of_dropped};
use super::progress::Progress;
use crate::text;
use crate::units::size;

/// Bytes that an import or export moves at a time: a multiple of every chunk.
const COPY_BYTES: u64 = 1 << 20;

#[derive(Debug)]
struct Image {
    file: File,
    len: u64,
}

impl Image {
    /// Opens an image, a file or a block device.
    fn open(path: &Path) -> anyhow::Result<Self> {
        let place = path.display();
        // A FIFO without a writer would be waited for.
        let mut options = File::options();
        let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let mut file = options.read(true).custom_flags(nonblock).open(path);
        let file = file.as_mut().map_err(|error| anyhow::anyhow!("cannot open {place}: {error}"))?;
        let kind = file.metadata()?.file_type();
        let is_block = kind.is_block_device();
        ensure!(
            kind.is_file() || is_block,
            "{place} is {}, not an image: name a file or a block device; nothing was made",
            if kind.is_dir() { "a folder" } else { "neither a file nor a block device" }
        );
        let len = if is_block { file.seek(SeekFrom::End(0))? } else { file.metadata()?.len() };
        ensure!(len > 0, "{place} is empty; nothing was made");
        let mut first = [0; 1];
        file.read_exact_at(&mut first, 0)
            .with_context(|| format!("cannot read {place}; nothing was made"))?;
        Ok(Self { file: file.try_clone()?, len })
    }
}

pub(super) fn import(volume: &Named, image: &Path) -> anyhow::Result<()> {
    let pool = volume.pool.path()?;
    let source = Image::open(image)?;
    let driver = Driver::open(pool)?;
    warn_of_dropped(driver.client().dropped_commits().into())?;
    // The fingerprint index is empty after opening; a cleaner pass reads all fingerprints.
    let _freed = driver.client().clean();
    let root = create_volume(driver.client(), &volume.name, source.len, VolumeOptions::default())?;
    let progress = Progress::new(volume.pool.daemon.json);
    let name = text::clean(&volume.name);
    if let Err(error) = copy_in(&driver, root, &source, progress) {
        let order = Order::DeleteVolume { name: volume.name.clone(), dry_run: false };
        let is_gone = order.carry_out(driver.client()).is_ok() && driver.close().is_ok();
        let what = if is_gone {
            format!("{} cannot be imported; the volume \"{name}\" was not kept", image.display())
        } else {
            format!("the volume \"{name}\" is incomplete; delete it before you import again")
        };
        return Err(error.context(what));
    }
    driver
        .close()
        .with_context(|| format!("the volume \"{name}\" is incomplete; delete it before you import again"))?;
    let rest = source.len.next_multiple_of(1 << CHUNK_SHIFT) - source.len;
    if rest > 0 {
        // Explains a difference when the image and the volume are compared.
        note(&format!(
            "{} has {} bytes; the volume has whole chunks, its last {rest} bytes are zeros",
            image.display(),
            source.len
        ));
    }
    Ok(())
}

/// Prints a note that is no failure.
fn note(note: &str) {
    use std::io::Write as _;
    // Without a standard error there is no place for it.
    let _told = writeln!(std::io::stderr(), "zcctl: {note}");
}

/// Stores all parts of the image that are not holes.
fn copy_in(driver: &Driver, root: RootId, source: &Image, mut progress: Progress) -> anyhow::Result<()> {
    let (chunk, len) = (1_u64 << CHUNK_SHIFT, source.len);
    let mut at = 0;
    while at < len
        && let Some(data) = next_data(&source.file, at, len)?
    {
        let mut start = data.start / chunk * chunk;
        let end = data.end.next_multiple_of(chunk);
        while start < end {
            let piece = (end - start).min(COPY_BYTES);
            let mut bytes = vec![0; zc_core::usize_from_u64(piece)];
            // The image is followed by zeros.
            let there = zc_core::usize_from_u64(piece.min(len - start));
            let (there, _zeros) = bytes.split_at_mut(there);
            source.file.read_exact_at(there, start)?;
            driver.write(root, start, Bytes::from(bytes))?;
            start += piece;
            progress.tell(start, || format!("{} of {} read", size(start.min(len)), size(len)))?;
        }
        at = end;
    }
    progress.end()?;
    Ok(())
}

/// The next range from `at` on that is no hole. A source that reports no holes, as block devices, is all data.
fn next_data(file: &File, at: u64, len: u64) -> anyhow::Result<Option<core::ops::Range<u64>>> {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;
    match seek(file, SeekFrom::Data(at)) {
        Ok(start) => Ok(Some(start..seek(file, SeekFrom::Hole(start))?.min(len))),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(at..len)),
        Err(error) => Err(error.into()),
    }
}

/// Writes a volume or snapshot to a file. Fails if the data may be older than the last flush.
pub(super) fn export(volume: &Named, image: &Path) -> anyhow::Result<ExitCode> {
    let driver = Driver::open(volume.pool.path()?)?;
    let (id, root) = find(driver.client(), &volume.name, None)?;
    let len = root.size_chunks << root.chunk_shift;
    // It holds a tenant's data.
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(image);
    let file = file.with_context(|| format!("cannot make {}", image.display()))?;
    let progress = Progress::new(volume.pool.daemon.json);
    let copied = copy_out(&driver, id, root.chunk_shift, len, &file, progress);
    if let Err(error) = copied {
        let kept = std::fs::remove_file(image).is_err();
        let what = if kept { "it is incomplete" } else { "it was not kept" };
        return Err(error.context(format!("{} cannot be written; {what}", image.display())));
    }
    let dropped = driver.client().dropped_commits();
    driver.close()?;
    warn_of_dropped(dropped.into())?;
    Ok(if dropped > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn copy_out(
    driver: &Driver,
    id: RootId,
    chunk_shift: u8,
    len: u64,
    file: &File,
    mut progress: Progress,
) -> anyhow::Result<()> {
    file.set_len(len)?;
    let mut at = 0;
    while at < len {
        for run in driver.runs(id, at >> chunk_shift, (len - at) >> chunk_shift)? {
            let end = at + (run.chunks << chunk_shift);
            if run.is_hole {
                at = end;
            }
            while at < end {
                let pieces = driver.read(id, at, u32::try_from((end - at).min(COPY_BYTES))?)?;
                for piece in pieces {
                    write_sparse(file, &piece, at)?;
                    at += u64_from_usize(piece.len());
                }
                progress.tell(at, || format!("{} of {} written", size(at), size(len)))?;
            }
        }
    }
    progress.end()?;
    file.sync_all()?;
    Ok(())
}

/// Writes bytes; blocks of zeros stay holes.
fn write_sparse(file: &File, bytes: &[u8], at: u64) -> std::io::Result<()> {
    for (offset, block) in (at..).step_by(BLOCK).zip(bytes.chunks(BLOCK)) {
        if !zc_reduce::is_zero(block) {
            file.write_all_at(block, offset)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_and_devices_with_bytes_are_images() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let refused = |name: &str| format!("{:#}", Image::open(&at(name)).unwrap_err());
        std::fs::create_dir(at("folder")).unwrap();
        assert!(refused("folder").contains("is a folder, not an image"), "{}", refused("folder"));
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::RUSR).unwrap();
        assert!(refused("fifo").contains("neither a file nor a block device"), "{}", refused("fifo"));
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert!(refused("socket").contains("cannot open"), "{}", refused("socket"));
        std::fs::write(at("empty"), "").unwrap();
        assert!(refused("empty").contains("is empty; nothing was made"), "{}", refused("empty"));
        assert!(refused("none").contains("cannot open"));
        assert!(format!("{:#}", Image::open(Path::new("/dev/zero")).unwrap_err()).contains("neither a file"));
        std::fs::write(at("odd"), [1; 1001]).unwrap();
        assert_eq!(Image::open(&at("odd")).unwrap().len, 1001);
    }
}
