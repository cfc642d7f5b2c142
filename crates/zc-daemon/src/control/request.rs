//! Lines of the control socket as commands (`CONTROL.md`).
//!
//! Job: parse a line into a command or a refusal. Invariants: any bytes yield one or the other; unknown commands and
//! fields are refused; a refusal is short, regardless of the quoted text. It does not execute commands, or bound the
//! line (`control` does both). It uses nothing of this crate, so that the fuzzer builds without the daemon.

use serde::Deserialize;

/// Longest refusal, in characters: it may quote the input.
const REFUSAL_CHARS_MAX: usize = 300;

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(any(test, fuzzing), derive(serde::Serialize))]
#[serde(tag = "cmd", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    // Braces: fields of a unit variant would be ignored rather than refused.
    Status {},
    Stats {},
    /// The numbers as Prometheus reads them.
    Metrics {},
    Connections {},
    Events {
        #[serde(default)]
        after: u64,
    },
    /// Closes connections, selected by one of the three.
    Disconnect {
        #[serde(default)]
        id: Option<u64>,
        /// An address, a range of them, or `user N`.
        #[serde(default)]
        client: Option<String>,
        #[serde(default)]
        volume: Option<String>,
    },
    Reload {},
    /// Returns the path of the configuration file, and whether it was changed since it was read.
    Config {
        /// The settings of this one, too.
        #[serde(default)]
        volume: Option<String>,
    },
    /// Returns the prospective result of a reload with this file, which lies beside the configuration.
    CheckConfig {
        path: String,
    },
    Stop {
        /// Stop despite dirty data, which stays on the cache.
        #[serde(default)]
        keep_dirty: bool,
        /// Destages everything first.
        #[serde(default)]
        flush: bool,
    },
    Flush {
        volume: String,
    },
    DropDirty {
        volume: String,
        /// Only unreadable data.
        #[serde(default)]
        unreadable: bool,
    },
    AcceptLoss {
        volume: String,
    },
    /// Incidents that are over count no more.
    Clear {
        #[serde(default)]
        volume: Option<String>,
    },
    /// Erases cached data of removed volumes.
    Erase {},
    Reattach {},
    /// Moves the cache to another device.
    ReplaceCache {
        path: String,
        /// Also to one that holds something.
        #[serde(default)]
        force: bool,
        /// Only check that it is possible.
        #[serde(default)]
        dry_run: bool,
    },
    /// Recreates the cache in the full size of its device.
    ResizeCache {
        #[serde(default)]
        dry_run: bool,
    },
    SetMode {
        volume: String,
        mode: String,
    },
    Resize {
        volume: String,
        #[serde(default)]
        size_bytes: Option<u64>,
    },
    RecordStart {
        volume: String,
        /// A file that is not there.
        path: String,
        /// Such as 10% or 1/8; all, if absent.
        #[serde(default)]
        share: Option<String>,
        #[serde(default)]
        max_bytes: Option<u64>,
        #[serde(default)]
        duration_ms: Option<u64>,
    },
    RecordStop {
        volume: String,
    },
    RecordStatus {},
    /// Reads ranges of a volume into the cache.
    WarmStart {
        volume: String,
        /// First byte and length of each, in bytes.
        ranges: Vec<(u64, u64)>,
        /// No others follow.
        #[serde(default = "yes")]
        last: bool,
        /// 0: no limit.
        #[serde(default)]
        limit_bytes_per_s: u64,
    },
    WarmAdd {
        volume: String,
        ranges: Vec<(u64, u64)>,
        #[serde(default = "yes")]
        last: bool,
    },
    WarmStatus {
        volume: String,
    },
    WarmStop {
        volume: String,
    },
    /// An order for a store that the daemon has open.
    Store {
        store: String,
        /// See `zc-pool-io`.
        order: serde_json::Value,
    },
    Attach {
        volume: String,
    },
    Detach {
        volume: String,
        #[serde(default)]
        force: bool,
    },
}

const fn yes() -> bool {
    true
}

impl Request {
    /// Returns `true` if it changes nothing. Orders for stores are checked by their executor.
    pub(crate) const fn only_looks(&self) -> bool {
        matches!(
            self,
            Self::Status {}
                | Self::Stats {}
                | Self::Metrics {}
                | Self::Connections {}
                | Self::Config { .. }
                | Self::CheckConfig { .. }
                | Self::Events { .. }
                | Self::RecordStatus {}
                | Self::WarmStatus { .. }
                | Self::ReplaceCache { dry_run: true, .. }
                | Self::ResizeCache { dry_run: true }
        )
    }

    /// Parses the command on a line; an error text is for the reply.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line)
            .map_err(|error| format!("not a command: {error}").chars().take(REFUSAL_CHARS_MAX).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_of_the_fuzzer_pass() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/control");
        let seeds: Vec<_> = std::fs::read_dir(folder).unwrap().map(|seed| seed.unwrap().path()).collect();
        assert!(!seeds.is_empty());
        seeds.iter().for_each(|seed| super::super::fuzz_control::run(&std::fs::read(seed).unwrap()));
    }

    #[test]
    fn a_refusal_quotes_only_the_beginning() {
        let line = format!("\"{}\"", "\u{7f}".repeat(60_000));
        let refusal = Request::parse(line.as_bytes()).unwrap_err();
        assert!(refusal.starts_with("not a command: ") && refusal.chars().count() == 300, "{refusal}");
    }
}
