//! Time-driven work: retries of accept, and the end of stalled clients.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zc_core::Map;

use crate::front::settings::FrontLimits;
use crate::limits::{ARRIVAL_BYTES_PER_S_MIN, LOOK_MS};
use crate::shard::base::Base;
use crate::shard::clients::conn::Conn;
use crate::shard::clients::nbd::NbdFront;
use crate::shard::volumes::Volumes;

impl NbdFront {
    /// Executes time-driven work: retries of accept, and the end of stalled clients.
    pub(crate) fn look_after(&mut self, base: &mut Base, volumes: &mut Volumes, now_ms: u64) {
        if now_ms.saturating_sub(self.last_look_ms) < LOOK_MS {
            return;
        }
        self.last_look_ms = now_ms;
        for listener in std::mem::take(&mut self.accept_later) {
            self.accept(base, listener);
        }
        for id in hung_up(&self.conns) {
            self.kill(volumes, id);
        }
        let limits = self.limits;
        let stuck: Vec<(u64, &str)> =
            self.conns.iter().filter_map(|(id, conn)| Some((*id, overdue(conn, &limits, now_ms)?))).collect();
        for (id, why) in stuck {
            self.break_off(base, volumes, id, why);
        }
        for id in self.look_after_waiting(now_ms) {
            self.break_off(
                base,
                volumes,
                id,
                "the client stalls while others wait for the memory that it holds",
            );
        }
    }
}

/// Connections that are not received from, and whose clients have closed them: the requests that hold the receive up
/// are of no use to any client.
fn hung_up(conns: &Map<u64, Conn>) -> Vec<u64> {
    let (ids, mut fds): (Vec<u64>, Vec<PollFd<'_>>) = conns
        .iter()
        .filter(|(_, conn)| !conn.dead && !conn.is_in_ring() && conn.session.in_flight() > 0)
        // Errors and hang-ups are reported unconditionally.
        .map(|(id, conn)| (*id, PollFd::new(&*conn.fd, PollFlags::empty())))
        .unzip();
    if fds.is_empty() || poll(&mut fds, Some(&Timespec::default())).is_err() {
        return Vec::new();
    }
    let is_gone = |fd: &PollFd<'_>| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR);
    ids.into_iter().zip(&fds).filter(|(_, fd)| is_gone(fd)).map(|(id, _)| id).collect()
}

/// Returns the reason why a client has timed out, if it has.
fn overdue(conn: &Conn, limits: &FrontLimits, now_ms: u64) -> Option<&'static str> {
    let since = |then: u64| now_ms.saturating_sub(then);
    if conn.dead {
        return None;
    }
    if conn.volume.is_none() && since(conn.accepted_ms) > limits.handshake_ms {
        return Some("the client does not choose an export");
    }
    if conn.payload.is_some() && since(conn.progress_ms) > limits.stall_ms {
        return Some("the client stopped within a write");
    }
    if let Some(payload) = &conn.payload {
        let slow_ms = payload.request.length() * 1000 / ARRIVAL_BYTES_PER_S_MIN;
        if since(payload.began_ms) > limits.stall_ms + slow_ms {
            return Some("a write takes too long to arrive");
        }
    }
    if since(conn.taken_ms) > taking_ms(conn, limits) && conn.sending_bytes() > 0 {
        return Some("the client does not receive its replies");
    }
    if limits.idle_ms > 0
        && conn.is_idle()
        && conn.volume.is_some()
        && since(conn.progress_ms) > limits.idle_ms
    {
        return Some("the client is idle");
    }
    None
}

/// Returns the time limit for one send of replies. Progress within a send is only visible at its completion, so a
/// short idle time-out must not close a slow client.
fn taking_ms(conn: &Conn, limits: &FrontLimits) -> u64 {
    // A client that has disconnected has no further requests; one with further requests receives their replies.
    if conn.is_full() || conn.waiting.is_some() || conn.closing {
        limits.stall_ms
    } else if limits.idle_ms > 0 {
        limits.idle_ms.max(limits.stall_ms)
    } else {
        u64::MAX
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::front::access::{Export, View};
    use crate::front::peer::{Peer, Source};
    use crate::front::settings::LIMITS_OF_TESTS as LIMITS;
    use crate::shard::clients::conn::Payload;
    use zc_core::VolumeId;
    use zc_io::{AlignedBuf, SharedFd};
    use zc_nbd::server::{ServerEvent, TlsMode};

    fn export() -> Export {
        let text = "[cache]\npath = \"/c\"\nsize = \"1 GiB\"\n[nbd]\nlisten = [\"127.0.0.1:1\"]\n\
                    [[volume]]\nname = \"v\"\norigin = \"/o\"\n";
        let config = zc_config::Config::parse(text, "test").unwrap();
        crate::front::settings::export(&config.volumes[0], VolumeId(1), 64 << 20)
    }

    /// Returns a connection with a chosen export whose session has processed these bytes, and the last event.
    fn attached(bytes: &[u8]) -> (Conn, Option<ServerEvent>) {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = OwnedFd::from(socket);
        let peer = Peer::of(&socket, false);
        let mut conn =
            Conn::new(SharedFd::new(socket), (peer, Source::of(peer, 64)), &LIMITS, TlsMode::Off, 0);
        conn.volume = Some(VolumeId(1));
        let all = [b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0", bytes].concat();
        let (mut rest, exports) = (&all[..], [export()]);
        let catalog = &View { exports: &exports, peer, is_secured: false, names: &[] };
        let (mut last, mut head) = (None, Vec::new());
        while let Some(event) = conn.session.next_event(&mut rest, catalog, &mut head) {
            last = Some(event);
        }
        // The greeting is sent and taken.
        drop(conn.send());
        conn.sent();
        (conn, last)
    }

    #[test]
    fn a_payload_has_patience_and_the_time_of_a_slow_link() {
        let mut header = b"\x25\x60\x95\x13\0\0\0\x01cookie..\0\0\0\0\0\0\0\0".to_vec();
        header.extend(1_048_576_u32.to_be_bytes());
        let (mut conn, Some(ServerEvent::WriteBegin(request))) = attached(&header) else {
            panic!("a write begins")
        };
        let memory = Some(AlignedBuf::new(512));
        conn.payload = Some(Payload {
            request,
            memory,
            skip_bytes: 0,
            filled_bytes: 0,
            held_bytes: 4096,
            began_ms: 100,
        });
        // A byte now and then.
        conn.progress_ms = 9000;
        assert_eq!(overdue(&conn, &LIMITS, 100 + 5000 + 4000), None);
        let late = overdue(&conn, &LIMITS, 100 + 5000 + 4000 + 1);
        assert_eq!(late, Some("a write takes too long to arrive"));
        assert_eq!(
            overdue(&conn, &LIMITS, 9000 + 5001),
            Some("the client stopped within a write"),
            "the first reason"
        );
    }

    #[test]
    fn a_client_that_asks_for_nothing_is_idle() {
        let (mut conn, _) = attached(&[]);
        conn.progress_ms = 1000;
        assert_eq!(overdue(&conn, &LIMITS, 3000), None);
        assert_eq!(overdue(&conn, &LIMITS, 3001), Some("the client is idle"));
    }
}
