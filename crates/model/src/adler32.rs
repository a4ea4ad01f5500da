//! The Adler-32 of what is read or sent in parts. Not here: that of one part, for which there are faster ways.

const MODULUS: u64 = 65_521;

/// The Adler-32 of two texts behind one another, from that of each and the length of the second.
pub fn combine(first: u32, second: u32, second_bytes: u64) -> u32 {
    let parts = |of: u32| (u64::from(of & 0xffff), u64::from(of >> 16));
    let ((a, b), (c, d)) = (parts(first), parts(second));
    let low = (a + c + MODULUS - 1) % MODULUS;
    let high = (b + d + (second_bytes % MODULUS) * (a + MODULUS - 1)) % MODULUS;
    (high << 16 | low) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_parts_make_that_of_the_whole() {
        let of = |bytes: &[u8]| {
            let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
                let a = (a + u64::from(*byte)) % MODULUS;
                (a, (b + a) % MODULUS)
            });
            (b << 16 | a) as u32
        };
        assert_eq!(of(b"Wikipedia"), 0x11e6_0398);
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at * 7 % 251) as u8).collect();
        for cut in [0, 1, 65_521, 131_072, 200_000] {
            let (head, tail) = bytes.split_at(cut);
            assert_eq!(combine(of(head), of(tail), tail.len() as u64), of(&bytes), "{cut}");
        }
    }
}
