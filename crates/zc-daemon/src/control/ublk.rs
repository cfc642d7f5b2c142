//! Attaching and detaching: the control side of ublk devices.
//!
//! Job: a thread that owns the kernel's control device and executes one order after the other: attach a volume (or
//! take over the device of an earlier daemon), detach it, and clean up when the daemon stops.
//!
//! Invariants: an order completes in bounded time, with an error text on failure; the data plane never waits for one.
//! A volume has at most one device; attaching it again returns the same. A stop removes unused devices and leaves the
//! others to the next daemon: requests to them wait.
//!
//! It does not process requests.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::sync::oneshot;
use zc_core::Map;
use zc_ublk::registration::{RUN_DIR, is_ours, register, unregister};
use zc_ublk::{
    CharDevice, Controller, DeviceInfo, DeviceOptions, DeviceState, Features, ProcessState, Server,
    UblkError, holder_of, preflight,
};

use crate::limits::{UBLK_CLAIM_MS, UBLK_GONE_MS, UBLK_ORDERS_MAX};
use zc_engine::error::EngineError;
use zc_engine::front::ublk::Plan;
use zc_engine::registry::Registry;
use zc_engine::shard::clients::ublk::NewDevice;
use zc_engine::shard::commands::{Command, Mailbox};

/// The answer to an order: the device's path.
type Answer = Result<String, String>;

/// Result for a volume that has grown: its device, if that has grown too.
type Resized = Result<Option<String>, String>;

enum Order {
    BringUp { done: mpsc::Sender<()> },
    Add { plan: Plan, answer: oneshot::Sender<Result<(), String>> },
    Forget { volume: String, answer: oneshot::Sender<Result<Option<Plan>, String>> },
    Attach { volume: String, answer: oneshot::Sender<Answer> },
    Detach { volume: String, force: bool, answer: oneshot::Sender<Answer> },
    Resize { volume: String, size_bytes: u64, answer: oneshot::Sender<Resized> },
    Stop,
}

/// Sends orders to the thread, which ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct UblkHandle(mpsc::SyncSender<Order>);

impl UblkHandle {
    pub(crate) fn start(
        plans: Vec<Plan>,
        mailbox: Arc<Mailbox>,
        registry: Arc<Registry>,
    ) -> Result<Self, EngineError> {
        let (sender, orders) = mpsc::sync_channel(UBLK_ORDERS_MAX);
        let mut worker = Worker {
            plans,
            mailbox,
            registry,
            control: None,
            attached: Map::default(),
            run_dir: RUN_DIR.into(),
            is_stopped: false,
        };
        std::thread::Builder::new()
            .name("ublk".to_owned())
            .spawn(move || {
                for order in orders {
                    worker.carry_out(order);
                }
            })
            .map_err(|source| EngineError::thread("the control of ublk devices", source))?;
        Ok(Self(sender))
    }

    /// Takes over devices of an earlier daemon and attaches those of the configuration; waits for both. Failures are
    /// logged.
    pub(crate) fn bring_up(&self) {
        let (done, wait) = mpsc::channel();
        if self.0.try_send(Order::BringUp { done }).is_ok() {
            // Ends when the sender is dropped.
            let _ended = wait.recv();
        }
    }

    /// Another volume can be attached. Done at once if it is to be, or if an earlier daemon left its device.
    pub(crate) async fn add(&self, plan: Plan) -> Result<(), String> {
        let (answer, wait) = oneshot::channel();
        self.ask(Order::Add { plan, answer }, wait).await
    }

    /// Removes the plan of a volume and returns it. Refused while it is attached.
    pub(crate) async fn forget(&self, volume: &str) -> Result<Option<Plan>, String> {
        let (answer, wait) = oneshot::channel();
        self.ask(Order::Forget { volume: volume.to_owned(), answer }, wait).await
    }

    pub(crate) async fn attach(&self, volume: &str) -> Answer {
        let (answer, wait) = oneshot::channel();
        self.ask(Order::Attach { volume: volume.to_owned(), answer }, wait).await
    }

    pub(crate) async fn detach(&self, volume: &str, force: bool) -> Answer {
        let (answer, wait) = oneshot::channel();
        self.ask(Order::Detach { volume: volume.to_owned(), force, answer }, wait).await
    }

