//! NBD exports of other servers as origins: nbdkit over Unix sockets, TCP and TLS, qemu-nbd with qcow2, another
//! zcached.
//!
//! Servers are killed under a verified load. One of them loses unflushed data at a kill: nbdkit with a write-back
//! cache. `ZC_KILL_CYCLES` sets the number of kills.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rand::RngExt as _;
use serde_json::Value;
use zc_engine::NbdClient;
use zc_tests::{
    BlockKind, Companion, DataGen, MIB, World, authority, bounded, certificate, program, read_file,
    require_tool, rng, run_ok, same,
};

const VOLUME_MIB: u64 = 16;
pub(crate) const VOLUME_BYTES: usize = 16 << 20;
/// Longest wait for something that a test expects.
const PATIENCE: Duration = Duration::from_secs(60);

/// Address of a server, which stays when the server is started again.
pub(crate) enum Place {
    Unix(PathBuf),
    Tcp(u16),
}

/// A server of one file.
pub(crate) struct Server {
    place: Place,
    arguments: Vec<String>,
    program: &'static str,
    /// Clients must use TLS.
    tls: bool,
    running: Option<Companion>,
}

impl Server {
    pub(crate) fn new(place: Place, program: &'static str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self { place, arguments, program, tls: false, running: None }
    }

    /// nbdkit with a file, which is made.
    fn nbdkit(place: Place, file: &Path, filters: &[&str]) -> Self {
        make(file);
        let file = format!("file={}", file.display());
        Self::new(place, "nbdkit", &[&["-f"], filters, &["file", &file]].concat())
    }

    /// Lines of a volume that has it as origin.
    fn origin(&self) -> String {
        let scheme = if self.tls { "nbds" } else { "nbd" };
        match &self.place {
            Place::Unix(socket) => format!("origin = \"{scheme}+unix:///?socket={}\"\n", socket.display()),
            Place::Tcp(port) => format!("origin = \"{scheme}://localhost:{port}/\"\n"),
        }
    }

    /// nbdkit with a file and TLS, whose clients show a certificate. `dir` gets authority and certificates.
    fn with_tls(place: Place, dir: &Path, name: &str) -> Self {
        certify(dir, name);
        let certificates = format!("--tls-certificates={}", dir.display());
        let filters = ["--tls=require", &certificates, "--tls-verify-peer"];
        Self { tls: true, ..Self::nbdkit(place, &dir.join("file"), &filters) }
    }

    pub(crate) fn start(&mut self) {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let server = require_tool(self.program);
        self.running = Some(match &self.place {
            Place::Unix(socket) => {
                // A killed server leaves its socket.
                std::fs::remove_file(socket).ok();
                Companion::serve(socket, &server, &arguments)
            }
            Place::Tcp(port) => {
                let listener = TcpListener::bind(("127.0.0.1", *port)).expect("the port is free");
                Companion::activate(listener.into(), &server, &arguments)
            }
        });
    }

    pub(crate) fn started(mut self) -> Self {
        self.start();
        self
    }

    pub(crate) fn kill(&mut self) {
        self.running = None;
    }
}

/// Makes an authority and certificates of both sides, in place of those that are there.
fn certify(dir: &Path, name: &str) {
    authority(dir);
    certificate(dir, "server", name);
    certificate(dir, "client", "client.example");
}

fn make(file: &Path) {
    let made = std::fs::File::create(file).and_then(|file| file.set_len(VOLUME_MIB * MIB));
    made.expect("cannot make a file");
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it has an address").port()
}

pub(crate) fn world(server: &Server, lines: &str) -> World {
    let mut world = World::new(64, VOLUME_MIB);
    world.volumes[0].2 = format!("{}{lines}", server.origin());
    world
}

fn remote(status: &Value) -> Value {
    World::volume_of(status, "disk").expect("the volume is served")["remote"].clone()
}

pub(crate) fn until_connected(world: &World, connected: bool) -> Value {
    world.status_until("the connection changes", |status| remote(status)["connected"] == connected)
}

/// Has the origin get all dirty data.
pub(crate) fn flush(world: &World) {
    let output = world.zcctl_output(&["flush", "disk"]);
    assert!(output.status.success(), "{output:?}");
}

/// Writes, reads and flushes, and compares every byte. Each operation is reported.
pub(crate) struct Load {
    thread: JoinHandle<Vec<u8>>,
    ends: Arc<AtomicBool>,
    progress: Receiver<()>,
}

