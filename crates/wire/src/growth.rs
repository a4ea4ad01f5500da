//! Objects that grow while they travel: what the sender says when one is complete.
//!
//! Field numbers are the protocol's (docs/protocol.proto). Not here: when an object is complete (`store`), and the comparison
//! that comes before it is published (`mover`).

use crate::close::{CloseCode, Refusal};
use model::{Entry, Generation, Name, Timestamp, VersionToken};

/// The last that is said of a growing object. A later one for the same object takes its place.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Seal {
    #[prost(uint32, tag = "1")]
    pub job: u32,
    #[prost(uint64, tag = "2")]
    pub object: u64,
    #[prost(uint64, tag = "3")]
    pub size_bytes: u64,
    #[prost(uint32, tag = "4")]
    pub mode: u32,
    #[prost(sint64, tag = "5")]
    pub modified_seconds: i64,
    #[prost(uint32, tag = "6")]
    pub modified_nanoseconds: u32,
    /// What it is called now, in the directory that it was described in; empty for the name it was described by.
    #[prost(bytes = "vec", tag = "7")]
    pub name: Vec<u8>,
    /// Its writer only appended, by the word of the sender's user: of the chunks only the first and the last are to be compared.
    #[prost(bool, tag = "8")]
    pub is_append_only: bool,
}

impl Seal {
    /// Of an object, as its source has it in the end.
    pub fn of(job: u32, object: u64, described: &Entry, now: &Entry) -> Seal {
        Seal {
            job,
            object,
            size_bytes: now.size_bytes(),
            mode: now.mode,
            modified_seconds: now.generation.modified.seconds,
            modified_nanoseconds: now.generation.modified.nanoseconds,
            is_append_only: false,
            name: if now.name == described.name { Vec::new() } else { now.name.as_bytes().to_vec() },
        }
    }

    /// The entry to be published for an object that was described as `described`.
    pub fn entry(&self, described: &Entry) -> Result<Entry, Refusal> {
        let malformed = |what: &str| Refusal::new(CloseCode::Malformed, &format!("object {}: {what}", self.object));
        if self.mode > 0o7777 || self.modified_nanoseconds >= 1_000_000_000 || self.size_bytes > i64::MAX as u64 {
            return Err(malformed("sealed with a mode, time or size out of range"));
        }
        let name = match &self.name[..] {
            [] => described.name.clone(),
            name => Name::new(name).map_err(|_| malformed("sealed with a name that is none"))?,
        };
        let modified = Timestamp { seconds: self.modified_seconds, nanoseconds: self.modified_nanoseconds };
        let generation = Generation { size_bytes: self.size_bytes, modified, version: VersionToken::default() };
        Ok(Entry { name, mode: self.mode, generation, ..described.clone() })
    }
}
