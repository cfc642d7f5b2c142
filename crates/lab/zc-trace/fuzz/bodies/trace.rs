//! Parses arbitrary bytes as a trace, of each format and compressed or not: no panic, requests within their bounds,
//! nothing after the end, and no bad line accepted in strict mode.
//!
//! The first input byte selects the format, or its detection, and strictness; the rest is the trace.

use zc_trace::limits::{ADDRESS_MAX, BAD_LINES_KEPT};
use zc_trace::{Format, Info, Options, Reader};

/// Requests that are read of one input.
const REQUESTS: usize = 10_000;
/// Longest request that is counted block by block, so that an input takes little time.
const COUNTED_BYTES: u32 = 1 << 20;

const FORMATS: [&str; 16] = [
    "fingerprints",
    "fiu",
    "msr",
    "cloudphysics",
    "vscsi",
    "spc",
    "alibaba",
    "tencent",
    "blkparse",
    "disksim",
    "lis",
    "keys",
    "keys32",
    "recording",
    "fio",
    "oraclegeneral",
];

pub(crate) fn run(data: &[u8]) {
    let [choice, trace @ ..] = data else { return };
    let format = FORMATS.get(usize::from(choice >> 1)).map(|name| name.parse::<Format>());
    assert!(!matches!(format, Some(Err(_))), "every name is that of a format");
    let options = Options { format: format.and_then(Result::ok), strict: choice & 1 != 0, device: None };
    let Ok(mut reader) = Reader::from_vec(trace.to_vec(), options) else { return };
    let mut info = Info::default();
    let mut ended = false;
    for request in reader.by_ref().take(REQUESTS) {
        assert!(!ended, "something follows an error");
        match request {
            Ok(request) => {
                assert!(request.end_bytes() <= ADDRESS_MAX, "{request:?}");
                if request.len_bytes <= COUNTED_BYTES {
                    info.add(&request);
                }
            }
            Err(_) => ended = true,
        }
    }
    assert!(!options.strict || reader.bad_count() <= 1);
    assert!(reader.bad_lines().len() <= BAD_LINES_KEPT);
    assert!(info.footprint_bytes() <= ADDRESS_MAX);
}
