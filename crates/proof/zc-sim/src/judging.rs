//! Checks origins alone: their contents if the power failed now and the cache were lost (G5, G6).

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_reduce::Reducer;

use crate::content;
use crate::world::World;

/// Returns the values that each sector of an origin may hold after a power cut.
fn possible(world: &mut World, volume: usize) -> Option<Vec<Vec<u64>>> {
    let mut possible = Vec::new();
    for (sector, pieces) in world.origins[volume].possible().into_iter().enumerate() {
        let values: Option<Vec<u64>> = pieces.into_iter().map(content::identify).collect();
        let Some(mut values) = values else {
            let text =
                format!("volume {volume}: sector {sector} of the origin holds what no client wrote (G3)");
            world.env.violate(text);
            return None;
        };
        values.dedup();
        possible.push(values);
    }
    Some(possible)
}

/// Checks the contents that would remain if the power failed and the cache were lost.
pub(crate) fn judge_origins(world: &mut World) {
    let is_told = look_into_store(world);
    for volume in 0..world.origins.len() {
        if !is_told && world.pooled.as_ref().is_some_and(|pooled| pooled.has(volume)) {
            continue;
        }
        let Some(possible) = possible(world, volume) else { return };
        let text = match world.models.origin_mut(volume).judge(&possible) {
            Err(text) => text,
            Ok(()) if world.manager.is_none() || world.dirty(volume).is_some() => continue,
            Ok(()) => match lacking(world, volume, &possible) {
                Some(text) => text,
                None => continue,
            },
        };
        world.env.violate(format!("volume {volume}: {text}"));
    }
    world.env.note("origins judged alone");
}

/// Returns the required content that the origin of a volume without dirty data lacks.
fn lacking(world: &World, volume: usize, possible: &[Vec<u64>]) -> Option<String> {
    let oracle = world.models.oracle(volume);
    possible.iter().enumerate().find_map(|(sector, values)| {
        let value = values.iter().find(|value| !oracle.may_be_left(sector, **value))?;
        let legal = oracle.describe(sector);
        Some(format!(
            "sector {sector} is called clean, the origin alone may hold {value}, legal: {legal} (G5)"
        ))
    })
}

/// Opens the store alone on a copy after a power cut, without the cache, and takes its volumes' contents as those of
/// their origins. Returns `false` if damage prevents that.
fn look_into_store(world: &mut World) -> bool {
    let Some(pooled) = &world.pooled else { return true };
    let mut rng = Pcg64Mcg::seed_from_u64(world.env.rng().random());
    let mut reducer = Reducer::new();
    let mut alone = pooled.copy();
    alone.die(&mut rng);
    alone.loses_power(&mut rng);
    let is_rotten = alone.is_rotten();
    if alone.is_log_rotten() {
        return false;
    }
    match alone.open(&mut rng, &mut reducer, None) {
        Some(Ok(())) => {}
        _ if is_rotten => return false,
        other => {
            world.env.violate(format!("the store alone does not open: {other:?} (S1)"));
            return false;
        }
    }
    world.env.note("store: opened alone");
    for volume in 0..world.volumes.len() {
        let Some(root) = alone.root(volume) else { continue };
        let len = world.origins[volume].seen.len();
        let Some(mut bytes) = alone.read_all(root, len, &mut rng, &mut reducer) else {
            if !is_rotten {
                world.env.violate(format!("{root:?} of the store alone cannot be read (S2)"));
            }
            return false;
        };
        bytes.resize(len, 0);
        world.origins[volume].restore(&bytes);
    }
    true
}
