//! Made-up data in the place of the paper's files, which cannot be had.
//!
//! - *SENSOR*: lines of a few patterns with digits that change.
//! - *LINUX*: lines of C: words by Zipf's law out of some thousands, in the usual punctuation;
//!   and firmware as text.
//! - *DOCUMENT*: pictures, plain ones and compressed ones.
//! - *MP3*: noise.
//! - *TEXT-raw*, *TEXT-web*, *IMAGE-web*: words; words in markup; noise in small files.
//!
//! How well they compress is that of these makers, not of the paper's files: LINUX and DOCUMENT have as many blobs and
//! compressed pictures as make their copies as fast as the paper's Figure 7 has them. The other figures follow.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// A kind of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Readings of sensors.
    Sensor,
    /// Source of a kernel.
    Linux,
    /// Documents with pictures.
    Document,
    /// Music, compressed.
    Mp3,
    /// Text.
    TextRaw,
    /// Text with markup.
    TextWeb,
    /// Pictures, compressed.
    ImageWeb,
    /// Inodes and directories.
    Metadata,
}

impl Kind {
    /// The paper's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sensor => "SENSOR",
            Self::Linux => "LINUX",
            Self::Document => "DOCUMENT",
            Self::Mp3 => "MP3",
            Self::TextRaw => "TEXT-raw",
            Self::TextWeb => "TEXT-web",
            Self::ImageWeb => "IMAGE-web",
            Self::Metadata => "metadata",
        }
    }
}

/// Different words.
const WORDS: u64 = 4000;
/// Share of lines of source that are blobs, and their length: a tenth of the bytes.
const BLOBS: f64 = 0.0005;
const BLOB_BYTES: usize = 8192;
/// Bytes of a picture.
const STRETCH_BYTES: usize = 20_000;

struct Maker {
    rng: Pcg64Mcg,
    out: Vec<u8>,
}

impl Maker {
    fn noise(&mut self, len: usize) {
        let rng = &mut self.rng;
        self.out.extend((0..len).map(|_| rng.random::<u8>()));
    }

    /// A word: rank r with a probability in proportion to 1 / r; its letters follow from the rank.
    fn word(&mut self) {
        let rank = (WORDS as f64).powf(self.rng.random::<f64>());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 1 to the number of words"
        )]
        let mut letters = Pcg64Mcg::seed_from_u64(rank as u64);
        let len = letters.random_range(2..11);
        self.out.extend((0..len).map(|_| b"etaoinshrdlucmfwypvbgk_x"[letters.random_range(0..24_usize)]));
    }

    fn words(&mut self, count: u32) {
        for _ in 0..count {
            self.word();
            self.out.push(b' ');
        }
    }

    fn digits(&mut self, count: u32) {
        for _ in 0..count {
            self.out.push(b'0' + self.rng.random_range(0..10_u8));
        }
    }

    fn sensor(&mut self) {
        self.out.extend_from_slice(b"2010-11-03 12:00:00 ");
        self.one_of(&["chamber.pressure", "chamber.tempera.", "wafer.flow.rate."]);
        self.out.extend_from_slice(b" value=+0.0000000");
        self.digits(1);
        self.out.extend_from_slice(b" status=0 alarm=none unit=Pa\n");
    }

    fn one_of(&mut self, all: &[&str]) {
        let chosen = self.rng.random_range(0..all.len());
        self.out.extend_from_slice(all[chosen].as_bytes());
    }

    fn linux(&mut self) {
        self.one_of(&["\t", "\t\t", "\tif (", "\treturn ", "static int "]);
        self.word();
        self.digits(2);
        self.one_of(&["->", " = ", "(", ", ", " & "]);
        self.word();
        self.digits(3);
        self.one_of(&[");\n", ";\n", ") {\n", ";\n\n", " */\n"]);
    }

    /// Firmware and certificates as text: 64 characters, none likelier than another.
    fn blob(&mut self, len: usize) {
        let rng = &mut self.rng;
        self.out.extend((0..len).map(|_| b'0' + rng.random_range(0..64_u8)));
    }

    /// A plain picture: runs of a few colours.
    fn picture(&mut self, len: usize) {
        let end = self.out.len() + len;
        while self.out.len() < end {
            let colour = [[255, 255, 255], [230, 230, 250], [0, 0, 128]][self.rng.random_range(0..3_usize)];
            (0..self.rng.random_range(20..200)).for_each(|_| self.out.extend_from_slice(&colour));
        }
    }

    fn web(&mut self) {
        self.out.extend_from_slice(b"<div class=\"article\"><p><a href=\"/wiki/");
        self.word();
        self.out.extend_from_slice(b"\">");
        self.words(8);
        self.out.extend_from_slice(b"</a></p></div>\n");
    }

    fn metadata(&mut self) {
        self.digits(4);
        self.out.extend_from_slice(&[0; 40]);
        self.word();
        self.out.extend_from_slice(&[0xA4, 0x81, 0, 0, 0xE8, 3, 0, 0, 0, 0, 0, 0]);
    }
}

/// Returns `len` bytes of a kind.
#[must_use]
pub fn make(kind: Kind, len: usize, seed: u64) -> Vec<u8> {
    let mut maker =
        Maker { rng: Pcg64Mcg::seed_from_u64(seed), out: Vec::with_capacity(len + STRETCH_BYTES) };
    while maker.out.len() < len {
        match kind {
            Kind::Sensor => maker.sensor(),
            Kind::Linux if maker.rng.random_bool(BLOBS) => maker.blob(BLOB_BYTES),
            Kind::Linux => maker.linux(),
            // Three parts of compressed pictures to two of plain ones.
            Kind::Document => {
                if maker.rng.random_bool(0.6) {
                    maker.noise(STRETCH_BYTES);
                } else {
                    maker.picture(STRETCH_BYTES);
                }
            }
            Kind::Mp3 | Kind::ImageWeb => maker.noise(len),
            Kind::TextRaw => maker.words(10),
            Kind::TextWeb => maker.web(),
            Kind::Metadata => maker.metadata(),
        }
    }
    maker.out.truncate(len);
    maker.out
}
