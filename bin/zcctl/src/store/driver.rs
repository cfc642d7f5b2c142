//! A blocking driver of a store: every action is carried out at once, on this thread.
//!
//! Job: give [`zc_store::Store`] its device, buffers, hashing and compression until a request is answered.
//! Invariants: the file or device is locked against a daemon and other commands for as long as the driver lives; what
//! was written is durable when [`Driver::close`] returns. What it does not do: more than one request at a time.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::{Context as _, bail};
use zc_core::{BufId, BufSlice, Codec, DedupDomain, ErrorKind, FingerprintKind, Map, ReqId};
use zc_io::{AlignedBuf, BlockFile, OpenOptions};
use zc_reduce::Reducer;
use zc_store::seam::{Encoded, FetchPart, FetchTo, NewChunk, PieceData, Request, RequestKind, StoreError};
use zc_store::{Action, BLOCK, Config, Event, Store, Superblock, Surveyed, payload_crc};

/// Ticks without work after which a request that is not answered is held to be forgotten.
const IDLE_TICKS_MAX: u32 = 100_000;
/// What a tick tells the store to have passed: the cleaner has all the bandwidth that it is allowed.
const TICK_MS: u64 = 1000;

/// An open store.
pub(super) struct Driver {
    file: BlockFile,
    pub(super) store: Store,
    queue: VecDeque<Action>,
    bufs: Map<BufId, Vec<u8>>,
    reply: Option<Result<(), StoreError>>,
    surveyed: Option<Surveyed>,
    opened: Option<Result<(), StoreError>>,
    is_stopped: bool,
    next: u64,
    now_ms: u64,
    reducer: Reducer,
}

/// Opens a file or device for this command alone.
pub(super) fn lock(path: &Path, create_len: Option<u64>) -> anyhow::Result<BlockFile> {
    let options = OpenOptions { direct: false, write: true, create_len };
    Ok(BlockFile::open(path, options)?)
}

/// A number that no other opening has.
pub(super) fn nonce() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

