//! What the receiver expects, by id: a value behind one lock that is held for the time of a lookup.
//!
//! Invariant: an object is handed to one lane at a time (small ones), and leaves the table when it is settled.

use super::large::Large;
use super::listed::Listed;
use crate::stream::Breaker;
use model::{Entry, Name, ObjectId};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use store::PublishRule;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Expected,
    /// In the hands of a lane.
    Receiving,
    /// On its way to its final name: not to be given up any more.
    Publishing,
    Settled,
}

struct Held {
    listed: Arc<Listed>,
    states: Vec<State>,
    open: usize,
}

#[derive(Default)]
pub struct Table {
    batches: BTreeMap<u64, Held>,
    large: BTreeMap<u64, Arc<Large>>,
    /// Of lanes that are reading a small object and may be broken off.
    readers: HashMap<u64, Breaker>,
    /// Made when the first object is described again, which few jobs see, and kept from then on.
    places: Option<Places>,
    /// Bytes set aside for objects that ended without being stored, until `take_released_bytes` is called.
    released_bytes: u64,
    /// Objects that ended with content that their sender took back, until it says why.
    taken_back: HashSet<u64>,
}

/// Open objects by where they go: digests of parent and name, under a key that no peer knows, and ids.
#[derive(Default)]
struct Places {
    key: RandomState,
    known: BTreeSet<(u64, u64)>,
}

impl Places {
    fn of(&self, entry: &Entry) -> (u64, u64) {
        (self.key.hash_one((entry.parent, &entry.name)), entry.id.0)
    }
}

/// What the table knows of an id that a lane came upon.
pub enum Found {
    Small(Arc<Listed>, usize),
    Large(Arc<Large>),
    /// Settled, void, or in the hands of another lane: to be dropped.
    NotNow,
}

pub struct Slot {
    pub large: Option<Arc<Large>>,
}

/// An object of which nothing is staged by a lane: what came of it is in its own staging, if it has one.
pub struct ToCome {
    pub room_bytes: u64,
    pub size_bytes: u64,
    /// Nothing stood at its name.
    pub is_new: bool,
    pub large: Option<Arc<Large>>,
}

impl Table {
    pub fn insert(&mut self, listed: Arc<Listed>, large: Vec<(u64, Arc<Large>)>) {
        let mut states = vec![State::Settled; listed.described];
        listed.objects.iter().for_each(|(index, _)| states[*index as usize] = State::Expected);
        let open = listed.objects.len();
        if let Some(places) = &mut self.places {
            let known: Vec<_> = listed.objects.iter().map(|(_, expected)| places.of(&expected.entry)).collect();
            places.known.extend(known);
        }
        if open > 0 {
            self.batches.insert(listed.first, Held { listed, states, open });
        }
        self.large.extend(large);
    }

    fn find(&mut self, id: u64) -> Option<(&mut Held, usize)> {
        let (first, held) = self.batches.range_mut(..=id).next_back()?;
        let index = usize::try_from(id - first).ok().filter(|i| *i < held.states.len())?;
        Some((held, index))
    }

    /// Takes an object into a lane's hands.
    pub fn take(&mut self, id: u64) -> Found {
        if let Some(large) = self.large.get(&id) {
            return Found::Large(large.clone());
        }
        match self.find(id) {
            Some((held, index))
                if held.states[index] == State::Expected
                    || model::mutant::is_on("take-twice") && held.states[index] == State::Receiving =>
            {
                held.states[index] = State::Receiving;
                Found::Small(held.listed.clone(), index)
            }
            _ => Found::NotNow,
        }
    }

    /// The same for a lane that may be broken off until it has read all of the object.
    pub fn take_by(&mut self, id: u64, breaker: &Breaker) -> Found {
        let found = self.take(id);
        if let Found::Small(..) = found {
            self.readers.insert(id, breaker.clone());
        }
        found
    }

    /// Breaks off the lane that is reading a small object.
    pub fn reader(&self, id: u64) -> Option<Breaker> {
        self.readers.get(&id).cloned()
    }

    pub fn was_read(&mut self, id: u64) {
        self.readers.remove(&id);
    }

    /// Whether an object that waited for storage is still wanted. From here on it is not voided.
    pub fn begin_publishing(&mut self, id: u64) -> bool {
        // Chunks of a large one are in the hands of many lanes, and it is in those of none.
        let before = if self.large.contains_key(&id) { State::Expected } else { State::Receiving };
        let Some((held, index)) = self.find(id) else { return false };
        let is_open = held.states[index] == before;
        if is_open {
            held.states[index] = State::Publishing;
        }
        is_open
    }

    /// It came to no end yet.
    pub fn is_open(&mut self, id: u64) -> bool {
        self.find(id).is_some_and(|(held, index)| held.states[index] != State::Settled)
    }

    /// Its content is with a lane, or on its way to its name.
    pub fn is_under_way(&mut self, id: u64) -> bool {
        let is_it = |state: State| matches!(state, State::Receiving | State::Publishing);
        self.find(id).is_some_and(|(held, index)| is_it(held.states[index]))
    }

