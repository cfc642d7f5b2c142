//! Commands from other threads to the data plane.
//!
//! Invariants: the queue is bounded; a command that does not fit, or comes after the end, is dropped, which its sender
//! notices by its closed reply channel.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use zc_cache::config::VolumeConfig;
use zc_cache::seam::Event;
use zc_core::VolumeId;
use zc_io::Waker;

use crate::error::EngineError;
use crate::front::reloadable::FrontSettings;
use crate::limits::COMMANDS_MAX;
use crate::origin::Facing;
use crate::record::Tap;
use crate::shard::clients::disconnect::Which;
use crate::shard::clients::ublk::NewDevice;
use crate::shard::lengths::Measured;
use crate::shard::pause::{Looked, Replacement};
use crate::shard::stats::ShardStats;
use crate::shard::volumes::Removed;
use crate::shard::{Shard, Volume};

/// A command.
#[derive(Debug)]
pub(crate) enum Command {
    /// Give the counters.
    Stats(oneshot::Sender<Box<ShardStats>>),
    /// Change settings of volumes.
    Configure(Vec<VolumeConfig>, oneshot::Sender<()>),
    /// Serve another volume.
    Add { id: VolumeId, volume: Box<Volume>, reply: oneshot::Sender<()> },
    /// Serve a volume no more, and have the cache forget it.
    Remove { volume: VolumeId, reply: oneshot::Sender<Removed> },
    /// Bring a volume's dirty data to the origin.
    Destage(VolumeId),
    /// Forget a volume's dirty data; says whether that was done, or the device was lost before it knew.
    DropDirty { volume: VolumeId, remembered: bool, reply: oneshot::Sender<bool> },
    /// Give up what of a volume's dirty data cannot be read; says whether that is durable.
    GiveUpUnreadable { volume: VolumeId, reply: oneshot::Sender<bool> },
    /// Serve a fenced volume with the dirty data that was found.
    AcceptLoss(VolumeId),
    /// The volume's block device was removed, so that who used it knows of a loss: no flush need fail for it.
    LossTold(VolumeId),
    /// The cache device failed outside the data plane, which may never hear of it: the kernel tells of a lost write once.
    LoseCache(String),
    /// Tell what is open; with `pause`, when nothing is under way any more and new requests wait.
    Look {
        /// Hold requests back until `Swap` or `Resume`.
        pause: bool,
        /// The command's answer.
        reply: oneshot::Sender<Result<Looked, EngineError>>,
    },
    /// In a pause: go on with another manager.
    Swap(Box<Replacement>),
    /// End a pause.
    Resume,
    /// Change bounds and exports of the front end.
    Front(Box<FrontSettings>),
    /// Say how long a volume's origin is now; make it longer first, if asked.
    Measure {
        volume: VolumeId,
        at_least_bytes: Option<u64>,
        reply: oneshot::Sender<Result<Facing, EngineError>>,
    },
    /// Let a volume be as large as its origin has become.
    Grow { volume: VolumeId, size_bytes: u64, reply: oneshot::Sender<()> },
    /// Give what measures the origins.
    Lengths(oneshot::Sender<Vec<Measured>>),
    /// Send a volume's origin no request any more: it was truncated.
    Withdraw(VolumeId),
    /// Record a volume, or end its recording.
    Record {
        /// The volume.
        volume: VolumeId,
        /// Where to.
        tap: Option<Box<Tap>>,
        /// The command's answer.
        reply: oneshot::Sender<()>,
    },
    /// Close connections; says which.
    Disconnect(Which, oneshot::Sender<Vec<u64>>),
    /// Serve a ublk device.
    ServeDevice(Box<NewDevice>),
    /// Drain, make durable, end.
    Stop,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Mailbox {
    queue: Mutex<Queue>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Queue {
    commands: VecDeque<Command>,
    closed: bool,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { queue: Mutex::default(), waker }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn send(&self, command: Command) {
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

    fn take(&self) -> VecDeque<Command> {
        std::mem::take(&mut self.lock().commands)
    }

    /// Nobody will take commands any more.
    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        queue.commands.clear();
    }
}

impl Shard {
    pub(crate) fn take_commands(&mut self) {
        let mailbox = std::sync::Arc::clone(&self.mailbox);
        for command in mailbox.take() {
            match command {
                Command::Stats(reply) => {
                    let _asker_left = reply.send(Box::new(self.stats()));
                }
                Command::Configure(volumes, reply) => {
                    for config in volumes {
                        self.configure(config);
                    }
                    let _asker_left = reply.send(());
                }
                Command::Add { id, volume, reply } => {
                    self.add_volume(id, *volume);
                    let _asker_left = reply.send(());
                }
                Command::Remove { volume, reply } => self.remove_volume(volume, reply),
                Command::Destage(volume) => self.events.push_back(Event::Destage { volume }),
                Command::DropDirty { volume, remembered, reply } => {
                    self.events.push_back(Event::DropDirty { volume, remembered });
                    self.drops.push((volume, reply));
                }
                Command::GiveUpUnreadable { volume, reply } => {
                    self.events.push_back(Event::GiveUpUnreadable { volume });
                    self.given_up.push((volume, reply));
                }
                Command::AcceptLoss(volume) => self.events.push_back(Event::AcceptLoss { volume }),
                Command::LossTold(volume) => self.manager.loss_is_told(volume),
                Command::LoseCache(why) => self.lose_cache(why),
                Command::Look { pause, reply } => self.look(pause, reply),
                Command::Swap(replacement) => self.swap(*replacement),
                Command::Resume => self.resume(),
                Command::Record { volume, tap, reply } => {
                    self.set_tap(volume, tap);
                    let _asker_left = reply.send(());
                }
                Command::Front(front) => self.apply_front(*front),
                Command::Measure { volume, at_least_bytes, reply } => {
                    let _asker_left = reply.send(self.measure(volume, at_least_bytes));
                }
                Command::Grow { volume, size_bytes, reply } => {
                    self.grow(volume, size_bytes);
                    let _asker_left = reply.send(());
                }
                Command::Lengths(reply) => {
                    let _asker_left = reply.send(self.lengths());
                }
                Command::Withdraw(volume) => self.withdraw(volume),
                Command::Disconnect(which, reply) => {
                    let _asker_left = reply.send(self.disconnect(&which));
                }
                Command::ServeDevice(device) => self.serve_device(*device),
                Command::Stop => self.begin_stop(),
            }
        }
    }

    /// Answers those whose dirty data is given up, or cannot be.
    pub(crate) fn answer_drops(&mut self) {
        for (volume, reply) in std::mem::take(&mut self.drops) {
            if self.manager.is_dropping(volume) {
                self.drops.push((volume, reply));
            } else {
                let fenced = self.manager.dirty(volume).is_some_and(|dirty| dirty.fenced);
                let _asker_left = reply.send(!fenced);
            }
        }
    }

    /// Answers those who gave up what cannot be read.
    pub(crate) fn answer_given_up(&mut self) {
        for (volume, reply) in std::mem::take(&mut self.given_up) {
            if self.manager.is_giving_up(volume) {
                self.given_up.push((volume, reply));
            } else {
                let state = self.manager.dirty(volume);
                let done = self.manager.is_healthy()
                    && state.is_some_and(|dirty| !dirty.fenced && dirty.unreadable_bytes == 0);
                let _asker_left = reply.send(done);
            }
        }
    }

    fn configure(&mut self, config: VolumeConfig) {
        if let Some(volume) = self.volumes.get_mut(&config.id) {
            volume.config = config.clone();
            self.events.push_back(Event::Configure(Box::new(config)));
        }
    }
}
