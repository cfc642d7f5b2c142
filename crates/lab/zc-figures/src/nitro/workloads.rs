//! Workloads of Nitro's evaluation: three FIU traces, or substitutes.
//!
//! The FIU traces cannot be shipped. The paper's facts about them (section 5.2: writes per read, share of the file
//! system that is accessed; Figures 1 and 6.3: deduplication 1.5 to 2 times, repeated content "to the same, or a
//! different, address") define three generated workloads of the same proportions on smaller volumes. Not from the
//! paper: Zipf's law with an exponent of 1.15, requests of 8 KiB, and the division of the repeated content (`sweep.rs`
//! has the results for other values of both): a quarter of writes repeats the present content of its address in
//! *homes*, whose reuse distance of fingerprints the paper calls short, and in *mail*, a tenth in *webvm*; 45 to 50 %
//! of the rest come from a pool of contents, a sixteenth as many as there are addresses in use.

use zc_flash::nitro::{Access, accesses};
use zc_replay::{REQUESTS_MAX, Ratios, Trace};
use zc_trace::Format;
use zc_trace::workload::{Kind, Mix, Workload};

use super::runs::percent_of;
use crate::context::{Context, load};
use crate::error::FigureError;
use crate::outcome::Outcome;

/// Remark on a figure without FIU traces.
const NOT_FIU: &str = "The FIU traces cannot be had here: these are generated workloads with their published proportions. \
                       With --fiu DIR the traces themselves are used.";
/// Exponent of Zipf's law.
const THETA: f64 = 1.15;
/// Lines of an FIU trace at small scale. At full scale as many as a replay holds: *mail* has more.
const FIU_LINES_SMALL: usize = 2_000_000;

/// Proportions of a trace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Name of the trace in the paper and in names of files: lower case.
    pub(crate) name: &'static str,
    /// Prefixes of the file names: as in the paper, or FIU's names of the machines.
    files: [&'static str; 2],
    /// Size of the file system in GB.
    volume_gb: u64,
    /// Accessed share of it, in per mille.
    accessed_permille: u64,
    writes_per_read: f64,
    /// Ratio of the file system to the accessed part.
    spread: u64,
    repeated: f64,
    shared: f64,
    theta: f64,
}

pub(crate) const SHAPES: [Shape; 3] = [
    Shape {
        name: "webvm",
        files: ["webvm", "webmail+online"],
        volume_gb: 70,
        accessed_permille: 53,
        writes_per_read: 3.6,
        spread: 19,
        repeated: 0.1,
        shared: 0.45,
        theta: THETA,
    },
    Shape {
        name: "homes",
        files: ["homes", "homes"],
        volume_gb: 470,
        accessed_permille: 58,
        writes_per_read: 4.2,
        spread: 17,
        repeated: 0.25,
        shared: 0.45,
        theta: THETA,
    },
    Shape {
        name: "mail",
        files: ["mail", "cheetah"],
        volume_gb: 500,
        accessed_permille: 115,
        writes_per_read: 4.3,
        spread: 9,
        repeated: 0.25,
        shared: 0.5,
        theta: THETA,
    },
];

/// A trace with its volume.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) name: &'static str,
    pub(crate) trace: Trace,
    pub(crate) volume_bytes: u64,
    /// Remark on a trace that was not generated.
    remark: Option<String>,
}

/// Requests to a cache over a model of the SSD.
#[derive(Debug)]
pub(crate) enum Source {
    /// A workload of which each block stands for an extent.
    Made(Workload),
    /// A trace.
    Traced(Box<Loaded>),
}

impl Source {
    /// Accesses to extents of this size.
    pub(crate) fn accesses(&self, extent_bytes: u32) -> Box<dyn Iterator<Item = Access> + '_> {
        match self {
            Self::Made(workload) => Box::new(accesses(workload, extent_bytes)),
            Self::Traced(loaded) => Box::new(loaded.trace.accesses(extent_bytes)),
        }
    }

    /// Two per cent of the volume.
    pub(crate) fn flash_bytes(&self, extent_bytes: u32) -> u64 {
        match self {
            Self::Made(workload) => workload.blocks * u64::from(extent_bytes) / 50,
            Self::Traced(loaded) => percent_of(loaded.volume_bytes, 2.0),
        }
    }

    /// Returns the size of the whole volume, and half as much again, so that nothing is evicted.
    pub(crate) fn whole_bytes(&self, extent_bytes: u32) -> u64 {
        self.flash_bytes(extent_bytes) * 75
    }
}

