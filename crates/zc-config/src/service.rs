//! The sections `[nbd]`, `[control]`, `[metrics]`, `[sandbox]` and `[log]`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::limits;
use crate::model::{Confine, ControlConfig, LogConfig, MetricsConfig, NbdConfig, SandboxConfig, Tls};
use crate::section::{Listening, Located, Section, brief};

const DEFAULT_CONTROL: &str = "/run/zcached/control.sock";
/// NBD's registered port (IANA).
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10809);
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Reads `[nbd]`.
pub(crate) fn nbd(mut section: Section<'_, '_>) -> NbdConfig {
    let tls = tls(&mut section);
    let config = NbdConfig {
        listen: listen(&mut section),
        unix: section.sockets("unix", limits::LISTEN_MAX),
        unix_mode: unix_mode(&mut section),
        unix_group: section.text("unix_group").map(|group| group.value),
        allow: section.ranges("allow"),
        tls: tls.mode,
        tls_certificate: tls.certificate,
        tls_key: tls.key,
        tls_client_ca: tls.client_ca,
        tls_client_crl: tls.client_crl,
        connections_max: section.count("connections_max", 256, &limits::CONNECTIONS),
        connections_per_client_max: section
            .optional_count("connections_per_client_max", &limits::CONNECTIONS_PER_CLIENT),
        ipv6_client_prefix: {
            let bits = section.count("ipv6_client_prefix", 64, &limits::IPV6_CLIENT_PREFIX);
            u8::try_from(bits).unwrap_or(u8::MAX)
        },
        requests_in_flight_max: section.count("requests_in_flight_max", 128, &limits::REQUESTS),
        bytes_in_flight_max: section.size("bytes_in_flight_max", &limits::REQUEST_BYTES).unwrap_or(256 << 20),
        bytes_in_flight_per_connection_max: section
            .size("bytes_in_flight_per_connection_max", &limits::REQUEST_BYTES)
            .unwrap_or(64 << 20),
        handshake_timeout_ms: section.duration("handshake_timeout", 10_000, &limits::HANDSHAKE_MS),
        stall_timeout_ms: section.duration("stall_timeout", 60_000, &limits::STALL_MS),
        idle_timeout_ms: section.duration("idle_timeout", 0, &limits::IDLE_MS),
        keepalive_ms: section.duration("keepalive", 60_000, &limits::KEEPALIVE_MS),
    };
    section.finish();
    config
}

/// The mode of Unix sockets, in octal as for chmod(1).
fn unix_mode(section: &mut Section<'_, '_>) -> u32 {
    let default = 0o600;
    let Some(text) = section.text("unix_mode") else { return default };
    let plain = matches!(text.value.len(), 3 | 4) && text.value.chars().all(|c| c.is_digit(8));
    match u32::from_str_radix(&text.value, 8) {
        Ok(mode) if plain && mode <= 0o777 => mode,
        _ => {
            let what = format_args!("\"{}\" is not a mode such as \"0660\"", brief(&text.value));
            section.mistake(text.at, "unix_mode", what);
            default
        }
    }
}

/// The keys of `[nbd]` about TLS.
struct TlsKeys {
    mode: Tls,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    client_crl: Option<PathBuf>,
}

fn tls(section: &mut Section<'_, '_>) -> TlsKeys {
    let mode = section.word("tls", Tls::WORDS, Tls::Off);
    let mut file = |key| section.read_path(key).map(|path| path.value);
    let (certificate, key) = (file("tls_certificate"), file("tls_key"));
    let client_ca = file("tls_client_ca");
    let crl = section.read_path("tls_client_crl");
    if mode != Tls::Off && (certificate.is_none() || key.is_none()) {
        let at = section.get("tls").map_or(section.at, |value| value.span().start);
        section.mistake(at, "tls", "tls_certificate and tls_key are needed for it");
    }
    if let (Some(crl), None) = (&crl, &client_ca) {
        section.mistake(crl.at, "tls_client_crl", "tls_client_ca is needed for it");
    }
    TlsKeys { mode, certificate, key, client_ca, client_crl: crl.map(|path| path.value) }
}

