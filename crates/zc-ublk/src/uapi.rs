//! Structures and constants of the kernel: names, sizes and values are those of `linux/ublk_cmd.h`.
//!
//! Invariants: every structure has the kernel's size, and its fields the kernel's offsets; asserted at compile time.

use core::mem::{offset_of, size_of};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Command codes are ioctl numbers: direction, size of the argument, type, number.
const fn ioctl(read_write: u32, argument_bytes: usize, number: u8) -> u32 {
    assert!(argument_bytes < 1 << 14, "an ioctl number has 14 bits for the size");
    #[expect(clippy::cast_possible_truncation, reason = "asserted above; const functions have no try_from")]
    let size = argument_bytes as u32;
    (read_write << 30) | (size << 16) | ((b'u' as u32) << 8) | (number as u32)
}

const fn control_read(number: u8) -> u32 {
    ioctl(2, size_of::<ControlCommand>(), number)
}

const fn control_both(number: u8) -> u32 {
    ioctl(3, size_of::<ControlCommand>(), number)
}

const fn data_both(number: u8) -> u32 {
    ioctl(3, size_of::<DataCommand>(), number)
}

/// Control commands.
pub(crate) mod control {
    use super::{control_both, control_read};
    pub(crate) const GET_QUEUE_AFFINITY: u32 = control_read(0x01);
    pub(crate) const GET_DEV_INFO: u32 = control_read(0x02);
    pub(crate) const ADD_DEV: u32 = control_both(0x04);
    pub(crate) const DEL_DEV: u32 = control_both(0x05);
    pub(crate) const START_DEV: u32 = control_both(0x06);
    pub(crate) const STOP_DEV: u32 = control_both(0x07);
    pub(crate) const SET_PARAMS: u32 = control_both(0x08);
    pub(crate) const START_USER_RECOVERY: u32 = control_both(0x10);
    pub(crate) const END_USER_RECOVERY: u32 = control_both(0x11);
    pub(crate) const GET_FEATURES: u32 = control_read(0x13);
    pub(crate) const DEL_DEV_ASYNC: u32 = control_read(0x14);
    pub(crate) const UPDATE_SIZE: u32 = control_both(0x15);
}

/// Commands of a queue.
pub(crate) mod data {
    use super::data_both;
    pub(crate) const FETCH: u32 = data_both(0x20);
    pub(crate) const COMMIT_AND_FETCH: u32 = data_both(0x21);
    pub(crate) const NEED_GET_DATA: u32 = data_both(0x22);
}

/// Feature bits.
pub(crate) mod feature {
    pub(crate) const NEED_GET_DATA: u64 = 1 << 2;
    pub(crate) const USER_RECOVERY: u64 = 1 << 3;
    pub(crate) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    pub(crate) const CMD_IOCTL_ENCODE: u64 = 1 << 6;
    pub(crate) const USER_COPY: u64 = 1 << 7;
    pub(crate) const UPDATE_SIZE: u64 = 1 << 10;
}

/// Results of a fetch: a request; a request whose data must be requested.
pub(crate) const RES_OK: usize = 0;
pub(crate) const RES_NEED_GET_DATA: usize = 1;

/// Operations of a request, in the low byte of its flags.
pub(crate) mod op {
    pub(crate) const READ: u32 = 0;
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const FLUSH: u32 = 2;
    pub(crate) const DISCARD: u32 = 3;
    pub(crate) const WRITE_ZEROES: u32 = 5;
    pub(crate) const MASK: u32 = 0xff;
    /// Durable before completion.
    pub(crate) const FUA: u32 = 1 << 13;
    /// Zeros keep their space.
    pub(crate) const NO_UNMAP: u32 = 1 << 15;
}

/// Attributes of a device.
pub(crate) mod attribute {
    pub(crate) const READ_ONLY: u32 = 1 << 0;
    pub(crate) const ROTATIONAL: u32 = 1 << 1;
    pub(crate) const VOLATILE_CACHE: u32 = 1 << 2;
    pub(crate) const FUA: u32 = 1 << 3;
}

/// Valid parts of the parameters.
pub(crate) const PARAM_BASIC: u32 = 1 << 0;
pub(crate) const PARAM_DISCARD: u32 = 1 << 1;

/// States of a device.
pub(crate) mod state {
    pub(crate) const DEAD: u16 = 0;
    pub(crate) const LIVE: u16 = 1;
    pub(crate) const QUIESCED: u16 = 2;
    pub(crate) const FAIL_IO: u16 = 3;
}

/// Offset of request data in the character device's file.
pub(crate) const BUFFER_OFFSET: u64 = 0x8000_0000;
pub(crate) const BUFFER_TAG_SHIFT: u32 = 25;
pub(crate) const BUFFER_QUEUE_SHIFT: u32 = 41;

/// Distance in bytes of the descriptor tables of two queues in that file.
pub(crate) const DESCRIPTORS_STRIDE_BYTES: usize =
    zc_core::limits::UBLK_QUEUE_DEPTH_MAX as usize * size_of::<IoDescriptor>();