    /// The volume has grown, and the data plane serves all of it.
    pub(crate) async fn resize(&self, volume: &str, size_bytes: u64) -> Resized {
        let (answer, wait) = oneshot::channel();
        self.ask(Order::Resize { volume: volume.to_owned(), size_bytes, answer }, wait).await
    }

    async fn ask<T>(&self, order: Order, wait: oneshot::Receiver<Result<T, String>>) -> Result<T, String> {
        self.0.try_send(order).map_err(|_| "too many orders for ublk devices wait already".to_owned())?;
        wait.await.map_err(|_| "the daemon is stopping".to_owned())?
    }

    /// Removes devices that no program uses, then stops the data plane.
    pub(crate) fn stop(&self) {
        // A full queue holds a stop, or orders whose callers retry.
        let _full = self.0.try_send(Order::Stop);
    }
}

struct Attached {
    id: u32,
    /// Disconnected when the data plane has released the device.
    gone: mpsc::Receiver<()>,
    /// The device is served, but the kernel has not re-issued its requests yet.
    has_waiting_requests: bool,
}

impl Attached {
    /// Returns `true` if the kernel has taken the device away, at another program's command.
    fn is_gone(&self) -> bool {
        self.gone.try_recv() == Err(TryRecvError::Disconnected)
    }
}

struct Worker {
    plans: Vec<Plan>,
    mailbox: Arc<Mailbox>,
    registry: Arc<Registry>,
    control: Option<(Controller, Features)>,
    attached: Map<String, Attached>,
    run_dir: std::path::PathBuf,
    is_stopped: bool,
}

fn path_of(id: u32) -> String {
    format!("/dev/ublkb{id}")
}

impl Worker {
    fn carry_out(&mut self, order: Order) {
        self.forget_gone();
        match order {
            Order::BringUp { done } => {
                self.bring_up();
                drop(done);
            }
            Order::Add { plan, answer } => {
                let _asker_left = answer.send(self.add_volume(plan));
            }
            Order::Forget { volume, answer } => {
                let _asker_left = answer.send(self.forget(&volume));
            }
            Order::Attach { volume, answer } => {
                let _asker_left = answer.send(self.attach(&volume));
            }
            Order::Detach { volume, force, answer } => {
                let _asker_left = answer.send(self.detach(&volume, force));
            }
            Order::Resize { volume, size_bytes, answer } => {
                let _asker_left = answer.send(self.resize(&volume, size_bytes));
            }
            Order::Stop if self.is_stopped => self.mailbox.send(Command::Stop),
            Order::Stop => {
                self.is_stopped = true;
                for volume in self.attached.keys().cloned().collect::<Vec<_>>() {
                    if let Err(reason) = self.detach(&volume, false) {
                        tracing::warn!(
                            "volume \"{volume}\" stays attached, requests to it wait for the next daemon: {reason}"
                        );
                    }
                }
                self.mailbox.send(Command::Stop);
            }
        }
    }

