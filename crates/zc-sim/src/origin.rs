//! What the origins do: they carry out, or fail, and a failed write may have happened in part.

use rand::RngExt as _;
use zc_cache::seam::{Action, Event};
use zc_core::{ErrorKind, VolumeId};

use crate::world::{SECTOR, World};

/// Of an origin's operations, how many fail in a seed whose origins do.
const ERROR_RATE: f64 = 0.01;

impl World {
    /// Carries out an operation of an origin. A flush covers what took effect before `position`.
    pub(crate) fn perform_origin(&mut self, action: &Action, position: u64) -> Event {
        let fails = self.faults.origin_errors && self.rng.random_bool(ERROR_RATE);
        if fails {
            self.coverage.note("origin errors");
        }
        let op = match action {
            Action::OriginRead { op, volume, offset_bytes, dest } => {
                let origin = &self.origins[usize::from(volume.0)].seen;
                let start = (*offset_bytes as usize).min(origin.len());
                let end = (start + dest.len_bytes as usize).min(origin.len());
                let mut data = origin[start..end].to_vec();
                data.resize(dest.len_bytes as usize, 0);
                if fails {
                    data.fill(0x33);
                }
                self.put(*dest, &data);
                *op
            }
            Action::OriginWrite { op, volume, offset_bytes, src, fua } => {
                let data = self.slice(*src);
                self.store(*volume, *offset_bytes, &data, *fua, fails);
                *op
            }
            Action::OriginTrim { op, volume, offset_bytes, len_bytes, fua }
            | Action::OriginZero { op, volume, offset_bytes, len_bytes, fua, .. } => {
                let zeros = vec![0; *len_bytes as usize];
                self.store(*volume, *offset_bytes, &zeros, *fua, fails);
                *op
            }
            Action::OriginFlush { op, volume } => {
                if !fails {
                    self.origins[usize::from(volume.0)].flush(position);
                }
                *op
            }
            other => panic!("{other:?} is not the origin's"),
        };
        Event::OriginDone { op, result: if fails { Err(ErrorKind::Io) } else { Ok(()) } }
    }

    /// Writes; when it fails, each sector or not.
    fn store(&mut self, volume: VolumeId, offset_bytes: u64, data: &[u8], fua: bool, fails: bool) {
        let origin = &mut self.origins[usize::from(volume.0)];
        let at = offset_bytes as usize;
        if fails {
            for (index, sector) in data.chunks(SECTOR).enumerate() {
                if self.rng.random_bool(0.5) {
                    origin.write(at + index * SECTOR, sector);
                }
            }
            return;
        }
        origin.write(at, data);
        if fua {
            let position = origin.position();
            origin.flush(position);
        }
    }
}
