//! Pairing of a cache with its origins, and trust in cached contents.
//!
//! The origin carries no mark of ours, so the proof has three sources: the cache's volume table, the state directory's
//! record, and the origin's present state. Clean contents are trusted if all agree; if they disagree about time
//! (stamp, session, length, change time) or identity (a file that was restored from a backup) the volume starts cold:
//! nothing is dirty, so the origin alone has all writes of its clients.
//!
//! A volume that may have dirty data is never started in doubt: its data would be lost, or old data would be written
//! over new. Then every disagreement except that of the stamps is a refusal, cold start or not, and the operator has
//! two options: to trust this cache, or to discard the data ([`Answers`]).
//!
//! After a clean stop the ranges that every mount changes are compared too, and for a block device the kernel's count
//! of written sectors (`seen`). Undetectable are: after a clean stop, a write to other ranges of a block device that
//! this kernel did not count; after an unclean stop, any write by another program. Only the sample of extents that the
//! manager compares with the origin may detect it then.
//!
//! A volume that comes from another dedup domain starts cold too, because its stored content may be shared across the
//! boundary of domains; with dirty data it is refused.
//!
//! A volume that starts cold keeps unequal stamps until the next clean stop: the manager's invalidations are durable
//! then, and a crash before that makes the next start cold as well instead of half trusted.

use std::path::Path;

use zc_cache::loss::Before;
use zc_core::VolumeId;
use zc_format::{OriginIdentity, OriginKind, VOLUMES_PER_TABLE, VolumeRecord, VolumeTable};
use zc_io::{FileKind, Identity};
use zc_origin::Likeness;

use zc_engine::error::EngineError;
use zc_engine::error::refusal::Refusal;
use zc_engine::state::risk::Risks;
use zc_engine::state::state_dir::{OriginMark, State, VolumeState};

#[derive(Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) name: &'a str,
    pub(crate) path: &'a Path,
    /// `None`: the file does not exist yet.
    pub(crate) identity: Option<Identity>,
    /// Difference from the state at the last clean stop; continues "the origin ...".
    pub(crate) changed: Option<String>,
    /// The domain that it is to share content in.
    pub(crate) dedup_domain: &'a str,
    pub(crate) region_bytes: u64,
}

/// Operator's decisions on volumes with dirty data that do not start on their own, by name.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answers<'a> {
    /// Their dirty data is on this cache as it is, and belongs on the origin as it is.
    pub(crate) trust: &'a [String],
    /// Volumes whose dirty data is discarded.
    pub(crate) drop: &'a [String],
    /// Volumes whose clean contents are distrusted.
    pub(crate) cold: &'a [String],
}

impl Answers<'_> {
    pub(crate) fn trusts(&self, name: &str) -> bool {
        self.trust.iter().any(|other| other == name)
    }

    pub(crate) fn drops(&self, name: &str) -> bool {
        self.drop.iter().any(|other| other == name)
    }
}

/// Time of the check. A volume that was not served since the start may have been written by another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Start,
    /// The origin of a volume that the start skipped is available again.
    Return,
    /// An operator adds it while the daemon runs.
    Addition,
}

/// State of the cache.
#[derive(Debug)]
pub(crate) struct Known<'a> {
    pub(crate) cache_path: &'a Path,
    pub(crate) table: &'a VolumeTable,
    /// The session in the superblock: the last one on this image of the cache.
    pub(crate) session: u64,
    /// `true` if that session ended in order, as the image has it.
    pub(crate) clean: bool,
    pub(crate) state: &'a State,
    pub(crate) cold: bool,
    pub(crate) when: When,
    pub(crate) answers: Answers<'a>,
    pub(crate) risks: RisksBefore<'a>,
}

/// Acknowledged writes that were only in the memory of the last session.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RisksBefore<'a> {
    /// That session's own record, if trusted.
    pub(crate) said: Option<&'a Risks>,
    /// Clients of that session may still live.
    pub(crate) clients_may_live: bool,
}

