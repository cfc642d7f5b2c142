//! zcached's on-media format: encode, decode, check; no I/O.
