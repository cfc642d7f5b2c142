//! A bounded set of operations in flight over one io_uring.
//!
//! Job: [`Ring::submit`] takes an operation with its memory, [`Ring::submit_and_wait`] submits many with one system
//! call and collects completions. Operations beyond the submission queue's entries wait in our queue; those beyond the
//! ring's bound are returned as [`RingFull`], the signal for back-pressure.
//!
//! Invariants:
//! - An operation is in exactly one place: our queue, the kernel, or returned. Slots carry a generation, so that a
//!   result is never attributed to another operation.
//! - The completion queue has space for every operation of the ring. Results of cancellations come on top; the kernel
//!   buffers the overflow (IORING_FEAT_NODROP, required).
//! - No operation blocks another: any number of idle receives delays nothing.
//! - A wait polls the completion queue within the window of [`crate::poll`], then blocks in the kernel.
//! - `drop` cancels everything and waits until the kernel has returned every operation. If that fails, the memory is
//!   leaked rather than freed. So is that of device commands in the kernel, which only their device completes: `drop`
//!   does not wait for them.
//!
//! It is not shared. A ring belongs to its creating thread (the kernel is informed); other threads reach it through a
//! [`crate::Waker`].
#![expect(unsafe_code, reason = "hands pointers to the kernel")]

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use io_uring::{IoUring, Probe, opcode, squeue, types};
use zc_core::{ErrorKind, usize_from_u32};

use crate::error::IoError;
use crate::limits::{
    ENTER_ATTEMPTS_MAX, RING_ENTRIES_DEFAULT, RING_ENTRIES_MAX, RING_OPS_DEFAULT, RING_OPS_MAX,
};
use crate::operation::{Completion, Operation};
use crate::poll::{PollStats, PollWindow};
use crate::slot::{InFlight, Place, Verdict};

/// User data of cancellations, whose results the ring drops. Slots stay below [`RING_OPS_MAX`].
const CANCELLATION: u64 = u64::MAX;
/// IORING_ENTER_GETEVENTS of io_uring_enter(2).
const ENTER_GETEVENTS: u32 = 1;

/// Options of a ring.
#[derive(Debug, Clone, Copy)]
pub struct RingOptions {
    /// Entries of the submission queue, a power of two.
    pub entries: u32,
    /// Most operations in the ring at a time, queued ones included.
    pub ops_max: usize,
    /// Longest polling of the completion queue before a wait sleeps, in microseconds; 0: no polling.
    pub poll_max_us: u32,
}

impl Default for RingOptions {
    fn default() -> Self {
        Self { entries: RING_ENTRIES_DEFAULT, ops_max: RING_OPS_DEFAULT, poll_max_us: 0 }
    }
}

/// Wait for more results than required: one wake-up for many is cheaper than one each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gather {
    /// Desired results.
    pub count: usize,
    /// Microseconds after which fewer suffice.
    pub time_us: u32,
}

/// Features of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Completion work runs on request of the ring's thread (SINGLE_ISSUER, DEFER_TASKRUN; Linux 6.1).
    pub deferred: bool,
    /// Block devices discard through the ring (Linux 6.12 on most devices).
    pub commands: bool,
    /// Waits for many results with a minimum wait time (Linux 6.12); [`Gather`] has no effect without.
    pub gathering: bool,
}

/// The ring is full; the refused operation is returned.
#[derive(Debug, thiserror::Error)]
#[error("the ring is full")]
pub struct RingFull {
    /// The refused operation.
    pub operation: Box<Operation>,
}

/// An io_uring with its operations in flight.
pub struct Ring {
    uring: IoUring,
    features: Features,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    /// Slots waiting for space in the submission queue.
    queue: VecDeque<u32>,
    /// User data of operations to cancel.
    cancellations: VecDeque<u64>,
    /// Submitted entries without a result, cancellations included.
    kernel_entries: usize,
    poll: PollWindow,
    /// Not `Send`: the kernel accepts one submitting thread.
    thread: PhantomData<*const ()>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    content: Option<InFlight>,
}

fn user_data(index: u32, generation: u32) -> u64 {
    (u64::from(generation) << 32) | u64::from(index)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one clock of this crate: bounds waiting, decides nothing else"
)]
fn now() -> Instant {
    Instant::now()
}

fn elapsed_us(begun: Instant) -> u64 {
    u64::try_from(now().saturating_duration_since(begun).as_micros()).unwrap_or(u64::MAX)
}

