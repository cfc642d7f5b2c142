//! Single outages, step by step.

use bytes::Bytes;
use zc_core::ErrorKind;
use zc_nbd::ErrorCode;
use zc_nbd::server::ExportFlags;
use zc_nbd::wire::HeaderStyle;
use zc_remote::limits::{LEAVE_MS, OWED_FLUSH_BYTES, OWED_HOLD_BYTES};
use zc_remote::{ConnId, Remote, Request, Settings};

use crate::server::{SECTOR, Server, flags};
use crate::world::{World, settings};

/// A server without block status, so that requests of the tests are the only ones.
fn server() -> Server {
    let mut server = Server::new(64, flags(), 4096, HeaderStyle::Structured);
    server.export.contexts.clear();
    server
}

fn world(outage_max_ms: Option<u64>) -> World {
    World::connected(server(), settings(5, outage_max_ms))
}

#[test]
fn the_first_connection_flushes_before_it_reads() {
    let mut world = World::new(server(), settings(1, None));
    let read = world.read(0);
    world.run();
    world.succeeded(read);
    assert_eq!(world.server.log[0], "Flush 0 0");
    assert!(world.server.log[1..].contains(&"Read 0 512".to_owned()));
}

#[test]
fn another_export_is_recognised_before_anything_was_used_of_it() {
    let mut world = world(None);
    world.write(1, 9, false);
    world.run();
    world.crash();
    world.server.durable.fill(3);
    for _ in 0..5 {
        world.tick(10_000);
        world.run();
    }
    assert!(world.server.durable.iter().all(|byte| *byte == 3), "the owed write is not replayed onto it");
    assert!(world.downs.last().unwrap().contains("other content"), "{:?}", world.downs);
}

#[test]
fn a_server_that_lost_unflushed_writes_gets_them_again() {
    let mut world = world(None);
    let written = world.write(3, 7, false);
    world.run();
    world.succeeded(written);
    world.server.volatile.clear();
    world.server.log.clear();
    world.crash();
    assert_eq!(world.server.durable[3 * SECTOR], 0, "the server lost it");
    let read = world.read(3);
    world.heal();
    assert_eq!(world.reads.0[&read], [7; SECTOR]);
    let replay = world.server.log.iter().position(|line| line == "Write 1536 512");
    let first = world.server.log.iter().position(|line| line == "Read 1536 512");
    assert!(replay.is_some() && replay < first, "{:?}", world.server.log);
    let flushed = world.submit(Request::Flush);
    world.run();
    world.succeeded(flushed);
    assert_eq!((world.server.durable[3 * SECTOR], world.remote.snapshot().owed_bytes), (7, 0));
}

#[test]
fn what_was_in_flight_is_sent_again_only_when_the_connection_is_dead() {
    let mut world = world(None);
    let written = world.write(1, 9, true);
    world.move_up(usize::MAX);
    world.tick(3_600_000);
    assert!(!world.done.contains_key(&written) && world.server.pending() == 1, "a slow server is waited for");
    world.crash();
    world.heal();
    world.succeeded(written);
    assert_eq!(world.server.durable[SECTOR], 9);
}

#[test]
fn requests_fail_at_the_bound_and_not_before() {
    let mut world = world(Some(30_000));
    world.listens = false;
    world.crash();
    let early = world.write(1, 9, false);
    for _ in 0..29 {
        world.tick(1000);
        world.connect();
    }
    assert!(!world.done.contains_key(&early));
    world.tick(1000);
    let failure = world.done[&early].clone().unwrap_err();
    assert_eq!(failure.kind, ErrorKind::Io);
    assert!(failure.text.contains("connection refused"), "{failure}");
    let late = world.read(1);
    assert!(world.done[&late].is_err(), "fails at once");
    world.connect();
    world.tick(10_000);
    world.heal();
    let again = world.read(1);
    world.run();
    world.succeeded(again);
    assert_eq!(world.reads.0[&again], [0; SECTOR], "it was never sent");
}

