//! Late operations of origins: the machine's part of [`crate::late`].
//!
//! Job: pass actions to the layer of time limits, abandon operations, and execute abandoned ones later, in part or never.

use zc_cache::origin_deadlines::{DeadlineStep, Ticket};
use zc_cache::seam::{Action, Event};
use zc_core::{ErrorKind, OpId, VolumeId};

use crate::canary::DriverBug;
use crate::late::{Asked, FAILS, Kept, WITHDRAWN, copy_of, meets, memory_of};
use crate::world::World;

impl World {
    /// Submits an action on an origin to the layer. Returns the action if it is not for an origin.
    pub(crate) fn ask_origin(&mut self, action: Action) -> Option<Action> {
        let Some((op, copy)) = copy_of(&action) else { return Some(action) };
        self.late.asked.insert(op, Asked { ticket: None, action: copy });
        self.late.layer.submit(action);
        self.take_origin_steps();
        None
    }

    fn take_origin_steps(&mut self) {
        while let Some(step) = self.late.layer.next_step() {
            match step {
                DeadlineStep::Begin(ticket, action) => {
                    if let Some(kept) = self.late.kept.iter().find(|kept| meets(&action, &kept.action)) {
                        let text = format!("{action:?} begins while its origin has {:?} (G1)", kept.action);
                        self.env.violate(text);
                    }
                    let (op, _) = copy_of(&action).expect("an origin's");
                    if let Some(asked) = self.late.asked.get_mut(&op) {
                        asked.ticket = Some(ticket);
                    }
                    self.start_operation(action);
                }
                DeadlineStep::Expire { ticket, op, error, is_recipe, has_begun, .. } => {
                    self.expire(op, has_begun.then_some(ticket), error, is_recipe);
                }
                DeadlineStep::Late(_, is_late) => {
                    self.env.note(if is_late { "origins late" } else { "origins no longer late" });
                }
            }
        }
    }

    fn expire(&mut self, op: OpId, begun: Option<Ticket>, error: ErrorKind, is_recipe: bool) {
        if let Some(ticket) = begun {
            self.abandon_origin(op, ticket);
        } else {
            self.env.note("origins late: operations that had not begun");
        }
        let Some(asked) = self.late.asked.get_mut(&op) else { panic!("{op:?} expires twice") };
        asked.ticket = None;
        let event = if is_recipe {
            Event::RecipeArrived { op, prints: Vec::new() }
        } else {
            self.excuses.note_failed(&asked.action);
            Event::OriginDone { op, result: Err(error) }
        };
        if error != ErrorKind::TimedOut {
            self.env.note("origins late: flushes that failed for an abandoned one");
            self.late.losing.insert(op);
        }
        self.queue.hear(event);
    }

    /// Withdraws an operation, or leaves it to its origin.
    fn abandon_origin(&mut self, op: OpId, ticket: Ticket) {
        let (action, issued, done) = match self.queue.take_origin_op(op) {
            Some((action, issued)) => (action, issued, None),
            None => {
                let event = self.queue.take_unheard_op(op).expect("in flight");
                let Event::OriginDone { result, .. } = event else {
                    return self.late.layer.withdrawn(ticket);
                };
                let (_, action) = copy_of(&self.late.asked[&op].action).expect("an origin's");
                (action, 0, Some(result))
            }
        };
        if matches!(action, Action::WantRecipe { .. }) || done.is_none() && self.env.random_bool(WITHDRAWN) {
            self.env.note("origins late: operations withdrawn");
            return self.late.layer.withdrawn(ticket);
        }
        self.env.note("origins late: operations abandoned");
        let data = match &action {
            Action::OriginWrite { src, .. } => self.memory.slice(*src),
            Action::OriginTrim { len_bytes, .. } | Action::OriginZero { len_bytes, .. } => {
                vec![0; *len_bytes as usize]
            }
            _ => Vec::new(),
        };
        if let Some(memory) = memory_of(&action) {
            self.memory.lease(memory);
        }
        self.late.kept.push(Kept { op, ticket, action, issued, data, done });
        if self.env.has_bug(DriverBug::ForgetAbandoned) {
            self.late.layer.withdrawn(ticket);
        }
    }

