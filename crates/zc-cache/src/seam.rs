//! The seam: events in, actions out.
//!
//! Job: the vocabulary between the [`crate::CacheManager`] and whatever drives it (the daemon's I/O threads, the
//! simulator). Bytes never cross it, facts about bytes do: buffers have ids, fingerprints and sizes are values.
//!
//! Rules a driver keeps:
//! - Actions are carried out in the order given. [`Action::Copy`], [`Action::Zero`], [`Action::Place`],
//!   [`Action::Summarize`], [`Action::Alloc`] and [`Action::Free`] take effect at once; the rest start work whose
//!   completion is reported with the same [`OpId`] exactly once, in any order.
//! - An event is handled to its end before the next one; results that are available at once are queued, not nested.
//! - A buffer stays alive until [`Action::Free`], whatever else happens. Writes into one buffer that are in progress at
//!   the same time never overlap. Client buffers (those named in a [`Request`]) are owned by the manager from the
//!   submission on; a driver that sends a read reply from one keeps its own hold on it, which it can take with the reply:
//!   the buffer of a read is freed behind that, never before.
//! - Time enters with [`Event::Tick`] alone; a tick every 10 ms or so is enough, none is needed while nothing happens.

use smallvec::SmallVec;
use zc_core::{
    BufId, BufSlice, Codec, DedupDomain, ErrorKind, ExtentKey, ExtentNo, Fingerprint, FingerprintKind, OpId,
    ReqId, SectorSpan, VolumeId, WeuSlot,
};
use zc_format::{
    CheckpointHeader, ExpectedExtent, ExtentError, ExtentHeader, JournalBlock, Record, RegionMap, Summary,
    SummaryPlace, WeuHeader,
};

use crate::config::VolumeConfig;

/// Buffers that the manager names itself have this bit set; drivers number theirs below it.
pub const MANAGER_BUF_BIT: u64 = 1 << 63;

/// A client request. Offsets and lengths are multiples of 512 bytes and inside the volume: front ends check this, and
/// read-modify-write unaligned requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The driver's number; answered by [`Action::Reply`].
    pub req: ReqId,
    /// The volume.
    pub volume: VolumeId,
    /// First byte in the volume.
    pub offset_bytes: u64,
    /// Length in bytes; 0 for a flush.
    pub len_bytes: u64,
    /// Kind of the request.
    pub kind: RequestKind,
}

/// Kinds of client requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// Fill the buffer (of `len_bytes`) with the volume's bytes.
    Read {
        /// Buffer that receives the bytes.
        buf: BufId,
    },
    /// Store the buffer's bytes.
    Write {
        /// Buffer of the bytes.
        buf: BufId,
        /// Acknowledge only when durable.
        fua: bool,
    },
    /// Make all acknowledged writes durable.
    Flush,
    /// The bytes are no longer needed.
    Trim {
        /// Acknowledge only when durable.
        fua: bool,
    },
    /// The bytes read as zero from now on.
    WriteZeroes {
        /// Space must stay allocated on the origin.
        no_hole: bool,
        /// Acknowledge only when durable.
        fua: bool,
    },
    /// Bring the range into the cache; answered at once, done when convenient.
    Prefetch,
    /// Bring the range into the cache for an operator, regardless of the volume's admission. Answered when its absent
    /// extents are read from the origin. The driver bounds the bytes in progress, by
    /// [`CacheManager::has_room_to_warm`](crate::CacheManager::has_room_to_warm): nothing is left out here.
    Warm,
}

impl RequestKind {
    /// Returns `true` if it is acknowledged only when it is durable, as a change of its own.
    pub(crate) const fn is_fua(&self) -> bool {
        match self {
            Self::Write { fua, .. } | Self::Trim { fua } | Self::WriteZeroes { fua, .. } => *fua,
            Self::Read { .. } | Self::Flush | Self::Prefetch | Self::Warm => false,
        }
    }
}

/// Outcomes of the parts of an [`Action::ReadExtents`], in order. Those of a few parts are held in place.
pub type PartResults = SmallVec<[Result<(), ExtentError>; 16]>;

