//! One sample of every structure, and an image that holds them, for the tests.

use zc_core::{
    Codec, ExtentKey, ExtentNo, Fingerprint, FingerprintKind, Generation, JournalSeq, RegionKey, SectorSpan,
    VolumeId, WeuSeq, WeuSlot, usize_from_u32, usize_from_u64,
};

use crate::damage::Image;
use crate::{
    CheckpointHeader, EXTENT_HEADER_BYTES, ExpectedExtent, ExtentHeader, Features, Geometry, GrowingUnit,
    ImageDirectory, ImageHead, ImageSlot, ImageTable, JournalBlock, OriginIdentity, OriginKind, PlanOptions,
    Record, RegionMap, Salt, Summary, SummaryPlace, Superblock, VolumeRecord, VolumeTable, WeuEntry,
    WeuHeader, encode_checkpoint_block,
};

pub(crate) const WEU_BYTES: u32 = 32 << 10;
pub(crate) const EXTENT_BYTES: u32 = 4 << 10;

pub(crate) fn geometry() -> Geometry {
    let options = PlanOptions {
        device_bytes: 1 << 20,
        weu_bytes: WEU_BYTES,
        extent_bytes: EXTENT_BYTES,
        align_bytes: 0,
        journal_blocks: Some(8),
    };
    Geometry { salt: salt(), ..Geometry::plan(&options).unwrap() }
}

const UUID: [u8; 16] = *b"0123456789abcdef";

pub(crate) fn salt() -> Salt {
    Salt::of(&UUID)
}

pub(crate) fn superblock() -> Superblock {
    Superblock {
        uuid: UUID,
        features: Features { compat: 5, ro_compat: 0, incompat: 0 },
        geometry: geometry(),
        fingerprint_kind: FingerprintKind::Blake3,
        sequence: 0x1112_1314_1516_1718,
        session: 0x2122_2324_2526_2728,
        clean: true,
        distrusted: false,
        boot_id: *b"fedcba9876543210",
        created_unix_s: 0x3132_3334_3536_3738,
        journal_next: JournalSeq(0x4142_4344_4546_4748),
        checkpoint: 0x5152_5354_5556_5758,
        index_image: 0x2122_2324_2526_2728,
        label: "caf\u{e9}".to_owned(),
    }
}

pub(crate) fn volume_table() -> VolumeTable {
    let origin = OriginIdentity {
        kind: OriginKind::Block,
        dev: 0x4142_4344_4546_4748,
        inode: 0x5152_5354_5556_5758,
        len_bytes: 1 << 40,
        mtime_ns: 0x6162_6364_6566_6768,
    };
    let first = VolumeRecord {
        id: VolumeId(1),
        name: "vm".to_owned(),
        size_bytes: 1 << 40,
        region_bytes: 32 << 20,
        origin,
        stamp: 0x7172_7374_7576_7778,
        may_be_dirty: false,
    };
    let mut second = first.clone();
    second.id = VolumeId(1023);
    second.name = "n".repeat(64);
    second.origin.kind = OriginKind::File;
    VolumeTable { sequence: 7, records: vec![first, second] }
}

/// Volume table with [`crate::Features::WRITE_BACK`].
pub(crate) fn dirty_volume_table() -> VolumeTable {
    let mut table = volume_table();
    table.records[1].may_be_dirty = true;
    table
}

pub(crate) fn region_map() -> RegionMap {
    let key = |volume, region| RegionKey { volume: VolumeId(volume), region };
    RegionMap {
        sequence: 8,
        session: 0x2122_2324_2526_2728,
        journal_required: JournalSeq(0x8182_8384_8586_8788),
        regions: vec![key(0, 0), key(1, 0x0102_0304_0506), key(1023, (1 << 48) - 1)],
    }
}

