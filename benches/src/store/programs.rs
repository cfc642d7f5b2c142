//! Programs on a volume with compression, and on one without: ZBD's experiment.
//!
//! Job: fill a volume with the initial data of PostMark, TPC-C, TPC-H or a file server like SPECsfs's, send the
//! program's requests at a given depth, and report device and processor time (Klonatos et al., "Transparent online
//! storage compression at the block-level", ACM TOS 2012: -34 % to +80 % with compression).
//!
//! Invariants: both volumes get the same requests. TPC-H's bytes are those of its generator; of the others only sizes
//! under LZ4 are known, and their bytes are noise of that size followed by zeros.
//!
//! It does not deduplicate, so that compression alone makes the difference.

use anyhow::Context as _;
use zc_core::{Codec, u64_from_usize, usize_from_u32, usize_from_u64};
use zc_pool::RequestKind;
use zc_trace::tpch::{Database, Run};
use zc_trace::workload::{Kind, Postmark, Workload, ratio_of_saving};
use zc_trace::{Content, Op, Request};

use crate::data::fill_noise;
use crate::measure::{Sample, Series};
use crate::pool::{Place, Rig, VOLUME};

/// Unit of requests.
const BLOCK_BYTES: usize = 4096;
/// Bytes of a volume.
const VOLUME_BYTES: u64 = 192 << 20;
/// Files of PostMark, of 500 to 10,000 bytes: as many as fit on the volume.
const POSTMARK_FILES: u64 = 10_000;
/// Lines of a program that are sent, a block each.
const LINES: usize = 60_000;
/// Requests at once.
const DEPTH: usize = 16;
/// Processors that codecs and store have.
const PROCESSORS: f64 = 2.0;

/// A program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// A mail server's files.
    Postmark,
    /// A database that takes orders.
    Tpcc,
    /// Queries 3, 11 and 14 over a database.
    Tpch,
    /// A file server.
    Specsfs,
}

impl Program {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Postmark, Self::Tpcc, Self::Tpch, Self::Specsfs];

    /// For people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Postmark => "PostMark",
            Self::Tpcc => "TPC-C",
            Self::Tpch => "TPC-H",
            Self::Specsfs => "SPECsfs-like",
        }
    }
}

/// Initial data and requests of a program.
struct Script {
    image: Vec<u8>,
    requests: Vec<Request>,
}

fn block(content: &Content, out: &mut [u8]) {
    let noise = usize_from_u32(content.lz4_bytes.unwrap_or(0)).min(BLOCK_BYTES);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    let seed = content.fingerprint as u64 ^ (content.fingerprint >> 64) as u64;
    fill_noise(&mut out[..noise], seed);
    out[noise..].fill(0);
}

fn made_up(kind: Kind, ratio: (f64, f64)) -> Script {
    let blocks = VOLUME_BYTES / u64_from_usize(BLOCK_BYTES);
    let requests = u64_from_usize(LINES);
    let workload = Workload { kind, blocks, requests, reads: 0.5, shared: 0.0, ratio, seed: 1 };
    let mut image = vec![0; usize_from_u64(VOLUME_BYTES)];
    workload.image().zip(image.chunks_mut(BLOCK_BYTES)).for_each(|(content, out)| block(&content, out));
    Script { image, requests: workload.generate().take(LINES).collect() }
}

fn script(program: Program) -> anyhow::Result<Script> {
    // PostMark: a third is saved by lzo (FlaZ, Table 2). TPC-C: the least of the three savings of "Compression and SSD".
    Ok(match program {
        Program::Postmark => {
            let postmark = Postmark { files: POSTMARK_FILES, ..Postmark::default() };
            made_up(Kind::Postmark(postmark), (1.5, 0.5))
        }
        Program::Tpcc => made_up(Kind::Tpcc, ratio_of_saving(0.63, 0.5)),
        Program::Specsfs => made_up(Kind::Specsfs, (2.0, 0.5)),
        Program::Tpch => {
            let database = Database::new(VOLUME_BYTES * 3 / 4)?;
            let mut image = Vec::new();
            database.image(&mut image)?;
            image.resize(usize_from_u64(VOLUME_BYTES), 0);
            Script { image, requests: database.requests(&Run::default()).take(LINES).collect() }
        }
    })
}

/// Lines that follow each other at one moment were one request: first byte and length.
fn joined(lines: &[Request]) -> Vec<(Request, Vec<Content>)> {
    let mut all: Vec<(Request, Vec<Content>)> = Vec::new();
    for line in lines {
        let content = line.content.unwrap_or(Content { fingerprint: 0, lz4_bytes: None, zstd1_bytes: None });
        match all.last_mut() {
            Some((last, contents))
                if last.time_ns == line.time_ns
                    && last.op == line.op
                    && last.end_bytes() == line.offset_bytes =>
            {
                last.len_bytes += line.len_bytes;
                contents.push(content);
            }
            _ => all.push((*line, vec![content])),
        }
    }
    all
}

