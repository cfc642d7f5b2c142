//! The remote origin against simulated servers that drop, hang, answer late, lose unflushed writes and come back
//! changed.
#![cfg(test)]

mod holes;
mod outages;
mod promises;
mod server;
mod world;
