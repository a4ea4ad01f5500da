//! The tree as a destination.

use super::lane::MemorySinkLane;
use super::large::MemoryLarge;
use super::source::MemoryFile;
use super::tree::{Body, Object, ROOT};
use super::{Call, Flaw, Order, Shared, State};
use model::change::cause;
use model::{Entry, Failure, FailureKind, Kind, Name, ObjectId, Timestamp};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use store::{
    Abilities, Decision, Error, Fate, LinkRule, Linked, Prune, PublishRule, Result, Sink, SinkFacts, SinkLane,
    SourceFile, Staged, StagedFile, There, ToPublish,
};

pub struct MemorySink {
    pub(super) job: Arc<Job>,
}

/// What the lanes and large objects of one sink have in common.
pub(super) struct Job {
    pub shared: Arc<Shared>,
    pub directories: Mutex<HashMap<ObjectId, Directory>>,
    /// Versions that were decided on, `None` for nothing, by directory and name.
    decided: Mutex<HashMap<(u64, Name), Option<u64>>>,
    /// What this job has staged and not given up.
    pub staged: Mutex<HashSet<u64>>,
}

#[derive(Clone)]
pub(super) struct Directory {
    /// `None` for one that is missing and only looked for.
    pub number: Option<u64>,
    pub is_fresh: bool,
    /// With a slash behind it; empty for the destination.
    pub path: Vec<u8>,
}

impl Job {
    fn directory(&self, id: ObjectId) -> Option<Directory> {
        self.directories.lock().unwrap().get(&id).cloned()
    }

    /// The number of the directory that an entry goes into.
    pub fn above(&self, entry: &Entry) -> Result<u64> {
        let number = self.directory(entry.parent).and_then(|directory| directory.number);
        let why = "its directory is not there";
        number.ok_or_else(|| Error::of_entry(FailureKind::NotFound, "open directory", entry, why))
    }

    /// The name under which an entry is kept.
    pub fn name(&self, entry: &Entry) -> Name {
        match self.shared.has(Flaw::TakesNamesForText) {
            true => Name::new(String::from_utf8_lossy(entry.name.as_bytes()).trim().as_bytes())
                .unwrap_or_else(|_| entry.name.clone()),
            false => entry.name.clone(),
        }
    }

    /// Shows an object at its name, in one step, if the rule lets it.
    pub fn publish(&self, entry: &Entry, body: Body, rule: PublishRule) -> Result<()> {
        let above = self.above(entry)?;
        let name = self.name(entry);
        let mut state = self.shared.state();
        self.judge(&state, (above, &name), entry, rule)?;
        if self.shared.has(Flaw::RemovesBeforeReplacing) && state.tree.remove(above, &name) {
            drop(state);
            std::thread::sleep(std::time::Duration::from_millis(5));
            state = self.shared.state();
        }
        let mut modified = entry.generation.modified;
        if self.shared.has(Flaw::RoundsTimes) {
            modified.nanoseconds = 0;
        }
        let mode = if self.shared.has(Flaw::ForgetsModes) { 0o644 } else { entry.mode };
        let number = state.tree.insert(above, &name, body, mode, modified);
        let version = state.tree.object(number).map(|object| object.version);
        self.decided.lock().unwrap().insert((above, name), version);
        Ok(())
    }

    /// Whether something may come to a name.
    fn judge(&self, state: &State, at: (u64, &Name), entry: &Entry, rule: PublishRule) -> Result<()> {
        let there = state.tree.child(at.0, at.1).and_then(|number| state.tree.object(number));
        let in_the_way = |why| Err(Error::of_entry(FailureKind::InTheWay, "publish", entry, why));
        match there {
            Some(object) if object.is_directory() && !self.shared.has(Flaw::ReplacesDirectories) => {
                return in_the_way("a directory stands where a file is to be");
            }
            Some(_) if rule == PublishRule::NoReplace => return in_the_way("something appeared there meanwhile"),
            _ => {}
        }
        let decided = self.decided.lock().unwrap().get(&(at.0, at.1.clone())).copied();
        match decided {
            Some(version)
                if self.shared.rules.is_conditional
                    && version != there.map(|object| object.version)
                    && !self.shared.has(Flaw::IgnoresTheDecision) =>
            {
                in_the_way("what stands there is not what was decided on")
            }
            _ => Ok(()),
        }
    }