/// `struct ublksrv_ctrl_cmd`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, IntoBytes, Immutable)]
pub(crate) struct ControlCommand {
    pub(crate) dev_id: u32,
    pub(crate) queue_id: u16,
    pub(crate) len: u16,
    pub(crate) addr: u64,
    pub(crate) data: u64,
    pub(crate) dev_path_len: u16,
    pub(crate) pad: u16,
    pub(crate) reserved: u32,
}

/// `struct ublksrv_ctrl_dev_info`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub(crate) struct RawDeviceInfo {
    pub(crate) nr_hw_queues: u16,
    pub(crate) queue_depth: u16,
    pub(crate) state: u16,
    pub(crate) pad0: u16,
    pub(crate) max_io_buf_bytes: u32,
    pub(crate) dev_id: u32,
    pub(crate) ublksrv_pid: i32,
    pub(crate) pad1: u32,
    pub(crate) flags: u64,
    pub(crate) ublksrv_flags: u64,
    pub(crate) owner_uid: u32,
    pub(crate) owner_gid: u32,
    pub(crate) reserved1: u64,
    pub(crate) reserved2: u64,
}

/// `struct ublk_params`, up to basic and discard parameters. The kernel accepts a shorter structure than its own.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub(crate) struct RawParams {
    pub(crate) len: u32,
    pub(crate) types: u32,
    pub(crate) attrs: u32,
    pub(crate) logical_bs_shift: u8,
    pub(crate) physical_bs_shift: u8,
    pub(crate) io_opt_shift: u8,
    pub(crate) io_min_shift: u8,
    pub(crate) max_sectors: u32,
    pub(crate) chunk_sectors: u32,
    pub(crate) dev_sectors: u64,
    pub(crate) virt_boundary_mask: u64,
    pub(crate) discard_alignment: u32,
    pub(crate) discard_granularity: u32,
    pub(crate) max_discard_sectors: u32,
    pub(crate) max_write_zeroes_sectors: u32,
    pub(crate) max_discard_segments: u16,
    pub(crate) reserved0: u16,
    pub(crate) pad: u32,
}

/// `struct ublksrv_io_cmd`; the address is the second half.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, IntoBytes, Immutable)]
pub(crate) struct DataCommand {
    pub(crate) head: DataCommandHead,
    pub(crate) addr: u64,
}

/// First half of it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable)]
pub(crate) struct DataCommandHead {
    pub(crate) q_id: u16,
    pub(crate) tag: u16,
    pub(crate) result: i32,
}

/// `struct ublksrv_io_desc`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable)]
pub(crate) struct IoDescriptor {
    pub(crate) op_flags: u32,
    pub(crate) nr_sectors: u32,
    pub(crate) start_sector: u64,
    pub(crate) addr: u64,
}

const _: () = {
    assert!(size_of::<ControlCommand>() == 32);
    assert!(offset_of!(ControlCommand, addr) == 8);
    assert!(offset_of!(ControlCommand, data) == 16);
    assert!(offset_of!(ControlCommand, dev_path_len) == 24);
    assert!(size_of::<RawDeviceInfo>() == 64);
    assert!(offset_of!(RawDeviceInfo, max_io_buf_bytes) == 8);
    assert!(offset_of!(RawDeviceInfo, ublksrv_pid) == 16);
    assert!(offset_of!(RawDeviceInfo, flags) == 24);
    assert!(offset_of!(RawDeviceInfo, ublksrv_flags) == 32);
    assert!(offset_of!(RawDeviceInfo, owner_uid) == 40);
    assert!(offset_of!(RawParams, attrs) == 8);
    assert!(offset_of!(RawParams, max_sectors) == 16);
    assert!(offset_of!(RawParams, dev_sectors) == 24);
    assert!(offset_of!(RawParams, discard_alignment) == 40);
    assert!(offset_of!(RawParams, max_discard_segments) == 56);
    assert!(size_of::<RawParams>() == 64);
    assert!(size_of::<DataCommand>() == 16);
    assert!(offset_of!(DataCommand, addr) == 8);
    assert!(size_of::<DataCommandHead>() == 8);
    assert!(size_of::<IoDescriptor>() == 24);
    assert!(offset_of!(IoDescriptor, start_sector) == 8);
    assert!(DESCRIPTORS_STRIDE_BYTES.is_multiple_of(zc_io::PAGE_BYTES));
    // Numbers as the kernel's macros give them.
    assert!(control::GET_FEATURES == 0x8020_7513);
    assert!(control::ADD_DEV == 0xc020_7504);
    assert!(control::UPDATE_SIZE == 0xc020_7515);
    assert!(data::FETCH == 0xc010_7520);
    assert!(data::COMMIT_AND_FETCH == 0xc010_7521);
};

/// Size of the parameters that the kernel receives: the padding at the end is excluded.
pub(crate) const PARAMS_BYTES: usize = offset_of!(RawParams, pad);
