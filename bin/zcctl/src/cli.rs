//! The command line.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args as _, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use zc_cli::Documents;
use zc_core::Mode;
use zc_core::units::ByteSize;

use crate::cache::CacheCommand;
use crate::confirm::Consent;
use crate::offline::cli::{CheckArgs, DumpArgs, FormatArgs, RepairArgs};
use crate::options::{Daemon, Listing, socket_default};
use crate::record::Record;
use crate::setup::SetupArgs;
use crate::store::StoreCommand;
use crate::volume::VolumeCommand;

/// Ends the long help.
const EXIT_STATUS: &str = "\
Exit status:
  0  done, and nothing is wrong
  1  something is wrong, or a part is not done; the command's own help says which
  2  not done: a mistake in the command line, a refusal, or an error
  3  status: a volume is not served";

/// Operate and inspect zcached.
///
/// --socket, --json, -o, --no-headings and --bytes may stand before or after the command.
#[derive(Debug, Parser)]
#[command(name = "zcctl", version, max_term_width = 100, after_long_help = EXIT_STATUS)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command line, with the options of [`Daemon`] before commands, too.
pub(crate) fn command() -> clap::Command {
    let shared = Listing::augment_args(Daemon::augment_args(clap::Command::new("shared")));
    Cli::command().args(shared.get_arguments().map(|option| option.clone().global(true)))
}

impl Cli {
    /// Reads a command line.
    ///
    /// # Errors
    /// It is none; also if a command gets an option of [`Daemon`] that it has no use for.
    pub(crate) fn read<I>(arguments: I) -> Result<Self, clap::Error>
    where
        I: IntoIterator<Item: Into<std::ffi::OsString> + Clone>,
    {
        let mut command = command();
        let matches = command.try_get_matches_from_mut(arguments)?;
        useless(&Self::command(), &matches).map_or(Ok(()), |(verb, option)| {
            let text = format!("{verb} has no --{option}");
            Err(command.error(ErrorKind::UnknownArgument, text))
        })?;
        Self::from_arg_matches(&matches)
    }
}

/// The options that may stand before the command: how the parser and how the command line calls them.
const SHARED: [(&str, &str); 5] = [
    ("socket", "socket"),
    ("json", "json"),
    ("columns", "columns"),
    ("no_headings", "no-headings"),
    ("bytes", "bytes"),
];

