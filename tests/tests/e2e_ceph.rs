//! An image of Ceph RBD as an origin, with the script of the book: a monitor and one OSD on files, without a manager.
//!
//! In a group of its own: the packages are large.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::path::{Path, PathBuf};
use std::process::Command;

use zc_tests::{Companion, MIB, bounded, require_tool, run_ok};

use crate::e2e_remote::{Load, Place, Server, flush, free_port, map, until_connected, world};

/// The page with the script.
const PAGE: &str = include_str!("../../docs/src/remote.md");
const CLUSTER: &str = "7d2c2f66-3c2d-4e65-9f0f-0c7a5d3d7d10";
const OSD: &str = "1b0e3f7a-87d2-4a0c-ae3f-e1f4d3c4b5a6";
/// Makes an image, or reads all of it: arguments are the configuration, and a file for the bytes of one that is there.
const IMAGE: &str = r#"
import rados, rbd, sys
cluster = rados.Rados(conffile=sys.argv[1])
cluster.connect(timeout=60)
pool = cluster.open_ioctx("rbd")
if len(sys.argv) == 2:
    rbd.RBD().create(pool, "vm", 16 << 20)
else:
    with rbd.Image(pool, "vm", read_only=True) as image, open(sys.argv[2], "wb") as file:
        file.write(image.read(0, image.size()))
"#;

/// A cluster of one monitor and one OSD.
struct Cluster {
    configuration: PathBuf,
    _processes: [Companion; 2],
}

impl Cluster {
    fn start(dir: &Path) -> Self {
        let configuration = dir.join("ceph.conf");
        let place = format!("v2:127.0.0.1:{}", free_port());
        let (mon, osd) = (dir.join("mon"), dir.join("osd"));
        for folder in [&mon, &osd] {
            std::fs::create_dir(folder).expect("cannot make a folder");
        }
        let text = format!(
            "[global]\nfsid = {CLUSTER}\nmon_host = {place}\nmon_initial_members = a\n\
             auth_cluster_required = none\nauth_service_required = none\nauth_client_required = none\n\
             osd_pool_default_size = 1\nosd_pool_default_min_size = 1\nmon_allow_pool_size_one = true\n\
             osd_crush_chooseleaf_type = 0\nosd_objectstore = bluestore\nbluestore_block_size = {}\n\
             log_file = {dir}/$name.log\nrun_dir = {dir}\nadmin_socket = {dir}/$name.asok\n\
             mon_data = {}\nosd_data = {}\n",
            1024 * MIB,
            mon.display(),
            osd.display(),
            dir = dir.display()
        );
        std::fs::write(&configuration, text).expect("cannot write the configuration");
        let run = |program: &str, arguments: &[&str]| {
            run_ok(bounded(program).arg("--conf").arg(&configuration).args(arguments));
        };
        let begin = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(require_tool(program));
            Companion::start(command.arg("--conf").arg(&configuration).args(arguments))
        };
        let monmap = dir.join("monmap").display().to_string();
        run("monmaptool", &["--create", "--fsid", CLUSTER, "--addv", "a", &place, &monmap]);
        run("ceph-mon", &["-i", "a", "--mkfs", "--monmap", &monmap]);
        let monitor = begin("ceph-mon", &["-i", "a", "-f"]);
        // It waits until the monitor answers.
        run("ceph", &["osd", "new", OSD]);
        run("ceph-osd", &["-i", "0", "--mkfs", "--osd-uuid", OSD]);
        let store = begin("ceph-osd", &["-i", "0", "-f"]);
        run("ceph", &["osd", "pool", "create", "rbd", "1"]);
        let cluster = Self { configuration, _processes: [monitor, store] };
        cluster.image(None);
        cluster
    }

    /// Makes the image, or copies it to a file.
    fn image(&self, to: Option<&Path>) {
        let mut python = bounded("/usr/bin/python3");
        run_ok(python.args(["-c", IMAGE]).arg(&self.configuration).args(to));
    }
}

#[test]
fn an_image_of_rbd_is_an_origin() {
    let dir = zc_tests::temp_dir();
    let cluster = Cluster::start(dir.path());
    let (_, rest) = PAGE.split_once("```python\n").expect("the page has the script");
    let (text, _) = rest.split_once("```").expect("it ends");
    let script = dir.path().join("rbd.py");
    std::fs::write(&script, text).expect("cannot write the script");
    let (script, socket) = (script.display().to_string(), dir.path().join("server.sock"));
    let conf = format!("conf={}", cluster.configuration.display());
    let arguments = ["-f", "python", &script, "pool=rbd", "image=vm", &conf];
    let mut server = Server::new(Place::Unix(socket), "nbdkit", &arguments).started();
    let world = world(&server, "mode = \"write-back\"\nmax_dirty_age = \"200 ms\"\n");
    let daemon = world.start();
    assert_eq!(map(&world, "base:allocation"), [(0, 16 * MIB, 3)], "a new image is a hole");
    let load = Load::start(world.connect("disk"), 23);
    for _ in 0..2 {
        load.goes_on(40);
        server.kill();
        until_connected(&world, false);
        server.start();
        until_connected(&world, true);
    }
    load.goes_on(40);
    let expected = load.end();
    flush(&world);
    assert!(daemon.terminate().success());
    server.kill();
    let copy = dir.path().join("copy");
    cluster.image(Some(&copy));
    zc_tests::same(&zc_tests::read_file(&copy), &expected, "the image");
}
