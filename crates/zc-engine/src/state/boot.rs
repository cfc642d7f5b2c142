//! Identity of the kernel's boot: state that outlives the process need not outlive the boot.

/// The kernel's boot identity; zero where there is none, which matches nothing valid.
pub fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    uuid::Uuid::parse_str(text.trim()).map(uuid::Uuid::into_bytes).unwrap_or_default()
}
