//! One request of a trace.

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Data was read.
    Read,
    /// Data was written.
    Write,
    /// Everything written before was made durable.
    Flush,
    /// Releases data.
    Discard,
    /// An access of a kind that the format lacks.
    Access,
}

impl Op {
    /// Returns `true` if the request names bytes of the device.
    #[must_use]
    pub const fn has_range(self) -> bool {
        !matches!(self, Self::Flush)
    }
}

/// Content of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content {
    /// Equal for equal bytes.
    pub fingerprint: u128,
    /// Bytes after LZ4, if in the trace.
    pub lz4_bytes: Option<u32>,
    /// Bytes after Zstandard at level 1, if in the trace.
    pub zstd1_bytes: Option<u32>,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// When, since the first request; 0 in formats without times.
    pub time_ns: u64,
    /// Device, in formats with several.
    pub device: u32,
    /// First byte.
    pub offset_bytes: u64,
    /// Length in bytes; 0 for a flush alone.
    pub len_bytes: u32,
    /// Kind.
    pub op: Op,
    /// Content, if known.
    pub content: Option<Content>,
    /// `true` if it continues the request before: both were one, with different contents in different parts.
    pub continues: bool,
}

impl Request {
    /// A request of device 0 that stands alone, of whose bytes nothing is known.
    #[must_use]
    pub const fn new(time_ns: u64, op: Op, offset_bytes: u64, len_bytes: u32) -> Self {
        Self { time_ns, device: 0, offset_bytes, len_bytes, op, content: None, continues: false }
    }

    /// This request on another device.
    #[must_use]
    pub const fn on(self, device: u32) -> Self {
        Self { device, ..self }
    }

    /// Returns this request with a content.
    #[must_use]
    pub fn of(self, content: impl Into<Option<Content>>) -> Self {
        Self { content: content.into(), ..self }
    }

    /// The byte after the last.
    #[must_use]
    pub const fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(self.len_bytes as u64)
    }
}

/// The fingerprint that a line of text has.
pub(crate) fn hash(text: &str) -> Result<u128, &'static str> {
    let hexadecimal = (16..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = if hexadecimal { u128::from_str_radix(text, 16).ok() } else { None };
    value.ok_or("a fingerprint is not 16 to 32 hexadecimal digits")
}