/// The verdict on a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paired {
    pub(crate) id: VolumeId,
    pub(crate) region_bytes: u64,
    /// The stamp in the volume table.
    pub(crate) stamp: u64,
    /// Reason for distrusting its contents.
    pub(crate) cold_reason: Option<String>,
    pub(crate) may_be_dirty: bool,
    /// The operator accepts the loss of its dirty data.
    pub(crate) drop_dirty: bool,
    /// An earlier start could not recover all of its dirty data, and the operator has not decided yet.
    pub(crate) incomplete: bool,
    /// Acknowledged writes were lost, or may have been, and clients must be notified.
    pub(crate) lost_writes: bool,
    /// Clients of the session before may still live.
    pub(crate) clients_may_live: bool,
}

/// Judges all volumes, in order. A volume that does not match does not affect the others: see
/// [`EngineError::Unservable`].
pub(crate) fn pair(known: &Known<'_>, candidates: &[Candidate<'_>]) -> Result<Vec<Paired>, EngineError> {
    let mut used: Vec<u16> = known.table.records.iter().map(|record| record.id.0).collect();
    let mut paired = Vec::with_capacity(candidates.len());
    let mut refused = Vec::new();
    for candidate in candidates {
        let record = known.table.records.iter().find(|record| record.name == candidate.name);
        let verdict = match record {
            Some(record) => match judge(known, candidate, record) {
                Ok(verdict) => verdict,
                Err(error) => {
                    refused.push((candidate.name.to_owned(), error));
                    continue;
                }
            },
            None if is_missed(known, candidate) => {
                let (volume, cache) = (candidate.name.to_owned(), known.cache_path.to_owned());
                let refusal = Refusal::DirtyNotHere { volume, cache };
                refused.push((candidate.name.to_owned(), EngineError::refused(refusal)));
                continue;
            }
            None => {
                let id = (0..u16::MAX).find(|id| !used.contains(id)).unwrap_or(u16::MAX);
                if used.len() >= VOLUMES_PER_TABLE {
                    return Err(EngineError::refused(Refusal::TooManyVolumes {
                        cache: known.cache_path.to_owned(),
                        most: VOLUMES_PER_TABLE,
                        volume: candidate.name.to_owned(),
                    }));
                }
                used.push(id);
                let before = known.state.volumes.get(candidate.name).map_or(0, |entry| entry.stamp);
                let stamp = before.wrapping_add(1);
                Paired {
                    id: VolumeId(id),
                    region_bytes: candidate.region_bytes,
                    stamp,
                    // No data is cached under a new number.
                    cold_reason: None,
                    may_be_dirty: false,
                    drop_dirty: false,
                    incomplete: false,
                    lost_writes: known.state.volumes.get(candidate.name).is_some_and(|entry| entry.dirty),
                    clients_may_live: known.risks.clients_may_live,
                }
            }
        };
        paired.push(verdict);
    }
    if refused.is_empty() { Ok(paired) } else { Err(EngineError::Unservable(refused)) }
}

/// Returns `true` if the state directory records dirty data of a volume that the cache lacks, and the operator does
/// not discard it: the cache is not the newest image, regardless of its session.
fn is_missed(known: &Known<'_>, candidate: &Candidate<'_>) -> bool {
    let is_dirty = known.state.volumes.get(candidate.name).is_some_and(|entry| entry.dirty);
    is_dirty && !known.answers.drops(candidate.name)
}