impl Load {
    pub(crate) fn start(client: NbdClient, seed: u64) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (report, progress) = sync_channel(1 << 20);
        let stop = Arc::clone(&ends);
        let thread = std::thread::spawn(move || load(client, seed, &stop, &report));
        Self { thread, ends, progress }
    }

    /// Waits until `operations` more operations are done.
    pub(crate) fn goes_on(&self, operations: usize) {
        for _ in 0..operations {
            self.progress.recv_timeout(PATIENCE).expect("the load goes on");
        }
    }

    /// Flushes and returns the volume's contents.
    pub(crate) fn end(self) -> Vec<u8> {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.join().expect("no operation failed")
    }
}

fn load(mut client: NbdClient, seed: u64, stop: &AtomicBool, report: &SyncSender<()>) -> Vec<u8> {
    let mut rng = rng(seed);
    let mut expected = vec![0; VOLUME_BYTES];
    while !stop.load(Ordering::SeqCst) {
        let len = 4096 * rng.random_range(1..=16);
        let at = 512 * rng.random_range(0..(VOLUME_BYTES - len) / 512);
        let offset = u64::try_from(at).expect("small");
        match rng.random_range(0..10) {
            0..5 => {
                expected[at..at + len].fill(rng.random());
                client.write(offset, &expected[at..at + len]).expect("a write within the bound");
            }
            5 => {
                expected[at..at + len].fill(0);
                let len = u64::try_from(len).expect("small");
                client.write_zeroes(offset, len).expect("zeros within the bound");
            }
            6 => client.flush().expect("a flush within the bound"),
            _ => {
                let read = client.read(offset, len).expect("a read within the bound");
                same(&read, &expected[at..at + len], "what was written last");
            }
        }
        report.send(()).expect("the test waits");
    }
    client.flush().expect("the last flush");
    expected
}

/// A volume is used in a mode, and its origin has every byte when the daemon has ended.
fn works(world: &World, file: &Path, mode: &str) {
    let daemon = world.start();
    let load = Load::start(world.connect("disk"), 7);
    load.goes_on(150);
    let expected = load.end();
    let status = world.status();
    assert_eq!(remote(&status)["connected"], true, "{mode}: {status}");
    flush(world);
    assert!(daemon.terminate().success(), "{mode}");
    same(&read_file(file), &expected, mode);
    let _daemon = world.start();
    let mut client = world.connect("disk");
    same(&client.read(0, VOLUME_BYTES).expect("read"), &expected, "after the next start");
}

#[test]
fn an_export_of_nbdkit_works_in_every_mode() {
    for (number, mode) in
        ["pass-through", "write-around", "write-through", "write-back"].into_iter().enumerate()
    {
        let lines = format!("mode = \"{mode}\"\n");
        let dir = zc_tests::temp_dir();
        let (file, socket) = (dir.path().join("file"), dir.path().join("server.sock"));
        let place = if number % 2 == 0 { Place::Unix(socket) } else { Place::Tcp(free_port()) };
        let server = Server::nbdkit(place, &file, &[]).started();
        works(&world(&server, &lines), &file, mode);
    }
}

/// Lines of a volume that shows the client's certificate and trusts the authority in `dir`.
fn tls_lines(dir: &Path) -> String {
    let file = |name: &str| dir.join(name).display().to_string();
    let (ca, certificate, key) = (file("ca-cert.pem"), file("client-cert.pem"), file("client-key.pem"));
    format!(
        "origin_tls.ca = \"{ca}\"\norigin_tls.certificate = \"{certificate}\"\norigin_tls.key = \"{key}\"\n"
    )
}

#[test]
fn an_export_with_tls_works_and_renewed_certificates_need_no_reload() {
    for (mode, name) in [("write-through", "localhost"), ("write-back", "storage.example")] {
        let dir = zc_tests::temp_dir();
        let place = match mode {
            "write-back" => Place::Unix(dir.path().join("server.sock")),
            _ => Place::Tcp(free_port()),
        };
        let mut server = Server::with_tls(place, dir.path(), name).started();
        let lines =
            format!("mode = \"{mode}\"\n{}origin_tls.server_name = \"{name}\"\n", tls_lines(dir.path()));
        let world = world(&server, &lines);
        works(&world, &dir.path().join("file"), mode);
        let daemon = world.start();
        server.kill();
        until_connected(&world, false);
        // The old authority signed none of them.
        certify(dir.path(), name);
        server.start();
        until_connected(&world, true);
        let mut client = world.connect("disk");
        // More than the layer buffers, in one request.
        let bytes = DataGen::new(8, 8192).mixed(512);
        client.write(0, &bytes).expect("write");
        client.flush().expect("flush");
        flush(&world);
        same(&read_file(&dir.path().join("file"))[..bytes.len()], &bytes, "the server has it");
        drop(client);
        assert!(daemon.terminate().success());
    }
}

