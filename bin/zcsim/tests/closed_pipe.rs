//! A reader of the output that has had enough.

use std::process::Command;

#[test]
fn a_closed_pipe_is_not_an_error() {
    for arguments in [&["fuzz", "--seed=1", "--ops=50"][..], &["exhaustive", "--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended =
            Command::new(env!("CARGO_BIN_EXE_zcsim")).args(arguments).stdout(writer).output().unwrap();
        let complaint = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && complaint.is_empty(), "{arguments:?}: {complaint}");
    }
}
