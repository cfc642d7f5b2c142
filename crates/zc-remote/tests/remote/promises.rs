//! Random histories against a model: no flushed byte is lost, reads are the newest, no request fails within the bound.

use bytes::Bytes;
use proptest::prelude::*;
use zc_nbd::proto::{STATE_HOLE, STATE_ZERO};
use zc_nbd::server::{BlockSizes, ExportFlags};
use zc_nbd::wire::HeaderStyle;
use zc_remote::{Request, RequestId, Settings};

use crate::server::{SECTOR, Server, flags};
use crate::world::{World, settings};

const SECTORS: usize = 40;

#[derive(Debug, Clone)]
struct Flight {
    id: RequestId,
    request: Request,
    first: usize,
    count: usize,
    /// For a flush and a status: by sector, its permitted contents when the request was submitted, and since.
    answered: Vec<Vec<u8>>,
}

/// Content of the sectors, a byte for each.
struct Model {
    /// Values that a sector may have. The first is the newest answered one; others are of changes that failed.
    values: Vec<Vec<u8>>,
    flights: Vec<Flight>,
    next: u8,
    /// Requests may fail.
    may_fail: bool,
}

impl Model {
    fn is_free(&self, first: usize, count: usize) -> bool {
        self.flights
            .iter()
            .all(|flight| flight.first + flight.count <= first || first + count <= flight.first)
    }

    fn submit(&mut self, world: &mut World) {
        let first = world.random(SECTORS);
        let count = 1 + world.random((SECTORS - first).min(12));
        let kind = world.random(11);
        let is_ordered = (1..10).contains(&kind);
        if is_ordered && !self.is_free(first, count) {
            return;
        }
        let (offset, len_bytes) =
            (u64::try_from(first * SECTOR).unwrap(), u64::try_from(count * SECTOR).unwrap());
        let fua = world.random(4) == 0;
        self.next = self.next.wrapping_add(1).max(1);
        let request = match kind {
            0 => Request::Flush,
            1..4 => Request::Read { offset, len_bytes },
            4 => Request::Trim { offset, len_bytes, fua },
            5 => Request::Zero { offset, len_bytes, no_hole: count > 2, fua },
            10 => Request::Status { offset, len_bytes },
            _ => Request::Write { offset, data: Bytes::from(vec![self.next; count * SECTOR]), fua },
        };
        let answered = self.values.clone();
        let (first, count) = if is_ordered { (first, count) } else { (0, 0) };
        let id = world.submit(request.clone());
        self.flights.push(Flight { id, request, first, count, answered });
    }

    /// Takes the answers.
    fn collect(&mut self, world: &World) {
        let is_done = |flight: &&Flight| world.done.contains_key(&flight.id);
        let done: Vec<RequestId> = self.flights.iter().filter(is_done).map(|flight| flight.id).collect();
        for id in done {
            let Some(at) = self.flights.iter().position(|flight| flight.id == id) else { continue };
            let flight = &self.flights[at].clone();
            let result = &world.done[&flight.id];
            assert!(self.may_fail || result.is_ok(), "{:?}: {result:?}", flight.request);
            self.answered(world, flight, result.is_ok());
        }
        self.flights.retain(|flight| !world.done.contains_key(&flight.id));
    }

    fn answered(&mut self, world: &World, flight: &Flight, is_ok: bool) {
        let range = flight.first..flight.first + flight.count;
        let (value, fua) = match &flight.request {
            Request::Flush if is_ok => return self.check_durable(world, flight),
            Request::Read { .. } if is_ok => return self.check_read(world, flight),
            Request::Status { .. } if is_ok => return self.check_status(world, flight),
            Request::Flush | Request::Read { .. } | Request::Status { .. } => return,
            Request::Write { data, fua, .. } => (data[0], *fua),
            // A server without TRIM leaves the sectors as they are.
            Request::Trim { .. } if !world.server.export.flags.trim => return,
            Request::Trim { fua, .. } | Request::Zero { fua, .. } => (0, *fua),
        };
        for sector in range.clone() {
            self.flights.iter_mut().for_each(|flight| flight.answered[sector].push(value));
            if is_ok {
                self.values[sector] = vec![value];
            } else {
                self.values[sector].push(value);
            }
        }
        for sector in range.filter(|_| is_ok && fua) {
            assert_eq!(world.server.durable[sector * SECTOR], value, "FUA of sector {sector}");
        }
    }

