//! HS: greeting, client flags, EXPORT_NAME.

use crate::case::{Case, format, must};
use crate::conn::Conn;
use crate::session::{Mode, Session};
use crate::stop::{Check, Stop, applies, ensure};
use crate::subject::{Need, Subject};
use crate::wire::{Cursor, FIXED_NEWSTYLE, NO_ZEROES, flag, opt, option};

const NEWSTYLE: &str = "Newstyle negotiation";
const FLAGS: &str = "Handshake flags";
const CLIENT_FLAGS: &str = "Client flags";
const NAME: &str = "NBD_OPT_EXPORT_NAME";

pub(crate) const CASES: &[Case] = &[
    format("HS-01", NEWSTYLE, "the greeting is NBDMAGIC, IHAVEOPT and 16 bits of flags", &[], |subject| {
        subject.connect()?.greeting().map(drop)
    }),
    must("HS-02", FLAGS, "NBD_FLAG_FIXED_NEWSTYLE is set", &[], |subject| {
        let flags = subject.connect()?.greeting()?;
        ensure(flags & FIXED_NEWSTYLE != 0, || format!("the handshake flags are {flags:#06x}"))
    }),
    must("HS-03", FLAGS, "no handshake flag is set that the document does not define", &[], |subject| {
        let flags = subject.connect()?.greeting()?;
        ensure(flags & !(FIXED_NEWSTYLE | NO_ZEROES) == 0, || format!("the handshake flags are {flags:#06x}"))
    }),
    must("HS-04", CLIENT_FLAGS, "an unknown client flag (bit 2) ends the connection", &[], |subject| {
        unknown_client_flag(subject, 1 << 2)
    }),
    must("HS-05", CLIENT_FLAGS, "an unknown client flag (bit 31) ends the connection", &[], |subject| {
        unknown_client_flag(subject, 1 << 31)
    }),
    must("HS-06", CLIENT_FLAGS, "a client flag that was not offered ends the connection", &[], |subject| {
        let offered = subject.connect()?.greeting()?;
        applies(offered & NO_ZEROES == 0, "every known flag is offered")?;
        unknown_client_flag(subject, u32::from(NO_ZEROES))
    }),
    format(
        "HS-07",
        NEWSTYLE,
        "client flags that come byte by byte are understood",
        &[Need::Plain],
        |subject| {
            let mut conn = subject.connect()?;
            let flags = u32::from(conn.greeting()? & FIXED_NEWSTYLE).to_be_bytes();
            for byte in flags {
                conn.send(&[byte])?;
            }
            conn.still_negotiates()
        },
    ),
    must(
        "HS-08",
        NAME,
        "without NO_ZEROES the reply is size, flags and 124 zero bytes",
        &[Need::Plain],
        |subject| {
            let (mut session, reserved) = export_name(subject, 0, 124)?;
            ensure(reserved.iter().all(|byte| *byte == 0), || "a reserved byte is not zero".to_owned())?;
            session.still_serves()
        },
    ),
    must(
        "HS-09",
        NAME,
        "with NO_ZEROES the reply is size and flags and nothing else",
        &[Need::Plain],
        |subject| {
            let offered = subject.connect()?.greeting()?;
            applies(offered & NO_ZEROES != 0, "NO_ZEROES is not offered")?;
            export_name(subject, NO_ZEROES, 0)?.0.still_serves()
        },
    ),
    format(
        "HS-10",
        "NBD_INFO_EXPORT",
        "EXPORT_NAME and INFO tell the same size and flags",
        &[Need::Plain],
        |subject| {
            let (session, _) = export_name(subject, 0, 124)?;
            let info = subject.negotiate()?.info(subject.export(), &[])?.acked("INFO")?.export()?;
            let name = (session.size, session.flags);
            ensure(name == info, || format!("EXPORT_NAME tells {name:x?}, INFO {info:x?} (size, flags)"))
        },
    ),
    must("HS-11", NAME, "an unknown export ends the session without a byte", &[Need::Plain], |subject| {
        applies(!subject.offer.every_name, "the server exports every name")?;
        let mut conn = subject.negotiate()?;
        conn.send(&option(opt::EXPORT_NAME, subject.no_export().as_bytes()))?;
        conn.expect_closed("after EXPORT_NAME of an unknown export")
    }),
    must(
        "HS-12",
        NAME,
        "an unknown export with a name of 4096 bytes ends the session",
        &[Need::Plain],
        |subject| {
            applies(!subject.offer.every_name, "the server exports every name")?;
            let mut conn = subject.negotiate()?;
            conn.send(&option(opt::EXPORT_NAME, &[b'n'; 4096]))?;
            conn.expect_closed("after EXPORT_NAME of an unknown export")
        },
    ),
    must(
        "HS-13",
        "Transmission flags",
        "NBD_FLAG_HAS_FLAGS is set by EXPORT_NAME",
        &[Need::Plain],
        |subject| {
            let flags = export_name(subject, 0, 124)?.0.flags;
            ensure(flags & flag::HAS_FLAGS != 0, || format!("the transmission flags are {flags:#06x}"))
        },
    ),
    format(
        "HS-14",
        NAME,
        "EXPORT_NAME after other options begins the transmission all the same",
        &[Need::Plain],
        |subject| {
            let mut conn = subject.connect()?;
            let offered = conn.begin()?;
            conn.still_negotiates()?;
            conn.info(subject.export(), &[])?.acked("INFO")?;
            let reserved = if offered & NO_ZEROES != 0 { 0 } else { 124 };
            finish(conn, subject, reserved)?.0.still_serves()
        },
    ),
    format(
        "HS-15",
        NEWSTYLE,
        "a client that vanishes after the greeting does not disturb the next",
        &[Need::Plain],
        |subject| {
            let mut gone = Vec::new();
            for _ in 0..4 {
                let mut conn = subject.connect()?;
                conn.greeting()?;
                gone.push(conn);
            }
            drop(gone);
            subject.negotiate()?.still_negotiates()
        },
    ),
    format(
        "HS-16",
        NEWSTYLE,
        "an option without the magic IHAVEOPT is not acted upon",
        &[Need::Plain],
        |subject| {
            let mut conn = subject.negotiate()?;
            let mut bytes = option(opt::ABORT, &[]);
            bytes[0] ^= 0xff;
            conn.send(&bytes)?;
            match conn.replies(opt::ABORT) {
                Ok(replies) => {
                    ensure(replies.is_error(), || "an option with a wrong magic was accepted".to_owned())
                }
                Err(Stop::Closed(_)) => Ok(()),
                Err(other) => Err(other),
            }
        },
    ),
];

