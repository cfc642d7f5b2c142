//! Fields of a line of text.
//!
//! Invariants: fields are slices of the line; nothing is copied or unescaped. Arithmetic on field values is checked.

/// Largest time in nanoseconds that is read: some 285 years.
const TIME_NS_MAX: f64 = 9.0e18;

/// Fields of a line, taken one after the other.
pub(crate) struct Fields<'a> {
    left: Split<'a>,
}

impl<'a> Fields<'a> {
    /// The fields of a line of words between white space.
    pub(crate) fn words(line: &'a str) -> Self {
        Self { left: Split::Words(line.split_ascii_whitespace()) }
    }

    /// The fields of a line of separated values: commas, or whichever of semicolon and tab the line has more of. A field
    /// may stand in double quotes.
    pub(crate) fn separated(line: &'a str) -> Self {
        let count = |wanted: char| line.chars().filter(|found| *found == wanted).count();
        let commas = count(',');
        let other = [';', '\t'].into_iter().find(|separator| count(*separator) > commas);
        Self { left: Split::Separated { rest: Some(line), separator: other.unwrap_or(',') } }
    }

    /// Returns the next field, `None` at the end of the line.
    pub(crate) fn next(&mut self) -> Option<&'a str> {
        self.left.next().map(str::trim)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, &'static str> {
        self.next().ok_or("a field is missing")
    }

    pub(crate) fn number(&mut self) -> Result<u64, &'static str> {
        self.text()?.parse().map_err(|_| "a field is not a whole number")
    }

    /// A size after compression; a dash for one that is not known.
    pub(crate) fn size(&mut self) -> Result<Option<u32>, &'static str> {
        let text = self.text()?;
        if text == "-" {
            return Ok(None);
        }
        let bytes: u64 = text.parse().map_err(|_| "a field is not a whole number")?;
        u32::try_from(bytes).map(Some).map_err(|_| "a compressed size is out of range")
    }

    /// Returns a time in seconds, with a fraction behind a point or a comma, as nanoseconds.
    pub(crate) fn seconds(&mut self) -> Result<u64, &'static str> {
        seconds(self.text()?)
    }

    pub(crate) fn skip(&mut self, count: usize) -> Result<(), &'static str> {
        (0..count).try_for_each(|_| self.text().map(drop))
    }

    pub(crate) fn end(&mut self) -> Result<(), &'static str> {
        self.next().map_or(Ok(()), |_| Err("there are more fields than expected"))
    }
}

/// Field separator of a line.
enum Split<'a> {
    Words(std::str::SplitAsciiWhitespace<'a>),
    Separated { rest: Option<&'a str>, separator: char },
}

impl<'a> Iterator for Split<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let (rest, separator) = match self {
            Self::Words(words) => return words.next(),
            Self::Separated { rest, separator } => (rest, *separator),
        };
        let line = rest.take()?;
        let quoted = line.trim_start().strip_prefix('"').and_then(|open| open.split_once('"'));
        let (field, behind) = match quoted {
            Some((field, behind)) => (field, behind.trim_start()),
            None => line.split_at(line.find(separator).unwrap_or(line.len())),
        };
        *rest = behind.strip_prefix(separator);
        Some(field)
    }
}

/// Returns `true` for a line of column names: it has fields, and none of them begins with a digit.
pub(crate) fn is_header(line: &str) -> bool {
    let names = |mut fields: Fields<'_>| {
        std::iter::from_fn(|| fields.next()).all(|field| !field.starts_with(|c: char| c.is_ascii_digit()))
    };
    names(Fields::separated(line)) && names(Fields::words(line))
}

/// Returns seconds with a fraction as nanoseconds; a decimal comma is taken as a point.
pub(crate) fn seconds(text: &str) -> Result<u64, &'static str> {
    let value: f64 = text.replacen(',', ".", 1).parse().map_err(|_| "a field is not a time")?;
    whole(value * 1e9)
}

/// A time that was computed with fractions.
pub(crate) fn whole(value: f64) -> Result<u64, &'static str> {
    if !(0.0..TIME_NS_MAX).contains(&value) {
        return Err("a time is out of range");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked")]
    let whole = value.round() as u64;
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut fields: Fields<'_>) -> Vec<&str> {
        std::iter::from_fn(|| fields.next()).collect()
    }

    #[test]
    fn separators_and_quotes() {
        assert_eq!(all(Fields::separated("1,R,0,8")), ["1", "R", "0", "8"]);
        assert_eq!(all(Fields::separated(r#""1", "R" ,0,"8""#)), ["1", "R", "0", "8"]);
        assert_eq!(all(Fields::separated(r#""a,b","",c"#)), ["a,b", "", "c"]);
        assert_eq!(all(Fields::separated("0;2;8;w;0,551706")), ["0", "2", "8", "w", "0,551706"]);
        assert_eq!(all(Fields::separated("0\t2\tR")), ["0", "2", "R"]);
        assert_eq!(all(Fields::separated("1,,")), ["1", "", ""]);
        assert_eq!(all(Fields::words(" 1  2\t3 ")), ["1", "2", "3"]);
        // A quote that is not closed is part of its field.
        assert_eq!(all(Fields::separated("\"1,2")), ["\"1", "2"]);
    }

    #[test]
    fn a_header_has_no_number() {
        assert!(is_header("ts_us,op,offset,length") && is_header(r#""Timestamp","Hostname""#));
        assert!(is_header("time device lba"));
        assert!(!is_header("time,0,R") && !is_header("5 x y") && !is_header(r#""5",x"#));
    }

    #[test]
    fn a_decimal_comma_is_a_point() {
        assert_eq!(seconds("0,5"), Ok(500_000_000));
        assert_eq!(seconds("1.25"), Ok(1_250_000_000));
        assert!(seconds("1,2,3").is_err() && seconds("-1").is_err() && seconds("NaN").is_err());
    }
}
