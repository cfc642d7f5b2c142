//! A store opened by a command itself.
//!
//! Job: open the pool of a file or device, send requests, and close it. Invariants: the file or device is locked
//! against a daemon and other commands while the driver lives; changes are durable when [`Driver::close`] succeeds.

use std::io::Write as _;
use std::path::Path;
use std::thread::available_parallelism;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use zc_io::{BlockFile, OpenOptions};
use zc_pool::{Answer, RequestKind};
use zc_pool_io::{OpenPool, PoolClient, Settings};
use zc_store::seam::Run;
use zc_store::{Config, RootId};

/// The kernel holds the lock of a killed command until the last operation of its ring has completed. Interval and
/// number of retries of a locked store.
const LOCK_PAUSE: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
const LOCK_TRIES: u32 = 60;

pub(super) struct Driver(OpenPool);

/// Opens a file or device for this command alone.
pub(super) fn lock(path: &Path, create_len: Option<u64>) -> anyhow::Result<BlockFile> {
    let options = OpenOptions { direct: false, write: true, create_len };
    Ok(BlockFile::open(path, options)?)
}

/// Warns on the standard error that a store was opened without changes that may have been flushed.
pub(super) fn warn_of_dropped(commits: u64) -> anyhow::Result<()> {
    if commits > 0 {
        writeln!(
            std::io::stderr(),
            "warning: when the store was opened, the last write of its log was damaged and does not count. Data \
             flushed just before may be lost; acknowledge this with `zcctl store accept-loss STORE`"
        )?;
    }
    Ok(())
}

/// The cleaner has all the bandwidth of the device.
fn settings() -> Settings {
    let store = Config { clean_bytes_per_s: u64::MAX, ..Config::default() };
    let workers = available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1));
    Settings { store, workers, direct: Some(false), look_only: false }
}

fn beyond_loss() -> Settings {
    let settings = settings();
    Settings { store: Config { accept_loss: true, ..settings.store }, ..settings }
}

impl Driver {
    /// Opens the store: recovery, and a first checkpoint.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        Self::open_with(path, &settings())
    }

    /// Opens the store in memory. The device stays as it is.
    pub(super) fn look(path: &Path) -> anyhow::Result<Self> {
        Self::open_with(path, &Settings { look_only: true, ..settings() })
    }

    /// Opens the store in memory, although its device lost a part of the log. The device stays as it is.
    pub(super) fn look_beyond_loss(path: &Path) -> anyhow::Result<Self> {
        Self::open_with(path, &Settings { look_only: true, ..beyond_loss() })
    }

    /// Opens the store for good, although its device lost a part of the log.
    pub(super) fn open_beyond_loss(path: &Path) -> anyhow::Result<Self> {
        Self::open_with(path, &beyond_loss())
    }

    fn open_with(path: &Path, settings: &Settings) -> anyhow::Result<Self> {
        let mut tries = LOCK_TRIES;
        loop {
            match OpenPool::open(path, settings.clone()) {
                Ok(pool) => return Ok(Self(pool)),
                Err(error) if error.is_in_use() && tries > 0 => tries -= 1,
                Err(error) if error.is_in_use() => {
                    return Err(anyhow::Error::new(error).context(
                        "if a daemon has it open, name the store as its configuration does: zcctl store COMMAND NAME",
                    ));
                }
                Err(error) => return Err(error.into()),
            }
            rustix::event::poll(&mut [], Some(&LOCK_PAUSE)).context("cannot wait")?;
        }
    }

    /// Acknowledges the dropped changes on behalf of the operator: no flush fails for them any more.
    pub(super) fn acknowledge_dropped(&self) {
        let _told_now = self.client().ask(RequestKind::Flush);
    }

    /// Returns a handle for requests.
    pub(super) const fn client(&self) -> &PoolClient {
        self.0.client()
    }

    /// Makes everything durable and releases the device.
    pub(super) fn close(self) -> anyhow::Result<()> {
        self.0.close().context("the last changes may be lost")
    }

    fn ask(&self, kind: RequestKind) -> anyhow::Result<Answer> {
        self.client().ask(kind).map_err(|error| error.error.into())
    }

    /// Reads bytes of a volume or snapshot, in pieces that follow each other.
    pub(super) fn read(&self, root: RootId, offset_bytes: u64, len_bytes: u32) -> anyhow::Result<Vec<Bytes>> {
        match self.ask(RequestKind::Read { root, offset_bytes, len_bytes })? {
            Answer::Bytes(pieces) => Ok(pieces),
            _ => bail!("internal error: the store returned an unexpected reply"),
        }
    }

    /// Runs of chunks that hold something, and of holes, from `first` on; at least one, and perhaps not up to the end.
    pub(super) fn runs(&self, root: RootId, first: u64, count: u64) -> anyhow::Result<Vec<Run>> {
        match self.ask(RequestKind::Allocation { root, first, count })? {
            Answer::Allocation(runs) if runs.first().is_some_and(|run| run.chunks > 0) => Ok(runs),
            // The rest is read: the store has no information on its allocation.
            Answer::Allocation(_) => Ok(vec![Run { chunks: count, is_hole: false }]),
            _ => bail!("internal error: the store returned an unexpected reply"),
        }
    }

    /// Stores bytes of a volume.
    pub(super) fn write(&self, root: RootId, offset_bytes: u64, data: Bytes) -> anyhow::Result<()> {
        self.ask(RequestKind::Write { root, offset_bytes, data, known: Vec::new() })?;
        Ok(())
    }
}
