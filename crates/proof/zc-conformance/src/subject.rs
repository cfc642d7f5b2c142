//! The server under test, with its features.
//!
//! Job: detect the server's features once, before the cases, so that a case can be declared not applicable; open
//! connections and sessions for the cases.
//!
//! Invariants: a probe that encounters a fault records the feature as missing and never fails itself: the cases about
//! that feature's rules run unconditionally where a fault must not hide.

use crate::conn::{Conn, Trace};
use crate::session::{Mode, Session};
use crate::stop::{Stop, applies, ensure};
use crate::uri::Uri;
use crate::wire::{flag, info, info_data, opt, rep};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Longest wait for any answer.
    pub deadline: Duration,
    /// `true` if the export's contents may be overwritten.
    pub writes: bool,
    /// A read-only export of the same server.
    pub read_only: Option<Uri>,
    /// Only these cases, by id; all if empty.
    pub only: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(10), writes: false, read_only: None, only: Vec::new() }
    }
}

/// Requirement of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The server serves clients without TLS.
    Plain,
    /// The server offers TLS.
    Tls,
    /// The server offers TLS to clients without a certificate.
    Inside,
    /// The server does not offer TLS.
    NoTls,
    /// The server answers every option with ERR_TLS_REQD until TLS runs.
    ForcedTls,
    /// Structured replies.
    Structured,
    /// `base:allocation`.
    Meta,
    /// Extended headers.
    Extended,
    /// The list of exports is not refused.
    List,
    /// The export may be written.
    Write,
    /// There is a read-only export.
    ReadOnly,
    /// NBD_FLAG_SEND_FLUSH.
    Flush,
    /// NBD_FLAG_SEND_FUA.
    Fua,
    /// NBD_FLAG_SEND_TRIM.
    Trim,
    /// NBD_FLAG_SEND_WRITE_ZEROES.
    Zeroes,
    /// NBD_FLAG_SEND_FAST_ZERO.
    FastZero,
    /// NBD_FLAG_SEND_DF.
    Df,
    /// NBD_FLAG_SEND_CACHE.
    Cache,
    /// NBD_FLAG_CAN_MULTI_CONN.
    MultiConn,
    /// NBD_FLAG_BLOCK_STATUS_PAYLOAD.
    StatusPayload,
    /// NBD_INFO_BLOCK_SIZE.
    BlockSize,
    /// Requests may begin and end at any byte.
    Unaligned,
    /// An export of at least 64 MiB.
    Large,
}

/// Features of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) tls: bool,
    pub(crate) forced_tls: bool,
    /// Whoever has no certificate gets nowhere inside TLS.
    pub(crate) wants_certificate: bool,
    pub(crate) structured: bool,
    pub(crate) meta: bool,
    pub(crate) extended: bool,
    pub(crate) list: bool,
    /// A name that no server would export is known.
    pub(crate) every_name: bool,
    pub(crate) read_only: bool,
    pub(crate) size: u64,
    /// Transmission flags with structured replies where there are some.
    pub(crate) flags: u16,
    /// Transmission flags with extended headers and a metadata context.
    pub(crate) flags_extended: u16,
    pub(crate) block: Option<[u32; 3]>,
}

/// A name that no sensible server exports.
const NO_EXPORT: &str = "conformance: no such export";

/// The smallest size of [`Need::Large`].
const LARGE_BYTES: u64 = 64 << 20;

/// The server under test.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) uri: Uri,
    pub(crate) options: Options,
    pub(crate) offer: Offer,
    trace: Rc<RefCell<Trace>>,
}

impl Subject {
    /// Connects and detects the server's features.
    ///
    /// # Errors
    /// When the server is unreachable.
    pub(crate) fn probe(uri: Uri, options: Options) -> Result<Self, Stop> {
        let trace = Rc::default();
        let mut subject = Self { uri, options, offer: Offer::default(), trace };
        drop(subject.connect()?);
        subject.offer = subject.ask();
        Ok(subject)
    }