pub(crate) fn checkpoint_header() -> CheckpointHeader {
    CheckpointHeader {
        sequence: 9,
        session: 0x2122_2324_2526_2728,
        journal_start: JournalSeq(16),
        blocks: 1,
        records: 6,
        weu_seq_next: WeuSeq(0x9192_9394_9596_9798),
        region_map_sequence: 8,
    }
}

pub(crate) fn records() -> Vec<Record> {
    let key = ExtentKey { volume: VolumeId(0x0102), extent: ExtentNo(0x13_1415_1617) };
    let (slot, generation) = (WeuSlot(0x21_2223), Generation(0x3132_3334));
    vec![
        Record::SlotSealed {
            slot,
            generation,
            weu_seq: WeuSeq(0x4142_4344_4546_4748),
            header_bytes: 3 << 12,
        },
        Record::SlotRetired { slot, generation },
        Record::Duplicate { key, slot, generation, offset_units: 0x5152, pages: 0x61 },
        Record::Zero { key },
        Record::Unmap { key },
        Record::BaseInvalid { key, slot, generation, offset_units: 0x5152 },
    ]
}

/// Records of write-back.
pub(crate) fn dirty_records() -> Vec<Record> {
    let (slot, generation) = (WeuSlot(0x0021_2223), Generation(0x3132_3334));
    let key = ExtentKey { volume: VolumeId(0x0102), extent: ExtentNo(0x13_1415_1617) };
    let span = SectorSpan::from_ends(0x0a, 0x0d).unwrap();
    vec![
        Record::SlotDirty { slot, generation, weu_seq: WeuSeq(0x4142_4344_4546_4748) },
        Record::Dirty { key, span, slot, generation, offset_units: 0x5152, pages: 0x61 },
        Record::DirtyZero { key, span, no_hole: false },
        Record::Committed { volume: key.volume, epoch: 0x7172_7374_7576_7778 },
        Record::Clean { volume: key.volume, epoch: 0x7172_7374_7576_7777 },
        Record::DirtyReset { volume: key.volume, epoch: 0x7172_7374_7576_7779 },
    ]
}

/// A journal block of a cache with dirty extents.
pub(crate) fn dirty_journal_block(sequence: u64) -> JournalBlock {
    let proved = JournalSeq(sequence - 2);
    JournalBlock { proved, records: dirty_records(), ..journal_block(sequence) }
}

/// A header of a WEU with a piece of an extent that was stored dirty.
pub(crate) fn dirty_weu_header(slot: u32) -> WeuHeader {
    let mut header = weu_header(slot);
    let dirty = SectorSpan::from_ends(0x0a, 0x0d);
    header.entries[1] = WeuEntry { dirty, fingerprint: Fingerprint([0; 32]), ..header.entries[1] };
    header
}

pub(crate) fn journal_block(sequence: u64) -> JournalBlock {
    JournalBlock {
        sequence: JournalSeq(sequence),
        session: 0x2122_2324_2526_2728,
        region_map_sequence: 8,
        proved: JournalSeq(0),
        growing: None,
        records: records(),
    }
}

/// Journal block whose commits summaries continue.
pub(crate) fn growing_journal_block(sequence: u64) -> JournalBlock {
    let unit = GrowingUnit { slot: WeuSlot(0x0021_2223), generation: Generation(0x3132_3334), page: 7 };
    JournalBlock { growing: Some(unit), ..dirty_journal_block(sequence) }
}

/// Place of [`summary`].
pub(crate) fn summary_place() -> SummaryPlace {
    let uuid = superblock().uuid;
    SummaryPlace { uuid, slot: WeuSlot(0x0021_2223), generation: Generation(0x3132_3334), page: 8 }
}

/// The first summary after [`growing_journal_block`] 17.
pub(crate) fn summary() -> Summary {
    Summary {
        next: JournalSeq(18),
        session: 0x2122_2324_2526_2728,
        ordinal: 0,
        first_page: 7,
        region_map_sequence: 8,
        proved: JournalSeq(18),
        records: dirty_records(),
    }
}

