//! One component of a path, as bytes.
//!
//! Invariant: a `Name` is 1 to 255 bytes, holds no `/` and no NUL, and is neither `.` nor `..`. A path made of names
//! below a root therefore cannot be absolute, empty, or climb (F040, F046-F048). Names are bytes; text is only for eyes.

use std::ffi::{CStr, CString};
use std::fmt;

/// Bytes in one component; the limit of every Linux file system in use (NAME_MAX).
pub const NAME_BYTES_MAX: usize = 255;

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<CStr>);

/// Why bytes are not a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    #[error("the name is empty")]
    Empty,
    #[error("the name is longer than 255 bytes")]
    TooLong,
    #[error("the name holds a slash or a NUL byte")]
    Separator,
    #[error("the name is `.` or `..`")]
    Dots,
}

impl Name {
    pub fn new(bytes: &[u8]) -> Result<Name, NameError> {
        match bytes {
            [] => return Err(NameError::Empty),
            b"." | b".." => return Err(NameError::Dots),
            _ if bytes.len() > NAME_BYTES_MAX => return Err(NameError::TooLong),
            _ if bytes.contains(&b'/') => return Err(NameError::Separator),
            _ => {}
        }
        CString::new(bytes).map(|name| Name(name.into_boxed_c_str())).map_err(|_| NameError::Separator)
    }

    /// Whether bytes are a name, without making one of them.
    pub fn is_valid(bytes: &[u8]) -> bool {
        (1..=NAME_BYTES_MAX).contains(&bytes.len())
            && !matches!(bytes, b"." | b"..")
            && !bytes.iter().any(|byte| matches!(byte, b'/' | 0))
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.0.to_bytes()
    }

    pub fn as_c_str(&self) -> &CStr {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Escaped(self.as_bytes()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Escaped(self.as_bytes()))
    }
}

/// Splits a relative path into names; `.` components and repeated or trailing slashes are dropped, `..` and a leading
/// slash are refused.
pub fn relative_path(path: &[u8]) -> Result<Vec<Name>, NameError> {
    if path.first() == Some(&b'/') {
        return Err(NameError::Separator);
    }
    path.split(|&b| b == b'/').filter(|part| !part.is_empty() && *part != b".").map(Name::new).collect()
}

/// Joins names with slashes.
pub fn join<'a>(names: impl IntoIterator<Item = &'a Name>) -> Vec<u8> {
    let mut path = Vec::new();
    for name in names {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
    }
    path
}

/// Shows path bytes so that they cannot harm a terminal, a log or a line-based list: backslash, control characters,
/// bidirectional marks and bytes that are not UTF-8 are written as escapes. `unescape` reads it back.
pub struct Escaped<'a>(pub &'a [u8]);

impl Escaped<'_> {
    /// The bytes as they are, where nothing in them needs an escape: most names by far.
    fn plain(&self) -> Option<&str> {
        let is_plain = self.0.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'\\');
        if is_plain { std::str::from_utf8(self.0).ok() } else { None }
    }

    /// Appends the escaped form.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self.plain() {
            Some(_) => out.extend_from_slice(self.0),
            None => out.extend_from_slice(self.to_string().as_bytes()),
        }
    }
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(plain) = self.plain() {
            return f.write_str(plain);
        }
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    c if c.is_control() || is_bidi_mark(c) => {
                        for b in c.encode_utf8(&mut [0; 4]).bytes() {
                            write!(f, "\\x{b:02x}")?;
                        }
                    }
                    c => write!(f, "{c}")?,
                }
            }
            for b in chunk.invalid() {
                write!(f, "\\x{b:02x}")?;
            }
        }
        Ok(())
    }
}

fn is_bidi_mark(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

/// Reads what `Escaped` wrote; `None` for an escape it never writes.
pub fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        if first != b'\\' {
            bytes.push(first);
            rest = tail;
            continue;
        }
        let (byte, used) = match tail.first()? {
            b'\\' => (b'\\', 1),
            b'n' => (b'\n', 1),
            b'r' => (b'\r', 1),
            b'x' => (u8::from_str_radix(std::str::from_utf8(tail.get(1..3)?).ok()?, 16).ok()?, 3),
            _ => return None,
        };
        bytes.push(byte);
        rest = &tail[used..];
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_a_directory_are_refused() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b", &[b'x'; 256]] {
            assert!(Name::new(bad).is_err() && !Name::is_valid(bad), "{bad:?}");
        }
        assert_eq!(Name::new(&[b'x'; 255]).unwrap().as_bytes().len(), 255);
        assert!(Name::is_valid(&[b'x'; 255]) && Name::is_valid(b"...") && Name::is_valid(b"\xff\n"));
        assert_eq!(Name::new(b"...").unwrap().as_bytes(), b"...");
        assert_eq!(Name::new(b"\xff\xfe-rf $(x)").unwrap().as_bytes(), b"\xff\xfe-rf $(x)");
    }

    #[test]
    fn relative_paths_cannot_climb_or_be_absolute() {
        assert!(relative_path(b"/etc").is_err());
        assert!(relative_path(b"a/../b").is_err());
        assert_eq!(join(&relative_path(b"./a//b/").unwrap()), b"a/b");
        assert_eq!(relative_path(b"").unwrap(), vec![]);
    }

    #[test]
    fn escaped_form_reads_back_and_holds_no_control_bytes() {
        let wild: Vec<u8> = (1..=255u8).chain("\u{202e}é\\n".bytes()).collect();
        let text = Escaped(&wild).to_string();
        assert!(text.chars().all(|c| !c.is_control() && !is_bidi_mark(c)));
        assert_eq!(unescape(text.as_bytes()), Some(wild));
        assert_eq!(unescape(b"\\q"), None);
        for text in [&b"plain ~1.txt"[..], b"", b"a\\b", b"tab\t", b"\x7f", "\u{e9}".as_bytes(), b"\xff"] {
            let mut put = Vec::new();
            Escaped(text).put(&mut put);
            assert_eq!(put, Escaped(text).to_string().as_bytes());
            assert_eq!(unescape(&put).as_deref(), Some(text));
        }
    }
}
