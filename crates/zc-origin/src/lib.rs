//! Origins: the slow devices behind volumes.