impl Shape {
    fn workload(&self, context: &Context) -> Workload {
        // 2 % are 80 units at either scale.
        let blocks = context.scale.pick(1_u64 << 18, 1 << 21);
        let unique = context.are_unique();
        let mix = Mix {
            writes_per_read: self.writes_per_read,
            spread: self.spread,
            repeated: if unique { 0.0 } else { self.repeated },
            theta: self.theta,
        };
        Workload {
            kind: Kind::Mix(mix),
            blocks,
            requests: context.scale.pick(60_000, 1_000_000),
            reads: 0.0,
            shared: if unique { 0.0 } else { self.shared },
            ratio: context.ratio((2.0, 0.5)),
            seed: 1,
        }
    }

    /// A trace of this shape with other parameters that are not from the paper: always generated.
    pub(crate) fn with(&self, theta: f64, shared: f64, context: &Context) -> Result<Loaded, FigureError> {
        let shape = Self { theta, shared, ..*self };
        shape.load(&Context { fiu: None, ..context.clone() })
    }

    /// A trace of this shape without writes: always generated.
    pub(crate) fn reads_only(&self, context: &Context) -> Result<Loaded, FigureError> {
        let shape = Self { writes_per_read: 0.0, ..*self };
        shape.load(&Context { fiu: None, ..context.clone() })
    }

    /// Loads the trace or its substitute, with its remark added to the outcome.
    pub(crate) fn load_one(&self, context: &Context, outcome: &mut Outcome) -> Result<Loaded, FigureError> {
        let loaded = self.load(context)?;
        outcome.remark(loaded.remark.as_deref().unwrap_or(NOT_FIU));
        Ok(loaded)
    }

    /// Loads the trace or its substitute.
    pub(crate) fn load(&self, context: &Context) -> Result<Loaded, FigureError> {
        let name = self.name;
        if let Some(folder) = &context.fiu {
            let lines = context.scale.pick(FIU_LINES_SMALL, REQUESTS_MAX);
            let (trace, bad) = load(folder, &self.files, Some(Format::Fiu), lines)?;
            // For a part of the trace the volume is scaled by the accessed size.
            let of_part = trace.footprint_bytes() * 1000 / self.accessed_permille;
            let volume_bytes = of_part.min(self.volume_gb * 1_000_000_000);
            let remark = Some(format!(
                "{name}: the FIU trace, {} requests that touch {} MiB of a volume that is taken to have {} MiB; {bad} bad \
                 lines were passed over.",
                trace.requests(),
                trace.footprint_bytes() >> 20,
                volume_bytes >> 20,
            ));
            return Ok(Loaded { name, trace, volume_bytes, remark });
        }
        let workload = self.workload(context);
        let trace = Trace::load(workload.generate().map(Ok), Ratios::default())?;
        Ok(Loaded { name, trace, volume_bytes: workload.blocks * 4096, remark: None })
    }
}

/// All three.
pub(crate) fn load_all(context: &Context, outcome: &mut Outcome) -> Result<Vec<Loaded>, FigureError> {
    let all = crate::context::each(&SHAPES, |shape| shape.load(context))?;
    all.iter().for_each(|loaded| outcome.remark(loaded.remark.as_deref().unwrap_or(NOT_FIU)));
    Ok(all)
}

/// All three for caches over a model of the SSD.
pub(crate) fn sources(context: &Context, outcome: &mut Outcome) -> Result<Vec<Source>, FigureError> {
    if context.fiu.is_none() {
        outcome.remark(NOT_FIU);
        outcome.remark("One block of the generator stands for an extent.");
        return Ok(SHAPES.iter().map(|shape| Source::Made(shape.workload(context))).collect());
    }
    Ok(load_all(context, outcome)?.into_iter().map(|loaded| Source::Traced(Box::new(loaded))).collect())
}
