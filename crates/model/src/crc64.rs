//! CRC-64/NVME with 256-bit carry-less multiplication, for processors that have it without AVX-512 (AMD Zen 3, many client
//! processors of Intel). crc-fast, which computes everything else, has 128 and 512 bits.
//!
//! The long part of a block is folded into 128 bytes with the same remainder; crc-fast takes those, the rest of the block, and
//! whole blocks that are short. Folding is multiplication by a power of x modulo the generator, as in "Fast CRC Computation for
//! Generic Polynomials Using PCLMULQDQ Instruction" (Gopal et al., Intel, 2009).
//!
//! Not here: other digests, checksums put together from those of parts (`digest`).

use crc_fast::{CrcAlgorithm, Digest};

/// The generator of CRC-64/NVME, bits reversed.
const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;
/// What is folded at once: four registers of 32 bytes. Eight took as long.
const FOLD_BYTES: usize = 128;
/// Shorter blocks are left to crc-fast, which is as fast with them (docs/decisions/012-every-processor.md).
const FOLDED_BYTES_MIN: usize = 8 * FOLD_BYTES;

/// The checksum of bytes that come block by block.
#[derive(Clone, Copy)]
pub struct Crc64 {
    /// Inverted, as it begins and ends.
    state: u64,
}

impl Default for Crc64 {
    fn default() -> Crc64 {
        Crc64::new()
    }
}

impl Crc64 {
    pub fn new() -> Crc64 {
        Crc64 { state: !0 }
    }

    pub fn of(bytes: &[u8]) -> u64 {
        let mut crc = Crc64::new();
        crc.update(bytes);
        crc.finish()
    }

    pub fn update(&mut self, block: &[u8]) {
        #[cfg(target_arch = "x86_64")]
        if block.len() >= FOLDED_BYTES_MIN && folds_256_bits() {
            // SAFETY: the processor has what `update_folded` is compiled for.
            self.state = unsafe { update_folded(self.state, block) };
            return;
        }
        self.state = update(self.state, block);
    }

    pub fn finish(&self) -> u64 {
        !self.state
    }
}

/// How the checksum is computed here, in words.
pub fn implementation() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if folds_256_bits() {
        return "256-bit carry-less multiplication";
    } else if has_avx512() {
        return "512-bit carry-less multiplication";
    } else if is_x86_feature_detected!("pclmulqdq") {
        return "128-bit carry-less multiplication";
    }
    "crc-fast"
}

fn update(state: u64, block: &[u8]) -> u64 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc64Nvme, state);
    digest.update(block);
    digest.get_state()
}

/// The same by folding. `block` has at least `FOLD_BYTES`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn update_folded(state: u64, block: &[u8]) -> u64 {
    let (folded, rest) = x86::fold(state, block);
    let mut bytes = [0; 2 * FOLD_BYTES];
    bytes[..FOLD_BYTES].copy_from_slice(&folded);
    bytes[FOLD_BYTES..][..rest.len()].copy_from_slice(rest);
    update(0, &bytes[..FOLD_BYTES + rest.len()])
}

/// Where crc-fast has 512 bits it is left alone.
#[cfg(target_arch = "x86_64")]
fn folds_256_bits() -> bool {
    has_256_bits() && !has_avx512()
}

#[cfg(target_arch = "x86_64")]
fn has_256_bits() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vpclmulqdq")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512vl") && is_x86_feature_detected!("vpclmulqdq")
}

/// Product of two polynomials modulo the generator; bit 63 is the coefficient of 1.
pub(crate) const fn multiply(mut a: u64, mut b: u64) -> u64 {
    let mut product = 0;
    while a != 0 {
        if a >> 63 == 1 {
            product ^= b;
        }
        a <<= 1;
        b = (b >> 1) ^ if b & 1 == 1 { POLYNOMIAL } else { 0 };
    }
    product
}

