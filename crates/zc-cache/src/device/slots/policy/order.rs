//! Interface of replacement policies.

use zc_core::WeuSlot;

use crate::device::slots::class_id::ClassId;

/// Order in which WEUs are evicted.
pub(crate) trait ReplacementPolicy: core::fmt::Debug {
    /// Inserts the WEU in `slot` as the newest one. Counts as a use if the policy orders by use. The slot must not be
    /// in another class.
    fn inserted(&mut self, slot: WeuSlot, class: ClassId);
    /// Records a use of the slot's content. No effect for a slot that is not in the policy.
    fn touched(&mut self, slot: WeuSlot, class: ClassId);
    /// Records that one more address shares the slot's content, which is also a use. No effect for a slot that is not
    /// in the policy.
    fn shared(&mut self, slot: WeuSlot, class: ClassId) {
        self.touched(slot, class);
    }
    /// Removes a slot whose WEU is evicted or changes its class. No effect for a slot that is not in the policy.
    fn removed(&mut self, slot: WeuSlot, class: ClassId);
    /// Returns the first slot in the class's order of eviction for which `skip` is false. The caller removes it next:
    /// the policy may have given other slots another round before it.
    fn victim(&mut self, class: ClassId, skip: &mut dyn FnMut(WeuSlot) -> bool) -> Option<WeuSlot>;
    /// As [`Self::victim`], where `live` returns the live extents of a slot, or `None` if it cannot be evicted.
    fn emptiest(&mut self, class: ClassId, live: &mut dyn FnMut(WeuSlot) -> Option<u32>) -> Option<WeuSlot> {
        self.victim(class, &mut |slot| live(slot).is_none())
    }
    /// Returns the first slot in the class's order of eviction, even if it cannot be evicted.
    fn oldest(&self, class: ClassId) -> Option<WeuSlot>;
    /// Slots that were given another round, since the start.
    fn spared(&self) -> u64 {
        0
    }
    /// RAM held, in bytes.
    fn ram_bytes(&self) -> u64;
}
