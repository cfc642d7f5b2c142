//! Port of the core: operations in flight, reference counts of buffers, and pending actions.
//!
//! Assigns numbers to operations and buffers, holds the purpose of each operation until it completes, and frees a
//! buffer with its last reference.
//!
//! Invariants: numbers increase and are never reused; an operation completes once; a buffer is freed once, after its
//! last use.
//!
//! Out of scope: the purposes of operations, and their execution.

use zc_core::{BufId, ErrorKind, Fingerprint, Map, OpId};
use zc_format::WeuHeader;

use crate::expect_held::ExpectHeld as _;
use crate::seam::{Action, Digest, ImageBytes, MANAGER_BUF_BIT, PartResults, Source};

#[derive(Debug)]
pub(crate) enum Ended {
    Origin(Result<(), ErrorKind>),
    /// A write, flush or discard of the device, or a record outside it.
    Device(Result<(), ErrorKind>),
    /// A read of stored extents.
    Extents(Result<PartResults, ErrorKind>),
    Header(Result<Option<Box<WeuHeader>>, ErrorKind>),
    Image(Result<ImageBytes, ErrorKind>),
    Hashed(Digest),
    Compressed(Option<u32>),
    Compared(bool),
    Recipe(Vec<Option<Fingerprint>>),
}

/// Port whose operations have purposes of type `K`.
#[derive(Debug)]
pub(crate) struct Port<K> {
    ops: Map<OpId, K>,
    /// Buffers that operations in flight read from.
    sources: Map<OpId, BufId>,
    holds: Map<BufId, u32>,
    last_number: u64,
    out: Vec<Action>,
}

impl<K> Default for Port<K> {
    fn default() -> Self {
        Self {
            ops: Map::default(),
            sources: Map::default(),
            holds: Map::default(),
            last_number: 1,
            out: Vec::new(),
        }
    }
}

impl<K> Port<K> {
    /// Swaps the list of pending actions with the driver's. Called before and after each event.
    pub(crate) const fn swap_out(&mut self, actions: &mut Vec<Action>) {
        core::mem::swap(&mut self.out, actions);
    }

    pub(crate) fn emit(&mut self, action: Action) {
        self.out.push(action);
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(crate) const fn next_number(&self) -> u64 {
        self.last_number + 1
    }

    pub(crate) fn op(&mut self, kind: impl Into<K>) -> OpId {
        let op = OpId(self.number());
        self.ops.insert(op, kind.into());
        op
    }

    pub(crate) fn take_op(&mut self, op: OpId) -> K {
        if let Some(buf) = self.sources.remove(&op) {
            self.release(buf);
        }
        self.ops.remove(&op).expect_held()
    }

    /// Operations in flight, in an order that differs between runs: simulations must not depend on it.
    pub(crate) fn ops(&self) -> impl Iterator<Item = (OpId, &K)> {
        self.ops.iter().map(|(op, kind)| (*op, kind))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.ops.is_empty()
    }

    /// Holds the operation's source buffer until the operation completes.
    pub(crate) fn keep_source(&mut self, op: OpId, source: Source) {
        if let Source::Memory(buf) = source {
            self.retain(buf);
            self.sources.insert(op, buf);
        }
    }

    /// Allocates a buffer with one reference.
    pub(crate) fn alloc(&mut self, len_bytes: u32) -> BufId {
        let buf = BufId(MANAGER_BUF_BIT | self.number());
        self.holds.insert(buf, 1);
        self.emit(Action::Alloc { buf, len_bytes });
        buf
    }

    /// Adopts a client's buffer with one reference.
    pub(crate) fn adopt(&mut self, buf: BufId) {
        let before = self.holds.insert(buf, 1);
        assert!(before.is_none(), "{buf:?} submitted twice");
    }

    pub(crate) fn retain(&mut self, buf: BufId) {
        *self.holds.get_mut(&buf).expect_held() += 1;
    }

    /// Drops a reference; the last one frees the buffer.
    pub(crate) fn release(&mut self, buf: BufId) {
        let holds = self.holds.get_mut(&buf).expect_held();
        *holds -= 1;
        if *holds == 0 {
            self.holds.remove(&buf);
            self.emit(Action::Free { buf });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out<K>(port: &mut Port<K>) -> Vec<Action> {
        let mut actions = Vec::new();
        port.swap_out(&mut actions);
        actions
    }

    #[test]
    fn a_source_outlives_its_other_holds_until_the_operation_ends() {
        let mut port = Port::<&str>::default();
        let buf = port.alloc(4096);
        let op = port.op("read");
        port.keep_source(op, Source::Memory(buf));
        port.release(buf);
        assert!(matches!(out(&mut port)[..], [Action::Alloc { len_bytes: 4096, .. }]));
        assert_eq!(port.take_op(op), "read");
        assert!(matches!(out(&mut port)[..], [Action::Free { buf: freed }] if freed == buf));
        assert!(port.is_idle());
    }

    #[test]
    fn a_buffer_is_freed_with_its_last_hold() {
        let mut port = Port::<()>::default();
        let buf = BufId(7);
        port.adopt(buf);
        port.retain(buf);
        port.release(buf);
        assert!(out(&mut port).is_empty());
        port.release(buf);
        assert!(matches!(out(&mut port)[..], [Action::Free { .. }]));
        port.adopt(buf);
    }

    #[test]
    #[should_panic(expected = "submitted twice")]
    fn a_buffer_in_use_is_not_adopted_again() {
        let mut port = Port::<()>::default();
        port.adopt(BufId(7));
        port.adopt(BufId(7));
    }

    #[test]
    #[should_panic(expected = "lost track")]
    fn an_operation_ends_once() {
        let mut port = Port::<()>::default();
        let op = port.op(());
        port.take_op(op);
        port.take_op(op);
    }

    #[test]
    fn numbers_of_operations_and_buffers_rise_together() {
        let mut port = Port::<()>::default();
        let (first, limit) = (port.op(()), port.next_number());
        assert!(first.0 < limit);
        let buf = port.alloc(512);
        assert_eq!(buf.0, MANAGER_BUF_BIT | limit);
        assert_eq!(port.op(()).0, limit + 1);
        assert_eq!(port.ops().count(), 2);
    }
}
