//! Acknowledged writes that are lost, and whether clients hear of it.
//!
//! Job: be the driver that remembers what [`zc_cache::loss`] judges by: in the state directory which volumes acknowledge
//! from memory and to which a loss is owed, in the risk file what a kill would take. And judge what comes of it: a client
//! that lives over a loss has no flush that succeeds before one has failed; a flush fails for nothing else; what the
//! risk file calls safe survives a kill.
//!
//! A cache device that is taken up again while the daemon runs is, to the manager, such a kill.

use zc_cache::CacheManager;
use zc_cache::config::VolumeConfig;
use zc_cache::loss::Before;
use zc_core::{Ack, Mode, VolumeId};

/// What is known of one volume.
#[derive(Debug, Clone, Copy, Default)]
struct Volume {
    /// State directory: the session may acknowledge from memory.
    volatile: bool,
    /// State directory: a loss has not been told.
    owed: bool,
    /// Risk file: a kill takes acknowledged writes along, or a loss has not been told.
    at_risk: bool,
    /// In truth a client lives whose acknowledged writes are gone, and no flush has failed since.
    untold: bool,
    /// A flush may fail for a loss.
    may_fail: bool,
    /// Flushes that were asked for until then may have failed together with the one that told.
    told_at: u64,
    /// An operator trusts the cache device with its dirty data, newest or not: that counts as a loss.
    trusted: bool,
}

/// What is known of all.
#[derive(Debug, Default, Clone)]
pub(crate) struct Losses {
    volumes: Vec<Volume>,
    /// Session and boot of the risk file.
    owner: (u64, u8),
    /// The start under way believes the risk file.
    believed: bool,
    /// The start finds an older image of the device, which says nothing of how the last session ended.
    older: bool,
    /// Clients of the session before live.
    clients_live: bool,
    /// Volumes with commits that the start under way did not count, though clients may have been answered.
    dropped: Vec<VolumeId>,
}

/// A volume with dirty data of an earlier session writes back until it is clean, whatever its mode.
fn is_volatile(config: &VolumeConfig) -> bool {
    let writes_back = config.mode == Mode::WriteBack || config.may_be_dirty;
    writes_back && config.write_back.ack == Ack::Volatile
}

impl Losses {
    pub(crate) fn new(volumes: usize) -> Self {
        Self { volumes: vec![Volume::default(); volumes], ..Self::default() }
    }

    /// A start finds a device whose last session was this one; the state directory knows of one that was `newest`.
    pub(crate) fn found(&mut self, session: u64, newest: u64, boot: u8) {
        self.believed = self.owner == (session, boot);
        self.older = session < newest;
    }

    /// Another cache takes the place: what the state directory knows is of the old one.
    pub(crate) fn forget(&mut self) {
        self.volumes.fill(Volume::default());
        self.believed = false;
    }

    /// The risk file could not be written, and is withdrawn.
    pub(crate) fn lose_risks(&mut self) {
        self.owner = (0, 0);
    }

    /// The state directory is lost. That a loss is owed for a volume that is clean is forgotten.
    pub(crate) fn lose(&mut self, volume: usize, may_be_dirty: bool) {
        self.lose_risks();
        let known = &mut self.volumes[volume];
        let untold = known.untold && may_be_dirty;
        *known = Volume { untold, trusted: may_be_dirty, ..Volume::default() };
    }

    /// Commits that the start under way does not count though clients may have been answered.
    pub(crate) fn dropped(&mut self, volumes: &[VolumeId]) {
        self.dropped = volumes.to_vec();
    }

    /// The machine starts anew. Clients on other machines live on, if there are any.
    pub(crate) fn reboot(&mut self, clients_live: bool) {
        self.clients_live = clients_live;
        if !clients_live {
            self.volumes.iter_mut().for_each(|volume| volume.untold = false);
        }
    }

    /// The daemon dies, or ends, while clients live.
    pub(crate) fn kill(&mut self) {
        self.clients_live = true;
    }

    /// Returns `true` if the risk file says that a kill now takes nothing that was acknowledged.
    pub(crate) fn is_safe(&self, volume: usize) -> bool {
        !self.volumes[volume].at_risk
    }

    /// The settings of a volume, before the manager has them.
    pub(crate) fn configured(&mut self, volume: usize, config: &VolumeConfig) {
        self.volumes[volume].volatile |= is_volatile(config);
    }

    /// A volume of the session that begins; whether its clients must be told of a loss. The new settings of `ack` do not
    /// count for that.
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

    /// A volume of a session on an empty cache, in the process of the session before. Returns whether its clients are
    /// still to learn of a loss.
    pub(crate) fn begin_empty(&mut self, volume: usize, config: &VolumeConfig) -> bool {
        let known = &mut self.volumes[volume];
        (known.volatile, known.trusted) = (is_volatile(config), false);
        known.may_fail |= known.owed;
        known.owed
    }

    /// A volume that the session does not serve. Its clients meet errors, but its dirty data and what it owes stay.
    pub(crate) fn put_aside(&mut self, volume: usize, may_be_dirty: bool, was_clean: bool) {
        let ended_in_order = was_clean && !self.older;
        let known = &mut self.volumes[volume];
        known.owed = may_be_dirty && (known.owed || (known.volatile && !ended_in_order));
        (known.volatile, known.untold) = (false, false);
    }

    /// The volume is served after all; whether its clients must be told of a loss.
    pub(crate) fn taken_up(&mut self, volume: usize) -> bool {
        self.volumes[volume].may_fail = self.volumes[volume].owed;
        self.volumes[volume].owed
    }

    /// The volume is another one.
    pub(crate) fn replaced(&mut self, volume: usize) {
        self.volumes[volume] = Volume::default();
    }

    /// The risk file of this session.
    pub(crate) fn own(&mut self, session: u64, boot: u8) {
        self.owner = (session, boot);
    }

    /// An operator gives up what was acknowledged.
    pub(crate) fn given_up(&mut self, volume: usize) {
        self.volumes[volume].may_fail = true;
    }

    /// Notes what is at risk after an event.
    pub(crate) fn note(&mut self, manager: &CacheManager) {
        for (number, volume) in self.volumes.iter_mut().enumerate() {
            let id = VolumeId(number as u16);
            volume.at_risk = manager.has_volatile(id) || manager.owes_loss(id);
        }
    }

    /// The session is over. `clean`: in order, which the state directory hears.
    pub(crate) fn over(&mut self, manager: &CacheManager, clean: bool) {
        for (number, volume) in self.volumes.iter_mut().enumerate() {
            let id = VolumeId(number as u16);
            volume.untold |= manager.has_volatile(id);
            if clean {
                volume.owed = manager.owes_loss(id);
            }
        }
    }

    /// The manager has closed its cache in the middle of the process, which keeps what it owes.
    pub(crate) fn closed(&mut self, manager: &CacheManager) {
        for (number, volume) in self.volumes.iter_mut().enumerate() {
            volume.owed = manager.owes_loss(VolumeId(number as u16));
        }
    }

    /// A flush succeeded. What is wrong with that, if anything.
    pub(crate) fn flush_succeeded(&self, volume: usize) -> Option<String> {
        let text = "a flush succeeds although acknowledged writes are lost and no client was told (G5)";
        self.volumes[volume].untold.then(|| format!("volume {volume}: {text}"))
    }

    /// A flush that was asked for then failed. `owes`: the manager has not told the loss yet. Returns whether a loss
    /// explains it, and whether it told one.
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

    /// A volume that acknowledges from memory, and lost that to a power cut that its clients outlived.
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
