//! Executes manager actions and turns I/O completions into events.
//!
//! Job: one component per family of [`Action`]; memory actions at once, the rest as ring operations or jobs for workers.
//!
//! Invariants: each completion becomes exactly one event. Errors of the cache device become results of operations and
//! nothing else: the manager decides on their effect for clients (G4).
//!
//! It does not wait for completions, and so cannot share the interpreter of `zc-drive`, whose operations are
//! synchronous. Actions start operations here and return; completions arrive in later turns, in the order of kernel
//! and threads.

use std::sync::Arc;

use zc_cache::seam::{Action, Note};
use zc_core::limits::BLOCK_BYTES;
use zc_core::{ErrorKind, OpId, VolumeId};
use zc_io::Completion;

use crate::shard::buffers::slice;
use crate::shard::dispatch::Shard;
use crate::shard::pending::Pending;
use crate::state::state_thread::Requester;

impl Shard {
    /// Executes actions in order; `actions` is empty afterwards.
    pub(super) fn carry_out(&mut self, actions: &mut Vec<Action>) {
        for action in actions.drain(..) {
            match action {
                Action::Reply { req, result }
                    if self.warm_ups.answered(req, result, self.base.clock.now_ms()) => {}
                Action::Reply { req, result } => {
                    let path = self.read_path;
                    let (clients, mut shared) = self.clients();
                    clients.part_done(&mut shared, req, result, path);
                }
                Action::Alloc { buf, len_bytes } => self.base.buffers.alloc(buf, len_bytes),
                Action::Free { buf } => self.base.buffers.free(buf),
                Action::Copy { from, to } => self.base.buffers.copy(from, to),
                Action::Zero { dest } => self.base.buffers.zero(dest),
                Action::Place { weu, offset_bytes, header, payload } => {
                    self.device.place(&self.base.buffers, (weu, offset_bytes), &header, payload);
                }
                Action::Summarize { weu, place, summary } => {
                    let page = slice(weu, place.page * BLOCK_BYTES, BLOCK_BYTES);
                    summary.encode_into(&place, &mut self.base.buffers.write(page));
                }
                Action::OriginRead { .. }
                | Action::OriginWrite { .. }
                | Action::OriginFlush { .. }
                | Action::OriginTrim { .. }
                | Action::OriginZero { .. }
                | Action::WantRecipe { .. } => {
                    let (origins, mut at) = self.origins();
                    origins.act(&mut at, action);
                }
                Action::Hash { .. } | Action::Compress { .. } | Action::Compare { .. } => {
                    self.workers.act(&self.base.buffers, self.device.fingerprint(), action);
                }
                Action::Intent { record } => self.intent.append(record),
                Action::IntentTrim { records } => {
                    self.intent.trim(records, self.device.journal_written());
                }
                Action::IntentReady => self.intent.make_valid(),
                Action::Note(Note::Removed { volume, result }) => self.removed(volume, result),
                Action::Note(note) => {
                    self.health.note(&mut self.base, &mut self.volumes, &self.registry, note);
                }
                Action::Stopped { clean } => self.has_stopped(clean),
                Action::Distrust { op, volume } => self.distrust(op, volume),
                Action::Abandon { op } => self.device.abandon(&mut self.base, op),
                other => self.device.act(&mut self.base, &mut self.workers, other),
            }
        }
    }

    /// Handles the completion of a ring operation.
    pub(super) fn completed(&mut self, completion: Completion) {
        let Completion { user, result, operation, accepted } = completion;
        match self.base.io.ended(user) {
            Pending::Wake => self.woken(),
            Pending::Accept { listener } => {
                let nbd = self.clients.nbd_mut();
                nbd.accepted(&mut self.base, &mut self.volumes, listener, &result, accepted);
            }
            Pending::Receive { conn } => {
                let (clients, mut shared) = self.clients();
                clients.received(&mut shared, conn, &result, operation);
            }
            Pending::Send { conn } => {
                drop(operation);
                self.clients.nbd_mut().sent(&mut self.volumes, conn, &result);
            }
            Pending::Ublk(tag) => {
                let (clients, mut shared) = self.clients();
                clients.device_ended(&mut shared, tag, result, operation);
            }
            Pending::Origin { ticket, volume, job } => {
                let (origins, mut at) = self.origins();
                origins.ended(&mut at, (ticket, volume, job), result, operation);
            }
            Pending::LateOrigin { ticket, volume } => {
                let (origins, mut at) = self.origins();
                origins.late_ended(&mut at, (ticket, volume), &result, operation);
            }
            pending => self.device.ended(&mut self.base, &mut self.workers, pending, result, operation),
        }
    }

    /// The manager has forgotten a volume, or could not.
    fn removed(&mut self, id: VolumeId, result: Result<(), ErrorKind>) {
        let (volumes, manager, clock) = (&mut self.volumes, &mut self.manager, self.base.clock);
        let (clients, risk, warm_ups) = (&mut self.clients, &mut self.risk, &mut self.warm_ups);
        let origins = &mut self.origins;
        self.leaving.ended(id, result, || {
            volumes.set_tap(id, None, manager, &clock);
            clients.forget(id);
            origins.forget(id);
            warm_ups.forget(id);
            risk.set(id, false);
            volumes.remove(id)
        });
    }

    fn distrust(&mut self, op: OpId, volume: Option<VolumeId>) {
        // A single volume is trusted again once its stored data is durably dropped, at a clean stop.
        self.base.metrics.distrusts += u64::from(volume.is_none());
        let state = Arc::clone(&self.state);
        let name = volume.and_then(|id| self.volumes.get(id)).map(|volume| volume.name.clone());
        let work = move || {
            let done = match (volume, name) {
                (None, _) => state.distrust_all(),
                (Some(_), Some(name)) => state.distrust(&name),
                // A volume that is not served any more.
                (Some(_), None) => Ok(()),
            };
            done.map_err(|error| {
                tracing::error!(
                    "cannot record that cached data must not be trusted: {error}; will be retried"
                );
                ErrorKind::Io
            })
        };
        self.state_thread.ask(Requester::Op(op), Box::new(work), self.base.clock.now_ms());
    }
}
