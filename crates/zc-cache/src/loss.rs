//! Acknowledged writes that were lost with a session, and the decision to report them to clients.
//!
//! Job: determine, from the facts about the session before, if the first flush of this one must fail
//! ([`crate::config::VolumeConfig::lost_writes`]). A driver provides these facts; the decision is here, so that the
//! simulator tests the same one that the daemon uses.
//!
//! Invariants: unknown writes count as lost. The setting of `ack` that counts is the one that was in force when the
//! writes were acknowledged, never the one of the new configuration.
//!
//! Out of scope: naming the lost writes, and reporting to clients (`base::origin` does).

/// Facts about a volume and its clients when a session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    /// The session before ended in order: it made everything durable.
    pub ended_in_order: bool,
    /// A client of that session may still live, and continue as if nothing had happened.
    pub clients_may_live: bool,
    /// Acknowledged writes of that session may have been in its memory alone, because the setting of `ack` that was
    /// in force then allowed it.
    pub was_volatile: bool,
    /// A loss of an earlier session has not been reported yet.
    pub owed: bool,
    /// `Some(true)` if, when that session was cut off, acknowledged writes were in its memory alone, or a loss was
    /// not reported yet. `None`: its record of that did not outlive it, or cannot be trusted.
    pub at_risk: Option<bool>,
}

impl Before {
    /// Returns `true` if the next flush of a client has to fail.
    #[must_use]
    pub fn must_be_told(&self) -> bool {
        if !self.clients_may_live {
            return false;
        }
        match self.at_risk {
            _ if self.ended_in_order => self.owed,
            Some(at_risk) => at_risk,
            None => self.owed || self.was_volatile,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUT_OFF: Before = Before {
        ended_in_order: false,
        clients_may_live: true,
        was_volatile: false,
        owed: false,
        at_risk: None,
    };

    #[test]
    fn what_is_not_known_counts_as_lost_and_what_is_known_decides() {
        assert!(!CUT_OFF.must_be_told(), "nothing was acknowledged that was not durable");
        let volatile = Before { was_volatile: true, ..CUT_OFF };
        assert!(volatile.must_be_told());
        assert!(!Before { at_risk: Some(false), ..volatile }.must_be_told(), "all of it was durable");
        assert!(Before { at_risk: Some(true), ..CUT_OFF }.must_be_told());
        assert!(!Before { ended_in_order: true, at_risk: Some(true), ..volatile }.must_be_told());
    }

    #[test]
    fn a_loss_stays_owed_over_any_end_and_to_living_clients_alone() {
        let owed = Before { owed: true, ..CUT_OFF };
        assert!(owed.must_be_told());
        assert!(Before { ended_in_order: true, ..owed }.must_be_told());
        assert!(!Before { at_risk: Some(false), ..owed }.must_be_told(), "it was told before the end");
        assert!(!Before { clients_may_live: false, at_risk: Some(true), ..owed }.must_be_told());
    }
}
