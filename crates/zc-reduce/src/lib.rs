//! Fingerprints, codecs and zero detection.