impl Ring {
    /// Creates a ring for this thread.
    ///
    /// # Errors
    /// When the options exceed [`crate::limits`], or the kernel has no io_uring, or denies it to this process; the
    /// message says which.
    pub fn new(options: RingOptions) -> Result<Self, IoError> {
        if !(1..=RING_ENTRIES_MAX).contains(&options.entries)
            || !(1..=RING_OPS_MAX).contains(&options.ops_max)
        {
            let reason = format!(
                "{options:?} is out of 1..={RING_ENTRIES_MAX} entries, 1..={RING_OPS_MAX} operations"
            );
            return Err(IoError::new(ErrorKind::Invalid, "create", "an io_uring", reason));
        }
        let (uring, deferred) = build(options).map_err(|source| refused(source, "create"))?;
        let commands = check_operations(&uring)?;
        let gathering = uring.params().is_feature_min_timeout();
        let count = u32::try_from(options.ops_max).unwrap_or(u32::MAX);
        Ok(Self {
            uring,
            features: Features { deferred, commands, gathering },
            slots: (0..count).map(|_| Slot::default()).collect(),
            free: (0..count).rev().collect(),
            queue: VecDeque::new(),
            cancellations: VecDeque::new(),
            kernel_entries: 0,
            poll: PollWindow::new(options.poll_max_us),
            thread: PhantomData,
        })
    }

    /// Returns the features of the kernel.
    #[must_use]
    pub const fn features(&self) -> Features {
        self.features
    }

    /// Returns the outcomes of waits.
    #[must_use]
    pub const fn poll_stats(&self) -> PollStats {
        self.poll.stats()
    }

    /// Returns the number of operations in the ring.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the number of operations that the ring can still accept.
    #[must_use]
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Accepts an operation; the next [`Self::submit_and_wait`] submits it. Its completion carries `user`.
    ///
    /// # Errors
    /// The operation, when the ring is full.
    pub fn submit(&mut self, operation: Operation, user: u64) -> Result<(), RingFull> {
        let Some(index) = self.free.pop() else {
            return Err(RingFull { operation: Box::new(operation) });
        };
        self.occupy(index, InFlight::new(user, operation));
        Ok(())
    }

    fn occupy(&mut self, index: u32, content: InFlight) {
        let slot = &mut self.slots[usize_from_u32(index)];
        assert!(slot.content.is_none(), "a free slot is empty");
        slot.content = Some(content);
        self.queue.push_back(index);
    }

    /// Cancels all operations. Each still completes exactly once: with ECANCELED, or normally if it was faster.
    pub(crate) fn cancel_all(&mut self) {
        for (index, slot) in (0_u32..).zip(self.slots.iter_mut()) {
            let Some(content) = slot.content.as_mut() else { continue };
            if !content.cancelled {
                content.cancelled = true;
                if content.place == Place::Kernel {
                    self.cancellations.push_back(user_data(index, slot.generation));
                }
            }
        }
    }

    /// Submits everything, waits until at least `min` operations completed (fewer, if fewer are in flight) or
    /// `timeout` passed, and appends completions to `out`. Returns their number. With `min` 0 it does not wait.
    ///
    /// # Errors
    /// When the kernel refuses the ring itself; completions so far are in `out`.
    pub fn submit_and_wait(
        &mut self,
        min: usize,
        timeout: Option<Duration>,
        out: &mut Vec<Completion>,
    ) -> Result<usize, IoError> {
        self.submit_and_gather(min, None, timeout, out)
    }

    /// As [`Self::submit_and_wait`], but first waits for the larger number of results in `gather`.
    ///
    /// # Errors
    /// As there.
    pub fn submit_and_gather(
        &mut self,
        min: usize,
        gather: Option<Gather>,
        timeout: Option<Duration>,
        out: &mut Vec<Completion>,
    ) -> Result<usize, IoError> {
        let mut gather = gather.filter(|_| self.features.gathering);
        let before = out.len();
        let min = min.min(self.in_flight());
        let begun = now();
        let deadline = timeout.and_then(|timeout| begun.checked_add(timeout));
        let mut refusals = 0;
        if gather.is_none() && min > 0 && self.poll.window_us() > 0 && self.look(begun, timeout, min, out)? {
            return Ok(out.len() - before);
        }
        loop {
            self.reap(out);
            let more = self.push(out);
            let missing = min.saturating_sub(out.len() - before);
            let want = if more { 0 } else { missing.min(self.kernel_entries) };
            let left = deadline.map(|deadline| deadline.saturating_duration_since(now()));
            let expired = left.is_some_and(|left| left.is_zero());
            // Once only: its results suffice if they reach `min`.
            let gather = gather
                .take_if(|_| want > 0)
                .map(|gather| Gather { count: gather.count.clamp(want, self.kernel_entries), ..gather });
            let entered = self.enter(if expired { 0 } else { want }, gather, left);
            let reaped = self.reap(out);
            match entered {
                Ok(()) => refusals = 0,
                Err(error) => {
                    refusals += 1;
                    self.on_refusal(error, refusals, reaped)?;
                }
            }
            if !more && (out.len() - before >= min || expired) {
                if want > 0 && gather.is_none() {
                    self.poll.slept(elapsed_us(begun));
                }
                return Ok(out.len() - before);
            }
        }
    }

