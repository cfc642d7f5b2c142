//! Simulated origins: execute or fail operations; a failed write may have been executed in part.

use core::ops::{Index, IndexMut};

use zc_cache::config::VolumeConfig;
use zc_cache::seam::{Action, Event};
use zc_core::{ErrorKind, FingerprintKind, OpId, VolumeId};

use crate::bench::Bench;
use crate::content::SECTOR;
use crate::disk::Disk;
use crate::env::Env;

/// Share of an origin's operations that fail in seeds with origin errors.
const ERROR_RATE: f64 = 0.01;
/// Minimum length of a discard that makes space for the rest of the current span.
const FREES_BYTES: u64 = 8 << 10;
/// Byte at which a sector is torn: old bytes before it, new bytes from there.
const TORN: usize = 32;

/// Origins. For volumes in a store, their contents when the store was last inspected.
#[derive(Debug, Clone)]
pub(crate) struct Origins {
    disks: Vec<Disk>,
}

impl Index<usize> for Origins {
    type Output = Disk;

    fn index(&self, volume: usize) -> &Disk {
        &self.disks[volume]
    }
}

impl IndexMut<usize> for Origins {
    fn index_mut(&mut self, volume: usize) -> &mut Disk {
        &mut self.disks[volume]
    }
}

impl Origins {
    pub(crate) fn new(volumes: &[VolumeConfig]) -> Self {
        Self { disks: volumes.iter().map(|volume| Disk::new(volume.size_bytes as usize)).collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.disks.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Disk> {
        self.disks.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Disk> {
        self.disks.iter_mut()
    }

    /// Replaces the volume's origin by an empty one.
    pub(crate) fn replace(&mut self, volume: usize) {
        self.disks[volume] = Disk::new(0);
    }

    /// Answers a fingerprint request as an origin that stores fingerprints does.
    pub(crate) fn recipe(&self, action: &Action, kind: FingerprintKind, extent: usize) -> Event {
        let Action::WantRecipe { op, volume, first, count, domain } = action else {
            panic!("{action:?} asks for no recipe")
        };
        let start = first.0 as usize * extent;
        let origin = &self.disks[usize::from(volume.0)].seen;
        let prints = origin[start..start + *count as usize * extent]
            .chunks(extent)
            .map(|bytes| Some(zc_reduce::fingerprint(kind, domain, bytes)))
            .collect();
        Event::RecipeArrived { op: *op, prints }
    }
}

impl Origins {
    /// Returns `true` if an operation of an origin fails for lack of space. A discard makes some.
    fn has_no_space(cx: &mut Bench<'_>, action: &Action) -> bool {
        match action {
            Action::OriginWrite { volume, .. } | Action::OriginZero { volume, no_hole: true, .. } => {
                let volume = usize::from(volume.0);
                let is_full = cx.faults.is_origin_full(volume, cx.env.seed(), cx.env.now());
                if is_full {
                    cx.env.note("origins without space");
                    cx.excuses.no_space(volume);
                    cx.models.origin_mut(volume).discards_overtake();
                }
                is_full
            }
            Action::OriginTrim { volume, len_bytes, .. } | Action::OriginZero { volume, len_bytes, .. } => {
                if cx.faults.is_origin_full(usize::from(volume.0), cx.env.seed(), cx.env.now())
                    && *len_bytes >= FREES_BYTES
                {
                    cx.env.note("origins that got space by a discard");
                    cx.faults.free_origin(cx.env.now());
                }
                false
            }
            _ => false,
        }
    }

    /// Executes an operation of an origin. A flush covers writes completed when it was issued.
    pub(crate) fn perform(
        &mut self,
        cx: &mut Bench<'_>,
        pending: &[(Action, u64)],
        action: &Action,
        issued: u64,
    ) -> Event {
        let gone = cx.faults.are_origins_gone(cx.env.now());
        let no_space = Self::has_no_space(cx, action);
        let fails = gone || no_space || (cx.faults.origin_errors && cx.env.random_bool(ERROR_RATE));
        if fails && !no_space {
            cx.env.note(if gone { "origins gone" } else { "origin errors" });
        }
        if fails {
            cx.excuses.note_failed(action);
        }
        let op = match action {
            Action::OriginRead { op, volume, offset_bytes, dest } => {
                let origin = &self.disks[usize::from(volume.0)].seen;
                let start = (*offset_bytes as usize).min(origin.len());
                let end = (start + dest.len_bytes as usize).min(origin.len());
                let mut data = origin[start..end].to_vec();
                data.resize(dest.len_bytes as usize, 0);
                Self::tear(cx, pending, *volume, *offset_bytes, &mut data);
                if fails {
                    data.fill(0x33);
                }
                cx.memory.put(cx.env, *dest, &data);
                *op
            }
            Action::OriginWrite { op, volume, offset_bytes, src, fua } => {
                Self::meets_no_write(cx, pending, *volume, *offset_bytes, src.len_bytes.into());
                let data = cx.memory.slice(*src);
                cx.memory.known_in(cx.env, *src);
                self.store(cx.env, *op, (*volume, *offset_bytes), &data, *fua, fails);
                *op
            }
            Action::OriginTrim { op, volume, offset_bytes, len_bytes, fua }
            | Action::OriginZero { op, volume, offset_bytes, len_bytes, fua, .. } => {
                Self::meets_no_write(cx, pending, *volume, *offset_bytes, *len_bytes);
                let zeros = vec![0; *len_bytes as usize];
                self.store(cx.env, *op, (*volume, *offset_bytes), &zeros, *fua, fails);
                *op
            }
            Action::OriginFlush { op, volume } => {
                if !fails {
                    self.disks[usize::from(volume.0)].flush(issued, cx.env.rng());
                } else if cx.env.random_bool(0.5) {
                    self.lose_unflushed(cx, usize::from(volume.0));
                }
                *op
            }
            other => panic!("{other:?} is not the origin's"),
        };
        let error = if no_space && !gone { ErrorKind::NoSpace } else { ErrorKind::Io };
        Event::OriginDone { op, result: if fails { Err(error) } else { Ok(()) } }
    }

    /// Half-applies writes in flight to the sectors read: no copy is atomic.
    fn tear(
        cx: &mut Bench<'_>,
        pending: &[(Action, u64)],
        volume: VolumeId,
        offset_bytes: u64,
        data: &mut [u8],
    ) {
        let at = offset_bytes as usize;
        let mut torn = false;
        for (action, _) in pending {
            let (start, new) = match action {
                Action::OriginWrite { volume: of, offset_bytes, src, .. } if *of == volume => {
                    (*offset_bytes as usize, cx.memory.slice(*src))
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
            cx.env.note("reads torn by a write in flight");
        }
    }

    /// Checks that no other write of the same sectors is in flight, which could leave a mixture on the origin.
    fn meets_no_write(
        cx: &mut Bench<'_>,
        pending: &[(Action, u64)],
        volume: VolumeId,
        offset_bytes: u64,
        len_bytes: u64,
    ) {
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
        if pending.iter().any(|(action, _)| meets(action)) {
            let text =
                format!("volume {volume}: two writes of {offset_bytes}+{len_bytes} meet on the origin (G1)");
            cx.env.violate(text);
        }
    }

    /// Loses unflushed writes for a failed flush, which reports the loss once. Writes still in progress are not lost
    /// in part.
    pub(crate) fn lose_unflushed(&mut self, cx: &mut Bench<'_>, volume: usize) {
        cx.env.note("failed flushes that lost writes");
        cx.env.advance();
        let oracle = cx.models.oracle(volume);
        self.disks[volume].lose_unflushed(cx.env.rng(), |sector| oracle.is_quiet(sector));
        cx.models.lost(volume, cx.env.now());
    }

    /// Executes a write; if it fails, each sector is written or not.
    pub(crate) fn store(
        &mut self,
        env: &mut Env,
        op: OpId,
        (volume, offset_bytes): (VolumeId, u64),
        data: &[u8],
        fua: bool,
        fails: bool,
    ) {
        let origin = &mut self.disks[usize::from(volume.0)];
        let at = offset_bytes as usize;
        if fails {
            for (index, sector) in data.chunks(SECTOR).enumerate() {
                if env.random_bool(0.5) {
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
}
