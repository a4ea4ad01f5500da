//! Removing many objects: up to 1,000 keys a request, each with an answer of its own.
//!
//! Invariants: only what the store names as removed, or as not there, counts, and a directory is told to be removed
//! when all in it was; an object with content that is called like a directory is no marker, and stays.

use crate::bucket::Bucket;
use crate::calls::PAGE_MAX;
use crate::failure::Failure;
use std::collections::{HashMap, HashSet};
use store::Prune;

/// What came of a key; nothing where it was not asked for any more.
pub type Removed = Option<Result<(), Failure>>;

impl Bucket {
    /// Removes keys by one request where the store takes one, and tells of them in their order.
    pub fn remove_keys(&self, keys: &[&str], is_stopped: &(dyn Fn() -> bool + Sync)) -> Vec<Removed> {
        // What XML cannot say goes by a request of its own, and so does what the store failed to remove for a while.
        let is_plain = |key: &&str| !key.chars().any(char::is_control);
        let plain: Vec<&str> = keys.iter().copied().filter(is_plain).collect();
        let together = match plain.len() > 1 && !is_stopped() {
            true => self.delete_many(&plain).unwrap_or_default(),
            false => Vec::new(),
        };
        let told: HashMap<&str, Result<(), Failure>> = plain.into_iter().zip(together).collect();
        self.in_parallel(keys, |key| match told.get(key) {
            Some(Ok(())) => Some(Ok(())),
            Some(Err(failure)) if !failure.may_pass() => Some(Err(failure.clone())),
            _ if is_stopped() => None,
            _ => Some(self.delete(key)),
        })
    }
}

/// What is to be removed next, content before its directories.
#[derive(Default)]
pub struct Pruning {
    next: Vec<Doomed>,
    /// Directories in which something stays against all wishes.
    kept: HashSet<Vec<u8>>,
}

struct Doomed {
    path: Vec<u8>,
    is_directory: bool,
    /// None for a directory that has no marker.
    key: Option<String>,
    /// What has the key of its marker was not seen.
    is_unseen: bool,
}

impl Pruning {
    pub fn object(&mut self, bucket: &Bucket, key: String, path: Vec<u8>, prune: &mut Prune<'_>) {
        self.push(bucket, Doomed { path, is_directory: false, key: Some(key), is_unseen: false }, prune);
    }

    /// A directory, with the key of its marker, behind all that is in it.
    pub fn directory(&mut self, bucket: &Bucket, marker: Option<String>, path: Vec<u8>, prune: &mut Prune<'_>) {
        self.push(bucket, Doomed { path, is_directory: true, key: marker, is_unseen: false }, prune);
    }

    /// The same of one whose marker, if it has one, was not listed.
    pub fn unseen_directory(&mut self, bucket: &Bucket, key: String, path: Vec<u8>, prune: &mut Prune<'_>) {
        self.push(bucket, Doomed { path, is_directory: true, key: Some(key), is_unseen: true }, prune);
    }

    /// Something stays there, and so does every directory above it.
    pub fn keep(&mut self, path: &[u8]) {
        let mut rest = path;
        while let Some(at) = rest.iter().rposition(|byte| *byte == b'/') {
            rest = &rest[..at];
            // Those above it are there too then.
            if self.kept.contains(rest) {
                return;
            }
            self.kept.insert(rest.to_vec());
        }
    }

    fn push(&mut self, bucket: &Bucket, doomed: Doomed, prune: &mut Prune<'_>) {
        self.next.push(doomed);
        if self.next.len() >= PAGE_MAX {
            self.flush(bucket, prune);
        }
    }

    /// Removes what was put down, objects first, and tells of all of it in its order.
    pub fn flush(&mut self, bucket: &Bucket, prune: &mut Prune<'_>) {
        let next = std::mem::take(&mut self.next);
        if !(prune.goes_on)() {
            return;
        }
        let mut failed = self.look(bucket, &next);
        failed.extend(self.remove(bucket, &next, false, prune));
        failed.extend(self.remove(bucket, &next, true, prune));
        for (at, doomed) in next.iter().enumerate() {
            match failed.get(&at) {
                Some(failure) => {
                    let error = failure.on("remove", "");
                    let path = doomed.path.clone();
                    (prune.failed)(model::Failure { path, kind: error.kind, message: error.message() });
                }
                None if doomed.is_directory && self.has_kept(&doomed.path) => {}
                None => (prune.removed)(&doomed.path, doomed.is_directory),
            }
        }
    }