    /// Forgets devices that another tool has removed.
    fn forget_gone(&mut self) {
        let gone = self.attached.iter().filter(|(_, attached)| attached.is_gone());
        for name in gone.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            if let Some(attached) = self.attached.remove(&name) {
                tracing::warn!("{} was removed, not by this daemon", path_of(attached.id));
                unregister(&self.run_dir, attached.id);
            }
            self.publish(&name, None);
        }
    }

    fn bring_up(&mut self) {
        if !Path::new("/dev/ublk-control").exists() && !self.plans.iter().any(|plan| plan.attach) {
            return;
        }
        let left = match self.control().and_then(|(control, _)| control.list()) {
            Ok(left) => left,
            Err(error) => {
                tracing::error!("ublk devices cannot be used: {error}");
                return;
            }
        };
        for plan in self.plans.clone() {
            let is_left = left.iter().any(|info| info.stamp == plan.options.stamp);
            if !is_left && !plan.attach {
                continue;
            }
            match self.attach(&plan.name) {
                Ok(path) => tracing::info!("volume \"{}\" is {path}", plan.name),
                Err(error) => tracing::error!("volume \"{}\" cannot be attached: {error}", plan.name),
            }
        }
        let is_known = |info: &DeviceInfo| self.plans.iter().any(|plan| plan.options.stamp == info.stamp);
        for info in left.iter().filter(|info| is_ours(info.stamp) && !is_known(info)) {
            if holder_of(info) == ProcessState::Gone {
                tracing::warn!("{} belongs to a zcached with other volumes; see `zcctl ublk`", info.path());
            }
        }
    }

    /// The control device, opened when it is first needed.
    fn control(&mut self) -> Result<&mut (Controller, Features), UblkError> {
        if self.control.is_none() {
            let found = preflight()?;
            self.control = Some((Controller::open()?, found.features));
        }
        let Some(control) = self.control.as_mut() else { unreachable!("opened above") };
        Ok(control)
    }

    /// Adds a volume after the start.
    fn add_volume(&mut self, plan: Plan) -> Result<(), String> {
        let (name, stamp, mut wanted) = (plan.name.clone(), plan.options.stamp, plan.attach);
        self.plans.push(plan);
        if !wanted && Path::new("/dev/ublk-control").exists() {
            let left =
                self.control().and_then(|(control, _)| control.list()).map_err(|error| error.to_string())?;
            wanted = left.iter().any(|info| info.stamp == stamp);
        }
        if wanted {
            let path = self.attach(&name)?;
            tracing::info!("volume \"{name}\" is {path}");
        }
        Ok(())
    }

    /// Removes a volume. A device of an earlier daemon stays and waits for a daemon that serves it.
    fn forget(&mut self, name: &str) -> Result<Option<Plan>, String> {
        if let Some(attached) = self.attached.get(name) {
            return Err(format!("it is {}: `zcctl detach {name}` first", path_of(attached.id)));
        }
        let place = self.plans.iter().position(|plan| plan.name == name);
        Ok(place.map(|place| self.plans.remove(place)))
    }

    fn attach(&mut self, name: &str) -> Answer {
        if let Some((id, has_waiting_requests)) =
            self.attached.get(name).map(|attached| (attached.id, attached.has_waiting_requests))
        {
            if has_waiting_requests {
                self.let_go_on(name, id).map_err(|error| error.to_string())?;
            }
            return Ok(path_of(id));
        }
        let Some(plan) = self.plans.iter().find(|plan| plan.name == name).cloned() else {
            return Err(format!("there is no volume \"{name}\""));
        };
        let attached = self.take_over(&plan).and_then(|found| match found {
            Some(attached) => Ok(attached),
            None => self.add(&plan),
        });
        let attached = attached.map_err(|error| error.to_string())?;
        let (id, has_waiting_requests) = (attached.id, attached.has_waiting_requests);
        let path = path_of(id);
        self.attached.insert(name.to_owned(), attached);
        self.publish(name, Some(path.clone()));
        if has_waiting_requests {
            self.let_go_on(name, id).map_err(|error| {
                format!(
                    "{error}; requests to {path} wait until `zcctl attach {name}` succeeds or `zcctl detach \
                    --force {name}` removes it"
                )
            })?;
            // The device is served from here on, even if a later step fails.
            self.take_up(&plan, id);
        }
        Ok(path)
    }

    /// A device that was taken over: its requests are issued again.
    fn let_go_on(&mut self, name: &str, id: u32) -> Result<(), UblkError> {
        let (control, _) = self.control()?;
        control.end_recovery(id, std::process::id())?;
        if let Some(attached) = self.attached.get_mut(name) {
            attached.has_waiting_requests = false;
        }
        tracing::info!("{} was taken over, its requests are issued again", path_of(id));
        Ok(())
    }

    /// Completes the takeover of a device.
    fn take_up(&mut self, plan: &Plan, id: u32) {
        if let Err(error) = self.catch_up(plan, id) {
            tracing::warn!("{} keeps its size: {error}", path_of(id));
        }
        if let Err(error) = register(&self.run_dir, id, &plan.name) {
            tracing::warn!("{} has no stable name: {error}", path_of(id));
        }
    }

    /// Devices of the volume have this size from now on; one that there is, too, where the kernel can.
    fn resize(&mut self, name: &str, size_bytes: u64) -> Resized {
        for plan in self.plans.iter_mut().filter(|plan| plan.name == name) {
            plan.options.attributes.size_bytes = size_bytes;
        }
        let Some(id) = self.attached.get(name).map(|attached| attached.id) else { return Ok(None) };
        let path = path_of(id);
        let (control, features) = self.control().map_err(|error| error.to_string())?;
        if !features.can_resize() {
            return Err(keeps_its_size(&path, name));
        }
        control.resize(id, size_bytes).map_err(|error| error.to_string())?;
        Ok(Some(path))
    }

    /// Resizes a device that was taken over, because the volume may have grown since.
    fn catch_up(&mut self, plan: &Plan, id: u32) -> Result<(), UblkError> {
        let size_bytes = plan.options.attributes.size_bytes;
        let (control, _) = self.control()?;
        let listed = control.list()?;
        let Some(info) = listed.into_iter().find(|info| info.id == id) else { return Ok(()) };
        if info.size_bytes().is_none_or(|has| has >= size_bytes) {
            return Ok(());
        }
        let (control, features) = self.control()?;
        if features.can_resize() {
            return control.resize(info.id, size_bytes);
        }
        tracing::warn!("{}", keeps_its_size(&info.path(), &plan.name));
        Ok(())
    }

    fn publish(&self, name: &str, device: Option<String>) {
        if let Some(mut info) = self.registry.volumes.get_mut(name) {
            info.device = device;
        }
    }

    /// Takes over the volume's device of a dead daemon. Returns `None` if there is none, or it must be replaced.
    ///
    /// A volume that lost acknowledged writes is like a disk after a power failure: mounted file systems must receive
    /// errors, because they would not rewrite data that they consider written, and a later flush would cover a hole.
    fn take_over(&mut self, plan: &Plan) -> Result<Option<Attached>, UblkError> {
        let mailbox = Arc::clone(&self.mailbox);
        let (control, _) = self.control()?;
        let left = control.list()?;
        let Some(info) = left.into_iter().find(|info| info.stamp == plan.options.stamp) else {
            return Ok(None);
        };
        if plan.went_back && info.state != DeviceState::Dead {
            tracing::error!(
                "volume \"{}\" may have lost its newest unflushed writes, so the daemon removes {} instead of \
                 taking it over. Requests to it fail: unmount what is mounted from it, and mount it again (`ack = \
                 \"durable\"` prevents this)",
                plan.name,
                info.path()
            );
            control.fail(info.id)?;
            // File systems on a later device must not get the error again.
            mailbox.send(Command::LossTold(plan.volume));
        } else if info.state != DeviceState::Dead
            && info.is_servable()
            && let Some(info) = control.take_over(info.id)?
        {
            return self
                .serve(plan, info)
                .map(|attached| Some(Attached { has_waiting_requests: true, ..attached }));
        }
        // It was never started, or stopped and not removed, or is of no use.
        control.delete(info.id)?;
        unregister(&self.run_dir, info.id);
        Ok(None)
    }

    fn add(&mut self, plan: &Plan) -> Result<Attached, UblkError> {
        let (control, features) = self.control()?;
        let options = DeviceOptions {
            copy: features.copy_mode(plan.copy),
            resizable: features.can_resize(),
            ..plan.options
        };
        let info = control.add(&options)?;
        let id = info.id;
        let started = register(&self.run_dir, id, &plan.name).and_then(|()| self.serve(plan, info));
        let attached = match started {
            Ok(attached) => attached,
            Err(error) => {
                self.give_up(id, None);
                return Err(error);
            }
        };
        let (control, _) = self.control()?;
        match control.start(id, std::process::id()) {
            Ok(()) => Ok(attached),
            Err(error) => {
                self.give_up(id, Some(&attached.gone));
                Err(error)
            }
        }
    }

    /// Opens the character device and has the data plane serve it.
    fn serve(&self, plan: &Plan, info: DeviceInfo) -> Result<Attached, UblkError> {
        let server = Server::new(CharDevice::open(info)?, plan.options.attributes.size_bytes);
        let (gone, wait) = mpsc::channel();
        let (answer, answered) = mpsc::channel();
        let device = NewDevice { server, volume: plan.volume, answer, gone };
        self.mailbox.send(Command::ServeDevice(Box::new(device)));
        let place = path_of(info.id);
        match answered.recv_timeout(Duration::from_millis(UBLK_GONE_MS)) {
            Ok(Ok(())) => Ok(Attached { id: info.id, gone: wait, has_waiting_requests: false }),
            Ok(Err(reason)) => Err(UblkError::Invalid(format!("{place} cannot be served: {reason}"))),
            // In any case, no command waits for the kernel indefinitely.
            Err(_) => Err(UblkError::Invalid(format!("{place} cannot be served: the data plane is busy"))),
        }
    }

    /// Removes a device that could not be completed. The reason was reported already.
    fn give_up(&mut self, id: u32, gone: Option<&mpsc::Receiver<()>>) {
        if let Err(error) = self.remove(id, gone, None) {
            tracing::warn!("the remains of ublk device {id} cannot be removed: {error}");
        }
    }

    fn remove(
        &mut self,
        id: u32,
        gone: Option<&mpsc::Receiver<()>>,
        claim: Option<OwnedFd>,
    ) -> Result<(), UblkError> {
        let (control, _) = self.control()?;
        control.stop(id)?;
        // An open block device would prevent the removal.
        drop(claim);
        let left_open = gone.is_some_and(|gone| {
            gone.recv_timeout(Duration::from_millis(UBLK_GONE_MS)) == Err(RecvTimeoutError::Timeout)
        });
        if left_open {
            // Removing it would wait for the data plane to close it.
            return Err(UblkError::TimedOut {
                what: "end the requests of",
                place: path_of(id),
                ms: UBLK_GONE_MS,
            });
        }
        control.delete(id)?;
        unregister(&self.run_dir, id);
        Ok(())
    }

    fn detach(&mut self, name: &str, force: bool) -> Answer {
        let Some(attached) = self.attached.get(name) else {
            if !self.plans.iter().any(|plan| plan.name == name) {
                return Err(format!("there is no volume \"{name}\""));
            }
            return Err(format!("volume \"{name}\" is not attached"));
        };
        let path = path_of(attached.id);
        // Held until the device is stopped, so that no program mounts it in between.
        let claim = if force { None } else { Some(claim_in_time(&path)?) };
        let Some(attached) = self.attached.remove(name) else { unreachable!("looked up above") };
        let removed = self.remove(attached.id, Some(&attached.gone), claim);
        self.publish(name, None);
        removed.map_err(|error| error.to_string())?;
        Ok(path)
    }
}