impl Driver {
    /// Opens the store: recovery, and a first checkpoint.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = lock(path, None)?;
        let mut actions = Vec::new();
        let store = Store::open(Config::default(), nonce(), &mut actions);
        let mut driver = Self {
            file,
            store,
            queue: actions.into(),
            bufs: Map::default(),
            reply: None,
            surveyed: None,
            opened: None,
            is_stopped: false,
            next: 0,
            now_ms: 0,
            reducer: Reducer::new(),
        };
        driver.work_until(|driver| driver.opened.is_some())?;
        if let Some(Err(error)) = driver.opened {
            bail!("{} cannot be opened as a store: {error}", path.display());
        }
        Ok(driver)
    }

    /// Makes everything durable and lets go of the device.
    pub(super) fn close(mut self) -> anyhow::Result<()> {
        self.give(Event::Stop);
        self.work_until(|driver| driver.is_stopped)
    }

    /// Carries out one request.
    pub(super) fn ask(&mut self, kind: RequestKind) -> anyhow::Result<Result<(), StoreError>> {
        self.next += 1;
        self.reply = None;
        self.give(Event::Submit(Request { req: ReqId(self.next), kind }));
        self.work_until(|driver| driver.reply.is_some() || driver.surveyed.is_some())?;
        Ok(self.reply.take().unwrap_or(Ok(())))
    }

    /// Asks about the whole pool.
    pub(super) fn survey(&mut self, kind: zc_store::SurveyKind) -> anyhow::Result<Surveyed> {
        self.surveyed = None;
        self.ask(RequestKind::Survey(kind))??;
        self.surveyed.take().context("the store gave no answer")
    }

    /// Frees what can be freed.
    pub(super) fn clean(&mut self) -> anyhow::Result<()> {
        self.give(Event::Clean);
        self.work_until(|driver| !driver.store.is_busy())
    }

    /// Reads chunks of a volume or snapshot.
    pub(super) fn read(&mut self, at: (zc_store::RootId, u64, u32), bytes: usize) -> anyhow::Result<Vec<u8>> {
        let dest = self.buf(vec![0; bytes]);
        let (root, first, count) = at;
        self.ask(RequestKind::Read { root, first, count, dest })??;
        self.bufs.remove(&dest).context("the destination of a read is kept")
    }

    /// Stores one chunk.
    pub(super) fn write(&mut self, at: (zc_store::RootId, u64), bytes: Vec<u8>) -> anyhow::Result<()> {
        let print = zc_reduce::fingerprint(FingerprintKind::Blake3, &DedupDomain::COMMON, &bytes);
        let len_bytes = u32::try_from(bytes.len()).context("a chunk is short")?;
        let raw = BufSlice { buf: self.buf(bytes), start_bytes: 0, len_bytes };
        let chunks = vec![NewChunk::Data { print: Some(print), raw }];
        self.ask(RequestKind::Write { root: at.0, first: at.1, chunks })??;
        Ok(())
    }

    fn buf(&mut self, bytes: Vec<u8>) -> BufId {
        self.next += 1;
        self.bufs.insert(BufId(self.next), bytes);
        BufId(self.next)
    }

    fn give(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.store.handle(event, &mut actions);
        self.queue.extend(actions);
    }

    fn work_until(&mut self, is_done: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let mut idle = 0;
        while !is_done(self) {
            if let Some(action) = self.queue.pop_front() {
                idle = 0;
                if let Some(event) = self.perform(action) {
                    self.give(event);
                }
                continue;
            }
            idle += 1;
            if idle > IDLE_TICKS_MAX {
                bail!("the store does not go on; please report this");
            }
            self.now_ms += TICK_MS;
            self.give(Event::Tick { now_ms: self.now_ms });
        }
        Ok(())
    }

    fn perform(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Reply { result, .. } => self.reply = Some(result),
            Action::Surveyed { surveyed, .. } => self.surveyed = Some(*surveyed),
            Action::Recipe { .. } => {}
            Action::Free { buf } => drop(self.bufs.remove(&buf)),
            Action::Opened { result } => self.opened = Some(result),
            Action::Stopped => self.is_stopped = true,
            Action::ReadBlock { op, offset_bytes } => {
                let block = self.file.read_blocking(offset_bytes, BLOCK).map_err(|error| error.kind());
                let block = block.map(|bytes| bytes.first_chunk().map(|block| Box::new(*block)));
                let result = block.and_then(|block| block.ok_or(ErrorKind::Io));
                return Some(Event::BlockRead { op, result });
            }
            Action::Fetch { op, parts, to, .. } => {
                let results = (0..).zip(parts).map(|(number, part)| self.fetch(&part, to, number)).collect();
                return Some(Event::Fetched { op, results });
            }
            Action::Encode { op, codec, chunks } => {
                let chunks = chunks.into_iter().map(|raw| self.encode(raw, codec)).collect();
                return Some(Event::Encoded { op, chunks });
            }
            Action::WriteBatch { op, offset_bytes, len_bytes, header, pieces } => {
                let mut bytes = AlignedBuf::new(zc_core::usize_from_u32(len_bytes));
                bytes[..BLOCK].copy_from_slice(&header[..]);
                for piece in pieces {
                    let at = zc_core::usize_from_u32(piece.offset_bytes);
                    let data = match &piece.data {
                        PieceData::Payload(slice) => self.bytes(*slice),
                        PieceData::Page(page) => &page[..],
                    };
                    bytes[at..at + data.len()].copy_from_slice(data);
                }
                let result = self.file.write_blocking(offset_bytes, &bytes).map_err(|error| error.kind());
                return Some(Event::Done { op, result });
            }
            Action::WriteSuperblock { op, copy, superblock } => {
                let bytes = AlignedBuf::from(&superblock.encode(copy)[..]);
                let result = self
                    .file
                    .write_blocking(Superblock::offset_bytes(copy), &bytes)
                    .map_err(|error| error.kind());
                return Some(Event::Done { op, result });
            }
            Action::FlushDevice { op } => {
                let result = self.file.sync_blocking().map_err(|error| error.kind());
                return Some(Event::Done { op, result });
            }
        }
        None
    }

    fn bytes(&self, slice: BufSlice) -> &[u8] {
        let start = zc_core::usize_from_u32(slice.start_bytes);
        let range = start..start + zc_core::usize_from_u32(slice.len_bytes);
        self.bufs.get(&slice.buf).and_then(|bytes| bytes.get(range)).unwrap_or_default()
    }

    fn fetch(&mut self, part: &FetchPart, to: FetchTo, number: u64) -> Result<(), ErrorKind> {
        let stored = part.stored;
        let len = zc_core::usize_from_u32(stored.stored_bytes);
        let bytes = match part.memory {
            Some(slice) => self.bytes(slice).to_vec(),
            None => {
                // A superblock's size of segments is the store's; it is the same until the store is closed.
                let segment_bytes = self.store.segment_bytes().ok_or(ErrorKind::Io)?;
                let offset = Superblock::device_offset(stored.place, segment_bytes);
                let block = zc_core::u64_from_usize(BLOCK);
                let start = offset / block * block;
                let skip = zc_core::usize_from_u64(offset - start);
                let whole = (skip + len).next_multiple_of(BLOCK);
                let read = self.file.read_blocking(start, whole).map_err(|error| error.kind())?;
                read[skip..skip + len].to_vec()
            }
        };
        let is_good = payload_crc(&bytes) == stored.crc;
        match to {
            FetchTo::Stored(first) => drop(self.bufs.insert(BufId(first.0 + number), bytes)),
            FetchTo::Decoded(dest) if is_good => {
                let at = zc_core::usize_from_u32(part.dest_offset_bytes);
                let range = at..at + zc_core::usize_from_u32(stored.raw_bytes);
                let dest = self.bufs.get_mut(&dest).and_then(|dest| dest.get_mut(range));
                let dest = dest.ok_or(ErrorKind::Invalid)?;
                self.reducer.decompress(stored.codec, &bytes, dest).map_err(|_| ErrorKind::Corrupt)?;
            }
            FetchTo::Decoded(_) | FetchTo::Nowhere => {}
        }
        if is_good { Ok(()) } else { Err(ErrorKind::Corrupt) }
    }

    fn encode(&mut self, raw: BufSlice, codec: Codec) -> Encoded {
        let bytes = self.bytes(raw).to_vec();
        let mut out = vec![0; bytes.len() - bytes.len() / 16];
        match self.reducer.compress(codec, &bytes, &mut out) {
            Some(len) => {
                out.truncate(len);
                let crc = payload_crc(&out);
                let len_bytes = u32::try_from(len).unwrap_or(u32::MAX);
                Encoded { bytes: BufSlice { buf: self.buf(out), start_bytes: 0, len_bytes }, codec, crc }
            }
            None => Encoded { bytes: raw, codec: Codec::Raw, crc: payload_crc(&bytes) },
        }
    }
}
