//! The daemon's driver: shard threads, front ends, reduce workers, control plane.
