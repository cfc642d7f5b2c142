//! The audit log: connections, refusals, and operators' commands. Its lines have the target `audit`.
//!
//! Job: rate-limit the lines about refusals, which an attacker can cause at any rate (`Refusals`).
//!
//! It does not store the lines; standard error and the service manager do.

use crate::limits::REFUSAL_LOG_MS;

/// Characters of a client's text in a line.
const CLIENT_CHARS_MAX: usize = 80;

/// The target of the lines, for the filter in `log.level`.
pub const TARGET: &str = "audit";

/// Rate limit of logged refusals: the first at once, later ones once in [`REFUSAL_LOG_MS`], with the number of
/// suppressed ones.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    last_ms: Option<u64>,
    unlogged: u64,
}

impl Refusals {
    /// Counts a refusal. Returns the number of suppressed ones if it should be logged.
    pub(crate) const fn count(&mut self, now_ms: u64) -> Option<u64> {
        if let Some(last_ms) = self.last_ms
            && now_ms < last_ms.saturating_add(REFUSAL_LOG_MS)
        {
            self.unlogged += 1;
            return None;
        }
        self.last_ms = Some(now_ms);
        let unlogged = self.unlogged;
        self.unlogged = 0;
        Some(unlogged)
    }
}

/// Formats a text chosen by a client, such as the name of an export: quoted, escaped and truncated.
pub(crate) fn brief(text: &str) -> String {
    let cut: String = text.chars().take(CLIENT_CHARS_MAX).collect();
    format!("{cut:?}")
}

/// Logs a refused client, unless there were others a moment ago.
pub(crate) fn refused(refusals: &mut Refusals, now_ms: u64, peer: &impl std::fmt::Display, why: &str) {
    if let Some(unlogged) = refusals.count(now_ms) {
        tracing::warn!(target: TARGET, %peer, unlogged, "audit: client refused: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_write_lines_of_its_own() {
        assert_eq!(brief("a\nclient attached\x1b[2K"), "\"a\\nclient attached\\u{1b}[2K\"");
        assert_eq!(brief(&"x".repeat(5000)).len(), CLIENT_CHARS_MAX + 2);
    }

    #[test]
    fn a_flood_of_refusals_is_a_line_a_second_and_none_is_forgotten() {
        let mut refusals = Refusals::default();
        let logged: Vec<u64> = (0..3000).filter_map(|ms| refusals.count(ms)).collect();
        assert_eq!(logged, [0, 999, 999]);
        assert_eq!(refusals.count(9000), Some(999));
        assert_eq!(refusals.count(u64::MAX), Some(0));
    }
}