    fn ask(&self) -> Offer {
        let tls = self.try_option(opt::STARTTLS, &[]) == Some(rep::ACK);
        let list = self.try_option(opt::LIST, &[]);
        let mut offer = Offer {
            tls,
            wants_certificate: tls && self.wants_certificate(),
            forced_tls: list == Some(rep::TLS_REQD),
            list: list == Some(rep::ACK),
            structured: self.try_option(opt::STRUCTURED_REPLY, &[]) == Some(rep::ACK),
            extended: self.try_option(opt::EXTENDED, &[]) == Some(rep::ACK),
            every_name: self.try_option(opt::INFO, &info_data(NO_EXPORT.as_bytes(), &[])) == Some(rep::ACK),
            ..Offer::default()
        };
        let mode = if offer.structured { Mode::Structured } else { Mode::Simple };
        if let Ok(session) = self.session_unchecked(mode, &[]) {
            (offer.size, offer.flags, offer.block) = (session.size, session.flags, session.block);
        }
        offer.read_only = offer.flags & flag::READ_ONLY != 0;
        if offer.structured {
            let session = self.session_unchecked(Mode::Structured, &["base:allocation"]);
            offer.meta = session.is_ok_and(|session| !session.contexts.is_empty());
        }
        if offer.extended {
            let queries: &[&str] = if offer.meta { &["base:allocation"] } else { &[] };
            let session = self.session_unchecked(Mode::Extended, queries);
            offer.flags_extended = session.map_or(0, |session| session.flags);
        }
        offer
    }

    fn wants_certificate(&self) -> bool {
        let Ok(mut conn) = self.negotiate() else { return false };
        let inside = conn.start_tls(rustls::DEFAULT_VERSIONS).and_then(|()| conn.still_negotiates());
        inside.is_err() && conn.was_asked_who()
    }

    fn try_option(&self, number: u32, data: &[u8]) -> Option<u32> {
        let mut conn = self.negotiate().ok()?;
        conn.option(number, data).ok().map(|replies| replies.last)
    }