    fn check_read(&mut self, world: &World, flight: &Flight) {
        let data = &world.reads.0[&flight.id];
        for (at, bytes) in data.chunks(SECTOR).enumerate() {
            let values = &mut self.values[flight.first + at];
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn");
            assert!(values.contains(&bytes[0]), "sector {}: {} of {values:?}", flight.first + at, bytes[0]);
            // A value that was read once stays.
            *values = vec![bytes[0]];
        }
    }

    /// A reported hole has had no content at some time since the request.
    fn check_status(&self, world: &World, flight: &Flight) {
        let status = world.statuses.get(&flight.id).cloned().unwrap_or_default();
        let Request::Status { offset, len_bytes } = flight.request else { return };
        let sectors = |bytes: u64| usize::try_from(bytes).unwrap() / SECTOR;
        let mut at = sectors(offset);
        for run in status.allocation {
            assert!(run.flags & !(STATE_HOLE | STATE_ZERO) == 0, "flags that are not known are cleared");
            let end = at + sectors(run.len_bytes);
            for sector in at..end {
                let values = &flight.answered[sector];
                let is_right = values.contains(&0) || self.is_in_flight(sector);
                assert!(!run.is_zero() || is_right, "sector {sector}: {values:?}");
            }
            at = end;
        }
        assert!(at <= sectors(offset + len_bytes), "no run is beyond the range");
    }

    fn is_in_flight(&self, sector: usize) -> bool {
        self.flights.iter().any(|other| (other.first..other.first + other.count).contains(&sector))
    }

    /// The server holds, durably, each change that was answered before the flush or a newer one.
    fn check_durable(&self, world: &World, flight: &Flight) {
        for (sector, before) in flight.answered.iter().enumerate() {
            let found = world.server.durable[sector * SECTOR];
            let is_right = before.contains(&found) || self.is_in_flight(sector);
            assert!(is_right, "sector {sector}: {found} is durable, {before:?} was flushed");
        }
    }
}

#[derive(Debug, Clone)]
struct Plan {
    seed: u64,
    steps: usize,
    style: HeaderStyle,
    flags: ExportFlags,
    /// Failures of one step in a thousand.
    crashes: usize,
    connections: usize,
    outage_max_ms: Option<u64>,
    /// Limits of the server: sectors of one run of a block status, and zeroing by writing.
    run_max: usize,
    zeroes_slowly: bool,
}

fn plan() -> impl Strategy<Value = Plan> {
    let styles = [HeaderStyle::Simple, HeaderStyle::Structured, HeaderStyle::Extended];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), 0..8_u8, any::<bool>())
        .prop_map(|(fua, trim, write_zeroes, multi_conn, no_flush, fast_zero)| ExportFlags {
            fua,
            fast_zero,
            trim,
            write_zeroes,
            multi_conn,
            flush: no_flush > 0,
            ..flags()
        });
    let bound = prop_oneof![3 => Just(None), 1 => (200..4000_u64).prop_map(Some)];
    let style = prop::sample::select(styles.to_vec());
    let limits = (1..20_usize, any::<bool>());
    (any::<u64>(), 50..600_usize, style, flags, 0..60_usize, 1..=4_usize, bound, limits).prop_map(
        |(seed, steps, style, flags, crashes, connections, outage_max_ms, (run_max, zeroes_slowly))| Plan {
            seed,
            steps,
            style,
            flags,
            crashes,
            connections,
            outage_max_ms,
            run_max,
            zeroes_slowly,
        },
    )
}