    pub fn is_publishing(&mut self, id: u64) -> bool {
        self.find(id).is_some_and(|(held, index)| held.states[index] == State::Publishing)
    }

    /// Settles an object that will not come, unless it has come so far that it is being published.
    pub fn void(&mut self, id: u64) -> Option<Slot> {
        if self.is_publishing(id) { None } else { self.give_up(id) }
    }

    /// The same of one that its sender took back with its content.
    pub fn take_back(&mut self, id: u64) -> Option<Slot> {
        let slot = self.void(id)?;
        self.taken_back.insert(id);
        Some(slot)
    }

    /// Whether the sender says only now why it took an object back.
    pub fn was_taken_back(&mut self, id: u64) -> bool {
        self.taken_back.remove(&id)
    }

    /// Marks an object settled that gets no name; `None` when it was settled before.
    pub fn give_up(&mut self, id: u64) -> Option<Slot> {
        let room_bytes = self.open_object(id).map_or(0, |(listed, index)| listed.expected(index).room_bytes);
        let slot = self.settle(id)?;
        self.released_bytes = self.released_bytes.saturating_add(room_bytes);
        Some(slot)
    }

    /// What was released since the last call.
    pub fn take_released_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.released_bytes)
    }

    /// A lane or the committer gives an object back: it will come again.
    pub fn expect_again(&mut self, id: u64) {
        self.was_read(id);
        if let Some((held, index)) = self.find(id)
            && matches!(held.states[index], State::Receiving | State::Publishing)
        {
            held.states[index] = State::Expected;
        }
    }

    /// Marks an object settled; `None` when it was before.
    pub fn settle(&mut self, id: u64) -> Option<Slot> {
        let mut places = self.places.take();
        let slot = self.settle_in(&mut places, id);
        self.places = places;
        slot
    }

    fn settle_in(&mut self, places: &mut Option<Places>, id: u64) -> Option<Slot> {
        let (held, index) = self.find(id)?;
        if std::mem::replace(&mut held.states[index], State::Settled) == State::Settled
            && !model::mutant::is_on("settle-twice")
        {
            return None;
        }
        if let Some(places) = places {
            let place = places.of(&held.listed.expected(index).entry);
            places.known.remove(&place);
        }
        held.open -= 1;
        if held.open == 0 {
            let first = held.listed.first;
            self.batches.remove(&first);
        }
        self.was_read(id);
        Some(Slot { large: self.large.remove(&id) })
    }

    /// Nothing is expected any more.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The open object of this place, if there is one: what is described again takes its place.
    pub fn find_place(&mut self, parent: ObjectId, name: &Name) -> Option<u64> {
        if self.places.is_none() {
            let mut places = Places::default();
            for held in self.batches.values() {
                let objects = held.listed.objects.iter();
                let open = objects.filter(|(index, _)| held.states[*index as usize] != State::Settled);
                let known: Vec<_> = open.map(|(_, expected)| places.of(&expected.entry)).collect();
                places.known.extend(known);
            }
            self.places = Some(places);
        }
        let places = self.places.take()?;
        let digest = places.key.hash_one((parent, name));
        let mut found = places.known.range((digest, 0)..=(digest, u64::MAX)).map(|(_, id)| *id);
        let found = found.find(|id| self.is_at(*id, parent, name));
        self.places = Some(places);
        found
    }

    fn is_at(&mut self, id: u64, parent: ObjectId, name: &Name) -> bool {
        #[cfg(test)]
        tests::COMPARED.set(tests::COMPARED.get() + 1);
        self.find(id).is_some_and(|(held, index)| {
            let entry = &held.listed.expected(index).entry;
            entry.parent == parent && entry.name == *name
        })
    }

    /// Everything that is not settled: ids, sizes, and the parts in objects of several chunks.
    pub fn open_objects(&self) -> Vec<(u64, u64, Option<Arc<Large>>)> {
        let of = |held: &Held| {
            let is_open = |index: usize| held.states.get(index).is_some_and(|state| *state != State::Settled);
            let open = held.listed.objects.iter().filter(|(index, _)| is_open(*index as usize));
            let object = |(_, expected): &(u32, super::listed::Expected)| {
                let id = expected.entry.id.0;
                (id, expected.entry.size_bytes(), self.large.get(&id).cloned())
            };
            open.map(object).collect::<Vec<_>>()
        };
        self.batches.values().flat_map(of).collect()
    }

    /// What is wanted and not in the hands of a lane.
    pub fn to_come(&self) -> Vec<ToCome> {
        let of = |held: &Held| {
            let is_expected = |index: usize| held.states.get(index).is_some_and(|state| *state == State::Expected);
            let expected = held.listed.objects.iter().filter(|(index, _)| is_expected(*index as usize));
            let object = |(_, expected): &(u32, super::listed::Expected)| ToCome {
                room_bytes: expected.room_bytes,
                size_bytes: expected.entry.size_bytes(),
                is_new: expected.rule == PublishRule::NoReplace,
                large: self.large.get(&expected.entry.id.0).cloned(),
            };
            expected.map(object).collect::<Vec<_>>()
        };
        self.batches.values().flat_map(of).collect()
    }

    /// Where an object that came to no end yet is described.
    pub fn open_object(&mut self, id: u64) -> Option<(Arc<Listed>, usize)> {
        let (held, index) = self.find(id).filter(|(held, index)| held.states[*index] != State::Settled)?;
        Some((held.listed.clone(), index))
    }

    pub fn large_object(&self, id: u64) -> Option<Arc<Large>> {
        self.large.get(&id).cloned()
    }

    pub fn large_objects(&self) -> Vec<Arc<Large>> {
        self.large.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::listed::Expected;
    use super::*;
    use model::{Generation, Kind};

    thread_local! {
        pub static COMPARED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    fn listed(first: u64) -> Arc<Listed> {
        called(first, "f")
    }

    fn called(first: u64, name: &str) -> Arc<Listed> {
        let name = Name::new(name.as_bytes()).unwrap();
        let id = ObjectId(first);
        let generation = Generation::default();
        let (parent, attributes) = (ObjectId::ROOT, None);
        let entry = Entry { id, parent, name, kind: Kind::File, mode: 0o644, generation, attributes };
        let expected = Expected { entry, rule: PublishRule::NoReplace, room_bytes: 0 };
        Arc::new(Listed { first, described: 1, objects: vec![(0, expected)], _charge: None })
    }

    #[test]
    fn an_object_is_settled_once() {
        let two = |first: u64| {
            let mut both = Arc::into_inner(listed(first)).unwrap();
            let second = Arc::into_inner(listed(first + 1)).unwrap().objects;
            both.objects.extend(second.into_iter().map(|(_, expected)| (1, expected)));
            both.described = 2;
            Arc::new(both)
        };
        let mut table = Table::default();
        table.insert(two(5), Vec::new());
        assert!(table.settle(5).is_some() && table.settle(5).is_none());
        assert!(!table.is_empty() && table.settle(6).is_some() && table.is_empty());
    }

    #[test]
    fn a_small_object_is_in_the_hands_of_one_lane_at_a_time() {
        let mut table = Table::default();
        table.insert(listed(5), Vec::new());
        let is_taken = |table: &mut Table| matches!(table.take(5), Found::Small(..));
        assert!(is_taken(&mut table) && !is_taken(&mut table));
        table.expect_again(5);
        assert!(is_taken(&mut table));
        assert!(table.begin_publishing(5) && table.void(5).is_none());
        assert!(table.settle(5).is_some() && table.is_empty());
        assert!(!is_taken(&mut table) && table.settle(5).is_none());
    }

    #[test]
    fn whoever_reads_a_small_object_can_be_broken_off_until_all_of_it_was_read() {
        let mut table = Table::default();
        table.insert(listed(5), Vec::new());
        let breaker: Breaker = Arc::new(|| ());
        let is_taken = |table: &mut Table| matches!(table.take_by(5, &breaker), Found::Small(..));
        assert!(is_taken(&mut table) && table.reader(5).is_some());
        assert!(!is_taken(&mut table) && table.reader(5).is_some());
        table.expect_again(5);
        assert!(table.reader(5).is_none() && is_taken(&mut table));
        table.was_read(5);
        assert!(table.reader(5).is_none() && !is_taken(&mut table), "it waits for storage");
    }

    #[test]
    fn a_large_object_that_is_being_published_is_not_given_up() {
        let mut table = Table::default();
        let large = super::super::large::tests::large(16, Arc::new(super::super::zeros::Zeros));
        table.insert(listed(5), vec![(5, large)]);
        assert!(matches!(table.take(5), Found::Large(_)));
        assert!(table.begin_publishing(5) && table.is_publishing(5) && table.void(5).is_none());
        table.expect_again(5);
        assert!(table.begin_publishing(5) && table.settle(5).is_some() && table.is_empty());
        assert!(!table.begin_publishing(5));
    }

    /// What is described again is found among 65,536 open objects with one look, and never after it was settled.
    #[test]
    fn the_open_object_of_a_place_is_found_without_looking_at_the_others() {
        let mut table = Table::default();
        let find =
            |table: &mut Table, name: &str| table.find_place(ObjectId::ROOT, &Name::new(name.as_bytes()).unwrap());
        (1..=30_000).for_each(|id| table.insert(called(id, &format!("f{id}")), Vec::new()));
        assert_eq!(find(&mut table, "f7"), Some(7));
        (30_001..=65_536).for_each(|id| table.insert(called(id, &format!("f{id}")), Vec::new()));
        for id in (1..=65_536).step_by(10) {
            assert_eq!(find(&mut table, &format!("f{id}")), Some(id));
            assert!(table.settle(id).is_some());
            assert_eq!(find(&mut table, &format!("f{id}")), None);
        }
        assert_eq!(table.find_place(ObjectId(9), &Name::new(b"f2").unwrap()), None);
        // One for each that was found, but for digests that meet.
        assert!(COMPARED.get() < 6600, "{}", COMPARED.get());
        assert_eq!(table.places.as_ref().unwrap().known.len(), 65_536 - 6554);
    }
}