    /// Looks at what has the keys of markers and was not seen: where it has content it stays, and so does its directory. Returns
    /// what could not be looked at, by its place; that stays too.
    fn look(&mut self, bucket: &Bucket, next: &[Doomed]) -> HashMap<usize, Failure> {
        let due = next.iter().enumerate().filter(|(_, doomed)| doomed.is_unseen && !self.has_kept(&doomed.path));
        let due: Vec<_> = due.filter_map(|(at, doomed)| Some((at, doomed.key.as_deref()?))).collect();
        let looked = bucket.in_parallel(&due, |(_, key)| bucket.head(key));
        let mut failed = HashMap::new();
        for ((at, _), looked) in due.into_iter().zip(looked) {
            let stays = match looked {
                Ok(there) => there.is_some_and(|there| there.size_bytes > 0),
                Err(failure) => failed.insert(at, failure).is_none(),
            };
            if stays {
                // As something in it would.
                self.keep(&[&next[at].path[..], b"/"].concat());
            }
        }
        failed
    }

    /// Removes objects, or markers of directories of which nothing stays; returns what failed, by its place.
    fn remove(
        &mut self,
        bucket: &Bucket,
        next: &[Doomed],
        is_directory: bool,
        prune: &Prune<'_>,
    ) -> HashMap<usize, Failure> {
        let is_due =
            |doomed: &Doomed| doomed.is_directory == is_directory && !(is_directory && self.has_kept(&doomed.path));
        let due = next.iter().enumerate().filter(|(_, doomed)| is_due(doomed));
        let due: Vec<_> = due.filter_map(|(at, doomed)| Some((at, doomed.key.as_deref()?))).collect();
        if due.is_empty() || prune.is_rehearsal {
            return HashMap::new();
        }
        let keys: Vec<&str> = due.iter().map(|(_, key)| *key).collect();
        let removed = bucket.remove_keys(&keys, &|| false);
        let failed = due.into_iter().zip(removed).filter_map(|((at, _), removed)| Some((at, removed?.err()?)));
        let failed: HashMap<usize, Failure> = failed.collect();
        failed.keys().for_each(|at| self.keep(&next[*at].path));
        failed
    }

    fn has_kept(&self, directory: &[u8]) -> bool {
        self.kept.contains(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::tests::bucket;
    use fakes::http::Said;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// As stores answer that tell keys that are not there from those that they removed.
    #[test]
    fn keys_that_were_removed_by_a_request_without_an_answer_count_as_removed() {
        let count = Arc::new(AtomicU32::new(0));
        let counted = count.clone();
        let bucket = bucket(move |_| {
            let is_first = counted.fetch_add(1, Relaxed) == 0;
            let told = |key: &str| match is_first {
                true => format!("<Deleted><Key>{key}</Key></Deleted>"),
                false => format!("<Error><Key>{key}</Key><Code>NoSuchKey</Code><Message>no</Message></Error>"),
            };
            let xml = format!("<DeleteResult>{}</DeleteResult>", ["a", "b"].map(told).concat());
            let mut said = Said::new(200, xml.as_bytes());
            said.is_lost = is_first;
            said
        });
        let removed = bucket.remove_keys(&["a", "b"], &|| false);
        assert!(removed.iter().all(|removed| matches!(removed, Some(Ok(())))), "{removed:?}");
        assert_eq!((removed.len(), count.load(Relaxed)), (2, 2));
    }

    #[test]
    fn what_stays_keeps_the_directories_above_it_and_no_others() {
        let mut pruning = Pruning::default();
        for path in [&b"a/b/c"[..], b"a/b/d", b"a/e", b"f", b"g/h/"] {
            pruning.keep(path);
        }
        let kept = |directory: &str| pruning.has_kept(directory.as_bytes());
        assert_eq!(["a", "a/b", "g", "g/h"].map(kept), [true; 4]);
        assert_eq!(["a/b/c", "a/e", "f", "ab", "", "g/h/i"].map(kept), [false; 6]);
        assert_eq!(pruning.kept.len(), 4, "one for each directory, however much stays in it");
    }
}
