//! `cargo xtask bench`.
//!
//! Job: build the programs of a benchmark and run it; hand anything else on to criterion.

use zc_host::run::{cargo, run};

/// Runs a benchmark: `nbd` compares the daemon with other servers, `cpu` their CPU time for each request, `cores`
/// daemons with one I/O thread and with two, `bootstorm` the daemon with itself in pass-through while many machines boot,
/// `write` write-back with the bare file and with write-through, `rivals` the daemon with other caches in a virtual
/// machine, `stores` its store with others there, `trace` tells reading a trace from replaying it; anything else goes to
/// criterion.
///
/// # Errors
/// A benchmark cannot be built or fails.
pub(crate) fn bench(args: &[String]) -> anyhow::Result<()> {
    match args {
        [first, rest @ ..] if first == "rivals" => zc_rig::rivals::bench(rest),
        [first, rest @ ..] if first == "stores" => zc_rig::stores::bench(rest),
        [first, rest @ ..]
            if ["nbd", "cpu", "cores", "bootstorm", "write", "fair", "store", "trace"]
                .contains(&first.as_str()) =>
        {
            // The programs look for each other beside their own executable.
            let release = |verb: &str| {
                let mut command = cargo();
                command.args([verb, "--release", "--locked", "--package", "zc-bench"]);
                command
            };
            run(release("build").args(["--package", "zcached", "--package", "zcctl"]))?;
            run(release("run").args(["--bin", &format!("bench-{first}"), "--"]).args(rest))
        }
        _ => {
            run(cargo().args(["bench", "--package", "zc-bench", "--locked", "--bench", "*", "--"]).args(args))
        }
    }
}
