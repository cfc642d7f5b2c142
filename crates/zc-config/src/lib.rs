//! The daemon's TOML configuration.
