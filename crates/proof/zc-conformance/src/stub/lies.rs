//! The lies, one per line: a fault of the stub, and the cases that must detect it.

use super::{Call, OptionReply, Rules};
use crate::session::{Chunk, Mode};
use crate::wire::{cflag, chunk, cmd, err, flag, info, opt, rep};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Indices of the honest servers of the tests.
const ALL: usize = 0;
const TLS: usize = 1;
const FORCED: usize = 2;
const PADDING: usize = 3;
const FEW: usize = 4;
const BLOCKS: usize = 5;

/// One thing done wrong.
#[derive(Debug)]
pub(super) struct Lie {
    pub(super) name: &'static str,
    /// The honest server that it changes.
    pub(super) server: usize,
    pub(super) found_by: &'static [&'static str],
    pub(super) tell: fn(&mut Rules),
}

const fn lie(
    name: &'static str,
    server: usize,
    found_by: &'static [&'static str],
    tell: fn(&mut Rules),
) -> Lie {
    Lie { name, server, found_by, tell }
}

/// A lie about the replies to options.
macro_rules! option {
    ($name:literal, $server:expr, $ids:expr, $hook:expr) => {
        lie($name, $server, &$ids, |rules| rules.option = $hook)
    };
}

/// A lie about the chunks of replies.
macro_rules! chunks {
    ($name:literal, $ids:expr, $hook:expr) => {
        lie($name, ALL, &$ids, |rules| rules.chunks = $hook)
    };
}

/// Lie that changes a reply's bytes.
macro_rules! bytes {
    ($name:literal, $ids:expr, $hook:expr) => {
        lie($name, ALL, &$ids, |rules| rules.bytes = $hook)
    };
}

/// A lie about export flags.
macro_rules! flags {
    ($name:literal, $server:expr, $ids:expr, $add:expr, $remove:expr) => {
        lie($name, $server, &$ids, |rules| rules.flags = rules.flags & !$remove | $add)
    };
}

fn set_last(replies: &mut Vec<OptionReply>, kind: u32) {
    *replies = vec![(kind, Vec::new())];
}

fn instead(number: u32, wanted: u32, replies: &mut Vec<OptionReply>, kind: u32) {
    if number == wanted {
        set_last(replies, kind);
    }
}

/// Changes the payload of one kind of information.
fn change_info(replies: &mut [OptionReply], kind: u16, change: impl Fn(&mut Vec<u8>)) {
    let [high, low] = kind.to_be_bytes();
    for (reply, data) in replies.iter_mut() {
        if *reply == rep::INFO && data.starts_with(&[high, low]) {
            change(data);
        }
    }
}

fn change_contexts(replies: &mut [OptionReply], change: impl Fn(&mut Vec<u8>)) {
    replies.iter_mut().filter(|(kind, _)| *kind == rep::META).for_each(|(_, data)| change(data));
}

/// Changes the error number of an error reply, in all three layouts.
fn change_error(call: &Call<'_>, bytes: &mut [u8], number: u32) {
    let [at, is_error] = match call.mode {
        Mode::Simple => [4, usize::from(bytes.len() == 16 && bytes[4..8] != [0; 4])],
        Mode::Structured => [20, usize::from(bytes.len() > 20 && bytes[6] & 0x80 != 0)],
        Mode::Extended => [32, usize::from(bytes.len() > 32 && bytes[6] & 0x80 != 0)],
    };
    if is_error == 1 {
        bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
    }
}

/// Turns a failure into success.
fn succeed(call: &Call<'_>, chunks: &mut Vec<Chunk>) {
    if chunks
        .iter()
        .any(|chunk| chunk.error != 0 || chunk.kind.is_some_and(|kind| kind & chunk::ERROR_BIT != 0))
    {
        let base = Chunk { kind: None, flags: 0, cookie: call.request.cookie, error: 0, payload: Vec::new() };
        let reads = call.request.cmd == cmd::READ;
        let length = zc_core::usize_from_u64(call.request.length);
        *chunks = match call.mode {
            Mode::Simple if reads => vec![Chunk { payload: vec![0; length], ..base }],
            Mode::Simple => vec![base],
            _ => vec![Chunk { kind: Some(chunk::NONE), flags: chunk::DONE, ..base }],
        };
    }
}

/// Turns a success into EIO.
fn fail(call: &Call<'_>, chunks: &mut Vec<Chunk>, number: u32) {
    let base =
        Chunk { kind: None, flags: 0, cookie: call.request.cookie, error: number, payload: Vec::new() };
    let payload = [&number.to_be_bytes()[..], &[0, 0]].concat();
    *chunks = match call.mode {
        Mode::Simple => vec![base],
        _ => vec![Chunk { kind: Some(chunk::ERROR_BIT | 1), flags: chunk::DONE, payload, ..base }],
    };
}

