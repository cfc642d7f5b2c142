//! What waited for other accesses of its origin goes off.
//!
//! Job: lead turns, which `order` grants, to reads and writes. What it does not do: decide whose turn it is.

use crate::clean::Clean;
use crate::clean::order::{Turn, Waiting};
use crate::clean::read::start_direct_read;
use crate::device::Core;

impl Clean {
    /// Lets go off what waited for accesses that ended.
    pub(crate) fn pump_origin_order(&mut self, core: &mut Core) {
        for (volume, Waiting { id, bytes, turn }) in self.origin_order.grant() {
            match turn {
                Turn::Read { read, dest } => {
                    start_direct_read(id, read, volume, bytes.start, dest, &mut core.base);
                }
                Turn::Piece(write) => self.issue_piece(write, core),
            }
        }
    }
}