    /// Something without content, unless an equal one is there.
    fn make(&self, entry: &Entry, body: Body, rule: PublishRule, is_equal: impl Fn(&Body) -> bool) -> Result<bool> {
        self.shared.faults.meet(Call::Make)?;
        let above = self.above(entry)?;
        let is_there = {
            let state = self.shared.state();
            let there = state.tree.child(above, &entry.name).and_then(|number| state.tree.object(number));
            there.is_some_and(|object| is_equal(&object.body))
        };
        if !is_there {
            self.publish(entry, body, rule)?;
        }
        Ok(!is_there)
    }

    /// The object at an entry's name.
    fn there(&self, entry: &Entry) -> Result<Option<(u64, Object)>> {
        let above = self.above(entry)?;
        let state = self.shared.state();
        let number = state.tree.child(above, &self.name(entry));
        Ok(number.and_then(|number| Some((number, state.tree.object(number)?.clone()))))
    }

    /// The file at an entry's name.
    fn file(&self, entry: &Entry) -> Result<(u64, Object)> {
        let found = self.there(entry)?.filter(|(_, object)| matches!(object.body, Body::File(_)));
        found.ok_or_else(|| Error::of_entry(FailureKind::NotFound, "open file", entry, "no file is there"))
    }
}

impl MemorySink {
    pub fn new(shared: Arc<Shared>) -> MemorySink {
        let root = Directory { number: Some(ROOT), is_fresh: shared.has(Flaw::TakesAllForFresh), path: Vec::new() };
        let directories = Mutex::new(HashMap::from([(ObjectId::ROOT, root)]));
        MemorySink { job: Arc::new(Job { shared, directories, decided: Mutex::default(), staged: Mutex::default() }) }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.job.shared.has(flaw)
    }

    /// Finds a directory, and makes it if that is wanted.
    fn find_directory(&self, entry: &Entry, makes: bool) -> Result<()> {
        let missing = || Error::of_entry(FailureKind::NotFound, "make directory", entry, "no directory above it");
        let above = self.job.directory(entry.parent).ok_or_else(missing)?;
        let mut state = self.job.shared.state();
        let found = above.number.and_then(|number| state.tree.child(number, &entry.name));
        let number = match (found, above.number) {
            (Some(number), _) if !state.tree.object(number).is_some_and(Object::is_directory) => {
                let why = "a file or symbolic link stands where a directory is needed";
                return Err(Error::of_entry(FailureKind::InTheWay, "make directory", entry, why));
            }
            (Some(number), _) if !makes || !self.has(Flaw::MakesDirectoriesAnew) => Some(number),
            (_, Some(above)) if makes => {
                let names = Body::Directory(BTreeMap::new());
                Some(state.tree.insert(above, &entry.name, names, entry.mode, Timestamp::default()))
            }
            _ => None,
        };
        let is_fresh = found.is_none() || self.has(Flaw::TakesAllForFresh);
        let path = [&above.path, entry.name.as_bytes(), b"/"].concat();
        let directory = Directory { number, is_fresh, path };
        self.job.directories.lock().unwrap().insert(entry.id, directory);
        Ok(())
    }

    /// What `amend` is about.
    fn modes(&self, entry: &Entry) -> Result<u32> {
        let (_, object) = self.job.file(entry)?;
        Ok(if entry.attributes.is_some() && object.mode != entry.mode { cause::MODE } else { 0 })
    }
}

impl Sink for MemorySink {
    fn facts(&self) -> Result<SinkFacts> {
        Ok(SinkFacts {
            file_system: "memory",
            is_memory_backed: !self.job.shared.rules.is_synced,
            cannot_sync: false,
            free_bytes: u64::MAX,
            free_inodes: None,
            order: match self.job.shared.rules.order {
                Order::Any => store::Order::Any,
                Order::Parts(_) => store::Order::EachObject,
            },
            part_rule: None,
            shares_on: None,
            confirms: false,
            can: Abilities::ALL,
        })
    }

