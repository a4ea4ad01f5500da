//! The long-tailed set: what a home or project directory looks like to a copying program.
//!
//! Sizes are the quantiles of a lognormal distribution, one each, in an order that depends on the seed: their sum is the
//! same for every seed, and a scaled set has the same shape. Directories form a random recursive tree, and the number of
//! objects in one falls with its number, so that the root is full and the leaves are not. One name in eight is odd.
//!
//! Invariant: every name is unique, because it holds the object's number; no link points at another link or at a directory,
//! so that a program that follows links ends.

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;

use super::object::Object;
use content::{mix, unit_interval};

/// Regular files of the whole set.
pub const FILES: u64 = 12_000;
/// Symbolic links beside them.
pub const LINKS: u64 = 120;
/// Of a sparse file, one part in this many is written.
pub const SPARSE_SHARE: u64 = 4;

/// Median of the sizes. With `SIGMA` the mean is 249 kB, so that `FILES` are 3.0 GB, the largest one 129 MB.
const MEDIAN_BYTES: f64 = 22_500.0;
/// Spread of the natural logarithm of the sizes; surveys of file systems find 2 to 2.5.
const SIGMA: f64 = 2.2;
const SPARSE_BYTES: u64 = 8 << 20;
/// Data and holes of a sparse file come in pieces of this size.
const SPARSE_PIECE_BYTES: u64 = 256 << 10;
/// Objects for each directory, in the mean.
const DIRECTORY_OBJECTS: u64 = 40;
const DIRECTORIES_MAX: u64 = 100_000;
/// One name in this many is odd.
const ODD_INTERVAL: u64 = 8;
/// The longest name that Linux file systems take.
const NAME_BYTES_MAX: usize = 255;

#[derive(Clone, Debug)]
pub struct Tree {
    seed: u64,
    group: u64,
    objects: u64,
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    /// Relative to the group's folder, with a slash at its end; empty for the folder itself.
    path: Vec<u8>,
    /// The first object that lies here.
    first: u64,
}

enum Kind {
    Link,
    Empty,
    Sparse,
    /// The place of the size among all.
    Sized {
        rank: u64,
        of: u64,
    },
}

impl Tree {
    pub fn new(seed: u64, group: u64, objects: u64) -> Tree {
        let directories = (objects / DIRECTORY_OBJECTS).clamp(1, DIRECTORIES_MAX);
        // The share of the directory with number n is proportional to 1 / (n + 1).
        let weight = |number: u64| (1_u64 << 32) / (number + 1);
        let sum: u128 = (0..directories).map(|number| u128::from(weight(number))).sum();
        let mut nodes: Vec<Node> = Vec::with_capacity(directories as usize);
        let mut before = 0_u128;
        for number in 0..directories {
            let path = match number {
                0 => Vec::new(),
                _ => {
                    // The folder's number keeps the directories' draws apart from the files'.
                    let draw = unit_interval(seed ^ mix(group), u64::MAX, number);
                    let parent = (draw * number as f64) as usize;
                    let mut path = nodes[parent].path.clone();
                    path.extend_from_slice(&directory_name(number));
                    path.push(b'/');
                    path
                }
            };
            let first = u128::from(objects) * before / sum;
            nodes.push(Node { path, first: first as u64 });
            before += u128::from(weight(number));
        }
        Tree { seed, group, objects, nodes }
    }

    /// The group's folder included.
    pub fn directories(&self) -> u64 {
        self.nodes.len() as u64
    }

    pub fn directory_path(&self, number: u64) -> Vec<u8> {
        self.nodes[number as usize].path.clone()
    }

    pub fn directory_files(&self, number: u64) -> Range<u64> {
        let next = self.nodes.get(number as usize + 1);
        self.nodes[number as usize].first..next.map_or(self.objects, |node| node.first)
    }

    pub fn name(&self, file: u64) -> Vec<u8> {
        let place = self.shuffled(file);
        if place.is_multiple_of(ODD_INTERVAL) { odd_name(file, place / ODD_INTERVAL) } else { plain_name(file) }
    }

    pub fn object(&self, file: u64) -> Object {
        match self.kind(file) {
            Kind::Link => Object::Link { target: self.target(file) },
            Kind::Empty => Object::File { bytes: 0 },
            Kind::Sparse => Object::Sparse { bytes: SPARSE_BYTES },
            Kind::Sized { rank, of } => Object::File { bytes: quantile_bytes(rank, of) },
        }
    }

    fn shuffled(&self, file: u64) -> u64 {
        shuffled(self.seed, self.group, file, self.objects)
    }

    /// The first places after shuffling are links, then come empty and sparse files. Even a small set has some of each.
    fn kind(&self, file: u64) -> Kind {
        let few = self.objects / 4;
        let links = (self.objects * LINKS / (FILES + LINKS)).clamp(few.min(6), few);
        let empty = links + (self.objects / 50).clamp(few.min(1), few);
        let sparse = empty + (self.objects / 1_000).clamp(few.min(1), few);
        match self.shuffled(file) {
            place if place < links => Kind::Link,
            place if place < empty => Kind::Empty,
            place if place < sparse => Kind::Sparse,
            place => Kind::Sized { rank: place - sparse, of: self.objects - sparse },
        }
    }