    /// Returns the reason why a case with this need does not apply; `None` if it does.
    pub(crate) fn lacks(&self, need: Need) -> Option<&'static str> {
        let has = |bit| self.offer.flags & bit != 0;
        let plain = !self.offer.forced_tls;
        let (holds, why) = match need {
            Need::Plain => (plain, "the server wants TLS first"),
            Need::Tls => (self.offer.tls, "no TLS"),
            Need::Inside if !self.offer.tls => (false, "no TLS"),
            Need::Inside => (!self.offer.wants_certificate, "TLS wants a certificate of its clients"),
            Need::NoTls => (!self.offer.tls, "the server offers TLS"),
            Need::ForcedTls => (self.offer.forced_tls, "the server does not insist on TLS"),
            Need::Structured => (self.offer.structured, "no structured replies"),
            Need::Meta => (self.offer.meta, "no base:allocation"),
            Need::Extended => (self.offer.extended, "no extended headers"),
            Need::List => (self.offer.list, "the list of exports is refused"),
            Need::Write => {
                (plain && self.options.writes && !self.offer.read_only, "the export may not be written")
            }
            Need::ReadOnly => {
                let known = self.offer.read_only || self.options.read_only.is_some();
                (plain && known, "no read-only export is known")
            }
            Need::Flush => (has(flag::FLUSH), "no FLUSH"),
            Need::Fua => (has(flag::FUA), "no FUA"),
            Need::Trim => (has(flag::TRIM), "no TRIM"),
            Need::Zeroes => (has(flag::WRITE_ZEROES), "no WRITE_ZEROES"),
            Need::FastZero => (has(flag::FAST_ZERO), "no FAST_ZERO"),
            Need::Df => (has(flag::DF), "no DF"),
            Need::Cache => (has(flag::CACHE), "no CACHE"),
            Need::MultiConn => (has(flag::MULTI_CONN), "no multi-conn"),
            Need::StatusPayload => {
                (self.offer.flags_extended & flag::STATUS_PAYLOAD != 0, "no BLOCK_STATUS with payload")
            }
            Need::BlockSize => (self.offer.block.is_some(), "no size constraints are told"),
            Need::Unaligned => (self.minimum() == 1, "unaligned requests are not offered"),
            Need::Large => (self.offer.size >= LARGE_BYTES, "the export is smaller than 64 MiB"),
        };
        if holds { None } else { Some(why) }
    }

    /// Returns the smallest block; 1 if the server does not report it.
    pub(crate) fn minimum(&self) -> u32 {
        self.offer.block.map_or(1, |[minimum, _, _]| minimum.max(1))
    }

    /// A length in bytes that every server of blocks up to 64 KiB serves.
    pub(crate) fn unit(&self) -> u64 {
        u64::from(self.minimum()).max(4096)
    }

    /// Returns the largest payload that a client may request.
    pub(crate) fn payload_max(&self) -> u64 {
        self.offer.block.map_or(32 << 20, |[_, _, maximum]| u64::from(maximum))
    }

    /// The default export that the cases use.
    pub(crate) fn export(&self) -> &str {
        &self.uri.export
    }

    /// A name that no sensible server exports.
    pub(crate) fn no_export(&self) -> String {
        NO_EXPORT.to_owned()
    }

    pub(crate) fn connect(&self) -> Result<Conn, Stop> {
        Conn::open(&self.uri.address, self.options.deadline, &self.trace)
    }

    /// A connection on which options may be sent.
    pub(crate) fn negotiate(&self) -> Result<Conn, Stop> {
        let mut conn = self.connect()?;
        conn.begin()?;
        Ok(conn)
    }

    /// A connection inside TLS on which options may be sent.
    pub(crate) fn negotiate_secured(&self) -> Result<Conn, Stop> {
        let mut conn = self.negotiate()?;
        conn.start_tls(rustls::DEFAULT_VERSIONS)?;
        Ok(conn)
    }

    /// A connection with structured replies on which options may be sent.
    pub(crate) fn negotiate_structured(&self) -> Result<Conn, Stop> {
        let mut conn = self.negotiate()?;
        conn.option(opt::STRUCTURED_REPLY, &[])?.acked("STRUCTURED_REPLY")?;
        Ok(conn)
    }

    /// A session in transmission on the export under test. Not applicable if the server lacks the mode.
    pub(crate) fn session(&self, mode: Mode) -> Result<Session, Stop> {
        self.session_with(mode, &[])
    }

    /// A session with metadata contexts.
    pub(crate) fn session_with(&self, mode: Mode, queries: &[&str]) -> Result<Session, Stop> {
        let offered = match mode {
            Mode::Simple => true,
            Mode::Structured => self.offer.structured,
            Mode::Extended => self.offer.extended,
        };
        applies(offered, "the server does not offer these replies")?;
        self.session_unchecked(mode, queries)
    }

    fn session_unchecked(&self, mode: Mode, queries: &[&str]) -> Result<Session, Stop> {
        self.session_on(&self.uri, mode, queries)
    }

    /// A session on the read-only export.
    pub(crate) fn session_read_only(&self, mode: Mode) -> Result<Session, Stop> {
        let uri = if self.offer.read_only { Some(&self.uri) } else { self.options.read_only.as_ref() };
        let Some(uri) = uri else {
            return Err(Stop::NotApplicable("no read-only export is known".to_owned()));
        };
        let session = self.session_on(uri, mode, &[])?;
        applies(session.flags & flag::READ_ONLY != 0, "the read-only export is not marked as such")?;
        Ok(session)
    }

    fn session_on(&self, uri: &Uri, mode: Mode, queries: &[&str]) -> Result<Session, Stop> {
        let mut conn = Conn::open(&uri.address, self.options.deadline, &self.trace)?;
        conn.begin()?;
        conn.negotiate(mode)?;
        let mut contexts = Vec::new();
        if !queries.is_empty() {
            let replies = conn.set_meta(&uri.export, queries)?;
            contexts = replies.acked("SET_META_CONTEXT")?.contexts()?;
            ensure(contexts.len() <= queries.len(), || "more contexts were set than asked for".to_owned())?;
        }
        attach(conn, uri, mode, contexts)
    }

    /// Sends GO on a connection with this mode negotiated.
    pub(crate) fn attach(&self, conn: Conn, mode: Mode) -> Result<Session, Stop> {
        attach(conn, &self.uri, mode, Vec::new())
    }

    /// The bytes that the current case saw; the next case begins with none.
    pub(crate) fn take_trace(&self) -> Vec<String> {
        let lines = self.trace.borrow().lines();
        self.trace.borrow_mut().clear();
        lines
    }
}

fn attach(mut conn: Conn, uri: &Uri, mode: Mode, contexts: Vec<(u32, String)>) -> Result<Session, Stop> {
    let replies = conn.go(&uri.export, &[info::BLOCK_SIZE])?;
    let (size, flags) = replies.acked("GO")?.export()?;
    Ok(Session { conn, mode, size, flags, block: replies.block_sizes()?, contexts, next_cookie: 1 })
}
