//! Marvin32, the checksum of log entries (.NET's string hash, with a fixed seed).

/// Windows' seed for registry logs.
const SEED: u64 = 0x82EF_4D88_7A4E_55C5;

/// The hash of `data` with the seed of registry logs.
pub(super) fn hash(data: &[u8]) -> u64 {
    seeded(SEED, data)
}

fn seeded(seed: u64, data: &[u8]) -> u64 {
    let mut state = (seed as u32, (seed >> 32) as u32);
    let words = data.chunks_exact(4);
    // What is left over is ended by a byte of 0x80, as the last word.
    let mut last = [0; 4];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    for word in words {
        mix(&mut state, u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    }
    mix(&mut state, u32::from_le_bytes(last));
    mix(&mut state, 0);
    u64::from(state.0) | u64::from(state.1) << 32
}

fn mix((a, b): &mut (u32, u32), word: u32) {
    *a = a.wrapping_add(word);
    *b ^= *a;
    *a = a.rotate_left(20).wrapping_add(*b);
    *b = b.rotate_left(9) ^ *a;
    *a = a.rotate_left(27).wrapping_add(*b);
    *b = b.rotate_left(19);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of .NET's own tests, with their seed.
    #[test]
    fn known_answers() {
        let seed = 0x004F_B61A_001B_DBCC;
        for (data, hash) in [
            (&[][..], 0x30ED_35C1_00CD_3C7D),
            (&[0xaf][..], 0x48E7_3FC7_7D75_DDC1),
            (&[0xe7, 0x0f][..], 0xB5F6_E1FC_485D_BFF8),
            (&[0x37, 0xf4, 0x95][..], 0xF0B0_7C78_9B8C_F7E8),
            (&[0x86, 0x42, 0xdc, 0x59][..], 0x7008_F2E8_7E9C_F556),
        ] {
            assert_eq!(seeded(seed, data), hash, "{data:x?}");
        }
    }
}
