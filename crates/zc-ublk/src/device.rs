//! Character device: mapped request descriptors, and the file of data commands.
//!
//! Invariants: the mapping is read-only, and read with volatile reads only, because the kernel writes it. A descriptor
//! is read after the completion that announces it, and the kernel does not change it until the request is completed.
#![expect(unsafe_code, reason = "maps memory that the kernel writes")]

use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use zc_core::u64_from_usize;
use zc_io::SharedFd;

use crate::error::UblkError;
use crate::options::DeviceInfo;
use crate::uapi::{DESCRIPTORS_STRIDE_BYTES, IoDescriptor};

/// An open character device.
#[derive(Debug)]
pub struct CharDevice {
    info: DeviceInfo,
    fd: SharedFd,
    queues: Vec<Descriptors>,
}

#[derive(Debug)]
struct Descriptors {
    base: NonNull<IoDescriptor>,
    len_bytes: usize,
    depth: u16,
}

// SAFETY: the mapping belongs to the process, not to a thread; `Descriptors` has no other state.
unsafe impl Send for Descriptors {}

impl Descriptors {
    fn map(fd: &SharedFd, queue: u16, depth: u16) -> rustix::io::Result<Self> {
        let len_bytes = (usize::from(depth) * size_of::<IoDescriptor>()).next_multiple_of(zc_io::PAGE_BYTES);
        let offset = u64_from_usize(usize::from(queue) * DESCRIPTORS_STRIDE_BYTES);
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else is there.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len_bytes,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                fd.as_fd(),
                offset,
            )
        }?;
        let Some(base) = NonNull::new(base.cast()) else { unreachable!("nothing is mapped at address 0") };
        Ok(Self { base, len_bytes, depth })
    }

    fn get(&self, tag: u16) -> IoDescriptor {
        assert!(tag < self.depth, "tag {tag} of a queue of {}", self.depth);
        // SAFETY: `tag` is below the number of descriptors that were mapped, asserted above.
        let place = unsafe { self.base.add(usize::from(tag)) };
        // SAFETY: mapped for reading until drop, aligned (24-byte steps from a page), any bytes are a descriptor.
        unsafe { place.read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made; nothing refers to it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len_bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping is unmapped as it was made");
    }
}

impl CharDevice {
    /// Opens the character device of a device that was added or is being recovered.
    ///
    /// # Errors
    /// When its node is missing, or another process holds it.
    pub fn open(info: DeviceInfo) -> Result<Self, UblkError> {
        let place = format!("/dev/ublkc{}", info.id);
        let fail = |what, errno: rustix::io::Errno| UblkError::File {
            what,
            place: place.clone(),
            source: errno.into(),
        };
        let fd = rustix::fs::open(&place, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| fail("open", errno))?;
        let fd = SharedFd::new(fd);
        let queues: Result<Vec<_>, _> =
            (0..info.queues).map(|queue| Descriptors::map(&fd, queue, info.depth)).collect();
        Ok(Self { info, queues: queues.map_err(|errno| fail("map", errno))?, fd })
    }

    /// Returns the device.
    #[must_use]
    pub const fn info(&self) -> &DeviceInfo {
        &self.info
    }

    pub(crate) const fn fd(&self) -> &SharedFd {
        &self.fd
    }

    pub(crate) fn descriptor(&self, queue: u16, tag: u16) -> IoDescriptor {
        let Some(queue) = self.queues.get(usize::from(queue)) else { panic!("queue {queue} does not exist") };
        queue.get(tag)
    }
}
