//! Every end-to-end test as one program, since each program costs seconds to link. `cargo xtask test` runs its tests side
//! by side, a process each; alone: `cargo test -p zc-tests --test e2e -- e2e_crash::`.

mod e2e_add_volume;
mod e2e_agree;
mod e2e_alerts;
mod e2e_attach;
mod e2e_audit;
mod e2e_blocking_paths;
mod e2e_book;
mod e2e_ceph;
mod e2e_cli;
mod e2e_clients;
mod e2e_commits;
mod e2e_configuration;
mod e2e_crash;
mod e2e_dirty_faults;
mod e2e_dirty_room;
mod e2e_drain;
mod e2e_erase;
mod e2e_faults;
mod e2e_fio;
mod e2e_follow;
mod e2e_format;
mod e2e_front;
mod e2e_hang;
mod e2e_index_image;
mod e2e_io_threads;
mod e2e_late_origin;
mod e2e_limits;
mod e2e_lost_writes;
mod e2e_memory;
mod e2e_messages;
mod e2e_metrics;
mod e2e_orchestrator;
mod e2e_page;
mod e2e_partial;
mod e2e_pins;
mod e2e_qemu;
mod e2e_quotas;
mod e2e_raw_origin;
mod e2e_reasons;
mod e2e_reattach;
mod e2e_recipes;
mod e2e_record;
mod e2e_remote;
mod e2e_removal;
mod e2e_replace;
mod e2e_resize;
mod e2e_root_storage;
mod e2e_rotten;
mod e2e_sandbox;
mod e2e_setup;
mod e2e_shares;
mod e2e_starts;
mod e2e_status;
mod e2e_store;
mod e2e_store_storm;
mod e2e_store_volumes;
mod e2e_tenants;
mod e2e_top;
mod e2e_twin;
mod e2e_units;
mod e2e_verdict;
mod e2e_volumes;
mod e2e_warm;
mod e2e_windows;
mod e2e_without_cache;
mod e2e_write_back;

/// A file that is missing above would never run.
#[test]
fn every_file_of_tests_is_part_of_this_program() {
    let here = include_str!("e2e.rs");
    let folder = zc_tests::workspace().join("tests/tests");
    let mut found = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let name = entry.map(|entry| entry.file_name()).unwrap_or_default();
        let name = name.to_string_lossy();
        if let Some(module) = name.strip_suffix(".rs").filter(|name| name.starts_with("e2e_")) {
            assert!(here.contains(&format!("\nmod {module};\n")), "tests/tests/e2e.rs lacks `mod {module};`");
            found += 1;
        }
    }
    assert!(found > 40, "{found} files of tests were found");
}
