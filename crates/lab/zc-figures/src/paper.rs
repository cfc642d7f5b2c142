//! The papers' numbers, each with its place, from `numbers.csv`.
//!
//! One line per number or row of numbers: `id,source,what,metric,value,unit`; no field has a comma, several values are
//! separated by bars. They are facts that the papers state in text or tables; curves that are only drawn are left out.

const CSV: &str = include_str!("../numbers.csv");

/// A number of a paper, or a row of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// Name of the number or the row.
    pub id: &'static str,
    /// Paper and place.
    pub source: &'static str,
    /// Measured system.
    pub what: &'static str,
    /// Metric.
    pub metric: &'static str,
    /// As the paper states it.
    pub value: &'static str,
    /// Its unit.
    pub unit: &'static str,
}

/// All of them, in the order of the file.
///
/// # Panics
/// If a line of the file, which is part of this crate, has not six fields.
pub fn all() -> impl Iterator<Item = Number> {
    CSV.lines().skip(1).map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let [id, source, what, metric, value, unit] = fields[..] else {
            panic!("numbers.csv: not six fields: {line}");
        };
        Number { id, source, what, metric, value, unit }
    })
}

/// The number of this name.
#[must_use]
pub fn number(id: &str) -> Option<Number> {
    all().find(|number| number.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_name_of_its_own_and_a_place() {
        let mut seen = std::collections::BTreeSet::new();
        for number in all() {
            assert!(seen.insert(number.id), "{} comes twice", number.id);
            assert!(!number.source.is_empty() && !number.value.is_empty(), "{}", number.id);
        }
        assert!(seen.len() > 60);
        assert_eq!(number("nitro.t2.tps.iops.mail").unwrap().value, "56|75|115|122|165");
        assert_eq!(number("nitro.none"), None);
    }
}
