//! Pages that a database accesses under TPC-C (revision 5.11).
//!
//! From the specification: the mix of transactions (clause 5.2.3: 43 % Payment, 4 % each of Order-Status, Delivery and
//! Stock-Level, the rest New-Order), the rows of each (2.4 to 2.8), the non-uniform choice of customers and items
//! (2.1.6, with a constant of 0), and rows of a warehouse and bytes of a row (1.2.1), which determine the pages of 4
//! KiB of a table.
//!
//! Not from it: pages are accessed as if the database had no buffer of its own, and a page is read before it is
//! changed; indices and the log are omitted; the rows that a warehouse gains lie, in order of arrival, in rings of
//! pages for 30,000 of them, so that the database does not grow; districts place orders in turn; the three customers
//! of a last name, of which the specification takes the middle one, lie a thousand rows apart.
//!
//! Invariants: the items of an order are derived from its warehouse and number, so Stock-Level reads the stock of the
//! last orders, and Delivery changes the customers who placed them; memory is three counters per warehouse used.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_core::Map;

use super::program::{Accesses, Program};
use crate::distinct::mix;

/// Rows of a warehouse; there are as many items as a warehouse has rows of stock.
const DISTRICTS: u64 = 10;
const CUSTOMERS_PER_DISTRICT: u64 = 3000;
const CUSTOMERS: u64 = DISTRICTS * CUSTOMERS_PER_DISTRICT;
const ITEMS: u64 = 100_000;
/// Orders that a warehouse begins with: one of each customer, the last 9,000 not delivered.
const ORDERS_FIRST: u64 = CUSTOMERS;
const DELIVERED_FIRST: u64 = 21_000;
/// Last names of a district.
const NAMES: u64 = 1000;

const PAGE_BYTES: u64 = 4096;
const CUSTOMERS_PER_PAGE: u64 = PAGE_BYTES / 655;
const STOCK_PER_PAGE: u64 = PAGE_BYTES / 306;
const ITEMS_PER_PAGE: u64 = PAGE_BYTES / 82;
const ORDERS_PER_PAGE: u64 = PAGE_BYTES / 24;
const NEW_ORDERS_PER_PAGE: u64 = PAGE_BYTES / 8;
const PAYMENTS_PER_PAGE: u64 = PAGE_BYTES / 46;
/// Orders of which the lines, ten each in the mean, fill a page.
const ORDERS_PER_LINE_PAGE: u64 = PAGE_BYTES / (10 * 54);

/// The items come first, then warehouse by warehouse; of each, the tables in this order.
const ITEM_PAGES: u64 = ITEMS.div_ceil(ITEMS_PER_PAGE);
/// The row of the warehouse and those of its districts.
const HEAD_PAGES: u64 = 1;
const CUSTOMER_PAGES: u64 = CUSTOMERS.div_ceil(CUSTOMERS_PER_PAGE);
const STOCK_PAGES: u64 = ITEMS.div_ceil(STOCK_PER_PAGE);
const ORDER_PAGES: u64 = ORDERS_FIRST.div_ceil(ORDERS_PER_PAGE);
const NEW_ORDER_PAGES: u64 = ORDERS_FIRST.div_ceil(NEW_ORDERS_PER_PAGE);
const LINE_PAGES: u64 = ORDERS_FIRST.div_ceil(ORDERS_PER_LINE_PAGE);
const HISTORY_PAGES: u64 = ORDERS_FIRST.div_ceil(PAYMENTS_PER_PAGE);

const CUSTOMERS_AT: u64 = HEAD_PAGES;
const STOCK_AT: u64 = CUSTOMERS_AT + CUSTOMER_PAGES;
const ORDERS_AT: u64 = STOCK_AT + STOCK_PAGES;
const NEW_ORDERS_AT: u64 = ORDERS_AT + ORDER_PAGES;
const LINES_AT: u64 = NEW_ORDERS_AT + NEW_ORDER_PAGES;
const HISTORY_AT: u64 = LINES_AT + LINE_PAGES;
const WAREHOUSE_PAGES: u64 = HISTORY_AT + HISTORY_PAGES;

/// Blocks that one warehouse takes, with the items.
pub(super) const BLOCKS_MIN: u64 = ITEM_PAGES + WAREHOUSE_PAGES;

