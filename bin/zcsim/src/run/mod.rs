//! `zcsim run`: a trace through a reference policy, through the cache manager under the daemon's configuration, or
//! through a model of FlaZ.

mod args;
mod cache;
mod flaz;
mod policy;
mod time;

use std::process::ExitCode;

pub(crate) use args::Args;

pub(crate) fn run(args: &Args) -> ExitCode {
    if let Err(error) = args::usage(args) {
        error.exit();
    }
    let outcome = match (&args.config, args.policy) {
        (Some(config), _) => cache::print(args, config),
        (None, None) if args.flaz => flaz::print(args),
        (None, Some(kind)) => policy::print(args, kind),
        (None, None) => unreachable!("one of the group is required"),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zcsim: {error:#}");
            ExitCode::FAILURE
        }
    }
}