    /// Submits as much as fits and polls the completion queue; returns `true` if at least `min` operations completed.
    fn look(
        &mut self,
        begun: Instant,
        timeout: Option<Duration>,
        min: usize,
        out: &mut Vec<Completion>,
    ) -> Result<bool, IoError> {
        let window = Duration::from_micros(self.poll.window_us().into());
        if timeout.is_some_and(|timeout| timeout < window) {
            return Ok(false);
        }
        let before = out.len();
        self.reap(out);
        if self.push(out) || self.submit_now().is_err() {
            // Too many, or refused: the caller continues as if it had not polled.
            return Ok(false);
        }
        let window_us = u64::from(self.poll.window_us());
        let (mut last_us, mut met) = (0, false);
        loop {
            self.reap(out);
            met |= out.len() - before >= min;
            let at_us = elapsed_us(begun);
            // Continued operations wait in our queue for the next submit.
            if met || at_us >= window_us || !self.queue.is_empty() || self.poll.gap(at_us - last_us) {
                break;
            }
            last_us = at_us;
            if self.uring.submission().taskrun() {
                self.submit_now().map_err(|error| IoError::from_io("look at", "the io_uring", error))?;
            }
            std::hint::spin_loop();
        }
        self.poll.looked(elapsed_us(begun), met);
        Ok(met)
    }

    /// Submits pushed entries and runs completion work, without waiting.
    fn submit_now(&self) -> io::Result<()> {
        let count = u32::try_from(self.unsubmitted()).unwrap_or(u32::MAX);
        // SAFETY: no argument structure is passed, the numbers are valid for every ring.
        unsafe { self.uring.submitter().enter::<libc::sigset_t>(count, 0, ENTER_GETEVENTS, None) }.map(drop)
    }

    /// EAGAIN and EBUSY: the kernel requires results to be reaped before it accepts more.
    fn on_refusal(&self, error: io::Error, refusals: u32, reaped: usize) -> Result<(), IoError> {
        let code = error.raw_os_error();
        if !matches!(code, Some(libc::EAGAIN | libc::EBUSY)) || refusals >= ENTER_ATTEMPTS_MAX {
            return Err(IoError::from_io("submit to", "the io_uring", error));
        }
        if reaped == 0 && self.kernel_entries > self.unsubmitted() {
            self.wait_for_one().map_err(|error| IoError::from_io("wait for", "the io_uring", error))?;
        }
        Ok(())
    }

    /// Returns the entries in the submission queue that the kernel has not consumed.
    fn unsubmitted(&self) -> usize {
        // SAFETY: only the length is read, and no other view of the queue exists in this call.
        unsafe { self.uring.submission_shared() }.len()
    }

