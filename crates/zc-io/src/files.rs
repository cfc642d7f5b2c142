//! Safe opening of cache devices and origins.
//!
//! Job: open a regular file or block device for exclusive use, determine its size, block size and identity, and
//! explain in one sentence why it is unavailable: mounted, used by another device, locked by another process, swap
//! space.
//!
//! Invariants: at most one writer of a path among all processes that use this crate (flock for files, O_EXCL for block
//! devices, which the kernel also checks against mounts, md, device-mapper and swap). Readers share. Nothing is
//! created or changed unless the options request it, and never before the locks are held.
//!
//! Out of scope: data I/O beyond blocking helpers for offline tools; the data plane uses
//! [`crate::Operation`]s on [`BlockFile::fd`].

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use zc_core::limits::BLOCK_BYTES;
use zc_core::{ErrorKind, u64_from_usize, usize_from_u32, usize_from_u64};

use crate::buf::AlignedBuf;
use crate::error::IoError;
use crate::in_use;
use crate::ioctl::discard_blocks;
use crate::limits;
use crate::operation::SharedFd;

/// Alignment for direct I/O if the file system does not report one: correct for every common device.
const DIRECT_ALIGN_BYTES: u32 = 4096;
/// Bytes per write of zeros.
const ERASE_PIECE_BYTES: usize = 4 << 20;

/// Options of opening.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Direct I/O (O_DIRECT), if the file system supports it; see [`BlockFile::is_direct`].
    pub direct: bool,
    /// Opens for writing, exclusively; otherwise for reading, shared with readers.
    pub write: bool,
    /// Create the file, sparse, with this length if it does not exist. Requires `write`.
    pub create_len: Option<u64>,
}

/// Kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
}

/// Externally visible identity of a file or device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// File or device.
    pub kind: FileKind,
    /// Files: number of the file system's device. Block devices: the device's own number.
    pub dev: u64,
    /// Files: the inode. Block devices: 0, because the node in /dev is not the device.
    pub inode: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Files: last change of the contents, in nanoseconds since 1970. Block devices: 0.
    pub mtime_ns: i128,
}

/// An open, locked file or block device.
#[derive(Debug)]
pub struct BlockFile {
    path: PathBuf,
    /// Holder of the lock.
    file: File,
    fd: SharedFd,
    kind: FileKind,
    direct: bool,
    write: bool,
    created: bool,
    len_bytes: u64,
    block_bytes: u32,
}