/// Inputs of the manager.
#[derive(Debug)]
pub enum Event {
    /// A client request arrived.
    Submit(Request),
    /// An origin operation completed.
    OriginDone {
        /// The operation.
        op: OpId,
        /// Its outcome.
        result: Result<(), ErrorKind>,
    },
    /// A cache device write, flush or discard, or an [`Action::Distrust`], completed.
    DeviceDone {
        /// The operation.
        op: OpId,
        /// Its outcome.
        result: Result<(), ErrorKind>,
    },
    /// An [`Action::ReadExtents`] completed. `Ok` has one result per part, in order; a part that is `Ok` was verified
    /// and copied to its destination.
    ExtentsRead {
        /// The operation.
        op: OpId,
        /// Outcome of the device read, then of each part.
        result: Result<PartResults, ErrorKind>,
    },
    /// An [`Action::ReadHeader`] completed. `Ok(None)`: the slot holds no valid header.
    HeaderRead {
        /// The operation.
        op: OpId,
        /// The header, verified as far as the slot alone allows.
        result: Result<Option<Box<WeuHeader>>, ErrorKind>,
    },
    /// An [`Action::ReadImage`] completed.
    ImageRead {
        /// The operation.
        op: OpId,
        /// The blocks.
        result: Result<ImageBytes, ErrorKind>,
    },
    /// An [`Action::Hash`] completed.
    Hashed {
        /// The operation.
        op: OpId,
        /// Digest of the bytes.
        digest: Digest,
    },
    /// An [`Action::Compress`] ended: the stored length in bytes, or `None` when it does not get below the limit.
    Compressed {
        /// The operation.
        op: OpId,
        /// Compressed size in bytes; the bytes are at the start of the operation's output buffer.
        stored_bytes: Option<u32>,
    },
    /// An [`Action::Compare`] completed.
    Compared {
        /// The operation.
        op: OpId,
        /// Set if the bytes are equal.
        equal: bool,
    },
    /// An [`Action::WantRecipe`] ended: fingerprints from its first extent on, under the cache's fingerprint function
    /// in the volume's domain,
    /// as far as they are known. Each is of contents that the extent had at some moment since the question.
    RecipeArrived {
        /// The operation.
        op: OpId,
        /// Fingerprints; shorter than requested is fine, so is empty.
        prints: Vec<Option<Fingerprint>>,
    },
    /// The driver detected that the cache device is gone: everything goes to the origins from now on.
    DeviceLost,
    /// Time passed.
    Tick {
        /// Milliseconds since any fixed point; never goes back.
        now_ms: u64,
    },
    /// Bring the dirty data of a volume to the origin without a pause until [`crate::CacheManager::dirty`] reports
    /// none.
    Destage {
        /// The volume.
        volume: VolumeId,
    },
    /// Forget the dirty data of a volume: data that only the cache has is lost. Requests wait until the device has
    /// recorded it. For operators who accept the loss.
    DropDirty {
        /// The volume.
        volume: VolumeId,
        /// The device need not record it: the next start will drop the epochs up to
        /// [`crate::DirtyState::newest_epoch`] again, as `Clean` records from the intent log. If not, and the device
        /// is lost, nothing is forgotten and the volume stays fenced.
        remembered: bool,
    },
    /// Drop only the unreadable dirty data of a volume that was not rewritten since: zeros take its place.
    /// [`crate::CacheManager::is_giving_up`] returns `false` when that is durable. For operators who accept the loss.
    GiveUpUnreadable {
        /// The volume.
        volume: VolumeId,
    },
    /// Serve a volume that is fenced because journal and checkpoint may lack some of its dirty data, with the epochs
    /// that were found: a state that it had, older than the last flushed one. For operators who accept the loss.
    AcceptLoss {
        /// The volume.
        volume: VolumeId,
    },
    /// Forget a volume: its origin is flushed, and its cached contents become invalid, durably. Then comes
    /// [`Note::Removed`]; if that reports success, the volume is unknown, and another one may be added with its
    /// number. Until then no request of it may be submitted, and none may be unanswered. Dirty data is brought to the
    /// origin first, in write-back without a pause if [`Event::Destage`] requested that.
    Remove {
        /// The volume.
        volume: VolumeId,
    },
    /// Erase the contents of removed volumes on the cache device: units with an extent of a volume that is neither
    /// served nor among these are evicted, and their slots and free ones are erased. Continues until
    /// [`CacheManager::is_erasing`](crate::CacheManager::is_erasing) returns `false`.
    Erase {
        /// Volumes that may be added later, and whose content stays.
        keep: Vec<VolumeId>,
    },
    /// Add a volume or change the settings of one that exists. Its region size stays; its size only grows, and its
    /// origin must have grown before.
    Configure(Box<VolumeConfig>),
    /// Stop: finish requests, write the contents of memory, make them durable, then [`Action::Stopped`]. No request
    /// may follow.
    Stop,
}

