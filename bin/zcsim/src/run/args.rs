//! The command line of `zcsim run`.

use std::path::PathBuf;

use zc_core::Codec;
use zc_core::units::ByteSize;
use zc_policy::Kind;
use zc_trace::{DeviceChoice, Format, Options, Reader};

use crate::settings::{Mapping, RatioArgs, Setting};
use crate::size::Share;

/// Codec of blocks.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum CodecArg {
    /// LZ4, in the place of the paper's lzo
    Lz4,
    /// zlib at its default level
    Zlib,
    /// Zstandard at level 1
    Zstd,
    /// The cache without compression: no frames
    None,
}

impl CodecArg {
    pub(super) const fn codec(self) -> Codec {
        match self {
            Self::Lz4 => Codec::Lz4,
            Self::Zlib => Codec::Zlib(6),
            Self::Zstd => Codec::Zstd(1),
            Self::None => Codec::Raw,
        }
    }
}

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("driven").required(true).args(["policy", "config", "flaz"])))]
pub(crate) struct Args {
    /// Trace file, also gz, xz or zst; ARCHIVE:MEMBER for one in a tar
    #[arg(long)]
    pub(super) trace: PathBuf,
    /// Format, if zcsim does not recognise it; see zcsim info --help
    #[arg(long)]
    pub(super) format: Option<Format>,
    /// Take the requests of one device alone, as zcsim info lists it
    ///
    /// MAJOR,MINOR, or a number in formats without both
    #[arg(long, value_name = "DEVICE")]
    pub(super) device: Option<DeviceChoice>,
    /// Stop at the first bad line
    #[arg(long)]
    pub(super) strict: bool,
    /// Replacement policy, such as lru, s3-fifo or belady
    ///
    /// Policies: lru, fifo, clock, 2q, arc, lirs, s3-fifo, sieve, w-tinylfu, belady
    #[arg(long, conflicts_with = "config")]
    pub(super) policy: Option<Kind>,
    /// Use a model of FlaZ: a direct-mapped cache of compressed blocks
    #[arg(long, conflicts_with_all = ["config", "policy"], requires = "cache_share")]
    pub(super) flaz: bool,
    /// Codec of --flaz; none is a cache without compression
    #[arg(long, value_enum, default_value = "lz4", requires = "flaz")]
    pub(super) codec: CodecArg,
    /// Lines per block of the device, for --flaz
    ///
    /// Choose it a little below the compression ratio of the cached data
    #[arg(long, value_name = "X", default_value_t = 1.5, requires = "flaz")]
    pub(super) overbooking: f64,
    /// Size of a frame of --flaz, a power of two from 8 KiB
    #[arg(long, value_name = "SIZE", default_value = "32K", requires = "flaz")]
    pub(super) frame_size: ByteSize,
    /// Capacity in extents, for --policy
    #[arg(long, value_name = "N", conflicts_with = "config")]
    pub(super) cache_extents: Option<usize>,
    /// Capacity as a share of the trace's footprint, such as 10%
    ///
    /// With a configuration the write-evict units have this size, and its cache.size does not count
    #[arg(long, value_name = "SHARE", conflicts_with = "cache_extents")]
    pub(super) cache_share: Option<Share>,
    /// Size of an extent for --policy, a power of two from 4 KiB
    #[arg(long, value_name = "SIZE", default_value = "4K", conflicts_with_all = ["config", "flaz"])]
    pub(super) extent_size: ByteSize,
    /// Use the cache manager itself with this daemon configuration
    ///
    /// Files that it names are not opened
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Another value for a key of --config, such as cache.dedup=false
    #[arg(long, value_name = "KEY=VALUE", requires = "config")]
    pub(super) set: Vec<Setting>,
    /// Compare every read with the last write
    #[arg(long, requires = "config")]
    pub(super) check: bool,
    /// Send recipes of the origin's contents to the cache (Nitro)
    #[arg(long, requires = "config")]
    pub(super) recipes: bool,
    /// Model of an SSD for --config, mapped by page or with log blocks
    ///
    /// The page-mapped SSD keeps 7 % back
    #[arg(long, value_name = "MAPPING", requires = "config")]
    pub(super) ssd: Option<Mapping>,
    /// Device profile on which --config is simulated over time
    ///
    /// Profiles: hdd, flaz-1d1s, flaz-8d2s, nitro-tps, nitro-cos
    #[arg(long, value_name = "PROFILE", requires = "config", conflicts_with = "check")]
    pub(super) time: Option<String>,
    /// Clients of --time, each with one request at a time
    #[arg(long, value_name = "N", default_value_t = 16, requires = "time")]
    pub(super) clients: u32,
    /// Speed of the trace's own times for --time, in place of clients
    #[arg(long, value_name = "TIMES", requires = "time", conflicts_with = "clients")]
    pub(super) open: Option<f64>,
    #[command(flatten)]
    pub(super) ratios: RatioArgs,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Checks that the parser cannot express.
pub(super) fn usage(args: &Args) -> Result<(), clap::Error> {
    if args.policy.is_some() && args.ratios.are_given() {
        let why = "--ratio-mean and --ratio-deviation change nothing with --policy: it counts extents, which take one place \
                   each however well they compress\n";
        return Err(clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, why));
    }
    Ok(())
}

/// Opens the trace.
///
/// # Errors
/// The file cannot be read, or is no trace.
pub(super) fn open(args: &Args) -> anyhow::Result<Reader> {
    Ok(Reader::open(&args.trace, Options { format: args.format, strict: args.strict, device: args.device })?)
}