impl BlockFile {
    /// Opens `path`.
    ///
    /// # Errors
    /// When it does not exist and must not be created (below `/dev` nothing is), is neither a regular file nor a block
    /// device, or is in use; the message names the user.
    pub fn open(path: &Path, options: OpenOptions) -> Result<Self, IoError> {
        let fail = |error| IoError::from_io("open", path.display().to_string(), error);
        let known = match std::fs::metadata(path) {
            Ok(metadata) => Some(kind_of_type(path, metadata.file_type())?),
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_for_devices(path) => {
                return Err(fail(error).because("no such device"));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && options.create_len.is_some() => None,
            Err(error) => return Err(fail(error)),
        };
        let (file, direct) = open_file(path, options, known).map_err(|error| explain_open(path, error))?;
        let metadata = file.metadata().map_err(fail)?;
        // Checked again on the open file: the path may have changed in between.
        let kind = kind_of_type(path, metadata.file_type())?;
        if kind == FileKind::Regular {
            lock(path, &file, options.write)?;
        } else if options.write && is_write_protected(&metadata) {
            let reason = "the device is read-only (`blockdev --getro` prints 1)";
            return Err(IoError::new(ErrorKind::Invalid, "open", path.display().to_string(), reason));
        }
        if known.is_none() {
            size_new_file(path, &file, options.create_len.unwrap_or(0))?;
        }
        let block_bytes = block_bytes(&file, kind).map_err(fail)?;
        let len_bytes = length_of(&file, kind).map_err(fail)?;
        let fd = SharedFd::of_file(file.try_clone().map_err(fail)?);
        let created = known.is_none();
        let path = path.to_owned();
        Ok(Self { path, file, fd, kind, direct, write: options.write, created, len_bytes, block_bytes })
    }

    /// Returns the descriptor for the ring.
    #[must_use]
    pub const fn fd(&self) -> &SharedFd {
        &self.fd
    }

    /// Returns the path as configured.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// File or device.
    #[must_use]
    pub const fn kind(&self) -> FileKind {
        self.kind
    }

    /// Returns `true` if I/O is direct and must be aligned to [`Self::block_bytes`], in memory too.
    #[must_use]
    pub const fn is_direct(&self) -> bool {
        self.direct
    }

    /// Returns `true` if it was created by the open.
    #[must_use]
    pub const fn is_created(&self) -> bool {
        self.created
    }

    /// Returns the length in bytes at the time of opening.
    #[must_use]
    pub const fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Returns the current length in bytes: files grow and shrink, devices are resized.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn len_now_bytes(&self) -> Result<u64, IoError> {
        length_of(&self.file, self.kind).map_err(|error| self.failed("measure", error))
    }

    /// Returns this file or device, under its present lock, with its current length.
    ///
    /// # Errors
    /// When the device is gone, or no descriptor is left.
    pub fn measured_again(&self) -> Result<Self, IoError> {
        let file = self.file.try_clone().map_err(|error| self.failed("open", error))?;
        let fd = SharedFd::of_file(file.try_clone().map_err(|error| self.failed("open", error))?);
        let Self { ref path, kind, direct, write, block_bytes, .. } = *self;
        let (path, len_bytes) = (path.clone(), self.len_now_bytes()?);
        Ok(Self { path, file, fd, kind, direct, write, created: false, len_bytes, block_bytes })
    }

    /// Extends a file with a hole; a file that is long enough stays unchanged.
    ///
    /// # Errors
    /// When it is a device, opened for reading only, or the file system refuses.
    pub fn extend(&self, len_bytes: u64) -> Result<(), IoError> {
        let refusal = match self.kind {
            FileKind::Block => Some("only files can be extended; the size of a device is fixed"),
            FileKind::Regular if !self.write => Some("it is opened for reading only"),
            FileKind::Regular => None,
        };
        if let Some(reason) = refusal {
            return Err(self.failed("extend", rustix::io::Errno::OPNOTSUPP.into()).because(reason));
        }
        if self.len_now_bytes()? >= len_bytes {
            return Ok(());
        }
        rustix::fs::ftruncate(&self.file, len_bytes).map_err(|errno| self.failed("extend", errno.into()))
    }

    /// Returns the unit of direct I/O in bytes: the logical block of a device, or the file system's requirement.
    #[must_use]
    pub const fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Returns `true` if the device (the one below a file) is rotational; `None` if unknown.
    #[must_use]
    pub fn is_rotational(&self) -> Option<bool> {
        let metadata = self.file.metadata().ok()?;
        let dev = if self.kind == FileKind::Block { metadata.rdev() } else { metadata.dev() };
        in_use::rotational(rustix::fs::major(dev), rustix::fs::minor(dev))
    }

    /// Returns the discard granularity of a block device in bytes; `None` for files, and for devices without discard.
    #[must_use]
    pub fn discard_granularity_bytes(&self) -> Option<u64> {
        let device = Some(self.file.metadata().ok()?.rdev()).filter(|_| self.kind == FileKind::Block)?;
        in_use::discard_granularity(rustix::fs::major(device), rustix::fs::minor(device))
    }

    /// Returns the sectors of 512 bytes that all programs have written or discarded on a block device since it
    /// appeared; `None` for files, and where the kernel does not count.
    #[must_use]
    pub fn sectors_written(&self) -> Option<u64> {
        let device = Some(self.file.metadata().ok()?.rdev()).filter(|_| self.kind == FileKind::Block)?;
        in_use::sectors_written(rustix::fs::major(device), rustix::fs::minor(device))
    }

    /// Returns the current identity.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn identity(&self) -> Result<Identity, IoError> {
        let metadata = self.file.metadata().map_err(|error| self.failed("inspect", error))?;
        let len_bytes = self.len_now_bytes()?;
        Ok(match self.kind {
            FileKind::Block => {
                Identity { kind: self.kind, dev: metadata.rdev(), inode: 0, len_bytes, mtime_ns: 0 }
            }
            FileKind::Regular => Identity {
                kind: self.kind,
                dev: metadata.dev(),
                inode: metadata.ino(),
                len_bytes,
                mtime_ns: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
            },
        })
    }

