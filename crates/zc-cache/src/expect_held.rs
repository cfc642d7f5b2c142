//! `expect` with one message, for lookups that fail only if an invariant of the manager is broken.

pub(crate) trait ExpectHeld<T> {
    /// Returns the value; panics if it is absent.
    fn expect_held(self) -> T;
}

impl<T> ExpectHeld<T> for Option<T> {
    #[track_caller]
    fn expect_held(self) -> T {
        match self {
            Some(value) => value,
            None => panic!("the manager lost track of an entry it holds"),
        }
    }
}