#[test]
fn contents_of_the_cache_stay_valid_when_tls_is_turned_on_and_off() {
    let dir = zc_tests::temp_dir();
    let place = Place::Unix(dir.path().join("server.sock"));
    let mut server = Server::with_tls(place, dir.path(), "localhost");
    // Clients may use TLS or not.
    let required = server.arguments.iter_mut().filter(|argument| *argument == "--tls=require");
    required.for_each(|argument| *argument = "--tls=on".to_owned());
    let mut server = server.started();
    let mut world = World::new(64, VOLUME_MIB);
    let bytes = DataGen::new(12, 8192).mixed(512);
    for (start, tls) in [false, true, false].into_iter().enumerate() {
        server.tls = tls;
        let lines = if tls { tls_lines(dir.path()) } else { String::new() };
        world.volumes[0].2 = format!("mode = \"write-back\"\n{}{lines}", server.origin());
        let daemon = world.start();
        let mut client = world.connect("disk");
        if start == 0 {
            client.write(0, &bytes).expect("write");
            client.flush().expect("flush");
            world.inserted();
        } else {
            world.loaded();
            assert!(world.is_cached(&mut client, 0..4), "TLS {tls}: {}", world.stats());
        }
        let status = world.status();
        assert!(status["volumes"][0]["info"]["cold_reason"].is_null(), "TLS {tls}: {status}");
        same(&client.read(0, bytes.len()).expect("read"), &bytes, "the contents");
        drop(client);
        assert!(daemon.terminate().success());
    }
}

#[test]
fn a_server_that_tls_does_not_prove_is_not_used() {
    let dir = zc_tests::temp_dir();
    let server = Server::with_tls(Place::Tcp(free_port()), dir.path(), "localhost").started();
    let stranger = dir.path().join("stranger");
    authority(&stranger);
    let right = tls_lines(dir.path());
    let without = right.split_once("origin_tls.certificate").expect("it has one").0.to_owned();
    let of_stranger = right.replace("/ca-cert.pem", "/stranger/ca-cert.pem");
    let named = format!("{right}origin_tls.server_name = \"other.example\"\n");
    for (lines, why) in [
        (of_stranger, "invalid peer certificate"),
        (named, "not valid for name"),
        (without, "TLS"),
        // The authorities of the system did not sign it.
        (String::new(), "UnknownIssuer"),
    ] {
        let mut world = world(&server, &lines);
        world.volumes.push(("local".to_owned(), MIB, String::new()));
        let daemon = world.start();
        let status = world.status();
        let absent = status["absent"][0].clone();
        assert!(absent["name"] == "disk" && absent["why"].to_string().contains(why), "{why}: {status}");
        assert!(daemon.terminate().success());
    }
    // Neither is a server without TLS, if TLS is required.
    let plain = dir.path().join("plain.sock");
    let plain = Server::nbdkit(Place::Unix(plain), &dir.path().join("plain"), &[]).started();
    let plain = Server { tls: true, ..plain };
    let mut world = world(&plain, &right);
    world.volumes.push(("local".to_owned(), MIB, String::new()));
    let daemon = world.start();
    let status = world.status();
    assert!(status["absent"][0]["why"].to_string().contains("refuses to start TLS"), "{status}");
    assert!(daemon.terminate().success());
}

/// Kills the server under a load `kills` times, and checks every byte.
fn survives_kills(mode: &str, kills: usize) {
    let dir = zc_tests::temp_dir();
    let (file, socket) = (dir.path().join("file"), dir.path().join("server.sock"));
    // Its cache is an unnamed file: a kill loses unflushed data.
    let filters = ["--filter=cache"];
    let mut server = Server::nbdkit(Place::Unix(socket), &file, &filters);
    server.arguments.push("cache=writeback".to_owned());
    server.start();
    let world = world(&server, &format!("mode = \"{mode}\"\nmax_dirty_age = \"200 ms\"\n"));
    let daemon = world.start();
    let load = Load::start(world.connect("disk"), 11);
    for kill in 0..kills {
        load.goes_on(20 + kill % 7 * 10);
        server.kill();
        until_connected(&world, false);
        server.start();
        until_connected(&world, true);
    }
    load.goes_on(50);
    let expected = load.end();
    let status = world.status();
    assert_eq!(remote(&status)["reconnects"], kills, "{status}");
    flush(&world);
    assert!(daemon.terminate().success());
    server.kill();
    same(&read_file(&file), &expected, "every flushed byte");
}

