//! Cache device as seen by the code of a start, which may be cut off between any two I/Os.

use zc_cache::startup::Media;
use zc_core::ErrorKind;
use zc_format::Geometry;

use crate::disk::{self, Disk};

/// Cache device as a start sees it.
pub(crate) struct Raw<'a> {
    disk: &'a mut Disk,
    geometry: &'a Geometry,
    /// I/Os until the device is cut off.
    left: Option<u32>,
    /// The start was cut off: later results do not count.
    cut: bool,
    /// The device acknowledges writes and drops them.
    forgets: bool,
}

impl<'a> Raw<'a> {
    pub(crate) const fn new(
        disk: &'a mut Disk,
        geometry: &'a Geometry,
        left: Option<u32>,
        forgets: bool,
    ) -> Self {
        Self { disk, geometry, left, cut: false, forgets }
    }

    pub(crate) const fn is_cut(&self) -> bool {
        self.cut
    }

    fn step(&mut self) -> Result<(), ErrorKind> {
        match &mut self.left {
            Some(0) => {
                self.cut = true;
                Err(ErrorKind::Io)
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Media for Raw<'_> {
    fn len_bytes(&self) -> u64 {
        self.geometry.device_bytes
    }
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), ErrorKind> {
        self.step()?;
        let at = disk::address(self.geometry, offset);
        if self.disk.is_unreadable(at, buf.len()) {
            return Err(ErrorKind::Io);
        }
        buf.copy_from_slice(&self.disk.seen[at..at + buf.len()]);
        Ok(())
    }
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), ErrorKind> {
        self.step()?;
        if !self.forgets {
            self.disk.write_now(disk::address(self.geometry, offset), data);
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), ErrorKind> {
        self.step()?;
        self.disk.settle();
        Ok(())
    }
}
