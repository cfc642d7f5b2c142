//! The control socket.

use zc_daemon::{Daemon, Hooks, StartOptions};

use crate::rig::Rig;

#[test]
fn status_and_stats_tell_and_stop_stops() {
    let rig = Rig::new();
    let daemon = rig.start(&["v", "w"]);
    let client = rig.client("w");
    let mut control = rig.control();
    let status = control.ask(r#"{"cmd":"status"}"#);
    assert_eq!(status["ok"], true);
    assert_eq!(status["volumes"][1]["name"], "w");
    assert_eq!(status["cache"]["healthy"], true);
    assert_eq!(status["listening"].as_array().unwrap().len(), 2);
    let connections = control.ask(r#"{"cmd":"connections"}"#);
    assert_eq!(connections["connections"][0]["export"], "w");
    let stats = control.ask(r#"{"cmd":"stats"}"#);
    assert_eq!(stats["driver"]["connections_accepted"], 1);
    assert!(stats["manager"]["file_index_capacity"].as_u64().unwrap() > 1000);
    drop(client);
    assert_eq!(control.ask(r#"{"cmd":"stop"}"#)["ok"], true);
    assert!(daemon.wait().unwrap());
    assert!(!rig.path("control.sock").exists() && !rig.path("nbd.sock").exists());
}

#[test]
fn an_operator_closes_connections() {
    let rig = Rig::new();
    let daemon = rig.start(&["v", "w"]);
    let mut control = rig.control();
    let (mut of_v, mut of_w, mut last) = (rig.client("v"), rig.client("w"), rig.client("w"));
    let closed = |control: &mut crate::rig::ControlClient, what: &str| {
        let answer = control.ask(&format!("{{\"cmd\":\"disconnect\",{what}}}"));
        answer["disconnected"].as_array().map(Vec::len)
    };
    let first = control.ask(r#"{"cmd":"connections"}"#)["connections"][0]["id"].clone();
    assert_eq!(closed(&mut control, &format!("\"id\":{first}")), Some(1));
    of_v.read(0, 512).unwrap_err();
    of_w.read(0, 512).unwrap();
    for none in [r#""volume":"v""#, r#""client":"192.0.2.0/24""#, r#""volume":"w","id":1"#, r#""id":999"#] {
        assert_eq!(closed(&mut control, none), None, "{none}");
    }
    assert_eq!(closed(&mut control, r#""volume":"w""#), Some(2));
    of_w.read(0, 512).unwrap_err();
    last.read(0, 512).unwrap_err();
    let mut again = rig.client("w");
    let user = format!("\"client\":\"user {}\"", rustix::process::getuid().as_raw());
    assert_eq!(closed(&mut control, &user), Some(1));
    again.read(0, 512).unwrap_err();
    drop(daemon);
}

#[test]
fn idle_connections_keep_no_client_out() {
    let rig = Rig::new();
    let daemon = rig.start(&["v"]);
    let idle: Vec<_> = (0..40).map(|_| rig.control()).collect();
    let mut control = rig.control();
    assert_eq!(control.ask(r#"{"cmd":"status"}"#)["ok"], true);
    drop(idle);
    drop(daemon);
}

#[test]
fn bad_commands_are_answered_and_the_next_one_works() {
    let rig = Rig::new();
    let daemon = rig.start(&["v"]);
    let mut control = rig.control();
    for bad in
        ["", "x", "{}", r#"{"cmd":"fly"}"#, r#"{"cmd":"stop","now":1}"#, r#"{"cmd":"set-mode","volume":"v"}"#]
    {
        let answer = control.ask(bad);
        assert_eq!(answer["ok"], false, "{bad}: {answer}");
    }
    assert_eq!(control.ask(r#"{"cmd":"set-mode","volume":"x","mode":"pass-through"}"#)["ok"], false);
    assert_eq!(control.ask(r#"{"cmd":"set-mode","volume":"v","mode":"read-only"}"#)["ok"], false);
    assert_eq!(control.ask(r#"{"cmd":"set-mode","volume":"v","mode":"pass-through"}"#)["ok"], true);
    let status = control.ask(r#"{"cmd":"status"}"#);
    assert_eq!(status["volumes"][0]["info"]["mode"], "pass-through");
    drop(daemon);
}

#[test]
fn a_reload_applies_what_it_can_and_names_the_rest() {
    let mut rig = Rig::new();
    let config = rig.config(&["v"]);
    rig.volume = "admission = \"never\"\ncompression = \"none\"".to_owned();
    rig.cache = "discard = true".to_owned();
    let new = rig.config(&["v"]);
    let hooks =
        Hooks { config_file: Some(crate::rig::config_file(move || Ok(new.clone()))), ..Hooks::default() };
    let daemon = Daemon::start(&config, &StartOptions::default(), hooks).unwrap();
    let mut control = rig.control();
    let answer = control.ask(r#"{"cmd":"reload"}"#);
    assert_eq!(answer["ok"], true, "{answer}");
    let applied = answer["applied"].to_string();
    assert!(applied.contains("admission") && applied.contains("compression"), "{answer}");
    assert!(answer["needs_restart"].to_string().contains("cache"), "{answer}");
    let again = control.ask(r#"{"cmd":"reload"}"#);
    assert_eq!(again["applied"].as_array().unwrap().len(), 0, "{again}");
    let mut client = rig.client("v");
    client.write(0, &[5; 1 << 20]).unwrap();
    assert_eq!(client.read(0, 1 << 20).unwrap(), vec![5; 1 << 20]);
    assert_eq!(crate::rig::counter(&daemon, "insert_offered"), 0, "admission is never");
    drop(daemon);
}

#[test]
fn a_reload_that_fails_leaves_nothing_of_it_behind() {
    let mut rig = Rig::new();
    let config = rig.config(&["v"]);
    rig.volume = "admission = \"never\"".to_owned();
    let mut new = rig.config(&["v"]);
    new.log.level = "everything".to_owned();
    let hooks = Hooks {
        config_file: Some(crate::rig::config_file(move || Ok(new.clone()))),
        set_log_level: Some(Box::new(|level| Err(format!("{level} is no level")))),
        ..Hooks::default()
    };
    let daemon = Daemon::start(&config, &StartOptions::default(), hooks).unwrap();
    let mut control = rig.control();
    let answer = control.ask(r#"{"cmd":"reload"}"#);
    assert_eq!(answer["error"], "everything is no level", "{answer}");
    // The next change is relative to the settings in force.
    assert_eq!(control.ask(r#"{"cmd":"set-mode","volume":"v","mode":"write-through"}"#)["ok"], true);
    let mut client = rig.client("v");
    client.write(0, &[5; 1 << 20]).unwrap();
    assert!(crate::rig::counter(&daemon, "insert_offered") > 0, "admission is always");
    drop(daemon);
}
