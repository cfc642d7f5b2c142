//! Error messages of the programs, and that nothing is changed then.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use serde_json::json;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};
use zc_tests::{DataGen, MIB, Mount, World, bounded, program, read_file, run_ok, same};

/// Checks that a daemon refuses: exit code 2, nothing on standard output, and each of `says` on one line.
fn refuses(config: &Path, says: &[&str]) {
    let mut command = Command::new(program("zcached"));
    let output = command.arg("--config").arg(config).output().expect("cannot start zcached");
    assert_refusal(&output, says);
}

fn assert_refusal(output: &Output, says: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(output.stdout.is_empty());
    let lines: Vec<&str> =
        text.lines().filter(|line| says.iter().all(|words| line.contains(words))).collect();
    assert_eq!(lines.len(), 1, "one line with {says:?}: {text}");
    assert!(!text.contains("panicked"), "{text}");
}

/// Both ways of reading a configuration refuse it alike, and make nothing.
fn bad_config(world: &World, change: impl Fn(&str) -> String, says: &[&str]) {
    let path = world.configure();
    let text = std::fs::read_to_string(&path).expect("it was written");
    let changed = change(&text);
    assert_ne!(text, changed, "the change finds its place");
    std::fs::write(&path, changed).expect("cannot write the configuration");
    refuses(&path, says);
    let mut check = Command::new(program("zcached"));
    assert_refusal(&check.arg("check-config").arg(&path).output().expect("cannot start zcached"), says);
    for made in ["cache.img", "disk.img", "state", "control.sock", "nbd.sock"] {
        assert!(!world.path(made).exists(), "{made} was made");
    }
}

#[test]
fn mistakes_in_the_configuration_are_named_with_their_line() {
    let world = World::new(16, 16);
    let path = world.configure();
    run_ok(Command::new(program("zcached")).arg("check-config").arg(&path));
    bad_config(&world, |text| text.replace("weu_max_age", "weu_max_aeg"), &["zcached.toml:5", "weu_max_aeg"]);
    bad_config(&world, |text| text.replace("16 MiB", "16 Mib"), &["zcached.toml:4", "16 Mib"]);
    bad_config(&world, |text| text.replace("100 ms", "100 lightyears"), &["zcached.toml:5", "lightyears"]);
    bad_config(
        &world,
        |text| text.replace("disk.img", "cache.img"),
        &["zcached.toml:", "cache.img", "used already"],
    );
    bad_config(&world, |text| text.replace("[control]", "[control"), &["zcached.toml:"]);
    refuses(&world.path("no-such.toml"), &["no-such.toml"]);
}

#[test]
fn a_missing_origin_is_an_error_and_nothing_is_made() {
    let mut world = World::new(16, 16);
    let origin = world.path("absent.img");
    world.volumes[0].2 = format!("origin = \"{}\"\n", origin.display());
    let output = Command::new(program("zcached")).arg("--config").arg(world.configure()).output();
    let output = output.expect("cannot start zcached");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("absent.img: No such file"),
        "it says which file"
    );
    assert!(!origin.exists() && !world.cache_file().exists());
}