    /// One system call: submits pushed entries, waits for `want` results, or for those to gather.
    fn enter(&self, want: usize, gather: Option<Gather>, left: Option<Duration>) -> io::Result<()> {
        let args = types::SubmitArgs::new();
        let (count, args) = match gather {
            Some(gather) => (gather.count, args.min_wait_usec(gather.time_us)),
            None => (want, args),
        };
        let result = match left.filter(|_| want > 0) {
            Some(left) => {
                let time = types::Timespec::from(left);
                self.uring.submitter().submit_with_args(count, &args.timespec(&time))
            }
            None if gather.is_some() => self.uring.submitter().submit_with_args(count, &args),
            None => self.uring.submit_and_wait(want),
        };
        match result {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits for a result without submitting.
    fn wait_for_one(&self) -> io::Result<()> {
        // SAFETY: no argument structure is passed, the numbers are valid for every ring.
        let result = unsafe { self.uring.submitter().enter::<libc::sigset_t>(0, 1, ENTER_GETEVENTS, None) };
        match result {
            Err(error) if error.raw_os_error() != Some(libc::EINTR) => Err(error),
            _ => Ok(()),
        }
    }

    /// Moves waiting entries to the submission queue; returns `true` if more fit after another submit.
    fn push(&mut self, out: &mut Vec<Completion>) -> bool {
        loop {
            if let Some(&target) = self.cancellations.front() {
                let entry = opcode::AsyncCancel::new(target).build().user_data(CANCELLATION);
                if !self.push_entry(&entry) {
                    return true;
                }
                self.cancellations.pop_front();
                continue;
            }
            let Some(&index) = self.queue.front() else { return false };
            if self.uring.submission().is_full() {
                return true;
            }
            self.queue.pop_front();
            let slot = &mut self.slots[usize_from_u32(index)];
            let Some(content) = slot.content.as_mut() else {
                unreachable!("slot {index} is queued but empty")
            };
            if content.cancelled {
                self.finish(index, Err(io::Error::from_raw_os_error(libc::ECANCELED)), out);
                continue;
            }
            let entry = content.entry().user_data(user_data(index, slot.generation));
            let pushed = self.push_entry(&entry);
            assert!(pushed, "the submission queue had room");
        }
    }

    fn push_entry(&mut self, entry: &squeue::Entry) -> bool {
        let mut submission = self.uring.submission();
        // SAFETY: everything the entry points to is owned by an `InFlight` in a slot, which stays there unchanged
        // until the entry's result is reaped (`Place::Kernel` guards it), or it points to nothing (cancellations).
        let pushed = unsafe { submission.push(entry) }.is_ok();
        drop(submission);
        self.kernel_entries += usize::from(pushed);
        pushed
    }

    /// Reaps all available results.
    fn reap(&mut self, out: &mut Vec<Completion>) -> usize {
        let mut reaped = 0;
        loop {
            // The queue is accessed afresh each time: an entry is copied out before its slot is changed.
            let Some(entry) = self.uring.completion().next() else { return reaped };
            reaped += 1;
            assert!(self.kernel_entries > 0, "a result without an entry");
            self.kernel_entries -= 1;
            if entry.user_data() != CANCELLATION {
                self.on_result(entry.user_data(), entry.result(), out);
            }
        }
    }

    fn on_result(&mut self, data: u64, result: i32, out: &mut Vec<Completion>) {
        let index = u32::try_from(data & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        let slot = &mut self.slots[usize_from_u32(index)];
        assert_eq!(user_data(index, slot.generation), data, "a result for an operation that ended");
        let Some(content) = slot.content.as_mut() else {
            unreachable!("slot {index} is in the kernel but empty")
        };
        match content.on_result(result) {
            Verdict::Again => self.queue.push_back(index),
            Verdict::Done(result) => self.finish(index, result, out),
        }
    }

    fn finish(&mut self, index: u32, result: io::Result<usize>, out: &mut Vec<Completion>) {
        let slot = &mut self.slots[usize_from_u32(index)];
        let Some(content) = slot.content.take() else { unreachable!("slot {index} ends but is empty") };
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        out.push(content.finish(result));
    }

    /// Cancels everything and waits for completion.
    fn drain(&mut self) -> Result<(), IoError> {
        self.cancel_all();
        let mut out = Vec::new();
        let mut silent_waits = 0;
        while self.in_flight() > self.detached() && silent_waits < DRAIN_WAITS_MAX {
            silent_waits += usize::from(self.submit_and_wait(1, Some(DRAIN_WAIT), &mut out)? == 0);
            out.clear();
        }
        Ok(())
    }

    /// Returns the operations in the kernel that only their device can complete.
    fn detached(&self) -> usize {
        let contents = self.slots.iter().filter_map(|slot| slot.content.as_ref());
        contents.filter(|content| content.is_detached()).count()
    }
}

/// Most unsuccessful waits of a ring's drop for devices; the rest is then left to the kernel.
const DRAIN_WAITS_MAX: usize = 50;
const DRAIN_WAIT: Duration = Duration::from_millis(100);

impl Drop for Ring {
    fn drop(&mut self) {
        if self.drain().is_err() || self.in_flight() > 0 {
            // The kernel may still write: leak the memory instead of freeing it.
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("in_flight", &self.in_flight())
            .field("queued", &self.queue.len())
            .field("kernel_entries", &self.kernel_entries)
            .field("features", &self.features)
            .finish_non_exhaustive()
    }
}

/// Checks that this process can use io_uring, and returns its features.
///
/// # Errors
/// The reason in one sentence.
pub fn probe() -> Result<Features, IoError> {
    Ring::new(RingOptions { entries: 1, ops_max: 1, poll_max_us: 0 }).map(|ring| ring.features())
}

/// Creates the best ring that the kernel supports: with deferred completion work, cooperative, plain.
fn build(options: RingOptions) -> io::Result<(IoUring, bool)> {
    let results = u32::try_from(options.ops_max).unwrap_or(u32::MAX).max(options.entries.saturating_mul(2));
    let mut refusal = None;
    for level in 0..3 {
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize(results).dontfork();
        if level == 0 {
            builder.setup_single_issuer().setup_defer_taskrun().setup_coop_taskrun().setup_taskrun_flag();
        } else if level == 1 {
            builder.setup_coop_taskrun().setup_taskrun_flag();
        }
        match builder.build(options.entries) {
            Ok(uring) => return Ok((uring, level == 0)),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refusal = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(refusal.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL)))
}

/// Checks that the kernel supports every operation; returns `true` if it supports device commands, which are optional.
fn check_operations(uring: &IoUring) -> Result<bool, IoError> {
    if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
        return Err(too_old("timed waiting"));
    }
    let mut probe = Probe::new();
    uring.submitter().register_probe(&mut probe).map_err(|source| refused(source, "probe"))?;
    let needed = [
        ("read", opcode::Read::CODE),
        ("write", opcode::Write::CODE),
        ("writev", opcode::Writev::CODE),
        ("fsync", opcode::Fsync::CODE),
        ("fallocate", opcode::Fallocate::CODE),
        ("sendmsg", opcode::SendMsg::CODE),
        ("recv", opcode::Recv::CODE),
        ("accept", opcode::Accept::CODE),
        ("poll", opcode::PollAdd::CODE),
        ("timeout", opcode::Timeout::CODE),
        ("cancel", opcode::AsyncCancel::CODE),
        ("close", opcode::Close::CODE),
    ];
    match needed.iter().find(|(_, code)| !probe.is_supported(*code)) {
        Some((name, _)) => Err(too_old(name)),
        None => Ok(probe.is_supported(opcode::UringCmd16::CODE)),
    }
}

fn too_old(missing: &str) -> IoError {
    let reason = format!("this kernel's io_uring has no {missing}; Linux 5.15 or newer is needed");
    IoError::new(ErrorKind::Unsupported, "use", "io_uring", reason)
}

fn refused(source: io::Error, operation: &'static str) -> IoError {
    let reason = match source.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel was built without io_uring, or a sandbox hides it".to_owned(),
        Some(libc::EPERM | libc::EACCES) => {
            "it is forbidden to this process: see the sysctl kernel.io_uring_disabled, and allow io_uring in the \
             container's seccomp profile"
                .to_owned()
        }
        Some(libc::ENOMEM) => "the locked-memory limit (ulimit -l) is too small".to_owned(),
        Some(libc::EMFILE | libc::ENFILE) => "too many open files (ulimit -n)".to_owned(),
        _ => "the kernel refused it".to_owned(),
    };
    IoError::from_io(operation, "an io_uring", source).because(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "an operation that ended")]
    fn a_late_result_is_not_taken_for_the_next_operation_in_the_slot() {
        let mut ring = Ring::new(RingOptions { entries: 1, ops_max: 1, poll_max_us: 0 }).unwrap();
        let mut out = Vec::new();
        ring.submit(Operation::Nop, 1).unwrap();
        ring.submit_and_wait(1, None, &mut out).unwrap();
        ring.submit(Operation::Nop, 2).unwrap();
        ring.on_result(user_data(0, 0), 0, &mut out);
    }

    #[test]
    fn refusals_are_explained() {
        let text = |errno| refused(io::Error::from_raw_os_error(errno), "create").to_string();
        assert!(text(libc::ENOSYS).contains("built without io_uring"));
        assert!(text(libc::EPERM).contains("kernel.io_uring_disabled"));
        assert!(too_old("writev").to_string().contains("has no writev"));
        let options = RingOptions { entries: 0, ..RingOptions::default() };
        assert_eq!(Ring::new(options).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
