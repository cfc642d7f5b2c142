//! Options of a device, and the kernel's description of it.

use zc_core::SECTOR_BYTES;
use zc_core::limits::{REQUEST_BYTES_MAX, UBLK_QUEUE_DEPTH_MAX, UBLK_QUEUES_MAX, UBLK_TAGS_MAX};
use zerocopy::IntoBytes;

use crate::error::UblkError;
use crate::uapi::{self, RawDeviceInfo, RawParams, attribute, feature, state};

/// Feature bits of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    const fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }

    /// Returns the missing required feature, if any.
    #[must_use]
    pub const fn missing(self) -> Option<&'static str> {
        if !self.has(feature::CMD_IOCTL_ENCODE) {
            Some("ioctl-encoded commands")
        } else if !self.has(feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE) {
            Some("user recovery with re-issue")
        } else if !self.has(feature::NEED_GET_DATA) && !self.has(feature::USER_COPY) {
            Some("a way to choose the memory of a request after seeing it")
        } else {
            None
        }
    }

    /// Returns `true` if a device can be resized in use.
    #[must_use]
    pub const fn can_resize(self) -> bool {
        self.has(feature::UPDATE_SIZE)
    }

    /// Returns the wanted mode if the driver supports it, otherwise the other.
    #[must_use]
    pub const fn copy_mode(self, wanted: Option<CopyMode>) -> CopyMode {
        match wanted {
            Some(CopyMode::UserCopy) if self.has(feature::USER_COPY) => CopyMode::UserCopy,
            _ if self.has(feature::NEED_GET_DATA) => CopyMode::InCommand,
            _ => CopyMode::UserCopy,
        }
    }
}

/// Mode of copying between the kernel's pages and our memory.
///
/// Reads of 8 KiB that all hit, 16 at once, in an emulated machine with one processor on a busy host (`cargo xtask
/// bench rivals --workload fit-25`, Linux 6.12, one run each, so that the ratio is rough):
///
/// | mode | entries of the ring, read and write | reads a second |
/// |---|---|---|
/// | [`CopyMode::InCommand`] | 1, 2 | 3,493 |
/// | [`CopyMode::UserCopy`] | 2, 2 | 2,409 |
///
/// Therefore the first is chosen if the driver supports both. Zero copy is unsuitable: the cache must see the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyMode {
    /// Within the commands: a write's data is requested with a command (NEED_GET_DATA), a read's data accompanies its
    /// result. One entry of the ring for a read, two for a write.
    InCommand,
    /// By reads and writes of the character device (USER_COPY): two entries for a read, two for a write.
    UserCopy,
}

/// Attributes of a device, which the kernel presents to its users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Size; whole sectors of 512.
    pub size_bytes: u64,
    /// Granularity of requests: 512 to 4096, a power of two.
    pub logical_block_bytes: u32,
    /// Granularity of writes without read-modify-write.
    pub physical_block_bytes: u32,
    /// Optimal size of a request.
    pub optimal_bytes: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// The device holds acknowledged writes in volatile memory until a flush. Without this the kernel sends no flushes
    /// at all.
    pub volatile_cache: bool,
    /// The device supports FUA writes.
    pub fua: bool,
    /// Granularity of discards; 0: none.
    pub discard_granularity_bytes: u32,
}

/// Options of a new device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Number; `None`: the kernel chooses.
    pub id: Option<u32>,
    /// Queues.
    pub queues: u16,
    /// Requests per queue.
    pub depth: u16,
    /// Largest request.
    pub request_bytes_max: u32,
    /// How bytes are copied.
    pub copy: CopyMode,
    /// `true` if its size may change in use; only where [`Features::can_resize`].
    pub resizable: bool,
    /// 64 bits that the kernel stores for us: the owner of the device.
    pub stamp: u64,
    /// Attributes that its users see.
    pub attributes: Attributes,
}

impl DeviceOptions {
    /// Checks the bounds.
    ///
    /// # Errors
    /// When an option is out of bounds.
    pub fn check(&self) -> Result<(), UblkError> {
        let invalid = |text: String| Err(UblkError::Invalid(text));
        let Attributes { size_bytes, logical_block_bytes: logical, physical_block_bytes: physical, .. } =
            self.attributes;
        if !(1..=UBLK_QUEUES_MAX).contains(&self.queues) || !(1..=UBLK_QUEUE_DEPTH_MAX).contains(&self.depth)
        {
            return invalid(format!(
                "{} queues of {} requests are out of 1 to {UBLK_QUEUES_MAX} queues, 1 to \
                 {UBLK_QUEUE_DEPTH_MAX} requests",
                self.queues, self.depth
            ));
        }
        if u32::from(self.queues) * u32::from(self.depth) > UBLK_TAGS_MAX {
            return invalid(format!(
                "{} queues of {} requests are more than {UBLK_TAGS_MAX} requests",
                self.queues, self.depth
            ));
        }
        let page = u32::try_from(zc_io::PAGE_BYTES).unwrap_or(u32::MAX);
        if !(page..=REQUEST_BYTES_MAX).contains(&self.request_bytes_max)
            || !self.request_bytes_max.is_multiple_of(page)
        {
            return invalid(format!(
                "requests of {} bytes are not whole pages up to {REQUEST_BYTES_MAX}",
                self.request_bytes_max
            ));
        }
        let fits = |bytes: u32| bytes.is_power_of_two() && (SECTOR_BYTES..=page).contains(&bytes);
        if !fits(logical) || !physical.is_power_of_two() || physical < logical {
            return invalid(format!(
                "blocks of {logical} and {physical} bytes are not powers of two from 512"
            ));
        }
        if size_bytes == 0 || !size_bytes.is_multiple_of(u64::from(logical)) {
            return invalid(format!("{size_bytes} bytes are not whole blocks of {logical}"));
        }
        Ok(())
    }

