//! A listing cut into bundles while it is listed: whole directories where they are small, files where they are not.
//!
//! Invariants:
//! - Every file that was told lies in exactly one bundle: it is listed there, or a directory above it is, in which nothing is
//!   listed elsewhere. Or it lies in bundles of its own, each of which has a range of it: together all of it, none of it twice.
//! - What is held is bounded by the depth of the tree, not by its size.

use model::Extent;
use model::name::Escaped;

/// A bundle is full with one of these: at first, so that a small tree has something for every host, and at last.
const FILES: (u64, u64) = (100, 1000);
const BYTES: (u64, u64) = (4 << 20, 1 << 30);
/// In between, a bundle is this part of what was listed: of the bytes several for each host of a large site, because the last ones
/// decide when hosts end. Whoever is fast takes many at a time.
const FILES_PART: u64 = 64;
const BYTES_PART: u64 = 1024;
/// A file is handed out in ranges if it is so large, and such a part of what was listed with it: smaller ones spread the work as well.
const CUT_BYTES: u64 = 64 << 20;
const CUT_PART: u64 = 64;
/// It is cut into so many ranges, unless they would be smaller or larger than this. Who is given several in a row takes them as one.
const RANGES: u64 = 256;
const RANGE_BYTES: (u64, u64) = (8 << 20, 1 << 30);
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
    /// It is that much of its one file.
    pub range: Option<Extent>,
    /// Of the paths as they are written down.
    pub list_bytes: usize,
}

impl Bundle {
    fn push(&mut self, path: Vec<u8>, weight: Weight) {
        // With quotes and a comma; JSON escapes what has been escaped once more.
        let text = Escaped(&path).to_string();
        self.list_bytes += text.len() + text.matches(['\\', '"']).count() + 3;
        self.paths.push(path);
        self.weight.add(weight);
    }

    /// Whether it is the range that comes next in the same file.
    pub fn continues(&self, before: &Bundle) -> bool {
        let are_adjacent = |(before, range): (Extent, Extent)| before.end == range.start;
        before.range.zip(self.range).is_some_and(are_adjacent) && before.paths == self.paths
    }

