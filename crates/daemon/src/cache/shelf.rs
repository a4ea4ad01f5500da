//! What a cache holds and what it is to get, as an account: no storage, no network, time comes in.
//!
//! Invariants:
//! - Content is known by its digest and length: two files of equal content are one, and a path tells nothing. What a set with readers
//!   of its own holds is that set's alone: whoever knows a digest may not read it by a set of their own making.
//! - What is wanted is wanted once, however many ask; only what is not held is wanted.
//! - Held and reserved together stay below the size. What goes is what was used longest ago, never what is being read.
//!
//! Not here: the files (`hold`), and who asks (`source`).

use model::set::SetFile;
use model::{DigestAlgorithm, mutant};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// What content is known by.
pub type Key = [u8; 32];

/// What is fetched together.
const BATCH_FILES_MAX: usize = 1000;
const BATCH_BYTES_MAX: u64 = 64 << 20;
/// What was used this recently is spared while others wait for room: whoever reads a file reads on.
const RECENT: Duration = Duration::from_secs(5);
/// How long a failure is told to those who ask again.
const FAILURE_TOLD: Duration = Duration::from_secs(2);

/// What a file is kept under; `owner` is the set that it belongs to, where not everybody may read that.
pub fn key_of(owner: Option<&str>, file: &SetFile) -> Key {
    let content = if mutant::is_on("cache-by-name") { &file.path[..] } else { &file.root[..] };
    let owner = owner.unwrap_or_default().as_bytes();
    let parts = [&file.size_bytes.to_le_bytes()[..], &(owner.len() as u64).to_le_bytes(), owner, content];
    let key = DigestAlgorithm::Blake3.of_object(&parts.concat()).to_bytes();
    key.try_into().expect("a BLAKE3 digest has 32 bytes")
}

pub struct Shelf<S> {
    size_bytes: u64,
    held: HashMap<Key, Held>,
    /// By when they were used last.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
    held_bytes: u64,
    reserved_bytes: u64,
    wanted: HashMap<Key, Wanted<S>>,
    queue: VecDeque<Key>,
    batches: u64,
    /// When it failed, why, and of which set it was asked for: another one may know where it is.
    failed: HashMap<Key, (Instant, String, S)>,
}

struct Held {
    bytes: u64,
    use_number: u64,
    used: Option<Instant>,
    reads: u32,
    /// Another one for each time that it came.
    arrival: u64,
}

struct Wanted<S> {
    of: S,
    file: usize,
    bytes: u64,
    /// By which batch it is under way, and whether that has room for it.
    batch: Option<u64>,
    is_reserved: bool,
    /// Chunks that are there already, of a file that comes in chunks.
    chunks: HashSet<u64>,
}

/// Where content stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is counted as read until `release`; this is its arrival.
    Held(u64),
    /// This chunk has arrived.
    Chunk,
    Coming,
    Failed(String),
    Unknown,
}

/// What is to be fetched together, of one set: the numbers of its files.
pub struct Batch<S> {
    pub number: u64,
    pub of: S,
    pub files: Vec<(Key, usize)>,
    pub bytes: u64,
}

