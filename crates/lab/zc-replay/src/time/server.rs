//! Server of one operation at a time: foreground work first, background work in the gaps.
//!
//! Foreground work is served in the order of arrival. Background work is a sum of time that is worked off whenever the
//! server is idle; foreground work that arrives meanwhile waits for half an operation of it.

/// One at a time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Server {
    free_at: u64,
    owed: u64,
    /// The last piece of background work.
    piece: u64,
    pub(super) busy: u64,
}

impl Server {
    /// Spends the time until `now` on background work; returns `true` if the server was idle.
    fn rest(&mut self, now: u64) -> bool {
        let is_idle = now > self.free_at;
        if is_idle {
            self.owed = self.owed.saturating_sub(now - self.free_at);
            self.free_at = now;
        }
        is_idle
    }

    /// When it would begin something new.
    pub(super) const fn free_at(&self) -> u64 {
        self.free_at
    }

    /// When background work would be done.
    pub(super) const fn settled_at(&self) -> u64 {
        self.free_at.saturating_add(self.owed)
    }

    /// Work that a client waits for: when it is done.
    pub(super) fn serve(&mut self, now: u64, ns: u64) -> u64 {
        // A piece is under way only if there was time to begin it; foreground work that is in line goes first.
        if self.rest(now) && self.owed > 0 {
            let under_way = self.piece.min(self.owed) / 2;
            self.owed -= under_way;
            self.free_at += under_way;
        }
        self.free_at += ns;
        self.busy += ns;
        self.free_at
    }

    /// Work that no client waits for: when it is done if nothing else comes.
    pub(super) fn owe(&mut self, now: u64, ns: u64) -> u64 {
        self.rest(now);
        self.owed += ns;
        self.piece = ns;
        self.busy += ns;
        self.settled_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreground_waits_in_line_and_background_for_all() {
        let mut server = Server::default();
        assert_eq!(server.serve(100, 50), 150);
        assert_eq!(server.serve(110, 50), 200);
        assert_eq!(server.owe(120, 100), 300);
        assert_eq!(server.serve(210, 50), 210 + 45 + 50, "half of what is left of the piece");
        assert_eq!(server.settled_at(), 350);
        assert_eq!(server.serve(1000, 50), 1050, "what was owed is long done");
        assert_eq!(server.busy, 300);
        server.owe(1050, 100);
        assert_eq!(server.serve(1050, 50), 1100, "there was no time to begin a piece");
        assert_eq!(server.serve(1080, 50), 1150, "and those in line go before it");
    }
}
