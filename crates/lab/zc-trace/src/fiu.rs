//! The FIU traces: one MD5 for each 4 KiB of a request, or, in the traces of home directories, one for each sector,
//! all in one word; and a line for each block of an original request.
//!
//! Invariant: equal blocks of 4 KiB have equal fingerprints within a trace; those of a trace by sectors are
//! not comparable with those of a trace by blocks, except that of a block of zeros.

use zc_core::SECTOR_BYTES;

use crate::request::{Content, Op, Request, hash};

/// Digits of an MD5.
const DIGITS: usize = 32;
const BLOCK_BYTES: u32 = 4096;
/// Lines of one request are some 50 us apart, as long as it takes to make an MD5 and to write the line; a process that
/// waits for a disk in between is away for longer.
const APART_NS: u64 = 200_000;
/// The longest request that lines are joined to: 1 MiB.
const JOINED_BYTES_MAX: u64 = 1 << 20;
/// The MD5 of a sector of zeros, and of a block of them.
const ZERO_SECTOR: u128 = 0xbf61_9eac_0cdf_3f68_d496_ea93_4413_7e8b;
const ZERO_BLOCK: u128 = 0x620f_0b67_a91f_7f74_151b_c5be_745b_7110;

/// Finds the lines that were one request: of one process, at once, each where the one before ended.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    last: Option<Line>,
}

/// A line, and the request that it is part of.
#[derive(Debug)]
struct Line {
    process: u64,
    device: u32,
    op: Op,
    time_ns: u64,
    end_bytes: u64,
    /// When the request began, and where.
    begun: (u64, u64),
}

impl Joiner {
    /// Marks the pieces of a line as continuations of the line before, if they are.
    pub(crate) fn join(&mut self, process: u64, pieces: &mut [Request]) {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return };
        let end_bytes = last.offset_bytes + u64::from(last.len_bytes);
        let goes_on = self.last.as_ref().filter(|line| {
            (line.process, line.device, line.op) == (process, first.device, first.op)
                && line.end_bytes == first.offset_bytes
                && first.time_ns.checked_sub(line.time_ns).is_some_and(|apart| apart <= APART_NS)
                && end_bytes - line.begun.1 <= JOINED_BYTES_MAX
        });
        let begun = goes_on.map_or((first.time_ns, first.offset_bytes), |line| line.begun);
        let goes_on = goes_on.is_some();
        let (device, op, time_ns) = (first.device, first.op, first.time_ns);
        self.last = Some(Line { process, device, op, time_ns, end_bytes, begun });
        // At one time, so that nothing comes between them where traces are mixed.
        pieces.iter_mut().for_each(|piece| piece.time_ns = begun.0);
        pieces[0].continues = goes_on;
    }

    /// The last line was a bad one after all.
    pub(crate) fn forget(&mut self) {
        self.last = None;
    }
}

/// Cuts a request into pieces, each with a fingerprint of its own; more than one if there are several.
pub(crate) fn pieces(request: Request, text: &str) -> Result<Vec<Request>, &'static str> {
    let content_of = |fingerprint| Content { fingerprint, lz4_bytes: None, zstd1_bytes: None };
    if text.len() <= DIGITS {
        return Ok(vec![request.of(content_of(hash(text)?))]);
    }
    let words = text.as_bytes().chunks(DIGITS);
    let digests = words.map(|word| match str::from_utf8(word) {
        Ok(word) if word.len() == DIGITS => hash(word),
        _ => Err("a fingerprint is not a number of MD5s"),
    });
    let digests = digests.collect::<Result<Vec<u128>, _>>()?;
    let count = u32::try_from(digests.len()).unwrap_or(u32::MAX);
    let blocks = request.len_bytes.div_ceil(BLOCK_BYTES);
    let of_blocks: Vec<u128> = if count == blocks {
        digests
    } else if count == request.len_bytes.div_ceil(SECTOR_BYTES) {
        digests.chunks(8).map(joined).collect()
    } else {
        return Err("a request has neither an MD5 for each block nor one for each sector");
    };
    let starts = (0..request.len_bytes).step_by(4096);
    let piece = |(start, print): (u32, u128)| Request {
        offset_bytes: request.offset_bytes + u64::from(start),
        len_bytes: BLOCK_BYTES.min(request.len_bytes - start),
        content: Some(content_of(print)),
        continues: start > 0,
        ..request
    };
    Ok(starts.zip(of_blocks).map(piece).collect())
}

