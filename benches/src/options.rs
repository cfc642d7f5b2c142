//! Options that benches share, and the folder that one works in.

use std::path::PathBuf;

use crate::machine::{load, machine};

/// Folders of files.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Folders {
    /// Folder on the SSD to be measured; files are made in it and removed again
    #[arg(long, default_value = "target/bench/files")]
    dir: PathBuf,
    /// Folder for the report
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// Amount of measurement.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Runs {
    /// Length of one run; each bench has its own default
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(50..))]
    time: Option<u64>,
    /// Rounds; every target gets one run of every case in each
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Size of each file and volume
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(64..))]
    size: u64,
    /// Only cases whose name contains this, such as "8k hit"
    #[arg(long)]
    pub(crate) only: Option<String>,
}

impl Folders {
    /// A fresh folder for the files of a bench.
    pub(crate) fn work(&self) -> anyhow::Result<Work> {
        std::fs::create_dir_all(&self.out)?;
        std::fs::create_dir_all(&self.dir)?;
        let dir = self.dir.canonicalize()?.join(format!("run-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let machine = format!("{}, load averages {} before", machine(), load());
        let only = None;
        Ok(Work { dir, out: self.out.clone(), time_ns: 0, rounds: 1, size_bytes: 0, only, machine })
    }
}

impl Runs {
    /// A fresh folder, and lengths and numbers of runs; `time_ms` and `rounds` where none are given.
    pub(crate) fn work(&self, folders: &Folders, time_ms: u64, rounds: u64) -> anyhow::Result<Work> {
        let (time_ms, rounds) = (self.time.unwrap_or(time_ms), self.rounds.unwrap_or(rounds));
        let mut work = folders.work()?;
        work.machine = format!("{}; {rounds} rounds of {time_ms} ms", work.machine);
        (work.time_ns, work.size_bytes) = (time_ms * 1_000_000, self.size << 20);
        (work.rounds, work.only) = (rounds, self.only.clone());
        Ok(work)
    }
}

/// Environment of a bench.
#[derive(Debug)]
pub(crate) struct Work {
    /// Files, sockets and logs; goes with this value.
    pub(crate) dir: PathBuf,
    pub(crate) out: PathBuf,
    /// Length of one run.
    pub(crate) time_ns: u64,
    pub(crate) rounds: u64,
    /// Bytes of each file and volume.
    pub(crate) size_bytes: u64,
    /// Only cases whose name contains this.
    pub(crate) only: Option<String>,
    /// Description of machine and method.
    pub(crate) machine: String,
}

impl Drop for Work {
    fn drop(&mut self) {
        // Errors of the removal are ignored: leftovers do not matter.
        let _removed = std::fs::remove_dir_all(&self.dir);
    }
}

impl Work {
    pub(crate) fn wants(&self, case: &str) -> bool {
        self.only.as_ref().is_none_or(|only| case.contains(only))
    }
}