/// Blocks of the index image, as they are on media.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ImageBytes(pub Vec<u8>);

impl core::fmt::Debug for ImageBytes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// Reason that an index image is not written, or not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ImageFault {
    /// Image that does not fit the area.
    #[error("the indexes do not fit the checkpoint area")]
    NoRoom,
    /// Dirty data stays, and the older checkpoint with it.
    #[error("dirty data stays, and the older checkpoint is kept in case that the newest is damaged")]
    Dirty,
    /// The indexes have another size or layout than when it was written.
    #[error("the indexes have another size than when it was written, or another layout")]
    Shape,
    /// The device cannot read or write it.
    #[error("the cache device failed: {0}")]
    Device(ErrorKind),
    /// The bytes read differ from those written.
    #[error("a part of it is damaged")]
    Damaged,
    /// Checkpoint and journal contradict it about a slot.
    #[error("it does not agree with checkpoint and journal")]
    Slots,
    /// A volume is gone, has changed, or is not trusted.
    #[error("a volume in it is not served, or is not trusted")]
    Volumes,
    /// Too much was written in the meantime, or an origin did not flush.
    #[error("too much has changed while it was read")]
    Overtaken,
}

/// Digest of the bytes of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Digest {
    /// All zero.
    Zero,
    /// Anything else.
    Print(Fingerprint),
}

/// Source of reads of stored extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The WEU slot on the cache device.
    Device,
    /// The WEU's buffer: it is open, or its write has not completed. Decoded at once on the driver's own thread,
    /// because other extents may be placed beside these at any time.
    Memory(BufId),
}

/// One extent of an [`Action::ReadExtents`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExtentRead {
    /// Expected extent (its `offset_bytes` is relative to the slot).
    pub expected: ExpectedExtent,
    /// Bytes of the decoded extent to skip.
    pub skip_bytes: u32,
    /// Destination of the decoded bytes after those.
    pub dest: BufSlice,
    /// Hash the decoded bytes, and compare them with the fingerprint in the header before anything goes to `dest`:
    /// [`ExtentError::Content`] if they differ. That is work for the reduce workers, like an [`Action::Hash`].
    pub proof: Option<Proof>,
    /// Keep the encoding and the fingerprint of the whole extent beside the bytes at `dest`, until that buffer is
    /// freed: the fingerprint that `proof` computes, or `expected.print` without a proof. An origin that stores
    /// contents the same way takes both over with the bytes. Nothing else is written to `dest` from then on.
    pub keep: bool,
}

/// Proof that a stored content matches its fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Proof {
    /// The fingerprint function.
    pub kind: FingerprintKind,
    /// The domain of its volume.
    pub domain: DedupDomain,
}

