//! Entry of the requests of all volumes: dirty data first, then the clean layer, then the origin.
//!
//! Volumes in pass-through enter here, too: a volume that left write-back has dirty data until it is destaged, in any
//! mode.
//!
//! Admits requests, and determines for each extent of a read if dirty data covers it. Out of scope: serving from clean
//! copies (`read`), and writing to origins (`write`).

use zc_core::{BufId, BufSlice, ErrorKind, ExtentNo, Mode};

use crate::base::origin::FlushWaiter;
use crate::clean::Clean;
use crate::clean::read::portion::{ClientRead, Portion, Sorted, portions, sector_range};
use crate::clean::read::recipes::RecipeWait;
use crate::clean::streams::InStream;
use crate::config::OnLoss;
use crate::device::Core;
use crate::dirty::DirtyLayer;
use crate::dirty::overlay::read_overlaid;
use crate::dirty::volume::VolumeDirty;
use crate::index::CALLED_UP;
use crate::seam::{Action, Request, RequestKind};

impl DirtyLayer {
    /// Takes in a request of any volume, in any mode.
    pub(crate) fn submit_any(&mut self, request: &Request, core: &mut Core, clean: &mut Clean) {
        match request.kind {
            RequestKind::Read { buf } => self.submit_read(request, buf, core, clean),
            RequestKind::Flush => self.submit_flush(request, core),
            RequestKind::Prefetch => {
                let (reads, copies) = clean.reads_and_copies();
                reads.submit_prefetch(request, copies, core);
            }
            RequestKind::Warm => {
                let (reads, copies) = clean.reads_and_copies();
                reads.submit_warm(request, copies, core);
            }
            RequestKind::Write { .. } | RequestKind::Trim { .. } | RequestKind::WriteZeroes { .. } => {
                self.submit_write(request, core, clean);
            }
        }
    }

    fn submit_read(&mut self, request: &Request, buf: BufId, core: &mut Core, clean: &mut Clean) {
        let len_bytes = u32::try_from(request.len_bytes).unwrap_or(u32::MAX);
        core.base.port.adopt(buf);
        let Some(mode) = core.base.volume(request.volume).map(|volume| volume.cfg().mode) else {
            core.base.port.emit(Action::Reply { req: request.req, result: Err(ErrorKind::Invalid) });
            core.base.port.release(buf);
            return;
        };
        core.base.stats.reads += 1;
        core.base.stats.read_bytes += request.len_bytes;
        self.volumes.asked(request.volume, core.base.now_ms());
        if self.refuses_read(request, core) {
            core.base.port.emit(Action::Reply { req: request.req, result: Err(ErrorKind::Io) });
            core.base.port.release(buf);
            return;
        }
        let read = core.base.port.number();
        if mode == Mode::PassThrough || !core.base.is_good() {
            core.base.stats.read_bypassed += 1;
            clean.reads_mut().begin_read(read, ClientRead::new(request, buf, len_bytes, None));
            let dest = BufSlice { buf, start_bytes: 0, len_bytes };
            let (reads, copies) = clean.reads_and_copies();
            reads.direct_read(read, request.volume, (request.offset_bytes, dest), copies, core);
        } else {
            let verdict = clean.reads_mut().follow(request);
            clean.copies_mut().note(request, verdict.stream.is_some(), core);
            clean.reads_mut().begin_read(read, ClientRead::new(request, buf, len_bytes, verdict.stream));
            self.cached_read(read, core, clean);
            if let Some(range) = verdict.prefetch {
                let (reads, copies) = clean.reads_and_copies();
                reads.read_ahead(request.volume, range, verdict.stream, copies, core);
            }
        }
        clean.reads_mut().read_part_done(read, Ok(()), core);
    }

    fn cached_read(&mut self, read: u64, core: &mut Core, clean: &mut Clean) {
        let op = clean.reads().read(read);
        let (volume, offset, stream, dest) = (op.volume(), op.offset_bytes(), op.stream(), op.dest());
        let (mut sorted, mut unknown) = (Sorted::default(), None);
        let extent_bytes = core.base.extent_bytes();
        let mut ahead = portions(volume, offset, dest, extent_bytes);
        for (number, portion) in portions(volume, offset, dest, extent_bytes).enumerate() {
            // A single extent needs no prefetch.
            if number % CALLED_UP == 0 && portion.len_bytes < dest.len_bytes {
                ahead
                    .by_ref()
                    .take(CALLED_UP)
                    .for_each(|portion| core.device.catalog.files().call_up(portion.key));
            }
            if self.sort(read, portion, &mut sorted, core, clean) {
                continue;
            }
            unknown = Some(portion.key);
            if !clean.wait_for_headers(read, portion, stream, core) {
                sorted.miss(portion);
            }
        }
        if let Some(key) = unknown {
            clean.copies_mut().recipes_mut().expect_learned(key, core);
        }
        clean.read_sorted(read, sorted, stream, core);
    }

    /// Resumes a portion whose unit headers are loaded. Returns `true` if its source is determined.
    fn read_again(
        &mut self,
        read: u64,
        portion: Portion,
        stream: Option<InStream>,
        core: &mut Core,
        clean: &mut Clean,
    ) -> bool {
        let mut sorted = Sorted::default();
        let known = self.sort(read, portion, &mut sorted, core, clean);
        if !known {
            sorted.miss(portion);
        }
        clean.read_sorted(read, sorted, stream, core);
        clean.reads_mut().read_part_done(read, Ok(()), core);
        known
    }

