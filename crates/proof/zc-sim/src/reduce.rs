//! What the workers do: hash, compress, compare; and what an origin that knows its fingerprints answers.

use zc_cache::seam::{Action, Digest, Event};

use crate::world::World;

impl World {
    pub(crate) fn perform_reduce(&mut self, action: &Action) -> Event {
        match action {
            Action::WantRecipe { op, volume, first, count, domain } => {
                let extent = self.geometry.extent_bytes as usize;
                let start = first.0 as usize * extent;
                let origin = &self.origins[usize::from(volume.0)].seen;
                let prints = origin[start..start + *count as usize * extent]
                    .chunks(extent)
                    .map(|bytes| Some(zc_reduce::fingerprint(self.config.fingerprint, domain, bytes)))
                    .collect();
                Event::RecipeArrived { op: *op, prints }
            }
            Action::Hash { op, src, domain } => {
                let bytes = self.slice(*src);
                let digest = if zc_reduce::is_zero(&bytes) {
                    Digest::Zero
                } else {
                    Digest::Print(zc_reduce::fingerprint(self.config.fingerprint, domain, &bytes))
                };
                Event::Hashed { op: *op, digest }
            }
            Action::Compress { op, src, codec, max_bytes, out } => {
                let bytes = self.slice(*src);
                let mut stored = vec![0; *max_bytes as usize];
                let len = self.reducer.compress(*codec, &bytes, &mut stored);
                self.bufs.insert(*out, stored).expect("allocated before");
                Event::Compressed { op: *op, stored_bytes: len.map(|len| len as u32) }
            }
            Action::Compare { op, left, right } => {
                Event::Compared { op: *op, equal: self.slice(*left) == self.slice(*right) }
            }
            other => panic!("{other:?} is no work"),
        }
    }
}
