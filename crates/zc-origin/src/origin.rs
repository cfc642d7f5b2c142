//! A file or block device as origin.
//!
//! Direct or buffered: an origin opened for direct I/O bypasses the page cache for all writes if its blocks are 512
//! bytes (the unit of requests), and uses it for all writes if they are larger, because unaligned writes would need it
//! and the two must not overlap in one page. Reads bypass the page cache if offset, length and memory are aligned; the
//! kernel makes completed buffered writes visible to them.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use zc_core::{ErrorKind, SECTOR_BYTES, u64_from_usize, usize_from_u32, usize_from_u64};
use zc_io::{
    AlignedBuf, BlockFile, FallocateMode, FileKind, Identity, IoError, OpenOptions, Operation, Segment,
    SharedBuf, SharedFd, Target, kind_of,
};

use crate::error::{OriginError, RequestClass};
use crate::job::{Finished, Job, JobStep, OriginRequest, Stage};

/// Bytes of zeros per write where the origin has no faster operation.
const ZERO_PIECE_BYTES: usize = 1 << 20;

/// Options of opening an origin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OriginOptions {
    /// For writing; otherwise writes, trims and zero writes are refused.
    pub write: bool,
    /// Direct I/O. `None`: for block devices, not for files.
    pub direct: Option<bool>,
    /// Create the file, sparse, with this length if it does not exist.
    pub create_len: Option<u64>,
}

/// Capabilities of an origin. Trim and zero start as supported, and are cleared when the origin refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OriginCaps {
    /// Trims reach the device; otherwise they do nothing and succeed.
    pub can_trim: bool,
    /// Zero writes that may leave holes are fast.
    pub can_punch: bool,
    /// Zero writes that keep the space are fast.
    pub can_zero: bool,
    /// A write can be durable by itself; otherwise it is followed by a flush.
    pub fua: bool,
    /// The device spins, if known.
    pub rotational: Option<bool>,
    /// Writes bypass the page cache.
    pub direct_writes: bool,
    /// Opened for writing.
    pub writable: bool,
}

/// An open origin.
#[derive(Debug)]
pub struct Origin {
    file: BlockFile,
    buffered: SharedFd,
    len_bytes: u64,
    caps: OriginCaps,
    zeros: Option<SharedBuf>,
    /// Every request is refused.
    withdrawn: bool,
}

/// Measures an origin on any thread, because an unreachable file server blocks for a long time.
#[derive(Debug, Clone)]
pub struct LengthProbe {
    fd: SharedFd,
    kind: FileKind,
}

impl LengthProbe {
    /// Returns the current length, a multiple of 512. Blocks.
    ///
    /// # Errors
    /// When the origin is gone.
    pub fn measure(&self) -> io::Result<u64> {
        let len_bytes = zc_io::length_of(&*self.fd, self.kind)?;
        Ok(len_bytes - len_bytes % u64::from(SECTOR_BYTES))
    }
}

impl Origin {
    /// Opens a file or block device as origin, exclusively if for writing.
    ///
    /// # Errors
    /// When it cannot be opened, or does not end with a whole sector; the text says why.
    pub fn open(path: &Path, options: OriginOptions) -> Result<Self, IoError> {
        let is_block = std::fs::metadata(path)
            .is_ok_and(|metadata| std::os::unix::fs::FileTypeExt::is_block_device(&metadata.file_type()));
        let direct = options.direct.unwrap_or(is_block);
        let open = OpenOptions { direct, write: options.write, create_len: options.create_len };
        let file = BlockFile::open(path, open)?;
        let buffered = file.buffered_fd()?;
        let caps = OriginCaps {
            can_trim: true,
            can_punch: true,
            can_zero: true,
            fua: true,
            rotational: file.is_rotational(),
            direct_writes: file.is_direct() && file.block_bytes() <= SECTOR_BYTES,
            writable: options.write,
        };
        let len_bytes = whole_sectors(path, file.len_bytes())?;
        Ok(Self { file, buffered, len_bytes, caps, zeros: None, withdrawn: false })
    }

    /// Length in bytes, a multiple of 512.
    #[must_use]
    pub const fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Returns the current length, a multiple of 512; first extends a file to `at_least_bytes`. Requests stay within
    /// the previous length until [`Self::take_up_length`].
    ///
    /// # Errors
    /// When the origin is gone, does not end with a whole sector, or cannot be extended: a device, opened for reading,
    /// no space.
    pub fn measure(&self, at_least_bytes: Option<u64>) -> Result<u64, IoError> {
        if let Some(wanted) = at_least_bytes
            && self.file.len_now_bytes()? < wanted
        {
            self.file.extend(wanted)?;
        }
        whole_sectors(self.path(), self.file.len_now_bytes()?)
    }

