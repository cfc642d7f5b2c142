//! Access rules: TLS with certificates, rules per export, modes of sockets, passed sockets.

#![expect(clippy::unwrap_used, reason = "a test; what fails here is a failure")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use zc_tests::{
    DataGen, MIB, World, authority, bounded, certificate, program, python_nbd, require_tool, run_ok,
};

fn tool(name: &str, arguments: &[&str]) -> String {
    let output = run_ok(bounded(name).args(arguments));
    String::from_utf8(output.stdout).unwrap_or_else(|_| panic!("{name} writes text"))
}

/// Returns the error output of a failing tool.
fn failure(name: &str, arguments: &[&str]) -> String {
    let output = bounded(name).args(arguments).output().unwrap();
    assert!(!output.status.success(), "{name} {arguments:?} should fail");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Creates a folder in the layout of libnbd and qemu: authority and the client's pair.
fn client_folder(from: &Path, to: &Path, name: &str) {
    std::fs::create_dir_all(to).unwrap();
    for (source, target) in [
        ("ca-cert.pem".to_owned(), "ca-cert.pem"),
        (format!("{name}-cert.pem"), "client-cert.pem"),
        (format!("{name}-key.pem"), "client-key.pem"),
    ] {
        std::fs::copy(from.join(source), to.join(target)).unwrap();
    }
}

/// Authority, a server and two clients, in `tls/`; a world that uses them.
fn tls_world(mode: &str, client_ca: bool) -> World {
    let mut world = World::new(16, 32);
    let dir = world.path("tls");
    authority(&dir);
    certificate(&dir, "server", "localhost");
    for name in ["one", "two"] {
        certificate(&dir, name, &format!("{name}.example"));
        client_folder(&dir, &world.path(name), name);
    }
    let path = dir.display();
    world.nbd = format!(
        "tls = \"{mode}\"\ntls_certificate = \"{path}/server-cert.pem\"\ntls_key = \"{path}/server-key.pem\"\n"
    );
    if client_ca {
        world.nbd.push_str(&format!("tls_client_ca = \"{path}/ca-cert.pem\"\n"));
    }
    world
}

fn tls_uri(world: &World, volume: &str, client: &str) -> String {
    let (socket, folder) = (world.path("nbd.sock"), world.path(client));
    format!(
        "nbds+unix://localhost/{volume}?socket={}&tls-certificates={}",
        socket.display(),
        folder.display()
    )
}

#[test]
fn tls_serves_libnbd_and_qemu_and_nothing_else_when_required() {
    let world = tls_world("required", true);
    let daemon = world.start();
    let bytes = DataGen::new(1, 8192).mixed(4096);
    let image = world.path("image").display().to_string();
    std::fs::write(&image, &bytes).unwrap();
    let uri = tls_uri(&world, "disk", "one");
    assert!(tool("nbdinfo", &[&uri]).contains("TLS"), "over TLS");
    tool("nbdcopy", &["--flush", &image, &uri]);
    world.origin_is("disk", &bytes);
    let back = world.path("back").display().to_string();
    tool("nbdcopy", &[&uri, &back]);
    assert!(std::fs::read(&back).unwrap() == bytes, "what came back over TLS");
    let credentials = format!("tls-creds-x509,id=t,endpoint=client,dir={}", world.path("two").display());
    let options = format!(
        "driver=nbd,export=disk,server.type=unix,server.path={},tls-creds=t,tls-hostname=localhost",
        world.path("nbd.sock").display()
    );
    tool(
        "qemu-img",
        &[
            "compare",
            "--object",
            &credentials,
            "--image-opts",
            &options,
            &format!("driver=raw,file.filename={image}"),
        ],
    );
    failure("nbdinfo", &[&world.uri("disk")]);
    // A certificate that no authority signed.
    let stranger = world.path("strangers");
    authority(&stranger);
    certificate(&stranger, "evil", "one.example");
    let folder = world.path("evil");
    client_folder(&stranger, &folder, "evil");
    std::fs::copy(world.path("tls/ca-cert.pem"), folder.join("ca-cert.pem")).unwrap();
    failure("nbdinfo", &["--size", &tls_uri(&world, "disk", "evil")]);
    assert_eq!(tool("nbdinfo", &["--size", &uri]).trim(), (32 * MIB).to_string());
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn exports_are_for_those_whose_certificate_names_them() {
    let mut world = tls_world("allowed", true);
    world.volumes.push((
        "own".to_owned(),
        4 * MIB,
        "nbd.allow_certificates = [\"two.example\"]\n".to_owned(),
    ));
    world.volumes.push(("secret".to_owned(), 4 * MIB, "nbd.tls = true\n".to_owned()));
    let daemon = world.start();
    let list = |uri: &str| tool("nbdinfo", &["--list", "--json", uri]);
    let plain = list(&world.uri(""));
    assert!(
        plain.contains("\"disk\"") && !plain.contains("\"own\"") && !plain.contains("\"secret\""),
        "{plain}"
    );
    failure("nbdinfo", &["--size", &world.uri("secret")]);
    let one = list(&tls_uri(&world, "", "one"));
    assert!(one.contains("\"secret\"") && !one.contains("\"own\""), "{one}");
    failure("nbdinfo", &["--size", &tls_uri(&world, "own", "one")]);
    assert_eq!(tool("nbdinfo", &["--size", &tls_uri(&world, "own", "two")]).trim(), (4 * MIB).to_string());
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_renewed_certificate_takes_effect_at_a_reload() {
    let world = tls_world("required", true);
    let daemon = world.start();
    let uri = tls_uri(&world, "disk", "one");
    let size = || tool("nbdinfo", &["--size", &uri]);
    size();
    // Another authority, and other pairs under the same names.
    let tls = world.path("tls");
    authority(&tls);
    certificate(&tls, "server", "localhost");
    certificate(&tls, "one", "one.example");
    size();
    let reload = serde_json::json!({ "cmd": "reload" });
    assert_eq!(world.control(&reload)["ok"], true);
    failure("nbdinfo", &["--size", &uri]);
    client_folder(&tls, &world.path("one"), "one");
    size();
    // One that cannot be read leaves the old one in force.
    std::fs::write(world.path("tls/server-cert.pem"), "nothing").unwrap();
    assert_eq!(world.control(&reload)["ok"], false);
    size();
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// A client whose connection stays open.
struct Held(Child, BufReader<ChildStdout>);

impl Held {
    fn connect(uri: &str) -> Self {
        let mut python = python_nbd();
        python.args(["-c", include_str!("clients/held.py"), uri]);
        let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut held = Self(child, said);
        assert_eq!(held.line(), "connected\n");
        held
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line
    }

    /// Returns the result of a read.
    fn read(&mut self) -> String {
        self.0.stdin.as_mut().unwrap().write_all(b"read\n").unwrap();
        self.line()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
fn connections_end_with_the_authority_that_let_them_in() {
    let world = tls_world("allowed", true);
    let daemon = world.start();
    let tls = world.path("tls");
    let (mut one, mut two) =
        (Held::connect(&tls_uri(&world, "disk", "one")), Held::connect(&tls_uri(&world, "disk", "two")));
    let mut plain = Held::connect(&world.uri("disk"));
    let reload = serde_json::json!({ "cmd": "reload" });
    assert_eq!(world.control(&reload)["ok"], true);
    assert_eq!([one.read(), two.read(), plain.read()], ["served\n"; 3], "the same authority");
    // A second authority for a while, and a client with its certificate.
    let authorities = tls.join("ca-cert.pem");
    let old = std::fs::read(&authorities).unwrap();
    authority(&tls);
    certificate(&tls, "three", "three.example");
    let new = std::fs::read(&authorities).unwrap();
    std::fs::write(&authorities, [&old[..], &new[..]].concat()).unwrap();
    client_folder(&tls, &world.path("three"), "three");
    assert_eq!(world.control(&reload)["ok"], true);
    let mut three = Held::connect(&tls_uri(&world, "disk", "three"));
    assert_eq!([one.read(), two.read(), three.read()], ["served\n"; 3], "both authorities");
    std::fs::write(&authorities, &new).unwrap();
    assert_eq!(world.control(&reload)["ok"], true);
    assert_eq!([one.read(), two.read()], ["ended\n"; 2], "the old one is gone");
    assert_eq!([three.read(), plain.read()], ["served\n"; 2]);
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// An authority's record of its signatures, beside its certificate.
struct Record {
    config: String,
    lists: PathBuf,
}

impl Record {
    /// Begins one for the authority in `dir`, with a list of nothing in `DIR/crl.pem`.
    fn begin(dir: &Path) -> Self {
        let (config, path) = (dir.join("record.cnf"), dir.display());
        let text = format!(
            "[ca]\ndefault_ca=own\n[own]\ndatabase={path}/index\ncrlnumber={path}/number\ndefault_md=sha256\n\
             default_crl_days=30\ncertificate={path}/ca-cert.pem\nprivate_key={path}/ca-key.pem\n"
        );
        std::fs::write(&config, text).unwrap();
        std::fs::write(dir.join("index"), "").unwrap();
        std::fs::write(dir.join("number"), "01\n").unwrap();
        let record = Self { config: config.display().to_string(), lists: dir.join("crl.pem") };
        record.list();
        record
    }

    fn openssl(&self, arguments: &[&str]) {
        run_ok(Command::new(require_tool("openssl")).args(["ca", "-config", &self.config]).args(arguments));
    }

    /// Rewrites the list.
    fn list(&self) {
        self.openssl(&["-gencrl", "-out", &self.lists.display().to_string()]);
    }

    /// Revokes a certificate in the record, and rewrites the list.
    fn revoke(&self, name: &str) {
        self.openssl(&[
            "-revoke",
            &self.lists.with_file_name(format!("{name}-cert.pem")).display().to_string(),
        ]);
        self.list();
    }
}

#[test]
fn a_revoked_certificate_ends_its_connections_and_lets_no_client_in() {
    let mut world = tls_world("allowed", true);
    let tls = world.path("tls");
    let record = Record::begin(&tls);
    world.nbd.push_str(&format!("tls_client_crl = \"{}\"\n", record.lists.display()));
    let daemon = world.start();
    let [one, two] = ["one", "two"].map(|name| tls_uri(&world, "disk", name));
    let mut held = [Held::connect(&one), Held::connect(&two), Held::connect(&world.uri("disk"))];
    record.revoke("one");
    assert_eq!(held[0].read(), "served\n", "the daemon has not read the list yet");
    let reload = serde_json::json!({ "cmd": "reload" });
    assert_eq!(world.control(&reload)["ok"], true);
    assert_eq!(held.each_mut().map(Held::read), ["ended\n", "served\n", "served\n"]);
    failure("nbdinfo", &["--size", &one]);
    tool("nbdinfo", &["--size", &two]);
    // Lists that cannot be read leave the old ones in force, and check-config names them.
    let good = std::fs::read(&record.lists).unwrap();
    for (bytes, says) in [
        (&b"nothing"[..], "the revocation lists cannot be read: there are none in PEM form"),
        (b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "not a revocation list"),
    ] {
        std::fs::write(&record.lists, bytes).unwrap();
        let refused = world.control(&reload);
        assert!(refused["error"].as_str().is_some_and(|error| error.contains(says)), "{refused}");
        let config = world.configure().display().to_string();
        let said = failure(&program("zcached").display().to_string(), &["check-config", &config]);
        assert!(said.contains("crl.pem") && said.contains(says), "{said}");
    }
    assert_eq!(held[1].read(), "served\n");
    failure("nbdinfo", &["--size", &one]);
    // The list of another authority does not cover this one's certificates: that is a refusal.
    let stranger = world.path("stranger");
    authority(&stranger);
    let other = Record::begin(&stranger);
    std::fs::copy(&other.lists, &record.lists).unwrap();
    assert_eq!(world.control(&reload)["ok"], true);
    assert_eq!([held[1].read(), held[2].read()], ["ended\n", "served\n"]);
    failure("nbdinfo", &["--size", &two]);
    std::fs::write(&record.lists, [&good[..], &std::fs::read(&other.lists).unwrap()].concat()).unwrap();
    assert_eq!(world.control(&reload)["ok"], true);
    tool("nbdinfo", &["--size", &two]);
    let log = daemon.log_path().to_owned();
    assert_eq!(daemon.terminate().code(), Some(0));
    let log = std::fs::read_to_string(log).unwrap();
    for line in ["client disconnected by a reload: its certificate is no longer valid", "client refused"] {
        let revoked = |logged: &str| logged.contains(line) && logged.contains("Revoked");
        assert!(log.lines().any(revoked), "{line}: {log}");
    }
}

#[test]
fn unix_sockets_have_the_mode_they_are_given() {
    let mut world = World::new(16, 4);
    world.nbd = "unix_mode = \"0640\"\n".to_owned();
    let daemon = world.start();
    let mode = std::fs::metadata(world.path("nbd.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn sockets_that_are_there_already_are_served() {
    let world = World::new(16, 4);
    let config = world.configure().display().to_string();
    let zcached = program("zcached").display().to_string();
    let mut python = python_nbd();
    python.args(["-c", include_str!("clients/passed.py"), &zcached, "nbd", "--config", &config]);
    assert_eq!(run_ok(&mut python).stdout, b"all of it\n");
    let size = tool("nbdinfo", &["--size", "--", "[", &zcached, "nbd", "--stdio", "--config", &config, "]"]);
    assert_eq!(size.trim(), (4 * MIB).to_string());
    let said = failure("sh", &["-c", &format!("exec {zcached} nbd --config {config}")]);
    assert!(said.contains("LISTEN_FDS"), "{said}");
    let said = failure("sh", &["-c", &format!("exec {zcached} nbd --stdio --config {config} </dev/null")]);
    assert!(said.contains("not a socket"), "{said}");
}
