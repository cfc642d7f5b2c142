//! Sandbox of the daemon: the plan from the configuration, and the description of its result.
//!
//! Job: determine the capabilities, folders and ports that the configuration needs. Folders, not files: a returning
//! cache device, a renewed certificate and a replaced image are other files with the same name, and a reload may add
//! volumes whose images are in the same folders.
//!
//! It does not apply the plan; see `zc-sandbox`.

use std::fs::DirBuilder;
use std::net::ToSocketAddrs as _;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use zc_config::{Config, Confine, Endpoint, SYSTEM_AUTHORITIES, VolumeConfig};
use zc_daemon::Confined;
use zc_sandbox::{Capability, Folders, Held, Plan, Requirement, Sandbox, User};

/// Independent of the configuration: kernel information, random numbers, names of users and groups, the time zone, and
/// libraries whose symbols a panic prints.
const READ: &[&str] = &[
    "/proc",
    "/sys",
    "/etc/passwd",
    "/etc/group",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/lib",
    "/lib64",
    "/usr/lib",
];
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];
/// Files by which names of servers are resolved.
const RESOLVER: &[&str] = &[
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/run/systemd/resolve",
];
/// Port of name servers, which long answers come from over TCP.
const DNS_PORT: u16 = 53;
/// TCP ports that require CAP_NET_BIND_SERVICE.
const PRIVILEGED_PORTS: std::ops::Range<u16> = 1..1024;

/// Returns the user to assume; `None` to keep the current one. `named` on the command line takes precedence over the
/// configuration.
///
/// # Errors
/// When the user does not exist, or lacks what the configuration needs, in a sentence.
pub(crate) fn user(config: &Config, named: Option<&str>) -> Result<Option<User>, String> {
    let Some(name) = named.or(config.sandbox.user.as_deref()) else { return Ok(None) };
    let user = User::find(name).map_err(|error| error.to_string())?;
    if user.is_root() {
        return Ok(None);
    }
    match config.volumes.iter().find(|volume| volume.ublk.attach) {
        Some(volume) => Err(format!(
            "volume \"{}\": ublk.attach needs root, and the daemon is configured to run as another user; remove one \
             of them",
            volume.name
        )),
        None => Ok(Some(user)),
    }
}

/// Drops privileges that the configuration in `file` does not need.
///
/// # Errors
/// A required step that failed, in a sentence.
pub(crate) fn enter(config: &Config, file: &Path, user: Option<User>) -> Result<Option<Confined>, String> {
    confine(config, file, user, make_folders)
}

/// Drops the privileges that a start would drop, to test that it can; creates no folders. The process is of little use
/// afterwards.
///
/// # Errors
/// A required step that failed, in a sentence.
pub(crate) fn rehearse(config: &Config, file: &Path, user: Option<User>) -> Result<(), String> {
    let sandbox = &config.sandbox;
    let is_required = [sandbox.capabilities, sandbox.landlock, sandbox.seccomp].contains(&Confine::Required);
    if user.is_none() && !is_required {
        return Ok(());
    }
    confine(config, file, user, |_, _| ()).map(drop)
}

fn confine(
    config: &Config,
    file: &Path,
    user: Option<User>,
    make_folders: impl FnOnce(&Config, bool),
) -> Result<Option<Confined>, String> {
    let sandbox = &config.sandbox;
    if user.is_none() && [sandbox.capabilities, sandbox.landlock, sandbox.seccomp] == [Confine::Off; 3] {
        set_core_dumps(sandbox.core_dumps);
        return Ok(None);
    }
    let wants_ublk = user.is_none()
        && (zc_ublk::guard::is_wanted() || config.volumes.iter().any(|volume| volume.ublk.attach));
    let plan = Plan {
        user,
        capabilities: step(sandbox.capabilities),
        keep: kept(config, wants_ublk),
        landlock: step(sandbox.landlock),
        seccomp: step(sandbox.seccomp),
    };
    load_resolver(config);
    let core_dumps = sandbox.core_dumps;
    let sandbox = Sandbox::enter(plan).map_err(|error| error.to_string())?;
    // A change of the user forbids them. The filter of system calls would refuse this.
    set_core_dumps(core_dumps);
    make_folders(config, wants_ublk);
    let held = sandbox.close(&folders(config, file, wants_ublk)).map_err(|error| error.to_string())?;
    Ok(Some(confined(held)))
}