/// Operations that the driver performs.
#[derive(Debug, Hash)]
pub enum Action {
    /// Answer a client request. For a read the request's buffer holds the bytes.
    Reply {
        /// The request.
        req: ReqId,
        /// Its outcome.
        result: Result<(), ErrorKind>,
    },
    /// Provide a buffer of `len_bytes`, contents arbitrary.
    Alloc {
        /// Number of the buffer.
        buf: BufId,
        /// Its length in bytes.
        len_bytes: u32,
    },
    /// Release a buffer.
    Free {
        /// The buffer.
        buf: BufId,
    },
    /// Copy bytes between buffers; both slices have one length.
    Copy {
        /// Source.
        from: BufSlice,
        /// Destination.
        to: BufSlice,
    },
    /// Fill with zeros.
    Zero {
        /// Buffer to fill.
        dest: BufSlice,
    },
    /// Read from the origin; answered by [`Event::OriginDone`], like all origin operations.
    OriginRead {
        /// The operation.
        op: OpId,
        /// The volume.
        volume: VolumeId,
        /// First byte.
        offset_bytes: u64,
        /// Destination; its length is the length of the read. Bytes past the origin's end read as zero.
        dest: BufSlice,
    },
    /// Write to the origin. The encodings kept of whole extents among the bytes ([`ExtentRead::keep`]) hold for them.
    OriginWrite {
        /// The operation.
        op: OpId,
        /// The volume.
        volume: VolumeId,
        /// First byte.
        offset_bytes: u64,
        /// The bytes.
        src: BufSlice,
        /// Done only when durable.
        fua: bool,
    },
    /// Flush the origin's volatile cache.
    OriginFlush {
        /// The operation.
        op: OpId,
        /// The volume.
        volume: VolumeId,
    },
    /// Discard a range of the origin; later reads of it are undefined but stable.
    OriginTrim {
        /// The operation.
        op: OpId,
        /// The volume.
        volume: VolumeId,
        /// First byte.
        offset_bytes: u64,
        /// Length in bytes.
        len_bytes: u64,
        /// Done only when durable.
        fua: bool,
    },
    /// Make a range of the origin read as zero.
    OriginZero {
        /// The operation.
        op: OpId,
        /// The volume.
        volume: VolumeId,
        /// First byte.
        offset_bytes: u64,
        /// Length in bytes.
        len_bytes: u64,
        /// Keep the space allocated.
        no_hole: bool,
        /// Done only when durable.
        fua: bool,
    },
    /// Read one piece of a slot, verify the extents in it, decode them and copy the requested parts out.
    ReadExtents {
        /// The operation.
        op: OpId,
        /// Device or memory.
        source: Source,
        /// The slot.
        slot: WeuSlot,
        /// First byte to read, relative to the slot, a multiple of 4096.
        start_bytes: u32,
        /// Bytes to read, a multiple of 4096.
        len_bytes: u32,
        /// The extents; each lies inside the piece.
        parts: Vec<ExtentRead>,
        /// A client waits for it: goes before background work.
        urgent: bool,
    },
    /// Request the fingerprints of extents from an origin (Nitro's recipes). Background work: no client waits for it.
    /// Only for volumes configured with recipes; answered by [`Event::RecipeArrived`].
    WantRecipe {
        /// The operation.
        op: OpId,
        /// The volume.
        volume: VolumeId,
        /// First extent.
        first: ExtentNo,
        /// Number of extents.
        count: u32,
        /// In which domain.
        domain: DedupDomain,
    },
    /// Read a slot's WEU header.
    ReadHeader {
        /// The operation.
        op: OpId,
        /// The slot.
        slot: WeuSlot,
        /// Expected header size in bytes if known, else 0.
        hint_bytes: u32,
    },
    /// Fingerprint an extent (step 1 of the insertion path, Nitro 3.2).
    Hash {
        /// The operation.
        op: OpId,
        /// The bytes.
        src: BufSlice,
        /// Domain that separates the content of volumes which do not share.
        domain: DedupDomain,
    },
    /// Compress an extent (step 3).
    Compress {
        /// The operation.
        op: OpId,
        /// The bytes.
        src: BufSlice,
        /// Codec of the result.
        codec: Codec,
        /// Abandon it unless the result has at most this many bytes.
        max_bytes: u32,
        /// Destination of the result; allocated with `max_bytes`.
        out: BufId,
    },
    /// Compare two pieces of memory of one length (before content is shared under a weak fingerprint, G7).
    Compare {
        /// The operation.
        op: OpId,
        /// One.
        left: BufSlice,
        /// The other.
        right: BufSlice,
    },
    /// Seal an extent into an open WEU's buffer: header, payload, padding.
    Place {
        /// The WEU's buffer.
        weu: BufId,
        /// Offset in the slot.
        offset_bytes: u32,
        /// The inline header; its length fields describe the payload.
        header: ExtentHeader,
        /// The stored bytes.
        payload: BufSlice,
    },
    /// Put a summary at the end of a page of a WEU's buffer.
    Summarize {
        /// The WEU's buffer.
        weu: BufId,
        /// The page.
        place: SummaryPlace,
        /// The summary.
        summary: Box<Summary>,
    },
    /// Write a WEU: the bytes from `start_bytes` to `data_bytes`, and the header at its end. Answered by
    /// [`Event::DeviceDone`], like all device operations below.
    WriteWeu {
        /// The operation.
        op: OpId,
        /// The slot.
        slot: WeuSlot,
        /// The WEU's buffer.
        weu: BufId,
        /// Bytes before this one are on the device already; a multiple of 4096.
        start_bytes: u32,
        /// End of the bytes used by extents.
        data_bytes: u32,
        /// The header to encode at the slot's end.
        header: Box<WeuHeader>,
    },
    /// Write a piece of a WEU that is still being filled. Extents may be placed behind the piece in the meantime.
    WritePart {
        /// The operation.
        op: OpId,
        /// The slot.
        slot: WeuSlot,
        /// The WEU's buffer.
        weu: BufId,
        /// First byte, a multiple of 4096.
        start_bytes: u32,
        /// Length, a multiple of 4096.
        len_bytes: u32,
        /// The write ends when it is durable (FUA): a request waits for it, and no flush will follow.
        durable: bool,
    },
    /// Discard a slot's contents on the device. A failure is counted, nothing else.
    DiscardSlot {
        /// The operation.
        op: OpId,
        /// The slot.
        slot: WeuSlot,
        /// From its end on the slot reads as zeros, or it fails.
        erase: bool,
    },
    /// Write a journal block at its place in the ring.
    WriteJournal {
        /// The operation.
        op: OpId,
        /// The block.
        block: Box<JournalBlock>,
        /// The write ends when it is durable (FUA): a request waits for it, and no flush will follow.
        durable: bool,
    },
    /// Write a copy of the region map.
    WriteRegionMap {
        /// The operation.
        op: OpId,
        /// 0 or 1.
        copy: usize,
        /// The map.
        map: Box<RegionMap>,
    },
    /// Write a run of checkpoint blocks: the records fill blocks to the brim, but for the last.
    WriteCheckpoint {
        /// The operation.
        op: OpId,
        /// Area 0 or 1.
        area: usize,
        /// Number of the first block in the area's record blocks.
        first_block: u64,
        /// Checkpoint sequence, to bind the blocks to.
        sequence: u64,
        /// The records.
        records: Vec<Record>,
    },
    /// Write a checkpoint's header block.
    CommitCheckpoint {
        /// The operation.
        op: OpId,
        /// Area 0 or 1.
        area: usize,
        /// The header.
        header: Box<CheckpointHeader>,
    },
    /// Write blocks of the index image.
    WriteImage {
        /// The operation.
        op: OpId,
        /// Checkpoint area 0 or 1.
        area: usize,
        /// Number of the first block in the area, of which block 0 is the head.
        first_block: u64,
        /// Whole blocks.
        bytes: ImageBytes,
    },
    /// Read blocks of the index image; answered by [`Event::ImageRead`].
    ReadImage {
        /// The operation.
        op: OpId,
        /// Checkpoint area 0 or 1.
        area: usize,
        /// Number of the first block in the area.
        first_block: u64,
        /// Number of blocks.
        blocks: u32,
    },
    /// Flush the cache device: everything that completed before is durable when it completes.
    FlushCache {
        /// The operation.
        op: OpId,
    },
    /// The cache device has not answered for too long. If it still has the operation, the driver reports its
    /// completion now, as [`ErrorKind::TimedOut`], and drops the device's later result: no bytes of it reach a
    /// buffer. If the device has answered, the completion is reported as it would have been. Memory that the
    /// operation reads from or writes to is the driver's until the device answers.
    Abandon {
        /// The operation.
        op: OpId,
    },
    /// Record outside the cache device, durably, that its clean contents are not to be trusted any more.
    /// Answered by [`Event::DeviceDone`].
    Distrust {
        /// The operation.
        op: OpId,
        /// One volume, or all of them.
        volume: Option<VolumeId>,
    },
    /// Append the record to the intent log: a plain file that outlives the process but need not outlive the machine,
    /// written without a flush. It must be written before any operation of a later action reaches a device (one write
    /// a turn, before the turn's operations are submitted, does). After `kill -9` on a machine that kept running,
    /// checkpoint + journal + intent log are complete, so that nothing has to be distrusted. A failure to write it is
    /// no error: the driver removes the file's validity mark and continues.
    Intent {
        /// The record.
        record: Record,
    },
    /// The first `records` intents since the start (counted over the whole session) are in the journal already:
    /// before any operation of a later action reaches a device, the log forgets them. A restart records again the
    /// contents of the log; if these were in the journal too, a crash in the midst of that would leave an older state
    /// on top of a newer.
    IntentTrim {
        /// Number of records.
        records: u64,
    },
    /// From here on the intent log may be relied upon: the index is loaded. The driver marks it valid for this session
    /// and boot; before, a killed daemon restarts as after a power cut.
    IntentReady,
    /// Something worth a line in the log.
    Note(Note),
    /// Everything is durable, nothing is in flight: the driver may mark the cache clean (if `clean`) and exit.
    Stopped {
        /// Set if the cache device holds a complete, trusted state.
        clean: bool,
    },
}

