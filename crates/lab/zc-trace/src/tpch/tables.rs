//! The tables: their text, where each row lies, and the columns that have indices.
//!
//! Invariants: a row's number is its place in its table, from 0; where row `n` ends, row `n + 1` begins.

use std::fmt::Display;
use std::io::{self, Write};
use std::ops::Range;

use tpchgen::dates::TPCHDate;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};

use super::BLOCK_BYTES;
use super::walk::Blocks;

/// Market segments (clause 4.2.2.13), by number.
pub(super) const SEGMENTS: [&str; 5] = ["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"];
/// Nations, of which keys are 0 to 24.
pub(super) const NATIONS: u32 = 25;

/// Columns of regions.
pub(super) mod region {
    pub(in super::super) const KEY: usize = 0;
}
/// Columns of nations.
pub(super) mod nation {
    pub(in super::super) const KEY: usize = 0;
    pub(in super::super) const REGION: usize = 1;
}
/// Columns of suppliers.
pub(super) mod supplier {
    pub(in super::super) const KEY: usize = 0;
    pub(in super::super) const NATION: usize = 1;
}
/// Columns of customers; of the segment, its number.
pub(super) mod customer {
    pub(in super::super) const KEY: usize = 0;
    pub(in super::super) const NATION: usize = 1;
    pub(in super::super) const SEGMENT: usize = 2;
}
/// Columns of parts.
pub(super) mod part {
    pub(in super::super) const KEY: usize = 0;
}
/// Columns of the supply table.
pub(super) mod supply {
    pub(in super::super) const PART: usize = 0;
    pub(in super::super) const SUPPLIER: usize = 1;
}
/// Columns of orders.
pub(super) mod order {
    pub(in super::super) const KEY: usize = 0;
    pub(in super::super) const CUSTOMER: usize = 1;
    pub(in super::super) const DATE: usize = 2;
}
/// Columns of the lines of orders.
pub(super) mod line {
    pub(in super::super) const ORDER: usize = 0;
    pub(in super::super) const NUMBER: usize = 1;
    pub(in super::super) const PART: usize = 2;
    pub(in super::super) const SUPPLIER: usize = 3;
    pub(in super::super) const SHIPPED: usize = 4;
    pub(in super::super) const COMMITTED: usize = 5;
    pub(in super::super) const RECEIVED: usize = 6;
}

/// A table.
#[derive(Debug)]
pub(super) struct Table {
    first_block: u64,
    /// Starts of rows, from the table's first byte, and the end of the last.
    starts: Vec<u32>,
    /// Values of the kept columns, column by column.
    columns: Vec<Vec<u32>>,
}

/// All tables, in the order in which they lie.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) region: Table,
    pub(super) nation: Table,
    pub(super) supplier: Table,
    pub(super) customer: Table,
    pub(super) part: Table,
    pub(super) supply: Table,
    pub(super) order: Table,
    pub(super) line: Table,
    /// Behind the last block.
    pub(super) end_block: u64,
}

/// A day as a number that grows with it, of five bits for the day and four for the month, as MySQL stores it.
pub(super) const fn day(year: u32, month: u32, day: u32) -> u32 {
    year << 9 | month << 5 | day
}

fn date(date: TPCHDate) -> u32 {
    let (years, month, of_month) = date.to_ymd();
    day(1900 + years.unsigned_abs(), month.unsigned_abs(), of_month.unsigned_abs())
}

fn key(key: i64) -> u32 {
    let Ok(key) = u32::try_from(key) else { unreachable!("keys of the largest database have 25 bits") };
    key
}

/// The number of a segment.
pub(super) fn segment(name: &str) -> u32 {
    let number = SEGMENTS.iter().position(|segment| *segment == name);
    let Some(Ok(number)) = number.map(u32::try_from) else { unreachable!("there are five segments") };
    number
}

impl Table {
    /// Writes rows, a line each.
    fn write<R: Display, const N: usize, F: FnMut(&[u8]) -> io::Result<()>>(
        out: &mut Blocks<F>,
        rows: impl Iterator<Item = R>,
        columns: impl Fn(&R) -> [u32; N],
    ) -> io::Result<Self> {
        let first_block = out.end_block()?;
        let first = out.bytes();
        let mut table = Self { first_block, starts: vec![0], columns: vec![Vec::new(); N] };
        for row in rows {
            writeln!(out, "{row}")?;
            let Ok(end) = u32::try_from(out.bytes() - first) else {
                unreachable!("a table of the largest database has less than 4 GiB")
            };
            table.starts.push(end);
            for (column, value) in table.columns.iter_mut().zip(columns(&row)) {
                column.push(value);
            }
        }
        out.end_block()?;
        Ok(table)
    }