    /// Returns a second descriptor of the same file that uses the page cache, for unaligned I/O. The kernel keeps both
    /// views of a file coherent. The lock stays with this one.
    ///
    /// # Errors
    /// When the file cannot be opened again.
    pub fn buffered_fd(&self) -> Result<SharedFd, IoError> {
        if !self.direct {
            return Ok(SharedFd::clone(&self.fd));
        }
        // By descriptor, because the path may name another file by now.
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(self.write)
            .open(path)
            .map_err(|error| self.failed("reopen", error))?;
        Ok(SharedFd::of_file(file))
    }

    /// Reserves the space of the whole file, so that writing it cannot run out of space. Blocks.
    ///
    /// # Errors
    /// When there is not enough space.
    pub fn preallocate(&self) -> Result<(), IoError> {
        if self.kind == FileKind::Block || self.len_bytes == 0 {
            return Ok(());
        }
        fallocate(&self.file, FallocateFlags::empty(), 0, self.len_bytes)
            .map_err(|errno| self.failed("reserve space for", errno.into()))
    }

    /// Discards a range of the device or file. Contents become undefined (files: zero). Blocks.
    ///
    /// # Errors
    /// When the device refuses; kind [`ErrorKind::Unsupported`] if it has no such operation.
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), IoError> {
        let result = match self.kind {
            FileKind::Block => discard_blocks(self.file.as_fd(), offset, len),
            FileKind::Regular => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.file, flags, offset, len).map_err(io::Error::from)
            }
        };
        result.map_err(|error| self.failed("discard a range of", error))
    }

    /// Overwrites everything with zeros, durably, and then discards it. Blocks. A flash device may retain old contents
    /// in blocks that no write reaches.
    ///
    /// # Errors
    /// When the device fails.
    pub fn erase_blocking(&self) -> Result<(), IoError> {
        let zeros = AlignedBuf::new(ERASE_PIECE_BYTES);
        let len = self.len_bytes;
        for offset in (0..len).step_by(ERASE_PIECE_BYTES) {
            let piece = (len - offset).min(u64_from_usize(ERASE_PIECE_BYTES));
            self.write_blocking(offset, &zeros[..usize_from_u64(piece)])?;
        }
        self.sync_blocking()?;
        match self.discard(0, len) {
            Err(error) if error.kind() != ErrorKind::Unsupported => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads `len_bytes` bytes from `offset`. Blocks; used by offline tools and at start-up. Direct files: offset and
    /// length are multiples of [`Self::block_bytes`].
    ///
    /// # Errors
    /// When the device fails or ends earlier.
    pub fn read_blocking(&self, offset: u64, len_bytes: usize) -> Result<AlignedBuf, IoError> {
        let mut buf = AlignedBuf::new(len_bytes);
        self.file.read_exact_at(&mut buf, offset).map_err(|error| {
            self.failed("read", error).because(format!("reading {len_bytes} bytes at byte {offset} failed"))
        })?;
        Ok(buf)
    }

    /// Returns the first non-zero byte in the range at the start by which a file or device counts as used.
    ///
    /// # Errors
    /// As for [`Self::read_blocking`].
    pub fn first_filled(&self) -> Result<Option<u64>, IoError> {
        let block = u64::from(BLOCK_BYTES);
        let len = self.len_bytes().min(limits::BLANK_BYTES) / block * block;
        let start = self.read_blocking(0, usize_from_u64(len))?;
        Ok(start.iter().position(|&byte| byte != 0).map(u64_from_usize))
    }

    /// Writes `bytes` at `offset`. Blocks; used by offline tools and at start-up. Direct files: everything is aligned,
    /// memory too, as in an [`AlignedBuf`].
    ///
    /// # Errors
    /// When the device fails or the range is beyond its end (files keep their length).
    pub fn write_blocking(&self, offset: u64, bytes: &[u8]) -> Result<(), IoError> {
        let end = offset.checked_add(u64_from_usize(bytes.len()));
        if end.is_none_or(|end| end > self.len_bytes) {
            let reason = format!("{} bytes at byte {offset} do not fit into {}", bytes.len(), self.len_bytes);
            return Err(IoError::new(ErrorKind::Invalid, "write", self.path.display().to_string(), reason));
        }
        self.file.write_all_at(bytes, offset).map_err(|error| {
            self.failed("write", error)
                .because(format!("writing {} bytes at byte {offset} failed", bytes.len()))
        })
    }

    /// Makes writes durable. Blocks.
    ///
    /// # Errors
    /// When the device fails.
    pub fn sync_blocking(&self) -> Result<(), IoError> {
        self.file.sync_data().map_err(|error| self.failed("flush", error))
    }

    fn failed(&self, operation: &'static str, error: io::Error) -> IoError {
        IoError::from_io(operation, self.path.display().to_string(), error)
    }
}

fn kind_of_type(path: &Path, file_type: std::fs::FileType) -> Result<FileKind, IoError> {
    if file_type.is_file() {
        Ok(FileKind::Regular)
    } else if file_type.is_block_device() {
        Ok(FileKind::Block)
    } else {
        let reason = "it is neither a regular file nor a block device";
        Err(IoError::new(ErrorKind::Invalid, "open", path.display().to_string(), reason))
    }
}

/// Opens with O_DIRECT if requested, and falls back if the file system refuses it.
fn open_file(path: &Path, options: OpenOptions, known: Option<FileKind>) -> io::Result<(File, bool)> {
    let exclusive = if known == Some(FileKind::Block) { libc::O_EXCL } else { 0 };
    let open = |flags| {
        std::fs::OpenOptions::new()
            .read(true)
            .write(options.write)
            .create_new(known.is_none() && options.write)
            .mode(0o600)
            .custom_flags(flags | exclusive | libc::O_NOCTTY)
            .open(path)
    };
    if options.direct {
        match open(libc::O_DIRECT) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                // O_CREAT may have made the file before O_DIRECT was refused.
                let retry = std::fs::OpenOptions::new()
                    .read(true)
                    .write(options.write)
                    .create(known.is_none() && options.write)
                    .truncate(false)
                    .mode(0o600)
                    .custom_flags(exclusive | libc::O_NOCTTY)
                    .open(path);
                retry.map(|file| (file, false))
            }
            result => result.map(|file| (file, true)),
        }
    } else {
        open(0).map(|file| (file, false))
    }
}

