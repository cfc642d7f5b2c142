//! Control side: one command at a time over a ring of its own.
//!
//! Job: submit a command to /dev/ublk-control, wait for its completion up to a deadline, and report errors.
//!
//! Invariants: memory of a command that timed out is never freed, and no further command is tried: the kernel executes
//! them one after the other, under one lock.
//!
//! It does not run on the data path. It blocks, and belongs on a thread of its own, because a device serves requests
//! while it is being started.
#![expect(unsafe_code, reason = "hands pointers to the kernel")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::fs::{Mode, OFlags};
use zc_core::{SECTOR_BYTES, u64_from_usize};
use zerocopy::IntoBytes;

use crate::error::UblkError;
use crate::limits::{CONTROL_MS, CPU_SET_BYTES, START_MS, STOP_MS};
use crate::options::{DeviceInfo, DeviceOptions, Features};
use crate::uapi::{ControlCommand, RawDeviceInfo, control};

const CONTROL_PATH: &str = "/dev/ublk-control";

/// The control device, opened.
pub struct Controller {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    fd: OwnedFd,
    /// `true` after a command timed out.
    is_stuck: bool,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").field("is_stuck", &self.is_stuck).finish_non_exhaustive()
    }
}

/// A command, with its name for error messages.
struct Command<'a> {
    code: u32,
    what: &'static str,
    head: ControlCommand,
    buffer: &'a mut [u8],
    limit_ms: u64,
}

impl<'a> Command<'a> {
    fn new(code: u32, what: &'static str, dev_id: u32, buffer: &'a mut [u8]) -> Self {
        // Commands that concern no queue carry the largest number.
        let head = ControlCommand { dev_id, queue_id: u16::MAX, ..ControlCommand::default() };
        Self { code, what, head, buffer, limit_ms: CONTROL_MS }
    }

    fn data(mut self, data: u64) -> Self {
        self.head.data = data;
        self
    }

    fn within(mut self, limit_ms: u64) -> Self {
        self.limit_ms = limit_ms;
        self
    }

    fn place(&self) -> String {
        if self.head.dev_id == u32::MAX {
            "a ublk device".to_owned()
        } else {
            format!("ublk device {}", self.head.dev_id)
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "bounds how long a control command is waited for, decides nothing else"
)]
fn now() -> Instant {
    Instant::now()
}

impl Controller {
    /// Opens the control device.
    ///
    /// # Errors
    /// When something is missing; the message has the remedy.
    pub fn open() -> Result<Self, UblkError> {
        let fd = rustix::fs::open(CONTROL_PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| refused_open(errno.into()))?;
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder().dontfork().build(4).map_err(|source| {
            UblkError::Unavailable(format!(
                "io_uring with large entries cannot be used ({source}); see the sysctl kernel.io_uring_disabled and the \
                 seccomp profile of the container"
            ))
        })?;
        Ok(Self { ring, fd, is_stuck: false })
    }