    /// Determines the source of a portion, dirty data first, and serves it if it is in memory. Returns `true` if the
    /// source is determined.
    fn sort(
        &mut self,
        read: u64,
        portion: Portion,
        sorted: &mut Sorted,
        core: &mut Core,
        clean: &mut Clean,
    ) -> bool {
        if self.volumes.has_dirty(portion.key.volume) {
            let sectors = sector_range(portion.skip_bytes, portion.len_bytes);
            let visible = self.volumes.overlay(portion.key, &sectors);
            if !visible.is_empty() {
                read_overlaid(read, &portion, &visible, sorted.stored(), core, clean);
                return true;
            }
        }
        clean.sort_clean(read, portion, sorted, core)
    }

    /// Resumes a miss after the header reads: it is a hit now, or is read from the origin.
    pub(crate) fn headers_arrived(&mut self, id: u64, core: &mut Core, clean: &mut Clean) {
        let RecipeWait { read, portion, stream } = clean.copies_mut().recipes_mut().end_wait(id);
        let hit = self.read_again(read, portion, stream, core, clean);
        core.base.stats.recipe_waits_hit += u64::from(hit);
    }

    fn submit_write(&mut self, request: &Request, core: &mut Core, clean: &mut Clean) {
        core.base.stats.writes += 1;
        core.base.stats.write_bytes += request.len_bytes;
        if let RequestKind::Write { buf, .. } = request.kind {
            core.base.port.adopt(buf);
        }
        self.submit_adopted(request, core, clean);
    }

    /// Submits a write whose buffer has been adopted.
    pub(crate) fn submit_adopted(&mut self, request: &Request, core: &mut Core, clean: &mut Clean) {
        let mode = core.base.volume(request.volume).map(|volume| volume.cfg().mode);
        if mode.is_none_or(|mode| mode == Mode::ReadOnly) || request.len_bytes == 0 {
            let result = match mode {
                None => Err(ErrorKind::Invalid),
                Some(Mode::ReadOnly) => Err(ErrorKind::ReadOnly),
                Some(_) => Ok(()),
            };
            core.base.answer_write(request, result);
            return;
        }
        if matches!(request.kind, RequestKind::Write { .. }) && mode != Some(Mode::WriteAround) {
            clean.copies_mut().note(request, false, core);
        }
        // A discard bypasses an empty dirty layer: discarding a new volume must not fill the journal.
        let clears = !matches!(request.kind, RequestKind::Write { .. });
        let passes = clears && (!self.volumes.has_dirty(request.volume) || self.makes_space(request, core));
        if self.volumes.fence(request.volume, core).is_some()
            || (self.volumes.writes_back(request.volume, core) && !passes)
        {
            self.submit_write_back(request, core);
            return;
        }
        clean.write_through(request, core);
    }

    /// Returns `true` if a discard is sent directly to an origin without space: its range has no dirty data, so it
    /// violates no order except that of epochs (`CONSISTENCY.md`, "An origin without space").
    fn makes_space(&mut self, request: &Request, core: &Core) -> bool {
        let extent_bytes = u64::from(core.base.extent_bytes());
        let last_byte = request.offset_bytes.saturating_add(request.len_bytes - 1);
        let extents = ExtentNo(request.offset_bytes / extent_bytes)..=ExtentNo(last_byte / extent_bytes);
        let full = |dirty: &VolumeDirty| dirty.destaging.is_out_of_space() && dirty.data.is_clean(extents);
        let passes = self.volumes.get(&request.volume).is_some_and(full);
        if passes {
            self.volumes.destaging(request.volume).may_have_space();
        }
        passes
    }

    fn submit_flush(&mut self, request: &Request, core: &mut Core) {
        core.base.stats.flushes += 1;
        let Some(volume) = core.base.volume(request.volume) else {
            core.base.port.emit(Action::Reply { req: request.req, result: Err(ErrorKind::Invalid) });
            return;
        };
        let flushed = volume.origin().is_flushed();
        if self.volumes.fence(request.volume, core).is_some() {
            core.base.port.emit(Action::Reply { req: request.req, result: Err(ErrorKind::Io) });
            return;
        }
        let behind = self.volumes.writes_back(request.volume, core) || self.volumes.has_dirty(request.volume);
        if flushed && behind && core.base.is_good() && self.volumes.get(&request.volume).is_some() {
            self.commits.request_commit(request.volume, Some(request.req), &mut self.volumes, core);
            return;
        }
        core.base.flush_origin(request.volume, FlushWaiter::Client(request.req));
    }

    /// Returns `true` if the volume's fence refuses the read: all reads, or those of dirty data.
    pub(crate) fn refuses_read(&self, request: &Request, core: &Core) -> bool {
        match self.volumes.fence(request.volume, core) {
            None => false,
            Some(OnLoss::Error) => true,
            Some(OnLoss::ReadOnly) => {
                let len_bytes = u32::try_from(request.len_bytes).unwrap_or(u32::MAX);
                let range = BufSlice { buf: BufId(0), start_bytes: 0, len_bytes };
                portions(request.volume, request.offset_bytes, range, core.base.extent_bytes()).any(
                    |portion| {
                        let sectors = sector_range(portion.skip_bytes, portion.len_bytes);
                        !self.volumes.overlay(portion.key, &sectors).is_empty()
                    },
                )
            }
        }
    }
}