/// Returns `true` if only devices belong below this path. A file created there would be in memory.
fn is_for_devices(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

fn is_write_protected(metadata: &std::fs::Metadata) -> bool {
    let device = metadata.rdev();
    in_use::read_only(rustix::fs::major(device), rustix::fs::minor(device)).unwrap_or(false)
}

/// Adds the user of the device to an error of open(2).
fn explain_open(path: &Path, error: io::Error) -> IoError {
    let place = path.display().to_string();
    if error.raw_os_error() != Some(libc::EBUSY) {
        return IoError::from_io("open", place, error);
    }
    let dev = std::fs::metadata(path).map_or(0, |metadata| metadata.rdev());
    let reason = in_use::block_device_use(rustix::fs::major(dev), rustix::fs::minor(dev))
        .unwrap_or_else(|| "it is in use (mounted, swap, part of an array, or open exclusively)".to_owned());
    IoError::from_io("open", place, error).because(reason)
}

fn lock(path: &Path, file: &File, write: bool) -> Result<(), IoError> {
    let place = || path.display().to_string();
    let result = if write { file.try_lock() } else { file.try_lock_shared() };
    match result {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(IoError::in_use("lock", place(), in_use::lock_holder(file)));
        }
        Err(TryLockError::Error(error)) => return Err(IoError::from_io("lock", place(), error)),
    }
    match in_use::file_use(path).filter(|_| write) {
        Some(reason) => Err(IoError::new(ErrorKind::Invalid, "open", place(), reason)),
        None => Ok(()),
    }
}

