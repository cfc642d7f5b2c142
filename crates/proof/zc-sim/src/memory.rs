//! Memory of the process: buffers, cached fingerprints and encodings of whole extents in them, and the workers that
//! hash, compress and compare.
//!
//! Reads keep fingerprints and encodings of whole extents for origins that store contents as the cache does. A kept
//! value that does not match its bytes would later put wrong data into a store. Therefore each is compared with the
//! bytes when they are written to an origin of any kind, and a write into bytes with kept values is a violation.

use std::collections::{BTreeMap, BTreeSet};

use zc_cache::seam::{Action, Digest, Event, ExtentRead};
use zc_core::{BufId, BufSlice, Codec, DedupDomain, FingerprintKind};
use zc_pool::KnownChunk;
use zc_reduce::Reducer;

use crate::env::Env;

pub(crate) struct Memory {
    bufs: BTreeMap<BufId, Vec<u8>>,
    /// Values kept for whole extents, by offset in the buffer.
    known: BTreeMap<BufId, BTreeMap<u32, KnownChunk>>,
    /// Memory of abandoned operations, which nothing else may change.
    leased: Vec<BufSlice>,
    reducer: Reducer,
    extent_bytes: u32,
}

impl Memory {
    pub(crate) fn new(extent_bytes: u32) -> Self {
        Self {
            bufs: BTreeMap::new(),
            known: BTreeMap::new(),
            leased: Vec::new(),
            reducer: Reducer::new(),
            extent_bytes,
        }
    }

    pub(crate) const fn reducer(&mut self) -> &mut Reducer {
        &mut self.reducer
    }

    /// Adds a buffer with these bytes, which the manager or a client now owns.
    pub(crate) fn insert(&mut self, buf: BufId, bytes: Vec<u8>) {
        assert!(self.bufs.insert(buf, bytes).is_none(), "{buf:?} is there already");
    }

    pub(crate) fn free(&mut self, buf: BufId) {
        self.bufs.remove(&buf).expect("freed once");
        // The driver keeps the memory; its number may be used again.
        self.leased.retain(|leased| leased.buf != buf);
        self.known.remove(&buf);
    }

    /// Leases memory to an abandoned operation.
    pub(crate) fn lease(&mut self, memory: BufSlice) {
        self.leased.push(memory);
    }

    /// An abandoned operation has ended.
    pub(crate) fn end_lease(&mut self, memory: BufSlice) {
        if let Some(index) = self.leased.iter().position(|leased| *leased == memory) {
            self.leased.swap_remove(index);
        }
    }

    /// All abandoned operations have ended.
    pub(crate) fn end_leases(&mut self) {
        self.leased.clear();
    }

    /// Drops all buffers at the end of the process.
    pub(crate) fn clear(&mut self) {
        self.bufs.clear();
    }

    /// Drops the kept values with the manager.
    pub(crate) fn forget_known(&mut self) {
        self.known.clear();
    }

    /// Drops all other buffers.
    pub(crate) fn keep_only(&mut self, bufs: &BTreeSet<BufId>) {
        self.bufs.retain(|buf, _| bufs.contains(buf));
    }

    /// Fills all buffers with zeros.
    pub(crate) fn wipe(&mut self) {
        self.bufs.values_mut().for_each(|bytes| bytes.fill(0));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bufs.is_empty()
    }

