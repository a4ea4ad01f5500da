//! Bytes that can be made at any offset: ones that do not compress, zeros, or ones that compress to a given ratio.
//!
//! Word `n` of a file is a bijective mix of `n` and the file's key, so words do not repeat within a file; a second key
//! makes the streams of two files differ even where their counters overlap. Where content compresses, the beginning of
//! each unit of 16 KiB is of that kind and the rest is one byte, repeated: never zero, so that no program takes it for a hole.

/// 2^64 divided by the golden ratio, odd: the counter's step of SplitMix64, whose finalizer `mix` is.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD_BYTES: usize = 8;
/// Offsets are multiples of this. Small against the window of any compressor, large against the cost of a repetition.
pub const UNIT_BYTES: usize = 16 << 10;
/// Above it gzip's cost of the repetitions would show.
const RATIO_MAX: f64 = 20.0;

/// What the files of a set hold.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Content {
    /// Does not compress.
    #[default]
    Random,
    Zero,
    /// A compressor makes it smaller by this factor.
    Ratio(f64),
}

impl Content {
    /// Reads `random`, `zero`, or a ratio from `1:1` to `20:1`.
    pub fn parse(text: &str) -> Option<Content> {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
        match text.trim() {
            "random" => return Some(Content::Random),
            "zero" => return Some(Content::Zero),
            _ => {}
        }
        let ratio = text.split_once(':').and_then(|(size, packed)| Some(number(size)? / number(packed)?));
        match ratio {
            Some(1.0) => Some(Content::Random),
            Some(ratio) if ratio > 1.0 && ratio <= RATIO_MAX => Some(Content::Ratio(ratio)),
            _ => None,
        }
    }
}

/// The bytes of one file.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    start: u64,
    whitening: u64,
    content: Content,
}

impl Stream {
    pub fn of_file(content: Content, seed: u64, group: u64, file: u64) -> Stream {
        let start = key(seed, group, file);
        Stream { start, whitening: mix(start ^ STEP), content }
    }

    /// Fills a buffer with the content from `offset` on, which must be a multiple of `UNIT_BYTES`.
    pub fn fill(&self, offset: u64, buffer: &mut [u8]) {
        debug_assert_eq!(offset % UNIT_BYTES as u64, 0);
        match self.content {
            Content::Random => self.fill_words(offset, buffer),
            Content::Zero => buffer.fill(0),
            Content::Ratio(ratio) => {
                let filler = self.whitening as u8 | 1;
                for (unit, bytes) in buffer.chunks_mut(UNIT_BYTES).enumerate() {
                    let random_bytes = (bytes.len() as f64 / ratio).round() as usize;
                    let (random, rest) = bytes.split_at_mut(random_bytes);
                    self.fill_words(offset + (unit * UNIT_BYTES) as u64, random);
                    rest.fill(filler);
                }
            }
        }
    }

    fn fill_words(&self, offset: u64, buffer: &mut [u8]) {
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

/// Scatters the bits of a word; no two words become one.
pub fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn key(seed: u64, group: u64, file: u64) -> u64 {
    [group, file].iter().fold(mix(seed.wrapping_add(STEP)), |key, part| mix(key ^ mix(part.wrapping_add(STEP))))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn bytes(content: Content, count: usize) -> Vec<u8> {
        let mut buffer = vec![0; count];
        Stream::of_file(content, 7, 0, 0).fill(0, &mut buffer);
        buffer
    }

    fn gzip_ratio(bytes: &[u8]) -> f64 {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        bytes.len() as f64 / encoder.finish().unwrap().len() as f64
    }

    #[test]
    fn content_does_not_depend_on_where_the_blocks_begin() {
        for content in [Content::Random, Content::Zero, Content::Ratio(3.0)] {
            let stream = Stream::of_file(content, 1, 2, 3);
            let mut whole = vec![1; 3 * UNIT_BYTES + 1003];
            stream.fill(0, &mut whole);
            let mut tail = vec![1; whole.len() - UNIT_BYTES];
            stream.fill(UNIT_BYTES as u64, &mut tail);
            assert_eq!(whole[UNIT_BYTES..], tail, "{content:?}");
        }
    }

    #[test]
    fn every_byte_value_is_about_equally_frequent() {
        let mut counts = [0_u32; 256];
        bytes(Content::Random, 1 << 20).iter().for_each(|&byte| counts[byte as usize] += 1);
        assert!(counts.iter().all(|count| (3_700..4_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_compressor_reaches_the_ratio_within_a_tenth() {
        for ratio in [1.5, 2.0, 3.0, 5.0, 10.0, 20.0] {
            let reached = gzip_ratio(&bytes(Content::Ratio(ratio), 1 << 20));
            assert!((reached / ratio - 1.0).abs() < 0.1, "{ratio}: {reached}");
        }
        let small = gzip_ratio(&bytes(Content::Ratio(2.0), 8 << 10));
        assert!((small / 2.0 - 1.0).abs() < 0.1, "{small}");
        assert!(gzip_ratio(&bytes(Content::Random, 1 << 20)) < 1.001);
        assert!(gzip_ratio(&bytes(Content::Zero, 1 << 20)) > 500.0);
    }

    #[test]
    fn ratios_are_read_and_nonsense_is_refused() {
        assert_eq!(Content::parse("2:1").unwrap(), Content::Ratio(2.0));
        assert_eq!(Content::parse("3:2").unwrap(), Content::Ratio(1.5));
        assert_eq!(Content::parse("1:1").unwrap(), Content::Random);
        assert_eq!(Content::parse("zero").unwrap(), Content::Zero);
        for text in ["", "2", "1:2", "21:1", "0:1", "1:0", "inf:1", "NaN:1", "-2:-1", "text"] {
            assert!(Content::parse(text).is_none(), "{text:?}");
        }
    }
}