#[test]
fn kills_of_the_server_cost_no_error_and_no_byte() {
    let kills = std::env::var("ZC_KILL_CYCLES").map_or(6, |text| text.parse().expect("a number"));
    survives_kills("write-through", kills);
    survives_kills("write-back", kills);
}

#[test]
fn a_server_that_allows_it_gets_several_connections() {
    let dir = zc_tests::temp_dir();
    let (file, socket) = (dir.path().join("file"), dir.path().join("server.sock"));
    let server = Server::nbdkit(Place::Unix(socket), &file, &[]).started();
    let world = world(&server, "mode = \"write-back\"\nconnections = 3\nmax_dirty_age = \"100 ms\"\n");
    let daemon = world.start();
    world.status_until("three connections", |status| remote(status)["connections"] == 3);
    let load = Load::start(world.connect("disk"), 19);
    load.goes_on(200);
    let expected = load.end();
    flush(&world);
    assert!(daemon.terminate().success());
    same(&read_file(&file), &expected, "the server has it");
    // A server that does not say that a flush covers all has one.
    let socket = dir.path().join("other.sock");
    let content = format!("file={}", file.display());
    let arguments = ["-f", "--filter=multi-conn", "file", &content, "multi-conn-mode=disable"];
    let alone = Server::new(Place::Unix(socket), "nbdkit", &arguments).started();
    let world = self::world(&alone, "connections = 3\n");
    let daemon = world.start();
    let mut client = world.connect("disk");
    same(&client.read(0, VOLUME_BYTES).expect("read"), &expected, "what was written before");
    assert_eq!(remote(&world.status())["connections"], 1);
    drop(client);
    assert!(daemon.terminate().success());
}

#[test]
fn requests_fail_when_the_outage_lasts_too_long_and_work_again_after_it() {
    let dir = zc_tests::temp_dir();
    let (file, socket) = (dir.path().join("file"), dir.path().join("server.sock"));
    let mut server = Server::nbdkit(Place::Unix(socket), &file, &[]).started();
    let mut world = world(&server, "outage_max = \"1 h\"\n");
    let daemon = world.start();
    let mut client = world.connect("disk");
    let bytes = DataGen::new(3, 8192).mixed(16);
    client.write(0, &bytes).expect("write");
    client.flush().expect("flush");
    world.settled();
    server.kill();
    until_connected(&world, false);
    same(&client.read(0, bytes.len()).expect("a hit"), &bytes, "hits go on");
    world.volumes[0].2 = world.volumes[0].2.replace("1 h", "1 s");
    let _path = world.configure();
    let reloaded = world.control(&serde_json::json!({ "cmd": "reload" }));
    assert!(reloaded["applied"].to_string().contains("outage_max"), "{reloaded}");
    let failed = client.write(MIB, &bytes).expect_err("the outage is too long");
    assert!(failed.to_string().contains("I/O error"), "{failed}");
    let status = world.status_until("the volume is called failed", |status| {
        let reasons = status["verdict"]["reasons"].to_string();
        reasons.contains("origin-unreachable") && reasons.contains("fail until it is back")
    });
    assert!(remote(&status)["expired"].as_u64().is_some_and(|count| count > 0), "{status}");
    let reason = world.reason("origin-unreachable").of(&["its origin has been unreachable"]);
    reason.advises("start the server of");
    server.start();
    until_connected(&world, true);
    assert!(world.zcctl_output(&["clear"]).status.success(), "the write that failed was seen");
    world.is_healthy();
    client.write(MIB, &bytes).expect("the server is back");
    same(&client.read(MIB, bytes.len()).expect("read"), &bytes, "it is there");
    drop(client);
    assert!(daemon.terminate().success());
}