pub(crate) fn summary_page(summary: &Summary, place: &SummaryPlace) -> Vec<u8> {
    let mut page = vec![0; crate::BLOCK];
    summary.encode_into(place, &mut page);
    page
}

/// Head of a sample image: two slots, one bucket of files and two of fingerprints.
pub(crate) fn image_head() -> ImageHead {
    ImageHead {
        session: 0x2122_2324_2526_2728,
        journal_next: JournalSeq(0x4142_4344_4546_4748),
        checkpoint: 9,
        region_map_sequence: 8,
        layout: 2,
        slots: 2,
        weu_bytes: WEU_BYTES,
        extent_bytes: EXTENT_BYTES,
        generation_bits: 8,
        files: ImageTable { buckets: 1, entries: 3, bucket_bytes: 144, key_bits: 48 },
        prints: ImageTable { buckets: 2, entries: 5, bucket_bytes: 64, key_bits: 15 },
    }
}

pub(crate) fn image_slots() -> [ImageSlot; 2] {
    let (generation, weu_seq) = (Generation(0x3132_3334), WeuSeq(0x4142_4344_4546_4748));
    let full = ImageSlot { generation, weu_seq, owner: Some(VolumeId(0x0102)), sealed: true, filling: true };
    let free = ImageSlot { weu_seq: WeuSeq(0), owner: None, sealed: false, filling: false, ..full };
    [full, free]
}

/// Positions of its pieces: a block for each part, except the fingerprints.
pub(crate) fn image_directory() -> ImageDirectory {
    let mut directory = ImageDirectory::new(&image_head());
    [1, 1, 3].into_iter().for_each(|blocks| {
        directory.place_next(blocks * crate::BLOCK);
    });
    directory
}

/// Slots of the image, as a piece.
pub(crate) fn image_piece() -> Vec<u8> {
    let mut units = Vec::new();
    image_slots().iter().for_each(|slot| slot.encode_into(&mut units));
    let head = image_head();
    head.encode_piece(&head.piece(1).unwrap(), &units, salt())
}

pub(crate) fn fingerprint() -> Fingerprint {
    Fingerprint(core::array::from_fn(|i| 0xa0 + u8::try_from(i).unwrap()))
}

pub(crate) fn extent_header(slot: u32, payload_bytes: u32) -> ExtentHeader {
    ExtentHeader {
        slot: WeuSlot(slot),
        generation: Generation(0x3132_3334),
        weu_seq: WeuSeq(0x4142_4344_4546_4700 + u64::from(slot)),
        stored_bytes: payload_bytes,
        raw_bytes: EXTENT_BYTES,
        first_sector: 0,
        key: ExtentKey { volume: VolumeId(0x0102), extent: ExtentNo(0x13_1415_1617) },
        codec: Codec::Lz4,
        fingerprint: fingerprint(),
    }
}

pub(crate) fn expected(header: &ExtentHeader, offset_bytes: u32) -> ExpectedExtent {
    ExpectedExtent {
        salt: salt(),
        slot: header.slot,
        generation: header.generation,
        weu_seq: header.weu_seq,
        offset_bytes,
        raw_bytes: header.raw_bytes,
        first_sector: header.first_sector,
        key: Some(header.key),
        print: None,
    }
}

pub(crate) fn payload() -> Vec<u8> {
    (0..100).map(|i| 255 - i).collect()
}

/// A sealed extent at an offset of its slot, padding included.
pub(crate) fn sealed_extent(slot: u32, offset_bytes: u32) -> Vec<u8> {
    let payload = payload();
    let header = extent_header(slot, u32::try_from(payload.len()).unwrap());
    let len = usize_from_u32(EXTENT_HEADER_BYTES) + payload.len();
    let mut bytes = vec![0; len.next_multiple_of(64)];
    header.seal(offset_bytes, &payload, &mut bytes, salt());
    bytes
}

