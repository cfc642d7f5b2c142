//! The papers' numbers that no figure makes, each with the reason.

/// Names in `numbers.csv`, and the reason for the missing counterpart.
pub const NOT_HERE: [(&str, &str); 7] = [
    ("flaz.t3.mailbox1", "The authors' mail cannot be had"),
    ("flaz.t3.mailbox2", "The authors' mail cannot be had"),
    ("flaz.t3.word", "The authors' documents cannot be had, and no Linux system has such files"),
    ("flaz.t3.excel", "The authors' documents cannot be had, and no Linux system has such files"),
    (
        "flaz.t3.pdf",
        "The authors' documents cannot be had; a system has too few of its own to tell them apart",
    ),
    (
        "flaz.f11.split",
        "Requests split to run on several processors: our model of FlaZ takes every block for itself, and has no such split",
    ),
    ("zbd", "Only the abstract is at hand: neither its workloads nor its layout"),
];
