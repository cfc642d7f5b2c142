//! `zcctl format`: creates an empty cache.
//!
//! Invariants: the file or device is locked first, so a running daemon's cache is refused; a used device is
//! overwritten with `--force` only, and dirty data with `--discard-dirty` only. All refusals precede the first write,
//! and that of an impossible layout precedes the creation of a file. Without `--erase` the cache's old contents stay
//! readable.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use zc_cache::startup::{self, Media, StartError};
use zc_core::{ErrorKind, FingerprintKind, limits::BLOCK_BYTES};
use zc_format::{Geometry, JOURNAL_DEVICE, PlanOptions};
use zc_io::{AlignedBuf, BlockFile, OpenOptions};

use super::at_stake::AtStake;
use super::cli::{Fingerprint, FormatArgs};
use crate::setup::signature::{self, Content};
use crate::units::size;

/// A file or device for `zc_cache`, limited to a size, and its journal's.
struct FileMedia<'a> {
    file: &'a BlockFile,
    journal: Option<&'a BlockFile>,
    len_bytes: u64,
}

impl<'a> FileMedia<'a> {
    fn at(&self, offset_bytes: u64) -> Result<(&'a BlockFile, u64), ErrorKind> {
        match offset_bytes.checked_sub(JOURNAL_DEVICE) {
            None => Ok((self.file, offset_bytes)),
            Some(offset_bytes) => Ok((self.journal.ok_or(ErrorKind::Invalid)?, offset_bytes)),
        }
    }
}

impl Media for FileMedia<'_> {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read(&mut self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), ErrorKind> {
        let (file, offset_bytes) = self.at(offset_bytes)?;
        let bytes = file.read_blocking(offset_bytes, buf.len()).map_err(|error| error.kind())?;
        buf.copy_from_slice(&bytes);
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, data: &[u8]) -> Result<(), ErrorKind> {
        let (file, offset_bytes) = self.at(offset_bytes)?;
        file.write_blocking(offset_bytes, &AlignedBuf::from(data)).map_err(|error| error.kind())
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        for file in [Some(self.file), self.journal].into_iter().flatten() {
            file.sync_blocking().map_err(|error| error.kind())?;
        }
        Ok(())
    }
}

