//! Findings of a component that other components have to act on.
//!
//! Job: route them upwards. A component appends an effect to [`crate::base::Base::effects`]; the manager routes it to
//! the others when the component has done its own work. So no component calls those above it.

use zc_core::{ErrorKind, ExtentKey, VolumeId};

/// See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The cache device failed with this error. [`crate::base::Base::health`] reflects it already.
    DeviceFailed(ErrorKind),
    /// A sample of the volume differs from its origin: its earlier stored content is not trusted any more.
    OriginDiffers(VolumeId),
    /// The origin may have lost writes since its last flush.
    OriginLost(VolumeId),
    /// A client could not be given dirty data of the extent.
    DirtyReadFailed(ExtentKey),
    /// A write of dirty data to its origin ended.
    DestageWriteEnded(VolumeId, Result<(), ErrorKind>),
    /// Completion of the origin flush that the removal of its volume waits for.
    RemovalFlushed(VolumeId, Result<(), ErrorKind>),
}
