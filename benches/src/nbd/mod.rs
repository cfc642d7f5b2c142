//! `cargo xtask bench nbd`: the daemon beside other servers, the file itself and a bare socket, in one interleaved
//! run.
//!
//! Job: in each round every target gets a short run of every case, in rotating order, so that what else the machine
//! does hits all alike; figures are medians over rounds, ratios are medians of ratios within rounds.
//!
//! Invariants: the same client with the same requests for every server. CPU is that of the server's process alone.
//! System calls are counted in runs of their own, because counting them costs time.
//!
//! `nbd.md`, `nbd.json` and `nbd.svg` beside this crate are a run with `--out benches`: goals, tables, and where the
//! daemon's time goes.
//!
//! What was tried for hits and writes, as ratio of request rates to the same daemon without it (two virtual CPUs that
//! others used too; 40 interleaved rounds of 50 ms, upper quintile; a daemon beside itself: 0.98 to 1.01):
//!
//! | | 8 KiB QD8 | QD32 | QD32, 2 connections | |
//! |---|---|---|---|---|
//! | wait for a quarter of the reads under way, at most 100 us | 1.15 | 1.08 | 0.96 | |
//! | read blocks of 512 bytes, not pages: 8.5 instead of 12 KiB for a raw extent | 1.04 | 1.09 | 1.01 | kept |
//! | both, a quarter | 1.11 to 1.18 | 1.06 to 1.15 | 1.11 | |
//! | both, half | 1.16 to 1.22 | 1.20 to 1.22 | 1.04 to 1.07 | |
//! | both, half but at most 16: from 8 reads on | as half | as half | as a quarter | kept |
//! | both, an eighth | 1.02 | 1.13 | 1.05 | |
//! | both, half, from 4 reads on | 0.94 | 1.16 | 1.06 | QD4: 0.96 |
//! | polling the ring before sleeping | | | | removed: 0.77 at QD1 |
//!
//! | | 128 KiB sequential reads, QD1 | QD8 | |
//! |---|---|---|---|
//! | incompressible: verify and copy on the data plane's thread, not by workers | 1.19 | 1.12 | kept |
//! | 2:1, workers: groups of four extents instead of single ones | 1.03 | 1.16 | kept |
//! | 2:1, the same, and the last group on the data plane's thread | 0.97 | 1.08 | no |
//! | 2:1, all on the data plane's thread | 1.05 | 1.15 | no: one thread, on any machine |
//!
//! Handing the jobs of insertions over together and gathering their results: 8 KiB random writes at QD32 1.13 to
//! 1.18, 128 KiB QD8 1.08, at QD1 1.1 and two thirds of the CPU. For the null export: one system call a request at
//! QD1 instead of two: median 5.5 us instead of 6.6 us (bare round trip: 4.7 us); POLL_FIRST on receives 1.01,
//! NO_SQARRAY 1.02 at QD1 and nothing at QD32: neither is worth a second way for older kernels.
//!
//! Where the scheduler puts client and server decides about QD1: pinned to one CPU the null export answers after 6.3
//! us, pinned to two after 31.9 us, because the other virtual CPU sleeps and has to be woken. A thread that blocks in a
//! plain read is woken as a partner of the sender, which is about to sleep, and stays on its CPU (the bare round trip,
//! nbdkit); a thread that waits for its io_uring is woken like any other and is moved to a CPU that is idle. On a busy
//! machine there is none, and the null export is near the bare round trip. A hit at QD1 can pay the same 25 us. On an
//! otherwise idle machine (both virtual CPUs asleep between two requests) an 8 KiB hit has a median of 93 us where file
//! and bare round trip come to 41 us; with everything pinned to one CPU (`taskset -c 0`) it is 74 us to 60 us, and the
//! null export 5.3 us to 4.0 us. To sleep in poll(2) on the sockets, which asks for the partner's wake-up, instead of
//! in the ring was tried: free 50 us as before (both CPUs share a last-level cache, so the idle one is taken all the
//! same), pinned 6.9 us instead of 5.3 us for the two more system calls: removed.
//!
//! What writes paid for most was no copy and no hash: random writes over more regions than could be marked at once
//! marked and cleared them in turn, each with a flush of the cache device. With as many marks as a volume has regions
//! 4 KiB writes at QD1 in pass-through have a median of 78 us instead of 159 us, and at QD32 there are 1.6 times as
//! many; write-through 95 us instead of 167 us, and 1.3 times as many.
//!
//! Of what io_uring offers: SINGLE_ISSUER, DEFER_TASKRUN, COOP_TASKRUN and waiting with a minimum and a time (Linux
//! 6.12) are used. Registered buffers and files are not: pinning pages is 2 % of a hit, looking files up below 1 %,
//! and registered memory would count against the locked-memory limit of services. Multishot receive is not: a receive
//! is armed by the system call that sends the replies, so it would save no call, and a WRITE's payload could not go
//! straight to where it is written from. Sockets of Unix have no zero-copy send. A raw extent is copied once, from
//! its pages to the reply. What a hit allocates is small (a twentieth of its time); there are no locks on its way but
//! the uncontended one of the buffer pool.
//!
//! What bounds a hit: at QD1 two sleeps and wake-ups of each side (the virtual disk's interrupt, the socket); at QD32
//! the kernel's half of the time (sending 16 %, kicking the virtual disk 11 %, waking the client 12 %) and, for
//! compressed contents, LZ4, which takes 3.5 us for 8 KiB with the checked decoder. A write-through write at QD1 pays
//! one `pwrite` for the intent log; at depth it pays for hashing, compressing and writing its bytes twice to one
//! disk.
//!
//! On an AMD EPYC that did nothing else, 8 KiB hits at QD32 keep the data plane's thread busy for five sixths of
//! the time, 35 us each (fio's read of the file itself: 9 us). Of that 63 % are the kernel's: handing reads to the
//! disk 32 %, sending 13 %, sleeping and waking 8 %, receiving 4 %; ours are the manager 13 %, verifying a raw
//! extent 6 %, copying it 3 %, and the rest is spread thinly. So one thread does not reach the file's rate there
//! whatever becomes of our part. Send buffers of 1 MiB for sockets of Unix, where Linux gives 208 KiB, were tried
//! with 128 KiB reads: at QD8 1.02 and 1.02 of the ratio to the file without them for raw extents, 0.98 and 0.92
//! for compressed ones: removed.
//!
//! What it does not do: judge. The report names goals and what was reached.

pub mod bench;
pub mod cases;
pub mod chart;
pub mod floor;
pub mod measured;
pub mod report;
pub mod volumes;
