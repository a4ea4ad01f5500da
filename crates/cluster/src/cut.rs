//! A listing cut into bundles while it is listed: whole directories where they are small, files where they are not.
//!
//! Invariants:
//! - Every file that was told lies in exactly one bundle: it is listed there, or a directory above it is, in which nothing is
//!   listed elsewhere.
//! - What is held is bounded by the depth of the tree, not by its size.

use model::name::Escaped;

/// A bundle is full with one of these: at first, so that a small tree has something for every host, and at last.
const FILES: (u64, u64) = (100, 1000);
const BYTES: (u64, u64) = (16 << 20, 1 << 30);
/// In between, a bundle is this part of what was listed.
const PART: u64 = 64;
/// Of its paths as they are written down, so that several bundles fit one order.
const LIST_BYTES: usize = 32 << 10;
/// What a file costs beside its bytes, in bytes: opening, making and naming it.
const FILE_COST: u64 = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Weight {
    pub files: u64,
    pub bytes: u64,
}

impl Weight {
    pub fn cost(self) -> u64 {
        self.bytes.saturating_add(self.files.saturating_mul(FILE_COST))
    }

    pub fn add(&mut self, other: Weight) {
        self.files = self.files.saturating_add(other.files);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Paths below the source: of files, or of directories with all that is in them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bundle {
    pub paths: Vec<Vec<u8>>,
    pub weight: Weight,
    /// Of the paths as they are written down.
    pub list_bytes: usize,
}

impl Bundle {
    fn push(&mut self, path: Vec<u8>, weight: Weight) {
        // With quotes and a comma.
        self.list_bytes += Escaped(&path).to_string().len() + 3;
        self.paths.push(path);
        self.weight.add(weight);
    }

    fn is_full(&self, listed: Weight) -> bool {
        let is_enough = |has: u64, of: u64, (least, most): (u64, u64)| has >= (of / PART).clamp(least, most);
        is_enough(self.weight.files, listed.files, FILES)
            || is_enough(self.weight.bytes, listed.bytes, BYTES)
            || self.list_bytes >= LIST_BYTES
    }
}

/// A directory that more may come of.
#[derive(Default)]
struct Open {
    path: Vec<u8>,
    /// What is not in a bundle yet, with the weight of each path.
    held: Vec<(Vec<u8>, Weight)>,
    bundle: Bundle,
    /// Some of it is in a bundle, so that it is no bundle's as a whole.
    is_cut: bool,
}

impl Open {
    fn hold(&mut self, (path, weight): (Vec<u8>, Weight), listed: Weight, emit: &mut dyn FnMut(Bundle)) {
        self.bundle.push(path.clone(), weight);
        self.held.push((path, weight));
        if self.bundle.is_full(listed) {
            self.held.clear();
            self.is_cut = true;
            emit(std::mem::take(&mut self.bundle));
        }
    }
}

pub struct Cut {
    /// From the root down.
    open: Vec<Open>,
    /// So far.
    listed: Weight,
}

impl Default for Cut {
    fn default() -> Cut {
        // The root is listed by none of its names.
        Cut { open: vec![Open { is_cut: true, ..Open::default() }], listed: Weight::default() }
    }
}

impl Cut {
    /// Goes on with the next object of a listing in which a directory comes before what is in it, and all of that before its
    /// next neighbour. `file` is the weight of one that is copied, nothing of a directory.
    pub fn take(&mut self, path: &[u8], file: Option<Weight>, emit: &mut dyn FnMut(Bundle)) {
        while self.open.len() > 1 && !is_below(path, &self.open[self.open.len() - 1].path) {
            self.close_last(emit);
        }
        match file {
            Some(weight) => {
                self.listed.add(weight);
                let listed = self.listed;
                self.last().hold((path.to_vec(), weight), listed, emit);
            }
            None if path.is_empty() => {}
            None => self.open.push(Open { path: path.to_vec(), ..Open::default() }),
        }
    }

    /// The listing has ended.
    pub fn finish(mut self, emit: &mut dyn FnMut(Bundle)) {
        while self.open.len() > 1 {
            self.close_last(emit);
        }
        let rest = std::mem::take(&mut self.last().bundle);
        if !rest.paths.is_empty() {
            emit(rest);
        }
    }

    fn last(&mut self) -> &mut Open {
        self.open.last_mut().expect("the root stays")
    }

    fn close_last(&mut self, emit: &mut dyn FnMut(Bundle)) {
        let Some(Open { path, held, bundle, is_cut }) = self.open.pop() else { return };
        let listed = self.listed;
        let above = self.last();
        match is_cut {
            // Nothing in it is copied: nobody needs to be told of it.
            false if bundle.weight.files == 0 => {}
            false => above.hold((path, bundle.weight), listed, emit),
            true => {
                above.is_cut = true;
                held.into_iter().for_each(|held| above.hold(held, listed, emit));
            }
        }
    }
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.first() == Some(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// A listing of these files, as an endpoint tells it.
    fn listing(files: &BTreeMap<Vec<String>, u64>) -> Vec<(Vec<u8>, Option<Weight>)> {
        let mut told = BTreeMap::new();
        for (names, bytes) in files {
            for depth in 1..names.len() {
                told.insert(names[..depth].to_vec(), None);
            }
            told.insert(names.clone(), Some(Weight { files: 1, bytes: *bytes }));
        }
        told.into_iter().map(|(names, file)| (names.join("/").into_bytes(), file)).collect()
    }

    fn cut(files: &BTreeMap<Vec<String>, u64>) -> Vec<Bundle> {
        let (mut cut, mut bundles) = (Cut::default(), Vec::new());
        cut.take(b"", None, &mut |bundle| bundles.push(bundle));
        for (path, file) in listing(files) {
            cut.take(&path, file, &mut |bundle| bundles.push(bundle));
        }
        cut.finish(&mut |bundle| bundles.push(bundle));
        bundles
    }

    fn names(path: &str) -> Vec<String> {
        path.split('/').map(str::to_owned).collect()
    }

    #[test]
    fn small_directories_go_whole_and_large_ones_in_pieces() {
        let mut files: BTreeMap<_, _> = (0..2500).map(|n| (names(&format!("many/{n:04}")), 1)).collect();
        files.extend([(names("few/a/x"), 1), (names("few/b"), 2), (names("large"), 3 << 30), (names("z/y"), 1)]);
        let bundles = cut(&files);
        let holders = |path: &[u8]| bundles.iter().filter(|one| one.paths.iter().any(|there| there == path)).count();
        assert_eq!((holders(b"few"), holders(b"few/b"), holders(b"large"), holders(b"many")), (1, 0, 1, 0));
        assert_eq!(bundles.iter().map(|one| one.weight.files).sum::<u64>(), files.len() as u64);
        assert!((20..=30).contains(&bundles.len()), "{:?}", bundles.iter().map(|one| one.weight).collect::<Vec<_>>());
    }

    #[test]
    fn bundles_grow_with_the_tree() {
        let files: BTreeMap<_, _> = (0..200_000).map(|n| (names(&format!("{:02}/{n:06}", n % 3)), 1)).collect();
        let bundles = cut(&files);
        assert_eq!((bundles[0].weight.files, bundles.iter().map(|one| one.weight.files).max()), (100, Some(1000)));
        assert!(bundles.len() < 500, "{}", bundles.len());
    }

    #[test]
    fn nothing_to_copy_is_no_bundle() {
        assert_eq!(cut(&BTreeMap::new()), []);
        let (mut cut, mut bundles) = (Cut::default(), 0);
        for path in [&b""[..], b"a", b"a/b", b"c"] {
            cut.take(path, None, &mut |_| bundles += 1);
        }
        cut.finish(&mut |_| bundles += 1);
        assert_eq!(bundles, 0);
    }

    proptest! {
        #[test]
        fn every_file_is_in_one_bundle(
            paths in prop::collection::btree_map(prop::collection::vec("[ab]{1,2}", 1..5), 0u64..1 << 31, 0..60)
        ) {
            // A file has nothing below it.
            let is_file = |names: &Vec<String>| !paths.keys().any(|other| other.len() > names.len() && other.starts_with(names));
            let files: BTreeMap<_, _> = paths.iter().filter(|(names, _)| is_file(names)).map(|(n, b)| (n.clone(), *b)).collect();
            let bundles = cut(&files);
            let mut seen = BTreeSet::new();
            for bundle in &bundles {
                let mut weight = Weight::default();
                for listed in &bundle.paths {
                    for (names, bytes) in &files {
                        let path = names.join("/").into_bytes();
                        if path == *listed || is_below(&path, listed) {
                            prop_assert!(seen.insert(path), "in two bundles");
                            weight.add(Weight { files: 1, bytes: *bytes });
                        }
                    }
                }
                prop_assert_eq!(weight, bundle.weight);
            }
            prop_assert_eq!(seen.len(), files.len());
        }
    }
}
