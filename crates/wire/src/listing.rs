//! Listings on the wire: entries to records and back, with every field of a peer's record checked.
//!
//! Invariant of `ListingCheck`: ids count up without a gap (replacements from `REPLACEMENT_FIRST` on likewise), and a
//! parent is a directory that was described before, so a path can only lead down from the root of the job.

use crate::close::{CloseCode, Refusal};
use crate::fidelity::{AttributeCheck, of_node, record_of as attributes_record_of};
use crate::limits::{DIRECTORIES_MAX, ENTRIES_MAX, LINK_BYTES_MAX};
use crate::message::{Entries, EntryRecord};
use model::{End, Entry, Fidelity, Generation, Kind, Name, ObjectId, Timestamp, VersionToken};
use std::collections::HashSet;

/// Ids from here on describe again an object whose source changed; the object's earlier id is void.
pub const REPLACEMENT_FIRST: u64 = 1 << 62;

const DIRECTORY: u32 = 1;
const FILE: u32 = 2;
const SYMLINK: u32 = 3;
const OPEN_ENDED: u32 = 4;
const OTHER_NAME: u32 = 9;
const GROWING: u32 = 10;

pub fn record_of(entry: &Entry, end: End) -> EntryRecord {
    let (kind, link) = match &entry.kind {
        Kind::Directory => (DIRECTORY, Vec::new()),
        Kind::File => match end {
            End::Known => (FILE, Vec::new()),
            End::ReadOnce => (OPEN_ENDED, Vec::new()),
            End::Growing => (GROWING, Vec::new()),
        },
        Kind::Symlink(target) => (SYMLINK, target.to_vec()),
        Kind::Node(node) => (of_node(*node).0, Vec::new()),
        Kind::HardLink(_) => (OTHER_NAME, Vec::new()),
    };
    let (number, same_as) = match &entry.kind {
        Kind::Node(node) => (of_node(*node).1, 0),
        Kind::HardLink(first) => (0, first.0),
        _ => (0, 0),
    };
    EntryRecord {
        parent: entry.parent.0,
        name: entry.name.as_bytes().to_vec(),
        kind,
        mode: entry.mode,
        size_bytes: entry.size_bytes(),
        modified_seconds: entry.generation.modified.seconds,
        modified_nanoseconds: entry.generation.modified.nanoseconds,
        changed_seconds: entry.generation.version.changed().seconds,
        changed_nanoseconds: entry.generation.version.changed().nanoseconds,
        inode: entry.generation.version.object(),
        device: entry.generation.version.storage(),
        link,
        attributes: entry.attributes.as_deref().map(attributes_record_of),
        number,
        same_as,
        replaces: None,
    }
}

/// An entry as a peer described it. A bad name fails its entry, not the session (F040, F048).
#[derive(Debug)]
pub enum Described {
    /// `replaces`: what it voids, where its sender says that, 0 for nothing.
    Entry {
        entry: Entry,
        end: End,
        replaces: Option<u64>,
    },
    BadName {
        id: ObjectId,
        parent: ObjectId,
        name: Vec<u8>,
        why: String,
    },
}

/// The receiver's check of one job's listing.
pub struct ListingCheck {
    next: u64,
    next_replacement: u64,
    directories: HashSet<u64>,
    /// Entries described so far, and how many may be.
    described: u64,
    granted: u64,
    /// `ListEnd` has come: only replacements may follow.
    is_ended: bool,
    /// The session has the feature for objects whose end is not known.
    may_be_open_ended: bool,
    /// The session has the feature for objects that grow.
    may_grow: bool,
    attributes: AttributeCheck,
}

impl ListingCheck {
    pub fn new(granted: u64) -> ListingCheck {
        let directories = HashSet::from([ObjectId::ROOT.0]);
        ListingCheck {
            next: 1,
            next_replacement: REPLACEMENT_FIRST,
            directories,
            described: 0,
            granted,
            is_ended: false,
            may_be_open_ended: true,
            may_grow: true,
            attributes: AttributeCheck::default(),
        }
    }

