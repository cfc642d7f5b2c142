//! Data side: the state of each tag.
//!
//! Job: a tag is fetched (the kernel has it), loading (the bytes of a write are being transferred to us), serving (the
//! driver has the request), replying (the bytes of a read are being transferred to the kernel), or gone. Every
//! transition is an operation for the driver's ring, or a request for the driver.
//!
//! Invariants: a request that was handed out is completed once with [`Server::complete`]; a tag is in one state; when
//! all are gone, the ring holds no operation of the device. The thread that fetches must be the one that completes.
//!
//! It does not own a ring, or interpret requests.
#![expect(unsafe_code, reason = "vouches for what the ublk driver does with addresses")]

use std::io;

use zc_core::{u64_from_usize, usize_from_u32, usize_from_u64};
use zc_io::{AlignedBuf, CommandMemory, DeviceCommand, Memory, Operation, Segment, SharedFd, Target};
use zerocopy::IntoBytes;

use crate::device::CharDevice;
use crate::options::CopyMode;
use crate::request::{Request, RequestOp};
use crate::uapi::{
    self, BUFFER_OFFSET, BUFFER_QUEUE_SHIFT, BUFFER_TAG_SHIFT, DataCommandHead, IoDescriptor, data,
};

const EIO: i32 = libc::EIO;

/// Serves one device.
#[derive(Debug)]
pub struct Server {
    link: Link,
    machine: Machine,
}

/// The device, or only its shape in tests.
#[derive(Debug)]
enum Link {
    Device(CharDevice),
    #[cfg(test)]
    Fake {
        fd: SharedFd,
        descriptor: IoDescriptor,
    },
}

/// Next action for a tag.
#[derive(Debug)]
pub enum TagAction {
    /// Submit the operation to the ring; pass its completion to [`Server::ended`].
    Submit(Operation),
    /// Serve the request, then call [`Server::complete`]. A write comes with its bytes.
    Serve {
        /// Request.
        request: Request,
        /// Bytes of a write.
        memory: Option<AlignedBuf>,
    },
    /// The kernel revoked the tag. It is not used again.
    Gone,
}

#[derive(Debug)]
struct Machine {
    copy: CopyMode,
    depth: u16,
    size_bytes: u64,
    request_bytes_max: u32,
    tags: Vec<Tag>,
    gone: usize,
    /// Valid address for commands whose address the driver ignores.
    nothing: Segment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    /// Not fetched yet.
    Idle,
    /// Held by the kernel.
    Fetched,
    /// The bytes of its write are being copied.
    Loading(Request),
    /// Held by the driver.
    Serving(Request),
    /// The bytes of its read are being copied; the result follows.
    Replying(i32),
    /// Revoked by the kernel.
    Gone,
}

impl Server {
    /// Creates a server of an open device of `size_bytes`.
    ///
    /// # Panics
    /// When the device has neither of the copy modes; check with `DeviceInfo::is_servable`.
    #[must_use]
    pub fn new(device: CharDevice, size_bytes: u64) -> Self {
        let info = *device.info();
        assert!(info.is_servable(), "the memory of a request is chosen after it was seen");
        let machine =
            Machine::new(info.copy_mode(), info.queues, info.depth, size_bytes, info.request_bytes_max);
        Self { link: Link::Device(device), machine }
    }

    /// Returns the number of the device.
    #[must_use]
    pub const fn id(&self) -> u32 {
        match &self.link {
            Link::Device(device) => device.info().id,
            #[cfg(test)]
            Link::Fake { .. } => 0,
        }
    }

    /// Extends the range of valid requests. It never shrinks: requests that were valid when issued are served.
    pub fn grow(&mut self, size_bytes: u64) {
        self.machine.size_bytes = self.machine.size_bytes.max(size_bytes);
    }

    /// Returns every tag of every queue.
    pub fn tags(&self) -> impl Iterator<Item = (u16, u16)> + use<> {
        let depth = self.machine.depth;
        let queues = u16::try_from(self.machine.tags.len() / usize::from(depth)).unwrap_or(u16::MAX);
        (0..queues).flat_map(move |queue| (0..depth).map(move |tag| (queue, tag)))
    }

