//! Effects of the sandbox, observed from within: each test confines a thread of its own.
#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::fs;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::Gid;
use zc_sandbox::{Capability, Folders, Held, Plan, Requirement, Sandbox, SandboxError, User};

const NOTHING: Plan = Plan {
    user: None,
    capabilities: Requirement::Off,
    keep: Vec::new(),
    landlock: Requirement::Off,
    seccomp: Requirement::Off,
};

/// Applies the plan on a new thread, and runs the test there.
fn within<T: Send + 'static>(
    plan: Plan,
    folders: Folders,
    then: impl FnOnce(Held) -> T + Send + 'static,
) -> T {
    let thread = std::thread::spawn(move || {
        if rustix::process::geteuid().is_root() {
            // A group that must be dropped.
            rustix::thread::set_thread_groups(&[Gid::from_raw(7)]).expect("root may");
        }
        let held =
            Sandbox::enter(plan).and_then(|sandbox| sandbox.close(&folders)).expect("the kernel lets us");
        then(held)
    });
    thread.join().expect("the thread ends")
}

fn denied<T>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

#[test]
fn files_outside_of_the_folders_are_inaccessible() {
    let [ours, read, others] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    for dir in [&ours, &read, &others] {
        fs::write(dir.path().join("file"), "text").unwrap();
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = server.local_addr().unwrap();
    let folders = Folders {
        written: vec![ours.path().to_owned(), "/nothing/is/here".into()],
        read: vec![read.path().to_owned()],
        devices: vec!["/dev/zero".into()],
        ports: Some(vec![0]),
        connect: vec![origin.port()],
    };
    let (own, looked, foreign) = (ours.path().to_owned(), read.path().to_owned(), others.path().join("file"));
    let plan = Plan { landlock: Requirement::Required, ..NOTHING };
    within(plan, folders, move |held| {
        assert!(held.landlock && held.no_new_privileges && !held.seccomp, "{held:?}");
        fs::write(own.join("new"), "text").unwrap();
        fs::rename(own.join("new"), own.join("renamed")).unwrap();
        fs::remove_file(own.join("renamed")).unwrap();
        assert_eq!(fs::read(looked.join("file")).unwrap(), b"text");
        assert!(denied(fs::write(looked.join("file"), "")));
        assert!(denied(fs::read(&foreign)) && denied(fs::remove_file(&foreign)));
        assert!(denied(fs::read("/etc/passwd")));
        fs::File::open("/dev/zero").unwrap();
        assert!(Command::new("/bin/true").spawn().is_err(), "nothing is executed");
        TcpListener::bind("127.0.0.1:0").unwrap();
        // Network rules need Linux 6.7; an older kernel reports them in the notes.
        if held.notes.is_empty() {
            assert!(denied(TcpStream::connect(address)));
            TcpStream::connect(origin).expect("a port of an origin");
        }
    });
    TcpStream::connect(address).expect("other threads are as they were");
}

#[test]
fn system_calls_that_no_serving_daemon_makes_are_refused() {
    let plan = Plan { seccomp: Requirement::Required, ..NOTHING };
    within(plan, Folders::default(), |held| {
        assert!(held.seccomp && held.no_new_privileges && !held.landlock, "{held:?}");
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "text").unwrap();
        assert_eq!(fs::metadata(dir.path().join("file")).unwrap().len(), 4);
        assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
        assert!(Command::new("/bin/true").spawn().is_err(), "nothing is executed");
        let refused = |error: rustix::io::Errno| error == rustix::io::Errno::NOSYS;
        assert!(socket(AddressFamily::NETLINK, SocketType::RAW, None).is_err_and(refused));
        socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        assert!(rustix::process::chroot(dir.path()).is_err_and(refused));
        assert!(rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).is_err_and(refused));
    });
}

#[test]
fn capabilities_but_those_that_are_kept_are_gone_for_good() {
    let is_root = rustix::process::geteuid().is_root();
    let plan = Plan {
        capabilities: Requirement::Required,
        keep: vec![Capability::Chown, Capability::Fowner],
        ..NOTHING
    };
    within(plan, Folders::default(), move |held| {
        let expected: &[&str] = if is_root { &["CHOWN", "FOWNER"] } else { &[] };
        assert_eq!(held.capabilities, expected);
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if is_root {
            assert_eq!(line("CapBnd:"), Some("0000000000000009"));
        }
        assert_eq!(line("CapInh:"), Some("0000000000000000"));
        assert_eq!((line("NoNewPrivs:"), line("Seccomp:")), (Some("0"), Some("0")), "other steps are off");
    });
}

#[test]
fn another_user_is_assumed_with_its_groups_and_without_a_way_back() {
    let user = User::find("54321:54322").unwrap();
    let plan =
        Plan { user: Some(user), capabilities: Requirement::Auto, keep: vec![Capability::Chown], ..NOTHING };
    if !rustix::process::geteuid().is_root() {
        let refused = std::thread::spawn(|| Sandbox::enter(plan).map(|_| ())).join().unwrap();
        assert!(matches!(refused, Err(SandboxError::User { user: 54321, .. })), "{refused:?}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(54321), None).unwrap();
    let own = dir.path().join("file");
    within(plan, Folders::default(), move |held| {
        assert_eq!((held.uid, held.capabilities.len()), (54321, 0), "{held:?}");
        fs::write(&own, "text").unwrap();
        let made = fs::metadata(&own).unwrap();
        assert_eq!((made.uid(), made.gid()), (54321, 54322));
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        assert!(
            status.lines().any(|line| line.trim_end() == "Groups:"),
            "no group of root's is left: {status}"
        );
        assert!(denied(fs::read("/etc/shadow")));
        assert!(rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).is_err());
    });
}
