//! An NBD export of another server as an origin.
//!
//! Job: turn requests to an origin into requests to its connection (`driver`), and bring the answers back to the shard.
//!
//! # Identity
//! NBD has none. Volume table and state directory keep a number that follows from the URI in place of an inode (the same
//! with TLS and without), the size, and no time of change. Landmarks are compared as for a block device, and `zc-remote`
//! compares samples of the content after each reconnect.
//!
//! Invariants: an answer comes once, after the memory of its request was given back.
//!
//! Out of scope: ordering requests (the cache manager does), and retries (`zc-remote` does).

mod conn;
mod driver;
mod socket;
mod tls;

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use zc_config::{NbdUri, OriginTls, VolumeConfig};
use zc_core::{ErrorKind, Mode, SECTOR_BYTES, u64_from_usize, usize_from_u64};
use zc_io::{AlignedBuf, FileKind, Identity, IoError, Target};
use zc_nbd::proto::{STATE_HOLE, STATE_ZERO};
use zc_origin::{Landmark, OriginRequest};
use zc_remote::{Failure, Request, Run, Status};

pub(crate) use driver::{OpenRemote, RemoteState};

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::limits::{REMOTE_OUTAGE_WAIT_MS, REMOTE_WAIT_MS};
use crate::origin::answers::{Asker, OriginFailure};
use crate::origin::map::{Allocation, CachedRun, MapAsker, OriginRun};
use crate::origin::requests::{gathered, objection, zero_beyond};

/// Reads the files that a connection with TLS needs. Blocks.
///
/// # Errors
/// If a file is unreadable or unusable, or the server has no name that a certificate can contain.
pub fn check_tls(uri: &NbdUri, tls: &OriginTls) -> Result<(), EngineError> {
    tls::TlsSettings::load(uri, tls).map(drop)
}

/// Marks a number in place of an inode as no inode's.
const NO_INODE: u64 = 1 << 63;

/// An export in use.
#[derive(Debug)]
pub struct RemoteVolume {
    open: Arc<OpenRemote>,
    len_bytes: u64,
    is_writable: bool,
}

impl RemoteVolume {
    pub(crate) fn new(open: Arc<OpenRemote>, volume: &VolumeConfig) -> Self {
        let len_bytes = open.size_bytes();
        let is_writable = volume.mode != Mode::ReadOnly;
        Self { open, len_bytes, is_writable }
    }

    /// Name in messages: the URI.
    pub(crate) fn name(&self) -> &str {
        self.open.place()
    }

    pub(crate) const fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Returns `true` if clients may write to the volume.
    pub(crate) const fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Returns `true` if zeros cross the network without their bytes.
    pub(crate) fn zeroes_fast(&self) -> bool {
        self.open.zeroes_fast()
    }

    /// Returns `true` if nothing was changed since the first connection flushed the export.
    pub(crate) fn is_flushed(&self) -> bool {
        self.is_writable && self.open.is_unchanged()
    }

    /// State of the connection, for the status.
    pub(crate) fn state(&self) -> RemoteState {
        self.open.state()
    }

    /// Extends the range of valid requests to this length.
    pub(crate) fn take_up_length(&mut self, len_bytes: u64) {
        self.len_bytes = self.len_bytes.max(len_bytes);
    }

    /// Requests fail when an outage has lasted this long; `None`: they wait.
    pub(crate) fn set_outage_max(&self, outage_max_ms: Option<u64>) {
        self.open.set_outage_max(outage_max_ms);
    }

    /// See the module.
    pub(crate) fn identity(&self) -> Identity {
        Identity {
            kind: FileKind::Regular,
            dev: 0,
            inode: NO_INODE | number_of(self.open.plain_place()),
            len_bytes: self.open.size_bytes(),
            mtime_ns: 0,
        }
    }

    /// Length now. An export is not made longer from here.
    pub(crate) fn measure(&self, at_least_bytes: Option<u64>) -> Result<u64, EngineError> {
        let len_bytes = self.open.size_bytes();
        match at_least_bytes.filter(|wanted| *wanted > len_bytes) {
            None => Ok(len_bytes),
            Some(wanted) => {
                let origin = self.name().to_owned();
                Err(EngineError::refused(Refusal::ExportNotGrown { origin, len_bytes, wanted }))
            }
        }
    }

    /// Makes writes durable. Blocks, for [`REMOTE_WAIT_MS`] at most, in an outage for [`REMOTE_OUTAGE_WAIT_MS`].
    pub(crate) fn sync_blocking(&self) -> Result<(), EngineError> {
        self.wait_for(Request::Flush, None).map_err(|failure| self.failed("flush", failure))?;
        Ok(())
    }

    /// See [`zc_origin::Origin::landmarks`]. Blocks.
    pub(crate) fn landmarks(&self) -> Result<Vec<Landmark>, EngineError> {
        let block_bytes = u64::from(SECTOR_BYTES);
        Ok(Landmark::find(self.len_bytes, block_bytes, &mut |offset, len| self.read_blocking(offset, len))?)
    }

