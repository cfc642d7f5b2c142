//! Properties of a state, and the openings of a fresh holder that runs alone.

use super::holder::{Content, Phase, Set, Slot, World, bit};
use super::{Fencing, NUMBERS_OF_ROW, ROWS};

/// Commits of all writers with smaller numbers.
fn before(writer: u8) -> Set {
    bit(writer, 0) - 1
}

impl World {
    /// Commits that a holder acknowledged.
    fn acknowledged(&self, model: &Fencing, holder: u8) -> Set {
        let it = self.holder(holder);
        let acknowledged = (it.first..it.next).filter(|number| it.acknowledges(model, *number));
        acknowledged.fold(0, |set, number| set | bit(holder, number))
    }

    /// Commits that a fresh holder finds that claims the pool now and is not disturbed.
    fn opened_alone(&self, model: &Fencing) -> Set {
        let mut found = self.manifest.covered;
        for row in 0..ROWS {
            let Some(first) = self.manifest.log[usize::from(row)] else { continue };
            for number in first..NUMBERS_OF_ROW.end {
                match self.slot(row, number).content {
                    Content::Data { writer } => found |= bit(writer, number),
                    Content::Fence { .. } if !model.rules.epochs_in_names => {}
                    Content::Fence { .. } | Content::Missing => break,
                }
            }
        }
        found
    }

    pub(crate) fn keeps_acknowledged(&self, model: &Fencing) -> bool {
        let found = self.opened_alone(model);
        (0..self.manifest.claims).all(|writer| {
            let acknowledged = self.acknowledged(model, writer);
            let later = self.serving().filter(|later| *later > writer);
            let lost = |recovered: Set| acknowledged & !recovered != 0;
            !lost(found) && later.map(|later| self.holder(later).recovered).all(|recovered| !lost(recovered))
        })
    }

    pub(crate) fn holders_agree(&self, model: &Fencing) -> bool {
        let found = self.opened_alone(model);
        self.serving().all(|holder| {
            let own = self.holder(holder).recovered;
            let later = self.serving().filter(|later| *later > holder);
            let mut others = later.map(|later| self.holder(later).recovered).chain([found]);
            others.all(|other| other & before(holder) == own)
        })
    }

    pub(crate) fn replaced_are_fenced(&self, model: &Fencing) -> bool {
        let Some(last) = self.serving().last() else { return true };
        self.serving().filter(|writer| *writer < last).all(|writer| {
            let row = Self::row(model, writer);
            let mut own = self.holder(writer).first..NUMBERS_OF_ROW.end;
            let next = own.find(|number| !self.slot(row, *number).was_created_by(writer));
            next.is_none_or(|next| matches!(self.slot(row, next).content, Content::Fence { .. }))
        })
    }

    pub(crate) fn holder_is_free(&self, model: &Fencing) -> bool {
        let Some(holder) = self.serving().last().filter(|last| last + 1 == self.manifest.claims) else {
            return true;
        };
        let row = Self::row(model, holder);
        (self.holder(holder).first..NUMBERS_OF_ROW.end).all(|number| {
            [Content::Missing, Content::Data { writer: holder }].contains(&self.slot(row, number).content)
        })
    }

    pub(crate) fn acknowledges_once(&self, model: &Fencing) -> bool {
        NUMBERS_OF_ROW.into_iter().all(|number| {
            let writers = (0..self.manifest.claims)
                .filter(|writer| self.acknowledged(model, *writer) & bit(*writer, number) != 0);
            model.rules.epochs_in_names || writers.count() <= 1
        })
    }

    /// Judges rows with a fence; the last one is that of the epoch's end.
    pub(crate) fn orphans_are_near(&self, model: &Fencing) -> bool {
        self.slots.iter().all(|row| {
            let fence = row.iter().rposition(|slot| matches!(slot.content, Content::Fence { .. }));
            let data = row.iter().rposition(|slot| matches!(slot.content, Content::Data { .. }));
            let Some((fence, data)) = fence.zip(data) else { return true };
            data < fence + usize::from(model.bounds.window)
        })
    }

    pub(crate) fn has_hole(&self) -> bool {
        self.slots.iter().any(|row| {
            let is_hole = |pair: &[Slot]| {
                pair[0].content == Content::Missing
                    && pair[0].past.is_none()
                    && matches!(pair[1].content, Content::Data { .. })
            };
            row.windows(2).any(is_hole)
        })
    }

    pub(crate) fn has_returned(&self) -> bool {
        let is_data = |content| matches!(content, Content::Data { .. });
        self.slots.iter().flatten().any(|slot| slot.past.is_some() && is_data(slot.content))
    }

    pub(crate) fn has_late_fence(&self) -> bool {
        let is_fence = |content| matches!(content, Content::Fence { .. });
        self.slots.iter().flatten().any(|slot| slot.past.is_some() && is_fence(slot.content))
    }

    pub(crate) fn has_other_swap(&self) -> bool {
        self.holders.iter().any(|holder| holder.applied.is_some() && holder.applied != holder.attempt)
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.holders.iter().any(|holder| holder.phase == Phase::Stopped)
    }
}
