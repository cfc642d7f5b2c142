//! Requests as a trace with fingerprints: `ts_ns lba512 nsect op hash lz4 zstd1`, a line per block.

use std::io::{self, Write};

use crate::request::{Op, Request};

const SECTOR: u64 = 512;

/// Writes requests, each of at most one block.
///
/// # Errors
/// As the writer says.
pub fn lines(requests: impl Iterator<Item = Request>, out: &mut impl Write) -> io::Result<()> {
    for request in requests {
        let (lba, sectors) = (request.offset_bytes / SECTOR, u64::from(request.len_bytes) / SECTOR);
        let op = match request.op {
            Op::Write => 'W',
            Op::Flush => 'F',
            _ => 'R',
        };
        let (print, lz4, zstd) = request.content.map_or((0, 0, 0), |content| {
            let lz4 = content.lz4_bytes.unwrap_or(request.len_bytes);
            (content.fingerprint, lz4, content.zstd1_bytes.unwrap_or(lz4))
        });
        writeln!(out, "{} {lba} {sectors} {op} {print:016x} {lz4} {zstd}", request.time_ns)?;
    }
    Ok(())
}
