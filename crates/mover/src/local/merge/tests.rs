//! Two listings in the order of keys, with made-up trees.

use super::*;
use model::{Entry, Generation, Name};
use std::collections::{BTreeMap, BTreeSet};
use store::{DirectoryKey, End};

/// Keys with the times of files, told in their order with the directories that they make.
struct Tree(BTreeMap<String, i64>);

impl Source for Tree {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()> {
        let mut ids: BTreeMap<String, u64> = BTreeMap::from([(String::new(), 0)]);
        for (key, seconds) in &self.0 {
            let name = key.strip_suffix('/').unwrap_or(key);
            let (above, name) = name.split_at(name.rfind('/').map_or(0, |at| at + 1));
            let id = ids.len() as u64 + key.len() as u64 * 1000 + *seconds as u64 * 1_000_000;
            ids.insert(key.clone(), id);
            let modified = Timestamp { seconds: *seconds, nanoseconds: 0 };
            let entry = Entry {
                id: ObjectId(id),
                parent: ObjectId(ids[above]),
                name: Name::new(name.as_bytes()).unwrap(),
                kind: if key.ends_with('/') { Kind::Directory } else { Kind::File },
                mode: 0,
                generation: Generation { modified, ..Generation::default() },
                attributes: None,
            };
            if !emit(Found::Object(SourceObject { entry, directory: DirectoryKey(0), end: End::Known })) {
                break;
            }
        }
        Ok(())
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        unreachable!("nothing is read")
    }

    fn path(&self, _: &SourceObject) -> Vec<u8> {
        Vec::new()
    }

    fn look_again(&self, object: &SourceObject) -> Result<SourceObject> {
        Ok(object.clone())
    }
}

/// A tree of names that are alike up to what sorts before and behind a slash.
fn tree(random: &mut u64) -> BTreeMap<String, i64> {
    let mut next = |bound: u64| {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*random >> 33) % bound
    };
    let mut keys = BTreeMap::new();
    for _ in 0..next(12) {
        let mut key = String::new();
        for _ in 0..=next(3) {
            let name = ["a", "a-", "a-b", "a0", "b", "é"][next(6) as usize];
            if keys.contains_key(&format!("{key}{name}")) {
                break;
            }
            key += name;
            key.push('/');
            keys.insert(key.clone(), 0);
        }
        let name = ["a", "a-", "a-b", "a0", "b"][next(5) as usize];
        if !keys.contains_key(&format!("{key}{name}/")) {
            keys.insert(format!("{key}{name}"), next(2) as i64);
        }
    }
    keys
}

fn merge(source: &BTreeMap<String, i64>, there: &BTreeMap<String, i64>) -> (Vec<String>, BTreeSet<String>, Merge) {
    let deletion = Some(model::options::Deletion { is_at_root: true, removals_max: None });
    let merge = Merge {
        source: Arc::new(Tree(source.clone())),
        mirror: Arc::new(Tree(there.clone())),
        options: TransferOptions { deletion, ..TransferOptions::default() },
        progress: Progress::new(),
        is_store: true,
        surplus: Arc::default(),
    };
    let (mut names, mut described): (BTreeMap<u64, String>, Vec<String>) = (BTreeMap::new(), Vec::new());
    names.insert(0, String::new());
    let scan = merge.scan(&mut |found| {
        let Found::Object(SourceObject { entry, .. }) = found else { panic!("{found:?}") };
        assert_eq!(entry.id.0, names.len() as u64, "ids count from 1 without a gap");
        let slash = if entry.kind == Kind::Directory { "/" } else { "" };
        let key = format!("{}{}{slash}", names[&entry.parent.0], String::from_utf8_lossy(entry.name.as_bytes()));
        names.insert(entry.id.0, key.clone());
        described.push(key);
        true
    });
    scan.unwrap();
    let mut surplus = BTreeSet::new();
    let mut next = merge.surplus.backwards();
    while let Some((path, is_directory)) = next() {
        let key = String::from_utf8(path).unwrap() + if is_directory { "/" } else { "" };
        // What is in a directory comes before it.
        assert!(!surplus.iter().any(|earlier: &String| earlier.ends_with('/') && key.starts_with(earlier)), "{key}");
        surplus.insert(key);
    }
    drop(next);
    (described, surplus, merge)
}

