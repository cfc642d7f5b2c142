//! Effects: events of a component that other components must handle.
//!
//! A component appends an effect to [`crate::base::Base::effects`]; the manager routes it to the others when the
//! component has finished its own work, so that no component calls those above it.

use zc_core::{ErrorKind, ExtentKey, VolumeId};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The cache device failed. [`crate::base::Base::health`] reflects it already.
    DeviceFailed(ErrorKind),
    /// A sample of the volume differs from its origin: content that earlier sessions stored is no longer trusted.
    OriginDiffers(VolumeId),
    /// The origin may have lost writes since its last flush.
    OriginLost(VolumeId),
    /// A client's read of dirty data failed.
    DirtyReadFailed(ExtentKey),
    DestageWriteEnded(VolumeId, Result<(), ErrorKind>),
    /// Completion of the origin flush before a volume's removal.
    RemovalFlushed(VolumeId, Result<(), ErrorKind>),
}