    /// In turn: a neighbour, a file elsewhere, nothing.
    fn target(&self, link: u64) -> Vec<u8> {
        let node = self.node_of(link);
        let here = self.directory_files(node as u64);
        match self.shuffled(link) % 3 {
            0 => self.file_near(link, &here).map(|file| self.name(file)),
            1 => {
                let start = mix(self.seed ^ mix(link)) % self.objects;
                self.file_near(start, &(0..self.objects)).map(|file| self.relative(node, file))
            }
            _ => None,
        }
        .unwrap_or_else(|| format!("no such file {link}").into_bytes())
    }

    /// The first object after `start`, around the end of the range, that is no link.
    fn file_near(&self, start: u64, range: &Range<u64>) -> Option<u64> {
        let mut others = (start + 1..range.end).chain(range.start..start);
        others.find(|file| !matches!(self.kind(*file), Kind::Link))
    }

    fn relative(&self, from: usize, file: u64) -> Vec<u8> {
        let up = self.nodes[from].path.iter().filter(|byte| **byte == b'/').count();
        let mut path = b"../".repeat(up);
        path.extend_from_slice(&self.nodes[self.node_of(file)].path);
        path.extend_from_slice(&self.name(file));
        path
    }

    fn node_of(&self, file: u64) -> usize {
        self.nodes.partition_point(|node| node.first <= file) - 1
    }
}

/// Whether a sparse file has nothing at an offset.
pub fn is_hole(offset: u64) -> bool {
    !(offset / SPARSE_PIECE_BYTES).is_multiple_of(SPARSE_SHARE)
}

pub fn os(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}

/// The size at the middle of the `rank`-th of `of` equally likely parts of the distribution.
pub fn quantile_bytes(rank: u64, of: u64) -> u64 {
    let share = (rank as f64 + 0.5) / of as f64;
    (MEDIAN_BYTES.ln() + SIGMA * normal_quantile(share)).exp() as u64
}

/// Inverse of the normal distribution to three digits: Abramowitz and Stegun, formula 26.2.23.
fn normal_quantile(share: f64) -> f64 {
    let tail = share.min(1.0 - share);
    let t = (-2.0 * tail.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    let distance = t - above / below;
    if share < 0.5 { -distance } else { distance }
}

/// Where `number` lands when `0..count` is shuffled: a Feistel network over the next even power of two, walked until it
/// falls inside.
pub fn shuffled(seed: u64, group: u64, number: u64, count: u64) -> u64 {
    const ROUNDS: u64 = 4;
    let half_bits = (u64::BITS - count.leading_zeros()).div_ceil(2).max(1);
    let mask = (1_u64 << half_bits) - 1;
    let key = mix(seed ^ mix(group ^ u64::MAX));
    let mut place = number;
    loop {
        let (mut left, mut right) = (place >> half_bits, place & mask);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ (mix(key ^ mix(right ^ (round << 40))) & mask));
        }
        place = left << half_bits | right;
        if place < count {
            return place;
        }
    }
}

fn plain_name(file: u64) -> Vec<u8> {
    format!("f{file:07}").into_bytes()
}

fn odd_name(file: u64, style: u64) -> Vec<u8> {
    let number = format!("{file:07}");
    let with = |before: &str, after: &str| format!("{before}{number}{after}").into_bytes();
    match style % 15 {
        0 => with("two  spaces ", " and one at the end "),
        1 => with(" ", " begins with one"),
        2 => with("-", ""),
        3 => with("--delete=", ""),
        4 => with(".hidden-", ""),
        5 => with("line\nfeed-", "\n"),
        6 => with("Z\u{fc}rich-\u{6771}\u{4eac}-\u{1f388}-", ""),
        7 => with("composed-e\u{301}-", ""),
        8 => with(&"long-name-".repeat(20), ""),
        9 => with(&"\u{e4}".repeat((NAME_BYTES_MAX - number.len()) / 2), ""),
        10 => [&b"not\xffUTF\xfe8\x80-"[..], number.as_bytes()].concat(),
        11 => with("quotes'\"`$(x)&;|<>", ""),
        12 => with("pattern*?[a-z]{b,c}!~", ""),
        13 => with("back\\slash\\n-", "\\"),
        _ => with("tab\there#colon:percent%20-", ""),
    }
}

