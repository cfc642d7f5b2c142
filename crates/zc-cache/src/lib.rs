//! The sans-IO cache manager.
