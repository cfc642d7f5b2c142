//! Lines of every text format: their meaning, and the errors of bad ones.

use super::*;
use crate::format::NAMES;
use crate::limits::ADDRESS_MAX;
use proptest::prelude::*;

/// A parser behind the lines that a format begins with.
fn parser_of(format: Format) -> TextParser {
    let mut parser = TextParser::new(format, false);
    if format == Format::FioIolog {
        parser.parse(b"fio version 3 iolog").unwrap();
    }
    parser
}

fn one(format: Format, line: &str) -> Request {
    parser_of(format).parse(line.as_bytes()).unwrap().unwrap()
}

fn plain(time_ns: u64, device: u32, op: Op, offset_bytes: u64, len_bytes: u32) -> Request {
    Request::new(time_ns, op, offset_bytes, len_bytes).on(device)
}

/// A line of each format, with its meaning.
fn samples() -> Vec<(Format, &'static str, Request)> {
    let content = |fingerprint, sizes: Option<(u32, u32)>| {
        let (lz4_bytes, zstd1_bytes) = (sizes.map(|sizes| sizes.0), sizes.map(|sizes| sizes.1));
        Some(Content { fingerprint, lz4_bytes, zstd1_bytes })
    };
    let device = |major: u32, minor: u32| (major << 20) + minor;
    vec![
        (
            Format::Fingerprints,
            "9994738517 8 8 R 4adede4caea54a11 717 414",
            Request {
                content: content(0x4ade_de4c_aea5_4a11, Some((717, 414))),
                ..plain(9_994_738_517, 0, Op::Read, 4096, 4096)
            },
        ),
        (
            Format::Fiu,
            "89967404972890 4892 syslogd 904265560 8 W 6 0 531e779a0b1a7e4c6e1d4c1b1f0a1b2c",
            Request {
                content: content(0x531e_779a_0b1a_7e4c_6e1d_4c1b_1f0a_1b2c, None),
                ..plain(89_967_404_972_890, device(6, 0), Op::Write, 904_265_560 * 512, 4096)
            },
        ),
        (
            Format::Msr,
            "128166372003061629,usr,1,Read,7014609920,24576,41286",
            plain(12_816_637_200_306_162_900, 1, Op::Read, 7_014_609_920, 24576),
        ),
        (
            Format::CloudPhysics,
            "242639,W,21981565952,512",
            plain(242_639_000, 0, Op::Write, 21_981_565_952, 512),
        ),
        (Format::Spc, "2,20941264,8192,w,0.551706", plain(551_706_000, 2, Op::Write, 20_941_264 * 512, 8192)),
        (
            Format::Alibaba,
            "419,W,8792731648,16384,1577808144360767",
            plain(1_577_808_144_360_767_000, 419, Op::Write, 8_792_731_648, 16384),
        ),
        (
            Format::Tencent,
            "1538323200,12910952,128,1,1063",
            plain(1_538_323_200_000_000_000, 1063, Op::Write, 12_910_952 * 512, 65536),
        ),
        (
            Format::Blkparse,
            "  8,16   5        2     0.000001850 18615  Q  RA 1444645666 + 256 [java]",
            plain(1850, device(8, 16), Op::Read, 1_444_645_666 * 512, 131_072),
        ),
        (
            Format::DiskSim,
            "938513000 4 264719034 16 0",
            plain(938_513_000, 4, Op::Write, 264_719_034 * 512, 8192),
        ),
        (Format::FioIolog, "208 /dev/sdb read 57344 8192", plain(208_000, 0, Op::Read, 57344, 8192)),
        (Format::Lis, "7 3 0 1", plain(0, 0, Op::Access, 7 * 4096, 3 * 4096)),
        (Format::Keys, "7", plain(0, 0, Op::Access, 7 * 4096, 4096)),
    ]
}

#[test]
fn every_format_is_read() {
    for (format, line, wanted) in samples() {
        assert_eq!(one(format, line), wanted, "{format:?}");
    }
    assert_eq!(samples().len(), NAMES.iter().filter(|(format, _)| format.is_text()).count());
}

#[test]
fn every_format_is_told_by_its_lines() {
    for (format, line, _) in samples() {
        let head = if format == Format::FioIolog { "fio version 3 iolog\n" } else { "" };
        let text = format!("{head}{}", format!("{line}\n").repeat(30));
        assert_eq!(crate::detect::detect(text.as_bytes()), Some(format), "{line}");
    }
}

#[test]
fn a_time_with_a_point_is_in_milliseconds_for_disksim() {
    let request = one(Format::DiskSim, "0.012345 0 8 8 1");
    assert_eq!((request.time_ns, request.op), (12_345, Op::Read));
}