fn directory_name(number: u64) -> Vec<u8> {
    match number % 16 {
        3 => format!("d{number:05} with spaces"),
        7 => format!("-d{number:05}"),
        11 => format!(".d{number:05}"),
        15 => format!("d{number:05}-\u{fc}\u{6771}"),
        _ => format!("d{number:05}"),
    }
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use crate::dataset::Plan;

    fn plan(spec: &str, seed: u64) -> Plan {
        Plan::parse(spec, 1_000, seed).unwrap()
    }

    #[test]
    fn the_whole_set_has_its_count_and_volume_for_any_seed() {
        for seed in [1, 2, 77] {
            for spec in ["longtail", "lognormal"] {
                let totals = plan(spec, seed).totals();
                assert_eq!(totals.files, FILES, "{spec}");
                assert!((totals.bytes as f64 / 3e9 - 1.0).abs() < 0.02, "{spec} {}", totals.bytes);
            }
            assert_eq!(plan("longtail", seed).totals().links, LINKS);
        }
    }

    #[test]
    fn a_shuffle_reaches_every_place_once() {
        for count in [1, 2, 3, 7, 64, 1_000] {
            let places: HashSet<u64> = (0..count).map(|number| shuffled(1, 2, number, count)).collect();
            assert!(places.len() as u64 == count && places.iter().all(|place| *place < count), "{count}");
        }
        let order = |seed| (0..100).map(|number| shuffled(seed, 0, number, 100)).collect::<Vec<_>>();
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn sizes_are_lognormal() {
        let mut logs: Vec<f64> = (0..9_999).map(|rank| (quantile_bytes(rank, 9_999) as f64).ln()).collect();
        assert!(logs.is_sorted());
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        logs.iter_mut().for_each(|log| *log = (*log - mean).powi(2));
        let deviation = (logs.iter().sum::<f64>() / logs.len() as f64).sqrt();
        assert!((mean - MEDIAN_BYTES.ln()).abs() < 0.01 && (deviation - SIGMA).abs() < 0.02, "{mean} {deviation}");
    }

    #[test]
    fn the_tree_is_deep_and_skewed_and_holds_every_object_once() {
        let tree = Tree::new(1, 0, FILES + LINKS);
        let depths: Vec<usize> =
            tree.nodes.iter().map(|node| node.path.iter().filter(|byte| **byte == b'/').count()).collect();
        assert!(depths.iter().max().is_some_and(|depth| (8..20).contains(depth)), "{depths:?}");
        let sizes: Vec<u64> =
            (0..tree.directories()).map(|number| tree.directory_files(number).count() as u64).collect();
        assert_eq!(sizes.iter().sum::<u64>(), FILES + LINKS);
        assert!(sizes[0] > 1_500 && sizes[1] > 500 && *sizes.last().unwrap() < 20, "{sizes:?}");
        let mut next = 0;
        for number in 0..tree.directories() {
            let files = tree.directory_files(number);
            assert_eq!(files.start, next);
            next = files.end;
            assert!(files.clone().all(|file| tree.node_of(file) as u64 == number));
        }
    }

    #[test]
    fn names_are_odd_in_every_way_and_unique() {
        let tree = Tree::new(1, 0, 1_000);
        let names: Vec<Vec<u8>> = (0..1_000).map(|file| tree.name(file)).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 1_000);
        assert!(names.iter().all(|name| name.len() <= NAME_BYTES_MAX && !name.contains(&b'/') && !name.contains(&0)));
        let any = |what: &dyn Fn(&[u8]) -> bool| names.iter().any(|name| what(name));
        assert!(any(&|name| std::str::from_utf8(name).is_err()));
        assert!(any(&|name| name.starts_with(b"-")) && any(&|name| name.starts_with(b" ")));
        assert!(any(&|name| name.ends_with(b" ")) && any(&|name| name.contains(&b'\n')));
        assert!(any(&|name| name.len() >= 254) && any(&|name| name.starts_with(b".")));
    }

    #[test]
    fn links_point_at_files_or_at_nothing() {
        let tree = Tree::new(3, 0, 2_000);
        let mut paths = HashMap::new();
        for file in 0..2_000 {
            let path = [&tree.nodes[tree.node_of(file)].path[..], &tree.name(file)].concat();
            paths.insert(path, file);
        }
        let (mut near, mut far, mut dangling) = (0, 0, 0);
        for (path, file) in &paths {
            let Object::Link { target } = tree.object(*file) else { continue };
            let mut directory: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
            directory.pop();
            let mut rest = &target[..];
            while let Some(below) = rest.strip_prefix(b"../") {
                directory.pop().unwrap();
                rest = below;
            }
            directory.push(rest);
            match paths.get(&directory.join(&b'/')) {
                Some(found) => assert!(!matches!(tree.object(*found), Object::Link { .. })),
                None => dangling += 1,
            }
            near += u32::from(!target.contains(&b'/') && !target.starts_with(b"no such"));
            far += u32::from(target.contains(&b'/'));
        }
        assert!(near > 0 && far > 0 && dangling > 0, "{near} {far} {dangling}");
        assert!(dangling < 10, "{dangling}");
    }

    #[test]
    fn the_smallest_share_is_one_file() {
        for (spec, files) in [("longtail@2^-13", 1), ("longtail@2^-20", 1), ("lognormal@2^-12", 2)] {
            let totals = plan(spec, 1).totals();
            assert_eq!((totals.files, totals.links), (files, 0), "{spec}");
        }
        let small = plan("longtail@1/40", 1).totals();
        assert!(small.links >= 3 && small.files > 290, "{small:?}");
    }
}