fn keeps_its_size(path: &str, volume: &str) -> String {
    format!(
        "{path} keeps the size it had, because the ublk driver of this kernel cannot change it (Linux 6.16 and later \
         can): unmount it, then `zcctl detach {volume}` and `zcctl attach {volume}`"
    )
}

/// [`claim`] in bounded time: on a thread of its own, which a device that does not answer keeps.
fn claim_in_time(path: &str) -> Result<OwnedFd, String> {
    let (done, wait) = mpsc::channel();
    let owned = path.to_owned();
    let work = move || {
        // The caller has gone away: the device is released.
        let _asker_left = done.send(claim(&owned));
    };
    let started = std::thread::Builder::new().name("ublk-claim".to_owned()).spawn(work);
    started.map_err(|error| format!("{path} cannot be flushed: {error}"))?;
    wait.recv_timeout(Duration::from_millis(UBLK_CLAIM_MS)).map_err(|_| {
        format!("{path} was not flushed within {} s: try again, or use --force", UBLK_CLAIM_MS / 1000)
    })?
}

/// Opens a device exclusively and flushes the kernel's dirty pages.
fn claim(path: &str) -> Result<OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        rustix::io::Errno::BUSY => {
            format!("{path} is in use: unmount it and release the devices built on it, or use --force")
        }
        other => format!("{path} cannot be opened: {other}"),
    })?;
    rustix::fs::fsync(&fd).map_err(|errno| format!("{path} cannot be flushed: {errno}"))?;
    Ok(fd)
}
