//! Location of a store: a file or device that this command opens, or a store that a running daemon has open.
//!
//! Job: execute orders at either location. Invariants: an existing file or a name with a `/` is a path; anything else
//! is the name of a store in the daemon's configuration. Before a snapshot or clone of a served volume, its dirty data
//! is destaged to the store.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Value, json};
use zc_pool_io::Order;

use super::cli::Pool;
use super::driver::Driver;
use crate::control::ask;
use crate::dirty;
use crate::options::Daemon;

/// Location of a store at which orders are executed.
pub(super) enum Place<'a> {
    /// Opened by this command.
    Own(Driver),
    Daemon {
        daemon: &'a Daemon,
        store: &'a str,
    },
}

impl<'a> Place<'a> {
    /// Opens it, or locates the daemon.
    pub(super) fn open(pool: &'a Pool) -> anyhow::Result<Self> {
        Self::find(pool, Driver::open)
    }

    /// For orders that change nothing: a device that no daemon has open stays as it is.
    pub(super) fn look(pool: &'a Pool) -> anyhow::Result<Self> {
        Self::find(pool, Driver::look)
    }

    fn find(pool: &'a Pool, open: fn(&Path) -> anyhow::Result<Driver>) -> anyhow::Result<Self> {
        match pool.name() {
            None => Ok(Self::Own(open(&pool.pool)?)),
            Some(store) => Ok(Self::Daemon { daemon: &pool.daemon, store }),
        }
    }

    pub(super) fn carry_out(&self, order: &Order) -> anyhow::Result<Value> {
        match self {
            Self::Own(driver) => Ok(order.carry_out(driver.client())?),
            Self::Daemon { daemon, store } => {
                let request = json!({ "cmd": "store", "store": store, "order": order });
                let mut answer = ask(&daemon.socket, &request)?;
                if let Some(fields) = answer.as_object_mut() {
                    fields.remove("ok");
                }
                Ok(answer)
            }
        }
    }

    /// Destages a volume's cached data to the store, if the daemon serves it.
    pub(super) fn settle(&self, name: &str) -> anyhow::Result<()> {
        let Self::Daemon { daemon, store } = self else { return Ok(()) };
        let origin = format!("store:{store}/{name}");
        let status = ask(&daemon.socket, &json!({ "cmd": "status" }))?;
        let volumes = status["volumes"].as_array().into_iter().flatten();
        for volume in volumes.filter(|volume| volume["info"]["origin"] == *origin) {
            let served = volume["name"].as_str().unwrap_or_default();
            let mut said: Vec<u8> = Vec::new();
            if dirty::flush_if_dirty(served, daemon, &mut said)? != ExitCode::SUCCESS {
                bail!(
                    "the dirty data of volume \"{served}\" cannot be written to the store; nothing was done"
                );
            }
            std::io::stderr().write_all(&said)?;
        }
        Ok(())
    }

    /// Makes everything durable and releases the device.
    pub(super) fn close(self) -> anyhow::Result<()> {
        match self {
            Self::Own(driver) => driver.close(),
            Self::Daemon { .. } => Ok(()),
        }
    }
}

impl Pool {
    /// The name that the daemon has for the store; `None`: it is a path.
    pub(super) fn name(&self) -> Option<&str> {
        let text = self.pool.to_str()?;
        let is_path = text.contains('/') || Path::new(text).exists();
        (!is_path).then_some(text)
    }

    /// Returns its path, for operations outside of the daemon.
    pub(super) fn path(&self) -> anyhow::Result<&Path> {
        if let Some(name) = self.name() {
            bail!(
                "this needs the path of a store that no daemon has open; there is no file or device \"{name}\""
            );
        }
        Ok(&self.pool)
    }
}
