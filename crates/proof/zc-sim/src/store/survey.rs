//! Checks surveys: accounts against a count over all addresses, and scrubs against reads of all addresses.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt as _;
use zc_store::seam::{RequestKind, StoreError};
use zc_store::{Place, RootId, ScrubPoint, ScrubReport, SurveyKind, Surveyed};

use super::perform::step;
use super::world::{ADDRESSES, CHUNK, RUN, STEPS_MAX, Waits, World};

/// Stored location and length of each address's content.
type Held = BTreeMap<u64, (Place, u64)>;

/// Checks that accounts equal a count over all addresses, whatever changes during the survey.
pub(crate) fn judge_accounts(world: &mut World) {
    if world.faults.lies() || !world.serves() || world.violation.is_some() || !world.drain() {
        return;
    }
    let moved = world.store.stats().chunks_moved;
    let Some(naive) = count_all(world) else { return };
    if world.store.stats().chunks_moved != moved || world.fenced {
        return;
    }
    world.surveyed = None;
    world.submit(RequestKind::Survey(SurveyKind::Account), Waits::Survey);
    for _ in 0..world.rng.random_range(0..6) {
        world.request();
    }
    let Some(surveyed) = survey_ends(world) else { return };
    let Ok(Surveyed::Accounts(accounts)) = surveyed else {
        // A failed flush may have lost a page.
        if !world.fenced {
            world.violate(format!("accounts cannot be made: {surveyed:?}"));
        }
        return;
    };
    let mut users: BTreeMap<Place, BTreeSet<RootId>> = BTreeMap::new();
    for (root, held) in &naive {
        held.values().for_each(|(place, _)| {
            users.entry(*place).or_default().insert(*root);
        });
    }
    let mut all = BTreeMap::new();
    for (root, held) in &naive {
        let chunks: BTreeMap<Place, u64> = held.values().copied().collect();
        let unique = chunks.iter().filter(|(place, _)| users[*place].len() == 1);
        let expected =
            [held.len() as u64 * u64::from(CHUNK), chunks.values().sum(), unique.map(|(_, n)| *n).sum()];
        let found = accounts.roots.iter().find(|account| account.root == *root);
        let found = found.map(|account| [account.used_bytes, account.stored_bytes, account.unique_bytes]);
        if found != Some(expected) {
            world.violate(format!("the accounts of {root:?} say {found:?}, a count {expected:?}"));
            return;
        }
        all.extend(chunks);
    }
    let raw = all.len() as u64 * u64::from(CHUNK);
    let pool = accounts.pool;
    if (pool.stored_bytes, pool.raw_bytes) != (all.values().sum(), raw) || accounts.roots.len() != naive.len()
    {
        world.violate(format!("the accounts of the pool say {pool:?}, a count {all:?}"));
    }
    world.note("accounts judged");
}

fn count_all(world: &mut World) -> Option<BTreeMap<RootId, Held>> {
    let roots: Vec<RootId> = world.store.roots().map(|(id, _)| id).collect();
    let mut naive = BTreeMap::new();
    let addresses: BTreeSet<u64> = ADDRESSES.iter().flat_map(|first| *first..*first + 2 * RUN).collect();
    for root in roots {
        let mut held = BTreeMap::new();
        for address in &addresses {
            world.read_now(root, *address)?;
            let stored = world.probe.and_then(|probe| probe.stored);
            held.extend(stored.map(|stored| (*address, (stored.place, u64::from(stored.stored_bytes)))));
        }
        naive.insert(root, held);
    }
    Some(naive)
}

/// Checks that a scrub reports exactly the unreadable addresses, in one piece or in many.
pub(crate) fn judge_scrub(world: &mut World) {
    let only_rots = !world.faults.lies() || world.faults.rot > 0.0;
    if !only_rots || !world.serves() || world.violation.is_some() || world.fenced {
        return;
    }
    let Some(seen) = world.see_all() else { return };
    let mut unread = BTreeSet::new();
    for ((root, address), value) in seen {
        if value.is_none() {
            unread.insert((root, address));
        }
    }
    for addresses_max in [u64::MAX, world.rng.random_range(1..9)] {
        let Some(found) = scrub(world, addresses_max) else { return };
        if found != unread {
            let what = format!("a scrub found {found:?} damaged, reads fail at {unread:?}");
            world.violate(what);
        }
    }
    world.note("scrubs judged");
    if !unread.is_empty() {
        world.note("damage found by a scrub");
    }
}

/// Returns the damaged addresses among the used ones.
fn scrub(world: &mut World, addresses_max: u64) -> Option<BTreeSet<(RootId, u64)>> {
    let mut found = BTreeSet::new();
    let mut from: Option<ScrubPoint> = None;
    loop {
        world.surveyed = None;
        let kind = SurveyKind::Scrub { from, addresses_max };
        world.submit(RequestKind::Survey(kind), Waits::Survey);
        let report: ScrubReport = match survey_ends(world)? {
            Ok(Surveyed::Scrub(report)) => report,
            other => {
                world.violate(format!("a scrub came to {other:?}"));
                return None;
            }
        };
        if report.lost_segments > 0 {
            world.violate(format!("{} segments are neither free nor used", report.lost_segments));
        }
        world.note("free space added up");
        for damage in report.damage {
            let addresses = ADDRESSES.iter().flat_map(|first| *first..*first + 2 * RUN);
            let hit = addresses.filter(|at| (damage.first..damage.first + damage.count).contains(at));
            found.extend(hit.map(|address| (damage.root, address)));
        }
        if report.next.is_none() {
            return Some(found);
        }
        if report.next <= from {
            world.violate(format!("a scrub goes on at {:?} after {from:?}", report.next));
            return None;
        }
        from = report.next;
    }
}

fn survey_ends(world: &mut World) -> Option<Result<Surveyed, StoreError>> {
    for _ in 0..STEPS_MAX {
        if let Some(surveyed) = world.surveyed.take() {
            return Some(surveyed);
        }
        if world.pending.is_empty() {
            world.tick();
        }
        step(world);
    }
    world.violate("a survey does not come to an end".to_owned());
    None
}