    /// Returns the values of a column.
    pub(super) fn column(&self, column: usize) -> &[u32] {
        &self.columns[column]
    }

    /// Rows.
    pub(super) fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the start of a row in its table, in bytes.
    pub(super) fn position(&self, row: usize) -> u32 {
        self.starts[row]
    }

    /// Blocks that have a part of a row.
    pub(super) fn blocks_of(&self, row: usize) -> Range<u64> {
        let (start, end) = (u64::from(self.starts[row]), u64::from(self.starts[row + 1]));
        let unit = u64::from(BLOCK_BYTES);
        self.first_block + start / unit..self.first_block + end.div_ceil(unit)
    }

    /// All its blocks.
    pub(super) fn blocks(&self) -> Range<u64> {
        let end = self.starts.last().copied().map_or(0, u64::from);
        self.first_block..self.first_block + end.div_ceil(u64::from(BLOCK_BYTES))
    }

    /// Rows that end in blocks of it.
    pub(super) fn rows_that_end_in(&self, blocks: &Range<u64>) -> Range<usize> {
        let unit = u64::from(BLOCK_BYTES);
        let ends = &self.starts[1..];
        let before =
            |block: u64| ends.partition_point(|end| u64::from(*end) <= (block - self.first_block) * unit);
        before(blocks.start)..before(blocks.end)
    }

    fn keep(&mut self, kept: &[usize]) {
        for (number, column) in self.columns.iter_mut().enumerate() {
            if kept.contains(&number) {
                column.shrink_to_fit();
            } else {
                *column = Vec::new();
            }
        }
        self.starts.shrink_to_fit();
    }
}

impl Tables {
    /// Writes the tables of a scale factor.
    pub(super) fn write<F>(scale: f64, out: &mut Blocks<F>) -> io::Result<Self>
    where
        F: FnMut(&[u8]) -> io::Result<()>,
    {
        let region =
            Table::write(out, RegionGenerator::new(scale, 1, 1).iter(), |row| [key(row.r_regionkey)])?;
        let nation = Table::write(out, NationGenerator::new(scale, 1, 1).iter(), |row| {
            [key(row.n_nationkey), key(row.n_regionkey)]
        })?;
        let supplier = Table::write(out, SupplierGenerator::new(scale, 1, 1).iter(), |row| {
            [key(row.s_suppkey), key(row.s_nationkey)]
        })?;
        let customer = Table::write(out, CustomerGenerator::new(scale, 1, 1).iter(), |row| {
            [key(row.c_custkey), key(row.c_nationkey), segment(row.c_mktsegment)]
        })?;
        let part = Table::write(out, PartGenerator::new(scale, 1, 1).iter(), |row| [key(row.p_partkey)])?;
        let supply = Table::write(out, PartSuppGenerator::new(scale, 1, 1).iter(), |row| {
            [key(row.ps_partkey), key(row.ps_suppkey)]
        })?;
        let order = Table::write(out, OrderGenerator::new(scale, 1, 1).iter(), |row| {
            [key(row.o_orderkey), key(row.o_custkey), date(row.o_orderdate)]
        })?;
        let line = Table::write(out, LineItemGenerator::new(scale, 1, 1).iter(), |row| {
            let keys = [
                key(row.l_orderkey),
                row.l_linenumber.unsigned_abs(),
                key(row.l_partkey),
                key(row.l_suppkey),
            ];
            let dates = [row.l_shipdate, row.l_commitdate, row.l_receiptdate].map(date);
            [keys[0], keys[1], keys[2], keys[3], dates[0], dates[1], dates[2]]
        })?;
        let end_block = out.end_block()?;
        Ok(Self { region, nation, supplier, customer, part, supply, order, line, end_block })
    }

    /// Drops columns that no query uses.
    pub(super) fn keep_what_is_asked_for(&mut self) {
        self.region.keep(&[]);
        self.nation.keep(&[]);
        self.supplier.keep(&[supplier::KEY, supplier::NATION]);
        self.customer.keep(&[customer::KEY, customer::SEGMENT]);
        self.part.keep(&[part::KEY]);
        self.supply.keep(&[supply::SUPPLIER]);
        self.order.keep(&[order::KEY, order::CUSTOMER, order::DATE]);
        self.line.keep(&[line::ORDER, line::PART, line::SHIPPED]);
    }
}
