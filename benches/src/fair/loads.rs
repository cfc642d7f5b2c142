//! Loads beside the quiet client: malicious or heavy clients.
//!
//! Invariants: a load ends within [`super::raw::PATIENCE`] of the request to end; it connects to the daemon of this
//! run alone.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::raw::{
    BLOCK_STATUS, CACHE, FLUSH, READ, WRITE, WRITE_ZEROES, ask, attached, attached_for_status, greeted,
    header, option, take, take_structured,
};
use crate::clock::pause;

/// Target of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) socket: &'a Path,
    pub(crate) control: &'a Path,
    pub(crate) tcp: &'a str,
    pub(crate) volume: &'a str,
    pub(crate) volume_bytes: u64,
    pub(crate) stop: &'a AtomicBool,
}

impl Place<'_> {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn connect(&self) -> Option<UnixStream> {
        attached(self.socket, self.volume).ok()
    }
}

/// A load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) name: &'static str,
    pub(crate) threads: usize,
    pub(crate) write_back: bool,
    /// One thread of it, until the request to end.
    pub(crate) run: fn(Place<'_>),
}

/// All of them.
pub(crate) const LOADS: [Load; 15] = [
    load("3 readers of 4 x 32 MiB that never read", 3, never_reads),
    load("8 writes of 32 MiB that stop midway", 8, stops_midway),
    load("4 clients with 128 prefetches of 32 MiB", 4, prefetches),
    load("8 readers of 4 x 32 MiB", 8, reads_much),
    load("200 connections of small zeroes", 4, zeroes_little),
    Load { write_back: true, ..load("8 clients with 32 flushes, write-back", 8, flushes) },
    Load { write_back: true, ..load("8 clients with 16 writes, each flushed, write-back", 8, syncs) },
    load("8 clients with 32 block status of 32 MiB", 8, asks_status),
    load("8 handshakes that list exports without end", 8, lists),
    load("8 connections that ask zcctl's questions", 8, looks),
    load("8 clients with 128 reads of one byte", 8, reads_little),
    load("nbdcopy to nowhere", 1, copies),
    load("200 TLS handshakes at once", 1, shakes_hands),
    load("bare connections by TCP", 1, only_connects),
    load("50 clients leave 128 whole zeroings", 1, zeroes_and_leaves),
];

const fn load(name: &'static str, threads: usize, run: fn(Place<'_>)) -> Load {
    Load { name, threads, write_back: false, run }
}

fn never_reads(place: Place<'_>) {
    let mut held: Option<UnixStream> = None;
    while place.goes_on() {
        // The daemon closes it when others wait for its memory.
        let is_there = held.as_ref().is_some_and(|stream| (&*stream).write_all(&[]).is_ok());
        if !is_there && let Some(mut stream) = place.connect() {
            for cookie in 0..4 {
                let _sent = stream.write_all(&header(READ, cookie, cookie << 25, 32 << 20));
            }
            held = Some(stream);
        }
        pause(Duration::from_millis(20));
    }
}

fn stops_midway(place: Place<'_>) {
    while place.goes_on() {
        let Some(mut stream) = place.connect() else { continue };
        let _sent = stream.write_all(&[&header(WRITE, 1, 0, 32 << 20)[..], &[1; 4096]].concat());
        // Ended by the daemon when others wait, or by us.
        let _ended = stream.set_read_timeout(Some(Duration::from_millis(200)));
        while place.goes_on() {
            match stream.read(&mut [0; 16]) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                _ => break,
            }
        }
    }
}

/// Keeps `depth` of one request in flight.
fn keep_asking(place: Place<'_>, depth: u64, reply_bytes: usize, request: impl Fn(u64) -> Vec<u8>) {
    let Some(mut stream) = place.connect() else { return };
    for number in 0..depth {
        let _sent = stream.write_all(&request(number));
    }
    let mut number = depth;
    while place.goes_on() && take(&mut stream, 16 + reply_bytes).is_ok() {
        let _sent = stream.write_all(&request(number));
        number += 1;
    }
}

fn prefetches(place: Place<'_>) {
    let pieces = place.volume_bytes >> 25;
    keep_asking(place, 128, 0, |number| header(CACHE, number, (number % pieces) << 25, 32 << 20));
}

fn reads_much(place: Place<'_>) {
    let pieces = place.volume_bytes >> 25;
    keep_asking(place, 4, 32 << 20, |number| header(READ, number, (number % pieces) << 25, 32 << 20));
}

fn reads_little(place: Place<'_>) {
    keep_asking(place, 128, 1, |number| header(READ, number, number % 4096, 1));
}

fn flushes(place: Place<'_>) {
    keep_asking(place, 32, 0, |number| header(FLUSH, number, 0, 0));
}

/// Small writes with a flush after each, so that flushes always have data to make durable.
fn syncs(place: Place<'_>) {
    keep_asking(place, 16, 16, |number| {
        let write = header(WRITE, number, (number % 4096) << 12, 4096);
        [write, vec![u8::try_from(number % 251).unwrap_or(0); 4096], header(FLUSH, number, 0, 0)].concat()
    });
}

