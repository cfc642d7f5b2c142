//! Shared helpers of the transmission cases.

use crate::session::{Mode, Request, Session};
use crate::stop::{Check, Stop};
use crate::subject::Subject;
use crate::wire::{cmd, err, flag};

/// The modes that the server offers.
pub(crate) fn modes(subject: &Subject) -> Vec<Mode> {
    let mut modes = vec![Mode::Simple];
    if subject.offer.structured {
        modes.push(Mode::Structured);
    }
    if subject.offer.extended {
        modes.push(Mode::Extended);
    }
    modes
}

/// Runs a check in every mode that the server offers; a failure names the mode.
pub(crate) fn in_every_mode(subject: &Subject, check: impl Fn(&mut Session) -> Check) -> Check {
    for mode in modes(subject) {
        let result = subject.session(mode).and_then(|mut session| check(&mut session));
        if let Err(Stop::Fail(why)) = result {
            return Err(Stop::Fail(format!("{why} ({mode:?} replies)")));
        }
        result?;
    }
    Ok(())
}

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn pattern(seed: u64, length: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::new();
    for _ in 0..length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.push(state.to_le_bytes()[3]);
    }
    bytes
}

/// Every command with effect that the export offers, at `offset`, with a valid length.
pub(crate) fn commands(session: &Session, writable: bool, offset: u64, length: u64) -> Vec<Request> {
    let offers = |bit| session.flags & bit != 0;
    let mut commands = vec![Request::read(offset, length)];
    if writable {
        commands.push(Request::write(offset, pattern(offset, length)));
        if offers(flag::TRIM) {
            commands.push(Request::new(cmd::TRIM, offset, length));
        }
        if offers(flag::WRITE_ZEROES) {
            commands.push(Request::new(cmd::WRITE_ZEROES, offset, length));
        }
    }
    if offers(flag::CACHE) {
        commands.push(Request::new(cmd::CACHE, offset, length));
    }
    if !session.contexts.is_empty() {
        commands.push(Request::new(cmd::BLOCK_STATUS, offset, length));
    }
    commands
}

/// Sends one request per entry and checks that each fails with an error number that `good` allows.
pub(crate) fn all_fail(
    session: &mut Session,
    requests: Vec<Request>,
    good: impl Fn(&Request) -> &'static [u32],
) -> Check {
    for request in requests {
        let allowed = good(&request);
        session.fails(request, allowed)?;
    }
    Ok(())
}

/// Accepted errors of a request beyond the end of the export.
pub(crate) fn beyond_end(request: &Request) -> &'static [u32] {
    match request.cmd {
        // The section on sizes demands EINVAL, that on error values ENOSPC.
        cmd::WRITE | cmd::WRITE_ZEROES => &[err::ENOSPC, err::EINVAL],
        _ => &[err::EINVAL],
    }
}
