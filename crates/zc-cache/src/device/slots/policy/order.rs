//! The interface of replacement policies.

use zc_core::WeuSlot;

use crate::device::slots::class_id::ClassId;

/// Order in which WEUs are evicted.
pub(crate) trait ReplacementPolicy: core::fmt::Debug {
    /// Adds a WEU that was written to `slot` (or is open there), later than all others in the policy. Counts as a use
    /// where uses make the order. A slot that is known is known in the same class.
    fn inserted(&mut self, slot: WeuSlot, class: ClassId);
    /// Records a use of the slot's content. Nothing happens for a slot that was not inserted.
    fn touched(&mut self, slot: WeuSlot, class: ClassId);
    /// Records that an address more has the slot's content, which also is a use. Nothing happens for a slot that was
    /// not inserted.
    fn shared(&mut self, slot: WeuSlot, class: ClassId) {
        self.touched(slot, class);
    }
    /// Removes a slot whose WEU is evicted, or changes its class. Without effect for a slot that was not inserted.
    fn removed(&mut self, slot: WeuSlot, class: ClassId);
    /// Returns the first slot in the class's order of eviction for which `skip` is false. It stays known until it is
    /// removed, which the caller does next: a policy may have let others pass for it.
    fn victim(&mut self, class: ClassId, skip: &mut dyn FnMut(WeuSlot) -> bool) -> Option<WeuSlot>;
    /// As [`Self::victim`], with a callback for the live extents of a slot; none if it may not go.
    fn emptiest(&mut self, class: ClassId, live: &mut dyn FnMut(WeuSlot) -> Option<u32>) -> Option<WeuSlot> {
        self.victim(class, &mut |slot| live(slot).is_none())
    }
    /// Returns the first slot in the class's order of eviction, even if it may not go.
    fn oldest(&self, class: ClassId) -> Option<WeuSlot>;
    /// Slots that were next and may stay for another round, since the start.
    fn spared(&self) -> u64 {
        0
    }
    /// RAM held, in bytes.
    fn ram_bytes(&self) -> u64;
}
