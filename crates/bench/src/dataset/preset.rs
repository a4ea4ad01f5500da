//! The named sets: what each of them is made of.
//!
//! The sweeps are those of the published appliance study (31 sets in bulk, 19 for streaming), `s4-*` those of the 100 Gbit/s
//! study between two laboratories (21 sizes in powers of two, one file each, repeated to volume with `*N`), `s1-*` those of
//! the study on lots of small files.

use model::quantity::{GIB, MIB};

use super::plan::Sizes;
use super::tree;

const KIB: u64 = 1 << 10;
const TIB: u64 = 1 << 40;
/// A sweep's set has this many files, or `TIB` in all, whichever is less.
const SWEEP_FILES_MAX: u64 = 1 << 20;
/// The published small set, repeated to 2 GB.
const SMALL_ROUNDS: u64 = 250;

pub const NAMES: &str = "large, medium, small, tiny, mixed, lognormal, longtail, bulk, streaming, \
                         s1-1mb, s1-10mb, s1-100mb, s4-large, s4-medium, s4-small";

/// A part of a named set.
#[derive(Clone, Debug)]
pub struct Part {
    /// Empty if the set needs none.
    pub folder: String,
    pub files: u64,
    pub shape: Shape,
}

#[derive(Clone, Debug)]
pub enum Shape {
    /// Plain names in directories of equal size.
    Numbered(Sizes),
    /// What `tree` lays out.
    Tree,
}

impl Part {
    pub fn numbered(folder: impl Into<String>, files: u64, sizes: Sizes) -> Part {
        Part { folder: folder.into(), files, shape: Shape::Numbered(sizes) }
    }
}

/// What a name stands for; `None` if it is not one.
pub fn named(name: &str) -> Option<Vec<Part>> {
    let fixed = |files, bytes| Part::numbered("", files, Sizes::Fixed(bytes));
    Some(match name {
        "large" => vec![fixed(4, GIB)],
        "medium" => vec![one_of_each(8 * MIB, GIB, 1)],
        "small" => vec![one_of_each(8 * KIB, 4 * MIB, SMALL_ROUNDS)],
        "tiny" => vec![fixed(50_000, KIB)],
        "mixed" => {
            let sizes = Sizes::LogUniform { bytes_min: 8 * KIB, bytes_max: 4 * MIB };
            vec![
                Part::numbered("large", 2, Sizes::Fixed(256 * MIB)),
                Part::numbered("mixed", 1_000, sizes),
                Part::numbered("tiny", 20_000, Sizes::Fixed(KIB)),
            ]
        }
        "lognormal" => vec![Part::numbered("", tree::FILES, Sizes::LogNormal)],
        "longtail" => vec![Part { folder: String::new(), files: tree::FILES + tree::LINKS, shape: Shape::Tree }],
        "s1-1mb" => vec![fixed(10_000, 1_000_000)],
        "s1-10mb" => vec![fixed(1_000, 10_000_000)],
        "s1-100mb" => vec![fixed(100, 100_000_000)],
        "s4-large" => vec![one_of_each(2 * GIB, 8 * GIB, 1)],
        "s4-medium" => vec![one_of_each(8 * MIB, GIB, 1)],
        "s4-small" => vec![one_of_each(8 * KIB, 4 * MIB, 1)],
        _ => return None,
    })
}

/// The sets of a sweep from the smallest files to the largest, each in a folder with its name; `None` if it is no sweep.
pub fn sweep(name: &str) -> Option<Vec<Part>> {
    let bytes_min = match name {
        "bulk" => KIB,
        "streaming" => 4 * MIB,
        _ => return None,
    };
    let sizes = powers_of_two(bytes_min, TIB);
    Some(sizes.map(|bytes| sweep_set(SWEEP_FILES_MAX.min(TIB / bytes), bytes)).collect())
}

fn sweep_set(files: u64, bytes: u64) -> Part {
    let units = [("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)];
    let (unit, unit_bytes) = units.into_iter().find(|(_, unit)| bytes >= *unit).expect("no set is smaller");
    Part::numbered(format!("{files}x{}{unit}", bytes / unit_bytes), files, Sizes::Fixed(bytes))
}

fn one_of_each(bytes_min: u64, bytes_max: u64, rounds: u64) -> Part {
    let sizes: Vec<u64> = powers_of_two(bytes_min, bytes_max).collect();
    Part::numbered("", sizes.len() as u64 * rounds, Sizes::Cycle(sizes))
}

fn powers_of_two(first: u64, last: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(first), |bytes| bytes.checked_mul(2)).take_while(move |bytes| *bytes <= last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(name: &str) -> Vec<String> {
        sweep(name).unwrap().into_iter().map(|part| part.folder).collect()
    }

    #[test]
    fn the_bulk_sweep_is_the_published_list() {
        let published = "1048576x1KiB 1048576x2KiB 1048576x4KiB 1048576x8KiB 1048576x16KiB 1048576x32KiB 1048576x64KiB \
                         1048576x128KiB 1048576x256KiB 1048576x512KiB 1048576x1MiB 524288x2MiB 262144x4MiB 131072x8MiB \
                         65536x16MiB 32768x32MiB 16384x64MiB 8192x128MiB 4096x256MiB 2048x512MiB 1024x1GiB 512x2GiB \
                         256x4GiB 128x8GiB 64x16GiB 32x32GiB 16x64GiB 8x128GiB 4x256GiB 2x512GiB 1x1TiB";
        assert_eq!(folders("bulk"), published.split_whitespace().collect::<Vec<_>>());
        assert_eq!(folders("bulk").len(), 31);
    }

    #[test]
    fn the_streaming_sweep_is_the_published_list() {
        let published = "262144x4MiB 131072x8MiB 65536x16MiB 32768x32MiB 16384x64MiB 8192x128MiB 4096x256MiB 2048x512MiB \
                         1024x1GiB 512x2GiB 256x4GiB 128x8GiB 64x16GiB 32x32GiB 16x64GiB 8x128GiB 4x256GiB 2x512GiB \
                         1x1TiB";
        assert_eq!(folders("streaming"), published.split_whitespace().collect::<Vec<_>>());
        assert_eq!(folders("streaming").len(), 19);
    }

    #[test]
    fn every_listed_name_is_known() {
        for name in NAMES.split(", ") {
            assert!(named(name).is_some() || sweep(name).is_some(), "{name}");
        }
        assert!(named("huge").is_none() && sweep("huge").is_none());
    }
}
