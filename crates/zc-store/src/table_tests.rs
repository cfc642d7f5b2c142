//! Tables over a page cache that forgets: what is put is read, whatever is missing in between.

use crate::ids::{Place, Pointer, SegmentNo};
use crate::media::Block;
use crate::media::page::{PageKey, TableId, seal};
use crate::media::superblock::TableRoot;
use crate::media::{put_u64, u64_at};
use crate::pager::{Missing, Pager};
use crate::table::{FANOUT, Table};
use zc_core::HashKey;

const UUID: [u8; 16] = [1; 16];

/// A device of pages, one after the other.
#[derive(Default)]
struct Device {
    pages: Vec<Box<Block>>,
}

impl Device {
    /// As a checkpoint does: levels from the leaves up.
    fn write_all(&mut self, table: &mut Table, pager: &mut Pager) {
        for level in 0..table.height() {
            for key in pager.dirty_of(PageKey { table: TableId::Chunks, level, index: 0 }) {
                let offset_bytes = u32::try_from(self.pages.len() + 1).unwrap();
                let mut block = Box::new(*pager.page(key));
                let pointer = seal(&mut block, UUID, Place { segment: SegmentNo(0), offset_bytes });
                self.pages.push(block);
                pager.begin_write(key);
                table.set_pointer(pager, key, pointer);
            }
        }
        pager.end_writes();
    }

    fn load(&self, missing: Missing, pager: &mut Pager) {
        let Pointer { place, .. } = missing.pointer;
        pager.insert_read(missing.key, self.pages[place.offset_bytes as usize - 1].clone());
    }
}

#[test]
fn a_table_grows_and_is_found_again_from_its_root() {
    let (mut device, mut pager) = (Device::default(), Pager::new(&HashKey::fixed()));
    let mut table = Table::new(TableId::Chunks, 56, TableRoot::default());
    let numbers = [0, 71, 72, 5000, 72 * FANOUT - 1, 72 * FANOUT, 72 * FANOUT * FANOUT + 3];
    for number in numbers {
        while let Err(missing) = table.make_writable(&mut pager, number) {
            device.load(missing, &mut pager);
        }
        put_u64(table.record_mut(&mut pager, number), 0, number + 1);
        device.write_all(&mut table, &mut pager);
        assert_eq!(pager.dirty_pages(), 0, "every changed page has got a place");
        pager.shrink(1, u64::MAX, |_| false);
    }
    let again = Table::new(TableId::Chunks, 56, table.root());
    let mut pager = Pager::new(&HashKey::fixed());
    for number in numbers {
        let mut reads = 0;
        let value = loop {
            match again.read(&mut pager, number) {
                Ok(record) => break record.map(|record| u64_at(record, 0)),
                Err(missing) => device.load(missing, &mut pager),
            }
            reads += 1;
        };
        assert_eq!(value, Some(number + 1));
        assert!(reads <= 4, "a path has four pages");
    }
    assert_eq!(again.read(&mut pager, 72 * FANOUT * 2).unwrap(), None, "no page was ever made there");
}

#[test]
fn a_changed_page_stays_until_it_is_written() {
    let mut pager = Pager::new(&HashKey::fixed());
    let mut table = Table::new(TableId::Chunks, 56, TableRoot::default());
    table.make_writable(&mut pager, 5).unwrap();
    pager.shrink(0, u64::MAX, |_| false);
    let leaf = PageKey { table: TableId::Chunks, level: 0, index: 0 };
    assert!(pager.has(leaf));
    pager.begin_write(leaf);
    pager.shrink(0, u64::MAX, |_| false);
    assert!(pager.has(leaf), "its write has not ended");
    pager.end_writes();
    pager.shrink(0, u64::MAX, |key| key == leaf);
    assert!(pager.has(leaf), "it was named");
    pager.shrink(0, u64::MAX, |_| false);
    assert!(!pager.has(leaf));
}
