//! Lines of bounded length.
//!
//! Invariants: at most [`LINE_BYTES_MAX`] bytes of a line are held; the rest of a longer one is passed over.

use std::io::{self, BufRead};

use crate::limits::LINE_BYTES_MAX;

/// Result of reading a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line is in the buffer, without its end.
    Whole,
    /// A line was longer than allowed; the buffer has its beginning.
    TooLong,
    /// There are no more.
    End,
}

/// Reads the next line into `line`, which is cleared first.
pub(crate) fn next_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<Line> {
    line.clear();
    let mut found = Line::End;
    loop {
        let bytes = match input.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if bytes.is_empty() {
            return Ok(found);
        }
        if found == Line::End {
            found = Line::Whole;
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = &bytes[..end.unwrap_or(bytes.len())];
        let room = LINE_BYTES_MAX - line.len();
        line.extend_from_slice(&part[..part.len().min(room)]);
        if part.len() > room {
            found = Line::TooLong;
        }
        let used = end.map_or(bytes.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{BufReader, Cursor};

    #[test]
    fn lines_end_with_either_ending_or_the_file() {
        let mut input = Cursor::new(b"a\r\n\nb".to_vec());
        let mut line = Vec::new();
        for (found, text) in
            [(Line::Whole, "a"), (Line::Whole, ""), (Line::Whole, "b"), (Line::End, ""), (Line::End, "")]
        {
            assert_eq!(next_line(&mut input, &mut line).unwrap(), found);
            assert_eq!(line, text.as_bytes());
        }
    }

    #[test]
    fn a_long_line_is_passed_over_and_not_held() {
        let mut bytes = vec![b'x'; 3 * LINE_BYTES_MAX];
        bytes.extend_from_slice(b"\nnext\n");
        let mut input = BufReader::with_capacity(100, Cursor::new(bytes));
        let mut line = Vec::new();
        assert_eq!(next_line(&mut input, &mut line).unwrap(), Line::TooLong);
        assert_eq!(line.len(), LINE_BYTES_MAX);
        assert_eq!(next_line(&mut input, &mut line).unwrap(), Line::Whole);
        assert_eq!(line, b"next");
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_text(text in "[a-c\n]{0,60}", piece in 1_usize..9) {
            let mut input = BufReader::with_capacity(piece, Cursor::new(text.clone().into_bytes()));
            let (mut line, mut found) = (Vec::new(), Vec::new());
            while next_line(&mut input, &mut line).unwrap() != Line::End {
                found.push(String::from_utf8(line.clone()).unwrap());
            }
            prop_assert_eq!(found, text.lines().map(str::to_owned).collect::<Vec<_>>());
        }
    }
}