impl Action {
    /// The operation, if the cache device has a part in it; a read from memory is counted with those of the device.
    #[must_use]
    pub const fn device_op(&self) -> Option<OpId> {
        match self {
            Self::ReadExtents { op, .. }
            | Self::ReadHeader { op, .. }
            | Self::WriteWeu { op, .. }
            | Self::WritePart { op, .. }
            | Self::DiscardSlot { op, .. }
            | Self::WriteJournal { op, .. }
            | Self::WriteRegionMap { op, .. }
            | Self::WriteCheckpoint { op, .. }
            | Self::CommitCheckpoint { op, .. }
            | Self::WriteImage { op, .. }
            | Self::ReadImage { op, .. }
            | Self::FlushCache { op } => Some(*op),
            _ => None,
        }
    }
}

/// Result of an erasure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Erased {
    /// Slots that were erased.
    pub slots: u64,
    /// Units that had to stay, and slots that the device did not erase.
    pub left: u64,
    /// `true` if all slots had their turn: the cache neither failed nor stopped before.
    pub is_complete: bool,
}

/// Things worth a line in the log; rare by construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Note {
    /// The cache device failed; volumes continue in pass-through.
    CacheFailed {
        /// Purpose of the failed operation.
        during: Purpose,
        /// Error of the device.
        error: ErrorKind,
    },
    /// A stored extent failed verification and was dropped.
    ExtentDropped {
        /// Its slot.
        slot: WeuSlot,
        /// Fault of the extent.
        fault: ExtentError,
    },
    /// A slot was dropped after an error, with its contents.
    SlotDropped {
        /// The slot.
        slot: WeuSlot,
    },
    /// The origin of a volume differs from the contents that the cache stored in an earlier session: all content
    /// stored for the volume is forgotten.
    OriginDiffers {
        /// The volume.
        volume: VolumeId,
        /// Extent that differs.
        extent: ExtentNo,
    },
    /// The session ends, and an [`Action::Distrust`] has failed to the last. The cache device itself marks the
    /// contents that the next start must not trust: by marks of regions, and by an unclean stop or by records of
    /// invalidation.
    DistrustUnrecorded {
        /// The volume, or all of them.
        volume: Option<VolumeId>,
    },
    /// Dirty data of a volume cannot be read back from the cache device. It is kept, and tried again; reads of it fail.
    DirtyUnreadable {
        /// The volume.
        volume: VolumeId,
        /// The first extent concerned.
        extent: ExtentNo,
    },
    /// Dirty data that cannot be read back is left out: later writes took its place. Until all of these are on the
    /// origin, that alone holds something older there than around it.
    DirtySkipped {
        /// The volume.
        volume: VolumeId,
        /// The extent concerned.
        extent: ExtentNo,
        /// The sectors that were left out.
        sectors: SectorSpan,
    },
    /// Unreadable dirty data is dropped, as an operator requested: zeros take its place.
    DirtyGivenUp {
        /// The volume.
        volume: VolumeId,
        /// The extent concerned.
        extent: ExtentNo,
        /// The sectors that are zeros now.
        sectors: SectorSpan,
    },
    /// The origin refuses destaged data; it is retried later.
    DestageFailed {
        /// The volume.
        volume: VolumeId,
        /// Error of the origin.
        error: ErrorKind,
    },
    /// The volume has dirty data that is out of reach, so that requests fail.
    Fenced {
        /// The volume.
        volume: VolumeId,
    },
    /// Commits of the last session are not complete and do not count. They were in flight when it was cut off, or they
    /// were damaged before anything proved them.
    CommitsDropped {
        /// The volume.
        volume: VolumeId,
        /// The last epoch that counts.
        epoch: u64,
        /// Clients may have been answered: no intent log shows that they were not.
        doubtful: bool,
    },
    /// Contents of an extent, of a volume for which the driver requested reports
    /// ([`CacheManager::tell_contents`](crate::CacheManager::tell_contents)).
    Content {
        /// The extent.
        key: ExtentKey,
        /// Its fingerprint.
        digest: Digest,
        /// Its size after compression, [`Codec::Raw`] if it does not compress; absent if that was not tried.
        stored: Option<(Codec, u32)>,
    },
    /// The operation of [`Event::Remove`] has completed. If it failed, because the cache failed or stops, or the
    /// origin does not flush, the volume is served as before.
    Removed {
        /// The volume.
        volume: VolumeId,
        /// Result of the removal.
        result: Result<(), ErrorKind>,
    },
    /// All headers are read, or the index image in their place. The samples are compared: the index is complete and all
    /// of it is served.
    IndexLoaded {
        /// Extents in the file index.
        extents: u64,
        /// No header was read.
        by_image: bool,
    },
    /// A start does not use the index image: it reads headers.
    ImageRefused {
        /// Reason.
        fault: ImageFault,
    },
    /// A clean stop leaves no index image: the next start reads headers.
    ImageOmitted {
        /// Reason.
        fault: ImageFault,
    },
}

/// Purpose of a device operation; also the classes by which bytes written are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Reading extents.
    ExtentRead,
    /// Reading a WEU header.
    HeaderRead,
    /// Writing a WEU.
    WeuWrite,
    /// Journal.
    Journal,
    /// Region map.
    RegionMap,
    /// Checkpoint.
    Checkpoint,
    /// Index image.
    IndexImage,
    /// Flush.
    Flush,
    /// Discard.
    Discard,
    /// Finding it at all ([`Event::DeviceLost`]).
    Presence,
}

impl Purpose {
    /// For people: "the cache device failed while ...".
    #[must_use]
    pub const fn doing(self) -> &'static str {
        match self {
            Self::ExtentRead => "reading stored extents",
            Self::HeaderRead => "reading the header of a write-evict unit",
            Self::WeuWrite => "writing a write-evict unit",
            Self::Journal => "writing the journal",
            Self::RegionMap => "writing the region map",
            Self::Checkpoint => "writing a checkpoint",
            Self::IndexImage => "reading or writing the index image",
            Self::Flush => "flushing",
            Self::Discard => "discarding",
            Self::Presence => "being looked for",
        }
    }
}
