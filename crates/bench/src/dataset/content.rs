//! Bytes that do not compress and can be made at any offset.
//!
//! Word `n` of a file is a bijective mix of `n` and the file's key, so words do not repeat within a file; a second key
//! makes the streams of two files differ even where their counters overlap.

/// 2^64 divided by the golden ratio, odd: the counter's step of SplitMix64, whose finalizer `mix` is.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
pub const WORD_BYTES: usize = 8;

#[derive(Clone, Copy, Debug)]
pub struct Content {
    start: u64,
    whitening: u64,
}

impl Content {
    pub fn of_file(seed: u64, group: u64, file: u64) -> Content {
        let start = key(seed, group, file);
        Content { start, whitening: mix(start ^ STEP) }
    }

    /// Fills a buffer with the content from `offset` on, which must be a multiple of `WORD_BYTES`.
    pub fn fill(&self, offset: u64, buffer: &mut [u8]) {
        debug_assert_eq!(offset % WORD_BYTES as u64, 0);
        let mut counter = self.start.wrapping_add((offset / WORD_BYTES as u64).wrapping_mul(STEP));
        let mut words = buffer.chunks_exact_mut(WORD_BYTES);
        for word in &mut words {
            word.copy_from_slice(&(mix(counter) ^ self.whitening).to_le_bytes());
            counter = counter.wrapping_add(STEP);
        }
        let rest = words.into_remainder();
        let last = (mix(counter) ^ self.whitening).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// A number in [0, 1) that belongs to a file.
pub fn unit_interval(seed: u64, group: u64, file: u64) -> f64 {
    // 53 bits fill the mantissa of a double.
    (mix(key(seed, group, file)) >> 11) as f64 / (1_u64 << 53) as f64
}

fn key(seed: u64, group: u64, file: u64) -> u64 {
    [group, file].iter().fold(mix(seed.wrapping_add(STEP)), |key, part| mix(key ^ mix(part.wrapping_add(STEP))))
}

fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_does_not_depend_on_where_the_blocks_begin() {
        let content = Content::of_file(1, 2, 3);
        let mut whole = vec![0; 1003];
        content.fill(0, &mut whole);
        let mut tail = vec![0; 1003 - 64];
        content.fill(64, &mut tail);
        assert_eq!(whole[64..], tail);
    }

    #[test]
    fn every_byte_value_is_about_equally_frequent() {
        let mut buffer = vec![0; 1 << 20];
        Content::of_file(7, 0, 0).fill(0, &mut buffer);
        let mut counts = [0_u32; 256];
        buffer.iter().for_each(|&byte| counts[byte as usize] += 1);
        assert!(counts.iter().all(|count| (3_700..4_500).contains(count)), "{counts:?}");
    }
}
