//! What a component found out and other components have to act on.
//!
//! Job: lead news upwards. A component appends an effect to [`crate::base::Base::effects`]; the manager leads it to the
//! others when the component has done its own work. So no component calls those above it.

use zc_core::ErrorKind;

/// See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The cache device failed with this error. [`crate::base::Base::health`] says so already.
    DeviceFailed(ErrorKind),
}
