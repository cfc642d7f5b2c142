//! Lines of the control socket as commands (`CONTROL.md`).
//!
//! Job: turn a line into a command or say why it is none. Invariants: any bytes give one or the other; unknown commands
//! and fields are refused; a refusal is short, however long what it quotes. What it does not do: carry commands out, or
//! bound the line (`control` does both). It uses nothing of this crate, so that the fuzzer builds without the daemon.

use serde::Deserialize;

/// Longest refusal, in characters: it may quote what was sent.
const REFUSAL_CHARS_MAX: usize = 300;

/// A command.
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
    /// What changed since the event with this number.
    Events {
        #[serde(default)]
        after: u64,
    },
    /// Closes connections; one of the three says which.
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
    /// Where the configuration file is, and whether it was changed since it was read.
    Config {
        /// The settings of this one, too.
        #[serde(default)]
        volume: Option<String>,
    },
    /// What a reload would come to with this file, which lies beside the configuration.
    CheckConfig {
        path: String,
    },
    Stop {
        /// Also if the cache has what origins lack; the data stays there.
        #[serde(default)]
        keep_dirty: bool,
        /// Brings everything to the origins first.
        #[serde(default)]
        flush: bool,
    },
    Flush {
        volume: String,
    },
    DropDirty {
        volume: String,
        /// Only what cannot be read.
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
    /// Erases what the cache holds of volumes that are gone.
    Erase {},
    Reattach {},
    /// Moves the cache to another device.
    ReplaceCache {
        path: String,
        /// Also to one that holds something.
        #[serde(default)]
        force: bool,
        /// Only say what it would come to.
        #[serde(default)]
        dry_run: bool,
    },
    /// Makes the cache anew on its device, as large as that has become.
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
    /// Brings ranges of a volume into the cache.
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
    /// Returns `true` if it changes nothing. Orders for stores are looked at by who carries them out.
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

    /// The command on a line; or what is wrong with it, for the answer.
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
