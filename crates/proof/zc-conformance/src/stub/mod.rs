//! A small NBD server that is correct, and can be configured with one fault: the suite's own test.
//!
//! Invariants: without a lie every case passes; the server listens on a Unix socket of its own and ends with its
//! value.
//!
//! It does not store anything on a disk, or serve other clients.

mod handshake;
mod lies;
mod tests;
mod tls;
mod transmission;

use crate::session::{Chunk, Mode, Request};
use crate::uri::{Address, Uri};
use crate::wire::{FIXED_NEWSTYLE, NO_ZEROES, flag};
use rustls::{ServerConfig, ServerConnection};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Bytes of the export `disk`; `frozen` is read-only.
pub(super) const DISK_BYTES: usize = 64 << 20;
const FROZEN_BYTES: usize = 1 << 20;

/// One reply to an option: type and data.
pub(super) type OptionReply = (u32, Vec<u8>);

/// Context of a reply hook.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) mode: Mode,
    pub(super) request: &'a Request,
}

/// Behaviour of the server. The default is correct; a lie changes something.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) handshake_flags: u16,
    pub(super) accept_any_client_flags: bool,
    pub(super) tls: bool,
    pub(super) forced_tls: bool,
    pub(super) tls_without_fixed: bool,
    /// TLS as it should be, or with versions left out.
    pub(super) tls_config: fn() -> Arc<ServerConfig>,
    /// State negotiated before TLS stays valid inside.
    pub(super) tls_keeps: bool,
    /// TLS may be started repeatedly.
    pub(super) tls_again: bool,
    /// Options are answered with ERR_TLS_REQD inside TLS.
    pub(super) tls_never_enough: bool,
    /// EXPORT_NAME ends the session inside TLS.
    pub(super) tls_go_only: bool,
    /// A hello of TLS 1.1 is answered.
    pub(super) tls_old: bool,
    pub(super) flags: u16,
    pub(super) block: [u32; 3],
    pub(super) status_payload: bool,
    /// Changes the greeting.
    pub(super) greeting: fn(&mut Vec<u8>),
    /// Returns `true` if the server closes instead of answering an option.
    pub(super) hang_up: fn(u32, &[u8]) -> bool,
    /// Changes the replies to an option.
    pub(super) option: fn(u32, &[u8], &mut Vec<OptionReply>),
    /// Changes the reserved bytes of EXPORT_NAME; the flag is `true` if zeroes are due.
    pub(super) reserved: fn(bool, &mut Vec<u8>),
    /// Takes an unknown name for `disk`.
    pub(super) any_name: bool,
    /// SET_META_CONTEXT that fails keeps the contexts of the one before.
    pub(super) keep_contexts: bool,
    /// LIST_META_CONTEXT selects.
    pub(super) list_selects: bool,
    /// Bytes that follow the ACK of GO.
    pub(super) padding: usize,
    /// Returns `true` if the server closes instead of answering a request.
    pub(super) drop_request: fn(&Call<'_>) -> bool,
    /// Changes the request before its execution.
    pub(super) request: fn(&mut Request),
    /// Flags that are accepted although they should be refused.
    pub(super) ignored_flags: u16,
    /// Changes the chunks of a reply.
    pub(super) chunks: fn(&Call<'_>, &mut Vec<Chunk>),
    /// Changes the bytes of a reply.
    pub(super) bytes: fn(&Call<'_>, &mut Vec<u8>),
    /// Leaves the payload of refused requests in the stream.
    pub(super) leave_payload: bool,
    /// Returns `true` if a write is acknowledged but not executed.
    pub(super) lose: fn(&Request) -> bool,
    /// Each connection sees a disk of its own.
    pub(super) private: bool,
    /// Answers a request without the right magic.
    pub(super) any_magic: bool,
    /// Continues after DISC.
    pub(super) ignore_disc: bool,
    /// Writes on a read-only export are executed and refused.
    pub(super) write_frozen: bool,
    /// Answers a WRITE that exceeds every payload limit and continues.
    pub(super) patient: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            handshake_flags: FIXED_NEWSTYLE | NO_ZEROES,
            accept_any_client_flags: false,
            tls: false,
            forced_tls: false,
            tls_without_fixed: false,
            tls_config: tls::both_versions,
            tls_keeps: false,
            tls_again: false,
            tls_never_enough: false,
            tls_go_only: false,
            tls_old: false,
            flags: flag::HAS_FLAGS
                | flag::FLUSH
                | flag::FUA
                | flag::TRIM
                | flag::WRITE_ZEROES
                | flag::DF
                | flag::MULTI_CONN
                | flag::CACHE
                | flag::FAST_ZERO,
            block: [1, 4096, 32 << 20],
            status_payload: true,
            greeting: |_| {},
            hang_up: |_, _| false,
            option: |_, _, _| {},
            reserved: |_, _| {},
            any_name: false,
            keep_contexts: false,
            list_selects: false,
            padding: 0,
            drop_request: |_| false,
            request: |_| {},
            ignored_flags: 0,
            chunks: |_, _| {},
            bytes: |_, _| {},
            leave_payload: false,
            lose: |_| false,
            private: false,
            any_magic: false,
            ignore_disc: false,
            write_frozen: false,
            patient: false,
        }
    }
}

/// The contents of both exports.
#[derive(Debug, Clone)]
pub(super) struct Disks {
    pub(super) disk: Arc<Mutex<Vec<u8>>>,
    pub(super) frozen: Arc<Mutex<Vec<u8>>>,
}

impl Disks {
    fn new() -> Self {
        Self {
            disk: Arc::new(Mutex::new(vec![0; DISK_BYTES])),
            frozen: Arc::new(Mutex::new(vec![0; FROZEN_BYTES])),
        }
    }
}

/// A running server.
#[derive(Debug)]
pub(super) struct Stub {
    folder: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stub {
    pub(super) fn start(rules: Rules) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("nbd.sock")).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || accept(&listener, &rules, &stopped));
        Self { folder, stop, thread: Some(thread) }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("nbd.sock")
    }

    pub(super) fn uri(&self, export: &str) -> Uri {
        Uri { address: Address::Unix(self.socket()), export: export.to_owned() }
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; connections end when their clients do.
        UnixStream::connect(self.socket()).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn accept(listener: &UnixListener, rules: &Rules, stop: &AtomicBool) {
    let disks = Disks::new();
    for stream in listener.incoming() {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let disks = if rules.private { Disks::new() } else { disks.clone() };
        let rules = rules.clone();
        std::thread::spawn(move || {
            // A client that is gone ends the session; that is its right.
            handshake::serve(&mut Pipe { stream, tls: None }, &rules, &disks);
        });
    }
}

/// A connection; `None` is its end.
#[derive(Debug)]
pub(super) struct Pipe {
    stream: UnixStream,
    tls: Option<Box<ServerConnection>>,
}

impl Pipe {
    pub(super) fn read(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(tls.as_mut(), &mut self.stream).read_exact(&mut bytes).ok()?,
            None => self.stream.read_exact(&mut bytes).ok()?,
        }
        Some(bytes)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Option<()> {
        match &mut self.tls {
            Some(tls) => {
                let mut inside = rustls::Stream::new(tls.as_mut(), &mut self.stream);
                inside.write_all(bytes).and_then(|()| inside.flush()).ok()
            }
            None => self.stream.write_all(bytes).ok(),
        }
    }
}
