//! Queues of devices and cores that serve the work of requests, in the order of time.
//!
//! Invariants: a request is answered when all work that it waits for is done. Background work is served in the gaps.
//! The queues do not know the cache that submits the work.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use zc_core::{Codec, Map, u64_from_usize};
use zc_trace::Op;

use super::devices::{Cores, Disks, Ssd};
use super::profile::{CpuProfile, Profile};
use super::report::{Recorder, TimeReport};
use super::stored::Store;
use super::timing::{Arrival, Timing};
use crate::error::ReplayError;
use crate::load::{Step, Trace};
use crate::work::{Asked, VOLUME_GAP, Work};

/// Origin of uncached data.
enum Origin<'a> {
    InPlace(Disks),
    Store(&'a mut Store),
}

struct Machine<'a> {
    origin: Origin<'a>,
    ssd: Ssd,
    cores: Cores,
    cpu: CpuProfile,
    codec: Codec,
}

impl<'a> Machine<'a> {
    fn new(timing: &Timing, trace: &Trace, codec: Codec, store: Option<&'a mut Store>) -> Self {
        let Profile { disk, ssd, cpu, .. } = timing.profile;
        let last = u64_from_usize(trace.spans().len().saturating_sub(1)) * VOLUME_GAP;
        let span = last + trace.spans().last().copied().unwrap_or(0);
        let in_place = || Origin::InPlace(Disks::new(disk, span, timing.memory_scale));
        Self {
            origin: store.map_or_else(in_place, Origin::Store),
            ssd: Ssd::new(ssd),
            cores: Cores::new(cpu.cores),
            cpu,
            codec,
        }
    }

    /// Work that a client waits for: when it is done.
    fn serve(&mut self, now: u64, work: Work) -> u64 {
        match work {
            Work::OriginRead { place, bytes } => self.read_origin(now, place, bytes),
            Work::OriginWrite { place, bytes } => self.write_origin(now, place, bytes),
            Work::CacheRead { place, bytes, .. } => self.ssd.read(now, place, bytes),
            Work::Transfer { bytes } => self.ssd.transfer(now, bytes),
            Work::CacheWrite { place, bytes } => {
                self.ssd.write(now, place, bytes);
                now
            }
            Work::Hash { .. } | Work::Compress { .. } | Work::Decompress { .. } | Work::Request => {
                let ns = self.cpu_ns(work);
                self.cores.serve(now, ns)
            }
        }
    }

    fn read_origin(&mut self, now: u64, place: u64, bytes: u64) -> u64 {
        match &mut self.origin {
            Origin::InPlace(disks) => disks.read(now, place, bytes),
            Origin::Store(store) => {
                let read = store.read(now, place, bytes);
                self.cores.serve(read, self.cpu.decompress_ns(Codec::Lz4, bytes))
            }
        }
    }

    fn write_origin(&mut self, now: u64, place: u64, bytes: u64) -> u64 {
        match &mut self.origin {
            Origin::InPlace(disks) => disks.write(now, place, bytes),
            Origin::Store(store) => {
                let ns = self.cpu.hash_ns(bytes) + self.cpu.compress_ns(Codec::Lz4, bytes);
                let ready = self.cores.serve(now, ns);
                store.overwrite(ready, place, bytes)
            }
        }
    }

    /// A request that counts begins.
    fn note(&mut self, step: &Step, trace: &Trace) {
        if let Origin::Store(store) = &mut self.origin {
            store.set_timed(true);
            store.note(step, trace);
        }
    }

    /// Processes a request that only warms the cache: its writes reach the store, and take no time.
    fn pass(&mut self, step: &Step, trace: &Trace, asked: &[Asked]) {
        let Origin::Store(store) = &mut self.origin else { return };
        store.note(step, trace);
        for asked in asked {
            if let Work::OriginWrite { place, bytes } = asked.work {
                store.overwrite(0, place, bytes);
            }
        }
    }

    /// Nanoseconds that all disks were at work, and how many there are.
    fn disks_busy(&self) -> (u64, u64) {
        match &self.origin {
            Origin::InPlace(disks) => disks.busy(),
            Origin::Store(store) => store.busy(),
        }
    }

    /// Work that no client waits for.
    fn owe(&mut self, now: u64, work: Work) {
        match work {
            Work::Hash { .. } | Work::Compress { .. } | Work::Decompress { .. } | Work::Request => {
                let ns = self.cpu_ns(work);
                self.cores.owe(now, ns);
            }
            Work::CacheRead { place, bytes, .. } => {
                let read = self.ssd.read(now, place, bytes);
                self.ssd.transfer_later(read, bytes);
            }
            other => {
                self.serve(now, other);
            }
        }
    }

    fn cpu_ns(&self, work: Work) -> u64 {
        match work {
            Work::Hash { bytes } => self.cpu.hash_ns(bytes),
            Work::Compress { bytes } => self.cpu.compress_ns(self.codec, bytes),
            Work::Decompress { bytes } => self.cpu.decompress_ns(self.codec, bytes),
            _ => self.cpu.request_ns(),
        }
    }
}

/// A request on its way.
struct Live {
    began: u64,
    kind: Op,
    chains: Vec<VecDeque<Work>>,
    left: usize,
    background: Vec<Work>,
}

/// A request before it begins.
struct Next {
    time_ns: u64,
    kind: Op,
    asked: Vec<Asked>,
}

