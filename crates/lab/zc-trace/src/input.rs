//! Bytes of a trace: decompressed, and taken out of an archive.
//!
//! Invariants: compression and archives are recognised by their bytes, never by a name; an archive is read as a stream.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use crate::compressed::{Bytes, Kind, Members, fill};
use crate::error::TraceError;
use crate::limits::{MEMBERS_LISTED_MAX, PEEK_BYTES};

/// Blocks of a tar archive (POSIX ustar).
const TAR_BLOCK: usize = 512;

/// Splits `FILE:MEMBER` if FILE exists and the whole does not.
fn split_member(path: &Path) -> (PathBuf, Option<String>) {
    if !path.exists()
        && let Some((file, member)) = path.to_str().and_then(|text| text.rsplit_once(':'))
        && Path::new(file).is_file()
    {
        return (PathBuf::from(file), Some(member.to_owned()));
    }
    (path.to_owned(), None)
}

/// Opens a trace, `FILE` or `ARCHIVE:MEMBER`.
pub(crate) fn open(path: &Path) -> Result<Bytes, TraceError> {
    let (file, member) = split_member(path);
    let failed = |source| TraceError::Open { path: file.clone(), source };
    let opened = File::open(&file).map_err(failed)?;
    let bytes = plain(Box::new(BufReader::with_capacity(PEEK_BYTES, opened))).map_err(failed)?;
    take_member(bytes, member.as_deref())
}

/// Takes compression off, if there is any.
pub(crate) fn plain(mut bytes: Bytes) -> io::Result<Bytes> {
    let Some(kind) = Kind::of(fill(&mut *bytes)?) else { return Ok(bytes) };
    Ok(Box::new(BufReader::with_capacity(PEEK_BYTES, Members::new(kind, bytes)?)))
}

/// Reads up to `limit` bytes from the start, without consuming them. A read error is kept for the reader that reaches
/// it.
pub(crate) fn peek(mut bytes: Bytes, limit: usize) -> (Vec<u8>, Bytes) {
    let mut head = Vec::new();
    while head.len() < limit {
        match fill(&mut *bytes) {
            Ok([]) => break,
            Ok(found) => {
                let taken = found.len().min(limit - head.len());
                head.extend_from_slice(&found[..taken]);
                bytes.consume(taken);
            }
            Err(error) => {
                bytes = Box::new(Failed(Some(error)));
                break;
            }
        }
    }
    let rest = Box::new(Cursor::new(head.clone()).chain(bytes));
    (head, rest)
}

/// A stream that fails once and then ends.
struct Failed(Option<io::Error>);

impl Read for Failed {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

impl BufRead for Failed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.take().map_or(Ok(&[]), Err)
    }

    fn consume(&mut self, _: usize) {}
}

/// Returns name and size of a member, from its header. `None` for an invalid header.
fn member_of(header: &[u8; TAR_BLOCK]) -> Option<(String, u64)> {
    let text = |range: std::ops::Range<usize>| {
        let field = &header[range];
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
        String::from_utf8_lossy(&field[..end]).into_owned()
    };
    if &header[257..262] != b"ustar" {
        return None;
    }
    let size = u64::from_str_radix(text(124..136).trim(), 8).ok()?;
    let prefix = text(345..500);
    let name = if prefix.is_empty() || &header[257..265] == b"ustar  \0" {
        text(0..100)
    } else {
        format!("{prefix}/{}", text(0..100))
    };
    Some((name, size))
}

/// Returns `true` if the bytes begin like an archive.
fn is_archive(bytes: &mut dyn BufRead) -> io::Result<bool> {
    Ok(fill(bytes)?.get(257..262) == Some(b"ustar"))
}