fn first<'a>(chunks: &'a mut [Chunk], kinds: &[u16]) -> Option<&'a mut Chunk> {
    chunks.iter_mut().find(|chunk| chunk.kind.is_some_and(|kind| kinds.contains(&kind)))
}

const CONTENT: &[u16] = &[chunk::DATA, chunk::HOLE];
const STATUS: &[u16] = &[chunk::STATUS, chunk::STATUS_EXT];

fn is(call: &Call<'_>, cmd: u16) -> bool {
    call.request.cmd == cmd
}

/// Returns the offset of a status chunk's extents, and the size of one.
fn extents(chunk: &Chunk) -> (usize, usize) {
    if chunk.kind == Some(chunk::STATUS_EXT) { (8, 16) } else { (4, 8) }
}

/// Changes the extents of a status reply: the bytes behind id and count, one extent's length in bytes.
fn change_extents(chunks: &mut [Chunk], change: impl Fn(&mut Vec<u8>, usize)) {
    for chunk in chunks.iter_mut().filter(|chunk| chunk.kind.is_some_and(|kind| STATUS.contains(&kind))) {
        let (head, step) = extents(chunk);
        let mut list = chunk.payload.split_off(head);
        change(&mut list, step);
        if step == 16 {
            let count = u32::try_from(list.len() / step).unwrap();
            chunk.payload[4..8].copy_from_slice(&count.to_be_bytes());
        }
        chunk.payload.extend(list);
    }
}

/// The bytes of one extent.
fn extent(step: usize, length: u64, flags: u64) -> Vec<u8> {
    if step == 16 {
        return [length.to_be_bytes(), flags.to_be_bytes()].concat();
    }
    [u32::try_from(length).unwrap().to_be_bytes(), u32::try_from(flags).unwrap().to_be_bytes()].concat()
}

