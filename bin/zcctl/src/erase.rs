//! Erasure of cached data of removed volumes: the command to the daemon, and its result.

use serde_json::{Value, json};

use crate::control::ask;
use crate::options::Daemon;
use crate::text::number;

/// Erasure by the daemon of data of removed volumes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Erased {
    slots: u64,
    /// Slots that could not be erased.
    pub(crate) left: u64,
}

/// Requests erasure of cached data of removed volumes.
pub(crate) fn erased(daemon: &Daemon) -> anyhow::Result<Erased> {
    let answer = ask(&daemon.socket, &json!({"cmd": "erase"}))?;
    Ok(Erased { slots: number(&answer["slots"]), left: number(&answer["left"]) })
}

impl Erased {
    pub(crate) fn to_json(self) -> Value {
        json!({"slots": self.slots, "left": self.left})
    }

    pub(crate) fn describe(self) -> String {
        let Self { slots, left } = self;
        match left {
            0 => format!("{slots} slots of the cache are erased"),
            _ => format!(
                "{slots} slots of the cache are erased, and {left} are not, because they are in use, hold pinned ranges, or \
                 the device refuses; `zcctl cache erase` tries again"
            ),
        }
    }
}