/// Sets the length of a new file and makes it and its name durable; removes it on failure.
fn size_new_file(path: &Path, file: &File, len_bytes: u64) -> Result<(), IoError> {
    let sync_name = || match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => File::open(".")?.sync_all(),
    };
    let result = file.set_len(len_bytes).and_then(|()| file.sync_all()).and_then(|()| sync_name());
    result.map_err(|error| {
        let mut reason = format!("the file system does not take a file of {len_bytes} bytes");
        if std::fs::remove_file(path).is_err() {
            reason.push_str(" (an empty one was left behind)");
        }
        IoError::from_io("create", path.display().to_string(), error).because(reason)
    })
}

/// Returns the current length in bytes of an open file or block device.
///
/// # Errors
/// When the device is gone, or the file server fails.
pub fn length_of(file: impl AsFd, kind: FileKind) -> io::Result<u64> {
    match kind {
        FileKind::Regular => Ok(u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0)),
        // The end of a block device is its size; no other code uses the file position.
        FileKind::Block => Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?),
    }
}

fn block_bytes(file: &File, kind: FileKind) -> io::Result<u32> {
    if kind == FileKind::Block {
        return rustix::fs::ioctl_blksszget(file).map_err(io::Error::from);
    }
    let flags = rustix::fs::StatxFlags::DIOALIGN;
    let align = rustix::fs::statx(file, "", rustix::fs::AtFlags::EMPTY_PATH, flags)
        .ok()
        .filter(|statx| statx.stx_mask & flags.bits() != 0)
        .map(|statx| statx.stx_dio_offset_align.max(statx.stx_dio_mem_align))
        .filter(|&align| align.is_power_of_two() && usize_from_u32(align) <= crate::buf::PAGE_BYTES);
    Ok(align.unwrap_or(DIRECT_ALIGN_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Operation;
    use crate::{Completion, Ring, RingOptions};
    use std::fs;

    const WRITE: OpenOptions = OpenOptions { direct: false, write: true, create_len: Some(1 << 20) };

    fn dir() -> tempfile::TempDir {
        // Not the default folder: that may be a tmpfs, and O_DIRECT is tested here.
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    fn run(operation: Operation) -> Completion {
        let mut ring = Ring::new(RingOptions { entries: 1, ops_max: 1, poll_max_us: 0 }).unwrap();
        ring.submit(operation, 1).unwrap();
        let mut out = Vec::new();
        ring.submit_and_wait(1, None, &mut out).unwrap();
        out.remove(0)
    }

    #[test]
    fn a_file_is_created_sparse_and_found_again() {
        let dir = dir();
        let path = dir.path().join("f");
        let missing = BlockFile::open(&path, OpenOptions { create_len: None, ..WRITE }).unwrap_err();
        assert_eq!(missing.to_string(), format!("cannot open {}", path.display()));
        let file = BlockFile::open(&path, WRITE).unwrap();
        assert!(file.is_created() && !file.is_direct());
        assert_eq!((file.len_bytes(), file.kind()), (1 << 20, FileKind::Regular));
        assert_eq!(fs::metadata(&path).unwrap().blocks(), 0);
        let identity = file.identity().unwrap();
        file.preallocate().unwrap();
        assert!(fs::metadata(&path).unwrap().blocks() >= (1 << 20) / 512);
        drop(file);
        let again = BlockFile::open(&path, WRITE).unwrap();
        assert!(!again.is_created());
        assert_eq!(again.identity().unwrap().inode, identity.inode);
        again.write_blocking(0, b"x").unwrap();
        assert_ne!(again.identity().unwrap().mtime_ns, identity.mtime_ns);
    }

    #[test]
    fn only_the_start_of_a_file_tells_whether_it_is_used() {
        let dir = dir();
        let path = dir.path().join("f");
        let file = BlockFile::open(&path, OpenOptions { create_len: Some(2 << 20), ..WRITE }).unwrap();
        file.write_blocking(limits::BLANK_BYTES, b"x").unwrap();
        assert_eq!(file.first_filled().unwrap(), None);
        file.write_blocking(limits::BLANK_BYTES - 1, b"x").unwrap();
        assert_eq!(file.first_filled().unwrap(), Some(limits::BLANK_BYTES - 1));
        file.write_blocking(7, b"x").unwrap();
        assert_eq!(file.first_filled().unwrap(), Some(7));
    }

    #[test]
    fn a_file_that_cannot_have_its_length_is_not_left_behind() {
        let dir = dir();
        let path = dir.path().join("f");
        let error = BlockFile::open(&path, OpenOptions { create_len: Some(1 << 62), ..WRITE }).unwrap_err();
        assert!(error.to_string().contains("does not take a file of"), "{error}");
        assert!(!path.exists());
    }

    #[test]
    fn one_writer_or_many_readers() {
        let dir = dir();
        let path = dir.path().join("f");
        let writer = BlockFile::open(&path, WRITE).unwrap();
        let read = OpenOptions::default();
        for options in [WRITE, read] {
            let error = BlockFile::open(&path, options).unwrap_err();
            assert!(error.to_string().contains("in use by another part of this configuration"), "{error}");
        }
        drop(writer);
        let _one = BlockFile::open(&path, read).unwrap();
        let _two = BlockFile::open(&path, read).unwrap();
        BlockFile::open(&path, WRITE).unwrap_err();
    }

    #[test]
    fn what_is_no_file_or_device_is_refused() {
        let dir = dir();
        let error = BlockFile::open(dir.path(), OpenOptions::default()).unwrap_err();
        assert!(error.to_string().contains("neither a regular file nor a block device"), "{error}");
        BlockFile::open(Path::new("/dev/null"), OpenOptions::default()).unwrap_err();
    }

    #[test]
    fn direct_io_reads_what_it_wrote_and_the_buffered_view_agrees() {
        let dir = dir();
        let file = BlockFile::open(&dir.path().join("f"), OpenOptions { direct: true, ..WRITE }).unwrap();
        assert!(file.is_direct());
        let bytes: Vec<u8> = (0..16_384_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let write = run(Operation::write(file.fd(), 8192, AlignedBuf::from(&bytes[..])));
        assert_eq!(write.result.unwrap(), 16_384);
        let read = run(Operation::read(file.fd(), 8192, AlignedBuf::new(16_384)));
        assert_eq!(read.operation.into_target().unwrap().bytes(), bytes);
        let buffered = file.buffered_fd().unwrap();
        let odd = run(Operation::read(&buffered, 8193, AlignedBuf::new(7)));
        assert_eq!(odd.operation.into_target().unwrap().bytes(), &bytes[1..8]);
    }

    #[test]
    fn a_direct_read_past_an_unaligned_end_is_an_end_of_file() {
        let dir = dir();
        let path = dir.path().join("f");
        fs::write(&path, [1; 5000]).unwrap();
        let file =
            BlockFile::open(&path, OpenOptions { direct: true, write: false, create_len: None }).unwrap();
        let read = run(Operation::read(file.fd(), 0, AlignedBuf::new(8192)));
        assert_eq!(read.result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn blocking_helpers_stay_inside_the_file() {
        let dir = dir();
        let file = BlockFile::open(&dir.path().join("f"), WRITE).unwrap();
        file.write_blocking(100, b"abc").unwrap();
        file.sync_blocking().unwrap();
        assert_eq!(&*file.read_blocking(100, 3).unwrap(), b"abc");
        file.write_blocking((1 << 20) - 2, b"abc").unwrap_err();
        file.write_blocking(u64::MAX, b"abc").unwrap_err();
        file.read_blocking((1 << 20) - 2, 3).unwrap_err();
        file.discard(0, 1 << 20).unwrap();
        assert_eq!(&*file.read_blocking(100, 3).unwrap(), [0; 3]);
    }
}