    pub fn grant(&mut self, total: u64) {
        self.granted = self.granted.max(total);
    }

    pub fn described(&self) -> u64 {
        self.described
    }

    /// Refuses objects whose end is not known from here on: the session lacks the feature for them.
    pub fn forbid_open_ended(&mut self) {
        self.may_be_open_ended = false;
    }

    /// The same for objects that grow.
    pub fn forbid_growing(&mut self) {
        self.may_grow = false;
    }

    /// Takes what the job asks for beside the ordinary, from here on; otherwise it is refused.
    pub fn allow(&mut self, fidelity: Fidelity) {
        self.attributes = AttributeCheck::new(fidelity);
    }

    /// Checks that the listing ends where the sender says, once.
    pub fn end(&mut self, entries: u64) -> Result<(), Refusal> {
        if std::mem::replace(&mut self.is_ended, true) {
            return Err(Refusal::new(CloseCode::WrongState, "a listing that ends twice"));
        }
        let listed = self.next - 1;
        if entries != listed {
            let text = format!("a listing of {listed} entries that is said to have {entries}");
            return Err(Refusal::new(CloseCode::Malformed, &text));
        }
        Ok(())
    }

    /// Checks a batch and turns it into entries.
    pub fn check(&mut self, batch: Entries) -> Result<Vec<Described>, Refusal> {
        let count = batch.entries.len();
        if count == 0 || count > ENTRIES_MAX {
            return Err(Refusal::new(CloseCode::Limit, &format!("a listing frame of {count} entries")));
        }
        let is_replacement = batch.first >= REPLACEMENT_FIRST;
        if self.is_ended && !is_replacement {
            return Err(Refusal::new(CloseCode::WrongState, "a listing that goes on after its end"));
        }
        let expected = if is_replacement { &mut self.next_replacement } else { &mut self.next };
        if batch.first != *expected {
            let text = format!("a listing continues at id {} instead of {expected}", batch.first);
            return Err(Refusal::new(CloseCode::Malformed, &text));
        }
        *expected += count as u64;
        self.described += count as u64;
        if self.described > self.granted {
            return Err(Refusal::new(CloseCode::Limit, "more entries were described than granted"));
        }
        let mut described = Vec::with_capacity(count);
        for (id, record) in (batch.first..).zip(batch.entries) {
            described.push(self.entry_of(ObjectId(id), record)?);
        }
        Ok(described)
    }