    /// Returns the features of the driver.
    ///
    /// # Errors
    /// When it is too old for the query, or refuses.
    pub fn features(&mut self) -> Result<Features, UblkError> {
        let mut bytes = [0; 8];
        let command = Command::new(control::GET_FEATURES, "ask for the features of", u32::MAX, &mut bytes);
        match self.execute(command) {
            Ok(()) => {
                #[expect(clippy::host_endian_bytes, reason = "the kernel writes a native integer")]
                let features = u64::from_ne_bytes(bytes);
                Ok(Features(features))
            }
            Err(error) if matches!(error.errno(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => {
                let text = "the ublk driver of this kernel is too old; Linux 6.5 or newer is needed";
                Err(UblkError::Unavailable(text.to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    /// Adds a device: its character device exists afterwards, its block device not yet.
    ///
    /// # Errors
    /// When the options are out of bounds or the kernel refuses.
    pub fn add(&mut self, options: &DeviceOptions) -> Result<DeviceInfo, UblkError> {
        options.check()?;
        let mut raw = options.raw_info();
        let id = raw.dev_id;
        self.execute(Command::new(control::ADD_DEV, "add", id, raw.as_mut_bytes()))?;
        let info = DeviceInfo::of(&raw);
        let mut params = options.raw_params();
        match self.execute(Command::new(control::SET_PARAMS, "set the parameters of", info.id, &mut params)) {
            Ok(()) => Ok(info),
            Err(error) => {
                // A partially created device is removed. The original error matters more than a failed removal.
                let _removed = self.delete(info.id);
                Err(error)
            }
        }
    }

    /// Returns the kernel's description of a device; `None` if the number is unused.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn info(&mut self, id: u32) -> Result<Option<DeviceInfo>, UblkError> {
        let mut raw = RawDeviceInfo::default();
        match self.execute(Command::new(control::GET_DEV_INFO, "look at", id, raw.as_mut_bytes())) {
            Ok(()) => Ok(Some(DeviceInfo::of(&raw))),
            Err(error) if matches!(error.errno(), Some(libc::ENODEV | libc::EINVAL)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the CPUs that send requests to a queue, as a list such as `0-3,8`.
    ///
    /// # Errors
    /// When there is no such queue, or the kernel refuses.
    pub fn queue_cpus(&mut self, id: u32, queue: u16) -> Result<String, UblkError> {
        let mut set = [0; CPU_SET_BYTES];
        let command = Command::new(control::GET_QUEUE_AFFINITY, "ask for the CPUs of", id, &mut set);
        self.execute(command.data(queue.into()))?;
        Ok(cpu_list(&set))
    }

    /// Creates the block device. All tags must be fetched and requests served at the same time, because the kernel
    /// scans for partitions.
    ///
    /// # Errors
    /// When the kernel refuses, or the device did not answer in time.
    pub fn start(&mut self, id: u32, pid: u32) -> Result<(), UblkError> {
        self.execute(Command::new(control::START_DEV, "start", id, &mut []).data(pid.into()).within(START_MS))
    }

    /// Removes the block device; its requests complete, and all fetches fail with ENODEV.
    ///
    /// # Errors
    /// When the kernel refuses, or requests do not complete in time.
    pub fn stop(&mut self, id: u32) -> Result<(), UblkError> {
        self.execute(Command::new(control::STOP_DEV, "stop", id, &mut []).within(STOP_MS))
    }

    /// Removes a device that is stopped. If a program still has it open, it vanishes when that program closes it.
    ///
    /// # Errors
    /// When the kernel refuses, or on one before Linux 6.9 a program keeps it open.
    pub fn delete(&mut self, id: u32) -> Result<(), UblkError> {
        match self.execute(Command::new(control::DEL_DEV_ASYNC, "remove", id, &mut [])) {
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => {
                self.execute(Command::new(control::DEL_DEV, "remove", id, &mut []))
            }
            result => result,
        }
    }

    /// Notifies the users of a block device of a new size. Requests up to that size must be served already.
    ///
    /// # Errors
    /// When the size is not whole sectors, or the kernel cannot or refuses ([`Features::can_resize`]).
    pub fn resize(&mut self, id: u32, size_bytes: u64) -> Result<(), UblkError> {
        if size_bytes == 0 || !size_bytes.is_multiple_of(u64::from(SECTOR_BYTES)) {
            return Err(UblkError::Invalid(format!("{size_bytes} bytes are not whole sectors")));
        }
        let sectors = size_bytes / u64::from(SECTOR_BYTES);
        self.execute(Command::new(control::UPDATE_SIZE, "resize", id, &mut []).data(sectors))
    }

    /// Starts the recovery of a quiesced device. Its character device must be opened and all tags fetched afterwards.
    ///
    /// # Errors
    /// When the kernel refuses: EBUSY until the previous process is completely gone.
    pub fn begin_recovery(&mut self, id: u32) -> Result<(), UblkError> {
        self.execute(Command::new(control::START_USER_RECOVERY, "take over", id, &mut []))
    }

    /// Completes the recovery: requests of the previous process are issued again.
    ///
    /// # Errors
    /// When the kernel refuses, or the device did not answer in time.
    pub fn end_recovery(&mut self, id: u32, pid: u32) -> Result<(), UblkError> {
        let command = Command::new(control::END_USER_RECOVERY, "bring back", id, &mut []);
        self.execute(command.data(pid.into()).within(START_MS))
    }

    /// Runs a command to completion, up to its deadline.
    fn execute(&mut self, command: Command<'_>) -> Result<(), UblkError> {
        if self.is_stuck {
            return Err(UblkError::Stuck);
        }
        let place = command.place();
        let Command { code, what, mut head, buffer: answer, limit_ms } = command;
        // A separate allocation: if the command times out, this memory is leaked.
        let mut buffer: Box<[u8]> = answer.to_vec().into_boxed_slice();
        head.len = u16::try_from(buffer.len()).unwrap_or(u16::MAX);
        head.addr =
            if buffer.is_empty() { 0 } else { u64_from_usize(buffer.as_mut_ptr().expose_provenance()) };
        match self.round_trip(code, &head, limit_ms) {
            Ok(Some(result)) if result >= 0 => {
                answer.copy_from_slice(&buffer);
                Ok(())
            }
            Ok(Some(result)) => {
                Err(UblkError::Command { what, place, source: io::Error::from_raw_os_error(-result) })
            }
            Ok(None) => {
                self.is_stuck = true;
                let _stays_with_the_kernel = Box::leak(buffer);
                Err(UblkError::TimedOut { what, place, ms: limit_ms })
            }
            Err(source) => {
                self.is_stuck = true;
                let _stays_with_the_kernel = Box::leak(buffer);
                Err(UblkError::Command { what, place, source })
            }
        }
    }

    /// Returns the result of a command; `None`: it timed out.
    fn round_trip(&mut self, code: u32, head: &ControlCommand, limit_ms: u64) -> io::Result<Option<i32>> {
        let mut argument = [0; 80];
        argument[..size_of::<ControlCommand>()].copy_from_slice(head.as_bytes());
        let entry = opcode::UringCmd80::new(types::Fd(self.fd.as_raw_fd()), code).cmd(argument).build();
        // SAFETY: the memory that the argument names is kept by `execute` until the result is here, or leaked.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let deadline = now() + Duration::from_millis(limit_ms);
        loop {
            if let Some(entry) = self.ring.completion().next() {
                return Ok(Some(entry.result()));
            }
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                return Ok(None);
            }
            let time = types::Timespec::from(left);
            match self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&time)) {
                Ok(_) => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn refused_open(source: io::Error) -> UblkError {
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => UblkError::Unavailable(format!(
            "there is no {CONTROL_PATH}: load the driver with `modprobe ublk_drv`; a kernel without it needs \
             CONFIG_BLK_DEV_UBLK, which Linux has since 6.0 (6.5 is needed)"
        )),
        Some(libc::EACCES | libc::EPERM) => UblkError::Unavailable(format!(
            "{CONTROL_PATH} may not be opened by this process: it has to be root, with CAP_SYS_ADMIN"
        )),
        _ => UblkError::File { what: "open", place: CONTROL_PATH.to_owned(), source },
    }
}

/// Formats a set of CPUs; the lowest CPU is the lowest bit of the first byte, as on every little-endian machine.
fn cpu_list(set: &[u8]) -> String {
    let has = |cpu: usize| set.get(cpu / 8).is_some_and(|byte| byte & (1 << (cpu % 8)) != 0);
    let mut ranges: Vec<String> = Vec::new();
    let mut cpu = 0;
    while cpu < 8 * set.len() {
        let first = cpu;
        while has(cpu) {
            cpu += 1;
        }
        match cpu - first {
            0 => cpu += 1,
            1 => ranges.push(first.to_string()),
            _ => ranges.push(format!("{first}-{}", cpu - 1)),
        }
    }
    ranges.join(",")
}

/// Reads a structure as the kernel left it.
#[cfg(test)]
fn info_of(bytes: &[u8]) -> DeviceInfo {
    DeviceInfo::of(&zerocopy::FromBytes::read_from_bytes(bytes).unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::DeviceState;

    #[test]
    fn refusals_say_what_helps() {
        let text = |errno| refused_open(io::Error::from_raw_os_error(errno)).to_string();
        assert!(text(libc::ENOENT).contains("modprobe ublk_drv"));
        assert!(text(libc::EACCES).contains("CAP_SYS_ADMIN"));
        assert!(text(libc::EIO).starts_with("cannot open /dev/ublk-control"));
    }

    #[test]
    fn sets_of_cpus_are_told_as_ranges() {
        assert_eq!(cpu_list(&[0; 16]), "");
        assert_eq!(cpu_list(&[1]), "0");
        assert_eq!(cpu_list(&[0b1000_1111, 0b0000_0011, 0, 0x80]), "0-3,7-9,31");
        assert_eq!(cpu_list(&[0xff; CPU_SET_BYTES]), "0-8191");
    }

    #[test]
    fn fields_are_where_the_kernel_puts_them() {
        let mut bytes = [0_u8; 64];
        bytes[0] = 2; // nr_hw_queues
        bytes[2] = 128; // queue_depth
        bytes[4] = 2; // state
        bytes[12] = 5; // dev_id
        bytes[32] = 9; // ublksrv_flags
        let info = info_of(&bytes);
        assert_eq!((info.queues, info.depth, info.state), (2, 128, DeviceState::Quiesced));
        assert_eq!((info.id, info.stamp, info.path().as_str()), (5, 9, "/dev/ublkb5"));
    }
}
