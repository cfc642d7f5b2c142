//! Description of this machine in a line, for reports.

/// Cores, CPU and kernel.
pub(crate) fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, m)| m));
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{cores} x {}, Linux {}", model.unwrap_or("unknown CPU"), kernel.trim())
}

/// Returns the load averages over one, five and fifteen minutes: the other load of the machine.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_ascii_whitespace().take(3).collect::<Vec<_>>().join(", ")
}