    fn enter(&self, name: &Name) -> Result<()> {
        let here = self.job.directory(ObjectId::ROOT).and_then(|directory| directory.number).unwrap_or(ROOT);
        let mut state = self.job.shared.state();
        let number = match state.tree.child(here, name) {
            Some(number) if state.tree.object(number).is_some_and(Object::is_directory) => number,
            Some(_) => {
                let why = "a file or symbolic link stands where a directory is needed";
                return Err(Error::of_kind(FailureKind::InTheWay, "make directory", name.as_bytes(), why));
            }
            None => state.tree.insert(here, name, Body::Directory(BTreeMap::new()), 0o755, Timestamp::default()),
        };
        let number = if self.has(Flaw::EntersNothing) { here } else { number };
        let root = Directory { number: Some(number), is_fresh: false, path: Vec::new() };
        self.job.directories.lock().unwrap().insert(ObjectId::ROOT, root);
        Ok(())
    }

    fn make_directory(&self, entry: &Entry) -> Result<()> {
        self.job.shared.faults.meet(Call::Make)?;
        let depth = self.job.directory(entry.parent).map_or(0, |above| above.path.len());
        if self.has(Flaw::CutsDeepTrees) && depth > 4096 {
            return Err(Error::of_entry(FailureKind::NameRefused, "make directory", entry, "its path is too long"));
        }
        self.find_directory(entry, true)
    }

    fn look_directory(&self, entry: &Entry) -> Result<()> {
        self.find_directory(entry, self.has(Flaw::MakesWhatItLooksFor))
    }

    fn is_fresh(&self, directory: ObjectId) -> bool {
        self.job.directory(directory).is_some_and(|directory| directory.is_fresh)
    }

    fn open_published(&self, entry: &Entry) -> Result<Arc<dyn SourceFile>> {
        if self.has(Flaw::OpensNothingPublished) {
            return Err(Error::of_entry(FailureKind::Other, "open file", entry, "it is not opened"));
        }
        Ok(Arc::new(MemoryFile::at(&self.job.shared, self.job.above(entry)?, &self.job.name(entry))?))
    }

    fn touch(&self, entry: &Entry) -> Result<()> {
        let (number, _) = self.job.file(entry)?;
        if !self.has(Flaw::TouchesNothing) {
            let set = |object: &mut Object| object.modified = entry.generation.modified;
            self.job.shared.state().tree.change(number, set);
        }
        Ok(())
    }

    fn prune(&self, prune: &mut Prune<'_>) {
        for directory in prune.directories {
            let Some(Directory { number: Some(number), path, .. }) = self.job.directory(*directory) else { continue };
            let names = self.job.shared.state().tree.names(number);
            for (name, _) in names {
                if !(prune.is_listed)(*directory, &name) && (prune.goes_on)() {
                    self.prune_one((number, &name), &[&path, name.as_bytes()].concat(), prune);
                }
            }
        }
    }

    fn make_symlink(&self, entry: &Entry, rule: PublishRule) -> Result<bool> {
        let Kind::Symlink(target) = &entry.kind else { panic!("make_symlink of {:?}", entry.kind) };
        let is_equal =
            |there: &Body| matches!(there, Body::Symlink(there) if there == target) && !self.has(Flaw::MakesLinksTwice);
        self.job.make(entry, Body::Symlink(target.clone()), rule, is_equal)
    }

    fn make_node(&self, entry: &Entry, rule: PublishRule) -> Result<bool> {
        let Kind::Node(node) = entry.kind else { panic!("make_node of {:?}", entry.kind) };
        let is_equal =
            |there: &Body| matches!(there, Body::Node(there) if *there == node) && !self.has(Flaw::MakesNodesTwice);
        self.job.make(entry, Body::Node(node), rule, is_equal)
    }

