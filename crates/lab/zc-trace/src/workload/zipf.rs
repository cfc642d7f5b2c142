//! Draws from Zipf's law over a bounded range, for any exponent, in constant time and memory: rejection-inversion
//! (Hoermann and Derflinger, ACM TOMACS 1996).

use rand::{Rng, RngExt as _};

/// Ranks 1 to n, rank k with a probability in proportion to k to the power of minus theta.
#[derive(Debug, Clone, Copy)]
pub struct Zipf {
    ranks: f64,
    theta: f64,
    /// Bounds of the area under the hat.
    area: (f64, f64),
    /// Draws this close to their rank are accepted without computing the area.
    near: f64,
}

/// (e^t - 1) / t, with its limit at 0.
fn growth(t: f64) -> f64 {
    if t.abs() < 1e-8 { 1.0 + t / 2.0 } else { t.exp_m1() / t }
}

/// ln(1 + t) / t, with its limit at 0.
fn shrink(t: f64) -> f64 {
    if t.abs() < 1e-8 { 1.0 - t / 2.0 } else { t.ln_1p() / t }
}

impl Zipf {
    /// Over `ranks` ranks, at least 1, with an exponent of 0 or more.
    #[must_use]
    pub fn new(ranks: u64, theta: f64) -> Self {
        let ranks = ranks.max(1) as f64;
        let mut zipf = Self { ranks, theta, area: (0.0, 0.0), near: 0.0 };
        zipf.area = (zipf.integral(1.5) - 1.0, zipf.integral(ranks + 0.5));
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// The integral of the weight, up to a constant.
    fn integral(&self, x: f64) -> f64 {
        growth((1.0 - self.theta) * x.ln()) * x.ln()
    }

    fn inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.theta)).max(-1.0);
        (shrink(t) * area).exp()
    }

    /// A rank, from 1.
    pub fn draw(&self, rng: &mut impl Rng) -> u64 {
        loop {
            let area = self.area.1 + rng.random::<f64>() * (self.area.0 - self.area.1);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.ranks);
            if rank - x <= self.near || area >= self.integral(rank + 0.5) - self.weight(rank) {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "from 1 to the number of ranks"
                )]
                return rank as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    #[test]
    fn ranks_come_as_often_as_the_law_says() {
        for theta in [0.5, 0.99, 1.0, 1.2] {
            let (zipf, mut rng) = (Zipf::new(100, theta), Pcg64Mcg::seed_from_u64(5));
            let mut counts = [0_u32; 100];
            (0..200_000).for_each(|_| counts[usize::try_from(zipf.draw(&mut rng) - 1).unwrap()] += 1);
            let sum: f64 = (1..=100).map(|k| f64::from(k).powf(-theta)).sum();
            for k in [1_u32, 2, 10, 100] {
                let wanted = 200_000.0 * f64::from(k).powf(-theta) / sum;
                let found = f64::from(counts[usize::try_from(k - 1).unwrap()]);
                assert!((found - wanted).abs() < 5.0 * wanted.sqrt(), "{theta} {k}: {found} {wanted}");
            }
        }
    }

    #[test]
    fn one_rank_is_always_drawn() {
        let mut rng = Pcg64Mcg::seed_from_u64(5);
        assert_eq!(Zipf::new(1, 0.99).draw(&mut rng), 1);
    }
}