pub(crate) fn weu_header(slot: u32) -> WeuHeader {
    let header = extent_header(slot, 100);
    let entry = |offset_bytes, codec| WeuEntry {
        key: header.key,
        offset_bytes,
        stored_bytes: 100,
        codec,
        fingerprint: header.fingerprint,
        dirty: None,
    };
    WeuHeader {
        slot: header.slot,
        generation: header.generation,
        weu_seq: header.weu_seq,
        session: 0x2122_2324_2526_2728,
        entries: vec![entry(0, Codec::Lz4), entry(192, Codec::Raw)],
    }
}

pub(crate) fn encode_weu(header: &WeuHeader) -> Vec<u8> {
    let count = u32::try_from(header.entries.len()).unwrap();
    let mut tail = vec![0xee; usize_from_u32(WeuHeader::encoded_bytes(count))];
    header.encode_into(&mut tail, salt());
    tail
}

/// An image in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    pub(crate) fn at(&self, offset: u64, len: usize) -> &[u8] {
        let start = usize_from_u64(offset).min(self.0.len());
        &self.0[start..(start + len).min(self.0.len())]
    }

    fn put(&mut self, offset: u64, data: &[u8]) {
        self.0[usize_from_u64(offset)..][..data.len()].copy_from_slice(data);
    }
}

impl Image for Bytes {
    type Error = core::convert::Infallible;

    fn read(&mut self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), Self::Error> {
        buf.copy_from_slice(self.at(offset_bytes, buf.len()));
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, data: &[u8]) -> Result<(), Self::Error> {
        self.put(offset_bytes, data);
        Ok(())
    }

    fn truncate(&mut self, len_bytes: u64) -> Result<(), Self::Error> {
        self.0.truncate(usize_from_u64(len_bytes));
        Ok(())
    }
}

/// A whole device: every copy of every structure, the journal from block 16 to block 20, an extent and a header in
/// every slot. `age` varies the numbers of every structure.
pub(crate) fn image(age: u64) -> Bytes {
    let geometry = geometry();
    let mut image = Bytes(vec![0; usize_from_u64(geometry.device_bytes)]);
    for (copy, offset) in Superblock::offsets(geometry.device_bytes).into_iter().enumerate() {
        let sequence = superblock().sequence + age;
        image.put(offset, &Superblock { sequence, ..superblock() }.encode(copy));
    }
    for copy in 0..2 {
        // The second copy is the newer one.
        let step = age * 2 + zc_core::u64_from_usize(copy);
        let table = VolumeTable { sequence: 7 + step, ..volume_table() };
        image.put(geometry.volume_table[copy], &table.encode(copy, salt()));
        let map = RegionMap { sequence: 8 + step, ..region_map() };
        image.put(geometry.region_map[copy], &map.encode(copy, salt()));
        let header = CheckpointHeader { sequence: 9 + step, ..checkpoint_header() };
        image.put(geometry.checkpoint[copy], &header.encode(copy, salt()));
        for block in 0..2 {
            let bytes = encode_checkpoint_block(header.sequence, block, &records(), salt());
            image.put(geometry.checkpoint_block_offset(copy, block), &bytes);
        }
    }
    for sequence in 16..21 {
        let block =
            JournalBlock { session: journal_block(0).session + age, ..journal_block(sequence + age * 8) };
        image.put(geometry.journal_block_offset(block.sequence), &block.encode(salt()));
    }
    for slot in 0..geometry.slots {
        let mut header = extent_header(slot, 100);
        header.generation.0 += u32::try_from(age).unwrap();
        header.weu_seq.0 += age << 20;
        let offset = geometry.slot_offset(WeuSlot(slot));
        let mut bytes = vec![0; 192];
        header.seal(0, &payload(), &mut bytes, salt());
        image.put(offset, &bytes);
        let weu = WeuHeader { generation: header.generation, weu_seq: header.weu_seq, ..weu_header(slot) };
        let tail = encode_weu(&weu);
        image.put(offset + u64::from(WEU_BYTES) - zc_core::u64_from_usize(tail.len()), &tail);
    }
    image
}
