//! Whether hosts see one directory into which somebody may be writing, by what stands in it.
//!
//! The first host looks before and after the others. What did not change in between has to be the same for them, what only they see
//! has to be new, and their time of change has to lie between its two. A copy has other inodes; a snapshot, or a clone to which
//! somebody else writes, has other times.
//!
//! Not here: looking (`ground`).

use crate::error::Result;
use model::files::Version;
use std::collections::BTreeMap;

/// So many names tell a directory from another one.
const NAMES_LOOKED_AT: usize = 256;

/// A directory, and the first names that stand directly in it.
pub struct Within {
    directory: Version,
    found: BTreeMap<Vec<u8>, Version>,
    /// These are all of them.
    pub is_all: bool,
}

impl Default for Within {
    fn default() -> Within {
        Within { directory: Version::default(), found: BTreeMap::new(), is_all: true }
    }
}

impl Within {
    /// Names come in their order, the directory without one. False when these are enough.
    pub fn add(&mut self, name: Vec<u8>, version: Version) -> bool {
        match name.is_empty() {
            true => self.directory = version,
            false => _ = self.found.insert(name, version),
        }
        self.is_all = self.found.len() < NAMES_LOOKED_AT;
        self.is_all
    }

    /// Whether this look went as far as a name.
    fn reaches(&self, name: &Vec<u8>) -> bool {
        self.is_all || self.found.keys().next_back().is_some_and(|last| name <= last)
    }
}

/// Whether each of the others sees the directory of a first host.
///
/// # Errors
/// When the first does not answer.
pub fn are_one(
    first: &dyn Fn() -> Result<Within>,
    others: &dyn Fn() -> Vec<Result<Within>>,
) -> Result<Vec<Result<bool>>> {
    let (before, seen, after) = (first()?, others(), first()?);
    Ok(seen.into_iter().map(|seen| seen.map(|seen| is_one(&before, &seen, &after))).collect())
}

/// Nothing that stayed as it was is no proof.
fn is_one(before: &Within, seen: &Within, after: &Within) -> bool {
    let did_stay =
        |(name, version): &(&Vec<u8>, &Version)| after.found.get(*name) == Some(*version) && version.inode != 0;
    let mut stayed = before.found.iter().filter(did_stay).filter(|(name, _)| seen.reaches(name)).peekable();
    let is_new = |(name, version): (&Vec<u8>, &Version)| {
        let is_known = before.found.contains_key(name) || after.found.contains_key(name);
        is_known || !(before.reaches(name) && after.reaches(name)) || version.changed >= before.directory.changed
    };
    before.directory.inode == seen.directory.inode
        && (before.directory.changed..=after.directory.changed).contains(&seen.directory.changed)
        && stayed.peek().is_some()
        && stayed.all(|(name, version)| seen.found.get(name) == Some(version))
        && seen.found.iter().all(is_new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Timestamp;

    /// The directory was changed at 10, and each of these at 1 unless it says otherwise.
    fn within(names: &[(&str, u64, i64)], is_all: bool) -> Within {
        let version =
            |inode, seconds| Version { inode, changed: Timestamp { seconds, nanoseconds: 0 }, ..Version::default() };
        let found =
            names.iter().map(|(name, inode, time)| (name.as_bytes().to_vec(), version(*inode, *time))).collect();
        Within { directory: version(7, 10), found, is_all }
    }

    fn all(names: &[(&str, u64, i64)]) -> Within {
        within(names, true)
    }

    #[test]
    fn a_directory_that_is_written_to_between_two_looks_is_still_one() {
        let (before, after) = (all(&[("a", 1, 1), ("n", 2, 10)]), all(&[("a", 1, 1), ("p", 4, 12)]));
        let is_one = |names: &[(&str, u64, i64)]| super::is_one(&before, &all(names), &after);
        assert!(is_one(&[("a", 1, 1), ("o", 3, 11)]));
        assert!(!is_one(&[("a", 9, 1), ("o", 3, 11)]), "a copy");
        assert!(!is_one(&[("o", 3, 11)]) && !is_one(&[]), "another one");
        assert!(!is_one(&[("a", 1, 1), ("c", 3, 1)]), "a snapshot, with what has gone since");
        let other = Within { directory: Version { inode: 8, ..before.directory }, ..all(&[("a", 1, 1)]) };
        assert!(!super::is_one(&before, &other, &after));
        for (seconds, copy) in [(9, "a snapshot"), (11, "a clone to which somebody wrote")] {
            let directory = Version { changed: Timestamp { seconds, nanoseconds: 0 }, ..before.directory };
            let seen = Within { directory, ..all(&[("a", 1, 1), ("o", 3, 11)]) };
            assert!(!super::is_one(&before, &seen, &after), "{copy}");
        }
    }

    #[test]
    fn where_nothing_stays_nothing_is_known() {
        let look = |inode| all(&[("n", inode, 10)]);
        assert!(!is_one(&look(1), &look(2), &look(3)) && !is_one(&all(&[]), &all(&[]), &all(&[])));
    }

    #[test]
    fn beyond_the_last_name_that_was_looked_at_nothing_is_known() {
        let (whole, part) = (all(&[("a", 1, 1), ("o", 2, 1)]), |names: &[(&str, u64, i64)]| within(names, false));
        assert!(is_one(&whole, &part(&[("a", 1, 1), ("n", 3, 11)]), &whole));
        assert!(!is_one(&whole, &all(&[("a", 1, 1), ("n", 3, 11)]), &whole));
        assert!(!is_one(&whole, &part(&[("a", 1, 1), ("p", 3, 11)]), &whole));
        let first = part(&[("a", 1, 1)]);
        assert!(is_one(&first, &whole, &first));
    }
}
