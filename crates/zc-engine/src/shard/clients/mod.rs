//! The shard's clients: NBD connections and kernel block devices, and the path of their requests.
//!
//! Job: pass the requests of connections (`nbd`, each a `conn`) and devices (`ublk`) through the limits of their
//! volume and their connection's share to the `requests`, which go to the manager and back; query origins for holes
//! (`status`).
//!
//! Invariants: only the thread with the shard lock runs here. Memory held on behalf of clients is bounded (G9). While
//! the daemon stops, there are no limits: waiting requests are served, and those of a block device return to the
//! kernel.
//!
//! It does not decide on admission or order (`front`).

pub(crate) mod asked;
pub(crate) mod conn;
pub mod nbd;
pub(crate) mod requests;
pub(crate) mod status;
pub mod ublk;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use zc_cache::{CacheManager, OriginLag};
use zc_core::{ErrorKind, ReqId, VolumeId, u64_from_usize};
use zc_io::{AlignedBuf, Operation, Waker};
use zc_nbd::server::{Command, Request};
use zc_ublk::Request as DeviceRequest;

use crate::clock::Clock;
use crate::front::access::Export;
use crate::front::listen::Listener;
use crate::front::reloadable::FrontSettings;
use crate::front::settings::FrontLimits;
use crate::front::shares;
use crate::front::throttle::Cost;
use crate::limits::REQUEST_UNITS;
use crate::origin::Origin;
use crate::origin::map::Mapped;
use crate::registry::Registry;
use crate::shard::base::Base;
use crate::shard::clients::asked::{Asked, Incoming};
use crate::shard::clients::nbd::{ConnectionFilter, NbdFront, Pumped, Written};
use crate::shard::clients::requests::{RequestContext, Requests};
use crate::shard::clients::status::{Holes, sectors};
use crate::shard::clients::ublk::{Devices, NewDevice, TagEvent};
use crate::shard::metrics::Path;
use crate::shard::pending::Tag;
use crate::shard::volumes::{Throttled, Volumes};

/// Parts of the shard that clients use.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) base: &'a mut Base,
    pub(crate) volumes: &'a mut Volumes,
    pub(crate) manager: &'a CacheManager,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Clients {
    nbd: NbdFront,
    ublk: Devices,
    requests: Requests,
    holes: Holes,
}

impl Clients {
    /// Starts without clients; access rules are set later (see `front/reloadable`).
    pub(crate) fn new(
        doors: (Vec<Export>, Vec<Listener>),
        limits: FrontLimits,
        registry: Arc<Registry>,
        clock: Clock,
        waker: Waker,
    ) -> Self {
        Self {
            nbd: NbdFront::new(doors, limits, registry, clock, waker.clone()),
            ublk: Devices::default(),
            requests: Requests::default(),
            holes: Holes::new(waker),
        }
    }

    pub(crate) const fn nbd(&self) -> &NbdFront {
        &self.nbd
    }

    pub(crate) const fn nbd_mut(&mut self) -> &mut NbdFront {
        &mut self.nbd
    }

    /// The requests under way.
    pub(crate) const fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Returns `true` if a volume is a block device.
    pub(crate) fn is_device(&self, volume: VolumeId) -> bool {
        self.ublk.serves(volume)
    }

