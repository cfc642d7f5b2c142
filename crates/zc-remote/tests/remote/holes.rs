//! Holes that the server reports, and zeroing that is to be fast.

use zc_core::ErrorKind;
use zc_nbd::ErrorCode;
use zc_nbd::proto::{STATE_HOLE, STATE_ZERO};
use zc_nbd::wire::HeaderStyle;
use zc_remote::Request;

use crate::server::{SECTOR, Server, flags};
use crate::world::{World, settings};

const SECTORS: usize = 1024;

fn read_all(world: &mut World) -> Vec<u8> {
    let id = world.submit(Request::Read { offset: 0, len_bytes: 512 << 10 });
    world.run();
    world.succeeded(id);
    world.reads.0[&id].clone()
}

/// A world whose export has content in its first 16 KiB and in its last sector.
fn world(style: HeaderStyle) -> World {
    let mut server = Server::new(SECTORS, flags(), 1 << 20, style);
    server.durable[..16 << 10].fill(7);
    server.durable[(SECTORS - 1) * SECTOR..].fill(9);
    World::connected(server, settings(3, None))
}

fn reads(world: &World) -> Vec<&str> {
    world.server.log.iter().filter_map(|line| line.strip_prefix("Read ")).collect()
}

#[test]
fn a_hole_is_read_without_its_bytes_once_it_is_known() {
    for style in [HeaderStyle::Structured, HeaderStyle::Extended] {
        let mut world = world(style);
        let expected = world.server.durable.clone();
        assert_eq!(read_all(&mut world), expected, "the first read does not wait for the holes");
        world.server.log.clear();
        assert_eq!(read_all(&mut world), expected);
        assert_eq!(reads(&world), ["0 16384", "523776 512"], "{style:?}");
        assert_eq!(world.remote.snapshot().hole_bytes, (496 << 10) - 512);
        // A change of a hole is read from the server.
        let written = world.write(100, 5, false);
        world.run();
        world.succeeded(written);
        let read = world.read(100);
        world.run();
        assert_eq!(world.reads.0[&read], [5; SECTOR]);
        let inside = world.submit(Request::Read { offset: 200 << 10, len_bytes: 4096 });
        world.succeeded(inside);
    }
}

#[test]
fn holes_are_forgotten_with_the_connection() {
    let mut world = world(HeaderStyle::Extended);
    read_all(&mut world);
    world.crash();
    world.heal();
    // Another client of the server has written there.
    world.server.durable[100 * SECTOR..101 * SECTOR].fill(4);
    let read = world.read(100);
    world.run();
    assert_eq!(world.reads.0[&read], [4; SECTOR]);
}

#[test]
fn a_status_that_a_change_has_overtaken_counts_for_nothing() {
    for answers_first in [false, true] {
        let mut world = world(HeaderStyle::Structured);
        let first = world.read(0);
        world.move_up(usize::MAX);
        assert_eq!(world.server.pending(), 2, "the read and the status of its region");
        // The server looks at its holes before the write arrives, and answers behind it.
        world.server.carry_out(0, None);
        world.server.carry_out(0, None);
        if answers_first {
            world.server.answer(0);
            world.server.answer(0);
        }
        let written = world.write(100, 5, false);
        world.run();
        world.succeeded(first);
        world.succeeded(written);
        let read = world.read(100);
        world.run();
        assert_eq!(world.reads.0[&read], [5; SECTOR], "{answers_first}");
    }
}

#[test]
fn a_status_during_a_change_counts_for_nothing() {
    let mut world = world(HeaderStyle::Structured);
    let written = world.write(100, 5, false);
    let first = world.read(0);
    world.move_up(usize::MAX);
    assert_eq!(world.server.pending(), 3, "the write, the read and the status of its region");
    // The server looks at its holes first.
    world.server.carry_out(2, None);
    world.run();
    world.succeeded(first);
    world.succeeded(written);
    let read = world.read(100);
    world.run();
    assert_eq!(world.reads.0[&read], [5; SECTOR]);
}

#[test]
fn an_abandoned_status_holds_up_no_request() {
    let mut world = world(HeaderStyle::Structured);
    world.remote.set_outage_max(Some(1));
    let first = world.read(0);
    world.move_up(usize::MAX);
    world.tick(10_000);
    world.tick(1);
    assert!(world.done[&first].is_err());
    world.remote.set_outage_max(None);
    // The read is answered, and the status is not.
    world.server.execute(0, None);
    world.move_down(usize::MAX);
    let written = world.write(1, 5, false);
    world.move_up(usize::MAX);
    assert_eq!(world.server.pending(), 2, "the status and the write");
    world.run();
    world.succeeded(written);
}

#[test]
fn a_server_that_reports_holes_over_content_is_not_believed() {
    let mut world = world(HeaderStyle::Extended);
    world.server.lies = true;
    let expected = world.server.durable.clone();
    assert_eq!(read_all(&mut world), expected);
    assert_eq!(world.distrusts, 1);
    let status = world.submit(Request::Status { offset: 0, len_bytes: 4096 });
    world.run();
    world.succeeded(status);
    assert_eq!(world.statuses[&status].allocation, []);
    world.crash();
    world.heal();
    assert_eq!(read_all(&mut world), expected, "nor after a reconnect");
    assert_eq!((world.distrusts, world.remote.snapshot().hole_bytes), (1, 0));
}

