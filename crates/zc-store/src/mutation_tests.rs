//! What a valid checksum may carry wrongly: each field of each structure gets other values, the checksums are made
//! right, and the store is opened, scrubbed, read, written and cleaned. It may refuse, and call anything damaged. It may
//! not panic, and comes to an end.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::ids::{Place, Pointer, SegmentNo};
use crate::media::batch::BatchHeader;
use crate::media::superblock::{Superblock, pointer_at};
use crate::media::{Binding, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::seam::{Event, RequestKind, StoreError};
use crate::test_driver::{CHUNK, Driver, SEGMENT, VOLUME};
use crate::{CatalogOp, RootId, SurveyKind};

const UUID: [u8; 16] = [7; 16];
const BLOCK: usize = 4096;

/// A page, and where the pointer to it is: in the superblock or another page.
#[derive(Debug, Clone, Copy)]
struct Node {
    place: Place,
    /// Place of its checksum on the device; of the superblock's, in copy A.
    crc_at: usize,
    parent: Option<usize>,
    table: u8,
    level: u8,
}

/// A store, and all that its checksums lead to.
struct Image {
    device: Vec<u8>,
    pages: Vec<Node>,
    /// Headers of the log from the checkpoint on, and of all other segments.
    headers: Vec<Place>,
}

fn at(place: Place) -> usize {
    zc_core::usize_from_u64(Superblock::device_offset(place, SEGMENT))
}

impl Image {
    fn new(device: Vec<u8>) -> Self {
        let mut image = Self { device, pages: Vec::new(), headers: Vec::new() };
        for table in 1..=4_u8 {
            let crc_at = 144 + 16 * (usize::from(table) - 1);
            image.walk(crc_at, None, table);
        }
        for segment in 0..u32_at(&image.device, 80) {
            let mut place = Place { segment: SegmentNo(segment), offset_bytes: 0 };
            while place.offset_bytes < SEGMENT
                && let Ok(header) = BatchHeader::decode(&image.device[at(place)..], UUID, place, SEGMENT)
            {
                image.headers.push(place);
                place.offset_bytes += header.bytes();
            }
        }
        image
    }

    /// The page that a pointer at a place of the device leads to, and those below it.
    fn walk(&mut self, pointer: usize, parent: Option<usize>, table: u8) {
        let Pointer { place, .. } = pointer_at(&self.device, pointer);
        if place.offset_bytes == 0 {
            return;
        }
        let page = at(place);
        let level = self.device[page + 9];
        let number = self.pages.len();
        self.pages.push(Node { place, crc_at: pointer + 8, parent, table, level });
        match (table, level) {
            (0 | 1 | 3 | 4, 0) | (0, _) => {}
            // The pages of all maps are found through the page table.
            (_, 0) => (0..252).for_each(|slot| self.walk(page + 64 + 16 * slot, Some(number), 0)),
            _ => (0..252).for_each(|slot| self.walk(page + 64 + 16 * slot, Some(number), table)),
        }
    }

    /// Makes the checksum of a page right, and those of all that lead to it.
    fn seal_page(&mut self, number: usize) {
        let mut next = Some(number);
        while let Some(node) = next.map(|number| self.pages[number]) {
            let page = at(node.place);
            let mut block = Box::new(*self.device[page..].first_chunk::<BLOCK>().unwrap());
            let crc = Binding::page(UUID, node.place).seal(&mut block);
            self.device[page..page + BLOCK].copy_from_slice(&block[..]);
            put_u32(&mut self.device, node.crc_at, crc);
            next = node.parent;
        }
        self.seal_superblock();
    }

    fn seal_header(&mut self, place: Place) {
        let header = at(place);
        let mut block = Box::new(*self.device[header..].first_chunk::<BLOCK>().unwrap());
        Binding::batch(UUID, place).seal(&mut block);
        self.device[header..header + BLOCK].copy_from_slice(&block[..]);
    }

    /// Copy A is what both copies are.
    fn seal_superblock(&mut self) {
        let block = *self.device.first_chunk::<BLOCK>().unwrap();
        for copy in 0..2 {
            let mut block = Box::new(block);
            Binding::superblock(copy).seal(&mut block);
            let at = zc_core::usize_from_u64(Superblock::offset_bytes(copy));
            self.device[at..at + BLOCK].copy_from_slice(&block[..]);
        }
    }
}

/// Values that a field of so many bytes may wrongly have.
fn wrong(device: &[u8], at: usize, bytes: usize) -> Vec<u64> {
    let (now, max) = match bytes {
        1 => (u64::from(device[at]), 0xff),
        2 => (u64::from(u16_at(device, at)), 0xffff),
        4 => (u64::from(u32_at(device, at)), 0xffff_ffff),
        _ => (u64_at(device, at), u64::MAX),
    };
    let mut values = vec![0, 1, now.wrapping_add(1), now ^ 0x1000, 1 << 20, 1 << 31, 1 << 60, max];
    values.retain(|value| *value <= max && *value != now);
    values.sort_unstable();
    values.dedup();
    values
}

fn put(device: &mut [u8], at: usize, bytes: usize, value: u64) {
    device[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
}

/// Opens what there is and does with it whatever can be done.
fn exercise(device: Vec<u8>) -> Result<(), StoreError> {
    let mut driver = Driver::try_on(device, Driver::config());
    driver.opened.unwrap_or(Ok(()))?;
    let kind = SurveyKind::Scrub { from: None, addresses_max: u64::MAX };
    let _damage_is_told = driver.ask(RequestKind::Survey(kind));
    let _may_fail = driver.ask(RequestKind::Survey(SurveyKind::Account));
    let roots: Vec<RootId> = driver.store.roots().map(|(id, _)| id).collect();
    for root in &roots {
        for chunk in [0, 3, 503, 504, 1008, 300_000] {
            let _may_fail = driver.read(*root, chunk);
        }
        let allocation = RequestKind::Allocation { root: *root, first: 0, count: 600 };
        driver.submit(allocation);
    }
    driver.settle();
    for first in [0, 504, 1008] {
        let write = driver.write(first, 3, CHUNK);
        let _may_fail = driver.ask(write);
    }
    for root in roots {
        let _may_fail = driver.ask(RequestKind::Catalog(Driver::catalog(CatalogOp::Rollback, root)));
        let _may_fail = driver.ask(RequestKind::Discard { root, first: 1, count: 600 });
    }
    driver.clean();
    let _may_fail = driver.ask(RequestKind::Discard { root: VOLUME, first: 0, count: 1 << 19 });
    driver.clean();
    driver.give(Event::Stop);
    driver.settle();
    Ok(())
}

/// A store with a volume, a snapshot, a clone, pages of all kinds and a log behind the checkpoint.
fn image() -> Image {
    let mut driver = Driver::new(40);
    driver.prints = true;
    driver.create(14).unwrap();
    for first in [0, 504, 1008] {
        let write = driver.write(first, 3, CHUNK);
        driver.ask(write).unwrap();
    }
    driver.ask(RequestKind::Catalog(Driver::catalog(CatalogOp::Snapshot, RootId(1)))).unwrap();
    let write = driver.write(1, 3, CHUNK);
    driver.ask(write).unwrap();
    let mut driver = Driver::on(driver.close(), Driver::config());
    driver.ask(RequestKind::Catalog(Driver::catalog(CatalogOp::Clone, RootId(2)))).unwrap();
    for first in [505, 20] {
        let write = driver.write(first, 3, CHUNK);
        driver.ask(write).unwrap();
    }
    driver.ask(RequestKind::Discard { root: VOLUME, first: 1, count: 1 }).unwrap();
    driver.ask(RequestKind::Flush).unwrap();
    Image::new(driver.device)
}

/// Tries all values of a field; what panicked.
fn tries(image: &Image, offset: usize, bytes: usize, seal: impl Fn(&mut Image)) -> Vec<String> {
    let mut failed = Vec::new();
    for value in wrong(&image.device, offset, bytes) {
        let device = image.device.clone();
        let mut other = Image { device, pages: image.pages.clone(), headers: Vec::new() };
        put(&mut other.device, offset, bytes, value);
        seal(&mut other);
        if catch_unwind(AssertUnwindSafe(|| exercise(other.device))).is_err() {
            failed.push(format!("{value:#x}"));
        }
    }
    failed
}

fn report(what: &str, failed: Vec<(usize, Vec<String>)>) {
    let failed: Vec<_> = failed.into_iter().filter(|(_, values)| !values.is_empty()).collect();
    assert!(failed.is_empty(), "{what}: the store panics with {failed:?}");
}

#[test]
fn the_image_is_sound_and_has_all_kinds_of_pages() {
    let image = image();
    assert_eq!(exercise(image.device.clone()), Ok(()));
    let kinds: std::collections::BTreeSet<(u8, u8)> =
        image.pages.iter().map(|node| (node.table, node.level)).collect();
    assert!([(0, 0), (0, 1), (1, 0), (2, 0), (3, 0), (4, 0)].iter().all(|kind| kinds.contains(kind)));
    assert!(image.headers.len() > 4, "{:?}", image.headers);
}

#[test]
fn no_field_of_the_superblock_makes_the_store_panic() {
    let image = image();
    let words = (16..32).step_by(8).map(|at| (at, 8)).chain((40..80).step_by(8).map(|at| (at, 8)));
    let fields = words.chain((80..88).step_by(4).map(|at| (at, 4))).chain([(88, 8), (96, 8)]);
    let fields = fields.chain((104..120).step_by(4).map(|at| (at, 4)));
    let fields = fields.chain([(120, 8), (128, 8), (136, 8)]).chain((144..216).step_by(4).map(|at| (at, 4)));
    let failed = fields.map(|(at, bytes)| (at, tries(&image, at, bytes, Image::seal_superblock)));
    report("superblock", failed.collect());
}

#[test]
fn no_field_of_a_batch_header_makes_the_store_panic() {
    let image = image();
    let mut failed = Vec::new();
    for place in &image.headers {
        let start = at(*place);
        let end = 64 + zc_core::usize_from_u32(u32_at(&image.device, start + 40));
        let words = [(8, 8), (16, 8), (24, 8), (32, 4), (36, 4), (40, 4)].into_iter();
        // Records are of 24, 64 or 96 bytes; each field of each is in one of these.
        let records = (64..end.min(64 + 320)).step_by(4).flat_map(|at| {
            let halves = [(at, 4), (at, 1), (at + 1, 1), (at + 2, 2)].into_iter();
            halves.chain(at.is_multiple_of(8).then_some((at, 8)))
        });
        for (offset, bytes) in words.chain(records) {
            let values = tries(&image, start + offset, bytes, |image| image.seal_header(*place));
            failed.push((start + offset, values));
        }
    }
    report("batch header", failed);
}

#[test]
fn no_field_of_a_page_makes_the_store_panic() {
    let image = image();
    let mut failed = Vec::new();
    for (number, node) in image.pages.iter().enumerate() {
        let start = at(node.place);
        let heads = [(8, 1), (9, 1), (16, 8), (24, 8)].into_iter();
        // The first records, and the first slot behind those that are used.
        let used = (64..BLOCK).rev().find(|at| image.device[start + at] != 0).unwrap_or(64);
        let end = used.min(64 + 260).next_multiple_of(8) + 16;
        let records = (64..end).step_by(4).flat_map(|at| {
            let parts = [(at, 4), (at, 1)].into_iter();
            parts.chain(at.is_multiple_of(8).then_some((at, 8)))
        });
        for (offset, bytes) in heads.chain(records) {
            let values = tries(&image, start + offset, bytes, |image| image.seal_page(number));
            failed.push((start + offset, values));
        }
    }
    report("page", failed);
}

#[test]
fn a_superblock_that_claims_more_than_the_device_has_room_for_is_refused() {
    // A log that begins before the first batch, and numbers beyond all that the device could hold.
    type Change = fn(&mut [u8]);
    let changes: [Change; 4] = [
        |block| put_u64(block, 88, 0),
        |block| put_u64(block, 120, 1 << 60),
        |block| put_u64(block, 128, 1 << 60),
        |block| put_u32(block, 156, 8),
    ];
    for change in changes {
        let mut image = image();
        change(&mut image.device);
        image.seal_superblock();
        Superblock::decode(&image.device[..BLOCK], 0).unwrap_err();
        assert_eq!(exercise(image.device), Err(StoreError::NoSuperblock));
    }
}
