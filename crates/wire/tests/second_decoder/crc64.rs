//! CRC-64/NVME: polynomial 0xad93d23594c93659, reflected, all bits set before and inverted after.

const POLYNOMIAL_REFLECTED: u64 = 0x9a6c_9329_ac4b_c9b5;

const TABLES: [[u64; 256]; 8] = tables();

pub fn crc64(bytes: &[u8]) -> u64 {
    let mut state = u64::MAX;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let mixed = state.to_le_bytes();
        state = 0;
        for place in 0..8 {
            state ^= TABLES[7 - place][usize::from(mixed[place] ^ word[place])];
        }
    }
    for &byte in words.remainder() {
        state = (state >> 8) ^ TABLES[0][usize::from(state as u8 ^ byte)];
    }
    !state
}

/// `tables()[n][b]` is the state after byte `b` and `n` zero bytes.
const fn tables() -> [[u64; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut state = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            state = (state >> 1) ^ if state & 1 == 1 { POLYNOMIAL_REFLECTED } else { 0 };
            bit += 1;
        }
        tables[0][byte] = state;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        byte = 0;
        while byte < 256 {
            let state: u64 = tables[zeros - 1][byte];
            tables[zeros][byte] = (state >> 8) ^ tables[0][(state & 0xff) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc64_gives_the_check_value_of_the_catalogue() {
        assert_eq!(crc64(b"123456789"), 0xae8b_1486_0a79_9888);
        assert_eq!(crc64(b""), 0);
    }

    #[test]
    fn crc64_by_words_equals_crc64_by_bits() {
        let bytes: Vec<u8> = (0..1000_u32).map(|n| (n * n % 251) as u8).collect();
        for length in [0, 1, 7, 8, 9, 63, 1000] {
            let mut state = u64::MAX;
            for &byte in &bytes[..length] {
                state ^= u64::from(byte);
                for _ in 0..8 {
                    state = (state >> 1) ^ if state & 1 == 1 { POLYNOMIAL_REFLECTED } else { 0 };
                }
            }
            assert_eq!(crc64(&bytes[..length]), !state, "{length} bytes");
        }
    }
}
