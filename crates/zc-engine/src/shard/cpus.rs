//! CPU affinity of threads.
//!
//! Invariants: a failure is logged and costs only speed. Threads inherit from their creator: the shard's is bound
//! after its workers have started; its later threads sleep in the kernel (`origin/map`).
//!
//! It does not choose CPUs.

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
