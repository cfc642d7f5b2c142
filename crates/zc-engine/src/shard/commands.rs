//! Commands from other threads to the data plane.
//!
//! Invariants: the queue is bounded; a command that does not fit, or comes after the end, is dropped, which its sender
//! notices by its closed reply channel.
//!
//! It does not carry them out (`dispatch/obey`).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use zc_cache::config::VolumeConfig;
use zc_cache::seam::Erased;
use zc_core::VolumeId;
use zc_io::Waker;

use crate::error::EngineError;
use crate::front::reloadable::FrontSettings;
use crate::limits::COMMANDS_MAX;
use crate::origin::OriginStat;
use crate::record::Tap;
use crate::shard::clients::nbd::ConnectionFilter;
use crate::shard::clients::ublk::NewDevice;
use crate::shard::leaving::Removed;
use crate::shard::lengths::OriginProbe;
use crate::shard::pause::{CloseReply, OpenResources, Replacement};
use crate::shard::stats::ShardStats;
use crate::shard::volumes::Volume;
use crate::shard::warm::{WarmCommand, WarmUp};

/// A command.
#[derive(Debug)]
pub enum Command {
    /// Requests the counters.
    Stats(oneshot::Sender<Box<ShardStats>>),
    /// Change settings of volumes.
    Configure(Vec<VolumeConfig>, oneshot::Sender<()>),
    /// Serve another volume.
    Add {
        /// Number of the volume.
        id: VolumeId,
        /// Its origin and settings.
        volume: Box<Volume>,
        /// The command's answer.
        reply: oneshot::Sender<()>,
    },
    /// Serve a volume no more, and have the cache forget it.
    Remove {
        /// The volume.
        volume: VolumeId,
        /// The command's answer.
        reply: oneshot::Sender<Removed>,
    },
    /// Erase cached data of volumes that are neither served nor among these.
    Erase {
        /// Volumes whose data is preserved.
        keep: Vec<VolumeId>,
        /// The command's answer.
        reply: oneshot::Sender<Option<Erased>>,
    },
    /// Destage a volume.
    Destage(VolumeId),
    /// Discard a volume's dirty data; returns `false` if the device was lost first.
    DropDirty {
        /// The volume.
        volume: VolumeId,
        /// The state directory also contains the record.
        remembered: bool,
        /// The command's answer.
        reply: oneshot::Sender<bool>,
    },
    /// Discard the unreadable dirty data of a volume; returns `true` when that is durable.
    GiveUpUnreadable {
        /// The volume.
        volume: VolumeId,
        /// The command's answer.
        reply: oneshot::Sender<bool>,
    },
    /// Serve a fenced volume with the dirty data that was found.
    AcceptLoss(VolumeId),
    /// The volume's block device was removed, so its users have noticed the loss: no flush need fail for it.
    LossTold(VolumeId),
    /// The cache device failed outside the data plane, which may never see the error: the kernel reports a lost write
    /// once.
    LoseCache(String),
    /// Return the open resources; with `pause`, when nothing is in flight and new requests wait.
    Look {
        /// Hold requests back until `Swap` or `Resume`.
        pause: bool,
        /// The command's answer.
        reply: oneshot::Sender<Result<OpenResources, EngineError>>,
    },
    /// In a pause: close the cache, which has no dirty data. Afterwards only `Swap` is accepted.
    Close(CloseReply),
    /// In a pause: continue with another manager.
    Swap(Box<Replacement>),
    /// End a pause.
    Resume,
    /// Change bounds and exports of the front end.
    Front(Box<FrontSettings>),
    /// Return the present length of a volume's origin; extend it first, if requested.
    Measure {
        /// The volume.
        volume: VolumeId,
        /// Length to extend it to.
        at_least_bytes: Option<u64>,
        /// The command's answer.
        reply: oneshot::Sender<Result<OriginStat, EngineError>>,
    },
    /// Set the size of a volume to its origin's new length.
    Grow {
        /// The volume.
        volume: VolumeId,
        /// Its new size.
        size_bytes: u64,
        /// The command's answer.
        reply: oneshot::Sender<()>,
    },
    /// Return the handles that measure the origins.
    Lengths(oneshot::Sender<Vec<OriginProbe>>),
    /// Send a volume's origin no request any more: it was truncated.
    Withdraw(VolumeId),
    /// Record a volume, or end its recording.
    Record {
        /// The volume.
        volume: VolumeId,
        /// Destination.
        tap: Option<Box<Tap>>,
        /// The command's answer.
        reply: oneshot::Sender<()>,
    },
    /// Read ranges of a volume into the cache, or return the progress.
    Warm {
        /// The volume.
        volume: VolumeId,
        /// The request.
        ask: WarmCommand,
        /// The command's answer.
        reply: oneshot::Sender<Result<WarmUp, String>>,
    },
    /// Close connections; returns their numbers.
    Disconnect(ConnectionFilter, oneshot::Sender<Vec<u64>>),
    /// Serve a ublk device.
    ServeDevice(Box<NewDevice>),
    /// Drain, make durable, end.
    Stop,
}

/// The queue.
#[derive(Debug)]
pub struct Mailbox {
    queue: Mutex<Queue>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Queue {
    commands: VecDeque<Command>,
    closed: bool,
}

impl Mailbox {
    /// Returns an empty queue; `waker` wakes the data plane.
    pub fn new(waker: Waker) -> Self {
        Self { queue: Mutex::default(), waker }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a command, unless the data plane has ended or too many wait: its sender of a reply is dropped then.
    pub fn send(&self, command: Command) {
        let mut queue = self.lock();
        // These are never lost: there are no more of them than fit in a few slots.
        let must =
            matches!(command, Command::Stop | Command::Swap(_) | Command::Resume | Command::Add { .. });
        let fits = queue.commands.len() < COMMANDS_MAX || must;
        if fits && !queue.closed {
            queue.commands.push_back(command);
            drop(queue);
            self.waker.wake();
        }
    }

    /// Takes the first command.
    pub(crate) fn next(&self) -> Option<Command> {
        self.lock().commands.pop_front()
    }

    /// No command is taken any more.
    pub fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        queue.commands.clear();
    }
}