pub(crate) fn run(args: &FormatArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if let Some(size) = args.size.filter(|_| !args.path.exists()) {
        // Before a file is made for it.
        plan(args, size.0, None, None)?;
    }
    let options = OpenOptions { direct: false, write: true, create_len: args.size.map(|size| size.0) };
    let file = Arc::new(BlockFile::open(&args.path, options)?);
    let have = file.len_bytes();
    let wanted = args.size.map_or(have, |size| size.0);
    if wanted > have {
        bail!("{} has {}, {} are asked for", args.path.display(), size(have), size(wanted));
    }
    if !args.force {
        refuse_used(&file)?;
    }
    let journal = open_journal(args, wanted)?;
    let given_up = if args.force { refuse_dirty(args, &file, journal.as_ref())? } else { Vec::new() };
    let align_bytes = file.discard_granularity_bytes();
    let geometry = plan(args, wanted, align_bytes, journal.as_deref())?;
    let options = startup::FormatOptions {
        geometry,
        uuid: uuid::Uuid::new_v4().into_bytes(),
        fingerprint_kind: match args.fingerprint {
            Fingerprint::Blake3 => FingerprintKind::Blake3,
            Fingerprint::Sha1 => FingerprintKind::Sha1,
        },
        label: args.label.clone(),
        now_unix_s: now_unix_s(),
    };
    if args.erase {
        for device in [Some(&file), journal.as_ref()].into_iter().flatten() {
            device.erase_blocking().with_context(|| format!("{} is not erased", device.path().display()))?;
        }
    }
    let mut media = FileMedia { file: &file, journal: journal.as_deref(), len_bytes: have };
    let superblock = startup::format(&mut media, &options)
        .with_context(|| format!("cannot format {}", args.path.display()))?;
    let geometry = &superblock.geometry;
    writeln!(
        out,
        "{}: an empty cache of {}: {} write-evict units of {}, extents of {}",
        args.path.display(),
        size(geometry.device_bytes),
        geometry.slots,
        size(u64::from(geometry.weu_bytes)),
        size(u64::from(geometry.extent_bytes)),
    )?;
    for name in given_up {
        writeln!(
            out,
            "dirty data of volume \"{name}\" is gone; start zcached with --drop-dirty {name} once"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

fn plan(
    args: &FormatArgs,
    wanted_bytes: u64,
    align_bytes: Option<u64>,
    journal: Option<&BlockFile>,
) -> anyhow::Result<Geometry> {
    let block = u64::from(BLOCK_BYTES);
    let plan = PlanOptions {
        device_bytes: wanted_bytes / block * block,
        weu_bytes: u32::try_from(args.weu_size.0).unwrap_or(u32::MAX),
        extent_bytes: u32::try_from(args.extent_size.0).unwrap_or(u32::MAX),
        align_bytes: args.align.map(|align| align.0).or(align_bytes).unwrap_or(0),
        journal_blocks: None,
    };
    Ok(match journal {
        Some(journal) => Geometry::plan_with_journal_device(&plan, journal.len_bytes())?,
        None => Geometry::plan(&plan)?,
    })
}

/// Refuses to destroy dirty data unless confirmed; returns the affected volumes.
fn refuse_dirty(
    args: &FormatArgs,
    file: &Arc<BlockFile>,
    journal: Option<&Arc<BlockFile>>,
) -> anyhow::Result<Vec<String>> {
    let is_used = |file: &BlockFile| Ok::<_, zc_io::IoError>(file.first_filled()?.is_some());
    let used_journal = journal.map(|journal| is_used(journal)).transpose()?.unwrap_or(false);
    if !is_used(file)? && !used_journal {
        return Ok(Vec::new());
    }
    let at_stake = AtStake::find(file, journal, &args.state_dir);
    if !at_stake.is_nothing() && !args.discard_dirty {
        bail!(
            "{} holds {}; no origin has it, and --force would destroy it. To keep it, start zcached with this \
             cache, then `zcctl stop --flush`. To lose it for good, add --discard-dirty",
            args.path.display(),
            at_stake.describe()
        );
    }
    Ok(at_stake.names())
}

fn open_journal(args: &FormatArgs, cache_bytes: u64) -> anyhow::Result<Option<Arc<BlockFile>>> {
    let Some(path) = &args.journal else { return Ok(None) };
    let create_len =
        args.journal_size.map_or_else(|| Geometry::journal_device_bytes(cache_bytes), |size| size.0);
    let options = OpenOptions { direct: false, write: true, create_len: Some(create_len) };
    let journal = BlockFile::open(path, options)?;
    if !args.force {
        refuse_filled(&journal)?;
    }
    Ok(Some(Arc::new(journal)))
}

fn refuse_used(file: &BlockFile) -> anyhow::Result<()> {
    let place = file.path().display();
    let mut media = FileMedia { file, journal: None, len_bytes: file.len_bytes() };
    match startup::read_superblock(&mut media) {
        Err(StartError::NotACache) => {}
        Ok(_) => bail!("{place} is a cache already; --force makes an empty one of it"),
        Err(error) => bail!("{place}: {error}; --force makes an empty cache of it"),
    }
    refuse_filled(file)
}

fn refuse_filled(file: &BlockFile) -> anyhow::Result<()> {
    let place = file.path().display();
    if let Some(at) = file.first_filled()? {
        match signature::content(file.path()) {
            known @ Content::Known(_) => bail!("{place} contains {}; --force destroys it", known.object()),
            _ => bail!("{place} contains data (byte {at} is not zero); --force destroys it"),
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "when a cache is formatted is told by the machine's clock")]
fn now_unix_s() -> u64 {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
