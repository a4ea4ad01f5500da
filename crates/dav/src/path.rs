//! Paths as requests carry them, and back.

use model::Name;

/// A path as a request's target.
pub fn encoded(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len() + 1);
    for byte in path {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => text.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => text.push(char::from(*byte)),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// The bytes that a text with escapes stands for; a `%` that begins none is one.
pub fn decoded(text: &str) -> Vec<u8> {
    let (bytes, mut at) = (text.as_bytes(), 0);
    let mut path = Vec::with_capacity(bytes.len());
    while at < bytes.len() {
        let escape =
            bytes.get(at + 1..at + 3).filter(|digits| bytes[at] == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let byte = escape.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        path.push(byte.unwrap_or(bytes[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    path
}

/// The names of a path from the root of a server, of which none is `.` or `..`.
pub fn names(path: &[u8]) -> Result<Vec<Name>, String> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    parts.map(|part| Name::new(part).map_err(|e| e.to_string())).collect()
}

/// A path below another one.
pub fn below(path: &[u8], name: &[u8]) -> Vec<u8> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    [path, b"/", name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_and_decoded_is_the_same() {
        for path in [&b"/a b/%41"[..], b"/\xff\n", "/é+?#".as_bytes(), b"/plain-1.0_~"] {
            assert_eq!(decoded(&encoded(path)), path);
        }
        assert_eq!(encoded(b"/a b?"), "/a%20b%3F");
        assert_eq!(decoded("/100%"), b"/100%");
        assert_eq!(decoded("/%+1"), b"/%+1");
    }
}
