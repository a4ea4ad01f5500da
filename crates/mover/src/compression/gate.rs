//! Tells content that will not become smaller from what may, for a fraction of the price of trying.
//!
//! A sample of a block is looked at: bytes that are all about equally frequent do not compress. After blocks that did not
//! become smaller only every so many is looked at, so that compressed files and noise cost next to nothing.

/// Stretches looked at, spread over the block, and the bytes of each.
const STRETCHES: usize = 16;
const STRETCH_BYTES: usize = 128;
const SAMPLE_BYTES: usize = STRETCHES * STRETCH_BYTES;
/// Shorter content is not worth a try.
pub const CONTENT_BYTES_MIN: usize = SAMPLE_BYTES;
/// Blocks passed over in a row at most.
const PASSED_MAX: u32 = 15;

#[derive(Default)]
pub struct Gate {
    /// Blocks in a row that did not become smaller.
    refused: u32,
    /// Blocks to pass over before the next is looked at.
    pass: u32,
}

impl Gate {
    /// Whether a block of that length is to be looked at.
    pub fn looks(&mut self, content_bytes: usize) -> bool {
        if content_bytes < CONTENT_BYTES_MIN {
            return false;
        }
        let looks = self.pass == 0;
        self.pass = self.pass.saturating_sub(1);
        looks
    }

    /// Whether the block may become smaller.
    pub fn admits(&mut self, content: &[u8]) -> bool {
        let admits = is_uneven(content);
        if !admits {
            self.refuse();
        }
        admits
    }

    /// The block became smaller after all, or not.
    pub fn learn(&mut self, is_smaller: bool) {
        if is_smaller {
            self.refused = 0;
        } else {
            self.refuse();
        }
    }

    fn refuse(&mut self) {
        self.refused = (self.refused + 1).min(8);
        // The first few are looked at one by one.
        self.pass = (1u32 << self.refused.saturating_sub(3)).saturating_sub(1).min(PASSED_MAX);
    }
}

/// Whether some bytes are clearly more frequent than others. `content` is at least `CONTENT_BYTES_MIN` long.
fn is_uneven(content: &[u8]) -> bool {
    let mut counts = [0u32; 256];
    let stride = content.len() / STRETCHES;
    for stretch in 0..STRETCHES {
        // Not at the same place of each stride: content has periods of its own.
        let shift = (stretch * 40_503) % (stride - STRETCH_BYTES + 1);
        let at = stretch * stride + shift;
        content[at..at + STRETCH_BYTES].iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    }
    // Pairs of equal bytes: noise has one in 256, and its own spread over samples of this size is a hundredth of that.
    let pairs: u32 = counts.iter().map(|count| count * count.saturating_sub(1)).sum();
    let pairs_of_noise = (SAMPLE_BYTES * (SAMPLE_BYTES - 1) / 256) as u32;
    pairs > pairs_of_noise * 13 / 10
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    #[test]
    fn noise_is_passed_over_and_what_repeats_or_is_uneven_is_not() {
        assert!(!is_uneven(&noise(128 << 10)));
        assert!(!is_uneven(&noise(CONTENT_BYTES_MIN)));
        assert!(is_uneven(&vec![7; 128 << 10]));
        let text: Vec<u8> = b"it is a truth universally acknowledged, that ".repeat(3000);
        assert!(is_uneven(&text));
        // Half noise and half filler in units of 16 KiB, as generated sets have it.
        let mut half = noise(128 << 10);
        half.chunks_mut(16 << 10).for_each(|unit| unit[8 << 10..].fill(3));
        assert!(is_uneven(&half));
        let digits: Vec<u8> = noise(128 << 10).iter().map(|byte| b"0123456789abcdef"[usize::from(byte & 15)]).collect();
        assert!(is_uneven(&digits));
    }

    #[test]
    fn of_noise_one_block_in_sixteen_is_looked_at_and_one_success_ends_that() {
        let mut gate = Gate::default();
        let looked = (0..1000)
            .filter(|_| {
                let looks = gate.looks(1 << 17);
                if looks {
                    gate.learn(false);
                }
                looks
            })
            .count();
        assert!((60..=80).contains(&looked), "{looked}");
        while !gate.looks(1 << 17) {}
        gate.learn(true);
        assert!((0..5).all(|_| gate.looks(1 << 17)));
        assert!(!gate.looks(100));
    }
}
