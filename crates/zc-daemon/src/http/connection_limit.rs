//! The limit of HTTP connections.
//!
//! Bounds the connections so that silent ones do not exclude others. Without a free slot, a new connection displaces
//! the oldest connection of the source with the most.
//!
//! Invariants: a connection whose response is being computed is not displaced. Fewer responses are computed at once
//! than there are slots, so a new connection always gets one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

use zc_engine::front::peer::Source;

/// The connections that are open.
#[derive(Debug)]
pub(crate) struct Places {
    places_max: usize,
    answers: Semaphore,
    /// The oldest first.
    open: Mutex<Vec<Open>>,
}

#[derive(Debug)]
struct Open {
    source: Source,
    end: Arc<Notify>,
    is_being_answered: bool,
}

/// Slot of one connection; released on drop.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    end: Arc<Notify>,
}

impl Places {
    /// `answers_max` is less than `places_max`.
    pub(crate) fn new(places_max: usize, answers_max: usize) -> Arc<Self> {
        Arc::new(Self { places_max, answers: Semaphore::new(answers_max), open: Mutex::default() })
    }

    fn open(&self) -> MutexGuard<'_, Vec<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(self: &Arc<Self>, source: Source) -> Place {
        let end = Arc::<Notify>::default();
        let mut open = self.open();
        if open.len() >= self.places_max {
            displace(&mut open);
        }
        open.push(Open { source, end: Arc::clone(&end), is_being_answered: false });
        drop(open);
        Place { places: Arc::clone(self), end }
    }
}

/// Closes the oldest connection of the source with the most.
fn displace(open: &mut Vec<Open>) {
    let mut counts = BTreeMap::<Source, usize>::new();
    let is_idle = |open: &&Open| !open.is_being_answered;
    open.iter().filter(is_idle).for_each(|open| *counts.entry(open.source).or_default() += 1);
    let most = counts.values().copied().max();
    let is_next = |open: &Open| !open.is_being_answered && counts.get(&open.source).copied() == most;
    if let Some(place) = open.iter().position(is_next) {
        open.remove(place).end.notify_one();
    }
}

impl Place {
    /// Returns when another connection has taken the place.
    pub(crate) async fn displaced(&self) {
        self.end.notified().await;
    }

    /// Computes the response of the connection, in order of arrival.
    pub(crate) async fn answer<T>(&self, answer: impl Future<Output = T>) -> T {
        let _turn = self.places.answers.acquire().await;
        self.set_answered(true);
        let answer = answer.await;
        self.set_answered(false);
        answer
    }

    fn set_answered(&self, is_being_answered: bool) {
        let mut open = self.places.open();
        for open in open.iter_mut().filter(|open| Arc::ptr_eq(&open.end, &self.end)) {
            open.is_being_answered = is_being_answered;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.open().retain(|open| !Arc::ptr_eq(&open.end, &self.end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_engine::front::peer::Peer;

    fn source(user: u32) -> Source {
        Source::of(Peer::User(user), 64)
    }

    fn is_displaced(runtime: &tokio::runtime::Runtime, place: &Place) -> bool {
        runtime.block_on(async {
            tokio::select! { biased; () = place.displaced() => true, () = std::future::ready(()) => false }
        })
    }

    #[test]
    fn a_newcomer_takes_the_oldest_place_of_the_source_that_has_the_most() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let places = Places::new(4, 1);
        let quiet = places.enter(source(1));
        let flood: Vec<Place> = (0..3).map(|_| places.enter(source(2))).collect();
        let _newcomer = places.enter(source(3));
        assert!(is_displaced(&runtime, &flood[0]));
        let _another = places.enter(source(2));
        assert!(is_displaced(&runtime, &flood[1]));
        assert!(!is_displaced(&runtime, &quiet) && !is_displaced(&runtime, &flood[2]));
        drop(flood);
        assert_eq!(places.open().len(), 3);
    }

    #[test]
    fn who_is_being_answered_keeps_its_place() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let places = Places::new(2, 1);
        let answered = places.enter(source(1));
        let silent = places.enter(source(1));
        let newcomer = runtime.block_on(answered.answer(async { places.enter(source(1)) }));
        assert!(is_displaced(&runtime, &silent) && !is_displaced(&runtime, &answered));
        let _last = places.enter(source(1));
        assert!(is_displaced(&runtime, &answered) && !is_displaced(&runtime, &newcomer));
    }
}
