//! Which CPUs a thread may run on.
//!
//! Invariants: what cannot be set is said and costs speed only. Threads inherit from the one that begins them: the
//! shard's is bound after its workers have begun; what it begins later sleeps in the kernel (`origin/map`).
//!
//! It does not choose.

/// Binds the calling thread; to nothing, if no CPUs are named.
pub(crate) fn bind_this_thread(cpus: &[usize], whose: &str) {
    if cpus.is_empty() {
        return;
    }
    let mut set = rustix::thread::CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| cpu < rustix::thread::CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    if let Err(errno) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(?cpus, "cannot bind {whose} to its CPUs: {errno}");
    }
}
