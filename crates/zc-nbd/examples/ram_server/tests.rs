//! A client writes, reads back and disconnects, over a pair of sockets.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use zc_nbd::client::{ClientConfig, ClientEvent, ClientSession};

const OFFSET: u32 = 4096;
/// Longer than what the server receives at once.
const LENGTH: u32 = 3 * 4096;

#[test]
fn a_client_reads_the_written_bytes() {
    let (mut stream, server) = UnixStream::pair().unwrap();
    let serving = std::thread::spawn(move || {
        let mut disk = vec![0; 1 << 20];
        super::serve(server, &mut disk).unwrap();
        disk
    });
    let config = ClientConfig { export: "ram".to_owned(), ..ClientConfig::default() };
    let (mut client, mut out, mut read) = (ClientSession::new(config), Vec::new(), Vec::new());
    let (mut received, mut done) = ([0; 1000], 0);
    while done < 3 {
        let count = stream.read(&mut received).unwrap();
        let mut input = &received[..count];
        assert!(count > 0, "the server hung up");
        loop {
            read.extend_from_slice(client.take_payload(&mut input));
            match client.next_event(&mut input, &mut out).unwrap() {
                None => break,
                Some(ClientEvent::Ready) => {
                    client.write(OFFSET.into(), LENGTH, 0, &mut out).unwrap();
                    out.resize(out.len() + LENGTH as usize, 0xda);
                }
                Some(ClientEvent::Done { result, .. }) => {
                    result.unwrap();
                    done += 1;
                    match done {
                        1 => drop(client.read(OFFSET.into(), LENGTH, 0, &mut out).unwrap()),
                        2 => drop(client.flush(&mut out).unwrap()),
                        _ => client.disconnect(&mut out).unwrap(),
                    }
                }
                Some(_) => {}
            }
        }
        stream.write_all(&out).unwrap();
        out.clear();
    }
    assert_eq!(read, vec![0xda; LENGTH as usize]);
    let disk = serving.join().unwrap();
    assert_eq!(disk[OFFSET as usize..][..LENGTH as usize], read);
    assert!(disk[..OFFSET as usize].iter().all(|&byte| byte == 0));
}