/// The lies about the handshake.
pub(super) const HANDSHAKE: &[Lie] = &[
    lie("NBDMAGIC is another", ALL, &["HS-01"], |rules| rules.greeting = |bytes| bytes[0] ^= 1),
    lie("FIXED_NEWSTYLE is not offered", ALL, &["HS-02"], |rules| rules.greeting = |bytes| bytes[17] &= !1),
    lie("a handshake flag without meaning", ALL, &["HS-03"], |rules| rules.greeting = |bytes| bytes[16] |= 4),
    lie("any client flag is taken", PADDING, &["HS-04", "HS-05", "HS-06"], |rules| {
        rules.accept_any_client_flags = true;
    }),
    lie("the reserved bytes are ones", ALL, &["HS-08"], |rules| rules.reserved = |_, bytes| bytes.fill(1)),
    lie("zeroes although NO_ZEROES", ALL, &["HS-09", "HS-14"], |rules| {
        rules.reserved = |_, bytes| bytes.resize(124, 0);
    }),
    lie("every name is disk", ALL, &["IN-14"], |rules| {
        rules.option = |number, data, replies| {
            if number == opt::INFO && data.contains(&0xff) {
                set_last(replies, rep::ACK);
            }
        }
    }),
    lie("EXPORT_NAME takes any name", ALL, &["HS-11", "HS-12"], |rules| {
        rules.any_name = true;
        rules.option = |number, data, replies| {
            if (number == opt::INFO || number == opt::GO)
                && data.len() > 8
                && !data.windows(4).any(|w| w == b"disk")
            {
                set_last(replies, rep::UNKNOWN);
            }
        };
    }),
    option!("INFO tells another size", ALL, ["HS-10", "IN-05"], |number, _, replies| {
        if number == opt::INFO {
            change_info(replies, info::EXPORT, |data| data[6] ^= 1);
        }
    }),
    flags!("no HAS_FLAGS", ALL, ["HS-13", "IN-31"], 0, flag::HAS_FLAGS),
    lie("any magic will do", ALL, &["HS-16", "TR-38", "EX-30"], |rules| rules.any_magic = true),
    lie(
        "unknown options end the session",
        ALL,
        &["HS-07", "HS-15", "OP-08", "OP-10", "OP-13", "OP-25", "IN-03"],
        |rules| {
            rules.hang_up = |number, _| number == opt::UNKNOWN;
        },
    ),
    option!(
        "unknown options are invalid",
        ALL,
        ["OP-01", "OP-02", "OP-03", "OP-05", "OP-06", "OP-07"],
        |_, _, replies| {
            if replies[0].0 == rep::UNSUP {
                set_last(replies, rep::INVALID);
            }
        }
    ),
    option!("a long option is acknowledged", ALL, ["OP-04"], |_, data, replies| {
        if data.len() > 5000 {
            set_last(replies, rep::ACK);
        }
    }),
    option!("error texts hold NUL", ALL, ["OP-09"], |_, _, replies| {
        if replies[0].0 & rep::ERROR != 0 {
            replies[0].1 = vec![0; 3];
        }
    }),
    option!("ABORT is unknown", ALL, ["OP-11", "OP-12"], |number, _, replies| instead(
        number,
        opt::ABORT,
        replies,
        rep::UNSUP
    )),
    option!("LIST is unknown", ALL, ["OP-14"], |number, _, replies| instead(
        number,
        opt::LIST,
        replies,
        rep::UNSUP
    )),
    option!("names do not fit their replies", ALL, ["OP-15"], |number, _, replies| {
        if number == opt::LIST && replies.len() > 1 {
            replies[0].1[3] += 1;
        }
    }),
    option!("LIST takes data", ALL, ["OP-16"], |number, data, replies| {
        if !data.is_empty() {
            instead(number, opt::LIST, replies, rep::ACK);
        }
    }),
    option!("LIST names what INFO does not know", ALL, ["OP-17", "IN-28"], |number, _, replies| {
        if number == opt::LIST {
            replies.iter_mut().filter(|(kind, _)| *kind == rep::SERVER).for_each(|(_, data)| data[4] = b'x');
        }
    }),
    option!("ACK carries data", ALL, ["OP-18"], |_, _, replies| {
        if let Some((rep::ACK, data)) = replies.last_mut() {
            data.push(1);
        }
    }),
    option!("STRUCTURED_REPLY is unknown export", ALL, ["OP-19"], |number, _, replies| {
        instead(number, opt::STRUCTURED_REPLY, replies, rep::UNKNOWN);
    }),
    option!(
        "options with data are acknowledged",
        ALL,
        ["OP-20", "OP-21", "EX-02"],
        |number, data, replies| {
            if !data.is_empty() && (number == opt::STRUCTURED_REPLY || number == opt::EXTENDED) {
                set_last(replies, rep::ACK);
            }
        }
    ),
    lie("a second STRUCTURED_REPLY is unknown", ALL, &["OP-22"], |rules| {
        rules.bytes = |call, bytes| {
            if call.mode == Mode::Structured {
                bytes[0] ^= 1;
            }
        }
    }),
    option!("INFO changes STRUCTURED_REPLY", ALL, ["OP-23"], |number, _, replies| instead(
        number,
        opt::INFO,
        replies,
        rep::INVALID
    )),
    bytes!("simple replies have another magic", ["TR-01", "OP-24", "HS-14"], |call, bytes| {
        if call.mode == Mode::Simple {
            bytes[3] ^= 1;
        }
    }),
    option!("TLS is acknowledged but not offered again", ALL, ["TL-02"], |number, _, replies| {
        if number == opt::LIST {
            set_last(replies, rep::TLS_REQD);
        }
    }),
    option!("without TLS STARTTLS is answered with ERR_TLS_REQD", ALL, ["TL-01"], |number, _, replies| {
        instead(number, opt::STARTTLS, replies, rep::TLS_REQD);
    }),
    option!("STARTTLS has replies before its ACK", TLS, ["TL-04"], |number, _, replies| {
        if number == opt::STARTTLS {
            replies.insert(0, (rep::SERVER, vec![0; 4]));
        }
    }),
    option!("STARTTLS with data is not answered", ALL, ["TL-03"], |number, data, replies| {
        if number == opt::STARTTLS && !data.is_empty() {
            replies.clear();
        }
    }),
    option!("plain text behind STARTTLS is answered", TLS, ["TL-05", "TL-06"], |number, _, replies| {
        if number == opt::STARTTLS {
            // The reply after the ACK belongs to an option sent in plain text.
            replies.push((rep::ACK, Vec::new()));
        }
    }),
    option!("before TLS options are unsupported", FORCED, ["TL-07"], |_, _, replies| {
        if replies[0].0 == rep::TLS_REQD && replies.len() == 1 {
            replies[0].1 = vec![b'x'];
            replies.insert(0, (rep::SERVER, vec![0; 4]));
        }
    }),
    lie("EXPORT_NAME without TLS is taken", FORCED, &["TL-08"], |rules| rules.any_name = true),
    lie("TLS without FIXED_NEWSTYLE", TLS, &["TL-09"], |rules| rules.tls_without_fixed = true),
    lie("TLS keeps what was negotiated", TLS, &["TL-13", "TL-14", "TL-15"], |rules| rules.tls_keeps = true),
    lie("TLS is never enough", TLS, &["TL-11", "TL-16"], |rules| rules.tls_never_enough = true),
    lie("TLS inside TLS", FORCED, &["TL-12"], |rules| rules.tls_again = true),
    lie("writes inside TLS are lost", FORCED, &["TL-17"], |rules| rules.lose = |_| true),
    lie("EXPORT_NAME inside TLS ends the session", TLS, &["TL-18"], |rules| rules.tls_go_only = true),
    lie("TLS 1.3 only", TLS, &["TL-19"], |rules| rules.tls_config = super::tls::newest_version),
    lie("TLS 1.1 is answered", TLS, &["TL-20"], |rules| rules.tls_old = true),
    option!("INFO without the export", ALL, ["IN-01"], |number, _, replies| {
        if number == opt::INFO {
            replies.retain(|(kind, _)| *kind == rep::ACK);
        }
    }),
    option!("NBD_INFO_EXPORT is longer", ALL, ["IN-02"], |_, _, replies| change_info(
        replies,
        info::EXPORT,
        |data| data.push(0)
    )),
    option!("LIST is another each time", ALL, ["OP-26"], |number, _, replies| {
        static TURNS: AtomicUsize = AtomicUsize::new(0);
        if number == opt::LIST && TURNS.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
            replies.remove(0);
        }
    }),
    lie("LIST ends the session", ALL, &["TL-10"], |rules| rules.hang_up = |number, _| number == opt::LIST),
    lie("GO is followed by padding", ALL, &["IN-04"], |rules| rules.padding = 124),
    option!("unknown requests for information fail", ALL, ["IN-06", "IN-07"], |number, data, replies| {
        if number == opt::INFO && data.len() > 12 && data[10] > 2 {
            set_last(replies, rep::INVALID);
        }
    }),
    option!("unknown exports are a matter of policy", ALL, ["IN-08", "IN-09", "IN-11"], |_, _, replies| {
        if replies[0].0 == rep::UNKNOWN {
            set_last(replies, rep::POLICY);
        }
    }),
    option!("unknown exports are described", ALL, ["IN-10"], |number, _, replies| {
        if number == opt::INFO && replies[0].0 == rep::UNKNOWN {
            replies.insert(0, (rep::INFO, vec![0; 12]));
        }
    }),
    option!(
        "malformed INFO and GO are taken",
        ALL,
        ["IN-12", "IN-13", "IN-15", "IN-16", "IN-17", "IN-18"],
        |_, _, replies| {
            if replies[0].0 == rep::INVALID {
                set_last(replies, rep::ACK);
            }
        }
    ),
    option!("NBD_INFO_BLOCK_SIZE is longer", ALL, ["IN-19"], |_, _, replies| change_info(
        replies,
        info::BLOCK_SIZE,
        |data| data.push(0)
    )),
    lie("strange block sizes", ALL, &["IN-20", "IN-21", "IN-22", "IN-24"], |rules| {
        rules.block = [3000, 1000, 500];
    }),
    lie("a small maximum", ALL, &["IN-23"], |rules| rules.block = [1, 4096, 8192]),
    option!("block sizes are required all the same", ALL, ["IN-25"], |number, _, replies| instead(
        number,
        opt::INFO,
        replies,
        rep::BLOCK_SIZE_REQD
    )),
    option!("block sizes are required", ALL, ["IN-26"], |number, data, replies| {
        if number == opt::GO && data.ends_with(&[0, 0]) {
            set_last(replies, rep::BLOCK_SIZE_REQD);
        }
    }),
    option!("a description that is not UTF-8", ALL, ["IN-27"], |_, _, replies| change_info(
        replies,
        info::DESCRIPTION,
        |data| data.push(0xff)
    )),
    option!("information comes twice", ALL, ["IN-29"], |number, _, replies| {
        if number == opt::INFO {
            replies.insert(0, replies[0].clone());
        }
    }),
    option!("an empty name is invalid", ALL, ["IN-30"], |number, data, replies| {
        if number == opt::INFO && data.starts_with(&[0; 4]) {
            set_last(replies, rep::INVALID);
        }
    }),
    option!("DF without structured replies", ALL, ["IN-32"], |_, _, replies| change_info(
        replies,
        info::EXPORT,
        |data| data[11] |= 0x80
    )),
    flags!("FAST_ZERO without WRITE_ZEROES", ALL, ["IN-33"], 0, flag::WRITE_ZEROES),
    flags!("a flag without meaning", ALL, ["IN-34"], 1 << 15, 0),
    flags!("BLOCK_STATUS_PAYLOAD always", ALL, ["IN-35", "EX-25"], flag::STATUS_PAYLOAD, 0),
    option!("a read-only export is not marked", ALL, ["IN-36"], |_, _, replies| change_info(
        replies,
        info::EXPORT,
        |data| data[11] &= !2
    )),
    option!("SET without structured replies", ALL, ["MC-01"], |number, _, replies| {
        if number == opt::SET_META && replies[0].0 == rep::INVALID {
            set_last(replies, rep::ACK);
        }
    }),
    option!("LIST of contexts is empty", ALL, ["MC-02", "MC-03", "MC-04"], |number, _, replies| instead(
        number,
        opt::LIST_META,
        replies,
        rep::ACK
    )),
    option!("unknown namespaces fail", ALL, ["MC-05", "MC-15"], |_, data, replies| {
        if data.windows(4).any(|window| window == b"x-co") {
            set_last(replies, rep::INVALID);
        }
    }),
    option!("unknown leaves fail", ALL, ["MC-06"], |_, data, replies| {
        if data.ends_with(b"unknown") {
            set_last(replies, rep::INVALID);
        }
    }),
    option!("LIST has ids", ALL, ["MC-07"], |number, _, replies| {
        if number == opt::LIST_META {
            change_contexts(replies, |data| data[3] = 9);
        }
    }),
    option!(
        "malformed queries are taken",
        ALL,
        ["MC-08", "MC-09", "MC-10", "MC-11", "MC-27"],
        |number, _, replies| {
            if (number == opt::LIST_META || number == opt::SET_META) && replies[0].0 == rep::INVALID {
                set_last(replies, rep::ACK);
            }
        }
    ),
    option!("SET selects without being asked", ALL, ["MC-12", "MC-13"], |number, _, replies| {
        if number == opt::SET_META && replies.len() == 1 {
            replies.insert(0, (rep::META, b"\0\0\0\x01base:allocation".to_vec()));
        }
    }),
    option!("another context is selected", ALL, ["MC-14"], |number, _, replies| {
        if number == opt::SET_META {
            change_contexts(replies, |data| data[4] = b'B');
        }
    }),
    option!("contexts are selected twice", ALL, ["MC-16", "MC-17"], |number, data, replies| {
        if number == opt::SET_META && replies.len() > 1 && data.len() > 40 {
            replies.insert(0, replies[0].clone());
        }
    }),
    lie("contexts outlive a SET that fails", ALL, &["MC-18"], |rules| rules.keep_contexts = true),
    lie("LIST selects", ALL, &["MC-26"], |rules| rules.list_selects = true),
    chunks!(
        "BLOCK_STATUS without contexts succeeds",
        ["MC-19", "MC-20", "MC-23", "BS-16", "ER-10", "ER-20"],
        |call, chunks| {
            if is(call, cmd::BLOCK_STATUS) {
                succeed(call, chunks);
            }
        }
    ),
    option!("a context without a colon", ALL, ["MC-21"], |_, _, replies| change_contexts(replies, |data| {
        data[8] = b'x';
    })),
    option!("a query without a colon finds something", ALL, ["MC-22"], |number, data, replies| {
        if number == opt::LIST_META && data.ends_with(b"base") {
            replies.insert(0, (rep::META, b"\0\0\0\0base:allocation".to_vec()));
        }
    }),
    option!("contexts of an unknown export are unsupported", ALL, ["MC-24"], |number, _, replies| {
        if number == opt::LIST_META && replies[0].0 == rep::UNKNOWN {
            set_last(replies, rep::UNSUP);
        }
    }),
    chunks!("BLOCK_STATUS fails", ["MC-25", "BS-01", "EX-31"], |call, chunks| {
        if is(call, cmd::BLOCK_STATUS) {
            fail(call, chunks, err::EIO);
        }
    }),
];