fn judge(known: &Known<'_>, candidate: &Candidate<'_>, record: &VolumeRecord) -> Result<Paired, EngineError> {
    let entry = known.state.volumes.get(candidate.name);
    let was_dirty = record.may_be_dirty || entry.is_some_and(|entry| entry.dirty);
    let drop_dirty = was_dirty && known.answers.drops(candidate.name);
    let may_be_dirty = was_dirty && !drop_dirty;
    if may_be_dirty {
        check_domain(known, candidate, entry)?;
    }
    if may_be_dirty && !known.answers.trusts(candidate.name) {
        check_dirty(known, candidate, record, entry)?;
    }
    let trusted_anyway = may_be_dirty && known.answers.trusts(candidate.name);
    let incomplete = may_be_dirty && !trusted_anyway && entry.is_some_and(|entry| entry.incomplete);
    let cold_reason = match reason(known, candidate, record, entry) {
        Err(error) if !trusted_anyway => return Err(error),
        Err(_) => Some("its dirty data was trusted, its clean contents are not used".to_owned()),
        Ok(reason) => reason,
    };
    let newest = entry.map_or(0, |entry| entry.stamp).max(record.stamp);
    let stamp = if cold_reason.is_some() { newest.wrapping_add(1) } else { record.stamp };
    let region_bytes = record.region_bytes;
    let lost_writes = drop_dirty || trusted_anyway || lost_writes(known, record, entry, was_dirty);
    Ok(Paired {
        id: record.id,
        region_bytes,
        stamp,
        cold_reason,
        may_be_dirty,
        drop_dirty,
        incomplete,
        lost_writes,
        clients_may_live: known.risks.clients_may_live,
    })
}

/// Returns `true` if clients must be notified of a possible loss of acknowledged writes. An unrecorded mode counts as
/// volatile.
fn lost_writes(
    known: &Known<'_>,
    record: &VolumeRecord,
    entry: Option<&VolumeState>,
    was_dirty: bool,
) -> bool {
    let before = Before {
        ended_in_order: known.clean,
        clients_may_live: known.risks.clients_may_live,
        was_volatile: was_dirty && entry.is_none_or(|entry| entry.volatile),
        owed: entry.is_some_and(|entry| entry.owes_loss),
        at_risk: known.risks.said.map(|risks| risks.contains(record.id)),
    };
    before.must_be_told()
}

/// Refuses a volume whose dirty data may not be the newest, or may not belong on this origin.
fn check_dirty(
    known: &Known<'_>,
    candidate: &Candidate<'_>,
    record: &VolumeRecord,
    entry: Option<&VolumeState>,
) -> Result<(), EngineError> {
    let refuse = |what: String| {
        Err(EngineError::refused(Refusal::DirtyInDoubt {
            volume: candidate.name.to_owned(),
            cache: known.cache_path.to_owned(),
            origin: candidate.path.to_owned(),
            what,
        }))
    };
    let Some(identity) = &candidate.identity else {
        return refuse(format!("{} does not exist", candidate.path.display()));
    };
    let likeness = zc_origin::compare(&remembered(record, entry, identity), identity);
    if let Likeness::Other(text) = likeness {
        return refuse(format!("the origin {} {text}", candidate.path.display()));
    }
    // Service elsewhere does not affect discarded epochs: the origin has them, or an operator decided so.
    let is_dirty = entry.is_some_and(|entry| entry.dirty);
    match doubt(known, candidate, entry, &likeness) {
        Some(what) if is_dirty || sign(known, candidate, entry, &likeness).is_some() => refuse(what),
        _ => Ok(()),
    }
}

/// Returns the reason to distrust cached contents of a volume, besides another origin and the stamps. First the
/// records, then their consequences: an origin that another cache has served has changed for that reason.
fn doubt(
    known: &Known<'_>,
    candidate: &Candidate<'_>,
    entry: Option<&VolumeState>,
    likeness: &Likeness,
) -> Option<String> {
    if let Some(by) = entry.and_then(|entry| entry.served_since.as_ref()) {
        return Some(format!("the origin was served {by} since this cache last had it"));
    }
    sign(known, candidate, entry, likeness)
}

/// Returns the reason to distrust cached contents, besides a record that the origin was served elsewhere.
fn sign(
    known: &Known<'_>,
    candidate: &Candidate<'_>,
    entry: Option<&VolumeState>,
    likeness: &Likeness,
) -> Option<String> {
    if let Likeness::Changed(text) = likeness {
        return Some(format!("the origin {text}"));
    }
    if let Some(text) = &candidate.changed {
        return Some(format!("the origin {text}"));
    }
    let Some(entry) = entry else {
        return Some("the state directory has no record of the volume on this cache".to_owned());
    };
    older_image(known).or_else(|| other_domain(candidate, entry))
}

