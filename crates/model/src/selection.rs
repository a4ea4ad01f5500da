//! What of a source a job takes: by rules on paths, by size and age, by a list of paths.
//!
//! Not here: walking the tree (see `store`), and where a bound is applied (the sender's, unless the receiver deletes what
//! the source does not have: then it has to hear of every name).

use crate::entry::{Entry, Kind};
use crate::filter::Filter;
use crate::name::{Name, NameError, relative_path};
use std::collections::BTreeMap;
use std::time::Duration;

/// Paths of a list that goes to an endpoint, and their bytes.
pub const LISTED_MAX: usize = 65_536;
pub const LISTED_BYTES_MAX: usize = 512 << 10;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    pub filter: Filter,
    pub bounds: Bounds,
    /// Only these, and what lies in those that are directories.
    pub listed: Option<Listed>,
}

impl Selection {
    /// Everything is taken.
    pub fn is_everything(&self) -> bool {
        self.filter.is_empty() && self.bounds == Bounds::default() && self.listed.is_none()
    }

    /// Whether an object of a list is taken; whoever walks the tree from its root comes to the same. A directory that is only on the
    /// way to what is taken is not. `file`: its size and when it was modified, where it is one.
    pub fn takes(&self, path: &[u8], is_directory: bool, file: Option<(u64, i64)>) -> bool {
        let is_listed = self.listed.as_ref().is_none_or(|listed| listed.holds(path));
        let is_within =
            file.is_none_or(|(size_bytes, modified_seconds)| self.bounds.hold(size_bytes, modified_seconds));
        is_listed && is_within && self.filter.explain(path, is_directory).is_taken
    }

    /// Whether something in a directory may be taken, though the directory itself may not be.
    pub fn may_hold(&self, path: &[u8]) -> bool {
        let explained = self.filter.explain(path, true);
        // What only lacks a rule that takes it may lie above what has one.
        let is_open = explained.is_taken || explained.rule.is_none();
        is_open && self.listed.as_ref().is_none_or(|listed| listed.walk(path).is_some())
    }
}

/// What is chosen, as it is asked for: ages count back from the moment at which the job runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    pub filter: Filter,
    pub size_bytes_min: u64,
    /// The largest size that is taken.
    pub size_bytes_max: Option<u64>,
    /// Modified within this time.
    pub newer_than: Option<Duration>,
    /// Not modified within this time.
    pub older_than: Option<Duration>,
    pub listed: Option<Listed>,
}

impl Choice {
    pub fn is_everything(&self) -> bool {
        *self == Choice::default()
    }

    /// What it selects at a moment, in seconds since 1970.
    pub fn at(&self, now: i64) -> Selection {
        let ago = |span: Duration| now.saturating_sub_unsigned(span.as_secs());
        Selection {
            filter: self.filter.clone(),
            bounds: Bounds {
                size_bytes_min: self.size_bytes_min,
                size_bytes_end: self.size_bytes_max.map_or(0, |size| size.saturating_add(1)),
                modified_since: self.newer_than.map(ago),
                modified_before: self.older_than.map(ago),
            },
            listed: self.listed.clone(),
        }
    }
}

/// Bounds on files; directories and links are within them always.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    pub size_bytes_min: u64,
    /// The first size that is too large; 0 where none is.
    pub size_bytes_end: u64,
    /// Seconds since 1970.
    pub modified_since: Option<i64>,
    pub modified_before: Option<i64>,
}

impl Bounds {
    pub fn admit(&self, entry: &Entry) -> bool {
        if entry.kind != Kind::File {
            return true;
        }
        self.hold(entry.generation.size_bytes, entry.generation.modified.seconds)
    }

    fn hold(&self, size_bytes: u64, modified_seconds: i64) -> bool {
        size_bytes >= self.size_bytes_min
            && (self.size_bytes_end == 0 || size_bytes < self.size_bytes_end)
            && self.modified_since.is_none_or(|since| modified_seconds >= since)
            && self.modified_before.is_none_or(|before| modified_seconds < before)
    }
}

/// A list of paths as a tree of their names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listed {
    /// As they were given.
    pub paths: Vec<Vec<u8>>,
    pub root: Node,
}

/// What is listed of one directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Node {
    /// The object itself is listed, and with it all that lies in it.
    pub is_whole: bool,
    pub below: BTreeMap<Name, Node>,
}

impl Listed {
    /// # Errors
    /// With the path that is not relative to the root, or climbs.
    pub fn new(paths: Vec<Vec<u8>>) -> Result<Listed, (Vec<u8>, NameError)> {
        let mut root = Node::default();
        for path in &paths {
            let names = relative_path(path).map_err(|e| (path.clone(), e))?;
            let mut at = &mut root;
            for name in names {
                at = at.below.entry(name).or_default();
            }
            at.is_whole = true;
        }
        Ok(Listed { paths, root })
    }