    pub(crate) fn bufs(&self) -> impl Iterator<Item = BufId> + '_ {
        self.bufs.keys().copied()
    }

    pub(crate) fn bytes(&self, buf: BufId) -> &[u8] {
        self.bufs.get(&buf).unwrap_or_else(|| panic!("{buf:?} is not there"))
    }

    pub(crate) fn bytes_mut(&mut self, buf: BufId) -> &mut [u8] {
        self.bufs.get_mut(&buf).unwrap_or_else(|| panic!("{buf:?} is not there"))
    }

    pub(crate) fn slice(&self, s: BufSlice) -> Vec<u8> {
        let at = s.start_bytes as usize;
        self.bytes(s.buf)[at..at + s.len_bytes as usize].to_vec()
    }

    pub(crate) fn put(&mut self, env: &mut Env, s: BufSlice, data: &[u8]) {
        self.keeps_nothing_of(env, s);
        let end = s.start_bytes + s.len_bytes;
        let overlaps = |leased: &&BufSlice| {
            leased.buf == s.buf
                && leased.start_bytes < end
                && s.start_bytes < leased.start_bytes + leased.len_bytes
        };
        if let Some(leased) = self.leased.iter().find(overlaps) {
            env.violate(format!("{s:?} changes, although an abandoned operation has {leased:?}"));
        }
        let at = s.start_bytes as usize;
        self.bytes_mut(s.buf)[at..at + s.len_bytes as usize].copy_from_slice(data);
    }

    /// Keeps the fingerprint and encoding of a decoded extent, if requested.
    pub(crate) fn keep(&mut self, part: &ExtentRead, codec: Codec, payload: &[u8], raw: &[u8]) {
        if !part.keep {
            return;
        }
        let print = match &part.proof {
            Some(proof) if proof.kind == FingerprintKind::Blake3 && proof.domain == DedupDomain::COMMON => {
                Some(zc_reduce::fingerprint(proof.kind, &proof.domain, raw))
            }
            Some(_) => None,
            None => part.expected.print,
        };
        let encoding = (codec != Codec::Raw).then(|| (codec, payload.to_vec().into()));
        let of_buf = self.known.entry(part.dest.buf).or_default();
        of_buf.insert(part.dest.start_bytes, KnownChunk { print, encoding });
    }

    /// Checks that no value is kept for bytes of a buffer that are about to change.
    fn keeps_nothing_of(&self, env: &mut Env, bytes: BufSlice) {
        let end = bytes.start_bytes + bytes.len_bytes;
        let Some(known) = self.known.get(&bytes.buf) else { return };
        let kept = known.range(..end).next_back().map(|(at, _)| *at);
        if kept.is_some_and(|at| at + self.extent_bytes > bytes.start_bytes) {
            env.violate(format!("{bytes:?} change, although what was read of them is kept"));
        }
    }

    /// Returns the values kept for whole extents among bytes written to an origin, by the offset from the first byte.
    /// Each is compared with the bytes.
    pub(crate) fn known_in(&mut self, env: &mut Env, bytes: BufSlice) -> Vec<(u32, KnownChunk)> {
        let extent_bytes = self.extent_bytes;
        let end = bytes.start_bytes + bytes.len_bytes;
        let Some(known) = self.known.get(&bytes.buf) else { return Vec::new() };
        let known = known.range(bytes.start_bytes..).take_while(|(at, _)| **at + extent_bytes <= end);
        let known: Vec<(u32, KnownChunk)> = known.map(|(at, known)| (*at, known.clone())).collect();
        for (at, known) in &known {
            let extent = BufSlice { start_bytes: *at, len_bytes: extent_bytes, ..bytes };
            self.judge_known(env, extent, known);
        }
        known.into_iter().map(|(at, known)| (at - bytes.start_bytes, known)).collect()
    }

    fn judge_known(&mut self, env: &mut Env, extent: BufSlice, known: &KnownChunk) {
        let raw = self.slice(extent);
        if let Some(print) = known.print {
            env.note("extents to origins with their fingerprint");
            if print != zc_reduce::fingerprint(FingerprintKind::Blake3, &DedupDomain::COMMON, &raw) {
                env.violate(format!("{extent:?} goes to an origin with the fingerprint of other bytes"));
            }
        }
        if let Some((codec, encoding)) = &known.encoding {
            env.note("extents to origins with their encoding");
            let mut decoded = vec![0; raw.len()];
            if self.reducer.decompress(*codec, encoding, &mut decoded).is_err() || decoded != raw {
                env.violate(format!("{extent:?} goes to an origin with the encoding of other bytes"));
            }
        }
    }

    /// Executes a job of the workers on buffers.
    pub(crate) fn work(&mut self, action: &Action, kind: FingerprintKind) -> Event {
        match action {
            Action::Hash { op, src, domain } => {
                let bytes = self.slice(*src);
                let digest = if zc_reduce::is_zero(&bytes) {
                    Digest::Zero
                } else {
                    Digest::Print(zc_reduce::fingerprint(kind, domain, &bytes))
                };
                Event::Hashed { op: *op, digest }
            }
            Action::Compress { op, src, codec, max_bytes, out } => {
                let bytes = self.slice(*src);
                let mut stored = vec![0; *max_bytes as usize];
                let len = self.reducer.compress(*codec, &bytes, &mut stored);
                self.bufs.insert(*out, stored).expect("allocated before");
                Event::Compressed { op: *op, stored_bytes: len.map(|len| len as u32) }
            }
            Action::Compare { op, left, right } => {
                Event::Compared { op: *op, equal: self.slice(*left) == self.slice(*right) }
            }
            other => panic!("{other:?} is no work"),
        }
    }
}