fn asks_status(place: Place<'_>) {
    let pieces = place.volume_bytes >> 25;
    let Ok(mut stream) = attached_for_status(place.socket, place.volume) else { return };
    let request = |number: u64| header(BLOCK_STATUS, number, (number % pieces) << 25, 32 << 20);
    for number in 0..32 {
        let _sent = stream.write_all(&request(number));
    }
    let mut number = 32;
    while place.goes_on() && take_structured(&mut stream).is_ok() {
        let _sent = stream.write_all(&request(number));
        number += 1;
    }
}

fn lists(place: Place<'_>) {
    const LIST: u32 = 3;
    while place.goes_on() {
        let Ok(mut stream) = greeted(place.socket) else { continue };
        // The daemon ends a handshake of too many options.
        while place.goes_on() && option(&mut stream, LIST, &[]).is_ok() {}
    }
}

/// A monitor without a rate limit. Users of the control socket are trusted, but may be mistaken.
fn looks(place: Place<'_>) {
    while place.goes_on() {
        let Ok(stream) = UnixStream::connect(place.control) else { continue };
        let _bounded = stream.set_read_timeout(Some(super::raw::PATIENCE));
        let mut answers = BufReader::new(&stream);
        for word in ["status", "stats", "connections"].iter().cycle() {
            let asked = (&stream).write_all(format!("{{\"cmd\":\"{word}\"}}\n").as_bytes());
            if !place.goes_on() || asked.is_err() || answers.read_line(&mut String::new()).unwrap_or(0) == 0 {
                break;
            }
        }
    }
}

fn zeroes_little(place: Place<'_>) {
    let mut streams: Vec<UnixStream> = (0..50).filter_map(|_| place.connect()).collect();
    let request = |number: u64| header(WRITE_ZEROES, number, (number % 4096) << 12, 4096);
    for stream in &mut streams {
        let _sent = stream.write_all(&[request(1), request(2), request(3), request(4)].concat());
    }
    let mut number = 5;
    while place.goes_on() {
        for stream in &mut streams {
            if take(stream, 16).is_err() {
                return;
            }
            let _sent = stream.write_all(&request(number));
            number += 1;
        }
    }
}

fn copies(place: Place<'_>) {
    let uri = format!("nbd+unix:///{}?socket={}", place.volume, place.socket.display());
    while place.goes_on() {
        let mut command = Command::new("nbdcopy");
        command.arg(&uri).arg("null:").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return };
        while place.goes_on() && matches!(child.try_wait(), Ok(None)) {
            pause(Duration::from_millis(10));
        }
        let _gone = (child.kill(), child.wait());
    }
}

/// The first message of a handshake of TLS; a server signs its answer.
fn client_hello() -> Option<Vec<u8>> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), "localhost".try_into().ok()?).ok()?;
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).ok()?;
    }
    Some(bytes)
}

fn shakes_hands(place: Place<'_>) {
    let Some(hello) = client_hello() else { return };
    let option = [&3_u32.to_be_bytes()[..], b"IHAVEOPT\0\0\0\x05\0\0\0\0"].concat();
    while place.goes_on() {
        let mut ready: Vec<UnixStream> = Vec::new();
        for _ in 0..200 {
            let Ok(mut stream) = UnixStream::connect(place.socket) else { continue };
            let _bounded = stream.set_read_timeout(Some(super::raw::PATIENCE));
            let mut through = || {
                stream.read_exact(&mut [0; 18])?;
                stream.write_all(&option)?;
                stream.read_exact(&mut [0; 20])
            };
            if through().is_ok() {
                ready.push(stream);
            }
        }
        for stream in &mut ready {
            let _sent = stream.write_all(&hello);
        }
        for stream in &mut ready {
            let _answered = stream.read(&mut [0; 4096]);
        }
    }
}

fn only_connects(place: Place<'_>) {
    let mut open = VecDeque::new();
    while place.goes_on() {
        if let Ok(stream) = TcpStream::connect(place.tcp) {
            open.push_back(stream);
        }
        if open.len() > 400 {
            open.pop_front();
        }
        // About 3,300 a second.
        pause(Duration::from_micros(300));
    }
}

fn zeroes_and_leaves(place: Place<'_>) {
    let len_bytes = u32::try_from(place.volume_bytes).unwrap_or(u32::MAX);
    let zeroings = header(WRITE_ZEROES, 1, 0, len_bytes).repeat(128);
    while place.goes_on() {
        let mut streams: Vec<UnixStream> = (0..50).filter_map(|_| place.connect()).collect();
        for stream in &mut streams {
            let _bounded = stream.set_write_timeout(Some(Duration::from_millis(100)));
            let _sent = stream.write_all(&zeroings);
        }
        pause(Duration::from_millis(50));
    }
}

/// The time of a single request of the largest size, in nanoseconds.
pub(crate) fn largest_ns(socket: &Path, volume: &str) -> anyhow::Result<u64> {
    let mut stream = attached(socket, volume)?;
    let mut times = Vec::new();
    for number in 0..5 {
        let began = crate::clock::now_ns();
        ask(&mut stream, &header(READ, number, number << 25, 32 << 20), 32 << 20)?;
        times.push(crate::clock::now_ns() - began);
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