/// Bytes of one write while the volume is filled.
const FILL_BYTES: usize = 512 << 10;

fn filled(place: Place, codec: Codec, image: &[u8]) -> anyhow::Result<Rig> {
    let mut rig = place.rig()?;
    rig.create(codec, false, VOLUME_BYTES)?;
    for (number, part) in image.chunks(FILL_BYTES).enumerate() {
        let offset_bytes = u64_from_usize(number * FILL_BYTES);
        let data = part.to_vec().into();
        rig.ask(RequestKind::Write { root: VOLUME, offset_bytes, data, known: Vec::new() })?;
    }
    rig.ask(RequestKind::Flush)?;
    Ok(rig)
}

fn played(
    place: Place,
    codec: Codec,
    image: &[u8],
    requests: &[(Request, Vec<Content>)],
) -> anyhow::Result<Sample> {
    let mut rig = filled(place, codec, image)?;
    let (began_ns, cpu) = (rig.now_ns(), rig.cpu());
    let mut in_flight = 0;
    for (request, contents) in requests {
        let offset_bytes = request.offset_bytes;
        let kind = match request.op {
            Op::Write => {
                let mut data = vec![0; contents.len() * BLOCK_BYTES];
                contents
                    .iter()
                    .zip(data.chunks_mut(BLOCK_BYTES))
                    .for_each(|(content, out)| block(content, out));
                RequestKind::Write { root: VOLUME, offset_bytes, data: data.into(), known: Vec::new() }
            }
            Op::Read | Op::Access => {
                RequestKind::Read { root: VOLUME, offset_bytes, len_bytes: request.len_bytes }
            }
            Op::Flush | Op::Discard => continue,
        };
        while in_flight >= DEPTH {
            rig.answer()?.result?;
            in_flight -= 1;
        }
        rig.submit(kind)?;
        in_flight += 1;
    }
    for _ in 0..in_flight {
        rig.answer()?.result?;
    }
    let device_ns = rig.now_ns() - began_ns;
    let now = rig.cpu();
    let cpu_ns = now.pool_ns + now.jobs_ns - cpu.pool_ns - cpu.jobs_ns;
    // The device and two processors work side by side.
    let longer_ns = (device_ns as f64).max(cpu_ns as f64 / PROCESSORS);
    Ok(Sample::new([
        ("requests", requests.len() as f64),
        ("device_s", device_ns as f64 / 1e9),
        ("processors_s", cpu_ns as f64 / 1e9),
        ("stored_mib", rig.pool().store().space().referred_bytes as f64 / 1_048_576.0),
        ("per_second", requests.len() as f64 * 1e9 / longer_ns),
    ]))
}

/// Runs a program on both volumes.
pub(crate) fn run(place: Place, program: Program) -> anyhow::Result<Vec<Series>> {
    let case = format!("{} on the {}", program.name(), place.model.name);
    let Script { image, requests } = script(program).with_context(|| program.name())?;
    let requests = joined(&requests);
    let play = |(target, codec)| {
        let sample = played(place, codec, &image, &requests).with_context(|| program.name())?;
        Ok(Series::new(&case, target, vec![sample]))
    };
    [("raw", Codec::Raw), ("LZ4", Codec::Lz4)].into_iter().map(play).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::SSD;

    #[test]
    fn lines_of_one_moment_side_by_side_are_one_request() {
        let line = |time_ns, offset_bytes| Request::new(time_ns, Op::Read, offset_bytes, 4096);
        let all = joined(&[line(0, 0), line(0, 4096), line(1, 8192), line(1, 0)]);
        let found: Vec<_> =
            all.iter().map(|(request, _)| (request.offset_bytes, request.len_bytes)).collect();
        assert_eq!(found, [(0, 8192), (8192, 4096), (0, 4096)]);
    }

    #[test]
    fn every_program_fits_the_volume() {
        for program in Program::ALL {
            let script = script(program).unwrap();
            assert_eq!(u64_from_usize(script.image.len()), VOLUME_BYTES, "{}", program.name());
            assert!(script.requests.len() > 1000, "{}", program.name());
        }
    }

    #[test]
    fn a_volume_with_compression_takes_less_room_and_less_of_the_device() {
        let place = Place { model: SSD, device_bytes: 512 << 20, segment_bytes: 1 << 20 };
        let seen = run(place, Program::Specsfs).unwrap();
        let [plain, compressed] = &seen[..] else { panic!("two volumes") };
        assert!(plain.median("requests") > 1000.0);
        assert!(compressed.median("stored_mib") * 3.0 < plain.median("stored_mib") * 2.0, "{seen:?}");
        assert!(compressed.median("processors_s") > 0.0 && plain.median("device_s") > 0.0);
    }
}
