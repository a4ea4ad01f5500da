//! Names as they stand in keys, and back.
//!
//! How names are written there is `store::keys`. Invariant: a name that is written and read is the same; a key that would not be is no path.

use model::{Name, mutant};
use store::keys::QUOTE;
pub use store::keys::of_name;

/// S3's bound on a key.
pub const KEY_BYTES_MAX: usize = 1024;
/// The name that a part of a key stands for; what is none is told.
pub fn to_name(part: &str) -> Result<Name, String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part;
    while let Some(at) = rest.find(QUOTE) {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + QUOTE.len_utf8()..];
        if let Some(after) = rest.strip_prefix(QUOTE) {
            bytes.extend_from_slice(QUOTE.encode_utf8(&mut [0; 3]).as_bytes());
            rest = after;
            continue;
        }
        let byte = rest.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| format!("it has a stray {QUOTE}"))?);
        rest = &rest[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    match of_name(&bytes) == part {
        true => Name::new(&bytes).map_err(|e| e.to_string()),
        false => Err(format!("it has a stray {QUOTE}")),
    }
}

/// The names of a key below a prefix.
pub fn to_names(key: &str) -> Result<Vec<Name>, String> {
    let is_part = |part: &&str| !part.is_empty() || !mutant::is_on("s3-empty-names-are-left-out");
    key.split('/').filter(is_part).map(to_name).collect()
}

/// A key as a path for reports.
pub fn to_path(key: &str) -> Vec<u8> {
    let shown = |part: &str| to_name(part).map_or_else(|_| part.as_bytes().to_vec(), |name| name.as_bytes().to_vec());
    key.split('/').map(shown).collect::<Vec<_>>().join(&b'/')
}

/// A path of the user's as a key; a slash at its end stays.
pub fn of_path(path: &[u8]) -> String {
    path.split(|byte| *byte == b'/').map(of_name).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_written_and_read_is_the_same() {
        for name in
            [&b"plain"[..], b"\xff\xfe", "‛".as_bytes(), "a‛FFb".as_bytes(), b"\xe2\x80", "é\n".as_bytes(), b"a b+c%"]
        {
            assert_eq!(to_name(&of_name(name)).unwrap().as_bytes(), name, "{name:?}");
        }
        // Every pair of bytes.
        for pair in 0..=u16::MAX {
            let name = pair.to_be_bytes();
            if Name::is_valid(&name) {
                assert_eq!(to_name(&of_name(&name)).unwrap().as_bytes(), name);
            }
        }
    }

    #[test]
    fn a_key_that_would_come_back_as_another_is_no_path() {
        for key in ["", "a//b", "/a", "a/..", ".", "a\0", "‛zz", "‛41", "‛", "a/", &"x".repeat(256)] {
            assert!(to_names(key).is_err(), "{key:?}");
        }
        assert_eq!(to_names("a/b").unwrap().len(), 2);
    }
}