    /// Returns a handle that measures the origin on another thread.
    #[must_use]
    pub fn length_probe(&self) -> LengthProbe {
        LengthProbe { fd: SharedFd::clone(&self.buffered), kind: self.file.kind() }
    }

    /// Fails every later request until the origin is closed: it is no longer the origin that was opened.
    pub const fn withdraw(&mut self) {
        self.withdrawn = true;
    }

    /// Extends the range of valid requests. It never shrinks.
    pub fn take_up_length(&mut self, len_bytes: u64) {
        self.len_bytes = self.len_bytes.max(len_bytes);
    }

    /// Returns the block size of the origin's own requests: 512 for files, the logical block for devices.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        match self.file.kind() {
            FileKind::Block => self.file.block_bytes(),
            FileKind::Regular => SECTOR_BYTES,
        }
    }

    /// Returns the capabilities detected so far.
    #[must_use]
    pub const fn caps(&self) -> OriginCaps {
        self.caps
    }

    /// Returns a descriptor that uses the page cache, for queries about the file.
    #[must_use]
    pub const fn fd(&self) -> &SharedFd {
        &self.buffered
    }

    /// Returns the path as configured.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns `true` if it was created by the open.
    #[must_use]
    pub const fn is_created(&self) -> bool {
        self.file.is_created()
    }

    /// Returns the identity for pairing with a cache: see [`crate::compare`].
    ///
    /// # Errors
    /// When the device is gone.
    pub fn identity(&self) -> Result<Identity, IoError> {
        self.file.identity()
    }

    /// Returns the sectors that all programs have written to or discarded on the device since it appeared; `None` for
    /// files, and where the kernel does not count.
    #[must_use]
    pub fn sectors_written(&self) -> Option<u64> {
        self.file.sectors_written()
    }

    /// Makes writes durable. Blocks; used at the end of a session.
    ///
    /// # Errors
    /// When the device fails.
    pub fn sync_blocking(&self) -> Result<(), IoError> {
        self.file.sync_blocking()
    }

    /// Reads. Blocks; used at start and end of a session. Direct if requests are direct: data written through a
    /// partition's node is not in the page cache of the whole device.
    ///
    /// # Errors
    /// When the device fails or ends earlier.
    pub fn read_blocking(&self, offset: u64, len_bytes: usize) -> Result<AlignedBuf, IoError> {
        let block = usize_from_u32(self.file.block_bytes());
        let is_aligned = offset.is_multiple_of(u64_from_usize(block)) && len_bytes.is_multiple_of(block);
        if is_aligned || !self.file.is_direct() {
            return self.file.read_blocking(offset, len_bytes);
        }
        let start = offset - offset % u64_from_usize(block);
        let before = usize_from_u64(offset - start);
        let wide = (before + len_bytes).next_multiple_of(block);
        let inside = usize_from_u64(self.file.len_bytes().saturating_sub(start)).min(wide);
        let bytes = self.file.read_blocking(start, inside)?;
        let mut wanted = AlignedBuf::new(len_bytes);
        match bytes.get(before..before + len_bytes) {
            Some(part) => wanted.copy_from_slice(part),
            None => return self.file.read_blocking(offset, len_bytes),
        }
        Ok(wanted)
    }

    /// Begins a request.
    pub fn start(&mut self, request: OriginRequest) -> JobStep {
        let class = request.class();
        let (offset, len) = request.extent();
        let job = Job { class, offset, len, stage: Stage::Flush };
        if let Some(kind) = self.objection(class, offset, len) {
            return self.refuse(&job, kind, request);
        }
        self.begin(job, request)
    }

    /// Continues a request after its operation completed.
    pub fn advance(&mut self, job: Job, result: io::Result<usize>, operation: Operation) -> JobStep {
        let errno = result.as_ref().err().and_then(Errno::from_io_error);
        let unsupported = errno == Some(Errno::OPNOTSUPP) || errno == Some(Errno::NOSYS);
        // Not aligned to the device's blocks, or pages of the range are in use.
        let momentary = errno == Some(Errno::INVAL) || errno == Some(Errno::BUSY);
        match job.stage {
            Stage::Read => self.after_read(job, result, operation),
            // Of concurrent ones, only the first still finds the capability set.
            Stage::Write { fua: true }
                if unsupported && matches!(operation, Operation::Write { durable: true, .. }) =>
            {
                self.caps.fua = false;
                self.write_again(job, operation)
            }
            Stage::Write { fua } if result.is_ok() && fua && !self.caps.fua => self.flush(job),
            Stage::ZeroAtOnce { no_hole, fua } if unsupported || momentary => {
                // Only a refusal in principle is recorded.
                if unsupported && no_hole {
                    self.caps.can_zero = false;
                } else if unsupported {
                    self.caps.can_punch = false;
                }
                self.write_zeros(job, fua)
            }
            Stage::ZeroByWriting { next, fua } if result.is_ok() => {
                if next < job.offset + job.len {
                    self.write_zeros_from(job, next, fua)
                } else {
                    self.end_or_flush(job, fua)
                }
            }
            Stage::Trim { fua } if unsupported || momentary => {
                // Trim is a hint; an origin that refuses it loses nothing.
                self.caps.can_trim &= !unsupported;
                self.end_or_flush(job, fua)
            }
            Stage::ZeroAtOnce { fua, .. } | Stage::Trim { fua } if result.is_ok() => {
                self.end_or_flush(job, fua)
            }
            _ => done(self.outcome(&job, result), None),
        }
    }

    /// Returns the reason why a request is invalid.
    fn objection(&self, class: RequestClass, offset: u64, len: u64) -> Option<ErrorKind> {
        if self.withdrawn {
            return Some(ErrorKind::Io);
        }
        let sector = u64::from(SECTOR_BYTES);
        let end = offset.checked_add(len);
        if !offset.is_multiple_of(sector) || !len.is_multiple_of(sector) || end.is_none() {
            return Some(ErrorKind::Invalid);
        }
        if matches!(class, RequestClass::Read | RequestClass::Flush) {
            return None;
        }
        if !self.caps.writable {
            return Some(ErrorKind::ReadOnly);
        }
        end.filter(|&end| end > self.len_bytes).map(|_| ErrorKind::Invalid)
    }

    fn refuse(&self, job: &Job, kind: ErrorKind, request: OriginRequest) -> JobStep {
        let target = if let OriginRequest::Read { target, .. } = request { Some(target) } else { None };
        done(Err(self.error(job, kind)), target)
    }

    fn begin(&mut self, mut job: Job, request: OriginRequest) -> JobStep {
        match request {
            OriginRequest::Read { offset, target } => self.read(job, offset, target),
            OriginRequest::Write { offset, segments, fua } => {
                job.stage = Stage::Write { fua };
                let segments = self.aligned(segments);
                let durable = fua && self.caps.fua;
                JobStep::Submit(job, Operation::Write { fd: self.write_fd(), offset, segments, durable })
            }
            OriginRequest::Flush => self.flush(job),
            OriginRequest::Trim { offset, len, fua } => self.trim(job, offset, len, fua),
            OriginRequest::WriteZeroes { offset, len, no_hole, fua } => {
                if len == 0 {
                    return self.end_or_flush(job, fua);
                }
                let (mode, able) = if no_hole {
                    (FallocateMode::ZeroRange, self.caps.can_zero)
                } else {
                    (FallocateMode::PunchHole, self.caps.can_punch)
                };
                if !able {
                    return self.write_zeros(job, fua);
                }
                job.stage = Stage::ZeroAtOnce { no_hole, fua };
                JobStep::Submit(
                    job,
                    Operation::Fallocate { fd: SharedFd::clone(self.file.fd()), mode, offset, len },
                )
            }
        }
    }

    fn read(&self, mut job: Job, offset: u64, mut target: Target) -> JobStep {
        job.stage = Stage::Read;
        let inside = usize_from_u64(self.len_bytes.saturating_sub(offset)).min(target.len_bytes());
        target.bytes_mut()[inside..].fill(0);
        if inside == 0 {
            return done(self.outcome(&job, Ok(())), Some(target));
        }
        target.set_len_bytes(inside);
        let block = self.file.block_bytes();
        let direct = self.file.is_direct()
            && offset.is_multiple_of(u64::from(block))
            && target.is_aligned(usize_from_u32(block));
        let fd = SharedFd::clone(if direct { self.file.fd() } else { &self.buffered });
        JobStep::Submit(job, Operation::Read { fd, offset, target })
    }

    fn after_read(&self, job: Job, result: io::Result<usize>, operation: Operation) -> JobStep {
        // A direct read that the file system refuses falls back to the page cache.
        let refused = result.as_ref().err().and_then(Errno::from_io_error) == Some(Errno::INVAL);
        let operation = match operation {
            Operation::Read { fd, offset, target } if refused && !fd.is_same(&self.buffered) => {
                let fd = SharedFd::clone(&self.buffered);
                return JobStep::Submit(job, Operation::Read { fd, offset, target });
            }
            other => other,
        };
        let Some(mut target) = operation.into_target() else { unreachable!("a read has a target") };
        target.set_len_bytes(usize_from_u64(job.len));
        done(self.outcome(&job, result), Some(target))
    }

    /// Repeats the write without the request for durability.
    fn write_again(&self, job: Job, operation: Operation) -> JobStep {
        let Operation::Write { fd, offset, segments, .. } = operation else {
            unreachable!("the operation of a write is a write");
        };
        JobStep::Submit(job, Operation::Write { fd, offset, segments, durable: false })
    }

    fn trim(&self, mut job: Job, offset: u64, len: u64, fua: bool) -> JobStep {
        let is_block = self.file.kind() == FileKind::Block;
        // Devices accept whole blocks; partial blocks at the edges stay unchanged.
        let unit = if is_block { u64::from(self.file.block_bytes()) } else { 1 };
        let start = offset.next_multiple_of(unit);
        let end = (offset + len) / unit * unit;
        if !self.caps.can_trim || start >= end {
            return self.end_or_flush(job, fua);
        }
        job.stage = Stage::Trim { fua };
        let (fd, offset, len) = (SharedFd::clone(self.file.fd()), start, end - start);
        let mode = FallocateMode::PunchHole;
        let operation = if is_block {
            Operation::Discard { fd, offset, len }
        } else {
            Operation::Fallocate { fd, mode, offset, len }
        };
        JobStep::Submit(job, operation)
    }

    fn write_zeros(&mut self, job: Job, fua: bool) -> JobStep {
        let offset = job.offset;
        self.write_zeros_from(job, offset, fua)
    }

    fn write_zeros_from(&mut self, mut job: Job, offset: u64, fua: bool) -> JobStep {
        let left = usize_from_u64(job.offset + job.len - offset);
        let len = left.min(ZERO_PIECE_BYTES);
        job.stage = Stage::ZeroByWriting { next: offset + u64_from_usize(len), fua };
        let zeros = self.zeros.get_or_insert_with(|| AlignedBuf::new(ZERO_PIECE_BYTES).into_shared());
        let segments = vec![Segment::new(zeros.clone(), 0..len)];
        // One flush at the end instead of a durable write per piece.
        JobStep::Submit(job, Operation::Write { fd: self.write_fd(), offset, segments, durable: false })
    }

    fn end_or_flush(&self, job: Job, fua: bool) -> JobStep {
        if fua { self.flush(job) } else { done(self.outcome(&job, Ok(())), None) }
    }

    fn flush(&self, mut job: Job) -> JobStep {
        job.stage = Stage::Flush;
        JobStep::Submit(job, Operation::Fsync { fd: SharedFd::clone(self.file.fd()), datasync: true })
    }

    /// Descriptor of all writes. Everything else uses the descriptor that holds the device exclusively: a fallocate
    /// through another one is refused (EBUSY) while the page cache holds dirty pages of the range.
    fn write_fd(&self) -> SharedFd {
        SharedFd::clone(if self.caps.direct_writes { self.file.fd() } else { &self.buffered })
    }

    /// Copies segments whose memory is not aligned for direct I/O.
    fn aligned(&self, segments: Vec<Segment>) -> Vec<Segment> {
        let sector = usize_from_u32(SECTOR_BYTES);
        if !self.caps.direct_writes || segments.iter().all(|segment| segment.is_aligned(sector)) {
            return segments;
        }
        let total = segments.iter().map(Segment::len_bytes).sum();
        let mut copy = AlignedBuf::new(total);
        let mut at = 0;
        for segment in &segments {
            copy[at..at + segment.len_bytes()].copy_from_slice(segment.bytes());
            at += segment.len_bytes();
        }
        vec![Segment::whole(copy)]
    }

    fn outcome<T>(&self, job: &Job, result: io::Result<T>) -> Result<(), OriginError> {
        match result {
            Ok(_) => Ok(()),
            Err(error) => Err(self.error(job, kind_of(&error)).with_source(error)),
        }
    }

    fn error(&self, job: &Job, kind: ErrorKind) -> OriginError {
        OriginError::new(kind, job.class, self.file.path(), job.offset, job.len)
    }
}

/// Returns the length of an origin that ends with a whole sector. A partial sector would be invisible to clients, and
/// their writes to it would have no place.
fn whole_sectors(path: &Path, len_bytes: u64) -> Result<u64, IoError> {
    let rest = len_bytes % u64::from(SECTOR_BYTES);
    if rest == 0 {
        return Ok(len_bytes);
    }
    let place = path.display().to_string();
    let reason = format!(
        "it has {len_bytes} bytes, which are not whole sectors of {SECTOR_BYTES}, and the last {rest} could not be served; \
         `truncate --size=%{SECTOR_BYTES} {place}` adds zeros up to a whole sector"
    );
    Err(IoError::new(ErrorKind::Invalid, "use", place, reason))
}

fn done(result: Result<(), OriginError>, target: Option<Target>) -> JobStep {
    JobStep::Done(Finished { result, target })
}