#[test]
fn a_server_that_is_silent_fails_requests_at_the_bound_and_what_it_has_in_hand_is_not_overtaken() {
    let mut world = world(Some(30_000));
    let written = world.write(1, 9, false);
    world.move_up(usize::MAX);
    world.tick(9_999);
    assert_eq!(world.silences, 0);
    world.tick(1);
    assert_eq!(world.silences, 1);
    assert!(world.remote.snapshot().why.contains("does not answer"), "{:?}", world.remote.snapshot());
    world.tick(20_000);
    assert!(world.done[&written].is_err());
    let refused = world.read(2);
    assert!(world.done[&refused].is_err(), "the outage goes on");
    // The server carries out another request first, and says so.
    world.remote.set_outage_max(None);
    let (same_place, other) = (world.read(1), world.read(2));
    world.move_up(usize::MAX);
    assert_eq!(world.server.pending(), 2, "the read of what is in doubt waits");
    world.server.execute(1, None);
    world.move_down(usize::MAX);
    world.succeeded(other);
    assert_eq!(world.answers, 1);
    assert!(!world.done.contains_key(&same_place));
    world.run();
    world.succeeded(same_place);
    assert_eq!(world.reads.0[&same_place], [9; SECTOR]);
}

#[test]
fn a_write_that_failed_by_the_bound_after_it_was_sent_is_replayed() {
    let mut world = world(Some(1_000));
    let written = world.write(1, 9, false);
    world.move_up(usize::MAX);
    world.listens = false;
    world.crash();
    world.tick(1_000);
    assert!(world.done[&written].is_err());
    world.connect();
    world.tick(10_000);
    world.heal();
    let read = world.read(1);
    world.run();
    assert_eq!(world.reads.0[&read], [9; SECTOR], "one value, which stays");
}

/// Breaks the connection, lets the server change, and returns the last reason of the outage.
fn comes_back(change: impl FnOnce(&mut Server)) -> String {
    let mut world = world(Some(60_000));
    for sector in 0..16 {
        world.write(sector, 4, false);
    }
    world.run();
    world.submit(Request::Flush);
    world.run();
    world.crash();
    change(&mut world.server);
    let before = world.server.durable.clone();
    let write = world.write(1, 5, false);
    for _ in 0..5 {
        world.tick(10_000);
        world.run();
    }
    assert_eq!((world.ups, &world.server.durable), (1, &before), "it is neither read nor written");
    assert!(!world.done.contains_key(&write));
    world.tick(60_000);
    assert!(world.done[&write].is_err());
    world.remote.snapshot().why
}

#[test]
fn an_export_that_is_not_the_same_is_neither_read_nor_written() {
    let smaller = comes_back(|server| server.export.size_bytes -= 512);
    assert!(smaller.contains("32256 bytes and had 32768"), "{smaller}");
    let other = comes_back(|server| server.durable.fill(1));
    assert!(other.contains("other content"), "{other}");
    let read_only = comes_back(|server| server.export.flags.read_only = true);
    assert!(read_only.contains("read-only"), "{read_only}");
    let unflushed = comes_back(|server| server.export.flags.flush = false);
    assert!(unflushed.contains("otherwise than before"), "{unflushed}");
    let blocks = |server: &mut Server| {
        server.export.blocks = zc_nbd::server::BlockSizes::new(4096, 4096, 8192).unwrap();
    };
    assert!(comes_back(blocks).contains("4096 to 8192"));
}

#[test]
fn an_export_that_grew_is_taken_and_may_not_shrink_again() {
    let mut world = world(None);
    world.crash();
    world.server.export.size_bytes += 512;
    world.server.durable.extend([0; SECTOR]);
    world.heal();
    let read = world.read(64);
    world.run();
    world.succeeded(read);
    let beyond = world.read(65);
    assert_eq!(world.done[&beyond].clone().unwrap_err().kind, ErrorKind::Invalid);
}

#[test]
fn a_server_that_shuts_down_answers_what_it_can_and_the_rest_is_sent_again() {
    let mut world = world(None);
    let first = world.write(1, 1, false);
    world.move_up(usize::MAX);
    world.server.begin_shutdown();
    let second = world.write(2, 2, false);
    world.run();
    world.succeeded(first);
    assert!(!world.done.contains_key(&second));
    assert_eq!(world.downs, ["the server is shutting down"]);
    world.heal();
    world.succeeded(second);
    assert_eq!(world.server.sector(2), [2; SECTOR]);
}