#[test]
fn what_differs_is_described_and_what_is_left_over_is_put_down_whatever_the_trees() {
    let mut random = 7;
    for round in 0..5_000 {
        let (source, there) = (tree(&mut random), tree(&mut random));
        let (described, surplus, merge) = merge(&source, &there);
        let said = || format!("round {round}: {source:?} to {there:?}");
        let differing: BTreeSet<_> = source.iter().filter(|(key, time)| there.get(*key) != Some(time)).collect();
        let told: BTreeSet<String> = described.iter().cloned().collect();
        assert_eq!(told.len(), described.len(), "{}", said());
        for key in source.keys() {
            let is_needed = differing.iter().any(|(other, _)| other.starts_with(key.as_str()) && key.ends_with('/'));
            let is_wanted = is_needed || differing.iter().any(|(other, _)| *other == key);
            assert_eq!(told.contains(key), is_wanted, "{key} {}", said());
        }
        // A name that the source has stays, and so does what lies below it there if it is a file here.
        let is_spared = |key: &String| {
            let name = key.strip_suffix('/').unwrap_or(key);
            let mut above = name.match_indices('/').map(|(at, _)| &key[..at]);
            source.contains_key(name)
                || source.contains_key(&format!("{name}/"))
                || above.any(|above| source.contains_key(above))
        };
        let expected: BTreeSet<String> = there.keys().filter(|key| !is_spared(key)).cloned().collect();
        assert_eq!(surplus, expected, "{}", said());
        assert!(!merge.surplus.has_gaps());
    }
}

#[test]
fn a_side_that_is_out_of_order_is_described_whole_and_nothing_is_removed() {
    struct Backwards(Tree);
    impl Source for Backwards {
        fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()> {
            let mut all = Vec::new();
            self.0.scan(&mut |found| {
                all.push(found);
                true
            })?;
            all.into_iter().rev().all(emit);
            Ok(())
        }
        fn lane(&self) -> Box<dyn SourceLane> {
            self.0.lane()
        }
        fn path(&self, object: &SourceObject) -> Vec<u8> {
            self.0.path(object)
        }
        fn look_again(&self, object: &SourceObject) -> Result<SourceObject> {
            self.0.look_again(object)
        }
    }
    let keys: BTreeMap<String, i64> = (0..9).map(|number| (format!("f{number}"), 0)).collect();
    for (is_source, expected) in [(true, 8), (false, 8)] {
        let (_, _, merge) = merge(&keys, &keys);
        let backwards: Arc<dyn Source> = Arc::new(Backwards(Tree(keys.clone())));
        let merge = match is_source {
            true => Merge { source: backwards, surplus: Arc::default(), ..merge },
            false => Merge { mirror: backwards, surplus: Arc::default(), ..merge },
        };
        let mut described = 0;
        merge
            .scan(&mut |_| {
                described += 1;
                true
            })
            .unwrap();
        assert!(described >= expected, "{described}");
        assert!(merge.surplus.has_gaps());
    }
}

#[test]
fn times_that_are_told_late_are_asked_for_where_something_stands_and_nowhere_else() {
    struct Timeless(Tree, std::sync::Mutex<BTreeSet<String>>);
    impl Source for Timeless {
        fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()> {
            self.0.scan(&mut |mut found| {
                if let Found::Object(object) = &mut found
                    && object.entry.kind == Kind::File
                {
                    object.entry.generation.modified = UNKNOWN_TIME;
                }
                emit(found)
            })
        }
        fn lane(&self) -> Box<dyn SourceLane> {
            self.0.lane()
        }
        fn path(&self, object: &SourceObject) -> Vec<u8> {
            self.0.path(object)
        }
        fn look_again(&self, object: &SourceObject) -> Result<SourceObject> {
            let name = String::from_utf8_lossy(object.entry.name.as_bytes()).into_owned();
            let mut again = object.clone();
            again.entry.generation.modified = Timestamp { seconds: self.0.0[&name], nanoseconds: 0 };
            self.1.lock().unwrap().insert(name);
            Ok(again)
        }
    }
    let keys = |of: &[(&str, i64)]| of.iter().map(|(key, time)| ((*key).to_owned(), *time)).collect::<BTreeMap<_, _>>();
    let (source, there) = (keys(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]), keys(&[("b", 1), ("c", 0), ("e", 1)]));
    for is_blind in [false, true] {
        let (_, _, merge) = merge(&source, &there);
        let timeless = Arc::new(Timeless(Tree(source.clone()), Default::default()));
        let merge = Merge { source: timeless.clone(), surplus: Arc::default(), ..merge };
        if is_blind {
            let (path, kind, message) = (b"x".to_vec(), FailureKind::Other, "list: no".to_owned());
            merge.surplus.not_listed(Failure { path, kind, message });
        }
        let mut described = Vec::new();
        let scan = merge.scan(&mut |found| {
            let Found::Object(object) = found else { panic!("{found:?}") };
            let is_known = object.entry.generation.modified != UNKNOWN_TIME;
            described.push((String::from_utf8_lossy(object.entry.name.as_bytes()).into_owned(), is_known));
            true
        });
        scan.unwrap();
        let told =
            |of: &[(&str, bool)]| of.iter().map(|(name, known)| ((*name).to_owned(), *known)).collect::<Vec<_>>();
        assert_eq!(described, told(&[("a", is_blind), ("c", true), ("d", is_blind)]));
        assert_eq!(timeless.1.lock().unwrap().len(), if is_blind { 4 } else { 2 });
    }
}
