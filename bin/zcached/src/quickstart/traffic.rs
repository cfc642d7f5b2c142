//! Client traffic, timed and compared.
//!
//! Invariants: every byte that is read is compared with the stored data; a difference is an error that names its
//! position. Several requests are in flight; latency is measured from sending a request to receiving its reply.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use zc_core::{Map, u64_from_usize, usize_from_u64};
use zc_engine::{NbdClient, NbdDone, NbdRequest};

use super::volumes::{BLOCK_BYTES, Volume};

const REQUEST_BYTES: u64 = 128 << 10;
const IN_FLIGHT: usize = 8;

/// Bars for people; nothing when the standard error is no terminal.
#[derive(Debug)]
pub(crate) struct Bars(MultiProgress);

impl Bars {
    pub(crate) fn new() -> Self {
        Self(MultiProgress::new())
    }

    fn styled(&self, bar: ProgressBar, template: &str, name: &'static str) -> ProgressBar {
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        self.0.add(bar.with_style(style.progress_chars("=> ")).with_message(name))
    }

    /// A bar without an end.
    pub(crate) fn counting(&self, name: &'static str) -> ProgressBar {
        self.styled(ProgressBar::no_length(), "  {msg:12} {binary_bytes}", name)
    }

    fn bytes(&self, name: &'static str, len: u64) -> ProgressBar {
        let template = "  {msg:12} [{bar:40}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}";
        self.styled(ProgressBar::new(len), template, name)
    }
}

#[expect(clippy::disallowed_methods, reason = "the one clock of the measuring client")]
fn now() -> Instant {
    Instant::now()
}

/// Measurements of a pass.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
    /// Latencies of requests, sorted.
    pub(crate) latencies: Vec<Duration>,
}

/// One pass over the volumes.
#[derive(Debug)]
pub(crate) struct Traffic {
    bar: ProgressBar,
    started: Instant,
    bytes: u64,
    latencies: Vec<Duration>,
    /// Requests in flight: offset, length, when sent.
    sent: Map<u64, (u64, usize, Instant)>,
}

impl Traffic {
    pub(crate) fn new(bars: &Bars, name: &'static str, len_bytes: u64) -> Self {
        let bar = bars.bytes(name, len_bytes);
        Self { bar, started: now(), bytes: 0, latencies: Vec::new(), sent: Map::default() }
    }

    pub(crate) fn store(&mut self, client: &mut NbdClient, volume: &Volume) -> anyhow::Result<()> {
        let mut data = vec![0; usize_from_u64(REQUEST_BYTES)];
        self.each(client, volume, &mut |client, volume, offset, len| {
            let data = &mut data[..len];
            volume.contents(offset, data).context("cannot read the source")?;
            Ok(client.submit(NbdRequest::Write { offset, data, fua: false })?)
        })?;
        client.flush()?;
        Ok(())
    }

    /// Writes the blocks in which a clone differs.
    pub(crate) fn change(&mut self, client: &mut NbdClient, volume: &Volume) -> anyhow::Result<()> {
        let mut data = vec![0; usize_from_u64(BLOCK_BYTES)];
        for offset in volume.replaced() {
            if self.sent.len() == IN_FLIGHT {
                let done = client.wait()?;
                self.finished(done, volume, &mut [])?;
            }
            volume.contents(offset, &mut data).context("cannot read the source")?;
            let sent = now();
            let cookie = client.submit(NbdRequest::Write { offset, data: &data, fua: false })?;
            self.sent.insert(cookie, (offset, data.len(), sent));
        }
        while !self.sent.is_empty() {
            let done = client.wait()?;
            self.finished(done, volume, &mut [])?;
        }
        client.flush()?;
        Ok(())
    }

    pub(crate) fn read(&mut self, client: &mut NbdClient, volume: &Volume) -> anyhow::Result<()> {
        self.each(client, volume, &mut |client, _, offset, len| {
            let len_bytes = u32::try_from(len).context("a request has less than 4 GiB")?;
            Ok(client.submit(NbdRequest::Read { offset, len_bytes })?)
        })
    }

    /// Reads blocks at these offsets, each after the one before it.
    pub(crate) fn read_blocks(
        &mut self,
        client: &mut NbdClient,
        volume: &Volume,
        offsets: impl Iterator<Item = u64>,
    ) -> anyhow::Result<()> {
        let mut expected = vec![0; usize_from_u64(BLOCK_BYTES)];
        let len_bytes = u32::try_from(BLOCK_BYTES).context("a block has less than 4 GiB")?;
        for offset in offsets {
            let sent = now();
            let cookie = client.submit(NbdRequest::Read { offset, len_bytes })?;
            self.sent.insert(cookie, (offset, expected.len(), sent));
            let done = client.wait()?;
            self.finished(done, volume, &mut expected)?;
        }
        Ok(())
    }

    fn each(
        &mut self,
        client: &mut NbdClient,
        volume: &Volume,
        submit: &mut dyn FnMut(&mut NbdClient, &Volume, u64, usize) -> anyhow::Result<u64>,
    ) -> anyhow::Result<()> {
        let mut expected = vec![0; usize_from_u64(REQUEST_BYTES)];
        let mut offset = 0;
        while offset < volume.len_bytes() || !self.sent.is_empty() {
            if offset < volume.len_bytes() && self.sent.len() < IN_FLIGHT {
                let len = usize_from_u64(REQUEST_BYTES.min(volume.len_bytes() - offset));
                let sent = now();
                let cookie = submit(client, volume, offset, len)?;
                self.sent.insert(cookie, (offset, len, sent));
                offset += u64_from_usize(len);
            } else {
                let done = client.wait()?;
                self.finished(done, volume, &mut expected)?;
            }
        }
        Ok(())
    }

    fn finished(&mut self, done: NbdDone, volume: &Volume, expected: &mut [u8]) -> anyhow::Result<()> {
        let arrived = now();
        let Some((offset, len, sent)) = self.sent.remove(&done.cookie) else {
            bail!("the server answers a request that was not made");
        };
        self.latencies.push(arrived.saturating_duration_since(sent));
        let data = done.result?;
        if !data.is_empty() {
            let expected = &mut expected[..len];
            volume.contents(offset, expected).context("cannot read the source")?;
            if data != *expected {
                let differs = data.iter().zip(&*expected).position(|(got, wanted)| got != wanted);
                let at = offset + u64_from_usize(differs.unwrap_or(0));
                bail!("WRONG BYTES: volume {} differs from what was stored at byte {at}", volume.name());
            }
        }
        self.bytes += u64_from_usize(len);
        self.bar.set_position(self.bytes);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Measured {
        let took = now().saturating_duration_since(self.started);
        self.bar.finish_and_clear();
        self.latencies.sort_unstable();
        Measured { bytes: self.bytes, took, latencies: self.latencies }
    }
}
