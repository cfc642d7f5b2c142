//! Requests that wait for the limits of their volume.
//!
//! Job: ask a volume's `Throttle` for each request of its clients, keep what may not begin, begin it when it may, and
//! say how long the data plane may sleep until then.
//!
//! Invariants: a connection has one request that waits, and takes nothing from its socket meanwhile; it holds no memory
//! for it. Requests of a block device wait with the bytes of their writes. Other volumes do not wait. While the daemon
//! stops, there are no limits: what waits is served, and what a block device asked goes back to the kernel.
//!
//! What it does not do: the limits (`throttle`), or shares of memory and service, which a request asks for behind them
//! (`waiting`).

use std::collections::BTreeMap;
use std::time::Duration;

use zc_config::VolumeLimits;
use zc_core::VolumeId;
use zc_io::AlignedBuf;
use zc_nbd::server::Request;
use zc_ublk::Request as DeviceRequest;

use crate::front::throttle::{Cost, Waits};
use crate::shard::clients::ublk::{Tag, asked};
use crate::shard::clients::waiting::Waiting;
use crate::shard::{Shard, Volume};

/// A request that waits.
#[derive(Debug)]
pub(crate) enum Held {
    /// That of a connection, which keeps it.
    Conn(u64),
    /// That of a block device, with the bytes of a write.
    Device { tag: Tag, request: DeviceRequest, memory: Option<AlignedBuf> },
}

impl Shard {
    /// A request of a session: it goes on now, or waits for the limits of its volume.
    pub(crate) fn ask_limits(&mut self, id: u64, volume: VolumeId, request: Request) {
        let cost = Cost::of(request.command(), request.length());
        if self.passes(volume, Held::Conn(id), cost).is_some() {
            self.ask_share(id, volume, request);
            return;
        }
        let now_ms = self.clock.now_ms();
        if let Some(conn) = self.nbd.conns.get_mut(&id) {
            conn.waiting = Some(Waiting::for_limits(request, now_ms));
        }
    }

    /// A request of a block device: it goes on now, or waits for the limits of its volume.
    pub(crate) fn ask_limits_of_device(
        &mut self,
        (tag, volume): (Tag, VolumeId),
        request: DeviceRequest,
        memory: Option<AlignedBuf>,
    ) {
        let asked = asked(&request);
        let cost = Cost::of(asked.command, asked.length);
        if let Some(Held::Device { tag, request, memory }) =
            self.passes(volume, Held::Device { tag, request, memory }, cost)
        {
            self.begin_ublk(tag, request, memory);
        }
    }

    /// The request, if it does not have to wait.
    fn passes(&mut self, volume: VolumeId, held: Held, cost: Option<Cost>) -> Option<Held> {
        let Some(cost) = cost.filter(|_| !self.volume_mut(volume).throttle.is_off()) else {
            return Some(held);
        };
        let now_ns = self.clock.now_ns();
        let passed = self.volume_mut(volume).throttle.ask(held, cost, now_ns);
        if passed.is_none() {
            self.throttled.insert(volume);
        }
        passed
    }

    /// Begins what waited and may begin now.
    pub(crate) fn begin_throttled(&mut self) {
        if self.throttled.is_empty() {
            return;
        }
        let now_ns = self.clock.now_ns();
        for id in self.throttled.clone() {
            while let Some(held) = self.volumes.get_mut(&id).and_then(|volume| volume.throttle.next(now_ns)) {
                self.go_on(id, held);
            }
            if !self.volumes.get(&id).is_some_and(|volume| volume.throttle.are_waiting()) {
                self.throttled.remove(&id);
            }
        }
    }

    fn go_on(&mut self, volume: VolumeId, held: Held) {
        match held {
            Held::Conn(id) => {
                let conn = self.nbd.conns.get_mut(&id);
                if let Some(waiting) = conn.and_then(|conn| conn.waiting.take()) {
                    self.ask_share(id, volume, waiting.request);
                    self.touch(id);
                }
            }
            Held::Device { tag, request, memory } if self.stopping.is_running() => {
                self.begin_ublk(tag, request, memory);
            }
            Held::Device { .. } => {}
        }
    }

    /// How long the data plane may sleep before the next of those that wait may begin.
    pub(crate) fn throttled_for(&mut self) -> Option<Duration> {
        if self.throttled.is_empty() {
            return None;
        }
        let now_ns = self.clock.now_ns();
        let due_ns = self.throttled.iter().filter_map(|id| self.volumes.get_mut(id)?.throttle.due_ns(now_ns));
        due_ns.min().map(Duration::from_nanos)
    }

    /// A connection's request will not be served.
    pub(crate) fn withdraw_throttled(&mut self, id: u64) {
        let volume =
            self.nbd.conns.get(&id).filter(|conn| conn.waiting.is_some()).and_then(|conn| conn.volume);
        if let Some(volume) = volume.filter(|volume| self.throttled.contains(volume)) {
            let now_ns = self.clock.now_ns();
            let is_own = |held: &Held| matches!(held, Held::Conn(conn) if *conn == id);
            self.volume_mut(volume).throttle.take_out(is_own, now_ns);
        }
    }

    /// The kernel takes a device away: what it asked does not keep it.
    pub(crate) fn let_device_go_on(&mut self, device: u32, volume: VolumeId) {
        let now_ns = self.clock.now_ns();
        let is_own = |held: &Held| matches!(held, Held::Device { tag, .. } if tag.is_of(device));
        for held in self.volume_mut(volume).throttle.take_out(is_own, now_ns) {
            self.go_on(volume, held);
        }
    }

    /// Other limits hold.
    pub(crate) fn set_limits(&mut self, limits: Vec<(VolumeId, VolumeLimits)>) {
        if !self.stopping.is_running() {
            return;
        }
        let now_ns = self.clock.now_ns();
        for (id, limits) in limits {
            if let Some(volume) = self.volumes.get_mut(&id) {
                volume.throttle.set(limits, now_ns);
            }
        }
    }

    /// No limit holds any more.
    pub(crate) fn lift_limits(&mut self) {
        let now_ns = self.clock.now_ns();
        for volume in self.volumes.values_mut() {
            volume.throttle.set(VolumeLimits::default(), now_ns);
        }
    }

    /// How requests waited, by volume.
    pub(crate) fn waits(&self) -> BTreeMap<String, Waits> {
        let of = |volume: &Volume| (volume.name.clone(), volume.throttle.waits());
        self.volumes.values().map(of).collect()
    }
}