#[test]
fn writes_go_on_in_write_back_while_the_server_is_away() {
    let dir = zc_tests::temp_dir();
    let (file, socket) = (dir.path().join("file"), dir.path().join("server.sock"));
    let mut server = Server::nbdkit(Place::Unix(socket), &file, &[]).started();
    let mut world = world(&server, "mode = \"write-back\"\nmax_dirty_age = \"100 ms\"\n");
    world.nbd = "[metrics]\npage = \"127.0.0.1:0\"\n".to_owned();
    let daemon = world.start();
    let mut client = world.connect("disk");
    server.kill();
    until_connected(&world, false);
    let bytes = DataGen::new(4, 8192).mixed(256);
    client.write(0, &bytes).expect("write");
    client.flush().expect("flush");
    same(&client.read(0, bytes.len()).expect("read"), &bytes, "dirty data");
    let status = world.status();
    assert!(status["verdict"].to_string().contains("at this rate writes wait for space in"), "{status}");
    let place = status["page"].as_str().and_then(|url| url.strip_prefix("http://")?.strip_suffix('/'));
    let address = place.expect("the URL of the page").parse().expect("an address");
    let (_, numbers) = zc_tests::http(address, "GET /live.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let live: Value = serde_json::from_str(&numbers).expect("JSON");
    assert!(live["volumes"][0]["remote"]["outage_ms"].is_u64(), "the page shows the outage: {live}");
    server.start();
    flush(&world);
    same(&read_file(&file)[..bytes.len()], &bytes, "the server has it");
    drop(client);
    assert!(daemon.terminate().success());
}

#[test]
fn a_server_that_is_stopped_fails_requests_at_the_bound() {
    let dir = zc_tests::temp_dir();
    let (file, socket) = (dir.path().join("file"), dir.path().join("server.sock"));
    let mut server = Server::nbdkit(Place::Unix(socket), &file, &[]).started();
    let world = world(&server, "outage_max = \"11 s\"\n");
    let daemon = world.start();
    let mut client = world.connect("disk");
    client.write(0, &[1; 4096]).expect("write");
    let running = server.running.as_ref().expect("it runs");
    running.stop();
    client.write(0, &[2; 4096]).expect_err("no answer in time");
    running.resume();
    world.status_until("the server answers", |status| remote(status)["outage_ms"].is_null());
    client.write(8192, &[3; 4096]).expect("it answers");
    let read = client.read(0, 4096).expect("read");
    assert!(read.iter().all(|byte| *byte == read[0]) && [1, 2].contains(&read[0]), "one of the two");
    drop(client);
    assert!(daemon.terminate().success());
    server.kill();
    assert_eq!(read_file(&file)[0], read[0], "it stays");
}

#[test]
fn an_export_that_grew_makes_a_larger_volume() {
    let dir = zc_tests::temp_dir();
    let (file, socket) = (dir.path().join("file"), dir.path().join("server.sock"));
    let mut server = Server::nbdkit(Place::Unix(socket), &file, &[]).started();
    let world = world(&server, "");
    let daemon = world.start();
    server.kill();
    until_connected(&world, false);
    let longer = std::fs::OpenOptions::new().write(true).open(&file).and_then(|file| file.set_len(20 * MIB));
    longer.expect("cannot make it longer");
    server.start();
    until_connected(&world, true);
    let output = world.zcctl_output(&["resize", "disk"]);
    assert!(output.status.success(), "{output:?}");
    let mut client = world.connect("disk");
    assert_eq!(client.size_bytes(), 20 * MIB);
    client.write(18 * MIB, &[7; 4096]).expect("a write behind the old end");
    client.flush().expect("flush");
    assert_eq!(read_file(&file)[18 << 20], 7);
    drop(client);
    assert!(daemon.terminate().success());
}

#[test]
fn another_export_under_the_same_name_is_not_used() {
    let dir = zc_tests::temp_dir();
    let [file, other, socket] = ["file", "other", "server.sock"].map(|name| dir.path().join(name));
    let mut server = Server::nbdkit(Place::Unix(socket), &file, &[]).started();
    let world = world(&server, "");
    let daemon = world.start();
    let mut client = world.connect("disk");
    // Without zeros: one piece of it is compared, and the other export has zeros there.
    let bytes = DataGen::new(5, 8192 * 64).block(BlockKind::Incompressible, 1);
    client.write(0, &bytes).expect("write");
    client.flush().expect("flush");
    server.kill();
    make(&other);
    let right = std::mem::replace(
        server.arguments.last_mut().expect("the file"),
        format!("file={}", other.display()),
    );
    server.start();
    let status = world
        .status_until("it is noticed", |status| remote(status)["why"].to_string().contains("other content"));
    assert_eq!(remote(&status)["connected"], false);
    server.kill();
    *server.arguments.last_mut().expect("the file") = right;
    server.start();
    until_connected(&world, true);
    same(&client.read(0, bytes.len()).expect("read"), &bytes, "the right one");
    assert!(read_file(&other).iter().all(|byte| *byte == 0), "the other was not written");
    drop(client);
    assert!(daemon.terminate().success());
}

#[test]
fn a_server_that_is_away_at_the_start_is_waited_for() {
    let dir = zc_tests::temp_dir();
    let (file, socket) = (dir.path().join("file"), dir.path().join("server.sock"));
    let mut server = Server::nbdkit(Place::Unix(socket), &file, &[]);
    let mut world = world(&server, "");
    world.volumes.push(("local".to_owned(), MIB, String::new()));
    let daemon = world.start();
    let status = world.status();
    let absent = status["absent"][0].clone();
    assert!(absent["name"] == "disk" && absent["why"].to_string().contains("cannot connect"), "{status}");
    server.start();
    let _served = world.serves("disk");
    let mut client = world.connect("disk");
    client.write(0, &[1; 4096]).expect("write");
    client.flush().expect("the first flush");
    drop(client);
    assert!(daemon.terminate().success());
}

#[test]
fn a_stop_during_an_outage_ends() {
    let dir = zc_tests::temp_dir();
    let (file, socket) = (dir.path().join("file"), dir.path().join("server.sock"));
    let mut server = Server::nbdkit(Place::Unix(socket), &file, &[]).started();
    let world = world(&server, "mode = \"write-back\"\nmax_dirty_age = \"1 h\"\n");
    let daemon = world.start();
    let mut client = world.connect("disk");
    let bytes = DataGen::new(6, 8192).mixed(64);
    client.write(0, &bytes).expect("write");
    client.flush().expect("flush");
    drop(client);
    server.kill();
    until_connected(&world, false);
    let _status = daemon.terminate();
    server.start();
    let daemon = world.start();
    let mut client = world.connect("disk");
    same(&client.read(0, bytes.len()).expect("read"), &bytes, "what was flushed");
    drop(client);
    flush(&world);
    same(&read_file(&file)[..bytes.len()], &bytes, "the server has it");
    assert!(daemon.terminate().success());
}

#[test]
fn a_qcow2_image_behind_qemu_nbd_is_an_origin() {
    let dir = zc_tests::temp_dir();
    let (image, socket) = (dir.path().join("disk.qcow2"), dir.path().join("server.sock"));
    run_ok(bounded("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&image).arg("16M"));
    let image = image.display().to_string();
    let arguments = ["--persistent", "--shared=4", "--format=qcow2", "--discard=unmap", &image];
    let mut server = Server::new(Place::Unix(socket), "qemu-nbd", &arguments).started();
    let world = world(&server, "");
    let daemon = world.start();
    let load = Load::start(world.connect("disk"), 13);
    load.goes_on(100);
    server.kill();
    until_connected(&world, false);
    server.start();
    load.goes_on(100);
    let expected = load.end();
    assert!(daemon.terminate().success());
    server.kill();
    let raw = dir.path().join("raw");
    run_ok(bounded("qemu-img").args(["convert", "-f", "qcow2", "-O", "raw", &image]).arg(&raw));
    same(&read_file(&raw), &expected, "the image");
}

#[test]
fn another_zcached_is_an_origin() {
    let far = World::new(64, VOLUME_MIB);
    let far_daemon = far.start();
    let mut near = World::new(64, VOLUME_MIB);
    near.volumes[0].2 = format!("origin = \"{}\"\nmode = \"write-back\"\n", far.uri("disk"));
    let near_daemon = near.start();
    let load = Load::start(near.connect("disk"), 17);
    load.goes_on(100);
    far_daemon.kill9();
    until_connected(&near, false);
    let far_daemon = far.start();
    load.goes_on(100);
    let expected = load.end();
    flush(&near);
    assert!(near_daemon.terminate().success());
    assert!(far_daemon.terminate().success());
    far.origin_is("disk", &expected);
}

/// Offset, length and type of each line of `nbdinfo --map`.
pub(crate) fn map(world: &World, context: &str) -> Vec<(u64, u64, u64)> {
    let output = run_ok(bounded("nbdinfo").arg(format!("--map={context}")).arg(world.uri("disk"))).stdout;
    let text = String::from_utf8(output).expect("nbdinfo writes text");
    let number = |word: Option<&str>| word.and_then(|word| word.parse().ok()).expect("a number");
    text.lines()
        .map(|line| {
            let mut words = line.split_whitespace();
            (number(words.next()), number(words.next()), number(words.next()))
        })
        .collect()
}

#[test]
fn holes_of_the_export_are_reported_and_cross_no_network() {
    let dir = zc_tests::temp_dir();
    let (file, socket) = (dir.path().join("file"), dir.path().join("server.sock"));
    let mut server = Server::nbdkit(Place::Unix(socket), &file, &[]);
    let data = DataGen::new(21, 8192).block(BlockKind::Incompressible, 1);
    let written = std::fs::OpenOptions::new().write(true).open(&file).and_then(|file| {
        use std::os::unix::fs::FileExt as _;
        file.write_all_at(&data, 4 * MIB)
    });
    written.expect("cannot fill the file");
    let mut expected = vec![0; VOLUME_BYTES];
    expected[4 << 20..][..data.len()].copy_from_slice(&data);
    server.start();
    // Every read goes to the server.
    let world = world(&server, "mode = \"pass-through\"\n");
    let daemon = world.start();
    let holes = [(0, 4 * MIB, 3), (4 * MIB, 8192, 0), (4 * MIB + 8192, 12 * MIB - 8192, 3)];
    assert_eq!(map(&world, "base:allocation"), holes);
    let mut client = world.connect("disk");
    for _ in 0..2 {
        same(&client.read(0, VOLUME_BYTES).expect("read"), &expected, "holes and data");
    }
    let status = world.status();
    assert!(remote(&status)["hole_bytes"].as_u64() >= Some(16 * MIB - 8192), "{status}");
    // A written hole is none, and a zeroed one is one again.
    client.write(8 * MIB, &data).expect("write");
    same(&client.read(8 * MIB, data.len()).expect("read"), &data, "what was written into the hole");
    assert_eq!(
        map(&world, "base:allocation")[2..],
        [(4 * MIB + 8192, 4 * MIB - 8192, 3), (8 * MIB, 8192, 0), (8 * MIB + 8192, 8 * MIB - 8192, 3)]
    );
    client.write_zeroes(8 * MIB, 8192).expect("zeros");
    assert_eq!(map(&world, "base:allocation"), holes);
    // While the server is away nothing is known, and no client waits.
    server.kill();
    until_connected(&world, false);
    assert_eq!(map(&world, "base:allocation"), [(0, 16 * MIB, 0)]);
    server.start();
    until_connected(&world, true);
    same(&client.read(0, VOLUME_BYTES).expect("read"), &expected, "after a reconnect");
    drop(client);
    assert!(daemon.terminate().success());
}

#[test]
fn zeroing_works_where_the_server_does_it_slowly() {
    for mode in ["slow", "ignore", "none"] {
        let dir = zc_tests::temp_dir();
        let (file, socket) = (dir.path().join("file"), dir.path().join("server.sock"));
        let mut server = Server::nbdkit(Place::Unix(socket), &file, &["--filter=nozero"]);
        let zeromode = if mode == "ignore" { "emulate" } else { "notrim" };
        server.arguments.extend([format!("zeromode={zeromode}"), format!("fastzeromode={mode}")]);
        server.start();
        let world = world(&server, "mode = \"write-through\"\n");
        let daemon = world.start();
        let mut client = world.connect("disk");
        client.write(0, &vec![7; 1 << 20]).expect("write");
        for at in [0, 512 << 10] {
            client.write_zeroes(at, 256 << 10).expect("zeros");
        }
        client.flush().expect("flush");
        let read = client.read(0, 1 << 20).expect("read");
        let is_right = |(at, byte): (usize, &u8)| *byte == if at / (256 << 10) % 2 == 0 { 0 } else { 7 };
        assert!(read.iter().enumerate().all(is_right), "{mode}");
        same(&read_file(&file)[..1 << 20], &read, mode);
        drop(client);
        assert!(daemon.terminate().success());
    }
}

#[test]
fn residency_and_holes_pass_through_a_zcached() {
    let far = World::new(64, VOLUME_MIB);
    let far_daemon = far.start();
    let mut near = World::new(64, VOLUME_MIB);
    near.volumes[0].2 = format!("origin = \"{}\"\nmode = \"pass-through\"\n", far.uri("disk"));
    let near_daemon = near.start();
    let residency = "x-zcached:residency";
    assert_eq!(map(&near, "base:allocation"), [(0, 16 * MIB, 3)]);
    let mut client = near.connect("disk");
    let data = DataGen::new(22, 8192).block(BlockKind::Incompressible, 1);
    client.write(MIB + 65_536, &data).expect("write");
    far.inserted();
    // The near one has read pieces of the export, to recognise it by them.
    let there = map(&far, residency);
    let is_cached =
        |(at, len, kind): &(u64, u64, u64)| (*at..*at + *len).contains(&(MIB + 65_536)) && *kind == 1;
    assert!(there.iter().any(is_cached) && there.iter().any(|(.., kind)| *kind == 0), "{there:?}");
    let behind: Vec<_> = there.into_iter().map(|(at, len, kind)| (at, len, kind * 2)).collect();
    assert_eq!(map(&near, residency), behind);
    assert_eq!(map(&near, "base:allocation")[1], (MIB + 65_536, 8192, 0));
    drop(client);
    assert!(near_daemon.terminate().success());
    // What the near one has is the near one's.
    near.volumes[0].2 = format!("origin = \"{}\"\n", far.uri("disk"));
    let near_daemon = near.start();
    let mut client = near.connect("disk");
    same(&client.read(MIB + 65_536, data.len()).expect("read"), &data, "through both");
    near.inserted();
    assert!(map(&near, residency).iter().any(is_cached), "it is the near one's now");
    drop(client);
    assert!(near_daemon.terminate().success());
    assert!(far_daemon.terminate().success());
}

#[test]
fn a_volume_comes_and_goes_while_others_are_served() {
    let dir = zc_tests::temp_dir();
    let (file, socket) = (dir.path().join("file"), dir.path().join("server.sock"));
    let server = Server::nbdkit(Place::Unix(socket.clone()), &file, &[]).started();
    let mut world = World::new(64, VOLUME_MIB);
    world.volumes[0].0 = "local".to_owned();
    let daemon = world.start();
    let origin = format!("nbd+unix:///?socket={}", socket.display());
    let change = |arguments: &[&str]| {
        let (status, said) = world.zcctl_volume(arguments);
        assert_eq!(status, Some(0), "{said}");
    };
    change(&["add", "disk", "--origin", &origin]);
    let mut client = world.connect("disk");
    client.write(0, &[5; 4096]).expect("write");
    client.flush().expect("flush");
    drop(client);
    world.status_until("the client has left", |status| status["connections"] == 0);
    change(&["remove", "disk"]);
    assert_eq!(read_file(&file)[0], 5);
    drop(server);
    let _served = world.serves("local");
    assert!(daemon.terminate().success());
}

#[test]
fn mistakes_are_named() {
    let dir = zc_tests::temp_dir();
    let server = Server::nbdkit(Place::Unix(dir.path().join("none.sock")), &dir.path().join("file"), &[]);
    let check = |world: &World| {
        let mut command = bounded("env");
        command.arg(program("zcached")).arg("check-config").arg(world.configure());
        let output = command.output().expect("cannot start zcached");
        assert!(!output.status.success());
        [output.stdout, output.stderr].concat().iter().map(|byte| char::from(*byte)).collect::<String>()
    };
    let away = check(&world(&server, ""));
    assert!(away.contains("cannot connect: No such file or directory"), "{away}");
    let sized = check(&world(&server, "create_size = \"1 MiB\"\n"));
    assert!(sized.contains("the origin is an NBD export"), "{sized}");
    let place = Place::Unix(dir.path().join("none.sock"));
    let server = Server::with_tls(place, &dir.path().join("tls"), "localhost");
    let right = tls_lines(&dir.path().join("tls"));
    let gone = check(&world(&server, &right.replace("/client-key.pem", "/gone.pem")));
    assert!(gone.contains("zcached.toml:") && gone.contains("volume.origin_tls.key: "), "{gone}");
    assert!(gone.contains("/gone.pem: the private key cannot be read"), "{gone}");
    let mixed = check(&world(&server, &right.replace("/client-key.pem", "/server-key.pem")));
    assert!(mixed.contains("volume.origin_tls.certificate: ") && mixed.contains("are of no use"), "{mixed}");
    let mut own = World::new(64, VOLUME_MIB);
    own.volumes[0].2 = format!("origin = \"{}\"\n", own.uri("disk"));
    let own = check(&own);
    assert!(own.contains("its own origin"), "{own}");
}
