//! State of an exchange of managers in a process that lives on.
//!
//! Job: hold requests back while no manager serves, in their order, and tell on which device the next one begins.
//!
//! What it does not do: drive an exchange (`turns/exchange`).

use std::collections::BTreeSet;

use zc_cache::seam::{Request, RequestKind};
use zc_core::BufId;

/// State of the device for the next manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    /// As the old one left it, and not to be believed.
    Cold,
    /// Made empty.
    Empty,
}

/// State of an exchange.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    is_drawn: bool,
    /// Requests that wait for the pause to end.
    held: Option<Vec<Request>>,
    /// The next manager's device, while its session begins.
    device: Option<Device>,
}

impl Exchange {
    /// `is_drawn`: the seed exchanges managers.
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

    /// The process has ended.
    pub(crate) fn call_off(&mut self) {
        (self.held, self.device) = (None, None);
    }

    /// Number of requests that are held back.
    pub(crate) fn holds(&self) -> usize {
        self.held.as_ref().map_or(0, Vec::len)
    }

    /// From here on requests are held back.
    pub(crate) fn pause(&mut self) {
        self.held = Some(Vec::new());
    }

    /// Holds a request back during a pause, or returns it.
    pub(crate) fn hold(&mut self, request: Request) -> Option<Request> {
        let Some(held) = &mut self.held else { return Some(request) };
        held.push(request);
        None
    }

    /// Ends a pause: requests are not held back any more. Returns the ones that were, in their order.
    pub(crate) fn release(&mut self) -> Vec<Request> {
        self.held.take().unwrap_or_default()
    }

    /// Buffers of the requests that are held back.
    pub(crate) fn buffers(&self) -> BTreeSet<BufId> {
        self.held.iter().flatten().filter_map(buffer).collect()
    }

    /// The device of the next manager, whose session begins or has begun.
    pub(crate) const fn begin_on(&mut self, device: Option<Device>) {
        self.device = device;
    }

    /// Returns `true` if that session begins on a device that was made empty.
    pub(crate) fn is_empty_cache(&self) -> bool {
        self.device == Some(Device::Empty)
    }
}

/// The buffer of a request, if it has one.
pub(crate) const fn buffer(request: &Request) -> Option<BufId> {
    match request.kind {
        RequestKind::Read { buf } | RequestKind::Write { buf, .. } => Some(buf),
        _ => None,
    }
}
