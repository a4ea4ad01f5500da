//! What a destination removes because its source does not have it.
//!
//! Not here: finding and removing it, which each kind of storage does by itself.

use model::{Failure, FailureKind, Name, ObjectId};
use std::cell::LazyCell;
use std::collections::HashMap;

/// What becomes of an object that the source does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Remove,
    /// A directory that stays, while what is in it is looked at.
    Keep,
    /// It stays with everything in it.
    Spare,
}

/// What is removed of a destination, and who hears of it.
pub struct Prune<'a> {
    /// Directories of the job that are looked through, none of them twice.
    pub directories: &'a [ObjectId],
    /// Whether the source has this name in one of them.
    pub is_listed: &'a dyn Fn(ObjectId, &Name) -> bool,
    /// Whether the source has it there but for upper and lower case.
    pub is_listed_alike: &'a dyn Fn(ObjectId, &Name) -> bool,
    /// What becomes of a path, a directory or not, that the source does not have.
    pub fate: &'a dyn Fn(&[u8], bool) -> Fate,
    /// Everything is looked at and told, and nothing removed.
    pub is_rehearsal: bool,
    /// Hears of each object, and whether it is a directory; what is in it comes first.
    pub removed: &'a mut dyn FnMut(&[u8], bool),
    pub failed: &'a mut dyn FnMut(Failure),
    /// False ends it before the next object.
    pub goes_on: &'a dyn Fn() -> bool,
}

impl Prune<'_> {
    /// Whether a name stays because a storage that takes both cases for one has by it what the source has: found there, or written
    /// under another spelling. That is told. `alike` is of all in the directory: where two differ in case only, each is an object.
    pub fn keeps_alike(
        &mut self,
        directory: ObjectId,
        name: &Name,
        path: &[u8],
        alike: &LazyCell<Alike, impl FnOnce() -> Alike>,
    ) -> bool {
        if !(self.is_listed_alike)(directory, name) || alike.count(name.as_bytes()) > 1 {
            return false;
        }
        let message = "it is kept: the source has this name in another case".to_owned();
        (self.failed)(Failure { path: path.to_vec(), kind: FailureKind::InTheWay, message });
        true
    }
}

/// How many names of a directory are one where upper and lower case make no difference.
pub struct Alike(HashMap<Vec<u8>, usize>);

impl Alike {
    pub fn of<'n>(names: impl Iterator<Item = &'n [u8]>) -> Alike {
        let mut counts = HashMap::new();
        for name in names {
            *counts.entry(lower(name)).or_insert(0) += 1;
        }
        Alike(counts)
    }

    fn count(&self, name: &[u8]) -> usize {
        self.0.get(&lower(name)).copied().unwrap_or(0)
    }
}

/// A name where upper and lower case make no difference: of what is no text, ASCII alone has cases.
pub fn lower(name: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(name) {
        Ok(text) => text.to_lowercase().into_bytes(),
        Err(_) => name.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeps(name: &[u8], names: &[&[u8]]) -> bool {
        let mut told = 0;
        let alike = LazyCell::new(|| Alike::of(names.iter().copied()));
        let mut prune = Prune {
            directories: &[],
            is_listed: &|_, _| false,
            is_listed_alike: &|_, name| name.as_bytes() != b"other",
            fate: &|_, _| Fate::Remove,
            is_rehearsal: false,
            removed: &mut |_, _| {},
            failed: &mut |_| told += 1,
            goes_on: &|| true,
        };
        let keeps = prune.keeps_alike(ObjectId::ROOT, &Name::new(name).unwrap(), name, &alike);
        assert_eq!(told, usize::from(keeps));
        keeps
    }

    #[test]
    fn a_name_in_another_case_stays_unless_two_of_the_directory_differ_by_that_alone() {
        assert!(keeps(b"FILE", &[b"FILE", b"other"]));
        assert!(!keeps(b"FILE", &[b"FILE", b"File", b"other"]));
        assert!(!keeps("\u{c4}".as_bytes(), &["\u{c4}".as_bytes(), "\u{e4}".as_bytes()]));
        assert!(!keeps(b"other", &[b"FILE", b"other"]));
        // Names that are no text differ in more than what no text can show.
        assert!(keeps(b"a\xff", &[b"a\xff", b"a\xfe"]));
        assert!(!keeps(b"a\xff", &[b"a\xff", b"A\xff"]));
    }
}
