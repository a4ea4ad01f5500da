//! A bucket as a tree: what lies below a prefix, directory by directory, in the order of names.
//!
//! Invariants: a directory comes before what is in it, and is left behind it. While one directory is told the next ones are listed:
//! at most `THREADS` at once, `AHEAD_MAX` in a row, and no new one while `NAMES_MAX` names wait. What was listed is told within
//! `AGE_MAX`, or listed again. A walk that ends, in whatever way, waits for no listing.
//!
//! Not here: everything in the order of keys (`cursors`), which is not that of names: `a-b` stands before `a/c`.

use crate::bucket::Bucket;
use crate::calls::{Listed, Object};
use crate::failure::{self, Failure, Why};
use crate::key;
use crate::listing::{Child, Children, Listing};
use crate::reading::{ObjectFile, changed};
use model::FailureKind;
use model::files::{FileKind, FileStatus};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};
use store::{Error, Opener, SourceFile, Visit};

const THREADS: usize = 16;
const AHEAD_MAX: usize = 2 * THREADS;
/// Names of directories that are not told yet.
const NAMES_MAX: usize = 16_384;
/// The rest of a longer directory is listed when it is told.
const PAGES_MAX: usize = 2;
const AGE_MAX: Duration = Duration::from_secs(30);
/// Steps that are looked through for the next directories, besides those that were just added.
const LOOKED_MAX: usize = 1024;

/// One object of a walk.
struct Item {
    path: Vec<u8>,
    key: String,
    status: FileStatus,
    listed: Option<Listed>,
    is_last: bool,
}

enum Step {
    Object(Item),
    Left(Vec<u8>),
    Failed(Vec<u8>, Error),
}

/// Goes through what is at a place, which was looked at, and below.
pub fn through(
    bucket: &Arc<Bucket>,
    listed: Listed,
    status: FileStatus,
    levels: u32,
    visit: &mut dyn FnMut(Visit<'_>) -> bool,
) {
    let first = Item { path: Vec::new(), key: listed.key.clone(), status, listed: Some(listed), is_last: true };
    let ahead = Ahead { bucket: bucket.clone(), state: Mutex::default(), changed: Condvar::new() };
    let over = Over(Arc::new(ahead));
    tell(&over.0, first, levels, visit);
}

/// Ends the threads of a walk with it, also if it panics.
struct Over(Arc<Ahead>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.state().is_over = true;
        self.0.changed.notify_all();
    }
}

fn tell(ahead: &Arc<Ahead>, first: Item, levels: u32, visit: &mut dyn FnMut(Visit<'_>) -> bool) {
    let (mut steps, mut threads) = (vec![Step::Object(first)], 0);
    while let Some(step) = steps.pop() {
        let goes_on = match step {
            Step::Left(path) => visit(Visit::Left { path: &path }),
            Step::Failed(path, error) => visit(Visit::Failed { path: &path, error }),
            Step::Object(Item { path, key, status, listed, is_last }) => {
                let is_directory = status.is_directory();
                let none = Listed::default();
                let opener = &|| opener(&ahead.bucket, &key, listed.as_ref().unwrap_or(&none));
                let goes_on = visit(Visit::Object { path: &path, status, is_last, opener });
                if is_directory && goes_on {
                    steps.push(Step::Left(path.clone()));
                    if depth(&path) < u64::from(levels) {
                        let prefix = prefix(&key);
                        let more = standing(ahead, &prefix).map(|found| within(&ahead.bucket, found, &prefix, &path));
                        let count = more.as_ref().map_or(0, Vec::len);
                        match more {
                            Ok(more) => steps.extend(more),
                            Err(failure) => steps.push(Step::Failed(path.clone(), failure.on("list", ""))),
                        }
                        let wanted = next(&steps, count, levels);
                        let useful = wanted.len().saturating_sub(1).min(THREADS);
                        ahead.want(wanted);
                        let spawn = |_: &usize| {
                            let ahead = ahead.clone();
                            let list = move || while ahead.step() {};
                            Builder::new().name("store".to_owned()).spawn(list).is_ok()
                        };
                        threads += (threads..useful).take_while(spawn).count();
                    }
                }
                goes_on
            }
        };
        if !goes_on {
            return;
        }
    }
}

/// What stands in a directory. A store that has one in each directory has no end.
fn standing(ahead: &Ahead, prefix: &str) -> failure::Result<Children> {
    match prefix.len() > key::KEY_BYTES_MAX {
        true => Err(Failure::new(Why::Other, "the store lists keys that are longer than keys can be")),
        false => ahead.take(prefix),
    }
}

fn depth(path: &[u8]) -> u64 {
    if path.is_empty() { 0 } else { 1 + path.iter().filter(|byte| **byte == b'/').count() as u64 }
}

fn prefix(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("{key}/") }
}

