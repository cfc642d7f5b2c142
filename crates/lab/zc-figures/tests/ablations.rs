//! Shapes that are called asserted can fail: each does under every ablation that it names. `zc-figures --prove` does
//! the same for the figures that take longer.

use zc_figures::{Context, all, unbroken};

/// Quick figures whose workload alone, made again for every ablation, takes minutes here.
const LONGER: [&str; 3] = ["flaz-6", "flaz-7", "flaz-8"];

#[test]
fn what_is_asserted_fails_under_its_ablations() {
    let context = Context::default();
    let mut differences = Vec::new();
    for figure in all().into_iter().filter(|figure| figure.quick && !LONGER.contains(&figure.id)) {
        let found = (figure.run)(&context).and_then(|whole| unbroken(&figure, &context, &whole));
        match found {
            Ok(found) => differences.extend(found),
            Err(error) => panic!("{}: {error}", figure.id),
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
