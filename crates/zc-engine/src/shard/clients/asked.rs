//! Client requests, independent of their front end.
//!
//! It does not process them.

use zc_core::{SECTOR_BYTES, VolumeId};
use zc_nbd::server::{Command, Request};
use zc_ublk::{Request as DeviceRequest, RequestOp};

use crate::front::shares;
use crate::limits::{REQUEST_BYTES, STATUS_RUN_BYTES, STATUS_RUNS_MAX};
use crate::shard::pending::Tag;

pub(crate) const SECTOR: u64 = SECTOR_BYTES as u64;

/// Start of the sector that contains a byte.
pub(crate) const fn floor(bytes: u64) -> u64 {
    bytes / SECTOR * SECTOR
}

/// Origin of a request, and destination of its reply.
#[derive(Debug)]
pub(crate) enum Asker {
    /// A connection; the request is taken by the reply.
    Nbd {
        conn: u64,
        request: Request,
    },
    Ublk(Tag),
}

/// A received request.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) from: Asker,
    pub(crate) volume: VolumeId,
    pub(crate) asked: Asked,
}

impl Incoming {
    pub(crate) fn of_connection(conn: u64, volume: VolumeId, request: Request) -> Self {
        let asked = Asked::of(&request);
        Self { from: Asker::Nbd { conn, request }, volume, asked }
    }

    /// Returns the source for a request of a block device.
    pub(crate) const fn of_device(tag: Tag, volume: VolumeId, request: &DeviceRequest) -> Self {
        Self { from: Asker::Ublk(tag), volume, asked: Asked::of_device(request) }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) command: Command,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) fua: bool,
    pub(crate) no_hole: bool,
    pub(crate) fast_zero: bool,
}

impl Asked {
    fn of(request: &Request) -> Self {
        Self {
            command: request.command(),
            offset: request.offset(),
            length: request.length(),
            fua: request.fua(),
            no_hole: request.no_hole(),
            fast_zero: request.fast_zero(),
        }
    }

    /// Converts a request of a block device.
    pub(crate) const fn of_device(request: &DeviceRequest) -> Self {
        let (command, no_hole) = match request.op {
            RequestOp::Read => (Command::Read, false),
            RequestOp::Write => (Command::Write, false),
            RequestOp::Flush => (Command::Flush, false),
            RequestOp::Discard => (Command::Trim, false),
            RequestOp::WriteZeroes { no_hole } => (Command::WriteZeroes, no_hole),
        };
        Self {
            command,
            offset: request.offset_bytes,
            length: request.len_bytes,
            fua: request.fua,
            no_hole,
            fast_zero: false,
        }
    }
}

/// Memory that a request will hold at most: whole sectors in a buffer of the pool, and its entry in tables.
pub(crate) fn memory_of(request: &Request) -> u64 {
    let payload = match request.command() {
        Command::Read | Command::Write => {
            let end = (request.offset() + request.length()).next_multiple_of(SECTOR);
            (end - floor(request.offset())).next_power_of_two().max(4096)
        }
        Command::BlockStatus => status_bytes(request.length()),
        Command::Flush | Command::Trim | Command::WriteZeroes | Command::Cache => 0,
    };
    payload + REQUEST_BYTES
}

/// Maximum memory of the reply to a BLOCK_STATUS.
pub(crate) fn status_bytes(len_bytes: u64) -> u64 {
    (len_bytes / SECTOR + 2).min(STATUS_RUNS_MAX) * STATUS_RUN_BYTES
}

/// Returns the bytes of a request that the manager looks up or reads at a time.
pub(crate) fn served_bytes(command: Command, len_bytes: u64) -> u64 {
    if matches!(command, Command::Read | Command::Cache) { shares::piece(command, len_bytes) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_devices_keep_their_meaning() {
        let of = |op, fua| Asked::of_device(&DeviceRequest { op, offset_bytes: 512, len_bytes: 1024, fua });
        let write = of(RequestOp::Write, true);
        assert_eq!((write.command, write.offset, write.length, write.fua), (Command::Write, 512, 1024, true));
        let zeroes = of(RequestOp::WriteZeroes { no_hole: true }, false);
        assert_eq!((zeroes.command, zeroes.no_hole, zeroes.fast_zero), (Command::WriteZeroes, true, false));
        assert_eq!(of(RequestOp::Discard, false).command, Command::Trim);
    }
}