#[test]
fn a_broken_stream_is_closed_after_changes_had_time() {
    let mut world = world(None);
    let written = world.write(1, 1, false);
    world.move_up(usize::MAX);
    world.remote.received(ConnId::FIRST, &[0; 64], &mut world.reads);
    world.collect();
    assert!(world.downs.is_empty(), "the write may still be carried out");
    world.tick(LEAVE_MS);
    assert!(world.downs[0].contains("protocol error"), "{:?}", world.downs);
    world.heal();
    world.succeeded(written);

    let mut world = self::world(None);
    world.remote.received(ConnId::FIRST, &[0; 64], &mut world.reads);
    world.collect();
    assert_eq!(world.downs.len(), 1, "nothing is in flight: at once");
}

#[test]
fn owed_changes_are_bounded() {
    let mut server = Server::new(256 * 1024, flags(), 1 << 20, HeaderStyle::Extended);
    server.export.flags.trim = false;
    let mut world = World::connected(server, settings(5, None));
    let mib = Bytes::from(vec![1; 1 << 20]);
    for at in 0..100_u64 {
        world.submit(Request::Write { offset: at << 20, data: mib.clone(), fua: false });
    }
    // Everything but flushes is carried out.
    for _ in 0..1000 {
        world.move_up(usize::MAX);
        let writes = world.server.pending().min(1);
        if writes == 0 {
            break;
        }
        let before = world.server.log.len();
        world.server.execute(0, None);
        if world.server.log[before].starts_with("Flush") {
            world.server.log.push("held".to_owned());
        }
        world.move_down(usize::MAX);
        assert!(world.remote.snapshot().owed_bytes <= OWED_HOLD_BYTES + (33 << 20));
    }
    world.run();
    assert_eq!(world.done.values().filter(|result| result.is_ok()).count(), 100);
    let flushes = world.server.log.iter().filter(|line| line.starts_with("Flush")).count();
    assert!((3..=7).contains(&flushes), "one for each {OWED_FLUSH_BYTES} bytes and the first: {flushes}");
}

#[test]
fn a_flush_that_the_server_fails_is_reported_once() {
    let mut world = world(None);
    world.write(1, 1, false);
    world.run();
    let flush = world.submit(Request::Flush);
    world.move_up(usize::MAX);
    world.server.execute(0, Some(ErrorCode::Io));
    world.run();
    assert_eq!(world.done[&flush].clone().unwrap_err().kind, ErrorKind::Io);
    let next = world.submit(Request::Flush);
    world.run();
    world.succeeded(next);
}

#[test]
fn a_durable_write_without_fua_fails_with_its_flush_and_so_does_the_next_flush() {
    let plain = ExportFlags { fua: false, ..flags() };
    let mut world = World::connected(Server::new(64, plain, 4096, HeaderStyle::Simple), settings(2, None));
    let written = world.write(1, 1, true);
    world.move_up(usize::MAX);
    world.server.execute(0, None);
    world.move_down(usize::MAX);
    world.move_up(usize::MAX);
    assert_eq!(world.server.pending(), 1, "the flush");
    world.server.execute(0, Some(ErrorCode::Io));
    world.run();
    assert!(world.done[&written].is_err());
    let flush = world.submit(Request::Flush);
    world.run();
    assert!(world.done[&flush].is_err(), "other changes were covered too");
}

#[test]
fn what_a_server_refused_is_not_replayed() {
    let mut world = world(None);
    let written = world.write(1, 1, false);
    world.move_up(usize::MAX);
    world.server.execute(0, Some(ErrorCode::NoSpc));
    world.run();
    assert_eq!(world.done[&written].clone().unwrap_err().kind, ErrorKind::NoSpace);
    assert_eq!(world.remote.snapshot().owed_bytes, 0);
}

