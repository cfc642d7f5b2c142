//! Taps of volumes that are recorded.
//!
//! Job: put taps in and take them out, and show them what the manager is asked.
//!
//! What it does not do: note or pass on anything (`record`).

use zc_cache::seam::Event;
use zc_core::VolumeId;

use crate::record::Tap;
use crate::shard::Shard;

impl Shard {
    /// Begins to record a volume, or ends it. Whoever recorded it before gets the rest and the end.
    pub(crate) fn set_tap(&mut self, id: VolumeId, tap: Option<Box<Tap>>) {
        let now_ns = self.clock.now_ns();
        let Some(volume) = self.volumes.get_mut(&id) else { return };
        volume.tap = tap;
        if let Some(tap) = &mut volume.tap {
            tap.began_ns = Some(now_ns);
        }
        self.manager.tell_contents(id, volume.tap.is_some());
        self.taps = self.volumes.values().filter(|volume| volume.tap.is_some()).count();
    }

    /// An event goes to the manager. Requests are recorded here, in the order in which it sees them.
    pub(crate) fn note_request(&mut self, event: &Event) {
        let Event::Submit(request) = event else { return };
        let now_ns = self.clock.now_ns();
        if let Some(tap) = self.volumes.get_mut(&request.volume).and_then(|volume| volume.tap.as_mut()) {
            tap.asked(request, now_ns);
        }
    }

    /// Once a tick: what is there goes on, so that a recording is never far behind. Taps that nobody listens to go.
    pub(crate) fn hand_over_taps(&mut self) {
        let mut over = Vec::new();
        for (id, volume) in &mut self.volumes {
            if let Some(tap) = &mut volume.tap {
                tap.hand_over();
                if tap.is_over() {
                    over.push(*id);
                }
            }
        }
        for id in over {
            self.set_tap(id, None);
        }
    }

    /// There is another manager: it has to tell what the old one did.
    pub(crate) fn tell_contents_again(&mut self) {
        for (id, volume) in &self.volumes {
            self.manager.tell_contents(*id, volume.tap.is_some());
        }
    }
}
