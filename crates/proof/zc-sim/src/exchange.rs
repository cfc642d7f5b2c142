//! State of an exchange of managers in a process that survives it.
//!
//! Job: hold requests back in order while no manager serves, and record the device on which the next one begins.
//!
//! It does not drive an exchange (`turns/exchange` does).

use std::collections::BTreeSet;

use zc_cache::seam::{Request, RequestKind};
use zc_core::BufId;

/// State of the device for the next manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    /// Left by the old manager, and not trusted.
    Cold,
    /// Formatted empty.
    Empty,
}

#[derive(Debug, Default)]
pub(crate) struct Exchange {
    is_drawn: bool,
    /// Requests that wait for the end of the pause.
    held: Option<Vec<Request>>,
    /// Device of the next manager, while its session begins.
    device: Option<Device>,
}

impl Exchange {
    /// Creates the state; `is_drawn` if the seed exchanges managers.
    pub(crate) fn new(is_drawn: bool) -> Self {
        Self { is_drawn, ..Self::default() }
    }

    pub(crate) const fn is_drawn(&self) -> bool {
        self.is_drawn
    }

    /// Returns `true` while the session of the next manager begins.
    pub(crate) const fn is_under_way(&self) -> bool {
        self.device.is_some()
    }

    /// Returns `true` if that session begins on a device that served before.
    pub(crate) fn is_same_cache(&self) -> bool {
        self.device == Some(Device::Cold)
    }

    /// Abandons the exchange when the process ends.
    pub(crate) fn call_off(&mut self) {
        (self.held, self.device) = (None, None);
    }

    /// Returns the number of requests held back.
    pub(crate) fn holds(&self) -> usize {
        self.held.as_ref().map_or(0, Vec::len)
    }

    /// Starts holding requests back.
    pub(crate) fn pause(&mut self) {
        self.held = Some(Vec::new());
    }

    /// Holds a request back during a pause, or returns it.
    pub(crate) fn hold(&mut self, request: Request) -> Option<Request> {
        let Some(held) = &mut self.held else { return Some(request) };
        held.push(request);
        None
    }

    /// Ends a pause. Returns the held requests in order.
    pub(crate) fn release(&mut self) -> Vec<Request> {
        self.held.take().unwrap_or_default()
    }

    /// Returns the buffers of held requests.
    pub(crate) fn buffers(&self) -> BTreeSet<BufId> {
        self.held.iter().flatten().filter_map(buffer).collect()
    }

    /// Sets the device of the next manager, whose session begins or has begun.
    pub(crate) const fn begin_on(&mut self, device: Option<Device>) {
        self.device = device;
    }

    /// Returns `true` if that session begins on an empty device.
    pub(crate) fn is_empty_cache(&self) -> bool {
        self.device == Some(Device::Empty)
    }
}

/// Returns the buffer of a request, if it has one.
pub(crate) const fn buffer(request: &Request) -> Option<BufId> {
    match request.kind {
        RequestKind::Read { buf } | RequestKind::Write { buf, .. } => Some(buf),
        _ => None,
    }
}
