//! Who has had how much: charges that are forgotten with a half-life of an hour.

const HALF_LIFE_MS: f64 = 3_600_000.0;

/// A sum of which half is forgotten each hour.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decayed {
    value: f64,
    at_ms: u64,
}

impl Decayed {
    pub fn at(&self, now_ms: u64) -> f64 {
        left(self.value, now_ms.saturating_sub(self.at_ms))
    }

    pub fn add(&mut self, amount: f64, now_ms: u64) {
        // A correction may take back more than is left of what it corrects.
        self.value = (self.at(now_ms) + amount).max(0.0);
        self.at_ms = now_ms.max(self.at_ms);
    }
}

/// What is left of an amount of so long ago.
pub fn left(amount: f64, ago_ms: u64) -> f64 {
    amount * (-(ago_ms as f64) / HALF_LIFE_MS).exp2()
}

/// The same of an amount that came evenly in so long.
pub fn left_of(amount: f64, in_ms: u64, ago_ms: u64) -> f64 {
    let lives = (in_ms.max(1) as f64 / HALF_LIFE_MS) * std::f64::consts::LN_2;
    left(amount, ago_ms) * -(-lives).exp_m1() / lives
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_forgotten_in_an_hour_and_no_debt_is_left() {
        let mut sum = Decayed::default();
        sum.add(8.0, 1000);
        assert_eq!(sum.at(1000), 8.0);
        assert!((sum.at(3_601_000) - 4.0).abs() < 1e-9);
        sum.add(-100.0, 3_601_000);
        assert_eq!(sum.at(3_601_000), 0.0);
        assert!((left_of(8.0, 1, 3_600_000) - 4.0).abs() < 1e-3);
        let day = left_of(24.0, 24 * 3_600_000, 0);
        assert!((1.4..1.5).contains(&day), "one in each hour, of which half is forgotten in each: {day}");
    }
}