#[test]
fn a_stop_says_goodbye_and_answers_everything() {
    let mut world = world(None);
    let read = world.read(1);
    world.remote.stop();
    world.collect();
    assert_eq!(world.done[&read].clone().unwrap_err().kind, ErrorKind::Shutdown);
    assert!(!world.stopped);
    world.run();
    assert!(world.stopped && !world.server.is_connected(0));
    let late = world.read(1);
    assert!(world.done[&late].is_err());
    let mut never = Remote::new(settings(1, None), 0);
    never.stop();
    assert!(std::iter::from_fn(|| never.next_effect()).any(|effect| effect == zc_remote::Effect::Stopped));
}

/// Three connections to a server whose flushes cover all.
fn three(seed: u64) -> World {
    let mut server = server();
    server.export.flags.multi_conn = true;
    World::connected(server, Settings { connections: 3, ..settings(seed, None) })
}

#[test]
fn several_connections_share_the_requests_and_a_flush_covers_all() {
    let mut world = three(1);
    assert_eq!((world.server.connections(), world.remote.snapshot().connections), (3, 3));
    let written: Vec<_> = (0..30).map(|sector| world.write(sector, 5, false)).collect();
    world.move_up(usize::MAX);
    for conn in 0..3 {
        assert_eq!(world.server.pending_of(conn), 10, "connection {conn}");
    }
    world.run();
    written.into_iter().for_each(|id| world.succeeded(id));
    let flushed = world.submit(Request::Flush);
    world.run();
    world.succeeded(flushed);
    assert_eq!(world.remote.snapshot().owed_bytes, 0);
    let mut alone = World::connected(server(), Settings { connections: 3, ..settings(1, None) });
    alone.run();
    assert_eq!(alone.server.connections(), 1, "a server that does not say so has one");
}

#[test]
fn the_break_of_one_connection_ends_all_before_the_next_is_made() {
    for broken in 0..3 {
        let mut world = three(2);
        let written: Vec<_> = (0..9).map(|sector| world.write(sector, 6, false)).collect();
        world.move_up(usize::MAX);
        world.server.log.clear();
        world.drop_one(broken);
        assert_eq!(world.downs.len(), usize::from(broken == 0), "the others are to close");
        for _ in 0..9 {
            world.tick(1_000);
            assert!(!world.connect(), "no connection is made");
        }
        // The server carries out its pending requests, and closes.
        world.heal();
        written.into_iter().for_each(|id| world.succeeded(id));
        world.run();
        assert_eq!((world.ups, world.server.connections()), (2, 3));
        assert_eq!(world.remote.snapshot().reconnects, 1);
        assert_eq!(world.server.sector(8), [6; SECTOR]);
    }
}

#[test]
fn a_flush_that_is_answered_while_the_connections_end_proves_nothing() {
    let mut world = three(6);
    let written = world.write(1, 7, false);
    world.run();
    world.succeeded(written);
    let flushed = world.submit(Request::Flush);
    world.move_up(usize::MAX);
    world.server.execute_all();
    world.drop_one(2);
    world.move_down(usize::MAX);
    assert!(!world.done.contains_key(&flushed) && world.remote.snapshot().owed_bytes > 0);
    world.heal();
    world.run();
    world.succeeded(flushed);
    assert_eq!(world.remote.snapshot().owed_bytes, 0);
}

#[test]
fn a_connection_that_the_server_does_not_close_is_dropped_after_its_time() {
    let mut world = three(3);
    world.write(1, 7, false);
    world.move_up(usize::MAX);
    world.drop_one(2);
    world.tick(LEAVE_MS);
    assert_eq!(world.server.connections(), 0);
    world.heal();
    assert_eq!(world.server.sector(1), [7; SECTOR]);
}

#[test]
fn connections_that_the_server_refuses_are_left_alone_after_a_few_attempts() {
    let mut server = server();
    server.export.flags.multi_conn = true;
    let mut world = World::new(server, Settings { connections: 2, ..settings(4, None) });
    world.connect();
    world.listens = false;
    for _ in 0..20 {
        world.run();
        world.tick(10_000);
    }
    assert_eq!((world.ups, world.downs.len()), (1, 0));
    assert_eq!(world.remote.next_tick_ms(), None);
    world.listens = true;
    let read = world.read(1);
    world.run();
    world.succeeded(read);
    assert_eq!(world.server.connections(), 1);
}

