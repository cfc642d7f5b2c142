//! What the origins do: they carry out, or fail, and a failed write may have happened in part.

use rand::RngExt as _;
use zc_cache::seam::{Action, Event};
use zc_core::{ErrorKind, OpId, VolumeId};

use crate::content;
use crate::world::{SECTOR, World};

/// Of an origin's operations, how many fail in a seed whose origins do.
const ERROR_RATE: f64 = 0.01;
/// Turns in which an origin has space, or has none.
const FULL_SPAN: u64 = 512;
/// A discard that is so long makes space for the rest of such a span.
const FREES_BYTES: u64 = 8 << 10;
/// Where a sector is torn: before it the old bytes, from there on the new ones.
const TORN: usize = 32;

impl World {
    pub(crate) fn are_origins_gone(&self) -> bool {
        self.faults.origins_gone.is_some_and(|(from, to)| (from..to).contains(&self.now))
    }

    /// Returns `true` if the origin of a volume has no space.
    pub(crate) fn is_origin_full(&self, volume: usize) -> bool {
        let span = self.now / FULL_SPAN;
        let draw =
            (self.seed ^ span.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40;
        let is_full = (draw as f64) < self.faults.origin_full * f64::from(1 << 24);
        volume == 0 && is_full && self.faults.freed_in != Some(span)
    }

    /// Returns `true` if an operation of an origin fails for lack of space. A discard makes some.
    fn has_no_space(&mut self, action: &Action) -> bool {
        match action {
            Action::OriginWrite { volume, .. } | Action::OriginZero { volume, no_hole: true, .. } => {
                let volume = usize::from(volume.0);
                let is_full = self.is_origin_full(volume);
                if is_full {
                    self.coverage.note("origins without space");
                    self.excuses.no_space(volume);
                    self.judges[volume].discards_overtake();
                }
                is_full
            }
            Action::OriginTrim { volume, len_bytes, .. } | Action::OriginZero { volume, len_bytes, .. } => {
                if self.is_origin_full(usize::from(volume.0)) && *len_bytes >= FREES_BYTES {
                    self.coverage.note("origins that got space by a discard");
                    self.faults.freed_in = Some(self.now / FULL_SPAN);
                }
                false
            }
            _ => false,
        }
    }

    /// Carries out an operation of an origin. A flush covers what had ended when it was issued.
    pub(crate) fn perform_origin(&mut self, action: &Action, issued: u64) -> Event {
        let gone = self.are_origins_gone();
        let no_space = self.has_no_space(action);
        let fails = gone || no_space || (self.faults.origin_errors && self.rng.random_bool(ERROR_RATE));
        if fails && !no_space {
            self.coverage.note(if gone { "origins gone" } else { "origin errors" });
        }
        if fails {
            self.note_failed(action);
        }
        let op = match action {
            Action::OriginRead { op, volume, offset_bytes, dest } => {
                let origin = &self.origins[usize::from(volume.0)].seen;
                let start = (*offset_bytes as usize).min(origin.len());
                let end = (start + dest.len_bytes as usize).min(origin.len());
                let mut data = origin[start..end].to_vec();
                data.resize(dest.len_bytes as usize, 0);
                self.tear(*volume, *offset_bytes, &mut data);
                if fails {
                    data.fill(0x33);
                }
                self.put(*dest, &data);
                *op
            }
            Action::OriginWrite { op, volume, offset_bytes, src, fua } => {
                self.meets_no_write(*volume, *offset_bytes, src.len_bytes.into());
                let data = self.slice(*src);
                self.known_in(*src);
                self.store(*op, *volume, *offset_bytes, &data, *fua, fails);
                *op
            }
            Action::OriginTrim { op, volume, offset_bytes, len_bytes, fua }
            | Action::OriginZero { op, volume, offset_bytes, len_bytes, fua, .. } => {
                self.meets_no_write(*volume, *offset_bytes, *len_bytes);
                let zeros = vec![0; *len_bytes as usize];
                self.store(*op, *volume, *offset_bytes, &zeros, *fua, fails);
                *op
            }
            Action::OriginFlush { op, volume } => {
                if !fails {
                    self.origins[usize::from(volume.0)].flush(issued, &mut self.rng);
                } else if self.rng.random_bool(0.5) {
                    self.lose_unflushed(usize::from(volume.0));
                }
                *op
            }
            other => panic!("{other:?} is not the origin's"),
        };
        let error = if no_space && !gone { ErrorKind::NoSpace } else { ErrorKind::Io };
        Event::OriginDone { op, result: if fails { Err(error) } else { Ok(()) } }
    }

    /// An operation fails: requests at its bytes may.
    pub(crate) fn note_failed(&mut self, action: &Action) {
        let (op, volume, start, len, flushes) = match action {
            Action::OriginRead { op, volume, offset_bytes, dest } => {
                (op, volume, *offset_bytes, dest.len_bytes.into(), false)
            }
            Action::OriginWrite { op, volume, offset_bytes, src, fua } => {
                (op, volume, *offset_bytes, src.len_bytes.into(), *fua)
            }
            Action::OriginTrim { op, volume, offset_bytes, len_bytes, fua }
            | Action::OriginZero { op, volume, offset_bytes, len_bytes, fua, .. } => {
                (op, volume, *offset_bytes, *len_bytes, *fua)
            }
            Action::OriginFlush { op, volume } => (op, volume, 0, u64::MAX, true),
            other => panic!("{other:?} is not the origin's"),
        };
        let bytes = start..start.saturating_add(len);
        self.excuses.origin_failed(*op, usize::from(volume.0), bytes, flushes);
    }

    /// Sectors that a write in flight is about to change are half of it already: no copy is atomic.
    fn tear(&mut self, volume: VolumeId, offset_bytes: u64, data: &mut [u8]) {
        let at = offset_bytes as usize;
        let mut torn = false;
        for (action, _) in &self.pending {
            let (start, new) = match action {
                Action::OriginWrite { volume: of, offset_bytes, src, .. } if *of == volume => {
                    (*offset_bytes as usize, self.slice(*src))
                }
                Action::OriginZero { volume: of, offset_bytes, len_bytes, .. }
                | Action::OriginTrim { volume: of, offset_bytes, len_bytes, .. }
                    if *of == volume =>
                {
                    (*offset_bytes as usize, vec![0; *len_bytes as usize])
                }
                _ => continue,
            };
            let (first, end) = (start.max(at), (start + new.len()).min(at + data.len()));
            for sector in (first..end).step_by(SECTOR) {
                let half = sector + TORN..sector + SECTOR;
                data[half.start - at..half.end - at]
                    .copy_from_slice(&new[half.start - start..half.end - start]);
                torn = true;
            }
        }
        if torn {
            self.coverage.note("reads torn by a write in flight");
        }
    }

    /// Two writes of a sector in flight together could leave a mixture on the origin.
    fn meets_no_write(&mut self, volume: VolumeId, offset_bytes: u64, len_bytes: u64) {
        let meets = |action: &Action| {
            let (of, start, len) = match action {
                Action::OriginWrite { volume, offset_bytes, src, .. } => {
                    (*volume, *offset_bytes, u64::from(src.len_bytes))
                }
                Action::OriginZero { volume, offset_bytes, len_bytes, .. }
                | Action::OriginTrim { volume, offset_bytes, len_bytes, .. } => {
                    (*volume, *offset_bytes, *len_bytes)
                }
                _ => return false,
            };
            of == volume && start < offset_bytes + len_bytes && offset_bytes < start + len
        };
        if self.pending.iter().any(|(action, _)| meets(action)) {
            let text =
                format!("volume {volume}: two writes of {offset_bytes}+{len_bytes} meet on the origin (G1)");
            self.violation.get_or_insert(text);
        }
    }

    /// A failed flush says once that writes may be lost; they are, but not parts of one that is still under way.
    fn lose_unflushed(&mut self, volume: usize) {
        self.coverage.note("failed flushes that lost writes");
        self.now += 1;
        let oracle = &mut self.oracles[volume];
        self.origins[volume].lose_unflushed(&mut self.rng, |sector| oracle.is_quiet(sector));
        oracle.lost(self.now);
        self.judges[volume].lost();
    }

    /// Writes; when it fails, each sector or not.
    fn store(&mut self, op: OpId, volume: VolumeId, offset_bytes: u64, data: &[u8], fua: bool, fails: bool) {
        let origin = &mut self.origins[usize::from(volume.0)];
        let at = offset_bytes as usize;
        if fails {
            for (index, sector) in data.chunks(SECTOR).enumerate() {
                if self.rng.random_bool(0.5) {
                    origin.write(at + index * SECTOR, sector, op.0);
                }
            }
            return;
        }
        origin.write(at, data, op.0);
        if fua {
            origin.persist(op.0);
        }
    }

    /// Another program writes to a file while it is not served: its change time tells.
    pub(crate) fn write_behind_our_back(&mut self) {
        let volume = self.rng.random_range(0..self.volumes.len());
        let in_store = self.pooled.as_ref().is_some_and(|pooled| pooled.has(volume));
        if self.maybe_dirty[volume] || in_store {
            return;
        }
        let sectors = self.volumes[volume].size_bytes as usize / SECTOR;
        for _ in 0..self.rng.random_range(1..40) {
            let sector = self.rng.random_range(0..sectors);
            self.now += 1;
            self.next_content += 1;
            let mut bytes = [0; SECTOR];
            content::fill(self.next_content, &mut bytes);
            self.origins[volume].write_now(sector * SECTOR, &bytes);
            self.oracles[volume].issue(sector, self.next_content, self.now);
            let started = self.now;
            self.now += 1;
            self.oracles[volume].end(sector, started, self.now, true, false);
            self.judges[volume].set(sector, self.next_content);
        }
        self.origins[volume].settle();
        self.oracles[volume].flushed(self.now);
        self.distrusted[volume] = true;
        self.coverage.note("origins changed while stopped");
    }
}
