//! Whole conversations byte for byte, written from proto.md independently of this crate's codec, so that symmetric
//! errors of encoder and decoder are detected. All numbers are big-endian.

use crate::disk::{SIZE, Server};
use crate::raw::BOTH_FLAGS;
use zc_nbd::server::ServerConfig;

/// Bytes from hexadecimal digits; blanks and line ends do not count.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

/// A server past the greeting, which is checked.
fn greeted() -> Server {
    let mut server = Server::new(ServerConfig::default());
    assert_eq!(server.sent(), hex("4e42444d41474943 49484156454f5054 0003"));
    server.feed(&BOTH_FLAGS.to_be_bytes());
    server
}

fn exchange(server: &mut Server, sent: &str, wanted: &str) {
    server.feed(&hex(sent));
    assert_eq!(server.sent(), hex(wanted), "answer to {sent}");
}

#[test]
fn must_01_a_conversation_with_simple_replies_byte_for_byte() {
    let mut server = greeted();
    // GO "first" with INFO_BLOCK_SIZE: INFO_EXPORT of 1 MiB with flags, INFO_BLOCK_SIZE 1/4096/32 MiB, ACK.
    exchange(
        &mut server,
        "49484156454f5054 00000007 0000000d 00000005 6669727374 0001 0003",
        "0003e889045565a9 00000007 00000003 0000000c 0000 0000000000100000 0d7d
         0003e889045565a9 00000007 00000003 0000000e 0003 00000001 00001000 02000000
         0003e889045565a9 00000007 00000001 00000000",
    );
    // WRITE of 4 bytes at 0x10000 with FUA.
    exchange(
        &mut server,
        "25609513 0001 0001 1122334455667788 0000000000010000 00000004 cafebabe",
        "67446698 00000000 1122334455667788",
    );
    // READ of 6 bytes around it.
    exchange(
        &mut server,
        "25609513 0000 0000 ffffffffffffffff 000000000000ffff 00000006",
        "67446698 00000000 ffffffffffffffff 00cafebabe00",
    );
    // READ past the end: EINVAL, no payload.
    exchange(
        &mut server,
        "25609513 0000 0000 0000000000000001 0000000000100000 00000001",
        "67446698 00000016 0000000000000001",
    );
    assert_eq!(server.disk[0x10000..0x10004], [0xca, 0xfe, 0xba, 0xbe]);
    assert_eq!(u64::try_from(server.disk.len()), Ok(SIZE));
}

#[test]
fn must_01_a_conversation_with_structured_replies_byte_for_byte() {
    let mut server = greeted();
    exchange(
        &mut server,
        "49484156454f5054 00000008 00000000",
        "0003e889045565a9 00000008 00000001 00000000",
    );
    // SET_META_CONTEXT "first" "base:allocation".
    exchange(
        &mut server,
        "49484156454f5054 0000000a 00000020 00000005 6669727374 00000001
         0000000f 626173653a616c6c6f636174696f6e",
        "0003e889045565a9 0000000a 00000004 00000013 00000001 626173653a616c6c6f636174696f6e
         0003e889045565a9 0000000a 00000001 00000000",
    );
    // EXPORT_NAME "first": size and flags with SEND_DF, no padding.
    exchange(&mut server, "49484156454f5054 00000001 00000005 6669727374", "0000000000100000 0dfd");
    // READ of a hole.
    exchange(
        &mut server,
        "25609513 0000 0000 0000000000000007 0000000000000200 00000200",
        "668e33ef 0001 0002 0000000000000007 0000000c 0000000000000200 00000200",
    );
    // BLOCK_STATUS of the same: one extent, hole and zero.
    exchange(
        &mut server,
        "25609513 0000 0007 0000000000000008 0000000000000200 00000400",
        "668e33ef 0001 0005 0000000000000008 0000000c 00000001 00000400 00000003",
    );
    // WRITE and READ with DF.
    exchange(
        &mut server,
        "25609513 0000 0001 0000000000000009 0000000000000200 00000002 beef",
        "67446698 00000000 0000000000000009",
    );
    exchange(
        &mut server,
        "25609513 0004 0000 000000000000000a 0000000000000200 00000002",
        "668e33ef 0001 0001 000000000000000a 0000000a 0000000000000200 beef",
    );
}

#[test]
fn must_23_a_conversation_with_extended_headers_byte_for_byte() {
    let mut server = greeted();
    exchange(
        &mut server,
        "49484156454f5054 0000000b 00000000",
        "0003e889045565a9 0000000b 00000001 00000000",
    );
    exchange(
        &mut server,
        "49484156454f5054 0000000a 00000020 00000005 6669727374 00000001
         0000000f 626173653a616c6c6f636174696f6e",
        "0003e889045565a9 0000000a 00000004 00000013 00000001 626173653a616c6c6f636174696f6e
         0003e889045565a9 0000000a 00000001 00000000",
    );
    // GO "first": flags with SEND_DF and BLOCK_STATUS_PAYLOAD.
    exchange(
        &mut server,
        "49484156454f5054 00000007 0000000b 00000005 6669727374 0000",
        "0003e889045565a9 00000007 00000003 0000000c 0000 0000000000100000 1dfd
         0003e889045565a9 00000007 00000001 00000000",
    );
    // WRITE with PAYLOAD_LEN.
    exchange(
        &mut server,
        "21e41c71 0020 0001 0000000000000001 0000000000000200 0000000000000002 beef",
        "6e8a278c 0001 0000 0000000000000001 0000000000000200 0000000000000000",
    );
    // READ: the header repeats the request's offset.
    exchange(
        &mut server,
        "21e41c71 0004 0000 0000000000000002 0000000000000200 0000000000000002",
        "6e8a278c 0001 0001 0000000000000002 0000000000000200 000000000000000a 0000000000000200 beef",
    );
    // BLOCK_STATUS of context 1, 1024 bytes from 1024 on, named by a payload of 12 bytes.
    exchange(
        &mut server,
        "21e41c71 0020 0007 0000000000000003 0000000000000400 000000000000000c 0000000000000400 00000001",
        "6e8a278c 0001 0006 0000000000000003 0000000000000400 0000000000000018
         00000001 00000001 0000000000000400 0000000000000003",
    );
    // TRIM past the end: an error chunk with text.
    let text = "the range lies beyond the end of the export";
    server.feed(&hex("21e41c71 0000 0004 0000000000000004 0000000000100000 0000000000000200"));
    let mut wanted =
        hex("6e8a278c 0001 8001 0000000000000004 0000000000100000 0000000000000031 00000016 002b");
    wanted.extend_from_slice(text.as_bytes());
    assert_eq!(server.sent(), wanted);
}
