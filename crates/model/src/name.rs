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
    #[error("the name contains a slash or a NUL byte")]
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

/// Shows path bytes so that they cannot harm a terminal, a log or a line-based list: backslash, what `is_unsafe` names and
/// bytes that are not UTF-8 are written as escapes. `unescape` reads it back.
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
                    c if is_unsafe(c) => {
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

/// Whether a character could control a terminal, change the order of what is shown, or be shown as nothing at all, so
/// that two names look the same: the categories Cc, Cf, Zl and Zp, what has the property Default_Ignorable_Code_Point, the
/// empty Braille pattern, and what Unicode never assigns. The only list of them.
pub fn is_unsafe(c: char) -> bool {
    let code = u32::from(c);
    let is_listed = UNSAFE.binary_search_by(|&(first, last)| match code {
        _ if code < first => std::cmp::Ordering::Greater,
        _ if code > last => std::cmp::Ordering::Less,
        _ => std::cmp::Ordering::Equal,
    });
    // The last two of every plane are never assigned.
    is_listed.is_ok() || code & 0xfffe == 0xfffe
}

/// First and last of each run, in their order (Unicode 16).
const UNSAFE: &[(u32, u32)] = &[
    (0x0000, 0x001f),
    (0x007f, 0x009f),
    (0x00ad, 0x00ad),
    (0x034f, 0x034f),
    (0x0600, 0x0605),
    (0x061c, 0x061c),
    (0x06dd, 0x06dd),
    (0x070f, 0x070f),
    (0x0890, 0x0891),
    (0x08e2, 0x08e2),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180f),
    (0x200b, 0x200f),
    (0x2028, 0x202e),
    (0x2060, 0x206f),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xfdd0, 0xfdef),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfffb),
    (0x110bd, 0x110bd),
    (0x110cd, 0x110cd),
    (0x13430, 0x1343f),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0000, 0xe0fff),
];

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

    /// Categories Cc, Cf, Zl and Zp, and the property Default_Ignorable_Code_Point, as Unicode 16 has them.
    const CATEGORIES: &[(&str, &[(u32, u32)])] = &[
        ("Cc", &[(0, 0x1f), (0x7f, 0x9f)]),
        (
            "Cf",
            &[
                (0xad, 0xad),
                (0x600, 0x605),
                (0x61c, 0x61c),
                (0x6dd, 0x6dd),
                (0x70f, 0x70f),
                (0x890, 0x891),
                (0x8e2, 0x8e2),
                (0x180e, 0x180e),
                (0x200b, 0x200f),
                (0x202a, 0x202e),
                (0x2060, 0x2064),
                (0x2066, 0x206f),
                (0xfeff, 0xfeff),
                (0xfff9, 0xfffb),
                (0x110bd, 0x110bd),
                (0x110cd, 0x110cd),
                (0x13430, 0x1343f),
                (0x1bca0, 0x1bca3),
                (0x1d173, 0x1d17a),
                (0xe0001, 0xe0001),
                (0xe0020, 0xe007f),
            ],
        ),
        ("Zl and Zp", &[(0x2028, 0x2029)]),
        (
            "Default_Ignorable_Code_Point",
            &[
                (0xad, 0xad),
                (0x34f, 0x34f),
                (0x61c, 0x61c),
                (0x115f, 0x1160),
                (0x17b4, 0x17b5),
                (0x180b, 0x180f),
                (0x200b, 0x200f),
                (0x202a, 0x202e),
                (0x2060, 0x206f),
                (0x3164, 0x3164),
                (0xfe00, 0xfe0f),
                (0xfeff, 0xfeff),
                (0xffa0, 0xffa0),
                (0xfff0, 0xfff8),
                (0x1bca0, 0x1bca3),
                (0x1d173, 0x1d17a),
                (0xe0000, 0xe0fff),
            ],
        ),
    ];

    #[test]
    fn no_character_that_controls_or_hides_is_shown_as_it_is() {
        assert!(UNSAFE.is_sorted_by(|a, b| a.0 <= a.1 && a.1 + 1 < b.0), "runs in order, none beside another");
        let is_in = |code: u32, runs: &[(u32, u32)]| runs.iter().any(|(first, last)| (*first..=*last).contains(&code));
        for c in '\0'..=char::MAX {
            let code = u32::from(c);
            let category = CATEGORIES.iter().find(|(_, runs)| is_in(code, runs)).map(|(name, _)| *name);
            let is_other = code == 0x2800 || (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe;
            assert_eq!(is_unsafe(c), category.is_some() || is_other, "U+{code:04X} {category:?}");
            assert!(is_unsafe(c) || !c.is_control(), "U+{code:04X}");
            if is_unsafe(c) {
                let shown = Escaped(c.encode_utf8(&mut [0; 4]).as_bytes()).to_string();
                assert!(shown.bytes().all(|byte| matches!(byte, b' '..=b'~')), "U+{code:04X}: {shown}");
            }
        }
        for plain in ["é", "名前", "naïve\u{a0}name", "\u{3000}", "🙂", "ﷺ", "\u{fffd}"] {
            assert_eq!(Escaped(plain.as_bytes()).to_string(), plain);
        }
    }

    #[test]
    fn escaped_form_reads_back_and_holds_no_control_bytes() {
        let wild: Vec<u8> = (1..=255u8).chain("\u{202e}é\\n".bytes()).collect();
        let text = Escaped(&wild).to_string();
        assert!(text.chars().all(|c| !is_unsafe(c)));
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
