//! How much content a job may send in all, as its user set it.
//!
//! A value without locks. Nothing is begun that would go beyond it, but for the first unit of work: so that a job that is begun
//! again and again comes to its end.

#[derive(Clone, Copy, Debug, Default)]
pub struct Allowance {
    /// Nothing is no bound.
    bytes_max: Option<u64>,
    used_bytes: u64,
    is_spent: bool,
}

impl Allowance {
    pub fn set(&mut self, bytes_max: Option<u64>) {
        self.bytes_max = bytes_max;
        self.is_spent = false;
    }

    /// Whether so much is left.
    pub fn fits(&self, bytes: u64) -> bool {
        self.bytes_max.is_none_or(|max| self.used_bytes.saturating_add(bytes) <= max)
    }

    /// Takes a unit of work off; what does not fit ends the job, also where less would have fitted.
    pub fn claim(&mut self, bytes: u64) -> bool {
        self.is_spent |= self.used_bytes > 0 && !self.fits(bytes);
        if !self.is_spent {
            self.used_bytes = self.used_bytes.saturating_add(bytes);
        }
        !self.is_spent
    }

    pub fn is_spent(&self) -> bool {
        self.is_spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_unit_may_go_and_after_it_only_what_fits() {
        let mut unbounded = Allowance::default();
        assert!(unbounded.claim(u64::MAX) && unbounded.claim(u64::MAX));
        let bounded = || {
            let mut allowance = Allowance::default();
            allowance.set(Some(10));
            allowance
        };
        let mut large = bounded();
        assert!(large.claim(100) && !large.claim(1));
        let mut allowance = bounded();
        assert!(allowance.claim(4) && allowance.claim(6) && allowance.claim(0) && !allowance.is_spent());
        assert!(!allowance.fits(1) && !allowance.claim(1) && allowance.is_spent() && !allowance.claim(0));
        allowance.set(Some(11));
        assert!(allowance.claim(1));
    }
}