#[test]
fn a_decimal_comma_of_spc_is_part_of_the_time() {
    for line in
        ["2,20941264,8192,w,1,551706", "2;20941264;8192;w;1,551706", r#"2,20941264,8192,w,"1,551706""#]
    {
        assert_eq!(one(Format::Spc, line).time_ns, 1_551_706_000, "{line}");
    }
    // Fields of the writer's own.
    assert_eq!(one(Format::Spc, "2,20941264,8192,w,1.5,7,8").time_ns, 1_500_000_000);
    assert_eq!(one(Format::Spc, "2,20941264,8192,w,1,7,8").time_ns, 1_000_000_000);
}

#[test]
fn one_unit_holds_for_all_times_of_a_disksim_file() {
    let times = |words: &[&str]| -> Vec<u64> {
        let mut parser = parser_of(Format::DiskSim);
        let found = words.iter().map(|word| parser.parse(format!("{word} 0 8 8 1").as_bytes()));
        found.filter_map(|parsed| parsed.ok().flatten()).map(|request| request.time_ns).collect()
    };
    assert_eq!(times(&["0", "0.5", "1", "2.0"]), [0, 500_000, 1_000_000, 2_000_000]);
    assert_eq!(times(&["0.000", "700", "900.5", "1800"]), [0, 700, 901, 1800]);
    assert_eq!(times(&["0.5 x", "700", "800"]), [700, 800], "a bad line decides nothing");
    assert_eq!(times(&["-1", "nan", "1e400"]), [0; 0]);
}

#[test]
fn flushes_discards_headers_and_comments_are_told() {
    let mut parser = parser_of(Format::CloudPhysics);
    assert_eq!(parser.parse(b"ts_us,op,offset,len"), Ok(None));
    assert_eq!(parser_of(Format::Keys).parse(b"*"), Ok(None));
    assert_eq!(parser_of(Format::Keys).parse(b"# made by hand"), Ok(None));
    assert_eq!(one(Format::Fingerprints, "5 0 0 F - 0 0").op, Op::Flush);
    let event = |action: &str, kind: &str, range: &str| {
        let line = format!("8,0 1 2 0.5 9 {action} {kind} {range} [x]");
        parser_of(Format::Blkparse).parse(line.as_bytes())
    };
    assert_eq!(event("Q", "D", "8 + 8").unwrap().unwrap().op, Op::Discard);
    assert_eq!(event("Q", "FWS", "0 + 0").unwrap().unwrap().op, Op::Flush);
    assert_eq!(event("Q", "FF", "").unwrap().unwrap().op, Op::Flush);
    assert_eq!(event("Q", "FWFS", "8 + 8").unwrap().unwrap().op, Op::Write);
    assert_eq!(event("C", "W", "8 + 8"), Ok(None));
    assert_eq!(parser_of(Format::Blkparse).parse(b"CPU0 (sda):"), Ok(None));
}

#[test]
fn bad_lines_say_what_is_wrong() {
    let bad = |format, line: &str| parser_of(format).parse(line.as_bytes()).unwrap_err();
    assert_eq!(
        bad(Format::Msr, "128166372003061629,usr,1,Copy,0,8,9"),
        "an operation is neither a read nor a write"
    );
    assert_eq!(bad(Format::CloudPhysics, "1,R,0"), "a field is missing");
    assert_eq!(bad(Format::CloudPhysics, "1,R,0,8,9"), "there are more fields than expected");
    assert_eq!(bad(Format::CloudPhysics, "1,X,0,8"), "an operation is neither a read nor a write");
    assert_eq!(bad(Format::CloudPhysics, "1,R,0,0"), "a length is zero");
    assert_eq!(bad(Format::CloudPhysics, "1,R,0,99999999999"), "a length is out of range");
    assert_eq!(bad(Format::CloudPhysics, "1,R,4611686018427387904,8"), "an address is out of range");
    assert_eq!(bad(Format::CloudPhysics, "1,R,-4,8"), "a field is not a whole number");
    assert_eq!(bad(Format::Tencent, "18446744073709551615,0,8,0,1"), "a number is out of range");
    assert_eq!(bad(Format::Spc, "0,0,8,R,NaN"), "a time is out of range");
    let digits = "a fingerprint is not 16 to 32 hexadecimal digits";
    assert_eq!(bad(Format::Fingerprints, "1 0 8 R xyz 1 1"), digits);
    assert_eq!(bad(Format::Fingerprints, "1 0 8 R +aaaaaaaaaaaaaaaa 1 1"), digits);
    assert_eq!(parser_of(Format::Keys).parse(&[0xff, 0xfe]).unwrap_err(), "a line is not text");
}

proptest! {
    #[test]
    fn no_line_makes_a_parser_panic(line in "[ -~]{0,80}", number in any::<[u64; 5]>(), which in 0..NAMES.len()) {
        let numbers: Vec<String> = number.iter().map(u64::to_string).collect();
        for text in [line, numbers.join(" "), numbers.join(",")] {
            for format in [NAMES[which].0, Format::DiskSim, Format::Tencent] {
                if let Ok(Some(request)) = parser_of(format).parse(text.as_bytes()) {
                    prop_assert!(request.end_bytes() <= ADDRESS_MAX);
                }
            }
        }
    }
}
