//! Log lines on standard error, with a filter that can be changed while the daemon runs. Errors of the system have their
//! names there: `ENOSPC`, not a number.

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt, reload};
use zc_daemon::SetLogLevel;

/// Starts logging; gives the function that changes the filter.
pub(crate) fn start(level: &str) -> Result<SetLogLevel, String> {
    let (filter, handle) = reload::Layer::new(parse(level)?);
    let lines = fmt::layer()
        .with_writer(|| Named(io::stderr()))
        .with_ansi(io::stderr().is_terminal())
        .with_target(false);
    tracing_subscriber::registry().with(filter).with(lines).try_init().map_err(|error| error.to_string())?;
    Ok(Box::new(move |level| handle.reload(parse(level)?).map_err(|error| error.to_string())))
}

fn parse(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(level).map_err(|error| format!("\"{level}\" is not a log filter: {error}"))
}

/// Writes whole lines, with names in place of the numbers of errors.
struct Named<W>(W);

impl<W: Write> Write for Named<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(line) {
            Ok(text) => self.0.write_all(zc_io::name_errnos(text).as_bytes())?,
            Err(_) => self.0.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_errors_of_the_system() {
        let mut lines = Named(Vec::new());
        let error = io::Error::from_raw_os_error(28);
        lines.write_all(format!("cannot write: {error}\n").as_bytes()).unwrap();
        let written = String::from_utf8(lines.0).unwrap();
        assert_eq!(written, "cannot write: No space left on device (ENOSPC)\n");
    }

    #[test]
    fn levels_and_filters_are_taken_and_nonsense_is_not() {
        assert!(parse("info").is_ok() && parse("warn,zc_engine=debug").is_ok());
        assert!(parse("zc_engine=loud").unwrap_err().contains("loud"));
    }
}
