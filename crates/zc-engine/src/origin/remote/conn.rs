//! One connection of a remote origin, as its thread has it.
//!
//! Job: make the socket on a helper, queue output, and send as much as the kernel takes.
//!
//! Invariants: there is at most one helper. One that waits for a name or a server is waited for, not replaced.
//!
//! Out of scope: deciding when a connection is made or ended.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use bytes::{Buf as _, Bytes};
use zc_config::OriginTls;
use zc_nbd::uri::NbdUri;

use crate::limits::REMOTE_PIECES_MAX;
use crate::origin::remote::socket::Socket;

/// See the module documentation.
#[derive(Default)]
pub(super) struct Conn {
    pub(super) socket: Option<Socket>,
    helper: Option<Receiver<io::Result<Socket>>>,
    /// The core waits for the helper's outcome.
    is_wanted: bool,
    output: VecDeque<Bytes>,
    /// The own half is closed when the output is sent.
    hangs_up: bool,
}

impl Conn {
    /// Drops the socket and the output.
    pub(super) fn close(&mut self) {
        self.socket = None;
        self.output.clear();
        self.hangs_up = false;
        self.is_wanted = false;
    }

    /// Begins to connect. `wake` is called when there is an outcome.
    pub(super) fn connect(
        &mut self,
        (uri, tls): (&NbdUri, &OriginTls),
        wake: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        self.is_wanted = true;
        if self.helper.is_some() {
            return Ok(());
        }
        let (outcome, answer) = sync_channel(1);
        let (uri, tls) = (uri.clone(), tls.clone());
        let connect = move || {
            let _too_late = outcome.send(Socket::connect(&uri, &tls));
            wake();
        };
        std::thread::Builder::new().name("remote-connect".to_owned()).spawn(connect)?;
        self.helper = Some(answer);
        Ok(())
    }

    /// Returns the outcome of the helper, if it has ended and the core waits for it.
    pub(super) fn take_outcome(&mut self) -> Option<io::Result<()>> {
        let outcome = match self.helper.as_ref()?.try_recv() {
            Ok(outcome) => outcome,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err(io::Error::other("the attempt was cut off")),
        };
        self.helper = None;
        if !std::mem::take(&mut self.is_wanted) {
            return None;
        }
        Some(outcome.map(|socket| self.socket = Some(socket)))
    }

    /// Appends bytes to be sent.
    pub(super) fn put(&mut self, output: Vec<Bytes>) {
        self.output.extend(output);
    }

    /// Closes the own half when everything is sent.
    pub(super) const fn hang_up(&mut self) {
        self.hangs_up = true;
    }

    /// Returns `true` if bytes wait for the kernel to take them.
    pub(super) fn is_sending(&self) -> bool {
        !self.output.is_empty() || self.socket.as_ref().is_some_and(Socket::has_output)
    }

    /// Sends as much as the kernel accepts.
    pub(super) fn send(&mut self) {
        while let Some(socket) = &mut self.socket {
            if self.output.is_empty() && !socket.has_output() {
                break;
            }
            let pieces: Vec<IoSlice<'_>> =
                self.output.iter().take(REMOTE_PIECES_MAX).map(|piece| IoSlice::new(piece)).collect();
            match socket.send(&pieces) {
                Ok(None) => return,
                Ok(Some(sent)) => advance(&mut self.output, sent),
                // The last bytes of the server have been received.
                Err(_) => {
                    self.output.clear();
                    break;
                }
            }
        }
        if self.hangs_up && self.output.is_empty() {
            self.hangs_up = false;
            self.socket.iter_mut().for_each(Socket::hang_up);
        }
    }
}

/// Removes bytes that were sent from the front.
fn advance(output: &mut VecDeque<Bytes>, mut sent: usize) {
    while let Some(first) = output.front_mut() {
        if first.len() > sent {
            first.advance(sent);
            return;
        }
        sent -= first.len();
        output.pop_front();
    }
}