/// The directories that are told next, by their prefixes.
fn next(steps: &[Step], added: usize, levels: u32) -> VecDeque<String> {
    let directories = steps.iter().rev().take(added + LOOKED_MAX).filter_map(|step| match step {
        Step::Object(item) if item.status.is_directory() && depth(&item.path) < u64::from(levels) => {
            Some(prefix(&item.key))
        }
        _ => None,
    });
    directories.take(AHEAD_MAX).collect()
}

/// The steps through a directory, the last one first.
fn within(bucket: &Arc<Bucket>, found: Children, prefix: &str, path: &[u8]) -> Vec<Step> {
    let Children { names, odd, .. } = found;
    let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
    let mut steps: Vec<Step> = Vec::new();
    for (key, why) in odd {
        let path = [path, slash, &key.as_bytes()[prefix.len()..]].concat();
        let why = format!("this key is no path: {why}");
        steps.push(Step::Failed(path, Error::of_kind(FailureKind::NameRefused, "name", b"", &why)));
    }
    let count = names.len();
    for (at, (name, child)) in names.into_iter().enumerate().rev() {
        let path = [path, slash, &name[..]].concat();
        let key = format!("{prefix}{}", key::of_name(&name));
        let is_last = at + 1 == count;
        let Child { object, is_directory } = child;
        if is_directory {
            let status = of_directory(bucket, &key, None);
            steps.push(Step::Object(Item { path: path.clone(), key: key.clone(), status, listed: None, is_last }));
        }
        if let Some(listed) = object {
            let status = of_file(bucket, &key, &listed);
            let is_last = is_last && !is_directory;
            steps.push(Step::Object(Item { path, key, status, listed: Some(listed), is_last }));
        }
    }
    steps
}

/// What a listing tells of an object.
pub fn of_file(bucket: &Bucket, key: &str, listed: &Listed) -> FileStatus {
    FileStatus {
        kind: FileKind::File,
        mode: 0o644,
        size_bytes: listed.size_bytes,
        allocated_bytes: listed.size_bytes,
        owner: 0,
        group: 0,
        links: 1,
        inode: bucket.number(key, &listed.etag),
        device: bucket.storage(),
        modified: changed(listed.stored),
        changed: changed(listed.stored),
    }
}

/// What is told of a directory, which has an object of its own or none.
pub fn of_directory(bucket: &Bucket, key: &str, marker: Option<&Object>) -> FileStatus {
    let modified = marker.map_or_else(Default::default, Object::modified);
    let mode = marker.and_then(|marker| marker.mode).map_or(0o755, |mode| mode & 0o7777);
    FileStatus { kind: FileKind::Directory, mode, modified, ..of_file(bucket, key, &Listed::default()) }
}

fn opener(bucket: &Arc<Bucket>, item_key: &str, listed: &Listed) -> Opener {
    let (bucket, key) = (bucket.clone(), item_key.to_owned());
    let Listed { size_bytes, etag, stored, .. } = listed.clone();
    Box::new(move || {
        let object = Object { size_bytes, etag, stored, ..Object::default() };
        let generation = bucket.generation(&key, &object);
        Ok(Arc::new(ObjectFile::new(bucket, key, object, generation)) as Arc<dyn SourceFile>)
    })
}

/// Directories that are listed before they are told.
struct Ahead {
    bucket: Arc<Bucket>,
    state: Mutex<State>,
    changed: Condvar,
}

/// What was listed of a directory, and when.
struct Beginning {
    listing: failure::Result<Listing>,
    at: Instant,
}

#[derive(Default)]
struct State {
    /// Whose listing has not begun.
    wanted: VecDeque<String>,
    /// Whose listing has begun: `None` while it is under way.
    begun: HashMap<String, Option<Beginning>>,
    names: usize,
    is_over: bool,
}

impl Ahead {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What stands in a directory, listed now if nobody has begun to.
    fn take(&self, prefix: &str) -> failure::Result<Children> {
        let mut state = self.state();
        state.wanted.retain(|wanted| wanted != prefix);
        while let Some(None) = state.begun.get(prefix) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let beginning = state.begun.remove(prefix).flatten();
        state.names -= beginning.as_ref().map_or(0, Beginning::weight);
        drop(state);
        self.changed.notify_all();
        let beginning = beginning.filter(|beginning| beginning.at.elapsed() < AGE_MAX);
        let mut listing = beginning.map_or_else(|| Ok(Listing::default()), |beginning| beginning.listing)?;
        self.bucket.list_on(prefix, &mut listing, usize::MAX)?;
        Ok(listing.found)
    }

