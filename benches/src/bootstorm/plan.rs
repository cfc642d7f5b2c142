//! The storm: volumes' files and machines' requests.
//!
//! Invariants: both copies of the volumes are byte for byte alike when a configuration begins; files are written out,
//! never sparse.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::Context as _;
use zc_core::{u64_from_usize, usize_from_u32};
use zc_trace::contents::fill;
use zc_trace::storm::{BLOCK_BYTES, Io, Shape, Template};

use crate::load::Step;

const BLOCK: usize = 4096;

/// A storm, ready to be replayed.
#[derive(Debug)]
pub(crate) struct Plan {
    template: Template,
    shape: Shape,
    machines: u32,
    /// Contents of the template's volume.
    image: Vec<u8>,
    /// Requests of each machine.
    steps: Vec<Vec<Step>>,
    /// Bytes of all writes.
    payloads: Vec<u8>,
    /// Blocks that each machine writes.
    written: Vec<Vec<u32>>,
}

/// Name of a volume, its file and its export.
pub(crate) fn volume_name(machine: usize) -> String {
    format!("vm{machine:02}")
}

impl Plan {
    /// Clones a template.
    pub(crate) fn new(template: Template, machines: u32, shape: Shape) -> Self {
        let mut image = vec![0; usize_from_u32(template.blocks()) * BLOCK];
        for (block, (content, _)) in image.chunks_mut(BLOCK).zip(template.machine(0, shape).image()) {
            fill(&content, block);
        }
        let (steps, written) = (Vec::new(), Vec::new());
        let mut plan = Self { template, shape, machines, image, steps, payloads: Vec::new(), written };
        for machine in 0..machines {
            plan.add_machine(machine);
        }
        plan
    }

    fn add_machine(&mut self, machine: u32) {
        let ios: Vec<Io> = self.template.machine(machine, self.shape).ios().collect();
        let mut written = Vec::new();
        let mut steps = Vec::with_capacity(ios.len());
        for io in ios {
            let from = self.payloads.len();
            for content in &io.written {
                let at = self.payloads.len();
                self.payloads.resize(at + BLOCK, 0);
                fill(content, &mut self.payloads[at..]);
            }
            let payload = (!io.written.is_empty()).then_some(from..self.payloads.len());
            if payload.is_some() {
                written.extend(io.block..io.block + io.blocks);
            }
            let offset = u64::from(io.block) * u64::from(BLOCK_BYTES);
            steps.push(Step { offset, len_bytes: io.blocks * BLOCK_BYTES, payload });
        }
        self.steps.push(steps);
        self.written.push(written);
    }

    /// Returns the number of machines.
    pub(crate) fn machines(&self) -> usize {
        self.steps.len()
    }

    /// Bytes of one volume; a multiple of 4 MiB.
    pub(crate) fn volume_bytes(&self) -> u64 {
        self.template.bytes().next_multiple_of(4 << 20)
    }

    /// The boot that all come from.
    pub(crate) const fn template(&self) -> &Template {
        &self.template
    }

    /// Bytes of writes.
    pub(crate) fn payloads(&self) -> &[u8] {
        &self.payloads
    }

    /// Returns the steps of each machine in a slice of its boot.
    pub(crate) fn slice(&self, slice: usize, slices: usize) -> Vec<&[Step]> {
        let part = |steps: &'_ [Step], at: usize| steps.len() * at / slices;
        self.steps.iter().map(|steps| &steps[part(steps, slice)..part(steps, slice + 1)]).collect()
    }

    /// The reads of whole boots.
    pub(crate) fn reads(&self) -> Vec<Vec<Step>> {
        let reads = |steps: &Vec<Step>| steps.iter().filter(|step| step.payload.is_none()).cloned().collect();
        self.steps.iter().map(reads).collect()
    }

    /// Writes the volumes' files into each folder.
    pub(crate) fn make_files(&self, folders: &[&Path]) -> anyhow::Result<()> {
        for folder in folders {
            std::fs::create_dir_all(folder)?;
        }
        for machine in 0..self.machines {
            let name = format!("{}.img", volume_name(usize_from_u32(machine)));
            let open = |folder: &&Path| {
                let path = folder.join(&name);
                let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()));
                file.map(|file| BufWriter::with_capacity(1 << 20, file))
            };
            let mut files: Vec<BufWriter<File>> = folders.iter().map(open).collect::<Result<_, _>>()?;
            let mut own = [0; BLOCK];
            for (content, shared) in self.template.machine(machine, self.shape).image() {
                let bytes = match shared {
                    Some(block) => &self.image[usize_from_u32(block) * BLOCK..][..BLOCK],
                    None => {
                        fill(&content, &mut own);
                        &own
                    }
                };
                files.iter_mut().try_for_each(|file| file.write_all(bytes))?;
            }
            let rest = vec![0; zc_core::usize_from_u64(self.volume_bytes() - self.template.bytes())];
            for mut file in files {
                file.write_all(&rest)?;
                file.into_inner()?.sync_data()?;
            }
        }
        Ok(())
    }

    /// Restores the blocks that boots have written.
    pub(crate) fn restore(&self, folder: &Path) -> anyhow::Result<()> {
        for (machine, written) in self.written.iter().enumerate() {
            let path = folder.join(format!("{}.img", volume_name(machine)));
            let file = File::options().write(true).open(&path)?;
            let number = u32::try_from(machine).context("too many machines")?;
            let image: Vec<_> = self.template.machine(number, self.shape).image().collect();
            let mut bytes = [0; BLOCK];
            for block in written {
                fill(&image[usize_from_u32(*block)].0, &mut bytes);
                file.write_all_at(&bytes, u64::from(*block) * u64_from_usize(BLOCK))?;
            }
            file.sync_data()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_trace::{Boot, boot};

    fn plan(machines: u32) -> Plan {
        let lines = boot(Boot { bytes: 1 << 20, reads: 0.8, ..Boot::default() });
        let template = Template::new(lines.into_iter().map(Ok)).unwrap();
        Plan::new(template, machines, Shape::default())
    }

    #[test]
    fn slices_make_up_the_boots() {
        let plan = plan(3);
        assert_eq!(plan.machines(), 3);
        let count = |steps: &[&[Step]]| steps.iter().map(|steps| steps.len()).sum::<usize>();
        let all = count(&plan.slice(0, 1));
        assert_eq!((0..7).map(|slice| count(&plan.slice(slice, 7))).sum::<usize>(), all);
        let reads: usize = plan.reads().iter().map(Vec::len).sum();
        assert!(reads > 0 && reads < all);
        let bytes: usize = plan
            .steps
            .iter()
            .flatten()
            .filter_map(|step| step.payload.as_ref())
            .map(ExactSizeIterator::len)
            .sum();
        assert_eq!(bytes, plan.payloads().len());
    }

    #[test]
    fn files_are_alike_and_restored() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        let plan = plan(2);
        plan.make_files(&[&one, &two]).unwrap();
        let read = |folder: &Path| std::fs::read(folder.join("vm01.img")).unwrap();
        let before = read(&one);
        assert_eq!(u64_from_usize(before.len()), plan.volume_bytes());
        assert!(before == read(&two) && before != std::fs::read(one.join("vm00.img")).unwrap());
        let file = File::options().write(true).open(one.join("vm01.img")).unwrap();
        for step in &plan.steps[1] {
            if let Some(payload) = &step.payload {
                file.write_all_at(&plan.payloads()[payload.clone()], step.offset).unwrap();
            }
        }
        assert!(read(&one) != before, "a boot writes something");
        plan.restore(&one).unwrap();
        assert!(read(&one) == before);
    }
}
