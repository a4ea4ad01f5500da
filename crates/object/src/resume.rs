//! Going on with an upload that an earlier attempt left: what this host put down of it, what the store says that it holds, and what
//! of both agrees.
//!
//! Invariants: a part counts as there when log and store agree in its length, its ETag and its checksum, and when its bytes were
//! recorded as verified; with CRC-64 their digest has to be that of the part as well. An upload of another version is never gone on
//! with: it is aborted. Nobody else's upload is touched.

use crate::calls::Part;
use crate::failure::Why;
use crate::upload::ObjectUpload;
use crate::upload_log::{Left, Subject, hashed};
use model::{Digest, DigestAlgorithm, Extent};
use std::collections::BTreeMap;
use std::ops::Range;

impl ObjectUpload {
    fn subject(&self, stem: &str) -> Subject {
        let meta: String = self.job.meta(&self.entry).iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let version = hashed(&[stem.as_bytes(), meta.as_bytes(), &self.part_bytes.to_le_bytes()]);
        let bucket = &self.job.bucket;
        Subject { store: bucket.address(), bucket: bucket.name.clone(), key: self.key.clone(), version }
    }

    /// An object of one part leaves whole. One whose end is not known may have several: nobody goes on with it, and its log is there
    /// to end what is left of it.
    fn has_parts(&self) -> bool {
        self.size_bytes.is_none_or(|size| size > self.part_bytes)
    }

    pub fn has_log(&self, stem: &str) -> bool {
        self.has_parts() && self.job.logs.as_ref().is_some_and(|logs| logs.has(&self.subject(stem)))
    }

    /// Takes over what an earlier attempt left under the same stem, and returns its journal.
    pub fn go_on(self, stem: &str) -> store::Result<(ObjectUpload, Vec<u8>)> {
        let logs = self.job.logs.as_ref().filter(|_| self.has_parts());
        let Some((log, left)) = logs.and_then(|logs| logs.open(&self.subject(stem))) else {
            return Ok((self, Vec::new()));
        };
        let mut journal = Vec::new();
        if let Some(left) = left {
            let bucket = &self.job.bucket;
            let there = match left.is_same {
                true => match bucket.parts(&self.key, &left.id) {
                    // With keys that have expired nothing new could be sent either; a store that does not answer may
                    // have all parts.
                    Err(failure)
                        if failure.is_silence || matches!(failure.why, Why::Busy | Why::Unreachable | Why::Keys) =>
                    {
                        return Err(failure.on("look for parts of", &self.key));
                    }
                    // The upload is not there any more, or the store does not list parts, or makes no sense.
                    Err(_) => BTreeMap::new(),
                    Ok(there) => there,
                },
                false => BTreeMap::new(),
            };
            let sent = self.agreed(&left, &there);
            if sent.is_empty() {
                let _ = bucket.abort(&self.key, &left.id);
                log.truncate_journal(0);
            } else {
                journal = log.journal();
                let mut state = self.shared.state.lock().unwrap();
                (state.id, state.sent) = (Some(left.id), sent);
            }
        }
        let _ = self.shared.log.set(log);
        Ok((self, journal))
    }

    /// The parts that log and store agree on, numbered from 0.
    fn agreed(&self, left: &Left, there: &BTreeMap<u32, Part>) -> BTreeMap<u64, Part> {
        let count = self.size_bytes.unwrap_or_default().div_ceil(self.part_bytes);
        let is_there = |part: &&Part| {
            let number = u64::from(part.number).wrapping_sub(1);
            let plain = |etag: &str| etag.trim_matches('"').to_owned();
            number < count
                && part.size_bytes == self.length(number)
                && part.crc.is_some()
                && there.get(&part.number).is_some_and(|there| {
                    (there.size_bytes, there.crc, plain(&there.etag)) == (part.size_bytes, part.crc, plain(&part.etag))
                        && !there.etag.is_empty()
                })
        };
        left.parts.values().filter(is_there).map(|part| (u64::from(part.number) - 1, part.clone())).collect()
    }

    /// Which of the recorded chunks are in parts that are there. Parts with anything else in them count no more.
    pub fn keep(&self, recorded: &[(Extent, Digest)]) -> Vec<bool> {
        let longest = recorded.iter().map(|(extent, _)| extent.length()).max().unwrap_or_default();
        // Whole chunks and whole parts.
        let unit = self.part_bytes.max(longest.next_power_of_two());
        let mut units: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (at, (extent, _)) in recorded.iter().enumerate() {
            units.entry(extent.start / unit).or_default().push(at);
        }
        let size = self.size_bytes.unwrap_or_default();
        let mut kept = vec![false; recorded.len()];
        let mut state = self.shared.state.lock().unwrap();
        let mut sent = std::mem::take(&mut state.sent);
        let before: Vec<u64> = sent.keys().copied().collect();
        for (number, mut places) in units {
            let bounds = number * unit..size.min((number + 1) * unit);
            places.sort_by_key(|at| recorded[*at].0.start);
            let chunks: Vec<_> = places.iter().map(|at| recorded[*at]).collect();
            let parts = bounds.start / self.part_bytes..bounds.end.div_ceil(self.part_bytes);
            let there: Option<Vec<_>> = parts.map(|number| sent.remove(&number).map(|part| (number, part))).collect();
            let Some(there) = there.filter(|there| self.proves(&bounds, &chunks, there)) else { continue };
            places.iter().for_each(|at| kept[*at] = true);
            state.sent.extend(there);
        }
        let log = self.shared.log.get();
        for number in before.into_iter().filter(|number| !state.sent.contains_key(number)) {
            log.inspect(|log| log.replaced(number as u32 + 1));
        }
        kept
    }

    /// Whether chunks and parts both are all of a range, and the same.
    fn proves(&self, bounds: &Range<u64>, chunks: &[(Extent, Digest)], parts: &[(u64, Part)]) -> bool {
        let mut end = bounds.start;
        let is_whole = chunks.iter().all(|(extent, _)| std::mem::replace(&mut end, extent.end) == extent.start);
        if !is_whole || end != bounds.end {
            return false;
        }
        let sums: Vec<Digest> = chunks.iter().map(|(_, digest)| *digest).collect();
        if !sums.iter().all(|digest| matches!(digest, Digest::Crc64Nvme(_))) {
            // The log vouches for it: a part that was to have other content has no line there.
            return true;
        }
        let length = bounds.end - bounds.start;
        let chunk_bytes = chunks[0].0.length();
        let is_even = chunks[..chunks.len() - 1].iter().all(|(extent, _)| extent.length() == chunk_bytes);
        if !is_even || chunks[chunks.len() - 1].0.length() > chunk_bytes {
            return false;
        }
        let of_parts: Vec<_> = parts.iter().map(|(_, part)| Digest::Crc64Nvme(part.crc.unwrap_or_default())).collect();
        let algorithm = DigestAlgorithm::Crc64Nvme;
        algorithm.combine(&sums, chunk_bytes, length) == algorithm.combine(&of_parts, self.part_bytes, length)
    }
}
