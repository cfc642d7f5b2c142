//! The stub's handshake.

use super::{Disks, OptionReply, Pipe, Rules, tls, transmission};
use crate::session::Mode;
use crate::wire::{
    Cursor, FIXED_NEWSTYLE, IHAVEOPT, Message, NBDMAGIC, NO_ZEROES, OPTION_REPLY, flag, info, opt, rep,
    string,
};
use zc_core::usize_from_u32;

/// State set by options.
#[derive(Debug, Default)]
struct State {
    client_flags: u32,
    structured: bool,
    extended: bool,
    contexts: Vec<u32>,
    contexts_of: String,
    secured: bool,
}

/// The contexts: name and id.
const CONTEXTS: [(&str, u32); 2] = [("base:allocation", 41), ("x-stub:thing", 42)];

/// Serves one client until it or the server hangs up.
pub(super) fn serve(pipe: &mut Pipe, rules: &Rules, disks: &Disks) -> Option<()> {
    let mut greeting = Message::default().u64(NBDMAGIC).u64(IHAVEOPT).u16(rules.handshake_flags).0;
    (rules.greeting)(&mut greeting);
    pipe.write(&greeting)?;
    let flags = pipe.read(4)?;
    let mut state = State { client_flags: Cursor::new(&flags, "flags").u32().ok()?, ..State::default() };
    if state.client_flags & !u32::from(rules.handshake_flags) != 0 && !rules.accept_any_client_flags {
        return None;
    }
    loop {
        let header = pipe.read(16)?;
        let mut cursor = Cursor::new(&header, "an option");
        let (magic, number, length) = (cursor.u64().ok()?, cursor.u32().ok()?, cursor.u32().ok()?);
        if magic != IHAVEOPT && !rules.any_magic {
            return None;
        }
        let data = pipe.read(usize_from_u32(length))?;
        if (rules.hang_up)(number, &data) {
            return None;
        }
        if number == opt::EXPORT_NAME {
            return export_name(pipe, rules, disks, &state, &data);
        }
        let mut replies = answer(rules, &mut state, number, &data);
        (rules.option)(number, &data, &mut replies);
        for (kind, data) in &replies {
            pipe.write(&Message::default().u64(OPTION_REPLY).u32(number).u32(*kind).counted(data).0)?;
        }
        let acked = replies.last().is_some_and(|(kind, _)| *kind == rep::ACK);
        match number {
            opt::GO if acked => {
                pipe.write(&vec![0; rules.padding])?;
                let name = Cursor::new(&data, "GO").counted()?;
                return transmit(pipe, rules, disks, &state, &String::from_utf8_lossy(&name));
            }
            opt::ABORT => return None,
            opt::STARTTLS if acked => {
                tls::start(pipe, rules)?;
                if !rules.tls_keeps {
                    state = State { client_flags: state.client_flags, ..State::default() };
                }
                state.secured = true;
            }
            _ => {}
        }
    }
}

impl<'a> Cursor<'a> {
    fn counted(&mut self) -> Option<Vec<u8>> {
        let length = usize_from_u32(self.u32().ok()?);
        Some(self.take(length).ok()?.to_vec())
    }
}

fn export_name(pipe: &mut Pipe, rules: &Rules, disks: &Disks, state: &State, data: &[u8]) -> Option<()> {
    let name = String::from_utf8_lossy(data).into_owned();
    let too_early = rules.forced_tls && !state.secured;
    if (too_early || !known(&name)) && !rules.any_name || state.secured && rules.tls_go_only {
        return None;
    }
    let (size, flags) = export(rules, state, &name);
    let zeroes = state.client_flags & u32::from(NO_ZEROES) == 0;
    let mut reserved = if zeroes { vec![0; 124] } else { Vec::new() };
    (rules.reserved)(zeroes, &mut reserved);
    pipe.write(&Message::default().u64(size).u16(flags).bytes(&reserved).0)?;
    transmit(pipe, rules, disks, state, &name)
}

fn transmit(pipe: &mut Pipe, rules: &Rules, disks: &Disks, state: &State, name: &str) -> Option<()> {
    let mode = match (state.structured, state.extended) {
        (_, true) => Mode::Extended,
        (true, false) => Mode::Structured,
        (false, false) => Mode::Simple,
    };
    let same = state.contexts_of == name;
    let contexts = if same { state.contexts.clone() } else { Vec::new() };
    let frozen = name == "frozen";
    let disk = if frozen { &disks.frozen } else { &disks.disk };
    transmission::serve(pipe, rules, mode, disk, frozen, &contexts)
}

fn known(name: &str) -> bool {
    name == "disk" || name == "frozen"
}

fn export(rules: &Rules, state: &State, name: &str) -> (u64, u16) {
    let mut flags = rules.flags;
    if !state.structured && !state.extended {
        flags &= !flag::DF;
    }
    if state.extended && rules.status_payload && !state.contexts.is_empty() {
        flags |= flag::STATUS_PAYLOAD;
    }
    if name == "frozen" {
        return (super::FROZEN_BYTES as u64, flags | flag::READ_ONLY);
    }
    (super::DISK_BYTES as u64, flags)
}

