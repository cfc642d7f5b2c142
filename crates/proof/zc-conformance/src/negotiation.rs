//! The handshake from the client's side: greeting, options and their replies.
//!
//! Job: send any option, well formed or not, and collect its replies up to the final one, checking only the common
//! properties of replies.
//!
//! It does not judge replies; the cases do.

use crate::conn::Conn;
use crate::session::Mode;
use crate::stop::{Check, Stop, ensure};
use crate::wire::{
    Cursor, FIXED_NEWSTYLE, IHAVEOPT, NBDMAGIC, NO_ZEROES, OPTION_REPLY, info, info_data, meta_data, opt,
    option, rep, reply_name, string,
};
use zc_core::usize_from_u32;

/// The most replies to one option that are waited for.
const REPLIES_MAX: usize = 10_000;

/// The longest data of one reply that is taken.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// The replies to one option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replies {
    /// Type and data of all but the last.
    pub(crate) items: Vec<(u32, Vec<u8>)>,
    /// Type of the final reply: ACK or an error.
    pub(crate) last: u32,
    /// Its data.
    pub(crate) last_data: Vec<u8>,
}

impl Replies {
    /// The option was accepted.
    pub(crate) fn acked(&self, option: &str) -> Result<&Self, Stop> {
        ensure(self.last == rep::ACK, || format!("{option} was answered with {}", reply_name(self.last)))?;
        Ok(self)
    }

    /// The option was refused with one of `allowed`.
    pub(crate) fn refused(&self, option: &str, allowed: &[u32]) -> Check {
        ensure(allowed.contains(&self.last), || {
            let wanted: Vec<String> = allowed.iter().map(|kind| reply_name(*kind)).collect();
            format!("{option} was answered with {}, not with {}", reply_name(self.last), wanted.join(" or "))
        })
    }

    pub(crate) fn is_error(&self) -> bool {
        self.last & rep::ERROR != 0
    }

    /// The payloads of all INFO replies: kind and the bytes after it.
    pub(crate) fn infos(&self) -> Result<Vec<(u16, Vec<u8>)>, Stop> {
        let infos = self.items.iter().filter(|(kind, _)| *kind == rep::INFO);
        infos
            .map(|(_, data)| {
                let mut cursor = Cursor::new(data, "an INFO reply");
                Ok((cursor.u16()?, cursor.rest().to_vec()))
            })
            .collect()
    }

    /// The bytes of the one INFO reply of `kind`.
    pub(crate) fn info(&self, kind: u16) -> Result<Option<Vec<u8>>, Stop> {
        Ok(self.infos()?.into_iter().find(|(found, _)| *found == kind).map(|(_, data)| data))
    }

    /// Size and transmission flags.
    pub(crate) fn export(&self) -> Result<(u64, u16), Stop> {
        let Some(data) = self.info(info::EXPORT)? else {
            return Err(Stop::Fail("no NBD_INFO_EXPORT came before the ACK".to_owned()));
        };
        let mut cursor = Cursor::new(&data, "NBD_INFO_EXPORT");
        Ok((cursor.u64()?, cursor.u16()?))
    }

    /// Minimum, preferred and maximum size, if they were sent.
    pub(crate) fn block_sizes(&self) -> Result<Option<[u32; 3]>, Stop> {
        let Some(data) = self.info(info::BLOCK_SIZE)? else { return Ok(None) };
        let mut cursor = Cursor::new(&data, "NBD_INFO_BLOCK_SIZE");
        Ok(Some([cursor.u32()?, cursor.u32()?, cursor.u32()?]))
    }

    /// Ids and names of metadata contexts.
    pub(crate) fn contexts(&self) -> Result<Vec<(u32, String)>, Stop> {
        let contexts = self.items.iter().filter(|(kind, _)| *kind == rep::META);
        contexts
            .map(|(_, data)| {
                let mut cursor = Cursor::new(data, "a META_CONTEXT reply");
                Ok((cursor.u32()?, string(cursor.rest(), "the name of a metadata context")?))
            })
            .collect()
    }

    /// Names and descriptions of exports.
    pub(crate) fn servers(&self) -> Result<Vec<(String, Vec<u8>)>, Stop> {
        let servers = self.items.iter().filter(|(kind, _)| *kind == rep::SERVER);
        servers
            .map(|(_, data)| {
                let mut cursor = Cursor::new(data, "a SERVER reply");
                let length = usize_from_u32(cursor.u32()?);
                let name = string(cursor.take(length)?, "the name of an export")?;
                Ok((name, cursor.rest().to_vec()))
            })
            .collect()
    }
}

