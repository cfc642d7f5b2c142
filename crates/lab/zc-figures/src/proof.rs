//! Test that asserted shapes can fail: each shape is evaluated under the ablations that it names.

use std::collections::BTreeSet;

use crate::error::FigureError;
use crate::outcome::{Outcome, Shape};
use crate::{Ablation, Context, Figure, Standing};

/// Ablations of a shape that is asserted.
fn of(shape: &Shape) -> &'static [Ablation] {
    match shape.standing {
        Standing::Asserted(ablations) => ablations,
        _ => &[],
    }
}

/// Recomputes a figure under each ablation that its asserted shapes name. Returns every shape that still holds, and
/// those that name no ablation.
///
/// # Errors
/// A figure cannot be computed.
/// A figure cannot be made.
pub fn unbroken(figure: &Figure, context: &Context, whole: &Outcome) -> Result<Vec<String>, FigureError> {
    let mut all = Vec::new();
    for shape in whole.shapes.iter().filter(|shape| matches!(shape.standing, Standing::Asserted(&[]))) {
        all.push(format!("{}: \"{}\" names no ablation", figure.id, shape.claim));
    }
    let ablations: BTreeSet<Ablation> = whole.shapes.iter().flat_map(of).copied().collect();
    for ablation in ablations {
        let broken = (figure.run)(&Context { ablation: Some(ablation), ..context.clone() })?;
        for shape in whole.shapes.iter().filter(|shape| of(shape).contains(&ablation)) {
            let same = broken.shapes.iter().find(|other| other.claim == shape.claim);
            if same.is_none_or(|other| other.holds) {
                let seen = same.map_or("it is not claimed", |other| &other.seen);
                let name = ablation.name();
                all.push(format!("{}: \"{}\" does not fail under {name} ({seen})", figure.id, shape.claim));
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(run: fn(&Context) -> Result<Outcome, FigureError>) -> Figure {
        let standing = Standing::Fitted("nothing");
        Figure {
            id: "sample",
            title: "t",
            source: "s",
            ours: "o",
            differences: "d",
            standing,
            numbers: &[],
            quick: true,
            run,
        }
    }

    fn found(run: fn(&Context) -> Result<Outcome, FigureError>) -> Vec<String> {
        let (figure, context) = (figure(run), Context::default());
        let whole = (figure.run)(&context).unwrap();
        unbroken(&figure, &context, &whole).unwrap()
    }

    #[test]
    fn a_shape_that_holds_whatever_is_left_out_is_told() {
        let differences = found(|_| {
            let mut outcome = Outcome::default();
            outcome.asserted(&[Ablation::NoCleaner], true, "one is one", "1");
            outcome.asserted(&[], true, "two is two", "2");
            outcome.fitted("f", true, "three is three", "3");
            Ok(outcome)
        });
        assert_eq!(differences.len(), 2, "{differences:?}");
        assert!(
            differences[0].contains("two is two") && differences[1].contains("one is one"),
            "{differences:?}"
        );
    }

    #[test]
    fn a_shape_that_fails_is_not_told_and_one_that_is_not_claimed_is() {
        let differences = found(|context| {
            let mut outcome = Outcome::default();
            let whole = context.ablation.is_none();
            outcome.asserted(&[Ablation::NoCleaner], whole, "it cleans", "-");
            if whole {
                outcome.asserted(&[Ablation::NoCleaner], true, "it is clean", "-");
            }
            Ok(outcome)
        });
        assert_eq!(differences.len(), 1, "{differences:?}");
        assert!(differences[0].contains("not claimed"), "{differences:?}");
    }
}