fn error(kind: u32) -> Vec<OptionReply> {
    vec![(kind, b"no".to_vec())]
}

fn answer(rules: &Rules, state: &mut State, number: u32, data: &[u8]) -> Vec<OptionReply> {
    let plain = number != opt::STARTTLS && number != opt::ABORT;
    if plain && if state.secured { rules.tls_never_enough } else { rules.forced_tls } {
        return error(rep::TLS_REQD);
    }
    let takes_data = !matches!(number, opt::LIST | opt::STRUCTURED_REPLY | opt::EXTENDED | opt::STARTTLS);
    if !takes_data && !data.is_empty() {
        return error(rep::INVALID);
    }
    let ack = vec![(rep::ACK, Vec::new())];
    match number {
        opt::ABORT => ack,
        opt::LIST => {
            let entry = |name: &str| (rep::SERVER, Message::default().counted(name.as_bytes()).0);
            [vec![entry("disk"), entry("frozen")], ack].concat()
        }
        opt::STARTTLS if state.secured && !rules.tls_again => error(rep::INVALID),
        opt::STARTTLS => {
            let fixed = state.client_flags & u32::from(FIXED_NEWSTYLE) != 0;
            if rules.tls && (fixed || rules.tls_without_fixed) { ack } else { error(rep::POLICY) }
        }
        opt::STRUCTURED_REPLY if state.extended => error(rep::EXT_HEADER_REQD),
        opt::STRUCTURED_REPLY => {
            state.structured = true;
            ack
        }
        opt::EXTENDED => {
            state.extended = true;
            ack
        }
        opt::INFO | opt::GO => about(rules, state, data).unwrap_or_else(|| error(rep::INVALID)),
        opt::LIST_META | opt::SET_META => {
            let replies = meta(rules, state, number, data);
            let failed = replies.last().is_some_and(|(kind, _)| kind & rep::ERROR != 0);
            if failed && number == opt::SET_META && !rules.keep_contexts {
                state.contexts.clear();
            }
            replies
        }
        _ => error(rep::UNSUP),
    }
}

fn about(rules: &Rules, state: &State, data: &[u8]) -> Option<Vec<OptionReply>> {
    let mut cursor = Cursor::new(data, "INFO");
    let name = string(&cursor.counted()?, "a name").ok()?;
    let wanted = usize::from(cursor.u16().ok()?);
    if cursor.rest().len() != wanted * 2 {
        return None;
    }
    if !known(&name) && !rules.any_name {
        return Some(error(rep::UNKNOWN));
    }
    let (size, flags) = export(rules, state, &name);
    let [minimum, preferred, maximum] = rules.block;
    let item = |message: Message| (rep::INFO, message.0);
    Some(vec![
        item(Message::default().u16(info::EXPORT).u64(size).u16(flags)),
        item(Message::default().u16(info::NAME).bytes(name.as_bytes())),
        item(Message::default().u16(info::DESCRIPTION).bytes(b"a stub")),
        item(Message::default().u16(info::BLOCK_SIZE).u32(minimum).u32(preferred).u32(maximum)),
        (rep::ACK, Vec::new()),
    ])
}

fn meta(rules: &Rules, state: &mut State, number: u32, data: &[u8]) -> Vec<OptionReply> {
    let set = number == opt::SET_META;
    if set && !state.structured && !state.extended {
        return error(rep::INVALID);
    }
    let Some((name, queries)) = parse_meta(data) else { return error(rep::INVALID) };
    if !known(&name) {
        return error(rep::UNKNOWN);
    }
    let selects = |context: &str| {
        queries
            .iter()
            .any(|query| query == context || !set && query.ends_with(':') && context.starts_with(query))
            || (!set && queries.is_empty())
    };
    let found: Vec<(&str, u32)> = CONTEXTS.into_iter().filter(|(context, _)| selects(context)).collect();
    if set || rules.list_selects {
        state.contexts = found.iter().map(|(_, id)| *id).collect();
        state.contexts_of = name;
    }
    let reply = |(context, id): (&str, u32)| {
        (rep::META, Message::default().u32(if set { id } else { 0 }).bytes(context.as_bytes()).0)
    };
    let mut replies: Vec<OptionReply> = found.into_iter().map(reply).collect();
    replies.push((rep::ACK, Vec::new()));
    replies
}

fn parse_meta(data: &[u8]) -> Option<(String, Vec<String>)> {
    let mut cursor = Cursor::new(data, "contexts");
    let name = string(&cursor.counted()?, "a name").ok()?;
    let count = cursor.u32().ok()?;
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(string(&cursor.counted()?, "a query").ok()?);
    }
    cursor.is_empty().then_some((name, queries))
}
