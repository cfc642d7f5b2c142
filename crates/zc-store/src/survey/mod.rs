//! Surveys: walks over all maps that answer a question about the whole pool, beside everything else that goes on.
//!
//! Job: freeze the roots, walk their maps in small steps, answer. Invariants: what is walked is the state at the moment
//! when the survey was asked for, since every volume copies its pages from then on, as after a snapshot; marks take the
//! frozen roots for roots. Nothing is logged: after a crash nothing refers to them. One survey runs at a time. What it
//! does not do: choose what is surveyed ([`account`], [`scrub`]).

mod account;
mod scrub;
mod walk;

pub use account::{Accounts, PoolAccount, RootAccount};
pub use scrub::{Damage, ScrubReport};
pub(crate) use walk::Frozen;
pub use walk::ScrubPoint;

use account::Accounting;
use scrub::Scrubbing;
use zc_core::{ErrorKind, OpId, ReqId};

use crate::ids::PageNo;
use crate::media::page::PageKey;
use crate::pager::Missing;
use crate::seam::{Action, StoreError};
use crate::store::Open;

/// Numbers of maps that are looked at after each event: some hundred microseconds.
const NUMBERS_PER_EVENT: usize = 2048;

/// What is asked about the whole pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SurveyKind {
    /// How much each volume and snapshot uses, alone and with others, and what the pool holds.
    Account,
    /// Verify every page and chunk that volumes and snapshots refer to.
    Scrub {
        /// Where to begin; `None`: at the first.
        from: Option<ScrubPoint>,
        /// Addresses to look at before the answer, which says where to go on.
        addresses_max: u64,
    },
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Surveyed {
    /// To [`SurveyKind::Account`].
    Accounts(Accounts),
    /// To [`SurveyKind::Scrub`].
    Scrub(ScrubReport),
}

/// A survey in progress.
#[derive(Debug)]
pub(crate) struct Survey {
    req: ReqId,
    work: Work,
    lacks: Option<PageKey>,
    tried_at: u64,
}

#[derive(Debug)]
enum Work {
    Account(Box<Accounting>),
    Scrub(Box<Scrubbing>),
}

/// What a step came to.
enum Step {
    Again,
    /// Contents are to be read, or are being.
    Fetch,
    Done(Surveyed),
}

impl Survey {
    /// The frozen roots' top pages: roots of a mark.
    pub(crate) fn pages(&self) -> impl Iterator<Item = PageNo> + '_ {
        let walk = match &self.work {
            Work::Account(work) => work.walk(),
            Work::Scrub(work) => work.walk(),
        };
        walk.roots().iter().map(|root| root.page)
    }

    /// Whether another step needs neither a page nor contents from the device.
    pub(crate) const fn goes_on(&self) -> bool {
        matches!(self.work, Work::Account(_)) && self.lacks.is_none()
    }

    /// Since when pages that it used must stay.
    pub(crate) fn tried_at(&self) -> Option<u64> {
        self.lacks.map(|_| self.tried_at)
    }
}

impl Open {
    pub(crate) fn submit_survey(&mut self, req: ReqId, kind: SurveyKind) {
        if self.survey.is_some() || self.stopping {
            self.reply(req, Err(StoreError::Limit));
            return;
        }
        let space = self.space();
        let roots = self.trees.freeze();
        let work = match kind {
            SurveyKind::Account => Work::Account(Box::new(Accounting::new(roots, space))),
            SurveyKind::Scrub { from, addresses_max } => {
                Work::Scrub(Box::new(Scrubbing::new(roots, from, addresses_max)))
            }
        };
        self.survey = Some(Survey { req, work, lacks: None, tried_at: 0 });
    }

    /// Takes some steps.
    pub(crate) fn pump_survey(&mut self) {
        let Some(mut survey) = self.survey.take() else { return };
        if survey.lacks.is_some_and(|key| !self.trees.pager.has(key)) {
            self.survey = Some(survey);
            return;
        }
        survey.lacks = None;
        survey.tried_at = self.trees.pager.now();
        for _ in 0..NUMBERS_PER_EVENT {
            let stepped = match &mut survey.work {
                Work::Account(work) => work.step(&mut self.trees),
                Work::Scrub(work) => work.step(&mut self.trees),
            };
            match stepped {
                Ok(Step::Again) => {}
                Ok(Step::Fetch) => {
                    if let Work::Scrub(work) = &mut survey.work {
                        self.fetch_for_scrub(work);
                    }
                    break;
                }
                Ok(Step::Done(surveyed)) => {
                    // The frozen states may have been the last to refer to something.
                    self.cleaner.garbage_made();
                    self.out.push(Action::Surveyed { req: survey.req, surveyed: Box::new(surveyed) });
                    return;
                }
                Err(missing) => {
                    if !self.survey_wants(&mut survey, missing) {
                        return;
                    }
                    if survey.lacks.is_some() {
                        break;
                    }
                }
            }
        }
        self.survey = Some(survey);
    }

    /// Asks for a page. False if the survey ended because the page cannot be read.
    fn survey_wants(&mut self, survey: &mut Survey, missing: Missing) -> bool {
        match self.want(missing) {
            Ok(()) => {
                survey.lacks = Some(missing.key);
                true
            }
            Err(error) => self.survey_passes(survey, error),
        }
    }

    /// Goes on behind a page that cannot be read: a scrub tells of it, accounts cannot be made. False if it ended.
    fn survey_passes(&mut self, survey: &mut Survey, error: StoreError) -> bool {
        match &mut survey.work {
            Work::Account(_) => {
                self.reply(survey.req, Err(error));
                false
            }
            Work::Scrub(work) => {
                work.cannot_read(error);
                true
            }
        }
    }

    /// A page that it needs cannot be read.
    pub(crate) fn survey_lacks(&mut self, key: PageKey, error: StoreError) {
        let Some(mut survey) = self.survey.take() else { return };
        if survey.lacks == Some(key) {
            survey.lacks = None;
            if !self.survey_passes(&mut survey, error) {
                return;
            }
        }
        self.survey = Some(survey);
    }

    /// Contents were checked. True if the survey had asked for that.
    pub(crate) fn survey_fetched(&mut self, op: OpId, results: &[Result<(), ErrorKind>]) -> bool {
        let Some(Survey { work: Work::Scrub(work), .. }) = &mut self.survey else { return false };
        let Some(tried) = work.fetched(op, results) else { return false };
        for ((number, place), result) in tried.into_iter().zip(results) {
            self.trees.segments.unpin(place.segment);
            self.chunk_tried(number, place, *result);
        }
        true
    }

    /// The store stops: the survey is broken off, and a scrub says where to go on.
    pub(crate) fn stop_survey(&mut self) {
        let Some(survey) = self.survey.take() else { return };
        match survey.work {
            Work::Account(_) => self.reply(survey.req, Err(StoreError::Limit)),
            Work::Scrub(work) => {
                let surveyed = Box::new(Surveyed::Scrub(work.broken_off()));
                self.out.push(Action::Surveyed { req: survey.req, surveyed });
            }
        }
    }
}
