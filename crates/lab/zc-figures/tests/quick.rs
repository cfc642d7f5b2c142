//! The small set: figures that take seconds, with their shapes.

use std::collections::BTreeSet;

use zc_figures::{Context, all};

#[test]
fn quick_figures_have_their_shapes() {
    let mut failed = Vec::new();
    for figure in all().into_iter().filter(|figure| figure.quick) {
        let outcome = match (figure.run)(&Context::default()) {
            Ok(outcome) => outcome,
            Err(error) => panic!("{}: {error}", figure.id),
        };
        assert!(!outcome.tables.is_empty() && !outcome.shapes.is_empty(), "{} shows nothing", figure.id);
        let shown: BTreeSet<&str> = outcome.beside.iter().map(|beside| beside.number).collect();
        let named: BTreeSet<&str> = figure.numbers.iter().map(|(id, _)| *id).collect();
        assert_eq!(shown, named, "{}: numbers that it shows, and that it says it shows", figure.id);
        let broken = outcome.shapes.iter().filter(|shape| !shape.holds);
        failed.extend(broken.map(|shape| format!("{}: {} ({})", figure.id, shape.claim, shape.seen)));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