    fn make_hard_link(&self, first: &Entry, entry: &Entry, rule: LinkRule) -> Result<Linked> {
        let is_described = |object: &Object| {
            object.size_bytes() == first.size_bytes()
                && (rule.ignores_time || object.modified == first.generation.modified)
        };
        let file = self.job.file(first).ok().filter(|(_, object)| is_described(object));
        if file.is_none() && !rule.is_rehearsal {
            return Ok(Linked::NoFile);
        }
        let there = self.job.there(entry)?;
        match &there {
            Some((number, _)) if file.as_ref().is_some_and(|(file, _)| file == number) => return Ok(Linked::There),
            Some((_, object)) if object.is_directory() => {
                return Err(Error::directory_there("replace", entry));
            }
            Some(_) if rule.may_replace || self.has(Flaw::LinksWhateverIsThere) => {}
            None if rule.may_make => {}
            _ => return Ok(Linked::Kept),
        }
        if let Some((number, _)) = file.filter(|_| !rule.is_rehearsal) {
            let above = self.job.above(entry)?;
            self.job.shared.state().tree.link(above, &entry.name, number);
        }
        Ok(Linked::Made { has_replaced: there.is_some() })
    }

    fn amend(&self, entry: &Entry) -> Result<u32> {
        let causes = self.modes(entry)?;
        let (number, _) = self.job.file(entry)?;
        if causes != 0 && !self.has(Flaw::AmendsNothing) {
            self.job.shared.state().tree.change(number, |object| object.mode = entry.mode);
        }
        Ok(causes)
    }

    fn differences(&self, entry: &Entry) -> Result<u32> {
        if entry.kind == Kind::Directory { Ok(0) } else { self.modes(entry) }
    }

    fn decide(&self, entry: &Entry) -> Result<Decision> {
        self.job.shared.faults.meet(Call::Decide)?;
        if self.is_fresh(entry.parent) {
            return Ok(Decision::Absent);
        }
        let there = self.job.there(entry)?;
        let version = there.as_ref().map(|(_, object)| object.version);
        self.job.decided.lock().unwrap().insert((self.job.above(entry)?, self.job.name(entry)), version);
        let Some((_, object)) = there else {
            return Ok(if self.has(Flaw::DecidesSame) { Decision::Same } else { Decision::Absent });
        };
        if object.is_directory() {
            return Err(Error::directory_there("replace", entry));
        }
        let is_file = matches!(object.body, Body::File(_));
        let is_same_time = object.modified == entry.generation.modified || self.has(Flaw::DecidesBySize);
        let is_same = is_file && entry.kind == Kind::File && object.size_bytes() == entry.size_bytes() && is_same_time;
        match is_same && !self.has(Flaw::NeverDecidesSame) {
            true => Ok(Decision::Same),
            false if is_file => {
                let there = There { is_file: true, modified: object.modified };
                Ok(Decision::Replace { size_bytes: object.size_bytes(), there })
            }
            false => Ok(Decision::Replace { size_bytes: 0, there: There::default() }),
        }
    }

    fn decide_group(&self, group: &mut dyn Iterator<Item = &Entry>, found: &mut Vec<Result<Decision>>) {
        let from = found.len();
        found.extend(group.map(|entry| self.decide(entry)));
        if self.has(Flaw::DecidesGroupsBackwards) {
            found[from..].reverse();
        }
    }

