//! A folder with a cache, origins and sockets, and engines over it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use zc_config::Config;
use zc_daemon::{ConfigFile, Daemon, EngineError, Hooks, StartOptions};
use zc_engine::NbdClient;

/// A configuration file with the contents that `read` returns.
pub(crate) fn config_file(read: impl Fn() -> Result<Config, String> + Send + Sync + 'static) -> ConfigFile {
    ConfigFile::new("rig.toml".into(), Arc::new(move |_| read()))
}

pub(crate) const VOLUME_BYTES: u64 = 16 << 20;

pub(crate) struct Rig {
    dir: tempfile::TempDir,
    /// Lines for `[cache]`, and for each volume.
    pub(crate) cache: String,
    pub(crate) volume: String,
    /// Lines for `[nbd]`.
    pub(crate) nbd: String,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            cache: String::new(),
            volume: String::new(),
            nbd: String::new(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The configuration; `volumes` names volumes whose origins are `NAME.img`.
    pub(crate) fn text(&self, volumes: &[&str]) -> String {
        let dir = self.dir.path().display();
        let mut text = format!(
            "[cache]\npath = \"{dir}/cache.img\"\nsize = \"24 MiB\"\nstate_dir = \"{dir}/state\"\nweu_size = \"256 KiB\"\n\
             max_ram = \"64 MiB\"\nreduce_threads = 2\n{}\n",
            self.cache
        );
        for name in volumes {
            text.push_str(&format!(
                "[[volume]]\nname = \"{name}\"\norigin = \"{dir}/{name}.img\"\ncreate_size = {VOLUME_BYTES}\n{}\n",
                self.volume
            ));
        }
        text.push_str(&format!(
            "[nbd]\nlisten = [\"127.0.0.1:0\"]\nunix = [\"{dir}/nbd.sock\"]\n{}\n[control]\nsocket = \"{dir}/control.sock\"\n",
            self.nbd
        ));
        text
    }

    pub(crate) fn config(&self, volumes: &[&str]) -> Config {
        Config::parse(&self.text(volumes), "rig.toml").unwrap()
    }

    pub(crate) fn try_start(&self, volumes: &[&str], cold: bool) -> Result<Daemon, EngineError> {
        let options = StartOptions { cold, ..StartOptions::default() };
        Daemon::start(&self.config(volumes), &options, Hooks::default())
    }

    pub(crate) fn start(&self, volumes: &[&str]) -> Daemon {
        self.try_start(volumes, false).unwrap()
    }

    /// Returns an daemon that has started from a cache with these bytes of the volume "v", with a complete index.
    pub(crate) fn start_warm(&self, data: &[u8]) -> Daemon {
        let daemon = self.start(&["v"]);
        self.client("v").write(0, data).unwrap();
        assert!(daemon.stop().unwrap());
        let daemon = self.start(&["v"]);
        while daemon.stats().unwrap().index_loaded_ms.is_none() {}
        daemon
    }

    pub(crate) fn client(&self, volume: &str) -> NbdClient {
        let uri = format!("nbd+unix:///{volume}?socket={}", self.path("nbd.sock").display());
        NbdClient::connect(&uri.parse().unwrap()).unwrap()
    }

    pub(crate) fn control(&self) -> ControlClient {
        ControlClient::connect(&self.path("control.sock"))
    }
}

pub(crate) struct ControlClient(BufReader<UnixStream>);

impl ControlClient {
    fn connect(path: &Path) -> Self {
        Self(BufReader::new(UnixStream::connect(path).unwrap()))
    }

    pub(crate) fn ask(&mut self, line: &str) -> Value {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.0.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }
}

pub(crate) fn random(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed)
}

/// Bytes that compress to about half.
pub(crate) fn content(random: &mut impl Rng, len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    for chunk in bytes.chunks_mut(64) {
        let half = chunk.len() / 2;
        random.fill_bytes(&mut chunk[..half]);
        let fill = random.random::<u8>();
        chunk[half..].fill(fill);
    }
    bytes
}

pub(crate) fn counter(daemon: &Daemon, name: &str) -> u64 {
    daemon.stats().unwrap().manager[name]
}

/// Waits until every offered extent has been stored, found a duplicate or skipped, because insertion continues after
/// the replies.
/// goes on behind the answers to requests.
pub(crate) fn wait_for_insertions(daemon: &Daemon) {
    let ends = ["stored", "duplicates", "zero", "skipped", "stale", "present", "once_only", "dropped"];
    loop {
        let counters = daemon.stats().unwrap().manager;
        if counters["insert_offered"]
            == ends.iter().map(|end| counters[format!("insert_{end}").as_str()]).sum::<u64>()
        {
            return;
        }
    }
}