    /// Whether a path is listed, or lies in what is.
    fn holds(&self, path: &[u8]) -> bool {
        self.walk(path).is_some_and(|node| node.is_whole)
    }

    /// What is listed of a path: a node on the way to it that is whole, its own, or nothing.
    fn walk(&self, path: &[u8]) -> Option<&Node> {
        let mut at = &self.root;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if at.is_whole {
                break;
            }
            at = at.below.get(&Name::new(name).ok()?)?;
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Generation, Timestamp};
    use crate::id::ObjectId;

    fn file(size_bytes: u64, seconds: i64) -> Entry {
        let modified = Timestamp { seconds, nanoseconds: 0 };
        let generation = Generation { size_bytes, modified, ..Generation::default() };
        let name = Name::new(b"f").unwrap();
        Entry {
            id: ObjectId(1),
            parent: ObjectId::ROOT,
            name,
            kind: Kind::File,
            mode: 0o644,
            generation,
            attributes: None,
        }
    }

    #[test]
    fn bounds_hold_for_files_only() {
        let bounds =
            Bounds { size_bytes_min: 2, size_bytes_end: 5, modified_since: Some(10), modified_before: Some(20) };
        for (size, seconds, expected) in [(2, 10, true), (4, 19, true), (1, 10, false), (5, 10, false), (3, 9, false)] {
            assert_eq!(bounds.admit(&file(size, seconds)), expected, "{size} {seconds}");
        }
        assert!(!bounds.admit(&file(3, 20)));
        assert!(bounds.admit(&Entry { kind: Kind::Directory, ..file(0, 0) }));
        assert!(Bounds::default().admit(&file(0, i64::MIN)));
    }

    #[test]
    fn an_object_of_a_list_is_taken_as_by_a_walk_from_the_root() {
        let rules = ["- *.tmp", "- /cache/"].map(|rule| crate::filter::Rule::parse(rule).unwrap());
        let choice = Choice {
            filter: Filter::new(rules.to_vec()).unwrap(),
            size_bytes_max: Some(9),
            older_than: Some(Duration::from_secs(10)),
            ..Choice::default()
        };
        let takes = |path: &str, is_directory: bool, size: u64| {
            let file = (!is_directory).then_some((size, 50));
            choice.at(100).takes(path.as_bytes(), is_directory, file)
        };
        assert!(takes("a", false, 9) && takes("a", true, 10) && takes("sub/cache/x", false, 0));
        assert!(!takes("a", false, 10) && !takes("a.tmp", false, 0) && !takes("cache/deep/x", false, 0));
        assert!(!choice.at(100).takes(b"a", false, Some((0, 95))), "too young");
        let listed = Choice { listed: Listed::new(vec![b"a/b".to_vec()]).ok(), ..Choice::default() }.at(0);
        let holds = |path: &str| listed.takes(path.as_bytes(), false, None);
        assert!(holds("a/b") && holds("a/b/c") && !holds("a") && !holds("a/bc") && !holds("b"));
        let may_hold = |path: &str| listed.may_hold(path.as_bytes());
        assert!(may_hold("a") && may_hold("a/b/c") && !may_hold("a/bc") && !may_hold("b"));
        let rules = ["- /cache/", "+ *.h5", "- *"].map(|rule| crate::filter::Rule::parse(rule).unwrap());
        let only = |rules: &[crate::filter::Rule]| {
            Choice { filter: Filter::new(rules.to_vec()).unwrap(), ..Choice::default() }.at(0)
        };
        let (some, all) = (only(&rules[..2]), only(&rules));
        assert!(
            some.may_hold(b"sub") && !some.may_hold(b"cache") && !some.may_hold(b"cache/x") && !all.may_hold(b"sub")
        );
    }

    #[test]
    fn a_list_becomes_a_tree_and_cannot_climb() {
        let list = Listed::new(vec![b"a/b".to_vec(), b"./a".to_vec(), b"c/d/".to_vec()]).unwrap();
        let at = |name: &str| &list.root.below[&Name::new(name.as_bytes()).unwrap()];
        assert!(at("a").is_whole && at("a").below.len() == 1);
        assert!(!at("c").is_whole && !list.root.is_whole);
        assert!(Listed::new(vec![b"../x".to_vec()]).is_err());
        assert!(Listed::new(vec![b"/x".to_vec()]).is_err());
        assert!(Listed::new(vec![b".".to_vec()]).unwrap().root.is_whole);
    }
}
