//! The list against a plain vector.

use proptest::prelude::*;

use super::*;

#[test]
fn the_least_recently_used_is_the_victim() {
    let mut lru = WeuLru::new(4);
    assert_eq!(lru.victim(&mut |_| false), None);
    (0..4).for_each(|slot| lru.inserted(WeuSlot(slot)));
    lru.touched(WeuSlot(0));
    assert_eq!(lru.victim(&mut |_| false), Some(WeuSlot(1)));
    assert_eq!(lru.victim(&mut |_| false), Some(WeuSlot(1)), "naming a victim changes nothing");
    assert_eq!(lru.victim(&mut |slot| slot.0 < 3 && slot.0 > 0), Some(WeuSlot(3)));
    assert_eq!(lru.victim(&mut |_| true), None);
    lru.removed(WeuSlot(1));
    assert_eq!(lru.victim(&mut |_| false), Some(WeuSlot(2)));
    assert_eq!(lru.ram_bytes(), 2 * 5 * 4 + 48);
}

#[test]
#[should_panic(expected = "does not exist")]
fn unknown_slots_are_refused() {
    WeuLru::new(4).inserted(WeuSlot(4));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_vector(steps in prop::collection::vec((0u8..4, 0u32..8, any::<u8>()), 1..200)) {
        let mut lru = WeuLru::new(7);
        let mut model: Vec<WeuSlot> = Vec::new();
        for (kind, slot, pinned) in steps {
            let slot = WeuSlot(slot);
            let known = model.contains(&slot);
            match kind {
                0 if slot.0 < 7 => {
                    lru.inserted(slot);
                    model.retain(|s| *s != slot);
                    model.push(slot);
                }
                1 => {
                    lru.touched(slot);
                    if known {
                        model.retain(|s| *s != slot);
                        model.push(slot);
                    }
                }
                2 => {
                    lru.removed(slot);
                    model.retain(|s| *s != slot);
                }
                _ => {}
            }
            let mut skip = |slot: WeuSlot| pinned >> slot.0 & 1 == 1;
            prop_assert_eq!(lru.victim(&mut skip), model.iter().copied().find(|slot| !skip(*slot)));
        }
    }
}
