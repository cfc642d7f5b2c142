//! Requests as a trace with fingerprints: `ts_ns lba512 nsect op hash lz4 zstd1`, a line per block. An unknown size is
//! a dash, which readers replace by a model.

use std::io::{self, Write};

use zc_core::SECTOR_BYTES;

use crate::request::{Op, Request};

/// Writes requests, each of at most one block.
///
/// # Errors
/// When the writer fails.
pub fn lines(requests: impl Iterator<Item = Request>, out: &mut impl Write) -> io::Result<()> {
    for request in requests {
        let (lba, sectors) =
            (request.offset_bytes / u64::from(SECTOR_BYTES), request.len_bytes / SECTOR_BYTES);
        let op = match request.op {
            Op::Write => 'W',
            Op::Flush => 'F',
            _ => 'R',
        };
        write!(out, "{} {lba} {sectors} {op} ", request.time_ns)?;
        let Some(content) = request.content else {
            writeln!(out, "{:016x} 0 0", 0)?;
            continue;
        };
        let size = |bytes: Option<u32>| bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        let (lz4, zstd) = (size(content.lz4_bytes), size(content.zstd1_bytes));
        writeln!(out, "{:016x} {lz4} {zstd}", content.fingerprint)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Content;
    use crate::{Options, Reader};

    #[test]
    fn sizes_that_are_not_known_are_not_made_up() {
        let sizes = [(Some(2000), Some(900)), (Some(2000), None), (None, Some(900)), (None, None)];
        let all = sizes.map(|(lz4_bytes, zstd1_bytes)| {
            Request::new(0, Op::Write, 0, 4096).of(Content { fingerprint: 7, lz4_bytes, zstd1_bytes })
        });
        let mut text = Vec::new();
        lines(all.into_iter(), &mut text).unwrap();
        let read: Vec<Request> = Reader::from_vec(text, Options { strict: true, ..Options::default() })
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(read, all);
    }
}