/// Refuses dirty data of a volume that was moved to another domain. Its content has fingerprints of the former domain,
/// and may be shared with volumes of that domain.
fn check_domain(
    known: &Known<'_>,
    candidate: &Candidate<'_>,
    entry: Option<&VolumeState>,
) -> Result<(), EngineError> {
    let Some(what) = entry.and_then(|entry| other_domain(candidate, entry)) else { return Ok(()) };
    Err(EngineError::refused(Refusal::DirtyInOtherDomain {
        volume: candidate.name.to_owned(),
        cache: known.cache_path.to_owned(),
        origin: candidate.path.to_owned(),
        what,
    }))
}

/// Stored content of the volume is shared with its previous neighbours. In another domain it would be shared across
/// the boundary: clean contents are dropped, and dirty data must be destaged first.
fn other_domain(candidate: &Candidate<'_>, entry: &VolumeState) -> Option<String> {
    let (before, now) = (&entry.dedup_domain, candidate.dedup_domain);
    (before != now)
        .then(|| format!("its dedup_domain was \"{before}\" when it was last served, and is \"{now}\" now"))
}

/// Returns the recorded identity of the origin. The change time is compared only if zcached itself cannot have written
/// since.
fn remembered(record: &VolumeRecord, entry: Option<&VolumeState>, now: &Identity) -> Identity {
    let mut remembered = entry.map_or_else(|| from_media(&record.origin), |entry| from_mark(&entry.origin));
    if !entry.is_some_and(|entry| entry.settled) {
        // Then zcached may have written last.
        remembered.mtime_ns = now.mtime_ns;
    }
    remembered
}

/// Returns the evidence that this image of the cache is older than the state directory's record.
pub(crate) fn older_image(known: &Known<'_>) -> Option<String> {
    if known.state.session > known.session {
        return Some(format!(
            "the cache is an older image: its last session is {}, session {} was seen",
            known.session, known.state.session
        ));
    }
    let was_clean = known.state.clean && known.state.session == known.session;
    (was_clean && !known.clean).then(|| {
        format!("the cache is an older image: session {} ended cleanly, the image is older", known.session)
    })
}

fn reason(
    known: &Known<'_>,
    candidate: &Candidate<'_>,
    record: &VolumeRecord,
    entry: Option<&VolumeState>,
) -> Result<Option<String>, EngineError> {
    if known.cold || known.answers.cold.iter().any(|other| other == candidate.name) {
        return Ok(Some("a cold start was requested".to_owned()));
    }
    let Some(identity) = &candidate.identity else {
        return Err(origin_gone(candidate.name, candidate.path));
    };
    let likeness = zc_origin::compare(&remembered(record, entry, identity), identity);
    if let Likeness::Other(text) = likeness {
        // No clean data is trusted, and no data is dirty, or an operator has decided about it.
        let before =
            entry.map_or_else(|| "another origin".to_owned(), |entry| entry.path.display().to_string());
        return Ok(Some(if before == candidate.path.display().to_string() {
            format!("its origin {before} {text}")
        } else {
            format!("its origin was {before} before, and is {} now, which {text}", candidate.path.display())
        }));
    }
    if known.when != When::Start {
        return Ok(Some("it was not served since the daemon started".to_owned()));
    }
    let given_up = "its cached data was dropped: it was not in the configuration, its origin was truncated or \
        written without the cache, or the cache failed";
    let is_given_up = entry.is_some_and(|entry| entry.stamp != record.stamp);
    Ok(doubt(known, candidate, entry, &likeness).or_else(|| is_given_up.then(|| given_up.to_owned())))
}

