//! `cargo xtask bench`.
//!
//! Job: build the programs of a benchmark and run it; hand anything else on to criterion.

use zc_rig::host::run::{cargo, run};

/// The benches of the program `bench`.
const NAMES: [&str; 11] =
    ["nbd", "cpu", "cores", "bootstorm", "write", "fair", "store", "trace", "record", "restart", "remote"];

/// Runs a benchmark: `nbd` compares the daemon with other servers, `cpu` their CPU time for each request, `cores`
/// daemons with one I/O thread and with two, `bootstorm` the daemon with itself in pass-through while many machines
/// boot, `write` write-back with the bare file and with write-through, `fair` a quiet client with and without others,
/// `store` the device operations of a pool, `trace` reading a trace with replaying it, `record` volumes with and
/// without a recording, `restart` starts of a large cache, `remote` an origin behind links of 0 to 50 ms, `rivals` the
/// daemon with other caches in a virtual machine, `stores` its store with others there; any other name is passed to
/// criterion.
///
/// # Errors
/// A benchmark cannot be built or fails.
pub(crate) fn bench(args: &[String]) -> anyhow::Result<()> {
    match args {
        [first, rest @ ..] if first == "rivals" => zc_rig::rivals::bench(rest),
        [first, rest @ ..] if first == "stores" => zc_rig::stores::bench(rest),
        [first, ..] if NAMES.contains(&first.as_str()) => {
            // The program expects the daemon beside its own executable.
            let release = |verb: &str| {
                let mut command = cargo();
                command.args([verb, "--release", "--locked", "--package", "zc-bench"]);
                command
            };
            run(release("build").args(["--package", "zcached", "--package", "zcctl"]))?;
            run(release("run").args(["--bin", "bench", "--"]).args(args))
        }
        _ => {
            run(cargo().args(["bench", "--package", "zc-bench", "--locked", "--bench", "*", "--"]).args(args))
        }
    }
}