    /// Returns the requests, and the resources they use.
    const fn parts<'a>(&'a mut self, shared: &'a mut Shared<'_>) -> (&'a mut Requests, RequestContext<'a>) {
        let at = RequestContext {
            base: &mut *shared.base,
            volumes: &mut *shared.volumes,
            nbd: &mut self.nbd,
            ublk: &mut self.ublk,
            manager: shared.manager,
        };
        (&mut self.requests, at)
    }

    /// Applies new bounds, exports and limits.
    pub(crate) fn apply(&mut self, shared: &mut Shared<'_>, mut front: FrontSettings) {
        if shared.base.stopping.is_running() {
            let limits = std::mem::take(&mut front.volumes);
            shared.volumes.set_limits(limits, shared.base.clock.now_ns());
        }
        self.nbd.apply(shared.volumes, front);
    }

    pub(crate) fn grow(&mut self, volume: VolumeId, size_bytes: u64) {
        self.nbd.grow_export(volume, size_bytes);
        self.ublk.grow(volume, size_bytes);
    }

    /// A volume is served no more.
    pub(crate) fn forget(&mut self, volume: VolumeId) {
        self.holes.forget(volume);
    }

    /// Closes connections; their numbers.
    pub(crate) fn disconnect(&mut self, volumes: &mut Volumes, which: ConnectionFilter) -> Vec<u64> {
        self.nbd.disconnect(volumes, which)
    }

    pub(crate) fn serve_device(&mut self, base: &mut Base, volumes: &mut Volumes, device: NewDevice) {
        let connections = self.nbd.limits().connections;
        self.ublk.serve(base, volumes, device, connections);
    }

    /// Serves an existing connection. Returns `true` if it was admitted.
    pub(crate) fn serve_only(&mut self, base: &mut Base, volumes: &mut Volumes, socket: OwnedFd) -> bool {
        self.nbd.serve_only(base, volumes, socket)
    }

    pub(crate) fn received(
        &mut self,
        shared: &mut Shared<'_>,
        conn: u64,
        result: &io::Result<usize>,
        operation: Operation,
    ) {
        if let Some(written) = self.nbd.received(shared.base, shared.volumes, conn, result, operation) {
            self.begin_write(shared, written);
        }
    }

    /// Handles the completion of an operation of a block device's tag.
    pub(crate) fn device_ended(
        &mut self,
        shared: &mut Shared<'_>,
        tag: Tag,
        result: io::Result<usize>,
        operation: Operation,
    ) {
        match self.ublk.ended(shared.base, tag, result, operation) {
            None => {}
            Some(TagEvent::Asks { volume, request, memory }) => {
                let asked = Asked::of_device(&request);
                let cost = Cost::of(asked.command, asked.length);
                let waiting = Throttled::Device { tag, request, memory };
                if let Some(waiting) = shared.volumes.passes(volume, waiting, cost, &shared.base.clock) {
                    self.go_on(shared, volume, waiting);
                }
            }
            Some(TagEvent::Leaves { device, volume }) => {
                for waiting in shared.volumes.withdraw_device(volume, device, &shared.base.clock) {
                    self.go_on(shared, volume, waiting);
                }
            }
        }
    }

    /// Processes connections with pending input, within the turn's bound of work.
    pub(crate) fn pump(&mut self, shared: &mut Shared<'_>) {
        self.nbd.line_up_touched();
        while let Some(id) = self.nbd.next_in_line() {
            let units = match self.nbd.pump(shared.base, shared.volumes, id) {
                Pumped::Idle => None,
                Pumped::Progress { units } => Some(units),
                Pumped::Piece(client) => {
                    let (requests, mut at) = self.parts(shared);
                    Some(requests.begin_piece(&mut at, client))
                }
                Pumped::Write(written) => {
                    self.begin_write(shared, written);
                    Some(REQUEST_UNITS)
                }
                Pumped::Asks { volume, request } => {
                    let units = shares::units(request.command(), request.length());
                    self.ask_limits(shared, id, volume, request);
                    Some(units)
                }
            };
            self.nbd.pumped(id, units);
        }
    }

    /// Starts a session's request, or queues it for the limits of its volume.
    fn ask_limits(&mut self, shared: &mut Shared<'_>, conn: u64, volume: VolumeId, request: Request) {
        let cost = Cost::of(request.command(), request.length());
        if shared.volumes.passes(volume, Throttled::Conn(conn), cost, &shared.base.clock).is_some() {
            self.ask_share(shared, conn, volume, request);
        } else {
            self.nbd.waits_for_limits(conn, request);
        }
    }

    /// A request of a session: it begins now or waits for its connection's share.
    fn ask_share(&mut self, shared: &mut Shared<'_>, conn: u64, volume: VolumeId, request: Request) {
        if let Some(request) = self.nbd.shared(shared.base, conn, request) {
            self.begin(shared, conn, volume, request);
        }
    }

    /// Starts queued requests that the limits of their volume now admit.
    pub(crate) fn begin_throttled(&mut self, shared: &mut Shared<'_>) {
        if shared.volumes.throttled().is_empty() {
            return;
        }
        let now_ns = shared.base.clock.now_ns();
        for id in shared.volumes.throttled().clone() {
            while let Some(waiting) = shared.volumes.next_to_go_on(id, now_ns) {
                self.go_on(shared, id, waiting);
            }
        }
    }

    /// A request waits for limits no more.
    fn go_on(&mut self, shared: &mut Shared<'_>, volume: VolumeId, waiting: Throttled) {
        match waiting {
            Throttled::Conn(conn) => {
                if let Some(request) = self.nbd.take_waiting(conn) {
                    self.ask_share(shared, conn, volume, request);
                    self.nbd.touch(conn);
                }
            }
            Throttled::Device { tag, request, memory } if shared.base.stopping.is_running() => {
                self.begin_for_device(shared, (tag, volume), &request, memory);
            }
            Throttled::Device { .. } => {}
        }
    }

    /// Starts requests that waited for their share, in order of virtual time, within the available memory.
    pub(crate) fn begin_waiting(&mut self, shared: &mut Shared<'_>) {
        let mut is_held_up = false;
        for key in self.nbd.take_line() {
            if let Some((volume, request)) = self.nbd.next_of_line(key, &mut is_held_up) {
                let conn = key.1;
                self.begin(shared, conn, volume, request);
                self.nbd.touch(conn);
            }
        }
    }

    /// Begins a request of a session; of a WRITE, to take its payload.
    fn begin(&mut self, shared: &mut Shared<'_>, conn: u64, volume: VolumeId, request: Request) {
        match request.command() {
            Command::Write => self.nbd.take_payload(shared.base, conn, volume, request),
            Command::BlockStatus => self.begin_status(shared, conn, volume, request),
            _ => {
                let (requests, mut at) = self.parts(shared);
                requests.begin(&mut at, Incoming::of_connection(conn, volume, request));
            }
        }
    }

    /// Begins a WRITE whose payload is complete.
    fn begin_write(&mut self, shared: &mut Shared<'_>, written: Written) {
        let Written { conn, volume, request, memory } = written;
        let (requests, mut at) = self.parts(shared);
        requests.begin_write(&mut at, Incoming::of_connection(conn, volume, request), memory);
    }

    /// A request of a block device, with the bytes of a write.
    pub(crate) fn begin_for_device(
        &mut self,
        shared: &mut Shared<'_>,
        (tag, volume): (Tag, VolumeId),
        request: &DeviceRequest,
        memory: Option<AlignedBuf>,
    ) {
        let incoming = Incoming::of_device(tag, volume, request);
        let (requests, mut at) = self.parts(shared);
        match memory {
            Some(memory) => {
                at.base.payload_bytes += u64_from_usize(memory.held_bytes());
                requests.begin_write(&mut at, incoming, memory);
            }
            None => requests.begin(&mut at, incoming),
        }
    }

    /// Starts a session's BLOCK_STATUS: queries cache and origin.
    fn begin_status(&mut self, shared: &mut Shared<'_>, conn: u64, volume: VolumeId, request: Request) {
        let (start, end) = sectors(&request);
        let length = end - start;
        let mut cache = Vec::new();
        shared.manager.residency(volume, start, length, &mut cache);
        let asked_bytes = match shared.manager.origin_lag(volume) {
            OriginLag::Nothing => length,
            // Dirty data beyond the end of the runs is unknown.
            OriginLag::Dirty => cache.iter().map(|run| run.len_bytes).sum(),
            OriginLag::Unknown => 0,
        };
        let wanted = self.nbd.wanted(conn, &request);
        let is_remote = matches!(shared.volumes.used(volume).origin, Origin::Remote(_));
        // The residency of a server's export is known to that server.
        let wants_origin = wanted.iter().any(|(_, is_allocation)| *is_allocation || is_remote);
        let (requests, mut at) = self.parts(shared);
        let id = requests.begin_status(&mut at, conn, volume, request, cache);
        if wants_origin && asked_bytes > 0 {
            let of = shared.volumes.used(volume);
            if self.holes.ask((volume, of), id, start, start + asked_bytes) {
                return;
            }
        }
        self.origin_mapped(shared, Mapped::unknown(id, length));
    }

    fn origin_mapped(&mut self, shared: &mut Shared<'_>, mapped: Mapped) {
        let (requests, mut at) = self.parts(shared);
        requests.origin_mapped(&mut at, mapped);
    }

    /// Processes results of other threads: handshake progress, holes of origins.
    pub(crate) fn take_found(&mut self, shared: &mut Shared<'_>) {
        self.nbd.take_handshakes(shared.base, shared.volumes);
        for mapped in self.holes.take() {
            self.origin_mapped(shared, mapped);
        }
    }

    /// The manager has answered a request.
    pub(crate) fn part_done(
        &mut self,
        shared: &mut Shared<'_>,
        req: ReqId,
        result: Result<(), ErrorKind>,
        path: Path,
    ) {
        let (requests, mut at) = self.parts(shared);
        requests.part_done(&mut at, req, result, path);
    }

    /// Ends requests of abandoned connections that have not started.
    pub(crate) fn drop_unbegun(&mut self, shared: &mut Shared<'_>) {
        let (requests, mut at) = self.parts(shared);
        requests.drop_unbegun(&mut at);
    }

    /// Sends the turn's replies. Returns `true` if the only connection of the shard has closed, which stops the shard.
    pub(crate) fn send_replies(&mut self, shared: &mut Shared<'_>) -> bool {
        self.nbd.send_replies(shared.base, shared.volumes)
    }
}