/// A database of as many warehouses as fit a volume.
#[derive(Debug)]
pub(super) struct Tpcc {
    warehouses: u64,
    seed: u64,
    counters: Map<u64, Counters>,
}

/// State of a warehouse.
#[derive(Debug, Clone, Copy)]
struct Counters {
    orders: u64,
    delivered: u64,
    payments: u64,
}

/// Contents of an order.
#[derive(Debug, PartialEq)]
struct Order {
    /// From 0, in the warehouse.
    customer: u64,
    /// Items, and the warehouses that supply them.
    lines: Vec<(u64, u64)>,
}

/// Clause 2.1.6, from 0 to below `count`.
fn non_uniform(rng: &mut Pcg64Mcg, a: u64, count: u64) -> u64 {
    (rng.random_range(0..=a) | rng.random_range(0..count)) % count
}

impl Tpcc {
    /// Creates the database in a volume of at least [`BLOCKS_MIN`] blocks.
    pub(super) fn new(blocks: u64, seed: u64) -> Self {
        assert!(blocks >= BLOCKS_MIN, "there is room for one warehouse");
        Self { warehouses: (blocks - ITEM_PAGES) / WAREHOUSE_PAGES, seed, counters: Map::default() }
    }

    const fn page(home: u64, within: u64) -> u64 {
        ITEM_PAGES + home * WAREHOUSE_PAGES + within
    }

    const fn customer(home: u64, customer: u64) -> u64 {
        Self::page(home, CUSTOMERS_AT + customer / CUSTOMERS_PER_PAGE)
    }

    const fn stock(home: u64, item: u64) -> u64 {
        Self::page(home, STOCK_AT + item / STOCK_PER_PAGE)
    }

    const fn order(home: u64, number: u64) -> u64 {
        Self::page(home, ORDERS_AT + number / ORDERS_PER_PAGE % ORDER_PAGES)
    }

    const fn new_order_row(home: u64, number: u64) -> u64 {
        Self::page(home, NEW_ORDERS_AT + number / NEW_ORDERS_PER_PAGE % NEW_ORDER_PAGES)
    }

    const fn lines(home: u64, number: u64) -> u64 {
        Self::page(home, LINES_AT + number / ORDERS_PER_LINE_PAGE % LINE_PAGES)
    }

    const fn history(home: u64, number: u64) -> u64 {
        Self::page(home, HISTORY_AT + number / PAYMENTS_PER_PAGE % HISTORY_PAGES)
    }

    fn counters(&mut self, home: u64) -> &mut Counters {
        let first = Counters { orders: ORDERS_FIRST, delivered: DELIVERED_FIRST, payments: 0 };
        self.counters.entry(home).or_insert(first)
    }

    /// Another warehouse, if there is one.
    fn other(&self, home: u64, rng: &mut Pcg64Mcg) -> u64 {
        let away = rng.random_range(0..self.warehouses.max(2) - 1);
        (home + 1 + away) % self.warehouses
    }

    /// An order that was placed or will be.
    fn what_is_ordered(&self, home: u64, number: u64) -> Order {
        let key = u128::from(self.seed) << 64 | u128::from(home << 32 ^ number);
        let mut rng = Pcg64Mcg::seed_from_u64(mix(key));
        let within = non_uniform(&mut rng, 1023, CUSTOMERS_PER_DISTRICT);
        let customer = number % DISTRICTS * CUSTOMERS_PER_DISTRICT + within;
        let lines = (0..rng.random_range(5..=15)).map(|_| {
            // Clause 2.4.1.5: one in a hundred comes from elsewhere.
            let from = if rng.random_bool(0.01) { self.other(home, &mut rng) } else { home };
            (non_uniform(&mut rng, 8191, ITEMS), from)
        });
        Order { customer, lines: lines.collect() }
    }

    /// Clause 2.4.
    fn new_order(&mut self, home: u64, accesses: &mut Accesses) {
        let number = self.counters(home).orders;
        self.counters(home).orders += 1;
        let order = self.what_is_ordered(home, number);
        accesses.change(Self::page(home, 0));
        accesses.read(Self::customer(home, order.customer));
        for (item, from) in order.lines {
            accesses.read(item / ITEMS_PER_PAGE);
            accesses.change(Self::stock(from, item));
        }
        accesses.change(Self::order(home, number));
        accesses.change(Self::new_order_row(home, number));
        accesses.change(Self::lines(home, number));
    }

