//! NBD codec and session machines without I/O.
