//! Output of a synthetic trace, and the initial bytes of its volume.

use std::fs::File;
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use zc_trace::{Content, Request, contents, workload};

/// A block of a trace.
const BLOCK_BYTES: usize = 4096;

/// Options of all synthetic traces.
#[derive(Debug, clap::Args)]
pub(super) struct Made {
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) image: Image,
}

/// Destination of the trace.
#[derive(Debug, clap::Args)]
pub(super) struct Output {
    /// File for the trace; default: standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Destination of the bytes.
#[derive(Debug, clap::Args)]
pub(super) struct Image {
    /// Image file of the volume before the first request
    ///
    /// It is an origin on which the trace can be replayed
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
}

impl Output {
    /// Writes the trace; standard output may be closed before its end.
    pub(super) fn write(
        &self,
        requests: impl Iterator<Item = anyhow::Result<Request>>,
    ) -> anyhow::Result<()> {
        let Some(path) = &self.out else { return lines(requests, io::stdout().lock()) };
        let shown = || path.display().to_string();
        lines(requests, File::create(path).with_context(shown)?).with_context(shown)
    }
}

/// Writes requests up to the first that failed.
fn lines(requests: impl Iterator<Item = anyhow::Result<Request>>, out: impl Write) -> anyhow::Result<()> {
    let (mut out, mut failed) = (BufWriter::new(out), Ok(()));
    let good = requests.map_while(|request| request.map_err(|error| failed = Err(error)).ok());
    match workload::lines(good, &mut out).and_then(|()| out.flush()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(anyhow::Error::from).and(failed),
    }
}

impl Image {
    /// Writes this number of blocks with these contents, if requested.
    pub(super) fn write(&self, blocks: u64, image: impl Iterator<Item = Content>) -> anyhow::Result<()> {
        let mut block = vec![0; BLOCK_BYTES];
        self.write_with(blocks, |file| {
            for content in image {
                contents::fill(&content, &mut block);
                file.write_all(&block)?;
            }
            Ok(())
        })
    }

    /// Writes an image of this number of blocks, if requested.
    pub(super) fn write_with(
        &self,
        blocks: u64,
        write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Some(path) = &self.image else { return Ok(()) };
        let shown = || path.display().to_string();
        let bytes = blocks * zc_core::u64_from_usize(BLOCK_BYTES);
        let bar = ProgressBar::new(bytes);
        bar.set_style(ProgressStyle::with_template(
            "{bar:40} {bytes} of {total_bytes} of the image [{elapsed} < {eta}]",
        )?);
        let file = sized(path, bytes).with_context(shown)?;
        let mut out = BufWriter::with_capacity(1 << 20, bar.wrap_write(file));
        write(&mut out).with_context(shown)?;
        out.flush().with_context(shown)?;
        bar.finish_and_clear();
        Ok(())
    }
}

/// A new file that the bytes fit, which is found out before they are made.
fn sized(path: &Path, bytes: u64) -> io::Result<File> {
    let mut file = File::create(path)?;
    file.set_len(bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}