    /// Clause 2.5.
    fn payment(&mut self, home: u64, rng: &mut Pcg64Mcg, accesses: &mut Accesses) {
        accesses.change(Self::page(home, 0));
        // 15 % pay elsewhere than at home.
        let of = if rng.random_bool(0.15) { self.other(home, rng) } else { home };
        let first = rng.random_range(0..DISTRICTS) * CUSTOMERS_PER_DISTRICT;
        let within = if rng.random_bool(0.6) {
            // By last name: the customers of that name are read, the middle one pays.
            let name = non_uniform(rng, 255, NAMES);
            accesses.read(Self::customer(of, first + name));
            accesses.read(Self::customer(of, first + 2 * NAMES + name));
            NAMES + name
        } else {
            non_uniform(rng, 1023, CUSTOMERS_PER_DISTRICT)
        };
        accesses.change(Self::customer(of, first + within));
        let number = self.counters(home).payments;
        self.counters(home).payments += 1;
        accesses.change(Self::history(home, number));
    }

    /// Clause 2.6: a customer, and an order of theirs.
    fn order_status(&mut self, home: u64, rng: &mut Pcg64Mcg, accesses: &mut Accesses) {
        let number = self.counters(home).orders - 1 - rng.random_range(0..ORDERS_FIRST);
        let customer = self.what_is_ordered(home, number).customer;
        if rng.random_bool(0.6) {
            let (first, within) = (customer - customer % CUSTOMERS_PER_DISTRICT, customer % NAMES);
            (0..3).for_each(|row| accesses.read(Self::customer(home, first + row * NAMES + within)));
        } else {
            accesses.read(Self::customer(home, customer));
        }
        accesses.read(Self::order(home, number));
        accesses.read(Self::lines(home, number));
    }

    /// Clause 2.7: of each district the oldest order that is not delivered.
    fn delivery(&mut self, home: u64, accesses: &mut Accesses) {
        for _ in 0..DISTRICTS {
            let counters = self.counters(home);
            if counters.delivered == counters.orders {
                return;
            }
            let number = counters.delivered;
            counters.delivered += 1;
            let customer = self.what_is_ordered(home, number).customer;
            accesses.change(Self::new_order_row(home, number));
            accesses.change(Self::order(home, number));
            accesses.change(Self::lines(home, number));
            accesses.change(Self::customer(home, customer));
        }
    }

    /// Clause 2.8: the lines of the last twenty orders of a district, and the stock of each item in them.
    fn stock_level(&mut self, home: u64, rng: &mut Pcg64Mcg, accesses: &mut Accesses) {
        accesses.read(Self::page(home, 0));
        let last = self.counters(home).orders - 1 - rng.random_range(0..DISTRICTS);
        let mut items = std::collections::BTreeSet::new();
        for number in (0..20).map(|before| last - before * DISTRICTS) {
            accesses.read(Self::lines(home, number));
            items.extend(self.what_is_ordered(home, number).lines.iter().map(|(item, _)| *item));
        }
        items.iter().for_each(|item| accesses.read(Self::stock(home, *item)));
    }
}

