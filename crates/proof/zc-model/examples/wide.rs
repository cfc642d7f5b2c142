//! The models of a pool on objects within bounds that are too wide for tests: counts of states, and what is broken.
//!
//! `cargo run -p zc-model --example wide` takes about ten minutes and 8 GiB.

use stateright::{Checker, Expectation, Model};
use std::io::Write as _;
use zc_model::{cleaning, fencing};

/// Explores all states, and prints their count and every property that some state breaks.
fn explore<M>(name: &str, model: M) -> std::io::Result<bool>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Send + Sync + PartialEq + std::fmt::Debug + std::hash::Hash,
    M::Action: Clone + Send + Sync + PartialEq + std::fmt::Debug,
{
    let properties = model.properties();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = model.checker().threads(threads).spawn_bfs().join();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{name}: {} states, depth {}", checker.unique_state_count(), checker.max_depth())?;
    let mut holds = true;
    for property in properties.iter().filter(|property| property.expectation == Expectation::Always) {
        if let Some(path) = checker.discovery(property.name) {
            holds = false;
            writeln!(out, "    broken: {}: {:?}", property.name, path.into_actions())?;
        }
    }
    Ok(holds)
}

fn main() -> std::io::Result<()> {
    let mut holds = true;
    let two = fencing::Bounds { claims: 2, commits: [3, 2, 0], window: 2, cleaning: true, late_swaps: true };
    let three = fencing::Bounds { claims: 3, late_swaps: false, ..two };
    for bounds in [
        two,
        fencing::Bounds { commits: [2, 1, 1], ..three },
        fencing::Bounds { commits: [2, 2, 0], ..three },
        fencing::Bounds { commits: [3, 1, 0], ..three },
        fencing::Bounds { commits: [2, 1, 0], late_swaps: true, ..three },
        fencing::Bounds { commits: [4, 2, 0], window: 3, late_swaps: false, ..two },
        fencing::Bounds { commits: [3, 1, 0], window: 3, ..three },
    ] {
        let rules = fencing::Rules::ALL;
        holds &= explore(&format!("{bounds:?}"), fencing::Fencing { rules, bounds })?;
    }
    let reader = cleaning::Bounds {
        ticks: 4,
        objects: 2,
        take_over: true,
        children: 0,
        chains: false,
        reader: true,
        list_lag: 1,
    };
    for bounds in [
        reader,
        cleaning::Bounds { children: 1, ..reader },
        cleaning::Bounds { children: 2, chains: true, reader: false, ticks: 5, list_lag: 2, ..reader },
    ] {
        let rules = cleaning::Rules::ALL;
        holds &= explore(&format!("{bounds:?}"), cleaning::Cleaning { rules, bounds })?;
    }
    if holds { Ok(()) } else { Err(std::io::Error::other("a property is broken")) }
}