#[test]
fn a_status_ends_where_the_answer_does_and_has_known_flags_only() {
    for (style, run_max) in [(HeaderStyle::Structured, usize::MAX), (HeaderStyle::Extended, 20)] {
        let mut world = world(style);
        world.server.run_max = run_max;
        let id = world.submit(Request::Status { offset: 0, len_bytes: 512 << 10 });
        world.run();
        world.succeeded(id);
        let runs = &world.statuses[&id].allocation;
        let runs: Vec<_> = runs.iter().map(|run| (run.len_bytes, run.flags)).collect();
        let hole = STATE_HOLE | STATE_ZERO;
        let expected: &[_] =
            if run_max == 20 { &[(16 << 10, 0)] } else { &[(16 << 10, 0), ((496 << 10) - 512, hole)] };
        assert_eq!(runs, expected);
    }
    // A server without contexts.
    let mut world = world(HeaderStyle::Simple);
    let id = world.submit(Request::Status { offset: 0, len_bytes: 4096 });
    world.run();
    world.succeeded(id);
    assert!(world.statuses.is_empty());
    let outside = world.submit(Request::Status { offset: 512 << 10, len_bytes: 4096 });
    assert_eq!(world.done[&outside].as_ref().map_err(|failure| failure.kind), Err(ErrorKind::Invalid));
}

/// Changes every byte of an answer to a block status.
#[test]
fn a_malformed_status_ends_the_connection_or_is_another_status() {
    for (style, bytes) in [(HeaderStyle::Structured, 20 + 4 + 16), (HeaderStyle::Extended, 32 + 8 + 32)] {
        let mut ended = 0;
        for (at, bits) in (0..bytes).flat_map(|at| [1, 2, 0x80, 0xff].map(|bits| (at, bits))) {
            let mut server = Server::new(SECTORS, flags(), 1 << 20, style);
            server.durable[16 << 10..32 << 10].fill(7);
            let mut world = World::connected(server, settings(3, None));
            let first = world.read(40);
            world.move_up(usize::MAX);
            world.server.garbles = Some((at, bits));
            world.run();
            assert!(world.server.garbles.is_none(), "there is no such byte");
            world.succeeded(first);
            ended += usize::from(!world.downs.is_empty());
            // It may be a promise of more than was asked for, which no connection ends by.
            world.tick(20_000);
            world.crash();
            world.heal();
            let read = world.read(33);
            world.run();
            world.succeeded(read);
            assert_eq!(world.reads.0[&read], [7; SECTOR], "byte {at} with {bits:#x}");
        }
        assert!(ended >= bytes, "{style:?}: {ended} of {}", 4 * bytes);
    }
}

#[test]
fn a_status_that_the_server_refuses_says_nothing() {
    let mut world = world(HeaderStyle::Structured);
    let id = world.submit(Request::Status { offset: 0, len_bytes: 4096 });
    world.move_up(usize::MAX);
    world.server.carry_out(0, Some(ErrorCode::Io));
    world.run();
    world.succeeded(id);
    assert!(world.statuses.is_empty());
}

#[test]
fn a_status_does_not_wait_for_the_end_of_an_outage() {
    let status = Request::Status { offset: 0, len_bytes: 4096 };
    let mut world = world(HeaderStyle::Structured);
    // The server is silent, then answers.
    let silent = world.submit(status.clone());
    world.move_up(usize::MAX);
    world.tick(10_000);
    world.succeeded(silent);
    let later = world.submit(status.clone());
    world.succeeded(later);
    world.run();
    assert!(world.statuses.is_empty(), "nothing was known in time");
    // The connection breaks.
    let broken = world.submit(status.clone());
    world.move_up(usize::MAX);
    world.listens = false;
    world.crash();
    world.succeeded(broken);
    let away = world.submit(status.clone());
    world.succeeded(away);
    world.heal();
    let again = world.submit(status);
    world.run();
    world.succeeded(again);
    assert_eq!(world.statuses.len(), 1);
}

#[test]
fn zeroing_that_the_server_refuses_to_do_fast_is_sent_again_and_remembered() {
    let zero = |no_hole| Request::Zero { offset: 0, len_bytes: 8192, no_hole, fua: true };
    let mut world = world(HeaderStyle::Structured);
    world.server.zeroes_slowly = true;
    for no_hole in [false, true] {
        for expected in [2, 1] {
            world.server.durable[0] = 7;
            world.server.log.clear();
            let id = world.submit(zero(no_hole));
            world.run();
            world.succeeded(id);
            assert_eq!(world.server.log, vec!["WriteZeroes 0 8192"; expected], "{no_hole}");
            assert_eq!(world.server.durable[0], 0);
            assert!(world.remote.snapshot().zeroes_slowly);
        }
    }
    // A new connection may lead to a server that does.
    world.crash();
    world.heal();
    assert!(!world.remote.snapshot().zeroes_slowly);
}