impl Conn {
    /// Receives the greeting and returns the handshake flags.
    pub(crate) fn greeting(&mut self) -> Result<u16, Stop> {
        let bytes = self.recv(18, "the greeting")?;
        let mut cursor = Cursor::new(&bytes, "the greeting");
        ensure(cursor.u64()? == NBDMAGIC, || "the greeting does not open with NBDMAGIC".to_owned())?;
        ensure(cursor.u64()? == IHAVEOPT, || "IHAVEOPT does not follow NBDMAGIC".to_owned())?;
        cursor.u16()
    }

    /// Receives the greeting and answers with as many of the two known flags as were offered.
    pub(crate) fn begin(&mut self) -> Result<u16, Stop> {
        let offered = self.greeting()?;
        let answer = u32::from(offered & (FIXED_NEWSTYLE | NO_ZEROES));
        self.send(&answer.to_be_bytes())?;
        Ok(offered)
    }

    /// Sends an option and collects its replies.
    pub(crate) fn option(&mut self, number: u32, data: &[u8]) -> Result<Replies, Stop> {
        self.send(&option(number, data))?;
        self.replies(number)
    }

    /// Collects the replies to an option that was sent.
    pub(crate) fn replies(&mut self, number: u32) -> Result<Replies, Stop> {
        let mut items = Vec::new();
        while items.len() < REPLIES_MAX {
            let (kind, data) = self.reply(number)?;
            if kind == rep::ACK || kind & rep::ERROR != 0 {
                return Ok(Replies { items, last: kind, last_data: data });
            }
            items.push((kind, data));
        }
        Err(Stop::Fail(format!("{REPLIES_MAX} replies to option {number} and no final one")))
    }

    fn reply(&mut self, number: u32) -> Result<(u32, Vec<u8>), Stop> {
        let header = self.recv(20, "the reply to an option")?;
        let mut cursor = Cursor::new(&header, "the reply to an option");
        let (magic, echoed, kind, length) = (cursor.u64()?, cursor.u32()?, cursor.u32()?, cursor.u32()?);
        ensure(magic == OPTION_REPLY, || format!("the reply to option {number} has the magic {magic:#x}"))?;
        ensure(echoed == number, || format!("the reply to option {number} is for option {echoed}"))?;
        let length = usize_from_u32(length);
        ensure(length <= REPLY_BYTES_MAX, || format!("a reply to option {number} claims {length} bytes"))?;
        Ok((kind, self.recv(length, "the data of a reply to an option")?))
    }

    pub(crate) fn info(&mut self, name: &str, wanted: &[u16]) -> Result<Replies, Stop> {
        self.option(opt::INFO, &info_data(name.as_bytes(), wanted))
    }

    pub(crate) fn go(&mut self, name: &str, wanted: &[u16]) -> Result<Replies, Stop> {
        self.option(opt::GO, &info_data(name.as_bytes(), wanted))
    }

    pub(crate) fn list_meta(&mut self, name: &str, queries: &[&str]) -> Result<Replies, Stop> {
        self.option(opt::LIST_META, &meta_data(name.as_bytes(), queries))
    }

    pub(crate) fn set_meta(&mut self, name: &str, queries: &[&str]) -> Result<Replies, Stop> {
        self.option(opt::SET_META, &meta_data(name.as_bytes(), queries))
    }

    /// Negotiates the replies of a mode.
    pub(crate) fn negotiate(&mut self, mode: Mode) -> Check {
        match mode {
            Mode::Simple => Ok(()),
            Mode::Structured => self.option(opt::STRUCTURED_REPLY, &[])?.acked("STRUCTURED_REPLY").map(drop),
            Mode::Extended => self.option(opt::EXTENDED, &[])?.acked("EXTENDED_HEADERS").map(drop),
        }
    }

    /// The connection still negotiates: an unknown option gets its answer.
    pub(crate) fn still_negotiates(&mut self) -> Check {
        let replies = self.option(opt::UNKNOWN, &[])?;
        ensure(replies.is_error(), || "an option that does not exist was accepted".to_owned())
    }
}