/// A power of `base` modulo the generator.
pub(crate) const fn power(base: u64, mut exponent: u64) -> u64 {
    let (mut power, mut square) = (1 << 63, base);
    while exponent != 0 {
        if exponent & 1 == 1 {
            power = multiply(square, power);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    power
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{FOLD_BYTES, power};
    use std::arch::x86_64::{
        __m256i, _mm256_clmulepi64_epi128, _mm256_loadu_si256, _mm256_set_epi64x, _mm256_storeu_si256, _mm256_xor_si256,
    };

    /// The polynomial x.
    const X: u64 = 1 << 62;
    const LANES: usize = FOLD_BYTES / size_of::<__m256i>();
    /// What moves the first and the second eight bytes of sixteen on by `FOLD_BYTES`. The product of two reversed polynomials
    /// comes out multiplied by x, which is taken back here.
    const FIRST: u64 = power(X, 8 * FOLD_BYTES as u64 + 64 - 1);
    const SECOND: u64 = power(X, 8 * FOLD_BYTES as u64 - 1);

    /// Returns 128 bytes which, with a state of 0, leave the same state as `state` and the whole multiple of 128 bytes at the
    /// start of `block`, and what follows that multiple. `block` has at least 128 bytes.
    #[target_feature(enable = "avx2,vpclmulqdq")]
    pub fn fold(state: u64, block: &[u8]) -> ([u8; FOLD_BYTES], &[u8]) {
        let (units, rest) = block.as_chunks::<FOLD_BYTES>();
        let factors = _mm256_set_epi64x(SECOND as i64, FIRST as i64, SECOND as i64, FIRST as i64);
        let mut lanes = load(&units[0]);
        lanes[0] = _mm256_xor_si256(lanes[0], _mm256_set_epi64x(0, 0, 0, state as i64));
        for unit in &units[1..] {
            let next = load(unit);
            for (lane, next) in lanes.iter_mut().zip(next) {
                let first = _mm256_clmulepi64_epi128::<0x00>(*lane, factors);
                let second = _mm256_clmulepi64_epi128::<0x11>(*lane, factors);
                *lane = _mm256_xor_si256(_mm256_xor_si256(first, second), next);
            }
        }
        let mut folded = [0; FOLD_BYTES];
        for (lane, bytes) in lanes.iter().zip(folded.as_chunks_mut::<32>().0) {
            // SAFETY: 32 bytes are there, and they need not be aligned.
            unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), *lane) };
        }
        (folded, rest)
    }

    #[target_feature(enable = "avx2")]
    fn load(unit: &[u8; FOLD_BYTES]) -> [__m256i; LANES] {
        let (parts, _) = unit.as_chunks::<32>();
        // SAFETY: each part has 32 bytes, and they need not be aligned.
        [0, 1, 2, 3].map(|i| unsafe { _mm256_loadu_si256(parts[i].as_ptr().cast()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The state after one more byte, bit by bit, from the definition.
    fn step(state: u64, byte: &u8) -> u64 {
        (0..8).fold(state ^ u64::from(*byte), |s, _| (s >> 1) ^ if s & 1 == 1 { POLYNOMIAL } else { 0 })
    }

    fn reference(bytes: &[u8]) -> u64 {
        !bytes.iter().fold(!0, step)
    }

    /// The state after a block by folding wherever the processor can, also where `update` leaves that to crc-fast.
    fn folded(state: u64, block: &[u8]) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if block.len() >= FOLD_BYTES && has_256_bits() {
            // SAFETY: the processor has what `update_folded` is compiled for.
            return unsafe { update_folded(state, block) };
        }
        update(state, block)
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1u64;
        let next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        std::iter::repeat_with(next).take(bytes).collect()
    }

    #[test]
    fn every_length_at_every_alignment_agrees_with_the_definition() {
        let bytes = noise(4096 + 64 + 64);
        let base = bytes.as_ptr().addr().wrapping_neg() % 64;
        for alignment in 0..64 {
            let bytes = &bytes[base + alignment..];
            let mut state = !0;
            for length in 0..=4096 {
                assert_eq!(Crc64::of(&bytes[..length]), !state, "{length} bytes at alignment {alignment}");
                assert_eq!(folded(!0, &bytes[..length]), state, "{length} bytes folded at alignment {alignment}");
                state = step(state, &bytes[length]);
            }
        }
    }

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!((reference(b"123456789"), Crc64::of(b"123456789")), (0xae8b_1486_0a79_9888, 0xae8b_1486_0a79_9888));
    }

    proptest! {
        #[test]
        fn blocks_cut_anywhere_have_the_checksum_of_the_whole(cuts in prop::collection::vec(0usize..20_000, 0..12), seed in any::<u8>()) {
            let bytes: Vec<u8> = noise(20_000).into_iter().map(|byte| byte ^ seed).collect();
            let mut cuts = cuts;
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let (mut crc, mut state) = (Crc64::new(), !0);
            for cut in cuts.windows(2) {
                let block = &bytes[cut[0]..cut[1]];
                crc.update(block);
                state = folded(state, block);
            }
            prop_assert_eq!((crc.finish(), !state), (reference(&bytes), reference(&bytes)));
        }
    }
}