    /// Returns `true` if the kernel has revoked all tags.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.machine.gone == self.machine.tags.len()
    }

    /// Hands a tag to the kernel for the first time.
    ///
    /// # Panics
    /// When it was handed over before.
    #[must_use]
    pub fn fetch(&mut self, queue: u16, tag: u16) -> Operation {
        let state = self.machine.tag(queue, tag);
        assert_eq!(*state, Tag::Idle, "a tag is fetched for the first time once");
        *state = Tag::Fetched;
        self.command(data::FETCH, queue, tag, 0, CommandMemory::None)
    }

    /// Processes the completion of a tag's operation. `memory` allocates at least the given number of bytes.
    pub fn ended(
        &mut self,
        queue: u16,
        tag: u16,
        result: io::Result<usize>,
        operation: Operation,
        memory: impl FnOnce(usize) -> AlignedBuf,
    ) -> TagAction {
        let state = *self.machine.tag(queue, tag);
        match (state, result) {
            (Tag::Fetched, Ok(value)) => self.fetched(queue, tag, value, memory),
            (Tag::Loading(request), Ok(_)) => {
                let Some(Memory::Buf(memory)) = operation.into_target().map(Target::into_memory) else {
                    unreachable!("a write is loaded into a whole buffer")
                };
                *self.machine.tag(queue, tag) = Tag::Serving(request);
                TagAction::Serve { request, memory: Some(memory) }
            }
            (Tag::Replying(result), Ok(_)) => self.commit(queue, tag, result, CommandMemory::None),
            // Copies by reads and writes: the request fails, the tag remains valid.
            (Tag::Loading(_) | Tag::Replying(_), Err(error)) if self.machine.copy == CopyMode::UserCopy => {
                self.commit(queue, tag, -error.raw_os_error().unwrap_or(EIO), CommandMemory::None)
            }
            // A command fails when the device stops, is taken over by another process, or its request was aborted.
            (Tag::Fetched | Tag::Loading(_) | Tag::Replying(_), Err(_)) => {
                *self.machine.tag(queue, tag) = Tag::Gone;
                self.machine.gone += 1;
                TagAction::Gone
            }
            (Tag::Idle | Tag::Serving(_) | Tag::Gone, _) => {
                panic!("tag {tag} of queue {queue} has no operation that could end: {state:?}")
            }
        }
    }

    /// Processes a fetched request.
    fn fetched(
        &mut self,
        queue: u16,
        tag: u16,
        value: usize,
        memory: impl FnOnce(usize) -> AlignedBuf,
    ) -> TagAction {
        let raw = self.descriptor(queue, tag);
        let machine = &self.machine;
        let Some(request) = Request::of(&raw, machine.size_bytes, machine.request_bytes_max) else {
            return self.commit(queue, tag, -libc::EOPNOTSUPP, CommandMemory::None);
        };
        let is_write = request.op == RequestOp::Write;
        let expected = if is_write && machine.copy == CopyMode::InCommand {
            uapi::RES_NEED_GET_DATA
        } else {
            uapi::RES_OK
        };
        if value != expected {
            return self.commit(queue, tag, -EIO, CommandMemory::None);
        }
        if !is_write {
            *self.machine.tag(queue, tag) = Tag::Serving(request);
            return TagAction::Serve { request, memory: None };
        }
        *self.machine.tag(queue, tag) = Tag::Loading(request);
        let len_bytes = usize_from_u64(request.len_bytes);
        let memory = memory(len_bytes);
        assert_eq!(memory.len(), len_bytes, "memory is as long as asked for");
        let target = Target::whole(memory);
        TagAction::Submit(match self.machine.copy {
            CopyMode::InCommand => {
                self.command(data::NEED_GET_DATA, queue, tag, 0, CommandMemory::Into(target))
            }
            CopyMode::UserCopy => {
                Operation::Read { fd: SharedFd::clone(self.fd()), offset: buffer_offset(queue, tag), target }
            }
        })
    }

    /// Completes a request: success, or an errno; a successful read with its bytes.
    ///
    /// # Panics
    /// When the request was not handed out, or the number of bytes is wrong.
    #[must_use]
    pub fn complete(&mut self, queue: u16, tag: u16, result: Result<Option<Segment>, i32>) -> TagAction {
        let Tag::Serving(request) = *self.machine.tag(queue, tag) else {
            panic!("tag {tag} of queue {queue} is completed but was not handed out")
        };
        let moved = i32::try_from(request.len_bytes).unwrap_or(i32::MAX);
        match (result, request.op) {
            (Err(errno), _) => self.commit(queue, tag, -errno.max(1), CommandMemory::None),
            (Ok(Some(segment)), RequestOp::Read) => {
                assert_eq!(
                    u64_from_usize(segment.len_bytes()),
                    request.len_bytes,
                    "a read has all its bytes"
                );
                match self.machine.copy {
                    CopyMode::InCommand => self.commit(queue, tag, moved, CommandMemory::From(segment)),
                    CopyMode::UserCopy => {
                        *self.machine.tag(queue, tag) = Tag::Replying(moved);
                        let (fd, offset) = (SharedFd::clone(self.fd()), buffer_offset(queue, tag));
                        TagAction::Submit(Operation::Write {
                            fd,
                            offset,
                            segments: vec![segment],
                            durable: false,
                        })
                    }
                }
            }
            (Ok(_), RequestOp::Read) => panic!("a read that was served has bytes"),
            (Ok(_), RequestOp::Write) => self.commit(queue, tag, moved, CommandMemory::None),
            (Ok(_), _) => self.commit(queue, tag, 0, CommandMemory::None),
        }
    }

    fn commit(&mut self, queue: u16, tag: u16, result: i32, memory: CommandMemory) -> TagAction {
        *self.machine.tag(queue, tag) = Tag::Fetched;
        // The driver refuses the completion of a READ without an address, also of a failed one without bytes; the tag
        // would be lost, and its user would wait forever. The other copy mode requires none.
        let memory = match (memory, self.machine.copy) {
            (CommandMemory::None, CopyMode::InCommand) if result < 0 => {
                CommandMemory::From(self.machine.nothing.clone())
            }
            (memory, _) => memory,
        };
        TagAction::Submit(self.command(data::COMMIT_AND_FETCH, queue, tag, result, memory))
    }

    fn command(&self, code: u32, queue: u16, tag: u16, result: i32, memory: CommandMemory) -> Operation {
        let head = DataCommandHead { q_id: queue, tag, result };
        let mut bytes = [0; 8];
        bytes.copy_from_slice(head.as_bytes());
        // SAFETY: with NEED_GET_DATA, which the constructor asserted unless USER_COPY is set and no address given, the
        // driver reads the address of a commit only for a READ that did not fail, as many bytes as that asked for and as
        // `complete` asserted, within the submission; and writes the address of GET_DATA only until that command ends,
        // as many bytes as the write has, which is the target's length.
        let command = unsafe { DeviceCommand::new(code, bytes, memory) };
        Operation::Command { fd: SharedFd::clone(self.fd()), command }
    }

    const fn fd(&self) -> &SharedFd {
        match &self.link {
            Link::Device(device) => device.fd(),
            #[cfg(test)]
            Link::Fake { fd, .. } => fd,
        }
    }

    fn descriptor(&self, queue: u16, tag: u16) -> IoDescriptor {
        match &self.link {
            Link::Device(device) => device.descriptor(queue, tag),
            #[cfg(test)]
            Link::Fake { descriptor, .. } => *descriptor,
        }
    }
}

