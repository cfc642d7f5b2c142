//! Access of clients to exports.
//!
//! Job: the exports visible to one connection: by the client's address, its use of TLS, and the names in its
//! certificate.
//!
//! Invariants: forbidden exports are not listed. An address rule hides the export altogether; a TLS or certificate
//! rule reports itself, because the client can comply. Rules are evaluated at every option, because TLS may start in
//! between. A client keeps its export when rules change.
//!
//! It does not check certificates (`tls` does). Address rules are for TCP; Unix sockets have mode and owner.

use zc_config::{AddressRange, VolumeNbd};
use zc_nbd::server::{Access, BlockSizes, ExportCatalog, ExportFlags, ExportInfo};
use zc_nbd::wire::ServerEntry;

use crate::front::peer::Peer;

#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    /// TCP clients from here only; empty = from anywhere.
    addresses: Vec<AddressRange>,
    tls: bool,
    /// Requires a certificate with one of these names; empty: none is required.
    certificates: Vec<String>,
    /// For no client: the volume is not served.
    is_absent: bool,
}

impl Rules {
    pub(crate) fn new(nbd: &VolumeNbd) -> Self {
        let (addresses, certificates) = (nbd.allow.clone(), nbd.allow_certificates.clone());
        Self { addresses, tls: nbd.tls, certificates, is_absent: false }
    }
}

/// An export with its access rules.
#[derive(Debug, Clone)]
pub struct Export {
    pub(crate) info: ExportInfo,
    pub(crate) rules: Rules,
}

impl Export {
    /// Stands first for the default export while its volume is not served. A client that names no export must not be
    /// given another volume.
    pub(crate) fn absent(name: &str) -> Self {
        let info = ExportInfo {
            name: name.to_owned(),
            description: String::new(),
            size_bytes: 0,
            flags: ExportFlags::default(),
            blocks: BlockSizes::DEFAULT,
            contexts: Vec::new(),
            token: u64::MAX,
        };
        Self { info, rules: Rules { is_absent: true, ..Rules::default() } }
    }
}

/// Returns `true` if an address rule admits a client.
pub(crate) fn is_allowed(ranges: &[AddressRange], peer: Peer) -> bool {
    match peer {
        _ if ranges.is_empty() => true,
        Peer::Ip(address) => ranges.iter().any(|range| range.contains(address)),
        Peer::User(_) => true,
        Peer::Unknown => false,
    }
}

/// The exports as a connection sees them.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) exports: &'a [Export],
    pub(crate) peer: Peer,
    pub(crate) is_secured: bool,
    /// Names in the client's certificate.
    pub(crate) names: &'a [String],
}

impl ExportCatalog for View<'_> {
    fn lookup(&self, name: &str) -> Option<ExportInfo> {
        let export = if name.is_empty() {
            self.exports.first()
        } else {
            self.exports.iter().find(|export| export.info.name == name)
        };
        export.map(|export| export.info.clone())
    }

    fn list(&self) -> Vec<ServerEntry> {
        let entry = |export: &Export| ServerEntry {
            name: export.info.name.clone(),
            description: export.info.description.clone(),
        };
        self.exports.iter().map(entry).collect()
    }

    fn access(&self, name: &str) -> Access {
        let Some(export) = self.exports.iter().find(|export| export.info.name == name) else {
            return Access::Hidden;
        };
        let Rules { addresses, tls, certificates, is_absent } = &export.rules;
        if *is_absent || !is_allowed(addresses, self.peer) {
            return Access::Hidden;
        }
        if (*tls || !certificates.is_empty()) && !self.is_secured {
            return Access::OverTls;
        }
        if certificates.is_empty() || certificates.iter().any(|name| self.names.contains(name)) {
            Access::Granted
        } else {
            Access::Denied
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(name: &str, rules: Rules) -> Export {
        let info = ExportInfo {
            name: name.to_owned(),
            description: String::new(),
            size_bytes: 512,
            flags: ExportFlags::default(),
            blocks: BlockSizes::DEFAULT,
            contexts: Vec::new(),
            token: 0,
        };
        Export { info, rules }
    }

    #[test]
    fn rules_are_asked_in_their_order() {
        let near: Vec<AddressRange> = vec!["192.0.2.0/24".parse().unwrap()];
        let names = vec!["db.example".to_owned()];
        let exports = [
            export("open", Rules::default()),
            export("near", Rules { addresses: near.clone(), ..Rules::default() }),
            export("secret", Rules { tls: true, ..Rules::default() }),
            export("own", Rules { addresses: near, certificates: names.clone(), ..Rules::default() }),
        ];
        let (inside, outside) =
            (Peer::Ip("192.0.2.9".parse().unwrap()), Peer::Ip("198.51.100.1".parse().unwrap()));
        let other = vec!["www.example".to_owned()];
        use Access::{Denied, Granted, Hidden, OverTls};
        let cases: [(Peer, bool, &[String], [Access; 4]); 6] = [
            (inside, false, &[], [Granted, Granted, OverTls, OverTls]),
            (outside, false, &[], [Granted, Hidden, OverTls, Hidden]),
            (inside, true, &[], [Granted, Granted, Granted, Denied]),
            (inside, true, &other, [Granted, Granted, Granted, Denied]),
            (Peer::User(7), true, &names, [Granted, Granted, Granted, Granted]),
            (Peer::Unknown, true, &names, [Granted, Hidden, Granted, Hidden]),
        ];
        for (peer, is_secured, names, expected) in cases {
            let view = View { exports: &exports, peer, is_secured, names };
            assert_eq!(["open", "near", "secret", "own"].map(|name| view.access(name)), expected, "{peer}");
            assert_eq!(view.access("other"), Hidden);
        }
    }
}
