//! All cases, in the order of the table.

mod commands;
mod common;
mod errors;
mod extended;
mod handshake;
mod info;
mod meta;
mod options;
mod status;
mod structured;
mod tls;

use crate::case::Case;

/// Every case, in order.
#[must_use]
pub fn all() -> Vec<&'static Case> {
    let groups = [
        handshake::CASES,
        options::CASES,
        tls::CASES,
        info::CASES,
        meta::CASES,
        commands::CASES,
        errors::CASES,
        structured::CASES,
        status::CASES,
        extended::CASES,
    ];
    groups.into_iter().flatten().collect()
}