    /// An operation of an origin is about to be reported to the manager.
    pub(crate) fn origin_reports(&mut self, op: OpId, result: Result<(), ErrorKind>) {
        let Some(asked) = self.late.asked.remove(&op) else { return };
        if let Some(ticket) = asked.ticket {
            let reported = self.late.layer.ended(ticket, result);
            assert_eq!(reported, Some(op), "it was not abandoned");
        }
        if self.late.losing.remove(&op)
            && let Action::OriginFlush { volume, .. } = asked.action
            && self.env.random_bool(0.5)
        {
            let (devices, mut bench) = self.split();
            devices.origins.lose_unflushed(&mut bench, usize::from(volume.0));
        }
        self.take_origin_steps();
    }

    /// Time has passed for the layer.
    pub(crate) fn tick_late(&mut self) {
        let now_ms = self.env.now_ms();
        self.late.layer.tick(now_ms);
        self.take_origin_steps();
        let ends = self.env.is_mended() || self.has_abandoned() && self.env.random_bool(0.1);
        if ends {
            self.end_late();
        }
    }

    /// Returns `true` if an origin has an abandoned operation.
    pub(crate) fn has_abandoned(&self) -> bool {
        !self.late.kept.is_empty()
    }

    /// An origin returns an abandoned operation.
    pub(crate) fn end_late(&mut self) {
        if self.late.kept.is_empty() {
            return;
        }
        let index = self.env.random_range(0..self.late.kept.len());
        let kept = self.late.kept.swap_remove(index);
        let fails = !self.env.is_mended() && self.env.random_bool(FAILS);
        let result = self.land(&kept, fails);
        self.env.trace(|| format!("late: {:?} ends as {result:?}", kept.action));
        if let Some(memory) = memory_of(&kept.action) {
            self.memory.end_lease(memory);
        }
        self.origins.iter_mut().for_each(|origin| origin.ended(kept.op.0));
        if !self.env.has_bug(DriverBug::ForgetAbandoned) {
            let reported = self.late.layer.ended(kept.ticket, result);
            assert_eq!(reported, None, "the manager was reported before");
        }
        self.take_origin_steps();
    }

    /// Executes an abandoned operation.
    fn land(&mut self, kept: &Kept, fails: bool) -> Result<(), ErrorKind> {
        if let Some(done) = kept.done {
            return done;
        }
        match &kept.action {
            Action::OriginWrite { volume, offset_bytes, fua, .. }
            | Action::OriginTrim { volume, offset_bytes, fua, .. }
            | Action::OriginZero { volume, offset_bytes, fua, .. } => {
                self.env.note("origins late: changes that arrived late");
                let place = (*volume, *offset_bytes);
                self.origins.store(&mut self.env, kept.op, place, &kept.data, *fua, fails);
            }
            Action::OriginFlush { volume, .. } if !fails => {
                self.origins[usize::from(volume.0)].flush(kept.issued, self.env.rng());
            }
            _ => {}
        }
        if fails { Err(ErrorKind::Io) } else { Ok(()) }
    }

    /// The process ends: abandoned operations take effect now, or never.
    pub(crate) fn late_operations_end(&mut self) {
        for kept in self.late.is_over() {
            if self.env.random_bool(0.5) {
                let fails = self.env.random_bool(FAILS);
                let _result = self.land(&kept, fails);
            }
        }
        self.memory.end_leases();
    }

    /// A volume was removed: its origin has no change any more.
    pub(crate) fn forget_origin(&mut self, volume: VolumeId) {
        let flush = Action::OriginFlush { op: OpId(0), volume };
        if self.late.kept.iter().any(|kept| meets(&flush, &kept.action)) {
            self.env.violate(format!("volume {volume} is removed while its origin has a change of it (G2)"));
        }
        self.late.layer.forget(volume);
        self.late.layer.set(volume, self.late.patience);
    }
}