#[test]
fn a_second_daemon_on_the_same_cache_is_refused_and_the_first_goes_on() {
    let world = World::new(16, 16);
    let daemon = world.start();
    let other = World::new(16, 16);
    let text = std::fs::read_to_string(other.configure()).expect("it was written");
    let (theirs, ours) = (other.cache_file(), world.cache_file());
    let stolen = text.replace(&theirs.display().to_string(), &ours.display().to_string());
    assert_ne!(text, stolen);
    std::fs::write(other.path("zcached.toml"), stolen).expect("cannot write the configuration");
    let mut second = Command::new(program("zcached"));
    second.arg("--config").arg(other.path("zcached.toml"));
    let output = second.output().expect("cannot start zcached");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{said}");
    assert!(said.contains("cache.img") && !said.contains("panicked"), "{said}");
    world.connect("disk").write(0, &[1; 4096]).expect("the first daemon still serves");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn dirty_data_of_another_origin_is_refused_and_nothing_is_touched() {
    let mut world = World::new(64, 16);
    world.cache.push_str("destage_idle = \"1 h\"\n");
    world.volumes[0].2 = "mode = \"write-back\"\n".to_owned();
    let daemon = world.start();
    world.connect("disk").write(0, &DataGen::new(1, 8192).mixed(512)).expect("write");
    assert_eq!(daemon.terminate().code(), Some(0));
    let other = world.path("other.img");
    std::fs::write(&other, vec![3; usize::try_from(16 * MIB).expect("small")])
        .expect("cannot make an origin");
    world.volumes[0].2 = format!("mode = \"write-back\"\norigin = \"{}\"\n", other.display());
    let before = [read_file(&world.cache_file()), read_file(&world.origin("disk")), read_file(&other)];
    refuses(&world.configure(), &["is another file under the same name", "--drop-dirty disk", "other.img"]);
    let after = [read_file(&world.cache_file()), read_file(&world.origin("disk")), read_file(&other)];
    for (before, after) in before.iter().zip(&after) {
        same(after, before, "a file of a refused start");
    }
    // The right origin is still served, warm.
    world.volumes[0].2.clear();
    let daemon = world.start();
    world.loaded();
    // Dirty data is in the index once it is on the origin.
    while world.counter("file_index_len") == 0 {}
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_reload_changes_the_mode_and_names_what_it_cannot_change() {
    let mut world = World::new(16, 16);
    let daemon = world.start();
    assert_eq!(world.status()["volumes"][0]["info"]["mode"], "write-through");
    world.volumes[0].2 = "mode = \"write-around\"\n".to_owned();
    let _config = world.configure();
    daemon.signal(rustix::process::Signal::HUP);
    world.stats_until("the mode changes", |_| world.status()["volumes"][0]["info"]["mode"] == "write-around");
    world.cache.push_str("discard = true\n");
    let _config = world.configure();
    let answer = world.control(&json!({ "cmd": "reload" }));
    assert!(answer["ok"] == true && answer["needs_restart"].to_string().contains("discard"), "{answer}");
    let answer = world.control(&json!({ "cmd": "sing" }));
    assert!(answer["ok"] == false && answer["error"].is_string(), "{answer}");
    // Connections that the data plane has no places for are refused, and nothing else is applied.
    for (connections, mode, fits) in [(4096, "write-through", true), (4097, "write-back", false)] {
        world.nbd = format!("connections_max = {connections}\n");
        world.volumes[0].2 = format!("mode = \"{mode}\"\n");
        let _config = world.configure();
        let answer = world.control(&json!({ "cmd": "reload" }));
        assert_eq!(answer["ok"], fits, "{answer}");
    }
    assert_eq!(world.status()["volumes"][0]["info"]["mode"], "write-through");
    // A reload of a file with mistakes changes nothing and reports why.
    std::fs::write(world.path("zcached.toml"), "[cache]\npath = 7\n")
        .expect("cannot write the configuration");
    let answer = world.control(&json!({ "cmd": "reload" }));
    assert!(answer["ok"] == false && answer["error"].to_string().contains(":2"), "{answer}");
    world.connect("disk").write(0, &[1; 4096]).expect("it goes on serving");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_reload_names_the_mode_that_it_sets_back() {
    let world = World::new(16, 16);
    let daemon = world.start();
    assert_eq!(world.zcctl_output(&["set-mode", "disk", "pass-through"]).status.code(), Some(0));
    let answer = world.control(&json!({ "cmd": "reload" }));
    assert_eq!(answer["applied"], json!(["volume \"disk\": mode"]), "{answer}");
    assert_eq!(world.status()["volumes"][0]["info"]["mode"], "write-through");
    let answer = world.control(&json!({ "cmd": "reload" }));
    assert_eq!(answer["applied"], json!([]), "{answer}");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn answers_about_dirty_data_name_volumes_that_there_are_and_do_not_contradict_each_other() {
    let world = World::new(16, 16);
    for flag in ["--drop-dirty", "--trust-dirty"] {
        let said = world.refused(&[flag, "nope"]);
        assert!(said.contains("\"nope\"") && said.contains("there are disk"), "{said}");
    }
    let said = world.refused(&["--drop-dirty", "disk", "--trust-dirty", "disk"]);
    assert!(said.contains("exclude each other"), "{said}");
    assert!(!world.cache_file().exists());
}

#[test]
fn a_cache_file_has_its_space_when_it_is_made_or_is_not_made() {
    let mut world = World::new(16, 16);
    let daemon = world.start();
    let file = std::fs::metadata(world.cache_file()).expect("it was made");
    assert!(file.blocks() * 512 >= 16 * MIB, "{} blocks of 512 bytes", file.blocks());
    assert_eq!(daemon.terminate().code(), Some(0));
    // In a file system that is smaller.
    let small = Mount::new(&["-t", "tmpfs", "-o", "size=8m", "tmpfs"], world.path("small"));
    world.cache.push_str("direct = false\n");
    world.cache_path = small.path().join("cache.img");
    let said = world.refused(&["--cold"]);
    assert!(said.contains("there is no space for") && said.contains("small/cache.img"), "{said}");
    assert!(!world.cache_file().exists(), "a file was left behind");
}

#[test]
fn settings_that_do_not_do_what_they_say_are_pointed_out() {
    let mut world = World::new(16, 16);
    let said =
        |daemon: &zc_tests::Daemon| String::from_utf8_lossy(&read_file(daemon.log_path())).into_owned();
    let daemon = world.start();
    assert!(!said(&daemon).contains("WARN"), "{}", said(&daemon));
    assert_eq!(daemon.terminate().code(), Some(0));
    // The file stays as large as it is.
    world.cache = world.cache.replace("16 MiB", "32 MiB");
    let daemon = world.start();
    assert!(said(&daemon).contains("keeps its size, 16 MiB; cache.size, 32 MiB"), "{}", said(&daemon));
    assert_eq!(daemon.terminate().code(), Some(0));
    // 1 MiB of indexes is too little for a gigabyte.
    let mut world = World::new(16, 16);
    world.cache = "max_ram = \"1 MiB\"\nlearned_recipes = 0\n".to_owned();
    let file = std::fs::File::create(world.cache_file()).expect("cannot make the cache");
    file.set_len(1 << 30).expect("cannot make the cache");
    let daemon = world.start();
    assert!(said(&daemon).contains("max_ram, 1 MiB, is enough to index"), "{}", said(&daemon));
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_block_device_that_is_read_only_is_refused_at_the_start() {
    let mut world = World::new(16, 16);
    let image = world.path("image");
    let file = std::fs::File::create(&image).expect("cannot make an image");
    file.set_len(16 * MIB).expect("cannot make an image");
    let device = run_ok(Command::new("losetup").args(["--read-only", "--show", "--find"]).arg(&image)).stdout;
    let device = String::from_utf8(device).expect("a path").trim().to_owned();
    world.volumes[0].2 = format!("origin = \"{device}\"\n");
    let mut refused = bounded("env");
    let origin = refused.arg(program("zcached")).arg("--config").arg(world.configure()).output();
    world.volumes[0].2.push_str("mode = \"read-only\"\n");
    let daemon = world.start();
    let end = daemon.terminate();
    run_ok(Command::new("losetup").args(["--detach", &device]));
    let origin = origin.expect("cannot start zcached");
    let said = String::from_utf8_lossy(&origin.stderr);
    assert_eq!(origin.status.code(), Some(1), "{said}");
    assert!(said.contains(&device) && said.contains("the device is read-only"), "{said}");
    assert_eq!(end.code(), Some(0), "as a read-only volume it is served");
}

#[test]
fn zcctl_stop_returns_when_the_daemon_has_ended() {
    let world = World::new(16, 16);
    // Ended, also before its parent has read its status.
    let has_ended = |pid: u32| match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) => true,
    };
    let daemon = world.start();
    world.connect("disk").write(0, &DataGen::new(1, 8192).mixed(1024)).expect("write");
    let output = world.zcctl_output(&["stop"]);
    assert!(has_ended(daemon.pid()), "{output:?}");
    // The daemon may not have seen yet that the client is gone, and name it.
    assert!(output.status.code() == Some(0) && output.stdout.ends_with(b"stopped\n"), "{output:?}");
    assert_eq!(daemon.wait().code(), Some(0));
    let daemon = world.start();
    let output = world.zcctl_output(&["stop", "--no-wait"]);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"stopping\n"[..]));
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn what_clients_ask_is_counted_for_each_volume() {
    let mut world = World::new(16, 16);
    world.volumes.push(("other".to_owned(), MIB, String::new()));
    let daemon = world.start();
    let mut client = world.connect("disk");
    client.write(0, &DataGen::new(1, 8192).mixed(8)).expect("write");
    world.inserted();
    client.read(0, 8192).expect("a hit");
    client.read(8 * MIB, 4096).expect("a miss");
    client.flush().expect("flush");
    let status = world.status();
    let (disk, other) = (&status["volumes"][0]["traffic"], &status["volumes"][1]["traffic"]);
    let expected = json!({
        "reads": 2, "read_bytes": 12288, "hits": 1, "misses": 1, "mixed": 0, "writes": 1, "write_bytes": 65536,
        "trims": 0, "trim_bytes": 0, "flushes": 1, "failed": 0, "failed_by_device": 0, "origin_errors": 0,
    });
    assert_eq!(*disk, expected);
    assert!(other.as_object().is_some_and(|counts| counts.values().all(|count| *count == 0)), "{other}");
    assert_eq!(world.stats()["traffic"]["disk"], expected);
    let slots = &status["cache"]["slots"];
    assert!(slots[0].as_u64() >= Some(1) && slots[0].as_u64() < slots[1].as_u64(), "{slots}");
    assert_eq!(status["stopping"], false);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn zcctl_shows_a_running_daemon_and_a_stopped_cache() {
    let world = World::new(16, 16);
    let daemon = world.start();
    world.connect("disk").write(0, &DataGen::new(1, 8192).mixed(1024)).expect("write");
    world.settled();
    assert_eq!(world.zcctl("status")["volumes"][0]["name"], "disk");
    assert!(world.zcctl("stats")["manager"]["insert_stored"].as_u64() > Some(0));
    let mut text = Command::new(program("zcctl"));
    let shown = run_ok(text.args(["stats", "--socket"]).arg(world.path("control.sock")));
    assert!(!shown.stdout.is_empty());
    // The same by the options before the command, and by the variable.
    let mut before = Command::new(program("zcctl"));
    run_ok(before.arg("--socket").arg(world.path("control.sock")).args(["--json", "status"]));
    let mut named = Command::new(program("zcctl"));
    run_ok(named.env("ZCACHED_SOCKET", world.path("control.sock")).arg("status"));
    assert_eq!(daemon.terminate().code(), Some(0));
    let zcctl = |arguments: &[&str]| {
        let mut command = Command::new(program("zcctl"));
        command.args(arguments).arg(world.cache_file()).output().expect("cannot start zcctl")
    };
    let check = zcctl(&["check", "--data"]);
    assert_eq!(check.status.code(), Some(0), "{check:?}");
    let dump = zcctl(&["dump", "--json", "--slot", "0", "weu"]);
    assert_eq!(dump.status.code(), Some(0), "{dump:?}");
    let header: serde_json::Value = serde_json::from_slice(&dump.stdout).expect("dump --json writes JSON");
    assert!(header.is_object(), "{header}");
    for structure in ["superblock", "volumes", "regions", "checkpoint", "journal"] {
        let dump = zcctl(&["dump", "--json", structure]);
        assert_eq!(dump.status.code(), Some(0), "{structure}: {dump:?}");
    }
}

/// The CPUs on which a thread of a process may run, by the thread's name.
fn cpus_of(pid: u32, name: &str) -> Option<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let mut threads = threads.map(|thread| thread.expect("a thread").path());
    let thread = threads
        .find(|thread| std::fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.trim() == name))?;
    let status = std::fs::read_to_string(thread.join("status")).expect("its status");
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(cpus.trim().to_owned())
}

#[test]
fn threads_run_where_the_configuration_says() {
    let of_ours = rustix::thread::sched_getaffinity(None).expect("our CPUs");
    let cpus: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| of_ours.is_set(cpu)).collect();
    let (first, last) = (cpus[0].to_string(), cpus[cpus.len() - 1].to_string());
    let mut world = World::new(16, 16);
    world.cache.push_str(&format!("shard_cpus = \"{last}\"\nreduce_cpus = [{first}]\nreduce_threads = 1\n"));
    let daemon = world.start();
    // Both have begun their work when they have done some.
    world.connect("disk").write(0, &DataGen::new(1, 8192).mixed(256)).expect("write");
    world.settled();
    assert_eq!(cpus_of(daemon.pid(), "shard-0"), Some(last));
    assert_eq!(cpus_of(daemon.pid(), "reduce-0"), Some(first));
    assert_eq!(cpus_of(daemon.pid(), "control"), cpus_of(daemon.pid(), "zcached"), "and no other thread");
}

/// A daemon that ends between the connection and the question, as one that waits for its cache did: whatever moment it
/// is, that is no success.
#[test]
fn a_connection_that_is_closed_at_once_is_a_failure() {
    const TRIES: usize = 40;
    let dir = tempfile::tempdir().expect("cannot make a directory");
    let socket = dir.path().join("control.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("cannot listen");
    let status = || {
        let mut command = Command::new(program("zcctl"));
        command.arg("status").arg("--socket").arg(&socket).output().expect("cannot start zcctl")
    };
    let outputs: Vec<Output> = std::thread::scope(|scope| {
        scope.spawn(|| (0..TRIES).for_each(|_| drop(listener.accept().expect("cannot accept"))));
        (0..TRIES).map(|_| status()).collect()
    });
    for output in outputs {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(!output.stderr.is_empty(), "{output:?}");
    }
}
