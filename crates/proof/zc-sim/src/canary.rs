//! Deliberate bugs: proof that the simulator's judges detect them.
//!
//! Job: name each bug and the part that implements it. Some are bugs of the driver and need no change of the manager,
//! so every build of the simulator has them. The others are patches of the manager (`canaries` beside this crate's
//! sources), which `cargo xtask canaries` applies to a copy of the tree and builds with `--cfg zc_canary`. No other
//! build has them.

#[cfg(zc_canary)]
use zc_cache::config::Canary as Bug;

use crate::profile::Profile;

/// A deliberate bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canary {
    /// Bug of the driver.
    Driver(DriverBug),
    /// Bug of the manager.
    #[cfg(zc_canary)]
    Manager(Bug),
}

/// A deliberate bug of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverBug {
    /// G3: a stored extent that fails verification is served.
    TrustExtent,
    /// G5: the intent log keeps records that the journal already has.
    RepeatIntents,
    /// G5: a restart does not search for summaries.
    ForgetSummaries,
    /// G5: after a kill nothing records which commits were durable.
    ForgetProofs,
    /// G2: a kill discards writes that the store acknowledged and did not flush.
    KillTakesStore,
    /// G1: buffers of requests held for the next manager are dropped with those of the old one.
    ExchangeBuffers,
    /// Requests held for the next manager are submitted twice.
    ExchangeRepeats,
    /// G1: a reattached device is trusted although the origins were written since.
    ExchangeTrusts,
    /// G5: a manager that takes over loses the record of lost acknowledged writes.
    ExchangeForgets,
    /// G1: an abandoned operation of an origin counts as one that never reached it.
    ForgetAbandoned,
}

/// Deliberate bugs of this build, each with the guarantee or property that it breaks.
pub const CANARIES: &[(&str, Canary)] = &[
    ("g3-trust-extent", Canary::Driver(DriverBug::TrustExtent)),
    ("g5-repeat-intents", Canary::Driver(DriverBug::RepeatIntents)),
    ("g5-forget-summaries", Canary::Driver(DriverBug::ForgetSummaries)),
    ("g5-forget-proofs", Canary::Driver(DriverBug::ForgetProofs)),
    ("g2-kill-takes-store", Canary::Driver(DriverBug::KillTakesStore)),
    ("g1-exchange-buffers", Canary::Driver(DriverBug::ExchangeBuffers)),
    ("exchange-repeats", Canary::Driver(DriverBug::ExchangeRepeats)),
    ("g1-exchange-trusts", Canary::Driver(DriverBug::ExchangeTrusts)),
    ("g5-exchange-forgets", Canary::Driver(DriverBug::ExchangeForgets)),
    ("g1-forget-abandoned", Canary::Driver(DriverBug::ForgetAbandoned)),
    #[cfg(zc_canary)]
    ("g1-stale-fill", Canary::Manager(Bug::StaleFill)),
    #[cfg(zc_canary)]
    ("g1-origin-meetings", Canary::Manager(Bug::OriginMeetings)),
    #[cfg(zc_canary)]
    ("g2-no-region-mark", Canary::Manager(Bug::NoRegionMark)),
    #[cfg(zc_canary)]
    ("g3-trust-content", Canary::Manager(Bug::TrustContent)),
    #[cfg(zc_canary)]
    ("g3-trust-shared", Canary::Manager(Bug::TrustShared)),
    #[cfg(zc_canary)]
    ("g5-never-prove", Canary::Manager(Bug::NeverProve)),
    #[cfg(zc_canary)]
    ("g4-surface-cache-error", Canary::Manager(Bug::SurfaceCacheError)),
    #[cfg(zc_canary)]
    ("g5-early-flush", Canary::Manager(Bug::EarlyFlush)),
    #[cfg(zc_canary)]
    ("g5-ignore-unflushed", Canary::Manager(Bug::IgnoreUnflushed)),
    #[cfg(zc_canary)]
    ("g6-epoch-order", Canary::Manager(Bug::EpochOrder)),
    #[cfg(zc_canary)]
    ("g6-forget-flushes", Canary::Manager(Bug::ForgetFlushes)),
    #[cfg(zc_canary)]
    ("g7-short-fingerprint", Canary::Manager(Bug::ShortFingerprint)),
    #[cfg(zc_canary)]
    ("g9-forget-domain", Canary::Manager(Bug::ForgetDomain)),
    #[cfg(zc_canary)]
    ("g1-no-sweep-gate", Canary::Manager(Bug::NoSweepGate)),
    #[cfg(zc_canary)]
    ("g2-no-defer", Canary::Manager(Bug::NoDefer)),
    #[cfg(zc_canary)]
    ("g2-stale-image", Canary::Manager(Bug::StaleImage)),
    #[cfg(zc_canary)]
    ("g5-early-summary", Canary::Manager(Bug::EarlySummary)),
    #[cfg(zc_canary)]
    ("g5-ignore-elsewhere", Canary::Manager(Bug::IgnoreElsewhere)),
    #[cfg(zc_canary)]
    ("g5-unpinned-chain", Canary::Manager(Bug::UnpinnedChain)),
    #[cfg(zc_canary)]
    ("pins-evicted", Canary::Manager(Bug::PinsEvicted)),
];

impl Canary {
    /// Profile under which the bug is searched for, if a mixture of all seldom shows it.
    #[must_use]
    pub const fn profile(self) -> Option<Profile> {
        match self {
            #[cfg(zc_canary)]
            Self::Manager(Bug::NoSweepGate) => Some(Profile::Tiny),
            #[cfg(zc_canary)]
            Self::Manager(
                Bug::NoDefer
                | Bug::EarlySummary
                | Bug::IgnoreElsewhere
                | Bug::UnpinnedChain
                | Bug::TrustShared,
            ) => Some(Profile::Aimed),
            Self::Driver(DriverBug::ForgetProofs) => Some(Profile::Aimed),
            _ => None,
        }
    }
}

/// Returns the canary mark if this build includes the manager's deliberate bugs.
#[must_use]
pub fn manager_bugs() -> Option<&'static str> {
    #[cfg(zc_canary)]
    return Some(zc_cache::config::CANARY_MARK);
    #[cfg(not(zc_canary))]
    None
}
