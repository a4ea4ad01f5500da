//! What a listing tells beside the ordinary: users and groups by name, other names of files, extended attributes.
//!
//! Invariants:
//! - The first name of a file is described as a file, every later one as another name of it. What has no room in the book is
//!   described as a file of its own, and that is a warning.
//! - Extended attributes of files that are not settled, and of directories, stay within what a receiver holds.

use model::fidelity::{Recent, Warning, Warnings, named_in_acl};
use model::{Attributes, Fidelity, Kind, ObjectId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use store::{Source, SourceObject};
use wire::limits::{
    OTHER_NAMES_MAX, OWNER_NAME_BYTES_MAX, OWNERS_MAX, OWNERS_TOLD_MAX, SHARED_FILES_MAX,
    XATTRS_OF_DIRECTORIES_BYTES_MAX, XATTRS_OPEN_BYTES_MAX,
};
use wire::message::{NameRecord, Names};

pub struct Kept {
    fidelity: Fidelity,
    /// Files of several names by device and inode: the id of the first, and how many names are still to come.
    shared: HashMap<(u64, u64), (ObjectId, u32)>,
    shared_in_all: usize,
    other_names: usize,
    users: HashSet<u32>,
    groups: HashSet<u32>,
    recent: Recent,
    /// Bytes of extended attributes of files that are not settled.
    held_bytes: Arc<AtomicU64>,
    directory_bytes: u64,
    warnings: Warnings,
}

impl Kept {
    pub fn new(fidelity: Fidelity) -> Kept {
        Kept {
            fidelity,
            shared: HashMap::new(),
            shared_in_all: 0,
            other_names: 0,
            users: HashSet::new(),
            groups: HashSet::new(),
            recent: Recent::default(),
            held_bytes: Arc::default(),
            directory_bytes: 0,
            warnings: Warnings::default(),
        }
    }

    /// Looks at an object that is described next; its id is final. Returns what its attributes take in the message.
    pub fn take(&mut self, object: &mut SourceObject, source: &dyn Source) -> usize {
        let Some(mut attributes) = object.entry.attributes.take().and_then(Arc::into_inner) else { return 0 };
        if self.is_other_name(&mut attributes, object, source) {
            return 0;
        }
        if let Some(known) = self.recent.find(&attributes) {
            let bytes = known.bytes();
            object.entry.attributes = Some(known);
            return bytes as usize;
        }
        let mut bytes = attributes.bytes();
        if object.entry.kind != Kind::Directory {
            attributes.count_in(&self.held_bytes);
        } else if self.directory_bytes + bytes <= XATTRS_OF_DIRECTORIES_BYTES_MAX {
            self.directory_bytes += bytes;
        } else {
            let why = "its extended attributes were omitted: one job has room for 96 MiB of them in directories";
            self.warnings.note(why, &|| source.path(object));
            attributes.xattrs.clear();
            attributes.are_incomplete = true;
            bytes = 0;
        }
        object.entry.attributes = Some(self.recent.add(attributes));
        bytes as usize
    }

    /// Names of users and groups that the receiver has not heard, as many as go into one message each.
    pub fn names(&mut self, job: u32, objects: &[SourceObject], source: &dyn Source) -> Vec<Names> {
        if self.fidelity.numeric_ids || !(self.fidelity.owner || self.fidelity.group) {
            return Vec::new();
        }
        let (mut users, mut groups) = (Vec::new(), Vec::new());
        for attributes in objects.iter().filter_map(|object| object.entry.attributes.as_ref()) {
            if self.fidelity.owner {
                tell(source, false, attributes.uid, &mut self.users, &mut users);
            }
            if self.fidelity.group {
                tell(source, true, attributes.gid, &mut self.groups, &mut groups);
            }
            let acls = attributes.xattrs.iter().filter(|xattr| xattr.is_acl());
            for (_, is_group, number) in acls.flat_map(|acl| named_in_acl(&acl.value)) {
                match is_group {
                    false => tell(source, false, number, &mut self.users, &mut users),
                    true => tell(source, true, number, &mut self.groups, &mut groups),
                }
            }
        }
        let (mut users, mut groups) = (users.chunks(OWNERS_TOLD_MAX), groups.chunks(OWNERS_TOLD_MAX));
        let part = |of: Option<&[NameRecord]>| of.unwrap_or_default().to_vec();
        let mut next = || match (users.next(), groups.next()) {
            (None, None) => None,
            (users, groups) => Some(Names { job, users: part(users), groups: part(groups) }),
        };
        std::iter::from_fn(&mut next).collect()
    }

    /// Whether the receiver has room for the extended attributes of these objects.
    pub fn has_room_for(&self, objects: &[SourceObject]) -> bool {
        let held = self.held_bytes.load(Relaxed);
        if held <= XATTRS_OPEN_BYTES_MAX {
            return true;
        }
        let attributes = objects.iter().filter_map(|object| object.entry.attributes.as_ref());
        held - attributes.map(|attributes| attributes.bytes()).sum::<u64>().min(held) <= XATTRS_OPEN_BYTES_MAX
    }

    pub fn take_warnings(&mut self) -> Vec<Warning> {
        self.warnings.take()
    }

    /// Makes another name of a file whose first was described.
    fn is_other_name(&mut self, attributes: &mut Attributes, object: &mut SourceObject, source: &dyn Source) -> bool {
        let names = std::mem::take(&mut attributes.links);
        if names < 2 || object.entry.kind != Kind::File || object.is_open_ended() {
            return false;
        }
        let version = object.entry.generation.version;
        let key = (version.storage(), version.object());
        if let Some((first, to_come)) = self.shared.get_mut(&key) {
            let first = *first;
            *to_come -= 1;
            if *to_come == 0 {
                self.shared.remove(&key);
            }
            self.other_names += 1;
            if self.other_names <= OTHER_NAMES_MAX {
                object.entry.kind = Kind::HardLink(first);
                return true;
            }
        } else if self.shared_in_all < SHARED_FILES_MAX && self.other_names < OTHER_NAMES_MAX {
            self.shared_in_all += 1;
            self.shared.insert(key, (object.entry.id, names - 1));
            attributes.links = 2;
            return false;
        }
        let why = "its names became separate files: there are too many hard-linked files for one job";
        self.warnings.note(why, &|| source.path(object));
        false
    }
}

/// Adds a name if it was not told, and is known here.
fn tell(source: &dyn Source, is_group: bool, number: u32, told: &mut HashSet<u32>, names: &mut Vec<NameRecord>) {
    // Root is root everywhere.
    if number == 0 || told.len() >= OWNERS_MAX || !told.insert(number) {
        return;
    }
    let name = source.owner_name(is_group, number);
    if let Some(name) = name.filter(|name| !name.is_empty() && name.len() <= OWNER_NAME_BYTES_MAX) {
        names.push(NameRecord { id: number, name: name.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::fidelity::Xattr;
    use model::{Entry, Generation, Name, Timestamp, VersionToken};
    use store::DirectoryKey;
    use store::posix::PosixSource;

    fn object(id: u64, inode: u64, attributes: Attributes) -> SourceObject {
        let entry = Entry {
            id: ObjectId(id),
            parent: ObjectId::ROOT,
            name: Name::new(b"f").unwrap(),
            kind: Kind::File,
            mode: 0o644,
            generation: Generation {
                version: VersionToken::new(Timestamp::default(), inode, 0),
                ..Generation::default()
            },
            attributes: Some(Arc::new(attributes)),
        };
        SourceObject { entry, directory: DirectoryKey(0), end: store::End::Known }
    }

    #[test]
    fn later_names_of_a_file_lead_to_the_first_and_others_are_files() {
        let source = PosixSource::new();
        let mut kept = Kept::new(Fidelity { hard_links: true, ..Fidelity::default() });
        let mut kinds = Vec::new();
        for (id, inode, links) in [(1, 7, 3), (2, 8, 1), (3, 7, 3), (4, 9, 2), (5, 7, 3), (6, 7, 3)] {
            let mut object = object(id, inode, Attributes::new(0, 0, links, Vec::new()));
            kept.take(&mut object, &source);
            let is_shared = object.entry.attributes.is_some_and(|attributes| attributes.is_shared());
            kinds.push((object.entry.kind, is_shared));
        }
        let (first, file) = ((Kind::File, true), (Kind::File, false));
        let other = |id| (Kind::HardLink(ObjectId(id)), false);
        // The last one is a name that was made meanwhile.
        assert_eq!(kinds, [first.clone(), file, other(1), first.clone(), other(1), first]);
    }

    #[test]
    fn attributes_of_files_wait_for_room_and_equal_ones_take_it_once() {
        let source = PosixSource::new();
        let mut kept = Kept::new(Fidelity { xattrs: true, ..Fidelity::default() });
        let attributes = |number: u32| {
            let value = [&number.to_le_bytes()[..], &[0; 60_000]].concat().into();
            Attributes::new(0, 0, 1, vec![Xattr { name: (*b"user.a").into(), value }])
        };
        let mut described = Vec::new();
        for id in 1..=1000 {
            described.push(object(id, id, attributes(1)));
            kept.take(described.last_mut().unwrap(), &source);
        }
        assert!(kept.has_room_for(&[]));
        for id in 1001..=2000 {
            described.push(object(id, id, attributes(id as u32)));
            kept.take(described.last_mut().unwrap(), &source);
        }
        assert!(!kept.has_room_for(&[]) && kept.has_room_for(&described[1000..]));
        described.clear();
        assert!(kept.has_room_for(&[]));
    }

    #[test]
    fn users_are_named_once_and_not_where_numbers_are_asked_for() {
        let objects = [object(1, 1, Attributes::new(65534, 65534, 1, Vec::new()))];
        let fidelity = Fidelity { owner: true, ..Fidelity::default() };
        let mut kept = Kept::new(fidelity);
        for names in kept.names(1, &objects, &PosixSource::new()) {
            assert_eq!((names.users.len(), names.groups.len()), (1, 0));
        }
        assert!(kept.names(1, &objects, &PosixSource::new()).is_empty());
        assert!(
            Kept::new(Fidelity { numeric_ids: true, ..fidelity }).names(1, &objects, &PosixSource::new()).is_empty()
        );
    }
}