impl Program for Tpcc {
    fn transaction(&mut self, rng: &mut Pcg64Mcg, accesses: &mut Accesses) {
        let home = rng.random_range(0..self.warehouses);
        match rng.random_range(0..100) {
            0..45 => self.new_order(home, accesses),
            45..88 => self.payment(home, rng, accesses),
            88..92 => self.order_status(home, rng, accesses),
            92..96 => self.delivery(home, accesses),
            _ => self.stock_level(home, rng, accesses),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;

    type Transaction = Vec<(Op, u64)>;

    fn transactions(warehouses: u64, count: usize) -> Vec<Transaction> {
        let mut tpcc = Tpcc::new(BLOCKS_MIN + (warehouses - 1) * WAREHOUSE_PAGES, 1);
        assert_eq!(tpcc.warehouses, warehouses);
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut accesses = Accesses::default();
        let mut one = || {
            tpcc.transaction(&mut rng, &mut accesses);
            std::iter::from_fn(|| accesses.pop()).map(|(op, pages)| (op, pages.start)).collect()
        };
        (0..count).map(|_| one()).collect()
    }

    /// The table of a page: how far it begins into its warehouse.
    fn table(page: u64) -> u64 {
        let Some(at) = page.checked_sub(ITEM_PAGES) else { return u64::MAX };
        let starts = [HISTORY_AT, LINES_AT, NEW_ORDERS_AT, ORDERS_AT, STOCK_AT, CUSTOMERS_AT];
        starts.into_iter().find(|start| at % WAREHOUSE_PAGES >= *start).unwrap_or(0)
    }

    fn writes(transaction: &Transaction, of: u64) -> bool {
        transaction.iter().any(|(op, page)| *op == Op::Write && table(*page) == of)
    }

    #[test]
    fn the_mix_is_that_of_the_specification() {
        let all = transactions(4, 20_000);
        let share = |is: &dyn Fn(&Transaction) -> bool| {
            all.iter().filter(|transaction| is(transaction)).count() as f64 / all.len() as f64
        };
        let near =
            |share: f64, percent: f64| assert!((share * 100.0 - percent).abs() < 1.0, "{share} {percent}");
        near(share(&|one| writes(one, STOCK_AT)), 45.0);
        near(share(&|one| writes(one, HISTORY_AT)), 43.0);
        near(share(&|one| writes(one, NEW_ORDERS_AT) && !writes(one, STOCK_AT)), 4.0);
        let only_reads = |one: &Transaction| one.iter().all(|(op, _)| *op == Op::Read);
        near(share(&|one| only_reads(one) && one.iter().any(|(_, page)| table(*page) == STOCK_AT)), 4.0);
        near(share(&|one| only_reads(one) && one.iter().all(|(_, page)| table(*page) != STOCK_AT)), 4.0);
    }

    #[test]
    fn an_order_has_ten_lines_in_the_mean_and_one_in_a_hundred_from_elsewhere() {
        let tpcc = Tpcc::new(BLOCKS_MIN + 3 * WAREHOUSE_PAGES, 1);
        let lines: Vec<_> = (0..5000).flat_map(|number| tpcc.what_is_ordered(2, number).lines).collect();
        assert!((49_000..51_000).contains(&lines.len()), "{}", lines.len());
        let away = lines.iter().filter(|(_, from)| *from != 2).count();
        assert!((400..600).contains(&away), "{away}");
        assert!(lines.iter().all(|(item, from)| *item < ITEMS && *from < 4));
    }

    #[test]
    fn stock_level_reads_what_the_last_orders_took() {
        let mut tpcc = Tpcc::new(BLOCKS_MIN, 1);
        let mut accesses = Accesses::default();
        (0..200).for_each(|_| tpcc.new_order(0, &mut accesses));
        let taken: std::collections::BTreeSet<u64> = std::iter::from_fn(|| accesses.pop())
            .filter(|(op, _)| *op == Op::Write)
            .map(|(_, at)| at.start)
            .collect();
        tpcc.stock_level(0, &mut Pcg64Mcg::seed_from_u64(1), &mut accesses);
        let read: Vec<u64> = std::iter::from_fn(|| accesses.pop()).map(|(_, at)| at.start).collect();
        assert!(read.len() > 150, "{}", read.len());
        assert!(read.iter().all(|page| taken.contains(page)));
    }

    #[test]
    fn every_page_written_was_read_and_lies_in_the_database() {
        for transaction in transactions(3, 3000) {
            let mut seen = std::collections::BTreeSet::new();
            for (op, page) in transaction {
                assert!(page < BLOCKS_MIN + 2 * WAREHOUSE_PAGES);
                // Items never change.
                assert!(op == Op::Read || (seen.contains(&page) && page >= ITEM_PAGES));
                seen.insert(page);
            }
        }
    }

    #[test]
    fn tables_end_where_the_next_begin() {
        assert_eq!(Tpcc::customer(1, CUSTOMERS - 1) + 1, Tpcc::stock(1, 0));
        assert_eq!(Tpcc::stock(1, ITEMS - 1) + 1, Tpcc::order(1, 0));
        assert_eq!(Tpcc::order(1, ORDERS_FIRST - 1) + 1, Tpcc::new_order_row(1, 0));
        assert_eq!(Tpcc::new_order_row(1, ORDERS_FIRST - 1) + 1, Tpcc::lines(1, 0));
        assert_eq!(Tpcc::lines(1, ORDERS_FIRST - 1) + 1, Tpcc::history(1, 0));
        assert_eq!(Tpcc::history(1, ORDERS_FIRST - 1) + 1, Tpcc::page(2, 0));
    }
}
