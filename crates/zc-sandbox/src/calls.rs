//! Filter of the system calls that a serving daemon makes.
//!
//! Invariants: an allow list; every other call fails with `ENOSYS`, on which the C library falls back where it can. No
//! memory becomes executable. No process starts except threads, and no thread gets namespaces of its own. `clone3` is
//! refused, because a filter cannot inspect its flags; the C library falls back to `clone`. Most calls in the path of
//! a request have no condition, so that the kernel answers from a bitmap (Linux 5.11).
//!
//! It does not cover operations of an io_uring, such as opening files. Landlock does.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

/// Allowed with any arguments.
const FREE: &[i64] = &[
    // Ring and waiting.
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_futex,
    libc::SYS_restart_syscall,
    // Files.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_ioctl,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_write,
    libc::SYS_writev,
    // Sockets.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    // The resolver requests addresses of both families at once.
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
    // Threads, signals, time.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    // Properties of the process.
    libc::SYS_capget,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getuid,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// Names that older architectures use for the daemon's calls.
#[cfg(target_arch = "x86_64")]
const OLD: &[i64] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_getdents,
    libc::SYS_getrlimit,
    libc::SYS_lchown,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_setrlimit,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_time,
    libc::SYS_unlink,
];
/// The crate libc has no name for the number of `renameat` here.
#[cfg(target_arch = "aarch64")]
const OLD: &[i64] = &[38];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OLD: &[i64] = &[];

/// Calls that create or change mappings, with the argument that holds their protection: never executable.
const MAPPING: &[(i64, u8)] = &[(libc::SYS_mmap, 2), (libc::SYS_mprotect, 2)];

/// Flags of `clone` that create namespaces. The bit of `CLONE_NEWTIME` is part of the signal number there.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;
/// Argument of `clone` that holds its flags, on all architectures of [`TargetArch`].
const CLONE_FLAGS: u8 = 0;

/// Compiles the filter.
fn program() -> Result<BpfProgram, String> {
    let text = |error: seccompiler::BackendError| error.to_string();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FREE.iter().chain(OLD).map(|call| (*call, Vec::new())).collect();
    let is = |argument, length, operator, value| SeccompCondition::new(argument, length, operator, value);
    let executable = u64::from(libc::PROT_EXEC.unsigned_abs());
    for (call, argument) in MAPPING {
        let plain = is(*argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(executable), 0);
        let rule = SeccompRule::new(vec![plain.map_err(text)?]).map_err(text)?;
        rules.insert(*call, vec![rule]);
    }
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let decisive = thread | u64::from(NAMESPACES.unsigned_abs());
    let threads = is(CLONE_FLAGS, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(decisive), thread);
    let rule = SeccompRule::new(vec![threads.map_err(text)?]).map_err(text)?;
    rules.insert(libc::SYS_clone, vec![rule]);
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
    let sockets = families.iter().map(|family| {
        let family = u64::from(family.unsigned_abs());
        SeccompRule::new(vec![is(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, family)?])
    });
    rules.insert(libc::SYS_socket, sockets.collect::<Result<_, _>>().map_err(text)?);
    let refused = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let arch: TargetArch = std::env::consts::ARCH.try_into().map_err(text)?;
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, arch).map_err(text)?;
    BpfProgram::try_from(filter).map_err(text)
}

/// Restricts the system calls of this thread, and of the threads that it starts.
pub(crate) fn filter() -> Result<(), String> {
    seccompiler::apply_filter(&program()?).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evaluates the program for a call: the kernel's return value.
    fn verdict(program: &BpfProgram, call: i64, first: u64) -> u32 {
        let arch: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
        // struct seccomp_data: number, architecture, instruction pointer, six arguments.
        let mut data = Vec::new();
        data.extend(u32::try_from(call).unwrap().to_le_bytes());
        data.extend(arch.to_le_bytes());
        data.extend([0; 8]);
        data.extend(first.to_le_bytes());
        data.extend([0; 40]);
        let (mut at, mut accumulator) = (0, 0_u32);
        loop {
            let step = &program[at];
            at += 1;
            let jump = |holds| usize::from(if holds { step.jt } else { step.jf });
            match step.code {
                0x20 => {
                    let offset = usize::try_from(step.k).unwrap();
                    accumulator = u32::from_le_bytes(*data[offset..].first_chunk().unwrap());
                }
                0x54 => accumulator &= step.k,
                0x05 => at += usize::try_from(step.k).unwrap(),
                0x15 => at += jump(accumulator == step.k),
                0x25 => at += jump(accumulator > step.k),
                0x35 => at += jump(accumulator >= step.k),
                0x06 => return step.k,
                code => panic!("instruction {code:#x} is not known here"),
            }
        }
    }

    #[test]
    fn threads_start_and_neither_processes_nor_namespaces_do() {
        const ALLOW: u32 = 0x7fff_0000;
        const NO_CALL: u32 = 0x0005_0000 | libc::ENOSYS.unsigned_abs();
        let program = program().unwrap();
        let clone = |flags: libc::c_int| verdict(&program, libc::SYS_clone, flags.unsigned_abs().into());
        // Flags of thread creation in glibc and musl.
        let glibc = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM
            | libc::CLONE_SETTLS
            | libc::CLONE_PARENT_SETTID
            | libc::CLONE_CHILD_CLEARTID;
        assert_eq!([clone(glibc), clone(glibc | libc::CLONE_DETACHED)], [ALLOW; 2]);
        let refused = [
            libc::SIGCHLD,
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            libc::CLONE_NEWUSER | libc::SIGCHLD,
        ];
        assert_eq!(refused.map(clone), [NO_CALL; 3]);
        for bit in 0..31 {
            let flag = 1 << bit;
            let expected = if flag & NAMESPACES == 0 { ALLOW } else { NO_CALL };
            assert_eq!(clone(glibc | flag), expected, "bit {bit}");
        }
        for call in [libc::SYS_clone3, libc::SYS_unshare, libc::SYS_setns, libc::SYS_execve, libc::SYS_ptrace]
        {
            assert_eq!(verdict(&program, call, 0), NO_CALL, "call {call}");
        }
        assert_eq!(verdict(&program, libc::SYS_read, 0), ALLOW);
    }
}