/// Moves and carries out everything of the second connection.
fn second(world: &mut World) {
    while world.move_up_one(1, usize::MAX) | world.move_down_one(1, usize::MAX) {
        world.server.execute_all();
    }
}

#[test]
fn a_connection_to_a_server_that_has_restarted_serves_nothing_while_the_first_seems_to_live() {
    let mut server = server();
    server.export.flags.multi_conn = true;
    let mut world = World::new(server, Settings { connections: 2, ..settings(7, None) });
    world.connect();
    world.listens = false;
    world.run();
    world.write(3, 8, false);
    world.run();
    world.server.volatile.clear();
    world.crash_unnoticed();
    world.listens = true;
    world.tick(5_000);
    world.connect();
    second(&mut world);
    // Of two, the connection with the fewest parts in flight gets one, whichever has the first.
    let reads = [world.read(3), world.read(3)];
    second(&mut world);
    assert!(world.server.is_connected(1) && !reads.iter().any(|read| world.done.contains_key(read)));
    world.heal();
    world.run();
    for read in reads {
        assert_eq!(world.reads.0[&read], [8; SECTOR], "replayed before it is read");
    }
}

#[test]
fn a_late_answer_to_a_probe_proves_nothing_of_the_next_connection() {
    let mut server = server();
    server.export.flags.multi_conn = true;
    let mut world = World::new(server, Settings { connections: 2, ..settings(8, None) });
    world.connect();
    world.listens = false;
    world.run();
    world.write(3, 8, false);
    world.run();
    world.listens = true;
    world.tick(5_000);
    world.connect();
    second(&mut world);
    world.move_up_one(0, usize::MAX);
    assert_eq!(world.server.pending_of(0), 1, "the probe of the second connection");
    // That connection breaks. The server answers the probe, restarts, and takes another connection.
    world.drop_one(1);
    world.server.execute_all();
    world.server.volatile.clear();
    world.crash_unnoticed();
    world.tick(5_000);
    world.connect();
    second(&mut world);
    assert!(world.server.is_connected(1));
    world.move_down_one(0, usize::MAX);
    let reads = [world.read(3), world.read(3)];
    second(&mut world);
    assert!(!reads.iter().any(|read| world.done.contains_key(read)), "nothing has proved it");
    world.heal();
    world.run();
    for read in reads {
        assert_eq!(world.reads.0[&read], [8; SECTOR], "replayed before it is read");
    }
}

#[test]
fn another_export_behind_the_second_connection_is_not_used() {
    let mut server = server();
    server.export.flags.multi_conn = true;
    let mut world = World::new(server, Settings { connections: 2, ..settings(4, None) });
    world.connect();
    // The first connection is up, and the second one is not.
    world.listens = false;
    world.run();
    world.write(3, 8, true);
    world.run();
    world.server.durable.fill(9);
    world.listens = true;
    for _ in 0..5 {
        world.tick(10_000);
        world.run();
    }
    assert_eq!((world.remote.snapshot().connections, world.server.connections()), (1, 1));
}

#[test]
fn silence_of_one_connection_is_an_outage_though_the_others_answer() {
    for silent in [0, 1] {
        let mut world = three(5);
        let written = [1, 2].map(|sector| world.write(sector, 1, false));
        world.move_up(usize::MAX);
        // Requests are counted over the connections: 0 is on the first one.
        world.server.execute(1 - silent, None);
        world.move_down(usize::MAX);
        for _ in 0..10 {
            let answered = world.read(5);
            world.move_up(usize::MAX);
            world.server.execute(1 - silent, None);
            world.move_down(usize::MAX);
            world.succeeded(answered);
            world.tick(1_000);
        }
        assert_eq!(world.silences, 1, "connection {silent}");
        world.run();
        written.into_iter().for_each(|id| world.succeeded(id));
        assert_eq!(world.answers, 1);
    }
}

#[test]
fn a_stop_says_goodbye_on_all_connections() {
    let mut world = three(6);
    let read = world.read(1);
    world.remote.stop();
    world.collect();
    assert!(world.done[&read].is_err() && !world.stopped);
    world.run();
    assert!(world.stopped);
    assert_eq!(world.server.connections(), 0);
}