impl<S: Clone + PartialEq> Shelf<S> {
    /// With what was held before, the one that was used longest ago first.
    pub fn new(size_bytes: u64, before: Vec<(Key, u64)>) -> Shelf<S> {
        let mut shelf = Shelf {
            size_bytes,
            held: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            held_bytes: 0,
            reserved_bytes: 0,
            wanted: HashMap::new(),
            queue: VecDeque::new(),
            batches: 0,
            failed: HashMap::new(),
        };
        before.into_iter().for_each(|(key, bytes)| shelf.hold(key, bytes, None));
        shelf
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub fn holds(&self, key: &Key) -> bool {
        self.held.contains_key(key)
    }

    /// Whether it is here or will be, without a look at what failed.
    pub fn expects(&self, key: &Key) -> bool {
        self.holds(key) || self.wanted.contains_key(key)
    }

    fn hold(&mut self, key: Key, bytes: u64, used: Option<Instant>) {
        self.uses += 1;
        let held = Held { bytes, use_number: self.uses, used, reads: 0, arrival: self.uses };
        if let Some(before) = self.held.insert(key, held) {
            self.by_use.remove(&before.use_number);
            self.held_bytes -= before.bytes;
        }
        self.by_use.insert(self.uses, key);
        self.held_bytes += bytes;
    }

    /// Where a chunk of a file of a set stands, for somebody who began to ask at `since`.
    pub fn standing(&mut self, of: &S, (key, chunk): (&Key, u64), since: Instant, now: Instant) -> Standing {
        if let Some(held) = self.held.get_mut(key) {
            self.uses += 1;
            self.by_use.remove(&held.use_number);
            (held.use_number, held.used) = (self.uses, Some(now));
            held.reads += 1;
            self.by_use.insert(self.uses, *key);
            return Standing::Held(held.arrival);
        }
        match self.wanted.get(key) {
            // Another set may cut it otherwise.
            Some(wanted) if wanted.of == *of && wanted.chunks.contains(&chunk) => return Standing::Chunk,
            Some(_) => return Standing::Coming,
            None => {}
        }
        match self.failed.get(key) {
            Some((at, why, by)) if *at >= since && by == of => Standing::Failed(why.clone()),
            _ => Standing::Unknown,
        }
    }

    /// Somebody read it to the end.
    pub fn release(&mut self, key: &Key, arrival: u64) {
        if let Some(held) = self.held.get_mut(key).filter(|held| held.arrival == arrival) {
            held.reads = held.reads.saturating_sub(1);
        }
    }

    /// What was held turned out not to be what it is called by. False where another one came meanwhile.
    pub fn discard(&mut self, key: &Key, arrival: u64) -> bool {
        let is_it = self.held.get(key).is_some_and(|held| held.arrival == arrival);
        if is_it {
            self.forget(key);
        }
        is_it
    }

    fn forget(&mut self, key: &Key) {
        if let Some(held) = self.held.remove(key) {
            self.by_use.remove(&held.use_number);
            self.held_bytes -= held.bytes;
        }
    }

    pub fn want(&mut self, of: &S, file: usize, key: Key, bytes: u64) {
        if self.expects(&key) {
            return;
        }
        let (of, chunks) = (of.clone(), HashSet::new());
        self.wanted.insert(key, Wanted { of, file, bytes, batch: None, is_reserved: false, chunks });
        self.queue.push_back(key);
    }

    pub fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// What is fetched next: of one set, and no more than is fetched together.
    pub fn next_batch(&mut self) -> Option<Batch<S>> {
        // What came by an earlier batch after all is no longer wanted, and what is under way not once more.
        let wanted = &self.wanted;
        self.queue.retain(|key| wanted.get(key).is_some_and(|wanted| wanted.batch.is_none()));
        let of = self.wanted[self.queue.front()?].of.clone();
        self.batches += 1;
        let mut batch = Batch { number: self.batches, of, files: Vec::new(), bytes: 0 };
        let mut later = VecDeque::new();
        let bytes_max = BATCH_BYTES_MAX.min(self.size_bytes / 4);
        while let Some(key) = self.queue.pop_front() {
            let Some(wanted) = self.wanted.get_mut(&key).filter(|wanted| wanted.batch.is_none()) else { continue };
            let has_room = batch.files.is_empty()
                || batch.files.len() < BATCH_FILES_MAX && batch.bytes.saturating_add(wanted.bytes) <= bytes_max;
            if !has_room || wanted.of != batch.of {
                later.push_back(key);
                continue;
            }
            wanted.batch = Some(batch.number);
            batch.bytes = batch.bytes.saturating_add(wanted.bytes);
            batch.files.push((key, wanted.file));
        }
        self.queue = later;
        Some(batch)
    }

    /// Makes room for what is fetched next; the files that go are handed to `remove`. False where what is in use leaves too
    /// little; what was used just now goes only if `takes_recent`.
    pub fn reserve(
        &mut self,
        batch: &Batch<S>,
        now: Instant,
        takes_recent: bool,
        remove: &mut dyn FnMut(&Key),
    ) -> bool {
        // Some of it may have come by another one while room was waited for.
        let is_its = |wanted: &Wanted<S>| wanted.batch == Some(batch.number);
        let wanted = batch.files.iter().filter_map(|(key, _)| self.wanted.get(key)).filter(|wanted| is_its(wanted));
        let bytes = wanted.fold(0, |sum: u64, wanted| sum.saturating_add(wanted.bytes));
        if !self.make_room(bytes, now, takes_recent, remove) {
            return false;
        }
        for (key, _) in &batch.files {
            if let Some(wanted) = self.wanted.get_mut(key).filter(|wanted| is_its(wanted)) {
                wanted.is_reserved = true;
            }
        }
        self.reserved_bytes += bytes;
        true
    }

    /// The same for nothing in particular.
    pub fn make_room(&mut self, bytes: u64, now: Instant, takes_recent: bool, remove: &mut dyn FnMut(&Key)) -> bool {
        while self.held_bytes.saturating_add(self.reserved_bytes).saturating_add(bytes) > self.size_bytes {
            let may_go = |key: &&Key| {
                let held = &self.held[*key];
                let is_recent = held.used.is_some_and(|used| now.saturating_duration_since(used) < RECENT);
                held.reads == 0 && (takes_recent || !is_recent)
            };
            let Some(key) = self.by_use.values().find(may_go).copied() else { return false };
            self.forget(&key);
            remove(&key);
        }
        true
    }

    pub fn has_chunk(&mut self, key: &Key, chunk: u64) {
        if let Some(wanted) = self.wanted.get_mut(key) {
            wanted.chunks.insert(chunk);
        }
    }

    /// What had come of a file counts no more: it is begun again.
    pub fn begins(&mut self, key: &Key) {
        if let Some(wanted) = self.wanted.get_mut(key) {
            wanted.chunks.clear();
        }
    }

    /// A file has come whole; also one that has gone meanwhile, and comes by another attempt of its batch.
    pub fn arrived(&mut self, key: &Key, bytes: u64, now: Instant) {
        if let Some(wanted) = self.wanted.remove(key) {
            self.free(&wanted);
        }
        self.hold(*key, bytes, Some(now));
    }

    fn free(&mut self, wanted: &Wanted<S>) {
        self.reserved_bytes = self.reserved_bytes.saturating_sub(if wanted.is_reserved { wanted.bytes } else { 0 });
    }

    /// What of a batch has not come does not come any more. Returns whether there is any of that.
    pub fn ended(&mut self, batch: &Batch<S>, why: &str, now: Instant) -> bool {
        self.failed.retain(|_, (at, ..)| now.saturating_duration_since(*at) < FAILURE_TOLD);
        let mut has_failed = false;
        for (key, _) in &batch.files {
            // It may have come, have gone again, and be wanted once more.
            if self.wanted.get(key).is_some_and(|wanted| wanted.batch == Some(batch.number))
                && let Some(wanted) = self.wanted.remove(key)
            {
                self.free(&wanted);
                self.failed.insert(*key, (now, why.to_owned(), batch.of.clone()));
                has_failed = true;
            }
        }
        has_failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> Key {
        [n; 32]
    }

    fn file(path: &str, root: u8) -> SetFile {
        SetFile { path: path.as_bytes().into(), size_bytes: 1, modified: 0, root: key(root) }
    }

    /// Fetches what is wanted, as a worker does.
    fn fetch(shelf: &mut Shelf<u8>, now: Instant) -> Vec<Key> {
        let mut gone = Vec::new();
        while let Some(batch) = shelf.next_batch() {
            assert!(shelf.reserve(&batch, now, true, &mut |key| gone.push(*key)));
            for (key, _) in &batch.files {
                let bytes = shelf.wanted[key].bytes;
                shelf.arrived(key, bytes, now);
            }
        }
        gone
    }

    #[test]
    fn content_is_known_by_its_digest_and_not_by_its_name() {
        assert_eq!(key_of(None, &file("a/x", 1)), key_of(None, &file("b/y", 1)));
        assert_ne!(key_of(None, &file("a/x", 1)), key_of(None, &file("a/x", 2)));
        let owned = |owner| key_of(Some(owner), &file("a/x", 1));
        assert!(owned("a") == owned("a") && owned("a") != owned("b") && owned("a") != key_of(None, &file("a/x", 1)));
        // A set that tells another length has none of it thrown away.
        let longer = SetFile { size_bytes: 2, ..file("a/x", 1) };
        assert_ne!(key_of(None, &file("a/x", 1)), key_of(None, &longer));
    }

    #[test]
    fn what_many_ask_for_is_fetched_once_and_of_one_set_at_a_time() {
        let (mut shelf, now) = (Shelf::new(1000, Vec::new()), Instant::now());
        for _ in 0..10 {
            shelf.want(&1, 0, key(1), 10);
            shelf.want(&2, 5, key(2), 10);
            shelf.want(&1, 7, key(3), 10);
        }
        let batch = shelf.next_batch().unwrap();
        assert_eq!((batch.of, &batch.files[..]), (1, &[(key(1), 0), (key(3), 7)][..]));
        shelf.want(&1, 0, key(1), 10);
        assert_eq!(shelf.next_batch().unwrap().files, [(key(2), 5)]);
        assert!(shelf.next_batch().is_none());
        assert_eq!(shelf.standing(&1, (&key(1), 4), now, now), Standing::Coming);
        shelf.has_chunk(&key(1), 4);
        assert_eq!(shelf.standing(&1, (&key(1), 4), now, now), Standing::Chunk);
        assert!(shelf.reserve(&batch, now, false, &mut |_| panic!("there is room")));
        shelf.arrived(&key(1), 10, now);
        assert!(matches!(shelf.standing(&1, (&key(1), 0), now, now), Standing::Held(_)));
        assert!(shelf.ended(&batch, "lost", now));
        assert_eq!(shelf.standing(&1, (&key(3), 0), now, now), Standing::Failed("lost".into()));
        assert_eq!(shelf.standing(&2, (&key(3), 0), now, now), Standing::Unknown, "another set may know where it is");
        assert_eq!((shelf.held_bytes, shelf.reserved_bytes), (10, 0));
        // Who asks later has it tried again.
        assert_eq!(shelf.standing(&1, (&key(3), 0), now + FAILURE_TOLD, now), Standing::Unknown);
    }

    #[test]
    fn what_was_used_longest_ago_goes_and_what_is_read_stays() {
        let (mut shelf, now) = (Shelf::new(30, vec![(key(1), 10), (key(2), 10), (key(3), 10)]), Instant::now());
        let Standing::Held(arrival) = shelf.standing(&1, (&key(1), 0), now, now) else { panic!("it is held") };
        shelf.want(&0, 0, key(4), 15);
        assert_eq!(fetch(&mut shelf, now), [key(2), key(3)]);
        shelf.want(&0, 0, key(5), 25);
        let batch = shelf.next_batch().unwrap();
        assert!(!shelf.reserve(&batch, now, false, &mut |_| ()), "the last ones were used just now");
        assert!(!shelf.reserve(&batch, now, true, &mut |_| ()), "one is being read");
        shelf.release(&key(1), arrival);
        assert!(shelf.reserve(&batch, now, true, &mut |_| ()));
        shelf.arrived(&key(5), 25, now);
        assert!(!shelf.holds(&key(1)) && shelf.holds(&key(5)) && shelf.held_bytes <= 30);
    }

    #[test]
    fn what_rotted_is_wanted_again_and_what_came_meanwhile_is_not_thrown_away() {
        let (mut shelf, now) = (Shelf::new(100, vec![(key(1), 10)]), Instant::now());
        let Standing::Held(arrival) = shelf.standing(&1, (&key(1), 0), now, now) else { panic!("it is held") };
        assert!(shelf.discard(&key(1), arrival));
        shelf.want(&0, 0, key(1), 10);
        fetch(&mut shelf, now);
        assert!(!shelf.discard(&key(1), arrival), "that is another one");
        assert!(shelf.holds(&key(1)) && shelf.held_bytes == 10);
    }

    #[test]
    fn what_goes_before_its_batch_has_ended_is_fetched_again_with_room_of_its_own() {
        let (mut shelf, now) = (Shelf::new(20, Vec::new()), Instant::now());
        (1..=2).for_each(|n| shelf.want(&0, 0, key(n), 10));
        let first = shelf.next_batch().unwrap();
        let rest = shelf.next_batch().unwrap();
        assert!(shelf.reserve(&first, now, true, &mut |_| ()) && shelf.reserve(&rest, now, true, &mut |_| ()));
        shelf.arrived(&key(1), 10, now);
        shelf.want(&0, 0, key(3), 10);
        let third = shelf.next_batch().unwrap();
        assert!(shelf.reserve(&third, now, true, &mut |gone| assert_eq!(*gone, key(1))));
        shelf.want(&0, 0, key(1), 10);
        assert!(!shelf.ended(&first, "over", now));
        assert_eq!((shelf.standing(&0, (&key(1), 0), now, now), shelf.reserved_bytes), (Standing::Coming, 20));
        // It comes once more by the first one: nobody has to fetch it, and those behind it are not held up.
        shelf.want(&0, 0, key(4), 10);
        shelf.arrived(&key(1), 10, now);
        assert_eq!((shelf.next_batch().unwrap().files, shelf.reserved_bytes), (vec![(key(4), 0)], 20));
        assert!([&rest, &third].iter().all(|batch| shelf.ended(batch, "over", now)));
        assert_eq!((shelf.held_bytes, shelf.reserved_bytes), (10, 0));
    }

    #[test]
    fn what_comes_before_there_is_room_for_it_takes_none_of_what_others_have() {
        let (mut shelf, now) = (Shelf::new(100, Vec::new()), Instant::now());
        (1..=2).for_each(|n| shelf.want(&0, 0, key(n), 10));
        let batch = shelf.next_batch().unwrap();
        assert_eq!(batch.files.len(), 2);
        // By a batch of before, while this one waits for room.
        shelf.arrived(&key(1), 10, now);
        assert_eq!((shelf.held_bytes, shelf.reserved_bytes), (10, 0));
        assert!(shelf.reserve(&batch, now, true, &mut |_| ()));
        assert_eq!(shelf.reserved_bytes, 10);
        assert!(shelf.ended(&batch, "lost", now));
        assert_eq!((shelf.held_bytes, shelf.reserved_bytes), (10, 0));
        // One for which there was no room.
        shelf.want(&0, 0, key(3), 10);
        let batch = shelf.next_batch().unwrap();
        assert!(shelf.ended(&batch, "all of it is in use", now));
        assert_eq!((shelf.held_bytes, shelf.reserved_bytes), (10, 0));
    }
}