    /// Names the directories that come next. What waits of others is dropped if it is too much: they are listed again.
    fn want(&self, mut next: VecDeque<String>) {
        let mut state = self.state();
        let State { begun, names, .. } = &mut *state;
        if *names >= NAMES_MAX {
            begun.retain(|prefix, beginning| match beginning {
                Some(beginning) if !next.contains(prefix) => {
                    *names -= beginning.weight();
                    false
                }
                _ => true,
            });
        }
        next.retain(|prefix| !begun.contains_key(prefix));
        state.wanted = next;
        drop(state);
        self.changed.notify_all();
    }

    /// Lists one of those that are wanted. False when the walk is over.
    fn step(&self) -> bool {
        let mut state = self.state();
        let prefix = loop {
            if state.is_over {
                return false;
            }
            if state.names < NAMES_MAX
                && let Some(prefix) = state.wanted.pop_front()
            {
                break prefix;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        state.begun.insert(prefix.clone(), None);
        drop(state);
        let (at, mut listing) = (Instant::now(), Listing::default());
        let listed = self.bucket.list_on(&prefix, &mut listing, PAGES_MAX);
        let beginning = Beginning { listing: listed.map(|()| listing), at };
        let mut state = self.state();
        state.names += beginning.weight();
        state.begun.insert(prefix, Some(beginning));
        drop(state);
        self.changed.notify_all();
        true
    }
}

impl Beginning {
    /// As names count.
    fn weight(&self) -> usize {
        self.listing.as_ref().map_or(0, |listing| 1 + listing.found.names.len() + listing.found.odd.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreConfig;
    use fakes::{BUCKET, Fake, SECRET};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A bucket of 40 directories, of which some take many pages, and its keys.
    fn bed(work: impl Fn(&Fake, &Arc<Bucket>, &[String])) {
        let (fake, keys) = (Fake::start(), tempfile::NamedTempFile::new().unwrap());
        fake.state.lock().unwrap().page_max = 3;
        let text = format!("[default]\naws_access_key_id = fake\naws_secret_access_key = {SECRET}\n");
        std::fs::write(keys.path(), text).unwrap();
        let mut stored = Vec::new();
        for directory in 0..40 {
            for file in 0..=(directory * 7) % 20 {
                let below = if file % 5 == 4 { "deeper/" } else { "" };
                stored.push(format!("t/d{directory:02}/{below}f{file:02}"));
            }
        }
        stored.iter().for_each(|key| fake.put(key, b"x"));
        // As names stand in the tree, and not as keys do.
        stored.sort_by(|a, b| a.split('/').cmp(b.split('/')));
        let config = StoreConfig {
            endpoint: Some(fake.url.clone()),
            region: Some("us-east-1".to_owned()),
            credentials_file: Some(keys.path().to_owned()),
            ..StoreConfig::default()
        };
        let bucket = Bucket::new(BUCKET, format!("s3://{BUCKET}"), &config, web::Stop::default());
        work(&fake, &Arc::new(bucket.ok().unwrap()), &stored);
    }

    /// The keys of files that are told, until so many were.
    fn told(bucket: &Arc<Bucket>, files_max: usize) -> Vec<String> {
        let (mut told, mut open) = (Vec::new(), 0);
        let top = Listed { key: "t".to_owned(), ..Listed::default() };
        let status = of_directory(bucket, "t", None);
        through(bucket, top, status, u32::MAX, &mut |visit| {
            match visit {
                Visit::Object { path, status, .. } if !status.is_directory() => {
                    told.push(format!("t/{}", std::str::from_utf8(path).unwrap()));
                }
                Visit::Object { .. } => open += 1,
                Visit::Left { .. } => open -= 1,
                Visit::Failed { error, .. } => panic!("{error}"),
            }
            told.len() < files_max
        });
        assert!(files_max < usize::MAX || open == 0, "every directory is left");
        told
    }

    #[test]
    fn what_is_listed_ahead_is_told_once_and_in_the_order_of_names() {
        bed(|fake, bucket, stored| {
            assert_eq!(told(bucket, usize::MAX), stored);
            let pages = fake.count("GET /bkt?");
            // What is listed ahead is gone on with, and not begun again: 3 of a page, and the directories themselves.
            let entries = stored.len() + 40 + 40;
            assert!(pages <= entries.div_ceil(3) + 81, "{pages} pages for {entries} entries");
        });
    }

    #[test]
    fn a_walk_that_ends_early_or_in_a_panic_waits_for_nothing() {
        bed(|fake, bucket, stored| {
            fake.state.lock().unwrap().delay = Duration::from_millis(300);
            for ends in [true, false] {
                let begun = Instant::now();
                let walked = catch_unwind(AssertUnwindSafe(|| {
                    let told = told(bucket, 1);
                    assert!(ends, "in a panic");
                    told
                }));
                assert_eq!(walked.ok(), ends.then(|| stored[..1].to_vec()));
                assert!(begun.elapsed() < Duration::from_secs(20));
            }
        });
    }
}
