//! Arbitrary bytes as a line of the control socket: no panic, a refusal is short, and a command that is written
//! out reads back to the same.

use super::request::Request;

pub(crate) fn run(data: &[u8]) {
    match Request::parse(data) {
        Ok(request) => match serde_json::to_vec(&request) {
            Ok(line) => assert_eq!(Request::parse(&line), Ok(request)),
            Err(error) => panic!("{error}"),
        },
        Err(error) => assert!(error.chars().count() <= 300, "{error}"),
    }
}
