//! Notes that stand below the figures of a replayed trace.

use zc_config::Config;
use zc_replay::Trace;

use crate::say::say;

pub(crate) const BY_OTHERS: &str =
    "contents have a compressed size by another codec only, which stands for that of this one";

/// Contents whose compressed sizes are not by a codec that the configuration uses.
pub(crate) fn sized_by_others(trace: &Trace, config: &Config) -> u64 {
    let codecs = config
        .volumes
        .iter()
        .map(|volume| zc_config::manager::codec(volume.compression, volume.compression_level));
    codecs.map(|codec| trace.sized_by_others(codec)).max().unwrap_or(0)
}

/// Returns caveats of a trace as it was read, sized by codecs of a configuration.
pub(crate) fn trace_notes(trace: &Trace, config: &Config, reader: &zc_trace::Reader) -> Vec<String> {
    notes_of(trace, sized_by_others(trace, config), reader)
}

/// Returns caveats of a trace in which this number of contents has sizes by another codec.
pub(crate) fn notes_of(trace: &Trace, sized_by_others: u64, reader: &zc_trace::Reader) -> Vec<String> {
    let fitted = trace.fitted;
    let sample = (trace.rate() < 1.0).then(|| {
        let percent = trace.rate() * 100.0;
        format!("the trace is a sample of {percent:.2} % of the addresses; a configured size is scaled down")
    });
    let counts = [
        (reader.recorded().map_or(0, |recorded| recorded.lost), "requests were not recorded"),
        (fitted.joined, "lines were joined to the request before"),
        (fitted.rounded, "requests were rounded to blocks of 4 KiB"),
        (fitted.differing, "blocks read held something else than was known; what was written counts"),
        (reader.bad_count(), "bad lines were passed over"),
        (
            reader.stacked_count(),
            "requests were left out that a device of the trace passed down to another one",
        ),
        (sized_by_others, BY_OTHERS),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    sample.into_iter().chain(counts.map(|(count, what)| format!("{count} {what}"))).collect()
}

pub(crate) fn line(name: &str, value: &str) {
    say!("{name:<18}{value}");
}