/// The lies about the transmission.
pub(super) const TRANSMISSION: &[Lie] = &[
    bytes!("data changes between reads", ["TR-02"], |call, bytes| {
        if is(call, cmd::READ) && call.request.cookie.is_multiple_of(2) && call.mode == Mode::Simple {
            *bytes.last_mut().unwrap() ^= 1;
        }
    }),
    lie(
        "writes are lost",
        ALL,
        &["TR-03", "TR-07", "TR-09", "TR-11", "TR-13", "TR-15", "TR-21", "TR-24", "TR-29", "EX-10"],
        |rules| {
            rules.lose = |request| request.cmd == cmd::WRITE;
        },
    ),
    lie("zeroes are not written", ALL, &["TR-17", "TR-18", "SR-09"], |rules| {
        rules.lose = |request| request.cmd == cmd::WRITE_ZEROES;
    }),
    bytes!(
        "cookies come back swapped",
        ["TR-04", "TR-05", "TR-06", "ER-42", "EX-33", "SR-16"],
        |_, bytes| bytes[8..16].reverse()
    ),
    lie("every READ hangs up", ALL, &["TR-08", "TR-36", "TR-37", "SR-01"], |rules| {
        rules.drop_request = |call| call.request.cmd == cmd::READ;
    }),
    chunks!("the last bytes are out of reach", ["TR-10", "TR-11"], |call, chunks| {
        if call.request.offset.checked_add(call.request.length) == Some(super::DISK_BYTES as u64) {
            fail(call, chunks, err::EIO);
        }
    }),
    chunks!("unaligned requests fail", ["TR-12", "TR-13", "BS-14"], |call, chunks| {
        if !call.request.length.is_multiple_of(512) {
            fail(call, chunks, err::EINVAL);
        }
    }),
    chunks!("FUA fails", ["TR-14", "TR-15", "TR-27"], |call, chunks| {
        if call.request.flags & cflag::FUA != 0 {
            fail(call, chunks, err::EINVAL);
        }
    }),
    chunks!("FLUSH fails", ["TR-16", "TR-25", "TR-26", "ER-40"], |call, chunks| {
        if is(call, cmd::FLUSH) {
            fail(call, chunks, err::EIO);
        }
    }),
    chunks!("FAST_ZERO fails with EIO", ["TR-19"], |call, chunks| {
        if call.request.flags & cflag::FAST_ZERO != 0 {
            fail(call, chunks, err::EIO);
        }
    }),
    chunks!("FAST_ZERO zeroes and fails", ["TR-20"], |call, chunks| {
        if call.request.flags & cflag::FAST_ZERO != 0 {
            fail(call, chunks, err::ENOTSUP);
        }
    }),
    lie("TRIM takes neighbours along", ALL, &["TR-21"], |rules| {
        rules.request = |request| {
            if request.cmd == cmd::TRIM {
                request.cmd = cmd::WRITE_ZEROES;
                request.offset -= 4096;
                request.length += 8192;
            }
        }
    }),
    lie("CACHE writes", ALL, &["TR-22"], |rules| {
        rules.request = |request| {
            if request.cmd == cmd::CACHE {
                request.cmd = cmd::WRITE;
                request.payload = vec![1; zc_core::usize_from_u64(request.length)];
            }
        }
    }),
    lie("DISC is ignored", ALL, &["TR-23"], |rules| rules.ignore_disc = true),
    lie("requests in flight are dropped", ALL, &["TR-39"], |rules| {
        rules.drop_request = |call| call.request.cmd == cmd::WRITE && call.request.cookie & 0xf == 5;
    }),
    lie("each connection has a disk of its own", ALL, &["TR-24", "TR-25", "TR-26", "TR-27"], |rules| {
        rules.private = true;
    }),
    lie("long requests hang up", ALL, &["TR-28", "TR-29", "TR-30", "TR-31", "SR-18"], |rules| {
        rules.drop_request = |call| call.request.length >= 32 << 20;
    }),
    lie("empty requests hang up", ALL, &["TR-32", "TR-33", "TR-34", "TR-35", "SR-17", "BS-15"], |rules| {
        rules.drop_request = |call| call.request.length == 0;
    }),
    chunks!(
        "nothing fails",
        [
            "ER-01", "ER-02", "ER-03", "ER-04", "ER-05", "ER-06", "ER-07", "ER-08", "ER-09", "ER-10",
            "ER-11", "ER-12", "ER-13", "ER-14", "ER-15", "ER-16", "ER-17", "ER-18", "ER-19", "ER-20",
            "ER-21", "ER-22", "ER-23", "ER-24", "ER-25", "ER-26", "ER-29", "ER-35", "ER-36", "ER-37",
            "ER-38", "ER-41", "ER-42", "SR-02", "EX-08", "EX-11", "EX-12", "EX-13", "EX-14", "EX-15",
            "EX-16", "EX-18", "EX-19", "EX-20", "EX-21", "EX-27", "EX-28"
        ],
        succeed
    ),
    lie("what was not offered succeeds", FEW, &["ER-27", "ER-28", "EX-29"], |rules| rules.chunks = succeed),
    lie("unaligned requests succeed", BLOCKS, &["ER-34"], |rules| rules.chunks = succeed),
    bytes!("an error has a payload", ["ER-29"], |call, bytes| {
        if call.mode == Mode::Simple && bytes.len() == 16 && bytes[4..8] != [0; 4] {
            bytes.extend(vec![0; zc_core::usize_from_u64(call.request.length.min(4096))]);
        }
    }),
    bytes!("errors are the host's", ["ER-30"], |call, bytes| change_error(call, bytes, 11)),
    bytes!("EOVERFLOW for everything", ["ER-31"], |call, bytes| change_error(call, bytes, err::EOVERFLOW)),
    bytes!("ENOTSUP for everything", ["ER-32"], |call, bytes| change_error(call, bytes, err::ENOTSUP)),
    bytes!("ENOMEM for everything", ["ER-33"], |call, bytes| change_error(call, bytes, err::ENOMEM)),
    bytes!("EINVAL for everything", ["ER-36", "ER-37", "ER-38"], |call, bytes| change_error(
        call,
        bytes,
        err::EINVAL
    )),
    lie("a read-only export is written", ALL, &["ER-39"], |rules| rules.write_frozen = true),
    lie(
        "payloads of refused requests stay",
        ALL,
        &["ER-04", "ER-05", "ER-06", "ER-15", "ER-35", "ER-41", "EX-11", "EX-15"],
        |rules| {
            rules.leave_payload = true;
        },
    ),
    chunks!("READ has a simple reply", ["SR-01", "SR-02", "SR-17"], |call, chunks| {
        if call.mode == Mode::Structured && is(call, cmd::READ) {
            chunks.truncate(1);
            chunks[0].kind = None;
        }
    }),
    chunks!("errors have simple replies", ["SR-13", "BS-16"], |call, chunks| {
        if call.mode != Mode::Simple && chunks[0].kind.is_some_and(|kind| kind & chunk::ERROR_BIT != 0) {
            chunks[0].kind = None;
        }
    }),
    chunks!("chunks are of an unknown type", ["SR-03", "EX-07"], |_, chunks| {
        if let Some(chunk) = first(chunks, CONTENT) {
            chunk.kind = Some(99);
        }
    }),
    chunks!("a chunk is missing", ["SR-04", "SR-11", "SR-16"], |_, chunks| {
        let at = chunks.iter().position(|chunk| chunk.kind.is_some_and(|kind| CONTENT.contains(&kind)));
        at.map(|at| chunks.remove(at));
    }),
    chunks!("a chunk comes twice", ["SR-04"], |_, chunks| {
        if let Some(chunk) = first(chunks, CONTENT).map(|chunk| chunk.clone()) {
            chunks.insert(0, chunk);
        }
    }),
    chunks!("DONE is on every chunk", ["SR-05"], |_, chunks| {
        chunks.iter_mut().for_each(|chunk| chunk.flags = chunk::DONE);
    }),
    chunks!("DF is forgotten", ["SR-06", "SR-07", "SR-08", "EX-24"], |call, chunks| {
        if call.request.flags & cflag::DF != 0 && chunks.len() > 1 {
            split(chunks, 512);
        }
    }),
    chunks!("long reads with DF fail with EIO", ["SR-08"], |call, chunks| {
        if call.request.flags & cflag::DF != 0 && call.request.length > 1 << 16 {
            fail(call, chunks, err::EIO);
        }
    }),
    chunks!("content is a hole", ["SR-07", "SR-09", "SR-20"], |_, chunks| {
        for chunk in chunks.iter_mut().filter(|chunk| chunk.kind == Some(chunk::DATA)) {
            let size = u32::try_from(chunk.payload.len() - 8).unwrap();
            chunk.payload.truncate(8);
            chunk.payload.extend(size.to_be_bytes());
            chunk.kind = Some(chunk::HOLE);
        }
    }),
    chunks!("chunks of odd sizes", ["SR-10"], |call, chunks| {
        if is(call, cmd::READ) && call.mode == Mode::Structured {
            split(chunks, 100);
        }
    }),
    chunks!("chunks are longer than the maximum", ["SR-11"], |_, chunks| {
        for chunk in chunks.iter_mut().filter(|chunk| chunk.kind == Some(chunk::HOLE)) {
            let size: [u8; 4] = chunk.payload[8..12].try_into().unwrap();
            chunk.payload.truncate(8);
            chunk.payload.resize(8 + zc_core::usize_from_u32(u32::from_be_bytes(size)), 0);
            chunk.kind = Some(chunk::DATA);
        }
    }),
    chunks!("WRITE is answered with content", ["SR-12", "EX-09"], |call, chunks| {
        if call.mode != Mode::Simple && is(call, cmd::WRITE) {
            chunks[0].kind = Some(chunk::DATA);
            chunks[0].payload = vec![0; 9];
        }
    }),
    chunks!("errors come twice", ["SR-14"], |_, chunks| {
        if chunks[0].kind.is_some_and(|kind| kind & chunk::ERROR_BIT != 0) {
            chunks.insert(0, Chunk { flags: 0, ..chunks[0].clone() });
        }
    }),
    chunks!("content from beyond the end", ["SR-15"], |call, chunks| {
        if is(call, cmd::READ) && chunks[0].kind.is_some_and(|kind| kind & chunk::ERROR_BIT != 0) {
            let payload = [&(super::DISK_BYTES as u64).to_be_bytes()[..], &[0; 512]].concat();
            chunks.insert(
                0,
                Chunk { kind: Some(chunk::DATA), flags: 0, error: 0, payload, ..chunks[0].clone() },
            );
        }
    }),
    lie("DF is taken but not offered", ALL, &["SR-19", "EX-24"], |rules| {
        rules.flags &= !flag::DF;
        rules.ignored_flags = cflag::DF;
    }),
    chunks!("one context is left out", ["BS-02"], |call, chunks| {
        if is(call, cmd::BLOCK_STATUS) && chunks.len() > 2 {
            chunks.remove(0);
        }
    }),
    chunks!("an extent is empty", ["BS-03", "BS-01"], |_, chunks| {
        change_extents(chunks, |list, step| list.splice(0..0, extent(step, 0, 0)).for_each(drop));
        // A second chunk for a context that has one already.
        if first(chunks, STATUS).is_some() {
            chunks.insert(0, chunks[0].clone());
        }
    }),
    chunks!("an extent of no bytes", ["BS-03"], |_, chunks| {
        change_extents(chunks, |list, step| list.splice(0..0, extent(step, 0, 0)).for_each(drop));
    }),
    chunks!("more extents than asked for", ["BS-04", "BS-05", "EX-32"], |_, chunks| {
        change_extents(chunks, |list, step| {
            list.extend(extent(step, 4096, 0));
            list.extend(extent(step, 4096, 3));
        });
    }),
    chunks!("extents leave the export", ["BS-06"], |_, chunks| {
        change_extents(chunks, |list, step| *list = extent(step, 1 << 30, 0));
    }),
    chunks!("unknown flags of extents", ["BS-07"], |_, chunks| {
        change_extents(chunks, |list, step| *list = extent(step, 4096, 16));
    }),
    chunks!("extents of odd sizes", ["BS-08"], |_, chunks| {
        change_extents(chunks, |list, step| *list = [extent(step, 100, 0), extent(step, 3996, 3)].concat());
    }),
    chunks!("neighbours are the same", ["BS-09"], |_, chunks| {
        change_extents(chunks, |list, step| *list = [extent(step, 4096, 0), extent(step, 4096, 0)].concat());
    }),
    chunks!("everything is zero", ["BS-10", "BS-11", "BS-17"], |_, chunks| {
        change_extents(chunks, |list, step| *list = extent(step, 4 << 20, 3));
    }),
    chunks!("more than 2^20 extents", ["BS-12"], |call, chunks| {
        if call.request.length > 1 << 20 {
            change_extents(chunks, |list, step| *list = extent(step, 1, 0).repeat((1 << 20) + 1));
        }
    }),
    chunks!("BLOCK_STATUS works at the begin only", ["BS-13", "BS-14"], |call, chunks| {
        if is(call, cmd::BLOCK_STATUS) && call.request.offset > 0 {
            fail(call, chunks, err::EIO);
        }
    }),
    chunks!("BLOCK_STATUS has a simple reply", ["BS-18", "BS-01"], |call, chunks| {
        if is(call, cmd::BLOCK_STATUS) && call.mode == Mode::Structured {
            chunks.truncate(1);
            chunks[0].kind = None;
        }
    }),
    lie("EXTENDED_HEADERS is an unknown export", ALL, &["EX-01"], |rules| {
        rules.option = |number, _, replies| instead(number, opt::EXTENDED, replies, rep::UNKNOWN);
    }),
    bytes!("extended replies have another magic", ["EX-03", "EX-04", "EX-07"], |call, bytes| {
        if call.mode == Mode::Extended {
            bytes[0] ^= 1;
        }
    }),
    lie("STRUCTURED_REPLY after EXTENDED_HEADERS", ALL, &["EX-05"], |rules| {
        rules.option = |_, _, replies| {
            if replies[0].0 == rep::EXT_HEADER_REQD {
                set_last(replies, rep::ACK);
            }
        }
    }),
    lie("GO is unsupported", ALL, &["EX-06"], |rules| {
        rules.option = |number, _, replies| instead(number, opt::GO, replies, rep::UNSUP);
    }),
    bytes!("another offset is echoed", ["EX-07", "EX-08", "EX-09"], |call, bytes| {
        if call.mode == Mode::Extended {
            bytes[22] ^= 1;
        }
    }),
    lie("a WRITE of 1 TiB does not end the session", ALL, &["EX-17"], |rules| rules.patient = true),
    chunks!("extended headers and 32-bit extents", ["EX-22"], |_, chunks| {
        if let Some(chunk) = first(chunks, &[chunk::STATUS_EXT]) {
            chunk.kind = Some(chunk::STATUS);
        }
    }),
    chunks!("the upper half of flags is set", ["EX-23"], |_, chunks| {
        change_extents(chunks, |list, step| {
            if step == 16 {
                *list = extent(step, 4096, 1 << 32);
            }
        });
    }),
    chunks!("a payload with ids is refused", ["EX-26"], |call, chunks| {
        if is(call, cmd::BLOCK_STATUS) && call.request.flags & cflag::PAYLOAD_LEN != 0 {
            fail(call, chunks, err::EINVAL);
        }
    }),
];

/// Cuts the first data or hole into two.
fn split(chunks: &mut Vec<Chunk>, at: usize) {
    let found = chunks.iter().position(|chunk| chunk.kind.is_some_and(|kind| CONTENT.contains(&kind)));
    let Some(place) = found else { return };
    let whole = chunks.remove(place);
    let begin = u64::from_be_bytes(whole.payload[..8].try_into().unwrap());
    let next = (begin + at as u64).to_be_bytes();
    let (one, two) = if whole.kind == Some(chunk::DATA) {
        let (one, two) = whole.payload[8..].split_at(at);
        (one.to_vec(), two.to_vec())
    } else {
        let size = u32::from_be_bytes(whole.payload[8..].try_into().unwrap());
        let at = u32::try_from(at).unwrap();
        (at.to_be_bytes().to_vec(), (size - at).to_be_bytes().to_vec())
    };
    let piece =
        |head: [u8; 8], body: Vec<u8>| Chunk { payload: [&head[..], &body].concat(), ..whole.clone() };
    let pieces = [piece(begin.to_be_bytes(), one), piece(next, two)];
    chunks.splice(place..place, pieces).for_each(drop);
}