/// One fingerprint of those of a block's sectors.
fn joined(sectors: &[u128]) -> u128 {
    if sectors.iter().all(|sector| *sector == ZERO_SECTOR) {
        return ZERO_BLOCK;
    }
    // MD5s are even enough to be added up, each times another power of an odd number so that their order
    // counts.
    sectors.iter().fold(0, |sum: u128, sector| {
        sum.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(*sector)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Op, Options, Reader};

    fn read(text: &str) -> (Vec<Request>, Reader) {
        let options = Options { format: Some(Format::Fiu), ..Options::default() };
        let mut reader = Reader::from_vec(text.as_bytes().to_vec(), options).unwrap();
        (reader.by_ref().map(Result::unwrap).collect(), reader)
    }

    fn print(request: &Request) -> u128 {
        request.content.unwrap().fingerprint
    }

    #[test]
    fn sectors_make_the_fingerprint_of_their_block() {
        let sector = |digit: &str| digit.repeat(32);
        let line = |sectors: [&str; 8]| format!("5 1 nfsd 64 8 W 6 0 {}\n", sectors.map(sector).concat());
        let zeros = format!("5 1 nfsd 64 8 W 6 0 {}\n", format!("{ZERO_SECTOR:032x}").repeat(8));
        let lines =
            [["1"; 8], ["1", "1", "1", "1", "1", "1", "2", "1"], ["1", "1", "1", "1", "1", "1", "1", "2"]];
        let text = [lines.map(line).concat(), line(["1"; 8]), zeros].concat();
        let (all, reader) = read(&text);
        assert_eq!((all.len(), reader.bad_count()), (5, 0));
        assert!(all.iter().all(|request| (request.offset_bytes, request.len_bytes) == (64 * 512, 4096)));
        assert_eq!(print(&all[0]), print(&all[3]));
        assert!(print(&all[0]) != print(&all[1]) && print(&all[1]) != print(&all[2]));
        assert_eq!(print(&all[4]), ZERO_BLOCK);
    }

    #[test]
    fn a_request_of_several_blocks_goes_on_in_pieces() {
        let prints = |range: std::ops::Range<u32>| range.map(|n| format!("{n:032x}")).collect::<String>();
        let (all, reader) =
            read(&format!("5 1 p 8 20 R 6 0 {}\n9 1 p 8 8 W 6 0 {}\n", prints(1..4), prints(1..2)));
        let seen: Vec<_> = all.iter().map(|r| (r.offset_bytes, r.len_bytes, r.continues, print(r))).collect();
        let first = [(4096, 4096, false, 1), (8192, 4096, true, 2), (12288, 2048, true, 3)];
        assert_eq!(seen, [&first[..], &[(4096, 4096, false, 1)]].concat());
        assert_eq!((reader.lines(), all[2].op, all[3].time_ns), (2, Op::Read, 4));
        let (all, _) = read(&format!("5 1 p 8 16 R 6 0 {}\n", prints(0..16)));
        assert_eq!(all.len(), 2, "a fingerprint for each sector");
        assert_ne!(print(&all[0]), print(&all[1]));
    }

    #[test]
    fn lines_of_one_request_go_on() {
        let line = |ns: u64, process: u64, lba: u64, op: &str| {
            format!("{ns} {process} nfsd {lba} 8 {op} 6 0 {}\n", "a".repeat(32))
        };
        let starts = |lines: &[String]| -> Vec<(u64, bool)> {
            read(&lines.concat()).0.iter().map(|request| (request.time_ns, request.continues)).collect()
        };
        let first = line(1000, 7, 64, "W");
        let whole = [first.clone(), line(47_000, 7, 72, "W"), line(95_000, 7, 80, "W")];
        assert_eq!(starts(&whole), [(0, false), (0, true), (0, true)]);
        let others = [
            line(47_000, 8, 72, "W"),
            line(47_000, 7, 80, "W"),
            line(47_000, 7, 64, "W"),
            line(47_000, 7, 72, "R"),
            line(201_001, 7, 72, "W"),
        ];
        for other in others {
            assert!(!starts(&[first.clone(), other.clone()])[1].1, "{other}");
        }
        assert!(starts(&[first, line(201_000, 7, 72, "W")])[1].1, "just in time");
        let long: Vec<_> = (0..300).map(|block| line(1000 + block, 7, 64 + 8 * block, "W")).collect();
        let begun =
            starts(&long).iter().enumerate().filter(|(_, it)| !it.1).map(|(at, _)| at).collect::<Vec<_>>();
        assert_eq!(begun, [0, 256]);
        let (_, reader) = read(&whole.concat());
        assert_eq!(reader.lines(), 3);
        let bad = line(1000, 7, 64, "W").replace('\n', " x\n");
        assert_eq!(starts(&[bad, line(47_000, 7, 72, "W")]), [(0, false)], "goes on with nothing");
    }

    #[test]
    fn fingerprints_that_do_not_fit_are_bad() {
        for (sectors, digits) in [(8, 96), (8, 40), (16, 256), (8, 33)] {
            let (all, reader) = read(&format!("5 1 p 8 {sectors} R 6 0 {}\n", "a".repeat(digits)));
            assert_eq!((all.len(), reader.bad_count()), (0, 1), "{digits} digits for {sectors} sectors");
        }
        let (all, reader) = read(&format!("5 1 p 8 16 R 6 0 {} x\n", "a".repeat(64)));
        assert_eq!(
            (all.len(), reader.bad_count()),
            (0, 1),
            "nothing is left of a line that goes on too long"
        );
    }
}
