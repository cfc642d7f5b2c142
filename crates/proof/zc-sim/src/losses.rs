//! Lost acknowledged writes, and the notification of clients about them.
//!
//! Job: play the driver that records the facts from which [`zc_cache::loss`] decides. The state directory holds the
//! volumes that acknowledge from memory and those that owe a loss; the risk file holds the writes that a kill would
//! lose. Check the results: a client that survives a loss has no successful flush before a failed one; a flush fails
//! for no other reason; data that the risk file calls safe survives a kill.
//!
//! To the manager, a cache device that is reattached while the daemon runs is such a kill.

use zc_cache::CacheManager;
use zc_cache::config::VolumeConfig;
use zc_cache::loss::Before;
use zc_core::{Ack, Mode, VolumeId};

/// State of one volume.
#[derive(Debug, Clone, Copy, Default)]
struct Volume {
    /// State directory: the session may acknowledge from memory.
    volatile: bool,
    /// State directory: a loss has not been reported.
    owed: bool,
    /// Risk file: a kill loses acknowledged writes, or a loss has not been reported.
    at_risk: bool,
    /// In truth a client lives whose acknowledged writes are lost, and no flush has failed since.
    untold: bool,
    /// A flush may fail for a loss.
    may_fail: bool,
    /// Flushes issued up to this time may have failed together with the one that reported the loss.
    told_at: u64,
    /// An operator trusts the cache device with its dirty data, newest or not: that counts as a loss.
    trusted: bool,
}

/// State of all volumes.
#[derive(Debug, Default, Clone)]
pub(crate) struct Losses {
    volumes: Vec<Volume>,
    /// Session and boot of the risk file.
    owner: (u64, u8),
    /// The current start trusts the risk file.
    believed: bool,
    /// The start found an older image of the device, which does not record the end of the last session.
    older: bool,
    /// Clients of the previous session still live.
    clients_live: bool,
    /// Volumes with commits that the current start did not count, though clients may have been answered.
    dropped: Vec<VolumeId>,
}

/// Returns `true` if writes may be acknowledged from memory. A volume with dirty data of an earlier session writes
/// back until it is clean, whatever its mode.
fn is_volatile(config: &VolumeConfig) -> bool {
    let writes_back = config.mode == Mode::WriteBack || config.may_be_dirty;
    writes_back && config.write_back.ack == Ack::Volatile
}

impl Losses {
    pub(crate) fn new(volumes: usize) -> Self {
        Self { volumes: vec![Volume::default(); volumes], ..Self::default() }
    }

    /// Records a start from a device whose last session was `session`, while the state directory holds `newest`.
    pub(crate) fn found(&mut self, session: u64, newest: u64, boot: u8) {
        self.believed = self.owner == (session, boot);
        self.older = session < newest;
    }

    /// Forgets the state of the old cache when another one replaces it.
    pub(crate) fn forget(&mut self) {
        self.volumes.fill(Volume::default());
        self.believed = false;
    }

    /// Withdraws the risk file after it could not be written.
    pub(crate) fn lose_risks(&mut self) {
        self.owner = (0, 0);
    }

    /// Loses the state directory, and with it the record that a loss is owed for a clean volume.
    pub(crate) fn lose(&mut self, volume: usize, may_be_dirty: bool) {
        self.lose_risks();
        let known = &mut self.volumes[volume];
        let untold = known.untold && may_be_dirty;
        *known = Volume { untold, trusted: may_be_dirty, ..Volume::default() };
    }

    /// Records commits that the current start does not count though clients may have been answered.
    pub(crate) fn dropped(&mut self, volumes: &[VolumeId]) {
        self.dropped = volumes.to_vec();
    }

    /// Restarts the machine. Clients on other machines live on if `clients_live`.
    pub(crate) fn reboot(&mut self, clients_live: bool) {
        self.clients_live = clients_live;
        if !clients_live {
            self.volumes.iter_mut().for_each(|volume| volume.untold = false);
        }
    }

    /// Ends the daemon while clients live.
    pub(crate) fn kill(&mut self) {
        self.clients_live = true;
    }

    /// Returns `true` if the risk file says that a kill now loses no acknowledged write.
    pub(crate) fn is_safe(&self, volume: usize) -> bool {
        !self.volumes[volume].at_risk
    }

    /// Records the settings of a volume before the manager applies them.
    pub(crate) fn configured(&mut self, volume: usize, config: &VolumeConfig) {
        self.volumes[volume].volatile |= is_volatile(config);
    }

    /// Begins the session of a volume. Returns `true` if its clients must be notified of a loss. A change of `ack`
    /// does not count for that.
    pub(crate) fn begin(
        &mut self,
        volume: usize,
        config: &VolumeConfig,
        may_be_dirty: bool,
        was_clean: bool,
    ) -> bool {
        let ended_in_order = was_clean && !self.older;
        let clients_may_live = self.clients_live;
        let at_risk = self.believed.then_some(self.volumes[volume].at_risk);
        let known = &mut self.volumes[volume];
        let was_volatile = may_be_dirty && known.volatile;
        let before = Before { ended_in_order, clients_may_live, was_volatile, owed: known.owed, at_risk };
        let dropped = clients_may_live && self.dropped.contains(&VolumeId(volume as u16));
        let lost = before.must_be_told() || dropped || core::mem::take(&mut known.trusted);
        (known.owed, known.volatile) = (lost, is_volatile(config));
        known.may_fail = lost;
        lost
    }