    fn publish_group(&self, group: &[ToPublish<'_>], published: &mut dyn FnMut(usize, Result<()>) -> bool) {
        for (place, one) in group.iter().enumerate() {
            let place = if self.has(Flaw::TellsOfTheNextPlace) { (place + 1) % group.len() } else { place };
            if !published(place, self.publish(one.entry, one.staged)) && !self.has(Flaw::GoesOnPublishing) {
                return;
            }
        }
    }

    fn lane(&self, _: bool) -> Result<Box<dyn SinkLane>> {
        Ok(Box::new(MemorySinkLane::new(self.job.clone())))
    }

    fn begin(&self, entry: &Entry, stem: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        let (file, journal) = MemoryLarge::begin(self.job.clone(), entry, stem)?;
        Ok((Arc::new(file), journal))
    }

    fn has_journal(&self, _: &Entry, stem: &str) -> bool {
        let state = self.job.shared.state();
        state.uploads.get(stem).is_some_and(|upload| !upload.journal.is_empty()) && !self.has(Flaw::TellsOfNoJournal)
    }

    fn sync_group(&self, group: &mut dyn Iterator<Item = Staged>) -> Result<bool> {
        self.job.shared.faults.meet(Call::SyncGroup)?;
        if self.has(Flaw::LosesOneOfEachGroup)
            && let Some(staged) = group.last()
        {
            self.job.shared.state().staged.insert(staged.number(), Vec::new());
        }
        Ok(true)
    }

    fn publish(&self, entry: &Entry, staged: Staged) -> Result<()> {
        self.job.publish_staged(entry, staged)
    }

    fn discard(&self, staged: Staged) {
        if !self.has(Flaw::KeepsDiscarded) {
            self.job.take_staged(staged.number());
        }
    }

    fn reread(&self, entry: &Entry, staged: Staged, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.job.shared.faults.meet(Call::Reread)?;
        let content = self.job.shared.state().staged.get(&staged.number()).cloned();
        let missing = || Error::of_entry(FailureKind::ReadError, "read back", entry, "it is not staged");
        let content = content.ok_or_else(missing)?;
        let end = if self.has(Flaw::RereadsHalf) { content.len() / 2 } else { content.len() };
        content[..end].chunks(1 << 16).for_each(check);
        Ok(())
    }

    fn sync_names(&self) -> Result<()> {
        Ok(())
    }

    fn finish_directory(&self, entry: &Entry) -> Result<()> {
        let directory = self.job.directory(entry.id).and_then(|directory| directory.number);
        if let Some(number) = directory.filter(|_| !self.has(Flaw::FinishesNothing)) {
            let set = |object: &mut Object| (object.mode, object.modified) = (entry.mode, entry.generation.modified);
            self.job.shared.state().tree.change(number, set);
        }
        Ok(())
    }

    fn close(&self) {
        if self.has(Flaw::KeepsAbandoned) || self.has(Flaw::KeepsRefused) || self.has(Flaw::KeepsDiscarded) {
            return;
        }
        let staged = std::mem::take(&mut *self.job.staged.lock().unwrap());
        self.job.shared.state().staged.retain(|number, _| !staged.contains(number));
    }

    fn path(&self, entry: &Entry) -> Vec<u8> {
        let above = self.job.directory(entry.parent).filter(|_| !self.has(Flaw::TellsNamesForPaths));
        [&above.map_or(Vec::new(), |above| above.path), entry.name.as_bytes()].concat()
    }
}

impl MemorySink {
    /// Removes one object with all below it; false when something of it stays.
    fn prune_one(&self, (above, name): (u64, &Name), path: &[u8], prune: &mut Prune<'_>) -> bool {
        let shared = &self.job.shared;
        let found = {
            let state = shared.state();
            let number = state.tree.child(above, name);
            number
                .and_then(|number| Some((state.tree.object(number)?.is_directory(), number, state.tree.names(number))))
        };
        let Some((is_directory, number, below)) = found else { return true };
        let fate = (prune.fate)(path, is_directory);
        if fate == Fate::Spare && !self.has(Flaw::PrunesTheSpared) {
            return false;
        }
        let mut is_empty = true;
        for (name, _) in below {
            is_empty &= self.prune_one((number, &name), &[path, b"/", name.as_bytes()].concat(), prune);
        }
        if !is_empty || fate == Fate::Keep || !(prune.goes_on)() {
            return false;
        }
        let removes = !prune.is_rehearsal || self.has(Flaw::PrunesInRehearsals);
        if removes && !shared.state().tree.remove(above, name) {
            let (kind, message) = (FailureKind::NotFound, "it went meanwhile".to_owned());
            (prune.failed)(Failure { path: path.to_vec(), kind, message });
            return false;
        }
        (prune.removed)(path, is_directory);
        true
    }
}
