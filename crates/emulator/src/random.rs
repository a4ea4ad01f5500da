//! Seeded random numbers: the same seed gives the same choices on every machine and in every release.
//!
//! The generator is SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): five lines whose output will not change under a
//! library's feet. Not for secrets.

use std::f64::consts::TAU;

#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// Of one purpose within a laboratory: streams of different names are independent.
    pub fn named(seed: u64, name: &str) -> Random {
        // FNV-1a spreads the name over the state.
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let mut random = Random::new(seed ^ hash);
        random.draw();
        random
    }

    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Above 0, at most 1.
    pub fn unit(&mut self) -> f64 {
        ((self.draw() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Mean 0, standard deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (TAU * self.unit()).cos()
    }

    /// Failures before the first success, each trial succeeding with `probability`; the largest number where it is 0.
    pub fn geometric(&mut self, probability: f64) -> u64 {
        if probability <= 0.0 {
            return u64::MAX;
        }
        if probability >= 1.0 {
            return 0;
        }
        (self.unit().ln() / (-probability).ln_1p()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        let mut random = Random::new(1234567);
        assert_eq!([random.draw(), random.draw()], [6457827717110365317, 3203168211198807973]);
    }

    #[test]
    fn geometric_has_the_mean_of_its_probability() {
        let mut random = Random::new(1);
        let sum: u64 = (0..100_000).map(|_| random.geometric(0.01)).sum();
        let mean = sum as f64 / 100_000.0;
        assert!((mean - 99.0).abs() < 1.0, "{mean}");
        assert_eq!((random.geometric(1.0), random.geometric(0.0)), (0, u64::MAX));
    }
}