    pub(crate) const fn flags(&self) -> u64 {
        let copy = match self.copy {
            CopyMode::InCommand => feature::NEED_GET_DATA,
            CopyMode::UserCopy => feature::USER_COPY,
        };
        let resize = if self.resizable { feature::UPDATE_SIZE } else { 0 };
        copy | resize | feature::CMD_IOCTL_ENCODE | feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE
    }

    pub(crate) fn raw_info(&self) -> RawDeviceInfo {
        RawDeviceInfo {
            nr_hw_queues: self.queues,
            queue_depth: self.depth,
            max_io_buf_bytes: self.request_bytes_max,
            dev_id: self.id.unwrap_or(u32::MAX),
            flags: self.flags(),
            ublksrv_flags: self.stamp,
            ..RawDeviceInfo::default()
        }
    }

    /// Returns the parameters in the kernel's layout.
    pub(crate) fn raw_params(&self) -> Vec<u8> {
        let attributes = &self.attributes;
        let shift = |bytes: u32| u8::try_from(bytes.max(SECTOR_BYTES).ilog2()).unwrap_or(9);
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        let can_discard = attributes.discard_granularity_bytes > 0 && !attributes.read_only;
        let sectors_max = self.request_bytes_max / SECTOR_BYTES;
        // Discards and zeros move no bytes: they may be much larger than other requests.
        let bulk_sectors = if can_discard { u32::MAX / SECTOR_BYTES } else { 0 };
        let params = RawParams {
            len: u32::try_from(uapi::PARAMS_BYTES).unwrap_or(u32::MAX),
            types: uapi::PARAM_BASIC | flag(can_discard, uapi::PARAM_DISCARD),
            attrs: flag(attributes.read_only, attribute::READ_ONLY)
                | flag(attributes.volatile_cache, attribute::VOLATILE_CACHE)
                | flag(attributes.fua, attribute::FUA),
            logical_bs_shift: shift(attributes.logical_block_bytes),
            physical_bs_shift: shift(attributes.physical_block_bytes),
            io_opt_shift: shift(attributes.optimal_bytes),
            io_min_shift: shift(attributes.physical_block_bytes),
            max_sectors: sectors_max,
            dev_sectors: attributes.size_bytes / u64::from(SECTOR_BYTES),
            discard_granularity: if can_discard { attributes.discard_granularity_bytes } else { 0 },
            max_discard_sectors: bulk_sectors,
            max_write_zeroes_sectors: bulk_sectors,
            max_discard_segments: u16::from(can_discard),
            ..RawParams::default()
        };
        assert_eq!(params.attrs & attribute::ROTATIONAL, 0, "a cache answers like an SSD");
        params.as_bytes()[..uapi::PARAMS_BYTES].to_vec()
    }
}

/// States of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceState {
    /// Added but not started, or stopped: there is no block device.
    Dead,
    /// Served.
    Live,
    /// Its process is gone; requests wait for a new one.
    Quiesced,
    /// Its process is gone; requests fail.
    FailIo,
    /// State unknown to this version.
    Other(u16),
}

impl DeviceState {
    /// Returns a word for people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Live => "live",
            Self::Quiesced => "quiesced",
            Self::FailIo => "failing",
            Self::Other(_) => "unknown",
        }
    }
}

/// A device as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number: the N of /dev/ublkbN.
    pub id: u32,
    /// Queues.
    pub queues: u16,
    /// Requests per queue.
    pub depth: u16,
    /// Largest request.
    pub request_bytes_max: u32,
    /// State.
    pub state: DeviceState,
    /// Process that serves it; -1 or 0 if none.
    pub pid: i32,
    /// Feature bits in force.
    pub flags: u64,
    /// Stamp of its owner.
    pub stamp: u64,
}