fn listen(section: &mut Section<'_, '_>) -> Vec<SocketAddr> {
    let Some(entries) = section.list("listen", limits::LISTEN_MAX) else {
        section.sheet.listening.push(Listening {
            at: section.at,
            key: "nbd.listen",
            address: DEFAULT_LISTEN,
        });
        return vec![DEFAULT_LISTEN];
    };
    let mut listen: Vec<SocketAddr> = Vec::with_capacity(entries.len());
    for entry in entries {
        let text = brief(&entry.value);
        match entry.value.parse::<SocketAddr>() {
            Err(_) => {
                let what =
                    format_args!("\"{text}\" is not an IP address and port such as \"127.0.0.1:10809\"");
                section.mistake(entry.at, "listen", what);
            }
            Ok(address) => {
                section.sheet.listening.push(Listening { at: entry.at, key: "nbd.listen", address });
                listen.push(address);
            }
        }
    }
    listen
}

/// Reads `[control]`.
pub(crate) fn control(mut section: Section<'_, '_>) -> ControlConfig {
    let socket = section.socket("socket").unwrap_or_else(|| PathBuf::from(DEFAULT_CONTROL));
    section.finish();
    ControlConfig { socket }
}

/// Reads `[metrics]`.
pub(crate) fn metrics(mut section: Section<'_, '_>) -> MetricsConfig {
    let listen = address(&mut section, "listen", "127.0.0.1:10810");
    let page = address(&mut section, "page", "127.0.0.1:10811");
    section.finish();
    MetricsConfig { listen, page }
}

/// Parses an IP address and port; `example` is a valid one.
fn address(section: &mut Section<'_, '_>, key: &'static str, example: &str) -> Option<SocketAddr> {
    let text = section.text(key)?;
    let Ok(address) = text.value.parse() else {
        let text_brief = brief(&text.value);
        let what = format_args!("\"{text_brief}\" is not an IP address and port such as \"{example}\"");
        section.mistake(text.at, key, what);
        return None;
    };
    let key = if key == "page" { "metrics.page" } else { "metrics.listen" };
    section.sheet.listening.push(Listening { at: text.at, key, address });
    Some(address)
}

/// Reads `[sandbox]`.
pub(crate) fn sandbox(mut section: Section<'_, '_>) -> SandboxConfig {
    let config = SandboxConfig {
        user: section.text("user").map(|user| user.value),
        capabilities: section.word("capabilities", Confine::WORDS, Confine::Auto),
        landlock: section.word("landlock", Confine::WORDS, Confine::Auto),
        paths: folders(&mut section),
        seccomp: section.word("seccomp", Confine::WORDS, Confine::Auto),
        core_dumps: section.flag("core_dumps").unwrap_or(false),
    };
    section.finish();
    config
}

/// Parses folders with absolute paths: a relative one would depend on the daemon's working directory.
fn folders(section: &mut Section<'_, '_>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for entry in section.list("paths", limits::ALLOWED_MAX).unwrap_or_default() {
        if entry.value.starts_with('/') && !entry.value.contains('\0') {
            folders.push(PathBuf::from(entry.value));
        } else {
            let what = format_args!("\"{}\" does not begin with a slash", brief(&entry.value));
            section.mistake(entry.at, "paths", what);
        }
    }
    folders
}

/// Reads `[log]`.
pub(crate) fn log(mut section: Section<'_, '_>) -> LogConfig {
    let level = section.text("level").and_then(|level| filter(&mut section, level));
    section.finish();
    LogConfig { level: level.unwrap_or_else(|| "info".to_owned()) }
}

/// Levels, and levels of modules, separated by commas: `info,zc_engine=debug`.
fn filter(section: &mut Section<'_, '_>, text: Located<String>) -> Option<String> {
    let part = |part: &str| {
        let (module, level) =
            part.rsplit_once('=').map_or((None, part), |(module, level)| (Some(module), level));
        let plain = |module: &str| {
            !module.is_empty()
                && module.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-'))
        };
        module.is_none_or(plain) && LEVELS.contains(&level)
    };
    if text.value.split(',').all(part) {
        return Some(text.value);
    }
    let what = format!(
        "\"{}\" is not a level ({}) or a list such as \"info,zc_engine=debug\"",
        brief(&text.value),
        LEVELS.join(", ")
    );
    section.mistake(text.at, "level", what);
    None
}