    fn is_full(&self, listed: Weight) -> bool {
        self.weight.files >= (listed.files / FILES_PART).clamp(FILES.0, FILES.1)
            || self.weight.bytes >= (listed.bytes / BYTES_PART).clamp(BYTES.0, BYTES.1)
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
    /// Files are cut into ranges of so many bytes or a multiple of that.
    chunk_bytes: Option<u64>,
    /// From the root down.
    open: Vec<Open>,
    /// So far.
    listed: Weight,
}

impl Default for Cut {
    fn default() -> Cut {
        // The root is listed by none of its names.
        Cut { chunk_bytes: None, open: vec![Open { is_cut: true, ..Open::default() }], listed: Weight::default() }
    }
}

impl Cut {
    /// Cuts large files too, between chunks.
    pub fn with_ranges(chunk_bytes: u64) -> Cut {
        Cut { chunk_bytes: Some(chunk_bytes.max(1)), ..Cut::default() }
    }

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
                if let Some(chunk_bytes) = self.chunk_bytes
                    && weight.bytes >= CUT_BYTES.max(listed.bytes / CUT_PART)
                {
                    self.last().is_cut = true;
                    return ranges(path, weight, chunk_bytes, emit);
                }
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

fn ranges(path: &[u8], file: Weight, chunk_bytes: u64, emit: &mut dyn FnMut(Bundle)) {
    let length = (file.bytes / RANGES).clamp(RANGE_BYTES.0, RANGE_BYTES.1).next_multiple_of(chunk_bytes);
    let mut start = 0;
    while start < file.bytes {
        let end = file.bytes.min(start.saturating_add(length));
        let files = if start == 0 { file.files } else { 0 };
        let mut bundle = Bundle { range: Some(Extent::new(start, end)), ..Bundle::default() };
        bundle.push(path.to_vec(), Weight { files, bytes: end - start });
        emit(bundle);
        start = end;
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

    const CHUNK_BYTES: u64 = 8 << 20;

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
        let (mut cut, mut bundles) = (Cut::with_ranges(CHUNK_BYTES), Vec::new());
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
        assert_eq!((holders(b"few"), holders(b"few/b"), holders(b"large"), holders(b"many")), (1, 0, 192, 0));
        assert_eq!(bundles.iter().map(|one| one.weight.files).sum::<u64>(), files.len() as u64);
        let whole = bundles.iter().filter(|one| one.range.is_none()).count();
        assert!((20..=30).contains(&whole), "{:?}", bundles.iter().map(|one| one.weight).collect::<Vec<_>>());
    }

    #[test]
    fn a_file_is_cut_between_chunks_by_its_size_and_only_where_it_is_much_of_what_there_is() {
        let ranges = |bytes: u64, chunk_bytes: u64| {
            let mut found = Vec::new();
            let mut cut = Cut::with_ranges(chunk_bytes);
            cut.take(b"a", Some(Weight { files: 1, bytes }), &mut |bundle| found.push(bundle));
            cut.finish(&mut |bundle| found.push(bundle));
            let lengths: Vec<_> = found.iter().map(|one| one.range.map_or(0, |range| range.length())).collect();
            assert!(found.windows(2).all(|two| two[1].continues(&two[0]) && !two[0].continues(&two[1])));
            assert_eq!(found.iter().map(|one| one.weight.files).sum::<u64>(), 1);
            (lengths.len(), lengths[0], lengths[lengths.len() - 1])
        };
        let (chunk, mib) = (CHUNK_BYTES, 1 << 20);
        assert_eq!(ranges(64 * mib - 1, chunk), (1, 0, 0));
        assert_eq!(ranges(64 * mib, chunk), (8, 8 * mib, 8 * mib));
        assert_eq!(ranges((20 << 30) + 1, chunk), (257, 80 * mib, 1));
        assert_eq!(ranges(100 << 40, chunk).1, 1 << 30);
        assert_eq!(ranges(3 << 30, 1 << 30), (3, 1 << 30, 1 << 30));
        let mut files: BTreeMap<_, _> = (0..100).map(|n| (names(&format!("{n:03}")), 1 << 30)).collect();
        let cut_of = |files: &_| {
            cut(files).iter().filter(|one| one.range.is_some()).map(|one| one.paths[0].clone()).collect::<BTreeSet<_>>()
        };
        assert_eq!(cut_of(&files).len(), 64);
        files.insert(names("last"), 100 << 30);
        assert!(cut_of(&files).contains(&b"last"[..]));
    }

    #[test]
    fn bundles_grow_with_the_tree() {
        let files: BTreeMap<_, _> = (0..200_000).map(|n| (names(&format!("{:02}/{n:06}", n % 3)), 1)).collect();
        let bundles = cut(&files);
        assert_eq!((bundles[0].weight.files, bundles.iter().map(|one| one.weight.files).max()), (100, Some(1000)));
        assert!(bundles.len() < 500, "{}", bundles.len());
    }

    #[test]
    fn names_count_as_long_as_they_are_in_an_order() {
        let list_bytes = |path: &[u8]| {
            let mut bundle = Bundle::default();
            bundle.push(path.to_vec(), Weight { files: 1, bytes: 0 });
            bundle.list_bytes
        };
        assert_eq!(list_bytes(b"ab"), r#""ab","#.len());
        assert_eq!(list_bytes(b"a\xff"), r#""a\\xff","#.len());
        assert_eq!(list_bytes(b"a\\"), r#""a\\\\","#.len());
        assert_eq!(list_bytes(b"a\""), r#""a\"","#.len());
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
            let (mut seen, mut brought) = (BTreeSet::new(), BTreeMap::<Vec<u8>, u64>::new());
            for bundle in &bundles {
                if let Some(range) = bundle.range {
                    // In order, so that each begins where the one before has ended.
                    let so_far = brought.entry(bundle.paths[0].clone()).or_default();
                    prop_assert_eq!(*so_far, range.start);
                    prop_assert!(range.start % CHUNK_BYTES == 0 && bundle.weight.bytes == range.length());
                    *so_far = range.end;
                    continue;
                }
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
            for (path, bytes) in brought {
                prop_assert_eq!(files.get(&names(std::str::from_utf8(&path).unwrap())), Some(&bytes));
                prop_assert!(seen.insert(path), "in ranges and whole");
            }
            prop_assert_eq!(seen.len(), files.len());
        }
    }
}
