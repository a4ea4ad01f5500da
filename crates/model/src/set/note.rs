//! What is signed of a set: its name and serial, the digest of its catalogue, who may read it, who signs it, and where else it is.
//!
//! Invariant: what is written reads back as the same value; a line that this program does not know is an error, never passed over.

use super::is_name;
use crate::Pin;
use crate::options::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};
use std::fmt::Write;

const FIRST_LINE: &str = "thalweg set 1";
/// Of files, of bytes and of serials: what an `i64` holds too.
const COUNT_MAX: u64 = i64::MAX as u64;
/// A page of a catalogue is not longer.
pub const PAGE_BYTES_MAX: u64 = 64 << 20;
const MIRRORS_MAX: usize = 64;
const READERS_MAX: usize = 4096;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    pub name: String,
    pub serial: u64,
    pub catalogue: [u8; 32],
    pub catalogue_bytes: u64,
    pub files: u64,
    pub bytes: u64,
    pub chunk_bytes: u64,
    pub readers: Readers,
    /// Whose signature counts from here on, as `PublicKey` writes it.
    pub key: String,
    pub mirrors: Vec<Mirror>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Readers {
    Public,
    /// Keys of clients, in order.
    Only(Vec<Pin>),
}

/// An endpoint that has the set too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mirror {
    pub name: String,
    pub address: String,
    pub pin: Pin,
}

impl Readers {
    pub fn admit(&self, pin: Pin) -> bool {
        match self {
            Readers::Public => true,
            Readers::Only(pins) => pins.contains(&pin),
        }
    }

    /// `public`, or pins with commas or spaces between them.
    pub fn parse(text: &str) -> Option<Readers> {
        if text == "public" {
            return Some(Readers::Public);
        }
        let pins: Option<Vec<Pin>> = text.split([' ', ',']).map(Pin::from_hex).collect();
        pins.filter(|pins| pins.len() <= READERS_MAX).map(Readers::Only)
    }
}

impl Mirror {
    /// `NAME ADDRESS PIN`.
    pub fn parse(text: &str) -> Option<Mirror> {
        let mut words = text.split([' ', ',']);
        let (name, address, pin) = (words.next()?, words.next()?, Pin::from_hex(words.next()?)?);
        let is_whole = words.next().is_none() && !name.is_empty() && !address.is_empty();
        is_whole.then(|| Mirror { name: name.to_owned(), address: address.to_owned(), pin })
    }
}

impl Note {
    pub fn write(&self) -> String {
        let digest = data_encoding::HEXLOWER.encode(&self.catalogue);
        let mut text = format!(
            "{FIRST_LINE}\nname {}\nserial {}\ncatalogue blake3:{digest} {}\nfiles {}\nbytes {}\nchunk {}\n",
            self.name, self.serial, self.catalogue_bytes, self.files, self.bytes, self.chunk_bytes
        );
        text.push_str("readers");
        match &self.readers {
            Readers::Public => text.push_str(" public"),
            Readers::Only(pins) => pins.iter().for_each(|pin| _ = write!(text, " {pin}")),
        }
        _ = writeln!(text, "\nkey {}", self.key);
        for Mirror { name, address, pin } in &self.mirrors {
            _ = writeln!(text, "mirror {name} {address} {pin}");
        }
        text
    }

