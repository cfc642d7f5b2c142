//! Failing on purpose, for tests of everything above an origin.
//!
//! Job: decide from fixed rules and counters, never from chance or time, which requests fail and how. The same
//! requests in the same order meet the same faults.
//!
//! What it does not do: simulate a device. The deterministic simulation has its own; this one makes a running daemon
//! meet errors on real files.

use std::num::NonZeroU64;
use std::ops::Range;

use zc_core::ErrorKind;

use crate::error::RequestClass;

/// When a rule fails a request that it matches; its matching requests are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultWhen {
    /// Each.
    Always,
    /// Numbers n, 2n, 3n, ...
    EveryNth(NonZeroU64),
    /// All after the first n.
    After(u64),
    /// Number n only.
    Once(NonZeroU64),
}

impl FaultWhen {
    const fn hits(self, number: u64) -> bool {
        match self {
            Self::Always => true,
            Self::EveryNth(n) => number.is_multiple_of(n.get()),
            Self::After(n) => number > n,
            Self::Once(n) => number == n.get(),
        }
    }
}

/// What a failing request does before it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultEffect {
    /// Nothing.
    Nothing,
    /// A write stores the first half of its sectors, then fails. Other requests do nothing.
    Torn,
    /// The request is carried out whole, then fails: the error of a device that lost the answer.
    Done,
}

/// One rule.
#[derive(Debug, Clone)]
pub struct FaultRule {
    /// Requests it is about; empty for all.
    pub classes: Vec<RequestClass>,
    /// Bytes of the origin it is about: requests that touch the range. `None` for all requests, flushes included.
    pub range: Option<Range<u64>>,
    /// Which of those fail.
    pub when: FaultWhen,
    /// How: [`ErrorKind::Io`], [`ErrorKind::NoSpace`], ...
    pub error: ErrorKind,
    /// What happens before.
    pub effect: FaultEffect,
}

impl FaultRule {
    /// A rule that fails every request of these classes with an I/O error and no effect.
    #[must_use]
    pub fn always(classes: &[RequestClass]) -> Self {
        Self {
            classes: classes.to_vec(),
            range: None,
            when: FaultWhen::Always,
            error: ErrorKind::Io,
            effect: FaultEffect::Nothing,
        }
    }

    fn matches(&self, class: RequestClass, offset: u64, len: u64) -> bool {
        let class_fits = self.classes.is_empty() || self.classes.contains(&class);
        let end = offset.saturating_add(len);
        class_fits && self.range.as_ref().is_none_or(|range| offset < range.end && range.start < end)
    }
}

/// Rules with their counters. The first rule that hits decides; all rules that match count.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    rules: Vec<(FaultRule, u64)>,
    injected: u64,
}

impl FaultPlan {
    /// A plan of these rules.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = FaultRule>) -> Self {
        Self { rules: rules.into_iter().map(|rule| (rule, 0)).collect(), injected: 0 }
    }

    /// Faults injected so far.
    #[must_use]
    pub const fn injected(&self) -> u64 {
        self.injected
    }

    pub(crate) fn decide(
        &mut self,
        class: RequestClass,
        offset: u64,
        len: u64,
    ) -> Option<(ErrorKind, FaultEffect)> {
        let mut fault = None;
        for (rule, count) in &mut self.rules {
            if rule.matches(class, offset, len) {
                *count += 1;
                if fault.is_none() && rule.when.hits(*count) {
                    fault = Some((rule.error, rule.effect));
                }
            }
        }
        self.injected += u64::from(fault.is_some());
        fault
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(when: FaultWhen) -> Vec<u64> {
        let mut plan = FaultPlan::new([FaultRule { when, ..FaultRule::always(&[]) }]);
        (1..=10).filter(|_| plan.decide(RequestClass::Read, 0, 512).is_some()).collect()
    }

    #[test]
    fn rules_hit_the_numbers_they_name() {
        assert_eq!(failing(FaultWhen::Always).len(), 10);
        assert_eq!(failing(FaultWhen::EveryNth(NonZeroU64::new(3).unwrap())), [3, 6, 9]);
        assert_eq!(failing(FaultWhen::After(8)), [9, 10]);
        assert_eq!(failing(FaultWhen::Once(NonZeroU64::new(4).unwrap())), [4]);
    }

    #[test]
    fn rules_look_at_class_and_range_and_the_first_decides() {
        let ranged = FaultRule { range: Some(1000..2000), ..FaultRule::always(&[RequestClass::Write]) };
        let rest = FaultRule { error: ErrorKind::NoSpace, ..FaultRule::always(&[RequestClass::Write]) };
        let mut plan = FaultPlan::new([ranged, rest]);
        let mut kind = |class, offset, len| plan.decide(class, offset, len).map(|(kind, _)| kind);
        assert_eq!(kind(RequestClass::Read, 1000, 10), None);
        assert_eq!(kind(RequestClass::Write, 0, 1000), Some(ErrorKind::NoSpace));
        assert_eq!(kind(RequestClass::Write, 0, 1001), Some(ErrorKind::Io));
        assert_eq!(kind(RequestClass::Write, 1999, 1), Some(ErrorKind::Io));
        assert_eq!(kind(RequestClass::Write, 2000, 1), Some(ErrorKind::NoSpace));
        assert_eq!(plan.injected(), 4);
    }
}