impl Machine {
    fn new(copy: CopyMode, queues: u16, depth: u16, size_bytes: u64, request_bytes_max: u32) -> Self {
        let tags = vec![Tag::Idle; usize::from(queues) * usize::from(depth)];
        let nothing = Segment::whole([0; 8].as_slice());
        Self { copy, depth, size_bytes, request_bytes_max, tags, gone: 0, nothing }
    }

    fn tag(&mut self, queue: u16, tag: u16) -> &mut Tag {
        assert!(tag < self.depth, "tag {tag} of a queue of {}", self.depth);
        let index = usize::from(queue) * usize::from(self.depth) + usize::from(tag);
        let Some(state) = self.tags.get_mut(index) else { panic!("queue {queue} does not exist") };
        state
    }
}

/// Returns the offset of a tag's data in the file of the character device.
fn buffer_offset(queue: u16, tag: u16) -> u64 {
    BUFFER_OFFSET + (u64::from(queue) << BUFFER_QUEUE_SHIFT) + (u64::from(tag) << BUFFER_TAG_SHIFT)
}

const _: () = assert!(zc_core::limits::REQUEST_BYTES_MAX <= 1 << BUFFER_TAG_SHIFT);
const _: () = assert!(usize_from_u32(zc_core::limits::REQUEST_BYTES_MAX) <= zc_io::limits::BUF_BYTES_MAX);

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