    /// Begins a volume's session on an empty cache, in the process of the previous session. Returns `true` if its
    /// clients have not been notified of a loss yet.
    pub(crate) fn begin_empty(&mut self, volume: usize, config: &VolumeConfig) -> bool {
        let known = &mut self.volumes[volume];
        (known.volatile, known.trusted) = (is_volatile(config), false);
        known.may_fail |= known.owed;
        known.owed
    }

    /// Leaves a volume out of the session. Its clients get errors, but its dirty data and its owed loss stay.
    pub(crate) fn put_aside(&mut self, volume: usize, may_be_dirty: bool, was_clean: bool) {
        let ended_in_order = was_clean && !self.older;
        let known = &mut self.volumes[volume];
        known.owed = may_be_dirty && (known.owed || (known.volatile && !ended_in_order));
        (known.volatile, known.untold) = (false, false);
    }

    /// Serves the volume after all. Returns `true` if its clients must be notified of a loss.
    pub(crate) fn taken_up(&mut self, volume: usize) -> bool {
        self.volumes[volume].may_fail = self.volumes[volume].owed;
        self.volumes[volume].owed
    }

    /// Replaces the volume by another one.
    pub(crate) fn replaced(&mut self, volume: usize) {
        self.volumes[volume] = Volume::default();
    }

    /// Records the session that owns the risk file.
    pub(crate) fn own(&mut self, session: u64, boot: u8) {
        self.owner = (session, boot);
    }

    /// Records that an operator gave up acknowledged data.
    pub(crate) fn given_up(&mut self, volume: usize) {
        self.volumes[volume].may_fail = true;
    }

    /// Records the data at risk after an event.
    pub(crate) fn note(&mut self, manager: &CacheManager) {
        for (number, volume) in self.volumes.iter_mut().enumerate() {
            let id = VolumeId(number as u16);
            volume.at_risk = manager.has_volatile(id) || manager.owes_loss(id);
        }
    }

    /// Ends the session; `clean` if in order, which the state directory records.
    pub(crate) fn over(&mut self, manager: &CacheManager, clean: bool) {
        for (number, volume) in self.volumes.iter_mut().enumerate() {
            let id = VolumeId(number as u16);
            volume.untold |= manager.has_volatile(id);
            if clean {
                volume.owed = manager.owes_loss(id);
            }
        }
    }

    /// Records that the manager closed its cache within a process, which keeps the owed losses.
    pub(crate) fn closed(&mut self, manager: &CacheManager) {
        for (number, volume) in self.volumes.iter_mut().enumerate() {
            volume.owed = manager.owes_loss(VolumeId(number as u16));
        }
    }

    /// Returns a violation in a successful flush, if there is one.
    pub(crate) fn flush_succeeded(&self, volume: usize) -> Option<String> {
        let text = "a flush succeeds although acknowledged writes are lost and no client was told (G5)";
        self.volumes[volume].untold.then(|| format!("volume {volume}: {text}"))
    }

    /// Records a failed flush that was issued at `asked_at`. `owes`: the manager has not reported the loss yet.
    /// Returns `true` if a loss explains the failure, and `true` if the flush reported one.
    pub(crate) fn flush_failed(
        &mut self,
        volume: usize,
        asked_at: u64,
        owes: bool,
        now: u64,
    ) -> (bool, bool) {
        let known = &mut self.volumes[volume];
        let is_explained = known.may_fail || asked_at <= known.told_at;
        known.untold = false;
        let tells = known.may_fail && !owes;
        if tells {
            (known.may_fail, known.told_at) = (false, now);
        }
        (is_explained, tells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a volume that acknowledges from memory and lost data to a power cut that its clients survived.
    fn after_a_power_cut() -> (Losses, VolumeConfig) {
        let mut config = VolumeConfig::new(VolumeId(0), 1 << 20, 1 << 20);
        config.mode = Mode::WriteBack;
        config.write_back.ack = Ack::Volatile;
        let mut losses = Losses::new(1);
        losses.configured(0, &config);
        losses.reboot(true);
        (losses, config)
    }

    #[test]
    fn an_older_image_that_ended_in_order_does_not_speak_for_the_last_session() {
        let (mut losses, config) = after_a_power_cut();
        losses.found(6, 7, 1);
        assert!(losses.begin(0, &config, true, true), "session 7 did not end in order");
        let (mut losses, config) = after_a_power_cut();
        losses.found(7, 7, 1);
        assert!(!losses.begin(0, &config, true, true), "it did");
    }

    #[test]
    fn a_volume_that_is_put_aside_by_an_older_image_is_owed_its_loss() {
        let (mut losses, _) = after_a_power_cut();
        losses.found(6, 7, 1);
        losses.put_aside(0, true, true);
        assert!(losses.taken_up(0));
    }
}