fn set_core_dumps(allowed: bool) {
    if allowed {
        tracing::warn!("sandbox.core_dumps is true: a core dump holds data of volumes, and private keys");
    }
    if let Err(error) = zc_io::set_core_dumps(allowed) {
        tracing::warn!("sandbox.core_dumps = {allowed} cannot be applied: {error}");
    }
}

fn confined(held: Held) -> Confined {
    let Held { uid, capabilities, no_new_privileges, landlock, seccomp, notes } = held;
    Confined { uid, capabilities, no_new_privileges, landlock, seccomp, notes }
}

pub(crate) fn log(confined: Option<&Confined>) {
    let Some(held) = confined else { return };
    let is = |held: bool| if held { "on" } else { "off" };
    tracing::info!(
        "sandbox: user {}, capabilities {}, no new privileges {}, landlock {}, seccomp {}",
        held.uid,
        if held.capabilities.is_empty() { "none".to_owned() } else { held.capabilities.join(" ") },
        is(held.no_new_privileges),
        is(held.landlock),
        is(held.seccomp)
    );
    for note in &held.notes {
        tracing::warn!("sandbox: {note}");
    }
}

const fn step(confine: Confine) -> Requirement {
    match confine {
        Confine::Off => Requirement::Off,
        Confine::Auto => Requirement::Auto,
        Confine::Required => Requirement::Required,
    }
}

fn kept(config: &Config, wants_ublk: bool) -> Vec<Capability> {
    use Capability::{Chown, DacOverride, Fowner, IpcLock, NetBindService, SysAdmin, SysResource};
    let mut kept = vec![DacOverride, Chown, Fowner, IpcLock, SysResource];
    kept.extend(wants_ublk.then_some(SysAdmin));
    let is_low = |address: &std::net::SocketAddr| PRIVILEGED_PORTS.contains(&address.port());
    kept.extend(
        config.nbd.listen.iter().chain(config.metrics.addresses()).any(is_low).then_some(NetBindService),
    );
    kept
}

/// Folders that the daemon creates must exist before the sandbox can allow them. Failures are reported by their users.
fn make_folders(config: &Config, wants_ublk: bool) {
    let make = |folder: &Path, mode| {
        let _reported_later = DirBuilder::new().recursive(true).mode(mode).create(folder);
    };
    make(&config.cache.state_dir, 0o700);
    for socket in config.nbd.unix.iter().chain([&config.control.socket]) {
        make(&parent(socket), 0o755);
    }
    if wants_ublk {
        make(Path::new(zc_ublk::registration::RUN_DIR), 0o755);
    }
}

fn folders(config: &Config, file: &Path, wants_ublk: bool) -> Folders {
    let listen = config.nbd.listen.iter().chain(config.metrics.addresses());
    let mut folders = Folders {
        written: vec![config.cache.state_dir.clone()],
        read: READ.iter().map(PathBuf::from).collect(),
        devices: DEVICES.iter().map(PathBuf::from).collect(),
        ports: Some(listen.map(std::net::SocketAddr::port).collect()),
        connect: servers(config).map(|(_, port)| port).collect(),
    };
    if servers(config).any(|(host, _)| is_name(host)) {
        folders.read.extend(RESOLVER.iter().map(PathBuf::from));
        folders.connect.push(DNS_PORT);
    }
    folders.written.extend(config.sandbox.paths.iter().cloned());
    folders
        .written
        .extend(config.nbd.unix.iter().chain([&config.control.socket]).map(|socket| parent(socket)));
    let raw = config.volumes.iter().filter(|volume| volume.is_raw());
    let origins = raw.map(|volume| &volume.origin).chain(config.stores.iter().map(|store| &store.path));
    let storage = origins.chain([&config.cache.path]).chain(&config.cache.journal_path).cloned().collect();
    for (path, found) in look_at(storage) {
        add_storage(&mut folders, &path, found);
    }
    if wants_ublk {
        folders.devices.push("/dev".into());
        folders.written.push(zc_ublk::registration::RUN_DIR.into());
    }
    let nbd = &config.nbd;
    let tls = [&nbd.tls_certificate, &nbd.tls_key, &nbd.tls_client_ca, &nbd.tls_client_crl];
    let tls = tls.into_iter().flatten().map(PathBuf::as_path);
    for read in tls.chain([file]).chain(origin_tls(config)) {
        folders.read.push(parent(read));
        // Renewed certificates are often links to where they are.
        folders.read.extend(read.canonicalize().ok().map(|real| parent(&real)));
    }
    folders.read.extend(std::env::current_exe());
    folders
}

