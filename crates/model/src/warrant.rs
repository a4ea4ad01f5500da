//! A warrant: a signed word of one client that lets one endpoint do one job at one other endpoint in the client's name.
//!
//! Its bytes are a specification (docs/protocol.md section 18). Invariants: what is read is exactly what was signed, byte for byte;
//! a warrant names one holder, one audience and one job; no paths means no warrant.
//!
//! Not here: signing and checking signatures (`net`), whether its issuer may do what it says (`daemon`).

use crate::id::{JobId, Pin};
use crate::name::{self, Name};

pub const WARRANT_BYTES_MAX: usize = 2048;
pub const PATHS_MAX: usize = 16;
/// The longest time for which a warrant may hold, and the time for which it holds by default, in seconds.
pub const LIFETIME_SECONDS_MAX: u64 = 7 * 86_400;
pub const LIFETIME_SECONDS: u64 = 86_400;
/// Two hosts' clocks may differ by so much.
pub const CLOCK_SECONDS: u64 = 300;
/// First bytes of a warrant; no credential of a ticket is as long as a warrant.
pub const MAGIC: &[u8; 8] = b"twwarr01";
/// What a signature covers in front of the body, so that it is a signature of nothing else.
pub const DOMAIN: &[u8] = b"thalweg warrant 1\0";
pub const SPKI_BYTES: usize = 44;
pub const SIGNATURE_BYTES: usize = 64;

/// What may be done under a warrant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verbs {
    pub read: bool,
    pub write: bool,
    pub delete: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warrant {
    /// The key of the endpoint that uses it.
    pub holder: Pin,
    /// The key of the endpoint that it is for.
    pub audience: Pin,
    pub job: JobId,
    pub verbs: Verbs,
    /// Seconds since 1970.
    pub not_before: u64,
    pub expires: u64,
    /// By which it can be revoked.
    pub id: [u8; 16],
    /// Below the audience's root; what is done lies at one of them or below it.
    pub paths: Vec<Vec<u8>>,
}

/// A warrant with the key that signed it, as it travels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signed {
    pub warrant: Warrant,
    /// The issuer's public key, as SubjectPublicKeyInfo.
    pub issuer: [u8; SPKI_BYTES],
    pub signature: [u8; SIGNATURE_BYTES],
}

impl Warrant {
    /// What is signed, behind `DOMAIN`.
    pub fn body(&self) -> Vec<u8> {
        let Verbs { read, write, delete } = self.verbs;
        let mut bytes = Vec::new();
        bytes.extend(self.holder.0);
        bytes.extend(self.audience.0);
        bytes.extend(self.job.0);
        bytes.extend(self.id);
        bytes.extend(self.not_before.to_le_bytes());
        bytes.extend(self.expires.to_le_bytes());
        bytes.push(u8::from(read) | u8::from(write) << 1 | u8::from(delete) << 2);
        bytes.push(self.paths.len() as u8);
        for path in &self.paths {
            bytes.extend((path.len() as u16).to_le_bytes());
            bytes.extend(path);
        }
        bytes
    }

    /// What is signed.
    pub fn signed_bytes(&self) -> Vec<u8> {
        [DOMAIN, &self.body()].concat()
    }

    /// Reads what `body` made.
    pub fn read(bytes: &[u8]) -> Option<Warrant> {
        let mut at = bytes;
        let holder = Pin::from_slice(take(&mut at, 32)?)?;
        let audience = Pin::from_slice(take(&mut at, 32)?)?;
        let job = JobId::from_slice(take(&mut at, 16)?)?;
        let id = take(&mut at, 16)?.try_into().ok()?;
        let not_before = u64::from_le_bytes(take(&mut at, 8)?.try_into().ok()?);
        let expires = u64::from_le_bytes(take(&mut at, 8)?.try_into().ok()?);
        let [bits, count] = take(&mut at, 2)?.try_into().ok()?;
        let verbs = Verbs { read: bits & 1 != 0, write: bits & 2 != 0, delete: bits & 4 != 0 };
        let mut paths = Vec::new();
        for _ in 0..count {
            let length = u16::from_le_bytes(take(&mut at, 2)?.try_into().ok()?);
            paths.push(take(&mut at, length.into())?.to_vec());
        }
        let is_whole = at.is_empty() && bits < 8 && (1..=PATHS_MAX).contains(&paths.len());
        is_whole.then_some(Warrant { holder, audience, job, verbs, not_before, expires, id, paths })
    }

    /// Whether a path of the audience lies at or below one of the warrant's. Paths are compared name by name.
    pub fn covers(&self, path: &[u8]) -> bool {
        let Ok(asked) = name::relative_path(path) else { return false };
        let is_below = |names: Vec<Name>| asked.starts_with(&names);
        self.paths.iter().any(|prefix| name::relative_path(prefix).is_ok_and(is_below))
            || self.paths.iter().any(|one| one == path)
    }
}

impl Signed {
    pub fn encode(&self) -> Vec<u8> {
        [&MAGIC[..], &self.issuer, &self.signature, &self.warrant.body()].concat()
    }

    /// Whether bytes claim to be a warrant.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// Reads one; whether its signature is right is not looked at.
    pub fn decode(bytes: &[u8]) -> Option<Signed> {
        if bytes.len() > WARRANT_BYTES_MAX {
            return None;
        }
        let mut at = bytes.strip_prefix(MAGIC)?;
        let issuer = take(&mut at, SPKI_BYTES)?.try_into().ok()?;
        let signature = take(&mut at, SIGNATURE_BYTES)?.try_into().ok()?;
        Some(Signed { warrant: Warrant::read(at)?, issuer, signature })
    }
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed() -> Signed {
        let warrant = Warrant {
            holder: Pin([1; 32]),
            audience: Pin([2; 32]),
            job: JobId([3; 16]),
            verbs: Verbs { read: true, write: true, delete: false },
            not_before: 5,
            expires: 6,
            id: [4; 16],
            paths: vec![b"in/a".to_vec(), Vec::new()],
        };
        Signed { warrant, issuer: [7; SPKI_BYTES], signature: [8; SIGNATURE_BYTES] }
    }

    #[test]
    fn what_is_written_reads_back_and_has_the_documented_bytes() {
        let bytes = signed().encode();
        assert_eq!(Signed::decode(&bytes), Some(signed()));
        assert_eq!(bytes.len(), 8 + 44 + 64 + 32 + 32 + 16 + 16 + 8 + 8 + 2 + (2 + 4) + 2);
        assert_eq!(bytes[116..120], [1; 4]);
        assert_eq!(bytes[228..], [3, 2, 4, 0, b'i', b'n', b'/', b'a', 0, 0]);
    }

    #[test]
    fn no_other_bytes_mean_the_same_warrant() {
        let bytes = signed().encode();
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(Signed::decode(&other), Some(signed()), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_eq!(Signed::decode(&bytes[..length]), None, "{length} bytes");
        }
        assert_eq!(Signed::decode(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn paths_are_covered_name_by_name() {
        let covers = |prefix: &str, path: &str| {
            let warrant = Warrant { paths: vec![prefix.into()], ..signed().warrant };
            warrant.covers(path.as_bytes())
        };
        assert!(covers("in", "in/x") && covers("in/", "./in//x/") && covers("", "any") && covers("in", "in"));
        assert!(!covers("in", "inner") && !covers("in", "") && !covers("in", "in/../x") && !covers("in/x", "in"));
        assert!(covers("null:", "null:") && !covers("in", "null:"));
    }
}
