//! The command line of `zcsim fuzz`.

use zc_config::{Packer, Policy};
use zc_sim::{Profile, Turns};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run the capacity-optimized store instead of the cache manager.
    #[arg(long, conflicts_with_all = ["policy", "packer", "profile", "turns", "shrink"])]
    pub(super) store: bool,
    /// Number of seeds.
    #[arg(long, default_value_t = 300)]
    pub(super) seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    pub(super) start: u64,
    /// Client requests per seed.
    #[arg(long, default_value_t = 2000)]
    pub(super) ops: u64,
    /// Number of threads; default is one per CPU.
    #[arg(long)]
    pub(super) jobs: Option<usize>,
    /// Minutes to run, in place of a number of seeds.
    #[arg(long, value_name = "M")]
    pub(super) minutes: Option<u64>,
    /// Deliberate bug to switch on: the run must fail.
    #[arg(long)]
    pub(super) canary: Option<String>,
    /// Replacement policy; by default each seed draws one.
    ///
    /// Policies are lru, fifo-reinsert, s3-fifo, shared-lru and cost-benefit.
    #[arg(long)]
    pub(super) policy: Option<Policy>,
    /// Packer: append, first-fit or best-fit; default: drawn by seed.
    #[arg(long)]
    pub(super) packer: Option<Packer>,
    /// Kind of machine; by default each seed draws one.
    ///
    /// Kinds are plain, shared, tiny, restarts, rotting and aimed.
    #[arg(long, value_parser = profile)]
    pub(super) profile: Option<Profile>,
    /// Check that each deliberate bug is found.
    #[arg(long)]
    pub(super) canaries: bool,
    /// Run this seed only.
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Turns of the seed to run, as printed by --shrink.
    #[arg(long, requires = "seed", value_name = "LIST")]
    pub(super) turns: Option<Turns>,
    /// Find the turns of the seed that are enough for it to fail.
    #[arg(long, requires = "seed", conflicts_with_all = ["turns", "trace"])]
    pub(super) shrink: bool,
    /// Print every event and action of the seed to standard error.
    #[arg(long, requires = "seed")]
    pub(super) trace: bool,
}

fn profile(name: &str) -> Result<Profile, String> {
    let known = Profile::ALL.iter().find(|(known, _)| *known == name);
    known
        .map(|(_, profile)| *profile)
        .ok_or_else(|| "there are plain, shared, tiny, restarts, rotting and aimed".to_owned())
}
