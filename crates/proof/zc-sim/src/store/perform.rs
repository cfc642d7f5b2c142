//! What the store's device does: it carries out, fails, forgets, mistakes one place for another, dies and comes back.

use rand::RngExt as _;
use zc_core::{BufId, Codec, ErrorKind, OpId};
use zc_store::seam::{Encoded, FetchPart, FetchTo, PieceData};
use zc_store::{Action, Event, Store, Superblock, payload_crc};

use super::world::{Buf, CHUNK, Pending, SEGMENT, StoreCanary, World, stored_bytes, stored_len};
use crate::disk::PAGE;

/// Distance between the superblocks.
const SUPERBLOCK_STEP: usize = 64 << 10;

impl World {
    /// One operation in flight ends.
    pub(crate) fn step(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let index = self.rng.random_range(0..self.pending.len());
        let pending = self.pending.swap_remove(index);
        let event = self.perform(pending);
        self.give(event);
    }

    fn perform(&mut self, pending: Pending) -> Event {
        match pending.action {
            Action::ReadBlock { op, offset_bytes } => {
                let at = offset_bytes as usize;
                let block = self.disk.seen[at..at + PAGE].first_chunk().map(|block| Box::new(*block));
                Event::BlockRead { op, result: block.ok_or(ErrorKind::Io) }
            }
            Action::WriteBatch { .. } | Action::WriteSuperblock { .. } => self.perform_write(&pending.action),
            Action::Discard { op, .. } if self.rng.random_bool(0.02) => {
                self.note("discards refused");
                Event::Done { op, result: Err(ErrorKind::Io) }
            }
            // Contents may stay: cheaper here than zeros, which a power cut may take back block by block.
            Action::Discard { op, .. } if self.rng.random_bool(0.9) => Event::Done { op, result: Ok(()) },
            Action::Discard { op, .. } => {
                self.note("discards that clear");
                let (_, at, bytes) = self.write_of(&pending.action);
                self.disk.write_now(at, &bytes);
                Event::Done { op, result: Ok(()) }
            }
            Action::FlushDevice { op } => {
                if self.happens(self.faults.write_errors) {
                    self.note("flush errors");
                    self.fenced = true;
                    self.lost_unflushed = true;
                    self.disk.lose_unflushed(&mut self.rng, |_| true);
                    return Event::Done { op, result: Err(ErrorKind::Io) };
                }
                self.disk.flush(pending.issued, &mut self.rng);
                Event::Done { op, result: Ok(()) }
            }
            Action::Fetch { op, parts, to, .. } => self.fetch(op, &parts, to, &pending.memory),
            Action::Encode { op, chunks, codec } => {
                let chunks = chunks.into_iter().map(|raw| self.encode(raw, codec)).collect();
                Event::Encoded { op, chunks }
            }
            other => unreachable!("{other:?} takes effect at once"),
        }
    }

    /// Some chunks stay raw, the others get shorter, each to a length of its own.
    fn encode(&mut self, raw: zc_core::BufSlice, codec: Codec) -> Encoded {
        let Buf::Raw(value) = self.bufs[&raw.buf] else { unreachable!("a chunk was given raw") };
        let len_bytes = stored_len(value);
        let bytes = stored_bytes(value, len_bytes);
        let crc = payload_crc(&bytes);
        if len_bytes == CHUNK {
            return Encoded { bytes: raw, codec: Codec::Raw, crc };
        }
        let buf = self.buf(Buf::Stored(bytes));
        Encoded { bytes: zc_core::BufSlice { buf, start_bytes: 0, len_bytes }, codec, crc }
    }

    fn write_of(&self, action: &Action) -> (OpId, usize, Vec<u8>) {
        match action {
            Action::WriteBatch { op, offset_bytes, len_bytes, header, pieces } => {
                let mut bytes = vec![0; *len_bytes as usize];
                bytes[..PAGE].copy_from_slice(&header[..]);
                for piece in pieces {
                    let data = match &piece.data {
                        PieceData::Payload(slice) => self.bytes_of(*slice),
                        PieceData::Page(page) => page.to_vec(),
                    };
                    let at = piece.offset_bytes as usize;
                    bytes[at..at + data.len()].copy_from_slice(&data);
                }
                (*op, *offset_bytes as usize, bytes)
            }
            Action::WriteSuperblock { op, copy, superblock } => {
                (*op, Superblock::offset_bytes(*copy) as usize, superblock.encode(*copy).to_vec())
            }
            Action::Discard { op, offset_bytes, len_bytes } => {
                (*op, *offset_bytes as usize, vec![0; *len_bytes as usize])
            }
            other => unreachable!("{other:?} is no write"),
        }
    }

