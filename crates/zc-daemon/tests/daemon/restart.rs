//! Stopping, starting, pairing.

use crate::rig::{Rig, content, counter, random, wait_for_insertions};

#[test]
fn a_second_start_is_warm() {
    let rig = Rig::new();
    let data = content(&mut random(1), 4 << 20);
    let daemon = rig.start_warm(&data);
    let mut client = rig.client("v");
    assert_eq!(client.read(0, data.len()).unwrap(), data);
    let (hits, misses) = (counter(&daemon, "extent_hits_device"), counter(&daemon, "extent_misses"));
    assert!(hits >= 500 && misses == 0, "{hits} hits, {misses} misses of 512");
    assert!(daemon.stop().unwrap());
}

#[test]
fn a_start_reads_the_index_image_of_a_clean_stop_unless_it_is_damaged() {
    let mut rig = Rig::new();
    // With smaller extents, the index of a cache of this size exceeds the space for its image.
    rig.cache = "extent_size = \"16 KiB\"".to_owned();
    let data = content(&mut random(5), 2 << 20);
    let daemon = rig.start(&["v"]);
    rig.client("v").write(0, &data).unwrap();
    assert!(daemon.stop().unwrap());
    for is_damaged in [false, true] {
        if is_damaged {
            let mut cache = std::fs::read(rig.path("cache.img")).unwrap();
            let piece = cache.windows(4).position(|bytes| bytes == b"zcIp").expect("there is an image");
            cache[piece + 80] ^= 1;
            std::fs::write(rig.path("cache.img"), cache).unwrap();
        }
        let daemon = rig.start(&["v"]);
        while daemon.stats().unwrap().index_loaded_ms.is_none() {}
        assert_eq!(rig.client("v").read(0, data.len()).unwrap(), data);
        let count = |name| counter(&daemon, name);
        let start = (count("load_by_image"), count("load_image_refused"), count("load_headers") > 0);
        assert_eq!(start, (u64::from(!is_damaged), u64::from(is_damaged), is_damaged));
        assert_eq!(count("extent_misses"), 0);
        assert!(daemon.stop().unwrap());
    }
}

#[test]
fn a_cold_start_believes_nothing_and_serves_everything() {
    let rig = Rig::new();
    let data = content(&mut random(2), 2 << 20);
    let daemon = rig.start(&["v"]);
    rig.client("v").write(0, &data).unwrap();
    assert!(daemon.stop().unwrap());
    let daemon = rig.try_start(&["v"], true).unwrap();
    assert_eq!(rig.client("v").read(0, data.len()).unwrap(), data);
    assert_eq!(counter(&daemon, "extent_hits_device"), 0);
    assert!(daemon.registry().volumes.get("v").unwrap().cold_reason.is_some());
    assert!(daemon.stop().unwrap());
    let daemon = rig.start(&["v"]);
    assert!(
        daemon.registry().volumes.get("v").unwrap().cold_reason.is_none(),
        "trusted again after a clean stop"
    );
    drop(daemon);
}

#[test]
fn an_origin_written_behind_our_back_is_noticed() {
    let rig = Rig::new();
    let data = content(&mut random(3), 1 << 20);
    let daemon = rig.start(&["v"]);
    rig.client("v").write(0, &data).unwrap();
    assert!(daemon.stop().unwrap());
    let other = content(&mut random(4), 1 << 20);
    let file = std::fs::OpenOptions::new().write(true).open(rig.path("v.img")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &other, 0).unwrap();
    drop(file);
    let daemon = rig.start(&["v"]);
    assert!(rig.client("v").read(0, other.len()).unwrap() == other, "not what the cache had");
    let reason = daemon.registry().volumes.get("v").unwrap().cold_reason.clone();
    assert!(reason.unwrap().contains("written"));
    drop(daemon);
}

#[test]
fn an_origin_that_is_gone_is_refused_and_a_restored_one_is_cold() {
    let rig = Rig::new();
    let daemon = rig.start(&["v"]);
    rig.client("v").write(0, &[1; 65536]).unwrap();
    assert!(daemon.stop().unwrap());
    std::fs::copy(rig.path("v.img"), rig.path("copy.img")).unwrap();
    std::fs::remove_file(rig.path("v.img")).unwrap();
    let before = std::fs::read(rig.path("cache.img")).unwrap();
    let error = rig.try_start(&["v"], false).unwrap_err().to_string();
    assert!(error.contains("is missing; restore it"), "{error}");
    assert!(!rig.path("v.img").exists(), "nothing was created");
    assert!(std::fs::read(rig.path("cache.img")).unwrap() == before, "untouched");
    std::fs::rename(rig.path("copy.img"), rig.path("v.img")).unwrap();
    let daemon = rig.try_start(&["v"], false).unwrap();
    let reason = daemon.registry().volumes.get("v").unwrap().cold_reason.clone();
    assert!(reason.unwrap().contains("another file"));
    assert_eq!(rig.client("v").read(0, 65536).unwrap(), [1; 65536]);
    drop(daemon);
}

