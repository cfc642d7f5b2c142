//! The indices: entries of a key and of a row's position, sorted, 256 to a block.
//!
//! An entry is the key in eight bytes and the position in eight, big-endian, so that bytes sort as entries
//! do. The key is a column, or two with the first in the upper half. Entries of equal keys are in the order
//! of rows.
//!
//! Invariants: an index has an entry for every row of its table.

use std::io::{self, Write};
use std::ops::Range;

use super::BLOCK_BYTES;
use super::tables::{Table, Tables, customer, line, nation, order, part, region, supplier, supply};
use super::walk::Blocks;

/// Bytes of an entry.
const ENTRY_BYTES: usize = 16;
/// Entries of a block.
const ENTRIES: usize = zc_core::usize_from_u32(BLOCK_BYTES) / ENTRY_BYTES;

/// An index used by queries.
#[derive(Debug)]
pub(super) struct Index {
    first_block: u64,
    /// Rows in the order of their keys.
    order: Vec<u32>,
}

/// Indices used by queries; the others exist in the image alone.
#[derive(Debug)]
pub(super) struct Indices {
    pub(super) suppliers_by_nation: Index,
    pub(super) parts: Index,
    pub(super) supplies_by_supplier: Index,
    pub(super) orders_by_customer: Index,
    pub(super) lines_by_order: Index,
    pub(super) lines_by_date: Index,
}

impl Index {
    fn write<F: FnMut(&[u8]) -> io::Result<()>>(
        table: &Table,
        columns: &[usize],
        out: &mut Blocks<F>,
    ) -> io::Result<Self> {
        let first_block = out.end_block()?;
        let mut order: Vec<u32> = (0..u32::MAX).take(table.rows()).collect();
        // A stable sort from the last column to the first.
        for column in columns.iter().rev() {
            order = sorted(table.column(*column), &order);
        }
        for row in &order {
            let row = zc_core::usize_from_u32(*row);
            let key = columns.iter().fold(0, |key, column| key << 32 | u64::from(table.column(*column)[row]));
            out.write_all(&key.to_be_bytes())?;
            out.write_all(&u64::from(table.position(row)).to_be_bytes())?;
        }
        out.end_block()?;
        Ok(Self { first_block, order })
    }

    /// Entries whose key, of which this is the first column, is in a range.
    pub(super) fn entries(&self, column: &[u32], keys: Range<u32>) -> Range<usize> {
        let below = |key: u32| self.order.partition_point(|row| column[zc_core::usize_from_u32(*row)] < key);
        below(keys.start)..below(keys.end)
    }

    /// The block of an entry.
    pub(super) fn block(&self, entry: usize) -> u64 {
        self.first_block + zc_core::u64_from_usize(entry / ENTRIES)
    }

    /// The row of an entry.
    pub(super) fn row(&self, entry: usize) -> usize {
        zc_core::usize_from_u32(self.order[entry])
    }
}

/// Rows sorted by a column, those with equal values in the order in which they were.
fn sorted(column: &[u32], rows: &[u32]) -> Vec<u32> {
    let values = column.iter().max().map_or(0, |max| zc_core::usize_from_u32(*max) + 1);
    let mut next = vec![0_u32; values + 1];
    for value in column {
        next[zc_core::usize_from_u32(*value) + 1] += 1;
    }
    for value in 0..values {
        next[value + 1] += next[value];
    }
    let mut sorted = vec![0; rows.len()];
    for row in rows {
        let at = &mut next[zc_core::usize_from_u32(column[zc_core::usize_from_u32(*row)])];
        sorted[zc_core::usize_from_u32(*at)] = *row;
        *at += 1;
    }
    sorted
}

impl Indices {
    /// Writes all indices.
    pub(super) fn write<F>(tables: &Tables, out: &mut Blocks<F>) -> io::Result<Self>
    where
        F: FnMut(&[u8]) -> io::Result<()>,
    {
        let mut index = |table, columns: &[usize]| Index::write(table, columns, out);
        index(&tables.region, &[region::KEY])?;
        index(&tables.nation, &[nation::KEY])?;
        index(&tables.nation, &[nation::REGION])?;
        index(&tables.supplier, &[supplier::KEY])?;
        let suppliers_by_nation = index(&tables.supplier, &[supplier::NATION])?;
        index(&tables.customer, &[customer::KEY])?;
        index(&tables.customer, &[customer::NATION])?;
        let parts = index(&tables.part, &[part::KEY])?;
        index(&tables.supply, &[supply::PART, supply::SUPPLIER])?;
        let supplies_by_supplier = index(&tables.supply, &[supply::SUPPLIER])?;
        index(&tables.order, &[order::KEY])?;
        let orders_by_customer = index(&tables.order, &[order::CUSTOMER])?;
        index(&tables.order, &[order::DATE])?;
        let lines_by_order = index(&tables.line, &[line::ORDER, line::NUMBER])?;
        index(&tables.line, &[line::PART, line::SUPPLIER])?;
        index(&tables.line, &[line::SUPPLIER])?;
        let lines_by_date = index(&tables.line, &[line::SHIPPED])?;
        index(&tables.line, &[line::COMMITTED])?;
        index(&tables.line, &[line::RECEIVED])?;
        Ok(Self {
            suppliers_by_nation,
            parts,
            supplies_by_supplier,
            orders_by_customer,
            lines_by_order,
            lines_by_date,
        })
    }
}
