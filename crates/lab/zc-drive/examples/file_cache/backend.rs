//! Executor of the manager's actions. The origin is a file; nothing is compressed or shared.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use zc_cache::CacheManager;
use zc_cache::seam::{Digest, PartResults};
use zc_core::{
    BufId, BufSlice, Codec, DedupDomain, ErrorKind, FingerprintKind, ReqId, VolumeId, WeuSlot, usize_from_u32,
};
use zc_drive::{Backend, Ended, OriginOp, Piece, UnitWrite};
use zc_format::{ExtentHeader, Salt};

use crate::memory::Memory;

/// The manager and what it manages.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) manager: CacheManager,
    pub(crate) memory: Memory,
    pub(crate) salt: Salt,
    pub(crate) file: File,
    /// Reads that reached the file.
    pub(crate) file_reads: u32,
    /// Result of the last request. Its buffer, which has the request's number, is freed after the reply.
    pub(crate) reply: Result<Vec<u8>, ErrorKind>,
}

impl Backend for Cache {
    fn manager(&mut self) -> &mut CacheManager {
        &mut self.manager
    }

    fn reply(&mut self, req: ReqId, result: Ended) {
        self.reply = result.map(|()| self.memory.bufs[&BufId(req.0)].clone());
    }

    fn hash(&mut self, src: BufSlice, domain: &DedupDomain) -> Digest {
        Digest::Print(zc_reduce::fingerprint(FingerprintKind::Blake3, domain, self.memory.slice(src)))
    }

    fn compress(&mut self, _src: BufSlice, _codec: Codec, _max_bytes: u32, _out: BufId) -> Option<u32> {
        None
    }

    fn alloc(&mut self, buf: BufId, len_bytes: u32) {
        self.memory.bufs.insert(buf, vec![0; usize_from_u32(len_bytes)]);
    }

    fn free(&mut self, buf: BufId) {
        self.memory.bufs.remove(&buf);
    }

    fn copy(&mut self, from: BufSlice, to: BufSlice) {
        let bytes = self.memory.slice(from).to_vec();
        self.memory.slice(to).copy_from_slice(&bytes);
    }

    fn place(&mut self, weu: BufId, offset_bytes: u32, header: &ExtentHeader, payload: BufSlice) {
        self.memory.seal(weu, offset_bytes, header, payload, self.salt);
    }

    fn origin(&mut self, _volume: VolumeId, op: OriginOp) -> Ended {
        let OriginOp::Read { offset_bytes, dest } = op else { return Err(ErrorKind::ReadOnly) };
        self.file_reads += 1;
        let bytes = self.memory.slice(dest);
        self.file.read_exact_at(bytes, offset_bytes).map_err(|_| ErrorKind::Io)
    }

    fn read_extents(&mut self, piece: &Piece) -> Result<PartResults, ErrorKind> {
        let unit = self.memory.unit(piece.source, piece.slot);
        Ok(piece.parts.iter().map(|part| self.memory.copy_out(&unit, part)).collect())
    }

    fn write_unit(&mut self, slot: WeuSlot, weu: BufId, _write: UnitWrite) -> Ended {
        self.memory.slots.insert(slot, self.memory.bufs[&weu].clone());
        Ok(())
    }
}
