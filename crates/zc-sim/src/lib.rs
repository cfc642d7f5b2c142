//! Deterministic simulation of manager, format and recovery.
