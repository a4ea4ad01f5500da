//! What a server tells of a path, and what it is told.

use model::{DigestAlgorithm, Generation, Timestamp, VersionToken};

const TYPE_BITS: u32 = 0o170_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    pub size_bytes: Option<u64>,
    pub owner: Option<(u32, u32)>,
    /// With the bits that tell the kind.
    pub mode: Option<u32>,
    /// Seconds since 1970.
    pub modified: Option<u32>,
}

impl Attributes {
    fn is_kind(&self, bits: u32) -> bool {
        self.mode.is_some_and(|mode| mode & TYPE_BITS == bits)
    }

    pub fn is_file(&self) -> bool {
        self.is_kind(0o100_000)
    }

    pub fn is_directory(&self) -> bool {
        self.is_kind(0o040_000)
    }

    pub fn is_link(&self) -> bool {
        self.is_kind(0o120_000)
    }

    /// Everything that a listing needs was told.
    pub fn is_full(&self) -> bool {
        self.size_bytes.is_some() && self.mode.is_some() && self.modified.is_some()
    }

    pub fn type_bits(&self) -> u32 {
        self.mode.unwrap_or(0) & TYPE_BITS
    }

    pub fn time(&self) -> Timestamp {
        Timestamp { seconds: i64::from(self.modified.unwrap_or(0)), nanoseconds: 0 }
    }
}

/// A number that stands for a path of a server.
pub fn number_of(server: &str, path: &[u8]) -> u64 {
    let digest = DigestAlgorithm::Crc64Nvme.of_object(&[server.as_bytes(), b"\0", path].concat());
    digest.to_bytes().iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A path's version as far as the protocol tells: its size, and its time in whole seconds.
pub fn generation(server: &str, path: &[u8], attributes: &Attributes) -> Generation {
    let modified = attributes.time();
    let size_bytes = if attributes.is_file() { attributes.size_bytes.unwrap_or(0) } else { 0 };
    Generation { size_bytes, modified, version: VersionToken::new(modified, number_of(server, path), 0) }
}