fn unknown_client_flag(subject: &Subject, flag: u32) -> Check {
    let mut conn = subject.connect()?;
    let offered = conn.greeting()?;
    conn.send(&(u32::from(offered & FIXED_NEWSTYLE) | flag).to_be_bytes())?;
    // A server may notice only when the first option is there. One that has closed already takes no bytes.
    if conn.send(&option(opt::UNKNOWN, &[])).is_err() {
        return Ok(());
    }
    conn.expect_closed(&format!("after the client flag {flag:#x}"))
}

/// Enters the transmission by EXPORT_NAME; returns the session and the reserved bytes.
fn export_name(subject: &Subject, extra: u16, reserved: usize) -> Result<(Session, Vec<u8>), Stop> {
    let mut conn = subject.connect()?;
    let offered = conn.greeting()?;
    conn.send(&u32::from(offered & FIXED_NEWSTYLE | extra).to_be_bytes())?;
    finish(conn, subject, reserved)
}

/// Sends EXPORT_NAME and receives its reply with this number of reserved bytes.
fn finish(mut conn: Conn, subject: &Subject, reserved: usize) -> Result<(Session, Vec<u8>), Stop> {
    conn.send(&option(opt::EXPORT_NAME, subject.export().as_bytes()))?;
    let reply = conn.recv(10, "the reply to EXPORT_NAME")?;
    let mut cursor = Cursor::new(&reply, "the reply to EXPORT_NAME");
    let (size, flags) = (cursor.u64()?, cursor.u16()?);
    let reserved = conn.recv(reserved, "the reserved bytes of the reply to EXPORT_NAME")?;
    let (mode, block) = (Mode::Simple, subject.offer.block);
    let session = Session { conn, mode, size, flags, block, contexts: Vec::new(), next_cookie: 1 };
    Ok((session, reserved))
}