impl DeviceInfo {
    pub(crate) fn of(raw: &RawDeviceInfo) -> Self {
        Self {
            id: raw.dev_id,
            queues: raw.nr_hw_queues,
            depth: raw.queue_depth,
            request_bytes_max: raw.max_io_buf_bytes,
            state: match raw.state {
                state::DEAD => DeviceState::Dead,
                state::LIVE => DeviceState::Live,
                state::QUIESCED => DeviceState::Quiesced,
                state::FAIL_IO => DeviceState::FailIo,
                other => DeviceState::Other(other),
            },
            pid: raw.ublksrv_pid,
            flags: raw.flags,
            stamp: raw.ublksrv_flags,
        }
    }

    /// Returns the copy mode.
    #[must_use]
    pub const fn copy_mode(&self) -> CopyMode {
        if self.flags & feature::USER_COPY != 0 { CopyMode::UserCopy } else { CopyMode::InCommand }
    }

    /// Returns `true` if the data of a write is transferred after the request was received: the only modes that we can
    /// serve.
    #[must_use]
    pub const fn is_servable(&self) -> bool {
        self.flags & (feature::USER_COPY | feature::NEED_GET_DATA) != 0
    }

    /// Returns the path of the block device.
    #[must_use]
    pub fn path(&self) -> String {
        block_path(self.id)
    }

    /// Returns the size of the block device according to the kernel; `None` if there is no device.
    #[must_use]
    pub fn size_bytes(&self) -> Option<u64> {
        let sectors = std::fs::read_to_string(format!("/sys/block/ublkb{}/size", self.id)).ok()?;
        sectors.trim().parse::<u64>().ok()?.checked_mul(u64::from(SECTOR_BYTES))
    }
}

pub(crate) fn block_path(id: u32) -> String {
    format!("/dev/ublkb{id}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    fn options() -> DeviceOptions {
        DeviceOptions {
            id: None,
            queues: 1,
            depth: 128,
            request_bytes_max: 512 << 10,
            copy: CopyMode::InCommand,
            resizable: false,
            stamp: 7,
            attributes: Attributes {
                size_bytes: 1 << 30,
                logical_block_bytes: 512,
                physical_block_bytes: 4096,
                optimal_bytes: 64 << 10,
                read_only: false,
                volatile_cache: true,
                fua: true,
                discard_granularity_bytes: 4096,
            },
        }
    }

    fn raw(options: &DeviceOptions) -> RawParams {
        let mut bytes = options.raw_params();
        bytes.resize(size_of::<RawParams>(), 0);
        RawParams::read_from_bytes(&bytes).unwrap()
    }

    #[test]
    fn flushes_are_asked_for_and_the_device_does_not_spin() {
        let params = raw(&options());
        assert_eq!(params.attrs, attribute::VOLATILE_CACHE | attribute::FUA);
        assert_eq!((params.logical_bs_shift, params.physical_bs_shift, params.io_opt_shift), (9, 12, 16));
        assert_eq!((params.dev_sectors, params.max_sectors), (1 << 21, 1024));
        assert_eq!((params.len, params.types), (60, 3));
        assert_eq!((params.discard_granularity, params.max_discard_segments), (4096, 1));
    }

    #[test]
    fn a_read_only_device_takes_no_discards() {
        let mut options = options();
        options.attributes.read_only = true;
        let params = raw(&options);
        assert_eq!((params.types, params.max_discard_sectors, params.max_write_zeroes_sectors), (1, 0, 0));
        assert_eq!(params.attrs & attribute::READ_ONLY, attribute::READ_ONLY);
    }

    #[test]
    fn bounds_are_checked() {
        options().check().unwrap();
        let broken: [fn(&mut DeviceOptions); 8] = [
            |o| o.queues = 0,
            |o| o.depth = 4097,
            |o| (o.queues, o.depth) = (32, 129),
            |o| o.request_bytes_max = 64 << 20,
            |o| o.request_bytes_max = 5000,
            |o| o.attributes.size_bytes = 1000,
            |o| o.attributes.logical_block_bytes = 256,
            |o| o.attributes.physical_block_bytes = 3000,
        ];
        for breakage in broken {
            let mut options = options();
            breakage(&mut options);
            assert!(options.check().is_err(), "{options:?}");
        }
    }

    #[test]
    fn features_choose_the_copy_mode() {
        let of_612 = Features(0x1fe);
        assert_eq!(of_612.missing(), None);
        assert_eq!(of_612.copy_mode(None), CopyMode::InCommand);
        assert_eq!(of_612.copy_mode(Some(CopyMode::UserCopy)), CopyMode::UserCopy);
        let only_user_copy = Features(0x1fe & !feature::NEED_GET_DATA);
        assert_eq!(only_user_copy.copy_mode(Some(CopyMode::InCommand)), CopyMode::UserCopy);
        assert!(!of_612.can_resize() && Features(0x3fff).can_resize());
        assert_eq!(DeviceOptions { resizable: true, ..options() }.flags() & !options().flags(), 0x400);
        assert!(Features(0x1e).missing().unwrap().contains("ioctl"));
        assert!(Features(0x1fe & !feature::USER_RECOVERY).missing().unwrap().contains("recovery"));
    }
}
