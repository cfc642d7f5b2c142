//! Log lines on standard error, with a filter that can be changed while the daemon runs.

use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt, reload};
use zc_engine::SetLogLevel;

/// Starts logging; gives the function that changes the filter.
pub(crate) fn start(level: &str) -> Result<SetLogLevel, String> {
    let (filter, handle) = reload::Layer::new(parse(level)?);
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    tracing_subscriber::registry().with(filter).with(lines).try_init().map_err(|error| error.to_string())?;
    Ok(Box::new(move |level| handle.reload(parse(level)?).map_err(|error| error.to_string())))
}

fn parse(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(level).map_err(|error| format!("\"{level}\" is no log filter: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_filters_are_taken_and_nonsense_is_not() {
        assert!(parse("info").is_ok() && parse("warn,zc_engine=debug").is_ok());
        assert!(parse("zc_engine=loud").unwrap_err().contains("loud"));
    }
}
