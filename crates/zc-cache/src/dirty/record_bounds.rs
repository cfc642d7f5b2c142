//! Bound on records of dirty data.

use crate::base::Base;

/// Maximum versions and epochs of all volumes together, of about 100 bytes each.
const DIRTY_RECORDS_MAX: u64 = 1 << 20;

/// Maximum number of records of dirty data: half of a checkpoint's capacity, and a bound on the RAM.
pub(crate) fn dirty_records_max(base: &Base) -> u64 {
    (base.cfg().geometry.checkpoint_records_max() / 2).clamp(64, DIRTY_RECORDS_MAX)
}
