//! A directory of more names than are kept by name: of each a hash, and of what stands there what it takes to tell that it is unchanged.
//!
//! Invariants: sixteen bytes a name; a name is told to be missing only if it is. Two names whose keyed hashes are the same cost a
//! request.

use crate::bucket::Bucket;
use crate::calls::{From, Listed, PAGE_MAX};
use crate::failure::{Failure, Result, Why};
use crate::metadata;
use model::Timestamp;
use std::hash::{BuildHasher, RandomState};

/// 64 MiB; in a larger directory each name is asked for.
const NAMES_MAX: usize = 4 << 20;
/// Pages in a row on which nothing stands.
const EMPTY_MAX: usize = 1000;
/// Nothing was learnt of it.
const ASK: u64 = 0;

pub struct Crowd {
    hasher: RandomState,
    /// Hashes of names and the marks of what stands there, in their order.
    seen: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    Nothing,
    /// An object with this mark.
    Object(u64),
    /// Something of which nothing was learnt.
    Ask,
}

impl Crowd {
    /// Lists a directory; nothing where it is too large.
    pub fn list(bucket: &Bucket, prefix: &str) -> Result<Option<Crowd>> {
        let mut crowd = Crowd { hasher: RandomState::new(), seen: Vec::new() };
        let (mut next, mut empty): (Option<String>, usize) = (None, 0);
        loop {
            let page = bucket.page(prefix, false, From::of(next.as_deref()), PAGE_MAX)?;
            empty = if page.objects.is_empty() && page.prefixes.is_empty() { empty + 1 } else { 0 };
            let is_stuck = empty > EMPTY_MAX || (page.next.is_some() && page.next == next);
            if is_stuck {
                return Err(Failure::new(Why::Unknown, "the store's listing does not go on"));
            }
            if crowd.seen.len() + page.objects.len() + page.prefixes.len() > NAMES_MAX {
                return Ok(None);
            }
            page.objects.iter().for_each(|listed| crowd.add(prefix, listed, bucket));
            let below = page.prefixes.iter().filter_map(|below| below.strip_prefix(prefix)?.strip_suffix('/'));
            let below: Vec<_> = below.map(|part| (crowd.hash_of(part), ASK)).collect();
            crowd.seen.extend(below);
            next = page.next;
            if next.is_none() {
                crowd.seen.sort_unstable();
                return Ok(Some(crowd));
            }
        }
    }

    fn add(&mut self, prefix: &str, listed: &Listed, bucket: &Bucket) {
        let Some(part) = listed.key.strip_prefix(prefix) else { return };
        let known = bucket.at_hand(listed).filter(|known| !known.mode.is_some_and(metadata::is_link));
        let mark = known.map_or(ASK, |known| self.mark(known.size_bytes, known.modified()));
        self.seen.push((self.hash_of(part), mark));
    }

    fn hash_of(&self, part: &str) -> u64 {
        let name = crate::key::to_name(part).map_or_else(|_| part.into(), |name| name.as_bytes().to_vec());
        self.hasher.hash_one(name)
    }

    /// Of an object of this size and time.
    pub fn mark(&self, size_bytes: u64, modified: Timestamp) -> u64 {
        self.hasher.hash_one((size_bytes, modified.seconds, modified.nanoseconds)) | 1
    }

    pub fn len(&self) -> usize {
        self.seen.len()
    }

    pub fn find(&self, name: &[u8]) -> Seen {
        let hash = self.hasher.hash_one(name.to_vec());
        let first = self.seen.partition_point(|(known, _)| *known < hash);
        let mut found = self.seen[first..].iter().take_while(|(known, _)| *known == hash).map(|(_, mark)| *mark);
        match (found.next(), found.next()) {
            (None, _) => Seen::Nothing,
            (Some(mark), None) if mark != ASK => Seen::Object(mark),
            _ => Seen::Ask,
        }
    }
}