    fn entry_of(&mut self, id: ObjectId, record: EntryRecord) -> Result<Described, Refusal> {
        let malformed = |what: &str| Refusal::new(CloseCode::Malformed, &format!("entry {id}: {what}"));
        if !self.directories.contains(&record.parent) {
            return Err(malformed("its parent is not a directory described before"));
        }
        if record.mode > 0o7777
            || record.modified_nanoseconds >= 1_000_000_000
            || record.changed_nanoseconds >= 1_000_000_000
        {
            return Err(malformed("mode or time out of range"));
        }
        if record.size_bytes > i64::MAX as u64 {
            return Err(malformed("larger than any file can be"));
        }
        let kind = match record.kind {
            DIRECTORY if self.directories.len() >= DIRECTORIES_MAX => {
                return Err(Refusal::new(CloseCode::Limit, "the job has too many directories"));
            }
            DIRECTORY => {
                self.directories.insert(id.0);
                Kind::Directory
            }
            OPEN_ENDED if !self.may_be_open_ended => {
                return Err(malformed("its end is not known, and the session lacks the feature for that"));
            }
            GROWING if !self.may_grow => return Err(malformed("it grows, and the session lacks the feature for that")),
            FILE | OPEN_ENDED | GROWING => Kind::File,
            SYMLINK if record.link.is_empty() || record.link.len() > LINK_BYTES_MAX || record.link.contains(&0) => {
                return Err(malformed("not the content of a symbolic link"));
            }
            SYMLINK => Kind::Symlink(record.link.into()),
            OTHER_NAME if record.attributes.is_some() => return Err(malformed("another name with attributes")),
            OTHER_NAME => {
                self.attributes.other_name(id.0, record.same_as)?;
                Kind::HardLink(ObjectId(record.same_as))
            }
            other => match self.attributes.node(other, record.number) {
                Some(node) => Kind::Node(node),
                None => return Err(malformed(&format!("unknown kind {other}, or one that nobody asked for"))),
            },
        };
        let attributes = self.attributes.take(id.0, record.kind == FILE, record.attributes)?;
        let name = match Name::new(&record.name) {
            Ok(name) => name,
            Err(e) => {
                let parent = ObjectId(record.parent);
                return Ok(Described::BadName { id, parent, name: record.name, why: e.to_string() });
            }
        };
        let generation = Generation {
            size_bytes: record.size_bytes,
            modified: Timestamp { seconds: record.modified_seconds, nanoseconds: record.modified_nanoseconds },
            version: VersionToken::new(
                Timestamp { seconds: record.changed_seconds, nanoseconds: record.changed_nanoseconds },
                record.inode,
                record.device,
            ),
        };
        let end = match record.kind {
            OPEN_ENDED => End::ReadOnce,
            GROWING => End::Growing,
            _ => End::Known,
        };
        if record.replaces.is_some_and(|replaced| id.0 < REPLACEMENT_FIRST || replaced >= id.0) {
            return Err(malformed("it replaces what was not described before it"));
        }
        let (parent, mode) = (ObjectId(record.parent), record.mode);
        let entry = Entry { id, parent, name, kind, mode, generation, attributes };
        Ok(Described::Entry { entry, end, replaces: record.replaces })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(parent: u64, name: &[u8]) -> EntryRecord {
        EntryRecord { parent, name: name.to_vec(), kind: FILE, mode: 0o644, size_bytes: 3, ..EntryRecord::default() }
    }

    fn batch(first: u64, entries: Vec<EntryRecord>) -> Entries {
        Entries { job: 1, first, entries }
    }

    #[test]
    fn records_read_back_as_the_entries_they_came_from() {
        let directory = EntryRecord { kind: DIRECTORY, ..file(0, b"d") };
        let link = EntryRecord { kind: SYMLINK, link: b"../x".to_vec(), size_bytes: 0, ..file(1, b"\xffl") };
        let mut check = ListingCheck::new(10);
        let records = vec![directory, file(1, b"f"), link];
        let described = check.check(batch(1, records.clone())).unwrap();
        for (found, record) in described.iter().zip(&records) {
            let Described::Entry { entry, end, .. } = found else { panic!("{found:?}") };
            let again = record_of(entry, *end);
            assert_eq!(EntryRecord { size_bytes: record.size_bytes, ..again }, *record);
        }
    }

    #[test]
    fn attributes_special_files_and_other_names_read_back_where_a_job_asks_for_them() {
        let attributes =
            |is_shared| Some(crate::message::AttributesRecord { uid: 1, gid: 2, is_shared, ..Default::default() });
        let first = EntryRecord { attributes: attributes(true), ..file(0, b"a") };
        let device =
            EntryRecord { kind: 7, number: 259, size_bytes: 0, attributes: attributes(false), ..file(0, b"d") };
        let other = EntryRecord { kind: OTHER_NAME, same_as: 1, size_bytes: 0, ..file(0, b"b") };
        let fidelity = Fidelity { owner: true, hard_links: true, devices: true, ..Fidelity::default() };
        let records = vec![first, device, other];
        let mut check = ListingCheck::new(9);
        check.allow(fidelity);
        let described = check.check(batch(1, records.clone())).unwrap();
        for (found, record) in described.iter().zip(&records) {
            let Described::Entry { entry, .. } = found else { panic!("{found:?}") };
            assert_eq!(record_of(entry, End::Known), *record);
        }
        for record in records {
            let alone = batch(1, vec![record.clone()]);
            assert_eq!(ListingCheck::new(9).check(alone).unwrap_err().code, CloseCode::Malformed, "{record:?}");
        }
    }

    /// They would be held to the end of the job, and nothing needs them: a file has them once.
    #[test]
    fn another_name_with_attributes_is_refused() {
        let attributes = |is_shared| Some(crate::message::AttributesRecord { is_shared, ..Default::default() });
        for (told, code) in [(None, None), (attributes(false), Some(CloseCode::Malformed))] {
            let first = EntryRecord { attributes: attributes(true), ..file(0, b"a") };
            let other = EntryRecord { kind: OTHER_NAME, same_as: 1, size_bytes: 0, attributes: told, ..file(0, b"b") };
            let mut check = ListingCheck::new(9);
            check.allow(Fidelity { owner: true, hard_links: true, ..Fidelity::default() });
            let refused = check.check(batch(1, vec![first, other])).err();
            assert_eq!(refused.map(|refusal| refusal.code), code);
        }
    }

    #[test]
    fn ids_parents_and_credit_are_held() {
        let refused = |check: &mut ListingCheck, b: Entries| check.check(b).unwrap_err().code;
        assert_eq!(refused(&mut ListingCheck::new(9), batch(2, vec![file(0, b"a")])), CloseCode::Malformed);
        assert_eq!(refused(&mut ListingCheck::new(9), batch(0, vec![file(0, b"a")])), CloseCode::Malformed);
        assert_eq!(refused(&mut ListingCheck::new(9), batch(1, vec![file(7, b"a")])), CloseCode::Malformed);
        assert_eq!(refused(&mut ListingCheck::new(9), batch(1, vec![])), CloseCode::Limit);
        assert_eq!(refused(&mut ListingCheck::new(1), batch(1, vec![file(0, b"a"), file(0, b"b")])), CloseCode::Limit);
        let mut check = ListingCheck::new(9);
        check.check(batch(1, vec![file(0, b"a")])).unwrap();
        // A file is no parent.
        assert_eq!(refused(&mut check, batch(2, vec![file(1, b"b")])), CloseCode::Malformed);
    }

    #[test]
    fn a_listing_ends_once_where_it_says_and_goes_on_with_replacements_only() {
        let code = |result: Result<(), Refusal>| result.unwrap_err().code;
        assert_eq!(code(ListingCheck::new(9).end(1)), CloseCode::Malformed);
        let mut check = ListingCheck::new(9);
        check.check(batch(1, vec![file(0, b"a")])).unwrap();
        check.end(1).unwrap();
        assert_eq!(code(check.end(1)), CloseCode::WrongState);
        check.check(batch(REPLACEMENT_FIRST, vec![file(0, b"a")])).unwrap();
        assert_eq!(check.check(batch(2, vec![file(0, b"b")])).unwrap_err().code, CloseCode::WrongState);
    }

    #[test]
    fn objects_without_a_known_end_need_their_feature() {
        let pipe = EntryRecord { kind: OPEN_ENDED, ..file(0, b"p") };
        ListingCheck::new(9).check(batch(1, vec![pipe.clone()])).unwrap();
        let mut check = ListingCheck::new(9);
        check.forbid_open_ended();
        assert_eq!(check.check(batch(1, vec![pipe])).unwrap_err().code, CloseCode::Malformed);
        check.forbid_growing();
        let growing = EntryRecord { kind: GROWING, ..file(0, b"g") };
        assert_eq!(check.check(batch(2, vec![growing.clone()])).unwrap_err().code, CloseCode::Malformed);
        let described = ListingCheck::new(9).check(batch(1, vec![growing])).unwrap();
        assert!(matches!(described[0], Described::Entry { end: End::Growing, .. }));
        check.check(batch(3, vec![file(0, b"f")])).unwrap();
    }

    #[test]
    fn a_bad_name_fails_its_entry_only() {
        let mut check = ListingCheck::new(9);
        for (i, name) in [&b".."[..], b"", b"a/b", b"a\0", &[b'x'; 300]].into_iter().enumerate() {
            let described = check.check(batch(1 + i as u64, vec![file(0, name)])).unwrap();
            assert!(matches!(described[0], Described::BadName { .. }), "{name:?}");
        }
    }
}
