//! A client's bytes into a server session: no panic, bounded buffers, the same end however the stream is cut.
//!
//! The first input byte chooses where to cut; the rest is the stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use zc_nbd::Need;
use zc_nbd::proto::BASE_ALLOCATION;
use zc_nbd::server::{
    BlockSizes, Command, ExportFlags, ExportInfo, Request, ServerConfig, ServerEvent, ServerLimits,
    ServerSession,
};

fuzz_target!(|data: &[u8]| {
    let Some((cut, stream)) = data.split_first() else { return };
    let whole = run(stream, usize::MAX);
    assert_eq!(run(stream, usize::from(*cut).max(1)), whole);
});

fn exports() -> Vec<ExportInfo> {
    let flags = ExportFlags {
        flush: true,
        fua: true,
        trim: true,
        write_zeroes: true,
        fast_zero: true,
        cache: true,
        ..ExportFlags::default()
    };
    vec![ExportInfo {
        name: "a".to_owned(),
        description: "b".to_owned(),
        size_bytes: 1 << 16,
        flags,
        blocks: BlockSizes::DEFAULT,
        contexts: vec![BASE_ALLOCATION.to_owned()],
        token: 1,
    }]
}

/// Everything the server sent and how it ended.
fn run(stream: &[u8], piece: usize) -> (Vec<u8>, Need, u32) {
    let limits = ServerLimits { option_data_bytes: 4096, options: 64, ..ServerLimits::default() };
    let bound = 4096 + 16;
    let exports = exports();
    let mut out = Vec::new();
    let mut session =
        ServerSession::new(ServerConfig { limits, extended: true, ..ServerConfig::default() }, &mut out);
    let mut write = None;
    for mut input in stream.chunks(piece) {
        loop {
            if write.is_some() {
                session.take_payload(&mut input);
                if matches!(session.need(), Need::Payload { .. }) {
                    break;
                }
            }
            if let Some(request) = write.take() {
                session.reply_done(request, &mut out);
            }
            match session.next_event(&mut input, exports.as_slice(), &mut out) {
                None => break,
                Some(ServerEvent::Request(request)) => answer(&mut session, request, &mut out),
                Some(ServerEvent::WriteBegin(request)) => write = Some(request),
                Some(_) => {}
            }
        }
        assert!(session.buffered_bytes() <= bound);
        if session.need() == Need::Replies {
            break;
        }
    }
    // Where a full output stops a run depends on the cuts; compare what came before.
    out.truncate(1 << 20);
    if out.len() == 1 << 20 {
        (Vec::new(), Need::Replies, 0)
    } else {
        (out, session.need(), session.in_flight())
    }
}

fn answer(session: &mut ServerSession, request: Request, out: &mut Vec<u8>) {
    match request.command() {
        Command::Read => {
            let length = usize::try_from(request.length()).unwrap_or(0);
            session.reply_read(request, out);
            out.resize(out.len() + length, 0);
        }
        Command::BlockStatus => session.reply_block_status(request, |_| Vec::new(), out),
        _ => session.reply_done(request, out),
    }
}