    fn perform_write(&mut self, action: &Action) -> Event {
        let (op, at, bytes) = self.write_of(action);
        if self.happens(self.faults.write_errors) {
            self.note("write errors");
            self.fenced = true;
            let kept = self.rng.random_range(0..=bytes.len() / 512) * 512;
            self.disk.write_now(at, &bytes[..kept]);
            let kind = if self.rng.random_bool(0.5) { ErrorKind::Io } else { ErrorKind::NoSpace };
            return Event::Done { op, result: Err(kind) };
        }
        if self.happens(self.faults.lost) {
            self.note("writes lost");
            return Event::Done { op, result: Ok(()) };
        }
        let at = if self.happens(self.faults.misdirected) {
            self.note("writes misdirected");
            let blocks = (self.disk.seen.len() - bytes.len()) / PAGE;
            self.rng.random_range(0..=blocks) * PAGE
        } else {
            at
        };
        self.disk.write_now(at, &bytes);
        Event::Done { op, result: Ok(()) }
    }

    fn fetch(&mut self, op: OpId, parts: &[FetchPart], to: FetchTo, memory: &[Option<Vec<u8>>]) -> Event {
        let mut results = Vec::new();
        for (number, (part, memory)) in (0..).zip(parts.iter().zip(memory)) {
            let len = part.stored.stored_bytes as usize;
            let at = Superblock::device_offset(part.stored.place, SEGMENT) as usize;
            let on_disk = || self.disk.seen.get(at..at + len).map(<[u8]>::to_vec).unwrap_or_default();
            let bytes = memory.clone().unwrap_or_else(on_disk);
            let trusts = self.canary == Some(StoreCanary::TrustContents) && bytes.len() >= 8;
            let good = trusts || payload_crc(&bytes) == part.stored.crc;
            if memory.is_some() {
                self.note("contents from memory");
            }
            if let FetchTo::Stored(first) = to {
                self.bufs.insert(BufId(first.0 + number), Buf::Stored(bytes.clone()));
            }
            if let (true, FetchTo::Decoded(dest)) = (good, to)
                && let Some(Buf::Dest(values)) = self.bufs.get_mut(&dest)
            {
                let value = u64::from_le_bytes(*bytes.first_chunk().expect("a chunk has eight bytes"));
                values[(part.dest_offset_bytes / CHUNK) as usize] = value;
            }
            results.push(if good { Ok(()) } else { Err(ErrorKind::Corrupt) });
        }
        Event::Fetched { op, results }
    }

    /// Flips some bits of what is stored.
    pub(crate) fn rot(&mut self) {
        self.note("bits rotted");
        self.rots += 1;
        let blocks = self.disk.seen.len() / PAGE;
        let at = self.rng.random_range(0..blocks) * PAGE + self.rng.random_range(0..PAGE);
        let magic = &self.disk.seen[at / PAGE * PAGE..][4..8];
        self.is_metadata_rotten |= magic == b"zcSp" || magic == b"zcSb" || at < 2 * SUPERBLOCK_STEP;
        let byte = self.disk.seen[at] ^ (1 << self.rng.random_range(0..8));
        self.disk.damage(at, &[byte]);
    }

    /// The power goes. Writes in flight happen or not.
    pub(crate) fn cut(&mut self) {
        for pending in core::mem::take(&mut self.pending) {
            let is_write = matches!(
                pending.action,
                Action::WriteBatch { .. } | Action::WriteSuperblock { .. } | Action::Discard { .. }
            );
            if is_write && self.rng.random_bool(0.5) {
                let (_, at, bytes) = self.write_of(&pending.action);
                self.disk.write_now(at, &bytes);
            }
        }
        if self.rng.random_bool(0.8) {
            self.disk.power_cut(&mut self.rng);
        }
        self.forget();
    }

    /// The daemon is gone, and all it had in memory.
    pub(crate) fn forget(&mut self) {
        self.say(|| "--- crash".to_owned());
        self.pending.clear();
        self.bufs.clear();
        self.waiting.clear();
        self.opened = None;
        self.stopped = false;
        self.fenced = false;
        self.lost_unflushed = false;
        self.has_dropped = false;
        self.rots_before = core::mem::take(&mut self.rots);
        let mut out = Vec::new();
        self.store = Store::open(self.config.clone(), self.rng.random(), &mut out);
        self.restart(out);
    }
}
