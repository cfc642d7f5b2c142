//! `expect` with one message, for lookups that cannot fail unless the manager lost count.

pub(crate) trait ExpectHeld<T> {
    /// The value; panics when it is absent: a broken invariant.
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
