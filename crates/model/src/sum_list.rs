//! Lists of digests as coreutils and b3sum write them: `HEX  PATH`, a line for each file.
//!
//! A path that holds a line feed, a carriage return or a backslash is escaped and its line begins with a backslash, as
//! coreutils do; all other bytes stand as they are. Lists that end their lines with NUL escape nothing. The form of BSD,
//! `SHA256 (PATH) = HEX`, is read too.
//!
//! Invariant: whatever `line` writes, `parse` reads back. Not here: files, and whether a path may be opened.

use crate::files::{Sum, SumAlgorithm};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListEntry {
    /// `None` where the length of the digest fits two.
    pub algorithm: Option<SumAlgorithm>,
    pub digest: Box<[u8]>,
    pub path: Vec<u8>,
}

/// One file's line, with its end.
pub fn line(sum: &Sum, path: &[u8], is_zero_terminated: bool) -> Vec<u8> {
    let mut line = Vec::with_capacity(path.len() + 70);
    let is_escaped = !is_zero_terminated && path.iter().any(|byte| escape_of(*byte).is_some());
    if is_escaped {
        line.push(b'\\');
    }
    line.extend_from_slice(sum.to_string().as_bytes());
    line.extend_from_slice(b"  ");
    for byte in path {
        match escape_of(*byte) {
            Some(letter) if is_escaped => line.extend([b'\\', letter]),
            _ => line.push(*byte),
        }
    }
    line.push(if is_zero_terminated { 0 } else { b'\n' });
    line
}

/// Reads a line without its end; `None` for what is no line of such a list.
pub fn parse(line: &[u8], is_zero_terminated: bool) -> Option<ListEntry> {
    let line = if is_zero_terminated { line } else { line.strip_suffix(b"\r").unwrap_or(line) };
    let (is_escaped, line) = match line.strip_prefix(b"\\") {
        Some(rest) if !is_zero_terminated => (true, rest),
        _ => (false, line),
    };
    let (algorithm, digest, path) = tagged(line).or_else(|| plain(line))?;
    let digest = data_encoding::HEXLOWER_PERMISSIVE.decode(digest).ok()?;
    let algorithm = match algorithm {
        Some(said) if said.digest_bytes() == digest.len() => Some(said),
        Some(_) => return None,
        None => of_length(digest.len())?,
    };
    let path = if is_escaped { unescape(path)? } else { path.to_vec() };
    let is_path = !path.is_empty() && !path.contains(&0);
    is_path.then(|| ListEntry { algorithm, digest: digest.into(), path })
}

/// `HEX  PATH`, `HEX *PATH`.
fn plain(line: &[u8]) -> Option<(Option<SumAlgorithm>, &[u8], &[u8])> {
    let at = line.iter().position(|byte| *byte == b' ')?;
    let (digest, rest) = line.split_at(at);
    let path = rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *"))?;
    Some((None, digest, path))
}

/// `SHA256 (PATH) = HEX`.
fn tagged(line: &[u8]) -> Option<(Option<SumAlgorithm>, &[u8], &[u8])> {
    let at = line.windows(2).position(|pair| pair == b" (")?;
    let name = std::str::from_utf8(&line[..at]).ok()?.to_ascii_lowercase();
    let algorithm = SumAlgorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)?;
    let rest = &line[at + 2..];
    let end = rest.windows(4).rposition(|four| four == b") = ")?;
    Some((Some(algorithm), &rest[end + 4..], &rest[..end]))
}

/// The one digest of this length; `Some(None)` when there are two.
fn of_length(bytes: usize) -> Option<Option<SumAlgorithm>> {
    let mut fitting = SumAlgorithm::ALL.into_iter().filter(|algorithm| algorithm.digest_bytes() == bytes);
    let first = fitting.next()?;
    Some(if fitting.next().is_some() { None } else { Some(first) })
}

fn escape_of(byte: u8) -> Option<u8> {
    match byte {
        b'\n' => Some(b'n'),
        b'\r' => Some(b'r'),
        b'\\' => Some(b'\\'),
        _ => None,
    }
}

fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b'\\' => b'\\',
                _ => return None,
            },
            other => *other,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(algorithm: SumAlgorithm) -> Sum {
        Sum { algorithm, bytes: vec![0xa5; algorithm.digest_bytes()].into() }
    }

    #[test]
    fn the_form_is_that_of_coreutils() {
        let md5 = sum(SumAlgorithm::Md5);
        let hex = "a5".repeat(16);
        assert_eq!(line(&md5, b"a b", false), format!("{hex}  a b\n").as_bytes());
        assert_eq!(line(&md5, b"a\nb\\c\xff", false), [b"\\", hex.as_bytes(), b"  a\\nb\\\\c\xff\n"].concat());
        assert_eq!(line(&md5, b"a\nb", true), format!("{hex}  a\nb\0").as_bytes());
    }

    #[test]
    fn lists_of_other_programs_are_read() {
        let hex = "A5".repeat(32);
        let read = |text: &str| parse(text.as_bytes(), false);
        assert_eq!(read(&format!("{hex} *x")).unwrap().path, b"x");
        assert_eq!(read(&format!("{hex}  x\r")).unwrap().algorithm, None);
        assert_eq!(read(&format!("SHA256 (a (b) = c) = {hex}")).unwrap().path, b"a (b) = c");
        assert_eq!(read(&format!("BLAKE3 (x) = {hex}")).unwrap().algorithm, Some(SumAlgorithm::Blake3));
        assert_eq!(read("a5a5a5a5  x").unwrap().algorithm, Some(SumAlgorithm::Adler32));
        for wrong in
            ["", "hello", "a5a5  x", &format!("MD5 (x) = {hex}"), &format!("{hex} x"), &format!("\\{hex}  a\\q")]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn lines_read_back(path in prop::collection::vec(1u8.., 1..40), which in 0..5usize, zero: bool) {
            let sum = sum(SumAlgorithm::ALL[which]);
            let text = line(&sum, &path, zero);
            let (end, body) = text.split_last().unwrap();
            prop_assert!(!body.contains(end));
            // A carriage return at the very end is escaped, so that it is not taken for a part of the line's end.
            let entry = parse(body, zero).unwrap();
            prop_assert_eq!((entry.digest, entry.path), (sum.bytes, path));
        }
    }
}
