//! The envelope of a signed text, as C2SP's signed-note defines it: the text, an empty line, and a line for each signature.
//!
//! Not here: whether a signature is true (`net::note`).

use data_encoding::BASE64;

/// A note is this long at most.
pub const NOTE_BYTES_MAX: usize = 1 << 20;
/// And bears no more signatures.
pub const SIGNATURES_MAX: usize = 100;
const DASH: &str = "\u{2014} ";
/// Of Ed25519, as the specification numbers algorithms.
const ED25519: u8 = 1;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signed {
    /// What is signed, with its last line feed.
    pub text: String,
    pub signatures: Vec<Signature>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    pub key_name: String,
    pub key_id: [u8; 4],
    pub bytes: Vec<u8>,
}

/// A public key as it is written: `NAME+ID+BASE64`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicKey {
    pub name: String,
    pub id: [u8; 4],
    pub key: [u8; 32],
}

impl Signed {
    /// # Errors
    /// When the bytes are no signed note, or a larger one than is read.
    pub fn parse(bytes: &[u8]) -> Result<Signed, String> {
        if bytes.len() > NOTE_BYTES_MAX {
            return Err("it is longer than 1 MiB".to_owned());
        }
        let note = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
        if note.chars().any(|c| c != '\n' && c.is_control()) {
            return Err("it holds control characters".to_owned());
        }
        let at = note.rfind("\n\n").ok_or("it bears no signature")?;
        let (text, rest) = (&note[..=at], &note[at + 2..]);
        let lines = rest.strip_suffix('\n').filter(|lines| !lines.is_empty()).ok_or("it bears no signature")?;
        if lines.split('\n').count() > SIGNATURES_MAX {
            return Err(format!("it bears more than {SIGNATURES_MAX} signatures"));
        }
        let signature = |line: &str| Signature::parse(line).ok_or("one of its signatures cannot be read".to_owned());
        let signatures = lines.split('\n').map(signature).collect::<Result<_, _>>()?;
        Ok(Signed { text: text.to_owned(), signatures })
    }

    pub fn write(&self) -> String {
        let mut note = format!("{}\n", self.text);
        for Signature { key_name, key_id, bytes } in &self.signatures {
            note.push_str(&format!("{DASH}{key_name} {}\n", BASE64.encode(&[&key_id[..], bytes].concat())));
        }
        note
    }
}

impl Signature {
    fn parse(line: &str) -> Option<Signature> {
        let (key_name, encoded) = line.strip_prefix(DASH)?.split_once(' ')?;
        let bytes = BASE64.decode(encoded.as_bytes()).ok()?;
        let (key_id, bytes) = bytes.split_first_chunk::<4>()?;
        let is_read = is_key_name(key_name) && !bytes.is_empty();
        is_read.then(|| Signature { key_name: key_name.to_owned(), key_id: *key_id, bytes: bytes.to_vec() })
    }
}

impl PublicKey {
    pub fn parse(text: &str) -> Option<PublicKey> {
        let mut parts = text.splitn(3, '+');
        let (name, id, key) = (parts.next()?, parts.next()?, parts.next()?);
        let id = data_encoding::HEXLOWER.decode(id.as_bytes()).ok()?.try_into().ok()?;
        let key = BASE64.decode(key.as_bytes()).ok()?;
        let key = key.strip_prefix(&[ED25519])?.try_into().ok()?;
        is_key_name(name).then(|| PublicKey { name: name.to_owned(), id, key })
    }

    pub fn write(&self) -> String {
        let id = data_encoding::HEXLOWER.encode(&self.id);
        format!("{}+{id}+{}", self.name, BASE64.encode(&[&[ED25519][..], &self.key].concat()))
    }

    /// What its id is the beginning of the SHA-256 of.
    pub fn id_material(name: &str, key: &[u8; 32]) -> Vec<u8> {
        [name.as_bytes(), b"\n", &[ED25519], key].concat()
    }
}

fn is_key_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c == '+')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str, count: usize) -> String {
        let signature = Signature { key_name: "k".into(), key_id: [1, 2, 3, 4], bytes: vec![7; 64] };
        Signed { text: text.to_owned(), signatures: vec![signature; count] }.write()
    }

    #[test]
    fn what_is_written_reads_back() {
        for text in ["a\nb\n", "a\n\nb\n", "\n"] {
            let note = one(text, 2);
            let read = Signed::parse(note.as_bytes()).unwrap();
            assert_eq!((&read.text[..], read.signatures.len(), read.write()), (text, 2, note));
        }
        let key = PublicKey { name: "x".into(), id: [0, 1, 2, 255], key: [9; 32] };
        assert_eq!(PublicKey::parse(&key.write()), Some(key));
    }

    #[test]
    fn what_is_no_note_is_refused() {
        let long = one(&format!("{}\n", "x".repeat(NOTE_BYTES_MAX)), 1);
        for (bytes, why) in [
            (&b""[..], "no signature"),
            (b"a\n\n", "no signature"),
            (b"a\n\n\xe2\x80\x94 k AAAA\n", "cannot be read"),
            (b"a\0\n\n\xe2\x80\x94 k AQIDBAc=\n", "control"),
            (b"a\n\n\xe2\x80\x94 k AQIDBAc=", "no signature"),
            (b"a\xff\n\n\xe2\x80\x94 k AQIDBAc=\n", "UTF-8"),
            (one("a\n", 101).as_bytes(), "more than 100"),
            (long.as_bytes(), "1 MiB"),
        ] {
            let error = Signed::parse(bytes).unwrap_err();
            assert!(error.contains(why), "{error}: {}", bytes.len());
        }
        assert!(Signed::parse(one("a\n", 100).as_bytes()).is_ok());
        for bad in ["", "x", "x+00010203+", "x+00010203+AQ==", "a b+00010203+AAAA", "x+0001+AAAA"] {
            assert_eq!(PublicKey::parse(bad), None, "{bad}");
        }
    }
}
