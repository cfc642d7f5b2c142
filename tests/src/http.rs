//! Plain HTTP/1.1, with requests written by the test.

use crate::DEADLINE;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// Sends one request; returns the head and the body of the answer.
///
/// # Panics
/// There is no answer.
#[must_use]
pub fn http(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("cannot connect");
    stream.set_read_timeout(Some(DEADLINE)).expect("cannot set a timeout");
    stream.write_all(request.as_bytes()).expect("cannot ask");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("no answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}
