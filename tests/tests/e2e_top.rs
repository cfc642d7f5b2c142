//! `zcctl top` on a terminal: it lists the volumes, and quits on request.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use zc_tests::{World, bounded, program};

#[test]
fn top_shows_the_volumes_on_a_terminal_and_leaves_when_told() {
    let world = World::new(16, 16);
    let daemon = world.start();
    world.connect("disk").write(0, &[7; 8192]).expect("write");
    let zcctl = program("zcctl").display().to_string();
    let socket = world.control_socket().display().to_string();
    // `script` gives it a terminal, whose size is set first.
    let mut script = bounded("script");
    script.args(["-qec", &format!("stty rows 20 cols 130; exec {zcctl} top --socket {socket}"), "/dev/null"]);
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cannot start script");
    let (mut keys, mut screen) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let mut shown = Vec::new();
    let mut piece = [0; 4096];
    for (wanted, key) in [("LAST MINUTE", "d"), ("disk", "q")] {
        while !String::from_utf8_lossy(&shown).contains(wanted) {
            let count = screen.read(&mut piece).expect("read");
            assert!(count > 0, "top ended: {}", String::from_utf8_lossy(&shown));
            shown.extend_from_slice(&piece[..count]);
        }
        keys.write_all(key.as_bytes()).expect("write");
    }
    screen.read_to_end(&mut shown).expect("read");
    assert!(child.wait().expect("it ends").success());
    let shown = String::from_utf8_lossy(&shown).into_owned();
    assert!(shown.contains("HEALTHY") && shown.contains("write-through"), "{shown}");
    // The screen of before, and the cursor.
    assert!(shown.contains("\u{1b}[?1049l") && shown.contains("\u{1b}[?25h"), "{shown}");

    let piped =
        Command::new(program("zcctl")).args(["top", "--socket", &socket]).output().expect("it starts");
    let said = String::from_utf8_lossy(&piped.stderr).into_owned();
    assert!(piped.status.code() == Some(2) && said.contains("needs a terminal"), "{said}");
    assert_eq!(daemon.terminate().code(), Some(0));
}