/// An origin that was served before is not created again, even if its size is configured.
pub(crate) fn origin_gone(name: &str, path: &Path) -> EngineError {
    let (volume, origin) = (name.to_owned(), path.to_owned());
    EngineError::refused(Refusal::OriginGone { volume, origin })
}

fn from_mark(mark: &OriginMark) -> Identity {
    Identity {
        kind: if mark.is_block { FileKind::Block } else { FileKind::Regular },
        dev: mark.dev,
        inode: mark.inode,
        len_bytes: mark.len_bytes,
        mtime_ns: i128::from(mark.mtime_ns),
    }
}

fn from_media(origin: &OriginIdentity) -> Identity {
    Identity {
        kind: if origin.kind == OriginKind::Block { FileKind::Block } else { FileKind::Regular },
        dev: origin.dev,
        inode: origin.inode,
        len_bytes: origin.len_bytes,
        mtime_ns: i128::from(origin.mtime_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Identity =
        Identity { kind: FileKind::Regular, dev: 1, inode: 2, len_bytes: 1 << 20, mtime_ns: 50 };

    fn table(stamp: u64) -> VolumeTable {
        let record = VolumeRecord {
            id: VolumeId(4),
            name: "v".to_owned(),
            size_bytes: 1 << 20,
            region_bytes: 1 << 20,
            origin: OriginMark::of(&FILE).for_media(),
            stamp,
            may_be_dirty: false,
        };
        VolumeTable { sequence: 3, records: vec![record] }
    }

    fn state(session: u64, clean: bool, stamp: u64) -> State {
        let path = "/srv/v.img".into();
        let entry = VolumeState {
            stamp,
            path,
            origin: OriginMark::of(&FILE),
            dedup_domain: String::new(),
            dirty: false,
            settled: clean,
            given_up: 0,
            incomplete: false,
            seen: None,
            volatile: true,
            owes_loss: false,
            served_since: None,
        };
        State { version: 1, session, clean, volumes: [("v".to_owned(), entry)].into() }
    }

    fn verdict(
        table: &VolumeTable,
        state: &State,
        identity: Identity,
        cold: bool,
    ) -> Result<Paired, EngineError> {
        verdict_on(
            &Known {
                cache_path: Path::new("/cache"),
                table,
                session: 9,
                clean: true,
                state,
                cold,
                when: When::Start,
                answers: Answers::default(),
                risks: RisksBefore::default(),
            },
            identity,
        )
    }

    fn verdict_on(known: &Known<'_>, identity: Identity) -> Result<Paired, EngineError> {
        let path = Path::new("/srv/new.img");
        let candidate = Candidate {
            name: "v",
            path,
            identity: Some(identity),
            changed: None,
            dedup_domain: "",
            region_bytes: 7 << 20,
        };
        pair(known, &[candidate]).map(|mut paired| paired.remove(0))
    }

    #[test]
    fn agreement_is_trusted_and_keeps_number_region_and_stamp() {
        let paired = verdict(&table(5), &state(9, true, 5), FILE, false).unwrap();
        let expected = Paired {
            id: VolumeId(4),
            region_bytes: 1 << 20,
            stamp: 5,
            cold_reason: None,
            may_be_dirty: false,
            drop_dirty: false,
            incomplete: false,
            lost_writes: false,
            clients_may_live: false,
        };
        assert_eq!(paired, expected);
    }

    #[test]
    fn disagreement_about_time_is_cold_with_a_new_stamp() {
        let cold = |table: &VolumeTable, state: &State, identity| {
            let paired = verdict(table, state, identity, false).unwrap();
            assert!(paired.stamp > 5, "{paired:?}");
            paired.cold_reason.unwrap()
        };
        assert!(cold(&table(5), &state(9, true, 6), FILE).contains("was dropped"));
        assert!(cold(&table(5), &state(12, true, 5), FILE).contains("older image"));
        assert!(cold(&table(5), &State::default(), FILE).contains("has no record"));
        let longer = Identity { len_bytes: 2 << 20, ..FILE };
        assert!(cold(&table(5), &state(9, true, 5), longer).contains("bytes"));
        let newer = Identity { mtime_ns: 60, ..FILE };
        assert!(cold(&table(5), &state(9, true, 5), newer).contains("written"));
        let mut elsewhere = state(9, true, 5);
        elsewhere.volumes.get_mut("v").unwrap().dedup_domain = "tenant".to_owned();
        assert!(cold(&table(5), &elsewhere, FILE).contains("dedup_domain was \"tenant\""));
        let asked = verdict(&table(5), &state(9, true, 5), FILE, true).unwrap();
        assert!(asked.cold_reason.unwrap().contains("requested"));
    }

    #[test]
    fn an_image_from_within_a_session_that_ended_in_order_is_cold() {
        let (table, ended, cut) = (table(5), state(9, true, 5), state(9, false, 5));
        let verdict = |state| {
            let cache_path = Path::new("/cache");
            verdict_on(
                &Known {
                    cache_path,
                    table: &table,
                    session: 9,
                    clean: false,
                    state,
                    cold: false,
                    when: When::Start,
                    answers: Answers::default(),
                    risks: RisksBefore::default(),
                },
                FILE,
            )
        };
        assert!(verdict(&ended).unwrap().cold_reason.unwrap().contains("older image"));
        assert_eq!(verdict(&cut).unwrap().cold_reason, None, "a session that was cut off");
    }

    #[test]
    fn after_an_unclean_stop_the_change_time_says_nothing() {
        let newer = Identity { mtime_ns: 60, ..FILE };
        assert_eq!(verdict(&table(5), &state(9, false, 5), newer, false).unwrap().cold_reason, None);
    }

    #[test]
    fn a_name_without_dirty_data_may_come_back_with_another_origin_while_the_daemon_runs() {
        let other = Identity { inode: 77, ..FILE };
        let (mut table, mut state) = (table(5), state(9, false, 5));
        let verdict_when = |when: When, table: &VolumeTable, state: &State| {
            let known = Known {
                cache_path: Path::new("/cache"),
                table,
                session: 9,
                clean: false,
                state,
                cold: false,
                when,
                answers: Answers::default(),
                risks: RisksBefore::default(),
            };
            verdict_on(&known, other)
        };
        let returned = verdict_when(When::Return, &table, &state).unwrap();
        assert!(returned.cold_reason.unwrap().contains("/srv/new.img"), "it was restored from a backup");
        let verdict = |table: &VolumeTable, state: &State| verdict_when(When::Addition, table, state);
        let paired = verdict(&table, &state).unwrap();
        assert!(paired.cold_reason.unwrap().contains("is another file") && paired.stamp > 5);
        state.volumes.get_mut("v").unwrap().dirty = true;
        assert!(verdict(&table, &state).unwrap_err().to_string().contains("/srv/new.img"));
        state.volumes.get_mut("v").unwrap().dirty = false;
        table.records[0].may_be_dirty = true;
        verdict(&table, &state).unwrap_err();
    }

    #[test]
    fn another_origin_is_cold_and_both_are_named() {
        let other = Identity { inode: 77, ..FILE };
        let block = Identity { kind: FileKind::Block, inode: 0, ..FILE };
        for (present, clean) in [(other, true), (other, false), (block, true)] {
            let paired = verdict(&table(5), &state(9, clean, 5), present, false).unwrap();
            let reason = paired.cold_reason.unwrap();
            assert!(reason.contains("/srv/v.img") && reason.contains("/srv/new.img"), "{reason}");
            assert!(paired.stamp > 5 && !paired.may_be_dirty);
        }
    }

    #[test]
    fn one_volume_alone_starts_cold_and_keeps_its_dirty_data() {
        let names = ["v".to_owned()];
        let cold = |name: &str| {
            let names = [name.to_owned()];
            dirty_verdict(|_, _, _| {}, Answers { cold: &names, ..Answers::default() }).unwrap()
        };
        assert!(cold("v").cold_reason.unwrap().contains("requested") && cold("v").may_be_dirty);
        let (table, state) = (table(5), state(9, true, 5));
        let known = Known {
            cache_path: Path::new("/cache"),
            table: &table,
            session: 9,
            clean: true,
            state: &state,
            cold: false,
            when: When::Start,
            answers: Answers { cold: &names, ..Answers::default() },
            risks: RisksBefore::default(),
        };
        assert!(verdict_on(&known, FILE).unwrap().cold_reason.is_some());
        let others = Known { answers: Answers { cold: &["w".to_owned()], ..Answers::default() }, ..known };
        assert_eq!(verdict_on(&others, FILE).unwrap().cold_reason, None);
    }

    /// The verdict on a volume with dirty data; `edit` makes the doubt.
    fn dirty_verdict(
        edit: impl FnOnce(&mut VolumeTable, &mut State, &mut Identity),
        answers: Answers<'_>,
    ) -> Result<Paired, EngineError> {
        let (mut table, mut state, mut identity) = (table(5), state(9, true, 5), FILE);
        table.records[0].may_be_dirty = true;
        for entry in state.volumes.values_mut() {
            entry.dirty = true;
        }
        edit(&mut table, &mut state, &mut identity);
        let cache_path = Path::new("/cache");
        let (table, state) = (&table, &state);
        verdict_on(
            &Known {
                cache_path,
                table,
                session: 9,
                clean: true,
                state,
                cold: true,
                when: When::Start,
                answers,
                risks: RisksBefore::default(),
            },
            identity,
        )
    }

    #[test]
    fn dirty_data_is_kept_when_all_agree_also_at_a_cold_start() {
        let paired = dirty_verdict(|_, _, _| {}, Answers::default()).unwrap();
        assert!(paired.may_be_dirty && paired.cold_reason.is_some());
        // One of the two records is sufficient.
        let by_state = dirty_verdict(|table, _, _| table.records[0].may_be_dirty = false, Answers::default());
        assert!(by_state.unwrap().may_be_dirty);
        let by_media = |_: &mut VolumeTable, state: &mut State, _: &mut Identity| {
            state.volumes.get_mut("v").unwrap().dirty = false;
        };
        assert!(dirty_verdict(by_media, Answers::default()).unwrap().may_be_dirty);
    }

    #[test]
    fn doubts_about_dirty_data_are_refused_and_the_operator_decides() {
        type Doubt = fn(&mut VolumeTable, &mut State, &mut Identity);
        let doubts: [(Doubt, &str); 8] = [
            // The reported reason is that another cache served it.
            (
                |_, state, origin| {
                    state.volumes.get_mut("v").unwrap().served_since = Some("with /other".to_owned());
                    origin.mtime_ns = 60;
                },
                "was served with /other since",
            ),
            // After an interrupted session the time is inconclusive.
            (
                |_, state, _| {
                    let entry = state.volumes.get_mut("v").unwrap();
                    (entry.settled, entry.served_since) = (false, Some("with /other".to_owned()));
                },
                "was served with /other since",
            ),
            (|_, state, _| state.session = 10, "older image"),
            (|_, _, origin| origin.mtime_ns = 60, "written"),
            (|_, _, origin| origin.len_bytes = 2 << 20, "bytes"),
            (|_, _, origin| origin.inode = 77, "/srv/new.img"),
            (|_, state, _| state.volumes.clear(), "has no record"),
            (
                // Not served in an interrupted session: the earlier record remains valid.
                |_, state, origin| {
                    (state.clean, origin.mtime_ns) = (false, 60);
                },
                "written",
            ),
        ];
        let name = ["v".to_owned()];
        for (doubt, what) in doubts {
            let error = dirty_verdict(doubt, Answers::default()).unwrap_err().to_string();
            for part in [what, "--trust-dirty v", "--drop-dirty v", "/cache"] {
                assert!(error.contains(part), "{part} in {error}");
            }
            let trusted = dirty_verdict(doubt, Answers { trust: &name, ..Answers::default() }).unwrap();
            assert!(trusted.may_be_dirty && trusted.cold_reason.is_some(), "{trusted:?}");
            let dropped = dirty_verdict(doubt, Answers { drop: &name, ..Answers::default() }).unwrap();
            assert!(dropped.drop_dirty && !dropped.may_be_dirty, "{dropped:?}");
        }
    }

    #[test]
    fn what_was_given_up_is_not_refused_for_who_served_the_origin_since() {
        let given_up = |_: &mut VolumeTable, state: &mut State, _: &mut Identity| {
            let entry = state.volumes.get_mut("v").unwrap();
            (entry.settled, entry.dirty) = (false, false);
            entry.served_since = Some("without a cache".to_owned());
        };
        let paired = dirty_verdict(given_up, Answers::default()).unwrap();
        assert!(paired.may_be_dirty && paired.cold_reason.is_some());
    }

    #[test]
    fn dirty_data_of_another_domain_is_not_for_the_operator_to_trust() {
        let moved = |_: &mut VolumeTable, state: &mut State, _: &mut Identity| {
            state.volumes.get_mut("v").unwrap().dedup_domain = "tenant".to_owned();
        };
        let name = ["v".to_owned()];
        for trust in [&[][..], &name] {
            let error =
                dirty_verdict(moved, Answers { trust, ..Answers::default() }).unwrap_err().to_string();
            assert!(error.contains("dedup_domain was") && error.contains("--drop-dirty v"), "{error}");
            assert!(!error.contains("--trust-dirty"), "{error}");
        }
        assert!(dirty_verdict(moved, Answers { drop: &name, ..Answers::default() }).unwrap().drop_dirty);
    }

    #[test]
    fn a_fence_is_remembered_until_the_data_is_trusted_or_given_up() {
        let doubt = |_: &mut VolumeTable, state: &mut State, _: &mut Identity| {
            state.volumes.get_mut("v").unwrap().incomplete = true;
        };
        let name = ["v".to_owned()];
        assert!(dirty_verdict(doubt, Answers::default()).unwrap().incomplete);
        assert!(!dirty_verdict(doubt, Answers { trust: &name, ..Answers::default() }).unwrap().incomplete);
        assert!(!dirty_verdict(doubt, Answers { drop: &name, ..Answers::default() }).unwrap().incomplete);
    }

    #[test]
    fn dirty_data_of_a_volume_that_the_cache_does_not_know_is_missed() {
        let unknown = |table: &mut VolumeTable, _: &mut State, _: &mut Identity| table.records.clear();
        let error = dirty_verdict(unknown, Answers::default()).unwrap_err().to_string();
        assert!(error.contains("has no record of the volume") && error.contains("--drop-dirty v"), "{error}");
        let name = ["v".to_owned()];
        // There is nothing to trust.
        dirty_verdict(unknown, Answers { trust: &name, ..Answers::default() }).unwrap_err();
        let dropped = dirty_verdict(unknown, Answers { drop: &name, ..Answers::default() }).unwrap();
        assert!(!dropped.may_be_dirty && dropped.lost_writes, "{dropped:?}");
    }

    #[test]
    fn a_new_volume_gets_a_number_that_was_never_used() {
        let (table, state) = (table(5), State::default());
        let known = Known {
            cache_path: Path::new("/c"),
            table: &table,
            session: 9,
            clean: true,
            state: &state,
            cold: false,
            when: When::Start,
            answers: Answers::default(),
            risks: RisksBefore::default(),
        };
        let candidate = |name| Candidate {
            name,
            path: Path::new("/x"),
            identity: Some(FILE),
            changed: None,
            dedup_domain: "",
            region_bytes: 9,
        };
        let candidates = ["a", "b", "c", "d", "e"].map(candidate);
        let ids: Vec<_> = pair(&known, &candidates).unwrap().iter().map(|paired| paired.id.0).collect();
        assert_eq!(ids, [0, 1, 2, 3, 5]);
    }
}
