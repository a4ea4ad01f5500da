//! Giving an object its name: one request, on a condition, and a success that is proven.
//!
//! Invariants: where a store keeps to conditions, nothing is replaced but what was decided on; where it does not, one look stands
//! right before the request, and a rival within that moment is not noticed. What a request came to that was not answered is found
//! out by looking: size and checksum decide.

use crate::bucket::{Bucket, Conditions, random};
use crate::calls::{Condition, CopyOf, Object, Part, crc_of};
use crate::failure::{Failure, Result, Why};
use data_encoding::HEXLOWER;
use model::mutant;

/// What the names of scratch objects begin with.
pub const PROBE_PREFIX: &str = ".thalweg-probe-";

type Meta<'a> = &'a [(String, String)];

/// What stands before a key's last name.
pub fn prefix_of(key: &str) -> &str {
    key.rfind('/').map_or("", |at| &key[..=at])
}

impl Bucket {
    /// What the store does with conditions: found out once, on a scratch key, before the first object is published. Whoever comes
    /// meanwhile waits.
    pub fn conditions(&self, prefix: &str) -> Result<Conditions> {
        let mut conditions = self.conditions.lock().unwrap();
        if let Some(known) = *conditions {
            return Ok(known);
        }
        let key = format!("{prefix}{PROBE_PREFIX}{}", HEXLOWER.encode(&random::<8>()));
        let found = self.probe(&key);
        let removed = self.delete(&key);
        let found = found?;
        if found != Conditions::default() {
            removed?;
        }
        Ok(*conditions.insert(found))
    }

    /// The same by a scratch key that the caller removes.
    pub fn probe(&self, key: &str) -> Result<Conditions> {
        let is_kept = |condition| match self.put(key, b"probe", &[], &condition) {
            Ok(_) => Ok(false),
            Err(failure) if failure.why == Why::Condition => Ok(true),
            Err(failure) if failure.may_pass() => Err(failure),
            Err(_) => Ok(false),
        };
        match self.put(key, b"probe", &[], &Condition::Any) {
            Err(failure) if failure.may_pass() || failure.why == Why::NoBucket || failure.why == Why::Keys => {
                Err(failure)
            }
            // A client that may write below other names alone.
            Err(_) => Ok(Conditions::default()),
            Ok(_) => Ok(Conditions {
                absent: is_kept(Condition::Absent)?,
                version: is_kept(Condition::Is("\"00000000000000000000000000000000\"".to_owned()))?,
            }),
        }
    }

    /// The condition as the store keeps to it; where it does not, what stands there is looked at now.
    fn settled(&self, key: &str, condition: &Condition) -> Result<Condition> {
        let prefix = prefix_of(key);
        let is_kept = match condition {
            Condition::Any => true,
            Condition::Absent => self.conditions(prefix)?.absent,
            Condition::Is(_) => self.conditions(prefix)?.version,
        };
        if is_kept {
            return Ok(condition.clone());
        }
        let there = self.head(key)?;
        let is_met = match condition {
            Condition::Is(etag) => there.is_some_and(|there| there.etag == *etag),
            _ => there.is_none(),
        };
        match is_met {
            true => Ok(Condition::Any),
            false => Err(Failure::new(Why::Condition, "")),
        }
    }

    pub fn publish(&self, key: &str, body: &[u8], meta: Meta<'_>, condition: &Condition) -> Result<()> {
        if body.is_empty() && mutant::is_on("s3-empty-is-not-written") {
            return Ok(());
        }
        let condition = self.settled(key, condition)?;
        match self.put(key, body, meta, &condition) {
            Ok(_) => Ok(()),
            Err(failure) => {
                if mutant::is_on("s3-failed-put-deletes") {
                    self.delete(key)?;
                }
                self.resolve(key, body.len() as u64, crc_of(body), failure)
            }
        }
    }

    pub fn publish_parts(&self, key: &str, id: &str, parts: &[Part], crc: u64, condition: &Condition) -> Result<()> {
        let condition = match mutant::is_on("s3-parts-without-condition") {
            true => Condition::Any,
            false => self.settled(key, condition)?,
        };
        let size = parts.iter().map(|part| part.size_bytes).sum();
        match self.complete(key, id, parts, crc, &condition) {
            Ok(()) => Ok(()),
            Err(failure) => self.resolve(key, size, crc, failure),
        }
    }

    /// Has the store copy an object of its own, and compares what it then says of both.
    pub fn publish_copy(
        &self,
        key: &str,
        from: &CopyOf,
        size_bytes: u64,
        meta: Meta<'_>,
        condition: &Condition,
    ) -> Result<()> {
        let condition = self.settled(key, condition)?;
        let copied = self.copy((&from.bucket, &from.key, &from.etag), key, Some(meta), &condition);
        if let Err(failure) = copied {
            let Some(crc) = from.crc else { return Err(failure) };
            return self.resolve(key, size_bytes, crc, failure);
        }
        let there = self.head(key)?;
        let is_same = |there: &Object| {
            there.size_bytes == size_bytes && (from.crc.is_none() || there.crc.is_none() || there.crc == from.crc)
        };
        match there.is_some_and(|there| is_same(&there)) {
            true => Ok(()),
            false => Err(Failure::new(Why::Damaged, "what the store copied is not what it had")),
        }
    }

    /// Whether this bucket and another one belong to one store, which can copy between them.
    pub fn is_store_of(&self, other: &Bucket) -> bool {
        let scheme = |bucket: &Bucket| bucket.shown.split("://").next().unwrap_or_default().to_owned();
        scheme(self) == scheme(other)
    }

    /// Whether a request that was not answered, or only the second time, was carried out.
    fn resolve(&self, key: &str, size_bytes: u64, crc: u64, failure: Failure) -> Result<()> {
        let may_be_done = match failure.why {
            Why::Unknown | Why::Busy => true,
            Why::Condition | Why::NoUpload | Why::Conflict => failure.is_repeated,
            _ => false,
        };
        if !may_be_done || mutant::is_on("s3-lost-answer-is-a-failure") {
            return Err(failure);
        }
        match self.head(key)? {
            Some(there) if there.size_bytes == size_bytes && there.crc == Some(crc) => Ok(()),
            _ => Err(failure),
        }
    }
}