/// Finds the member, and takes its own compression off. Bytes that are no archive pass through.
fn take_member(mut bytes: Bytes, wanted: Option<&str>) -> Result<Bytes, TraceError> {
    let failed = |source| TraceError::Read { place: 0, source };
    if !is_archive(&mut *bytes).map_err(failed)? {
        return Ok(bytes);
    }
    let mut names = Vec::new();
    loop {
        let mut header = [0; TAR_BLOCK];
        match bytes.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(failed(error)),
        }
        let Some((name, size)) = member_of(&header) else { break };
        let is_file = matches!(header[156], b'0' | 0);
        if is_file && wanted.is_some_and(|wanted| name == wanted || name.ends_with(&format!("/{wanted}"))) {
            return plain(Box::new(BufReader::with_capacity(PEEK_BYTES, bytes.take(size)))).map_err(failed);
        }
        if is_file && names.len() < MEMBERS_LISTED_MAX {
            names.push(name);
        }
        let Some(stored) = size.checked_next_multiple_of(512) else { break };
        let passed = io::copy(&mut (&mut bytes).take(stored), &mut io::sink()).map_err(failed)?;
        if passed < stored {
            break;
        }
    }
    Err(TraceError::Archive { members: names.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const TEXT: &[u8] = b"one\ntwo\n";

    fn read(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        plain(Box::new(Cursor::new(bytes)))?.read_to_end(&mut out)?;
        Ok(out)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    fn xz(bytes: &[u8], preset: u32) -> Vec<u8> {
        let options = lzma_rust2::XzOptions::with_preset(preset);
        let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    /// An archive with members of these names and bytes.
    fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, bytes) in members {
            let mut header = [0_u8; TAR_BLOCK];
            header[..name.len()].copy_from_slice(name.as_bytes());
            header[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
            header[156] = b'0';
            header[257..263].copy_from_slice(b"ustar\0");
            out.extend_from_slice(&header);
            out.extend_from_slice(bytes);
            out.resize(out.len().next_multiple_of(TAR_BLOCK), 0);
        }
        out.resize(out.len() + 2 * TAR_BLOCK, 0);
        out
    }

    #[test]
    fn every_compression_is_taken_off() {
        for bytes in [TEXT.to_vec(), gzip(TEXT), xz(TEXT, 1), zstd::encode_all(TEXT, 1).unwrap()] {
            assert_eq!(read(bytes).unwrap(), TEXT);
        }
        // Two members of one stream each.
        assert_eq!(read([gzip(TEXT), gzip(TEXT)].concat()).unwrap(), [TEXT, TEXT].concat());
        assert_eq!(read(Vec::new()).unwrap(), b"");
    }

    /// Returns the bytes that a stream's reader receives before its error, and that error.
    fn read_on(bytes: Vec<u8>) -> (Vec<u8>, io::Result<usize>) {
        let mut out = Vec::new();
        let result = plain(Box::new(Cursor::new(bytes))).unwrap().read_to_end(&mut out);
        (out, result)
    }

    #[test]
    fn zeros_behind_compressed_data_are_padding() {
        for bytes in [gzip(TEXT), xz(TEXT, 1), zstd::encode_all(TEXT, 1).unwrap()] {
            for zeros in [1, 3, 4, 511, 200_000] {
                let padded = [bytes.clone(), vec![0; zeros]].concat();
                assert_eq!(read(padded.clone()).unwrap(), TEXT, "{zeros}");
                assert_eq!(read([padded, bytes.clone()].concat()).unwrap(), [TEXT, TEXT].concat(), "{zeros}");
            }
        }
    }

    #[test]
    fn other_bytes_behind_compressed_data_are_an_error_after_it() {
        for bytes in [gzip(TEXT), xz(TEXT, 1), zstd::encode_all(TEXT, 1).unwrap()] {
            let (out, result) = read_on([bytes, b"\0\0rest".to_vec()].concat());
            assert_eq!(out, TEXT);
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn members_and_skippable_frames_of_zstandard_follow_each_other() {
        let frame = zstd::encode_all(TEXT, 1).unwrap();
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"xyz"].concat();
        assert_eq!(read([frame.clone(), skippable, frame].concat()).unwrap(), [TEXT, TEXT].concat());
    }

    #[test]
    fn a_damaged_stream_is_an_error() {
        for mut bytes in [gzip(TEXT), xz(TEXT, 1), zstd::encode_all(TEXT, 1).unwrap()] {
            bytes.truncate(bytes.len() - 5);
            read(bytes).unwrap_err();
        }
    }

    #[test]
    fn a_decoder_that_wants_too_much_memory_is_refused() {
        let mut options = lzma_rust2::XzOptions::with_preset(0);
        options.lzma_options.dict_size = 512 << 20;
        let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
        writer.write_all(TEXT).unwrap();
        let error = read(writer.finish().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory, "{error}");
    }

    #[test]
    fn a_member_is_found_by_its_name_or_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar.gz");
        let inner = gzip(b"5\n");
        std::fs::write(&path, gzip(&archive(&[("d/x.trace", TEXT), ("d/y.trace.gz", &inner)]))).unwrap();
        let text_of = |member: &str| {
            let mut text = String::new();
            open(Path::new(&format!("{}{member}", path.display())))?.read_to_string(&mut text).unwrap();
            Ok::<_, TraceError>(text)
        };
        assert_eq!(text_of(":x.trace").unwrap(), "one\ntwo\n");
        assert_eq!(text_of(":d/y.trace.gz").unwrap(), "5\n");
        let error = text_of("").unwrap_err().to_string();
        assert!(error.contains("d/x.trace, d/y.trace.gz"), "{error}");
        text_of(":trace").unwrap_err();
        assert!(open(&dir.path().join("none")).err().unwrap().to_string().contains("cannot open"));
    }

    #[test]
    fn a_cut_or_lying_archive_lists_what_it_had() {
        let mut bytes = archive(&[("x", TEXT), ("y", TEXT)]);
        bytes.truncate(TAR_BLOCK + 100);
        assert!(take_member(Box::new(Cursor::new(bytes)), Some("y")).is_err());
        let mut bytes = archive(&[("x", TEXT)]);
        bytes[124..136].copy_from_slice(b"777777777777");
        assert!(take_member(Box::new(Cursor::new(bytes)), Some("y")).is_err());
    }
}