#[test]
fn two_engines_do_not_share_a_cache() {
    let rig = Rig::new();
    let daemon = rig.start(&["v"]);
    let error = rig.try_start(&["v"], false).unwrap_err().to_string();
    assert!(error.contains("lock"), "{error}");
    let mut other_config = rig.config(&["w"]);
    other_config.control.socket = rig.path("other.sock");
    other_config.nbd.unix.clear();
    let options = zc_daemon::StartOptions::default();
    let error = zc_daemon::Daemon::start(&other_config, &options, zc_daemon::Hooks::default()).unwrap_err();
    assert!(error.to_string().contains("lock") && !rig.path("w.img").exists(), "{error}");
    drop(daemon);
}

#[test]
fn what_was_fixed_at_format_is_not_changed_silently() {
    let mut rig = Rig::new();
    drop(rig.start(&["v"]));
    rig.cache = "extent_size = \"16 KiB\"".to_owned();
    let error = rig.try_start(&["v"], false).unwrap_err();
    assert!(error.is_refusal() && error.to_string().contains("extent_size"), "{error}");
    rig.cache = String::new();
    // Something else in its place is served without, and not touched.
    std::fs::write(rig.path("cache.img"), vec![7; 24 << 20]).unwrap();
    let daemon = rig.start(&["v"]);
    let stats = daemon.stats().unwrap();
    assert!(!stats.cache_healthy && stats.cache_fault.unwrap().contains("contains no cache"));
    drop(daemon);
    assert!(std::fs::read(rig.path("cache.img")).unwrap() == vec![7; 24 << 20]);
}

/// A rig whose journal is a file of its own.
fn rig_with_journal() -> Rig {
    let mut rig = Rig::new();
    rig.cache = format!("journal_path = \"{}\"\njournal_size = \"1 MiB\"", rig.path("journal.img").display());
    rig
}

#[test]
fn a_journal_on_a_device_of_its_own_carries_duplicates_over_a_restart() {
    let rig = rig_with_journal();
    let data = content(&mut random(21), 1 << 20);
    let daemon = rig.start(&["v", "w"]);
    rig.client("v").write(0, &data).unwrap();
    rig.client("w").write(0, &data).unwrap();
    assert!(daemon.stop().unwrap());
    let journal = std::fs::read(rig.path("journal.img")).unwrap();
    assert_eq!(journal.len(), 1 << 20);
    assert!(journal[4096..].iter().any(|&byte| byte != 0), "the journal is written there");
    let daemon = rig.start(&["v", "w"]);
    while daemon.stats().unwrap().index_loaded_ms.is_none() {}
    assert!(rig.client("w").read(0, data.len()).unwrap() == data);
    assert_eq!(counter(&daemon, "extent_misses"), 0);
    assert!(daemon.stop().unwrap());
}

#[test]
fn a_wrong_lost_or_short_journal_is_told_apart() {
    let mut rig = rig_with_journal();
    let data = content(&mut random(22), 1 << 20);
    let daemon = rig.start(&["v"]);
    rig.client("v").write(0, &data).unwrap();
    assert!(daemon.stop().unwrap());
    let path = rig.path("journal.img");
    let good = std::fs::read(&path).unwrap();
    let refusal = |rig: &Rig| rig.try_start(&["v"], false).err().unwrap().to_string();

    std::fs::write(&path, vec![0x11; 1 << 20]).unwrap();
    assert!(refusal(&rig).contains("contains data that is not a journal"), "{}", refusal(&rig));
    std::fs::write(&path, &good[..512 << 10]).unwrap();
    assert!(refusal(&rig).contains("truncated"), "{}", refusal(&rig));
    let other = rig_with_journal();
    drop(other.start(&["v"]));
    std::fs::copy(other.path("journal.img"), &path).unwrap();
    assert!(refusal(&rig).contains("journal of another cache"), "{}", refusal(&rig));

    // A new file costs no content. It costs mappings if write units were not sealed before the stop began: otherwise
    // the region map refers to a later journal block.
    // stop began: then the region map names the journal block that says so.
    std::fs::remove_file(&path).unwrap();
    let daemon = rig.start(&["v"]);
    while daemon.stats().unwrap().index_loaded_ms.is_none() {}
    assert!(rig.client("v").read(0, data.len()).unwrap() == data);
    let count = |name| counter(&daemon, name);
    wait_for_insertions(&daemon);
    assert_eq!((count("insert_stored"), count("insert_offered")), (0, count("extent_misses")));
    assert!(daemon.stop().unwrap());

    rig.cache.clear();
    assert!(refusal(&rig).contains("journal_path does not say which"), "{}", refusal(&rig));
}
