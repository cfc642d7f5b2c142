//! `zcsim fuzz`: seeds of the cache manager or of the store, with every byte checked.

mod args;
mod cache;
mod seeds;
mod store;

use std::process::ExitCode;

pub(crate) use args::Args;

pub(crate) fn run(args: &Args) -> ExitCode {
    if args.store { store::run(args) } else { cache::run(args) }
}