    /// # Errors
    /// When the text is no such note.
    pub fn parse(text: &str) -> Result<Note, String> {
        let text = text.strip_suffix('\n').ok_or("its last line has no end")?;
        let mut lines = text.split('\n');
        if lines.next() != Some(FIRST_LINE) {
            return Err(format!("it does not begin with `{FIRST_LINE}`"));
        }
        let mut line = |word: &str| {
            let value = lines.next().and_then(|line| line.strip_prefix(word)?.strip_prefix(' '));
            value.map(str::to_owned).ok_or_else(|| format!("its line `{word}` is missing"))
        };
        let name = line("name")?;
        let serial = number(&line("serial")?)?;
        let catalogue = line("catalogue")?;
        let (digest, bytes) =
            catalogue.strip_prefix("blake3:").and_then(|rest| rest.split_once(' ')).ok_or("catalogue")?;
        let (files, bytes_of_files, chunk_bytes) =
            (number(&line("files")?)?, number(&line("bytes")?)?, number(&line("chunk")?)?);
        let readers = line("readers")?;
        let key = line("key")?;
        let mirror = |line: &str| line.strip_prefix("mirror ").and_then(Mirror::parse);
        let mirrors: Option<Vec<Mirror>> = lines.map(mirror).collect();
        let note = Note {
            name,
            serial,
            catalogue: digest_of(digest).ok_or("its catalogue has no digest")?,
            catalogue_bytes: number(bytes)?,
            files,
            bytes: bytes_of_files,
            chunk_bytes,
            readers: Readers::parse(&readers).ok_or("its line `readers` cannot be read")?,
            key,
            mirrors: mirrors
                .filter(|mirrors| mirrors.len() <= MIRRORS_MAX)
                .ok_or("one of its last lines cannot be read")?,
        };
        note.check().map(|()| note)
    }

    fn check(&self) -> Result<(), String> {
        if !is_name(&self.name) {
            return Err("its name is none that a set can have".to_owned());
        }
        if self.catalogue_bytes > PAGE_BYTES_MAX {
            return Err("the first page of its catalogue is longer than a page can be".to_owned());
        }
        check_chunk(self.chunk_bytes)
    }
}

pub(super) fn check_chunk(bytes: u64) -> Result<(), String> {
    let is_chunk = bytes.is_power_of_two() && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&bytes);
    if is_chunk { Ok(()) } else { Err(format!("its chunks have {bytes} bytes")) }
}

/// A digest as 64 hexadecimal digits.
pub fn digest_of(text: &str) -> Option<[u8; 32]> {
    let bytes = data_encoding::HEXLOWER.decode(text.as_bytes()).ok()?;
    bytes.try_into().ok()
}

/// Without signs, zeros in front or anything else that would be a second way to write it.
pub(super) fn number(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number: &u64| number.to_string() == text && *number <= COUNT_MAX);
    number.ok_or_else(|| "a number in it cannot be read".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> Note {
        Note {
            name: "example.org/x".into(),
            serial: 7,
            catalogue: [0xab; 32],
            catalogue_bytes: 123,
            files: 3,
            bytes: 4,
            chunk_bytes: 8 << 20,
            readers: Readers::Only(vec![Pin([1; 32]), Pin([2; 32])]),
            key: "example.org/x+00000000+AQ==".into(),
            mirrors: vec![Mirror { name: "m".into(), address: "[::1]:7740".into(), pin: Pin([3; 32]) }],
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let plain = Note { readers: Readers::Public, mirrors: Vec::new(), ..note() };
        for note in [note(), plain] {
            assert_eq!(Note::parse(&note.write()), Ok(note.clone()), "{}", note.write());
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let text = note().write();
        for (from, to) in [
            ("set 1", "set 2"),
            ("serial 7", "serial 07"),
            ("serial 7", "serial -7"),
            ("serial 7", "serial 9223372036854775808"),
            ("serial 7\n", ""),
            ("name example.org/x", "name ../x"),
            ("chunk 8388608", "chunk 8388609"),
            ("chunk 8388608", "chunk 1"),
            (" 123\n", " 67108865\n"),
            ("blake3:ab", "blake3:AB"),
            ("blake3:", "sha256:"),
            ("readers ", "readers x"),
            ("mirror m ", "minor m "),
            ("mirror m ", "mirror "),
        ] {
            assert!(text.contains(from), "{from}");
            assert!(Note::parse(&text.replacen(from, to, 1)).is_err(), "{from} as {to}");
        }
        assert!(Note::parse(text.trim_end()).is_err());
    }

    #[test]
    fn readers_are_all_or_those_named() {
        assert!(Readers::Public.admit(Pin([9; 32])));
        assert!(note().readers.admit(Pin([2; 32])) && !note().readers.admit(Pin([9; 32])));
        assert_eq!(Readers::parse("publik"), None);
    }
}