impl Live {
    fn new(next: &Next, now: u64) -> Self {
        let mut chains = vec![VecDeque::from([Work::Request])];
        let mut background = Vec::new();
        for asked in &next.asked {
            if !asked.foreground {
                background.push(asked.work);
                continue;
            }
            let mut chain = VecDeque::from([asked.work]);
            if let Work::CacheRead { bytes, decoded, .. } = asked.work {
                chain.push_back(Work::Transfer { bytes });
                chain.push_back(Work::Decompress { bytes: decoded });
            }
            chains.push(chain);
        }
        Self { began: now, kind: next.kind, left: chains.len(), chains, background }
    }
}

/// Time, number of the event, request, chain.
type Event = Reverse<(u64, u64, u64, usize)>;

struct Queue<'a> {
    machine: Machine<'a>,
    events: BinaryHeap<Event>,
    numbers: u64,
    live: Map<u64, Live>,
    report: Recorder,
}

impl Queue<'_> {
    fn push(&mut self, time: u64, request: u64, chain: usize) {
        self.numbers += 1;
        self.events.push(Reverse((time, self.numbers, request, chain)));
    }

    fn begin(&mut self, next: &Next, now: u64) {
        self.numbers += 1;
        let (id, live) = (self.numbers, Live::new(next, now));
        let chains = live.chains.len();
        self.live.insert(id, live);
        (0..chains).for_each(|chain| self.push(now, id, chain));
    }

    /// The next event: when a request was answered, if one was.
    fn turn(&mut self) -> Option<Option<u64>> {
        let Reverse((now, _, id, chain)) = self.events.pop()?;
        let Some(live) = self.live.get_mut(&id) else { return Some(None) };
        if let Some(work) = live.chains[chain].pop_front() {
            let done = self.machine.serve(now, work);
            self.push(done, id, chain);
            return Some(None);
        }
        live.left -= 1;
        if live.left > 0 {
            return Some(None);
        }
        let live = self.live.remove(&id)?;
        live.background.iter().for_each(|work| self.machine.owe(now, *work));
        self.report.add(live.kind, live.began, now);
        Some(Some(now))
    }

    fn run(
        &mut self,
        arrival: Arrival,
        mut next: impl FnMut(&mut Machine<'_>) -> Result<Option<Next>, ReplayError>,
    ) -> Result<(), ReplayError> {
        if let Arrival::Closed { clients } = arrival {
            for _ in 0..clients.max(1) {
                if let Some(first) = next(&mut self.machine)? {
                    self.begin(&first, 0);
                }
            }
            while let Some(answered) = self.turn() {
                if let Some(now) = answered
                    && let Some(more) = next(&mut self.machine)?
                {
                    self.begin(&more, now);
                }
            }
            return Ok(());
        }
        let Arrival::Open { speed } = arrival else { return Ok(()) };
        let mut start = None;
        while let Some(request) = next(&mut self.machine)? {
            let first = *start.get_or_insert(request.time_ns);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "positive; huge ones saturate"
            )]
            let at = (request.time_ns.saturating_sub(first) as f64 / speed.max(1e-6)) as u64;
            while self.events.peek().is_some_and(|Reverse((time, ..))| *time < at) {
                self.turn();
            }
            self.begin(&request, at);
        }
        while self.turn().is_some() {}
        Ok(())
    }
}

/// Simulates the queues over a trace. `ask` returns the work of a request; the first `warm_requests` take no time.
pub(super) fn simulate(
    trace: &Trace,
    timing: &Timing,
    codec: Codec,
    warm_requests: u64,
    ask: impl FnMut(&Step) -> Result<Vec<Asked>, ReplayError>,
) -> Result<TimeReport, ReplayError> {
    if timing.profile.disk.is_store() {
        return simulate_on(&mut Store::of(trace, timing)?, trace, timing, codec, warm_requests, ask);
    }
    simulate_with(Machine::new(timing, trace, codec, None), trace, timing, warm_requests, ask)
}

/// Sends a trace through the queues, with a store that was filled before, and shows the volumes of the trace.
pub(super) fn simulate_on(
    store: &mut Store,
    trace: &Trace,
    timing: &Timing,
    codec: Codec,
    warm_requests: u64,
    ask: impl FnMut(&Step) -> Result<Vec<Asked>, ReplayError>,
) -> Result<TimeReport, ReplayError> {
    store.begin(trace);
    let machine = Machine::new(timing, trace, codec, Some(store));
    let report = simulate_with(machine, trace, timing, warm_requests, ask);
    store.end()?;
    report
}

fn simulate_with(
    machine: Machine<'_>,
    trace: &Trace,
    timing: &Timing,
    warm_requests: u64,
    mut ask: impl FnMut(&Step) -> Result<Vec<Asked>, ReplayError>,
) -> Result<TimeReport, ReplayError> {
    let (events, live) = (BinaryHeap::new(), Map::default());
    let mut queue = Queue { machine, events, numbers: 0, live, report: Recorder::default() };
    let mut steps = trace.steps.iter();
    let mut passed = 0;
    let next = |machine: &mut Machine<'_>| {
        for step in steps.by_ref() {
            let asked = ask(step)?;
            passed += 1;
            if passed > warm_requests {
                machine.note(step, trace);
                return Ok(Some(Next { time_ns: step.time_us * 1000, kind: step.op, asked }));
            }
            machine.pass(step, trace, &asked);
        }
        Ok(None)
    };
    queue.run(timing.arrival, next)?;
    let machine = &queue.machine;
    Ok(queue.report.finish(machine.disks_busy(), machine.ssd.busy(), machine.cores.busy()))
}
