//! `zcsim run --flaz`: a trace through the model of FlaZ.

use anyhow::{Context as _, bail};
use serde_json::json;
use zc_replay::flaz::{self, Packing, Settings};

use super::args::{Args, open};
use crate::notes::{line, notes_of};
use crate::say::say;
use crate::spent;

/// Bounds of a frame in bytes: a block and its header fit, and a device has some.
const FRAME_BYTES: std::ops::RangeInclusive<u64> = 8 << 10..=4 << 20;

pub(super) fn print(args: &Args) -> anyhow::Result<()> {
    let shown = || args.trace.display().to_string();
    let Some(share) = args.cache_share else { bail!("--cache-share is missing") };
    if !(1.0..=16.0).contains(&args.overbooking) {
        bail!("--overbooking must be from 1 to 16, not {}", args.overbooking);
    }
    let frame = args.frame_size.0;
    let Some(frame_bytes) = u32::try_from(frame).ok().filter(|bytes| bytes.is_power_of_two()) else {
        bail!("--frame-size must be a power of two, {frame} is none");
    };
    if !FRAME_BYTES.contains(&frame) {
        bail!("--frame-size must be 8 KiB to 4 MiB, not {frame}");
    }
    let mut reader = open(args).with_context(shown)?;
    let (trace, _) = spent::load(&mut reader, args.ratios.ratios()).with_context(shown)?;
    let device_bytes = share.of(trace.footprint_bytes()).max(frame);
    let packing = Packing { frame_bytes, ..Packing::default() };
    let settings = Settings { packing, ..Settings::new(device_bytes, args.codec.codec(), args.overbooking) };
    let outcome = flaz::run(&trace, settings);
    let frames = outcome.frames;
    if args.json {
        let found = json!({
            "trace": shown(),
            "device_bytes": device_bytes,
            "requests": outcome.requests,
            "read_blocks": outcome.reads,
            "read_hits": outcome.read_hits,
            "read_hit_ratio": outcome.read_hit_ratio(),
            "written_blocks": outcome.writes,
            "ssd_read_bytes": outcome.ssd_read_bytes,
            "ssd_written_bytes": outcome.ssd_written_bytes,
            "no_room": outcome.no_room,
            "cleanings": frames.cleanings,
            "cleaner_read_bytes": frames.cleaner_read * frame,
            "cleaner_written_bytes": frames.cleaner_written * frame,
            "bad_lines": reader.bad_count(),
        });
        say!("{found:#}");
        return Ok(());
    }
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let cleaner = format!(
        "{} times: {} read, {} written",
        frames.cleanings,
        megabytes(frames.cleaner_read * frame),
        megabytes(frames.cleaner_written * frame)
    );
    let lines = [
        ("cache", format!("{}, direct-mapped", megabytes(device_bytes))),
        ("requests", outcome.requests.to_string()),
        ("reads", format!("{} blocks, {} hits", outcome.reads, outcome.read_hits)),
        ("read hit ratio", format!("{:.2} %", outcome.read_hit_ratio() * 100.0)),
        ("read from SSD", megabytes(outcome.ssd_read_bytes)),
        ("written to SSD", megabytes(outcome.ssd_written_bytes)),
        ("cleaner", cleaner),
        ("no space", format!("{} blocks", outcome.no_room)),
    ];
    lines.iter().for_each(|(name, value)| line(name, value));
    let sized_by_others = trace.sized_by_others(args.codec.codec());
    notes_of(&trace, sized_by_others, &reader).iter().for_each(|note| line("note", note));
    Ok(())
}