/// Files that connections with TLS to remote origins need.
fn origin_tls(config: &Config) -> impl Iterator<Item = &Path> {
    let secured = |volume: &&VolumeConfig| volume.remote.as_ref().is_some_and(|uri| uri.tls);
    config.volumes.iter().filter(secured).flat_map(|volume| {
        let of_system = SYSTEM_AUTHORITIES.iter().map(Path::new).filter(|_| volume.origin_tls.ca.is_none());
        volume.origin_tls.files().chain(of_system)
    })
}

/// Hosts and ports of remote origins.
fn servers(config: &Config) -> impl Iterator<Item = (&str, u16)> {
    let remote = config.volumes.iter().filter_map(|volume| volume.remote.as_ref());
    remote.filter_map(|uri| match &uri.endpoint {
        Endpoint::Tcp { host, port } => Some((host.as_str(), *port)),
        Endpoint::Unix { .. } => None,
    })
}

fn is_name(host: &str) -> bool {
    host.parse::<std::net::IpAddr>().is_err()
}

/// Resolves the names of servers once, so that libraries of the C library that resolve them are loaded: the sandbox
/// forbids to map more code.
fn load_resolver(config: &Config) {
    let Some(host) = servers(config).map(|(host, _)| host).find(|host| is_name(host)) else { return };
    let (host, (outcome, answer)) = (host.to_owned(), mpsc::sync_channel(1));
    let resolve = move || {
        // Addresses are resolved again for each connection.
        let _found = (host.as_str(), 0).to_socket_addrs();
        let _too_late = outcome.send(());
    };
    if std::thread::Builder::new().name("resolve".to_owned()).spawn(resolve).is_ok() {
        let _too_late = answer.recv_timeout(LOOK);
    }
}

/// Longest wait for all storage paths together. An unresponsive file server blocks access to its paths.
const LOOK: Duration = Duration::from_secs(5);

/// Properties of a storage path.
#[derive(Debug, Clone, Default)]
struct Storage {
    answers: bool,
    real: Option<PathBuf>,
    is_device: bool,
}

/// Inspects all paths in parallel, each on a thread of its own. Unresponsive ones have fewer properties.
fn look_at(paths: Vec<PathBuf>) -> Vec<(PathBuf, Storage)> {
    let begin = |path: PathBuf| {
        let (outcome, answer) = mpsc::sync_channel(2);
        let wanted = path.clone();
        let look = move || {
            // Existence is irrelevant: the check shows that the file system responds.
            let _there = parent(&wanted).try_exists();
            let folder = Storage { answers: true, ..Storage::default() };
            let _too_late = outcome.send(folder.clone());
            let real = wanted.canonicalize().ok();
            let is_device =
                std::fs::metadata(&wanted).is_ok_and(|metadata| metadata.file_type().is_block_device());
            let _too_late = outcome.send(Storage { real, is_device, ..folder });
        };
        // Without a thread the properties stay unknown, and the daemon later reports that the path is unreachable.
        let _thread = std::thread::Builder::new().name("look".to_owned()).spawn(look);
        (path, answer)
    };
    let looks: Vec<_> = paths.into_iter().map(begin).collect();
    let mut left = LOOK;
    let end = |(path, answer): (PathBuf, mpsc::Receiver<Storage>)| {
        let mut known = Storage::default();
        for _ in 0..2 {
            match answer.recv_timeout(left) {
                Ok(more) => known = more,
                // The others had as long.
                Err(_) => left = Duration::ZERO,
            }
        }
        (path, known)
    };
    looks.into_iter().map(end).collect()
}

/// Adds the path of a cache, journal or origin. Block devices may return under any name.
fn add_storage(folders: &mut Folders, path: &Path, found: Storage) {
    let Storage { answers, real, is_device } = found;
    if is_device || (path.starts_with("/dev") && !path.starts_with("/dev/shm")) {
        folders.devices.push("/dev".into());
        // A device node of an operator's own making.
        folders.devices.extend(real.filter(|real| !real.starts_with("/dev")).map(|real| parent(&real)));
        return;
    }
    if answers {
        folders.written.push(parent(path));
    } else {
        tracing::warn!(
            "sandbox: {} does not answer, so the daemon cannot open files there later; restart it when the path is \
             back",
            path.display()
        );
    }
    folders.written.extend(real.map(|real| parent(&real)));
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => ".".into(),
        Some(parent) => parent.to_owned(),
        None => path.to_owned(),
    }
}