    /// See [`zc_origin::Origin::changed_landmark`]. Blocks.
    pub(crate) fn changed_landmark<'a>(
        &self,
        landmarks: &'a [Landmark],
    ) -> Result<Option<&'a Landmark>, EngineError> {
        Ok(Landmark::first_changed(landmarks, &mut |offset, len| self.read_blocking(offset, len))?)
    }

    fn read_blocking(&self, offset: u64, len_bytes: u64) -> Result<Vec<u8>, IoError> {
        let target = Target::whole(AlignedBuf::new(usize_from_u64(len_bytes)));
        let read = self.wait_for(Request::Read { offset, len_bytes }, Some(target));
        let target = read.map_err(|failure| self.failed("read", failure))?;
        Ok(target.map_or_else(Vec::new, |target| target.bytes().to_vec()))
    }

    fn failed(&self, operation: &'static str, failure: Failure) -> IoError {
        IoError::new(failure.kind, operation, self.name(), failure.text)
    }

    /// Carries out a request and waits for its end.
    fn wait_for(&self, request: Request, target: Option<Target>) -> Result<Option<Target>, Failure> {
        let (outcome, answer) = sync_channel(1);
        let done = move |result: Result<Status, Failure>, target| {
            let _too_late = outcome.send(result.map(|_| target));
        };
        self.open.submit(request, target, Box::new(done));
        let late = |text| Failure { kind: ErrorKind::TimedOut, text };
        if let Ok(result) = answer.recv_timeout(Duration::from_millis(REMOTE_OUTAGE_WAIT_MS)) {
            return result;
        }
        let RemoteState { snapshot, outage_ms } = self.state();
        if outage_ms.is_some() {
            return Err(late(snapshot.why));
        }
        let rest = Duration::from_millis(REMOTE_WAIT_MS - REMOTE_OUTAGE_WAIT_MS);
        answer.recv_timeout(rest).map_err(|_| late("the server does not answer".to_owned()))?
    }

    pub(crate) fn begin(&self, request: OriginRequest, asker: Asker) {
        let (offset, len) = request.extent();
        if let Some(kind) = objection(&request, self.len_bytes, self.is_writable) {
            // The memory of a read is given back before its answer.
            drop(request);
            let text = format!("the request for {len} bytes at {offset} does not fit the export");
            return asker.done(Err(OriginFailure::Remote(Failure { kind, text })));
        }
        let (request, target) = match request {
            OriginRequest::Read { target, .. } => return self.read(offset, target, asker),
            OriginRequest::Write { segments, fua, .. } => {
                (Request::Write { offset, data: gathered(&segments), fua }, None)
            }
            OriginRequest::Flush => (Request::Flush, None),
            OriginRequest::Trim { fua, .. } => (Request::Trim { offset, len_bytes: len, fua }, None),
            OriginRequest::WriteZeroes { no_hole, fua, .. } => {
                (Request::Zero { offset, len_bytes: len, no_hole, fua }, None)
            }
        };
        self.submit(request, target, asker);
    }

    /// Requests holes and residency of a range. Without an answer of the server, the whole range counts as data.
    pub(crate) fn map(&self, start: u64, end: u64, asker: MapAsker) {
        let inside = end.min(self.len_bytes).saturating_sub(start);
        if inside == 0 {
            return asker.answer(vec![OriginRun::of(end - start, false)], Vec::new());
        }
        let done = move |result: Result<Status, Failure>, _| {
            let status = result.unwrap_or_default();
            let mut runs: Vec<OriginRun> = status.allocation.into_iter().map(run_of).collect();
            if runs.is_empty() {
                runs.push(OriginRun::of(end - start, false));
            }
            let cached = |run: Run| CachedRun { len_bytes: run.len_bytes, is_cached: run.flags != 0 };
            asker.answer(runs, status.residency.into_iter().map(cached).collect());
        };
        let request = Request::Status { offset: start, len_bytes: inside };
        self.open.submit(request, None, Box::new(done));
    }

    /// Reads bytes; those beyond the export's end are zero.
    fn read(&self, offset: u64, mut target: Target, asker: Asker) {
        let inside = zero_beyond(&mut target, offset, self.len_bytes);
        if inside == 0 {
            drop(target);
            return asker.done(Ok(()));
        }
        self.submit(Request::Read { offset, len_bytes: u64_from_usize(inside) }, Some(target), asker);
    }

    fn submit(&self, request: Request, target: Option<Target>, asker: Asker) {
        let done = |result: Result<Status, Failure>, target: Option<Target>| {
            drop(target);
            asker.done(result.map(drop).map_err(OriginFailure::Remote));
        };
        self.open.submit(request, target, Box::new(done));
    }
}

/// A hole without the promise of zeros is data.
fn run_of(run: Run) -> OriginRun {
    let allocation = match run.flags & (STATE_HOLE | STATE_ZERO) {
        flags if flags & STATE_ZERO == 0 => Allocation::Data,
        flags if flags & STATE_HOLE == 0 => Allocation::Zeros,
        _ => Allocation::Hole,
    };
    OriginRun { len_bytes: run.len_bytes, allocation }
}

/// Number of a text, the same in each version: FNV-1a with 64 bits.
fn number_of(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |number, byte| (number ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