fn step(world: &mut World, model: &mut Model, plan: &Plan) {
    if world.random(1000) < plan.crashes {
        world.listens = world.random(3) > 0;
        let one = world.random(plan.connections);
        if world.random(3) == 0 && world.server.is_connected(one) {
            world.drop_one(one);
        } else if world.random(2) == 0 {
            world.crash_unnoticed();
        } else {
            world.crash();
        }
        let payload_max = [512, 1024, 2048][world.random(3)];
        world.server.export.blocks = BlockSizes::new(1, 512, payload_max).unwrap();
        return;
    }
    if world.random(60) == 0 {
        // Everything works for a while, so that connections come up.
        world.listens = true;
        world.tick(5_000);
        world.run();
        return;
    }
    match world.random(9) {
        0 | 1 => model.submit(world),
        2 => {
            let most = 1 + world.random(3000);
            match world.random(plan.connections + 1) {
                0 => world.move_up(most),
                at => world.move_up_one(at - 1, most),
            };
        }
        3 if world.server.pending() > 0 => {
            let at = world.random(world.server.pending());
            world.server.carry_out(at, None);
        }
        4 if world.server.finished() > 0 => {
            let at = world.random(world.server.finished());
            world.server.answer(at);
        }
        5 => {
            let most = 1 + world.random(3000);
            match world.random(plan.connections + 1) {
                0 => world.move_down(most),
                at => world.move_down_one(at - 1, most),
            };
        }
        6 => {
            world.connect();
            // All bytes arrive, so that handshakes end. Pending requests stay at the server.
            while world.random(2) == 0 && (world.move_up(usize::MAX) | world.move_down(usize::MAX)) {}
        }
        7 if world.random(3) == 0 => {
            for _ in 0..world.random(world.server.pending() + 1) {
                let at = world.random(world.server.pending());
                world.server.execute(at, None);
            }
        }
        _ => {
            let is_long = world.random(30) == 0;
            let ms = if is_long { 12_000 } else { u64::try_from(world.random(400)).unwrap() };
            world.listens |= world.random(4) == 0;
            world.tick(ms);
        }
    }
}

fn history(plan: &Plan) {
    let mut server = Server::new(SECTORS, plan.flags, 2048, plan.style);
    (server.run_max, server.zeroes_slowly) = (plan.run_max, plan.zeroes_slowly);
    let settings = Settings { connections: plan.connections, ..settings(plan.seed, plan.outage_max_ms) };
    let mut world = World::new(server, settings);
    let values = vec![vec![0]; SECTORS];
    let mut model = Model { values, flights: Vec::new(), next: 0, may_fail: plan.outage_max_ms.is_some() };
    for _ in 0..plan.steps {
        step(&mut world, &mut model, plan);
        model.collect(&world);
    }
    world.heal();
    model.collect(&world);
    assert!(model.flights.is_empty(), "every request is answered: {:?}", model.flights);
    world.crash();
    world.heal();
    let mut settled = Model { may_fail: false, ..model };
    let request = Request::Read { offset: 0, len_bytes: u64::try_from(SECTORS * SECTOR).unwrap() };
    let id = world.submit(request.clone());
    settled.flights.push(Flight {
        id,
        request,
        first: 0,
        count: SECTORS,
        answered: vec![Vec::new(); SECTORS],
    });
    world.run();
    settled.collect(&world);
    world.submit(Request::Flush);
    world.run();
    for (sector, values) in settled.values.iter().enumerate() {
        assert_eq!(world.server.durable[sector * SECTOR], values[0], "sector {sector} after the last flush");
    }
    assert_eq!(world.remote.snapshot().owed_bytes, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn no_flushed_byte_is_lost_and_no_request_fails_within_the_bound(plan in plan()) {
        history(&plan);
    }
}