/// Returns a shared option on the command line that the command itself, as in `defined`, does not support.
fn useless(defined: &clap::Command, matches: &ArgMatches) -> Option<(String, &'static str)> {
    if let Some((verb, matches)) = matches.subcommand() {
        return useless(defined.find_subcommand(verb)?, matches);
    }
    let is_known = |option: &str| defined.get_arguments().any(|argument| argument.get_id() == option);
    let is_given = |option: &str| matches.value_source(option) == Some(ValueSource::CommandLine);
    let (_, option) = SHARED.iter().find(|(id, _)| is_given(id) && !is_known(id))?;
    Some((defined.get_name().to_owned(), option))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Verify a cache file or device that no daemon has open.
    ///
    /// Exit status: 0 clean, 1 damaged, 2 not possible.
    Check(CheckArgs),
    /// Rewrite damaged metadata from valid copies.
    ///
    /// Copies of the superblock and of the volume table are rewritten from valid ones. The label of a journal device
    /// is rewritten if the journal on it proves to belong to this cache. Damage that cannot be repaired is listed.
    /// Without --yes, nothing is written.
    ///
    /// Exit status: 0 no damage remains, 1 damage remains, 2 not possible.
    Repair(RepairArgs),
    /// Print one metadata structure of a cache file or device.
    Dump(DumpArgs),
    /// Make an empty cache on a file or device; all data there is lost.
    ///
    /// A used file or device is overwritten with --force only. If the cache may have dirty data, which no origin has,
    /// --discard-dirty is needed as well. This is derived from superblock, volume table, journal and the daemon's
    /// state directory. Unreadable parts count as dirty unless the state directory proves otherwise.
    Format(FormatArgs),
    /// List disks; make a cache and a configuration for them.
    ///
    /// Without --origin it lists the block devices: size, kind, contents and users. With --origin it shows a plan.
    /// With --yes it writes the configuration, makes the cache, and prints the next commands. Only an empty device
    /// that no program uses becomes the cache. Origins are not written to.
    ///
    /// Exit status: 0 done, 2 refused, and nothing is written.
    Setup(SetupArgs),
    #[command(flatten)]
    Online(Online),
    /// Manage ublk devices; no daemon is needed.
    #[command(subcommand)]
    Ublk(Ublk),
    /// Manage a store, whether or not a daemon has it open.
    #[command(subcommand)]
    Store(StoreCommand),
    #[command(flatten)]
    Documents(Documents),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Online {
    /// Show verdict, cache, volumes and addresses of a running daemon.
    ///
    /// Exit status: 0 healthy, 1 degraded, 3 failed, 2 not possible.
    ///
    /// HEALTHY: nothing to do. DEGRADED: every volume is served, and something costs speed, protection or trust: the
    /// cache is offline, reads of it failed verification, an origin failed, dirty data is older than max_dirty_age or
    /// unreadable, a volume started cold, or the cache has dirty data of a volume that is not configured. FAILED: a
    /// volume does not serve its clients. Each reason has its effect and an action. Single incidents, such as an error
    /// or a cold start, count for an hour after the last occurrence; a state counts as long as it lasts; `clear` ends
    /// an incident that is over.
    ///
    /// With -o, --no-headings or --bytes only the table of volumes is printed. Its cells are single words: "-" stands
    /// for nothing, and \040 for a space in a path. Columns: name, state (served, fenced, absent), size, mode, hits
    /// (reads that needed no origin), dirty, dirty-age, origin, device, reads, read, writes, written, trims, flushes,
    /// failed, origin-errors, waited, waited-time, waiting (for limits), held, quota, reserve (of the cache), pinned,
    /// pinned-cached, domain.
    Status {
        #[command(flatten)]
        daemon: Daemon,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show a running daemon's counters.
    Stats {
        #[command(flatten)]
        daemon: Daemon,
        /// Print the counters again every so many seconds.
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
              value_parser = clap::value_parser!(u16).range(1..))]
        watch: Option<u16>,
        /// Print the text format of Prometheus, as metrics.listen serves it.
        #[arg(long, conflicts_with_all = ["json", "watch"])]
        prometheus: bool,
    },
    /// List the connections of a running daemon.
    ///
    /// With -o, --no-headings or --bytes the cells are single words. Columns: id, volume, peer, listener, accepted.
    Connections {
        #[command(flatten)]
        daemon: Daemon,
        #[command(flatten)]
        listing: Listing,
    },
    /// Print events of a running daemon, one JSON object a line.
    ///
    /// Members: number, unix_s, uptime_ms, event, change (begins or ends), level, volume, store, what, follows,
    /// command. Events are the reasons of status: cache-failed, verification-failed, cache-errors, intent-log-void,
    /// index-short, origin-missing, volume-refused, dirty-doubtful, origin-errors, origin-refused, origin-full,
    /// origin-unreachable, writes-wait, origin-truncated, unreachable, fenced, recovery-point-late, dirty-stuck,
    /// dirty-unreadable, dirty-unserved, commits-dropped, cold-start, store-low-space, store-full, store-failed,
    /// store-dropped; low-space (writes wait for space for dirty data); and back-to-normal, when nothing is wrong any
    /// more. The daemon keeps the newest 1024. With --follow also daemon-gone and daemon-back.
    ///
    /// With --exec, the executables of a folder run for each event that is printed, in the order of their names, one at
    /// a time. Names have letters, digits, - and _. No shell is started. Each member that has a value is a variable:
    /// ZCACHED_EVENT, ZCACHED_CHANGE, ZCACHED_VOLUME, ... PATH and ZCACHED_SOCKET are set, nothing else. At most 32 run
    /// for an event. A program that takes too long is killed. Only root and this user may be able to change them.
    Events {
        /// Print new events as they come.
        #[arg(short, long)]
        follow: bool,
        /// Run the executables of this folder for each event.
        #[arg(long, value_name = "DIR", requires = "follow")]
        exec: Option<PathBuf>,
        /// Seconds that each of these programs may take.
        #[arg(long, value_name = "SECONDS", requires = "exec", default_value_t = 30,
              value_parser = clap::value_parser!(u16).range(1..=3600))]
        exec_limit: u16,
        /// Leave out events up to this number.
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        after: u64,
        /// Control socket of the daemon, also set by ZCACHED_SOCKET.
        #[arg(long, value_name = "PATH", default_value_os_t = socket_default())]
        socket: PathBuf,
    },
    /// Show live rates of the volumes on a terminal; q leaves.
    ///
    /// Rates are over the time between two answers of the daemon. HITS are reads that needed no origin, of all reads in
    /// that time. LAST MINUTE is the bandwidth of reads and writes, the newest on the right, the largest a full bar.
    /// Keys: n, r, w, h, d sort by name, bytes read, bytes written, hits, dirty data; - reverses; the arrows scroll; q
    /// leaves.
    Top {
        /// Seconds between two answers.
        #[arg(short, long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=60))]
        interval: u16,
        /// Control socket of the daemon, also set by ZCACHED_SOCKET.
        #[arg(long, value_name = "PATH", default_value_os_t = socket_default())]
        socket: PathBuf,
    },
    /// Close connections: one, or all of a client or a volume.
    ///
    /// A client may connect again.
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Disconnect {
        /// Number of the connection, as `connections` shows it.
        #[arg(long, value_name = "N", group = "which")]
        id: Option<u64>,
        /// Address, range such as 192.0.2.0/24, or user: "user 1000".
        #[arg(long, value_name = "CLIENT", group = "which")]
        client: Option<String>,
        /// Volume whose connections are closed.
        #[arg(long, value_name = "NAME", group = "which")]
        volume: Option<String>,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Record the requests of a volume, for zcsim.
    #[command(subcommand)]
    Record(Record),
    /// Add, remove, show and change the volumes of a running daemon.
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Show the cache device of a running daemon.
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Make a running daemon read its configuration again.
    Reload(Daemon),
    /// Stop a running daemon in order, and wait until it has ended.
    ///
    /// The daemon refuses to stop while the cache has dirty data, unless --flush or --keep-dirty is given. The answer
    /// names connected clients and mounted devices.
    Stop {
        /// Write dirty data to the origins first.
        #[arg(long, conflicts_with = "keep_dirty")]
        flush: bool,
        /// Leave dirty data on the cache until the next start.
        ///
        /// Until then the origins do not have it.
        #[arg(long)]
        keep_dirty: bool,
        /// Return at once; do not wait until the daemon has ended.
        #[arg(long)]
        no_wait: bool,
        /// List obstacles to a permanent stop; stop nothing.
        ///
        /// Obstacles are dirty data, connected clients, and devices that are mounted, swap space, below other devices
        /// or open. Packages check them before removal. Without a daemon, the state directory is checked.
        #[arg(long, conflicts_with_all = ["flush", "keep_dirty", "no_wait"])]
        dry_run: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Write a volume's dirty data to its origin, and wait.
    ///
    /// Exit status: 0 done, 1 the dirty data cannot be read or written now, 2 not possible.
    Flush {
        /// Name of the volume.
        volume: String,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Discard a volume's dirty data: those writes are lost.
    ///
    /// Without --yes the command reports the amount, asks for confirmation at a terminal, and refuses otherwise.
    DropDirty {
        /// Name of the volume.
        volume: String,
        #[command(flatten)]
        consent: Consent,
        /// Discard only unreadable dirty data; write zeros in its place.
        #[arg(long)]
        unreadable: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Grow a volume to the size of its origin, while it is served.
    ///
    /// Its ublk device grows as well, from Linux 6.16 on. NBD clients see the new size when they connect again.
    ///
    /// Exit status: 0 done, 1 the volume has grown but its device has not, 2 not possible.
    Resize {
        /// Name of the volume.
        volume: String,
        /// Grow the origin file to this size first; volumes never shrink.
        #[arg(long)]
        size: Option<ByteSize>,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Attach a volume as /dev/ublkbN, or as /dev/nbdN with --nbd.
    Attach {
        /// Name of the volume.
        volume: String,
        /// Attach a ublk device; this is the default.
        #[arg(long)]
        ublk: bool,
        /// Attach a device of the kernel's NBD client.
        ///
        /// This uses nbd-client and a Unix socket of the daemon. The device does not outlive the daemon.
        #[arg(long, conflicts_with = "ublk")]
        nbd: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Remove a volume's block device; write dirty data to its origin.
    ///
    /// Exit status: 0 done, 1 the device is gone, but the dirty data cannot be read or written now, 2 not possible.
    Detach {
        /// Name of the volume.
        volume: String,
        /// Remove a mounted or open device; requests to it then fail.
        #[arg(long)]
        force: bool,
        /// Remove the device that `attach --nbd` made.
        #[arg(long)]
        nbd: bool,
        /// Return at once; dirty data goes to the origin later.
        #[arg(long)]
        keep_dirty: bool,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Serve a fenced volume again; its newest writes may be missing.
    ///
    /// A volume is fenced if the cache's journal is corrupt, or if its origin changed. It is then served in its
    /// present state. Without --yes the command reports this, asks for confirmation at a terminal, and refuses
    /// otherwise.
    AcceptLoss {
        /// Name of the volume.
        volume: String,
        #[command(flatten)]
        consent: Consent,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// End incidents in the verdict that are over and were seen.
    ///
    /// An error or a cold start counts for an hour after the last time. With this command it counts no more, until it
    /// happens again. A state counts as long as it lasts.
    Clear {
        /// Name of the volume; default is the cache and all volumes.
        volume: Option<String>,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Use the cache device again after it failed and came back.
    ///
    /// Fenced volumes are served with every flushed byte. The other volumes start with a cold cache. The daemon
    /// refuses a device that was changed in the meantime.
    Reattach(Daemon),
    /// Change a volume's mode until the next reload or start.
    ///
    /// When a volume leaves write-back, its dirty data is destaged.
    SetMode {
        /// Name of the volume.
        volume: String,
        /// The mode.
        #[arg(value_parser = PossibleValuesParser::new(Mode::WORDS.iter().map(|(word, _)| *word)))]
        mode: String,
        #[command(flatten)]
        daemon: Daemon,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Ublk {
    /// Check if this machine supports ublk; name what is missing.
    Probe,
    /// List every ublk device, its state and its owner.
    ///
    /// With -o, --no-headings or --bytes the cells are single words. Columns: device, volume, state, pid, queues,
    /// depth, cpus.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Remove zcached's devices that no daemon serves.
    ///
    /// A daemon that starts takes over its own devices instead.
    ///
    /// Exit status: 0 done, 1 a device is in use and stays, 2 not possible.
    Gc {
        /// Remove mounted or open devices, too; requests to them then fail.
        #[arg(long)]
        force: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
        assert_eq!(zc_cli::rules::faults(&command()), Vec::<String>::new());
    }

    #[test]
    fn options_of_the_daemon_stand_before_or_after_the_command() {
        let given = |arguments: &[&str]| {
            let arguments = [&["zcctl"], arguments].concat();
            match Cli::read(arguments).unwrap().command {
                Command::Online(Online::Status { daemon, .. }) => (daemon.socket, daemon.json),
                other => panic!("{other:?}"),
            }
        };
        let expected = (PathBuf::from("/s"), true);
        assert_eq!(given(&["--socket", "/s", "--json", "status"]), expected);
        assert_eq!(given(&["status", "--socket", "/s", "--json"]), expected);
        assert_eq!(given(&["--json", "status", "--socket=/s"]), expected);
        assert_eq!(given(&["--socket", "/other", "status", "--socket", "/s", "--json"]), expected);
        assert_eq!(given(&["status"]), (socket_default(), false));
        let table = |arguments: &[&str]| match Cli::read(arguments.iter().copied()).unwrap().command {
            Command::Online(Online::Connections { listing, .. }) => {
                (listing.columns, listing.no_headings, listing.bytes)
            }
            other => panic!("{other:?}"),
        };
        let expected = (vec!["id".to_owned(), "peer".to_owned()], true, true);
        assert_eq!(table(&["zcctl", "-o", "id,peer", "--no-headings", "--bytes", "connections"]), expected);
        assert_eq!(table(&["zcctl", "connections", "--bytes", "--no-headings", "-oid,peer"]), expected);
        // Some offline commands use the option; others report that they do not.
        let check = Cli::read(["zcctl", "--json", "check", "x"]).unwrap().command;
        assert!(matches!(check, Command::Check(CheckArgs { json: true, .. })));
        for arguments in [
            &["zcctl", "--json", "ublk", "gc"][..],
            &["zcctl", "check", "x", "--socket", "/s"],
            &["zcctl", "--no-headings", "stats"],
        ] {
            let refusal = Cli::read(arguments.iter().copied()).unwrap_err().to_string();
            assert!(refusal.contains("has no --"), "{refusal}");
        }
    }

    #[test]
    fn sizes_and_slots_are_parsed() {
        let cli =
            Cli::try_parse_from(["zcctl", "format", "x", "--size", "3 GiB", "--weu-size", "512K"]).unwrap();
        let Command::Format(args) = cli.command else { panic!("format") };
        assert_eq!(
            (args.size, args.weu_size, args.extent_size),
            (Some(ByteSize(3 << 30)), ByteSize(512 << 10), ByteSize(8 << 10))
        );
        // A slot is needed.
        Cli::try_parse_from(["zcctl", "dump", "weu", "x"]).unwrap_err();
        Cli::try_parse_from(["zcctl", "set-mode", "a", "write-behind"]).unwrap_err();
        Cli::try_parse_from(["zcctl", "stop", "--flush", "--keep-dirty"]).unwrap_err();
        Cli::try_parse_from(["zcctl", "record", "start", "a", "--to", "x", "--duration", "10min"]).unwrap();
        Cli::try_parse_from(["zcctl", "record", "start", "a"]).unwrap_err();
        Cli::try_parse_from(["zcctl", "attach", "a", "--ublk"]).unwrap();
        Cli::try_parse_from(["zcctl", "resize", "a", "--size", "3 bytes"]).unwrap_err();
        Cli::try_parse_from(["zcctl", "ublk", "gc", "--force"]).unwrap();
        Cli::try_parse_from(["zcctl", "disconnect", "--id", "7"]).unwrap();
        Cli::try_parse_from(["zcctl", "disconnect"]).unwrap_err();
        Cli::try_parse_from(["zcctl", "disconnect", "--id", "7", "--volume", "a"]).unwrap_err();
    }
}
