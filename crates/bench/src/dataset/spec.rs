//! From a specification such as `large,bulk:1024x1GiB@2^-10` to the plan it means.
//!
//! A specification is one or more parts with commas between. A part is `NxSIZE` or a name, then for a sweep `:` and which
//! of its sets, then `*N` for N times as many files, then `@` and a scale.

use model::quantity::parse_bytes;

use super::plan::{Group, Layout, Plan, Sizes};
use super::preset::{self, Part, Shape};
use super::scale::Scale;
use super::tree::Tree;
use crate::error::{Error, Result};

/// Bounds the specification, not the machine: above it a typing error is more likely than an intention.
const FILES_MAX: u64 = 1_000_000_000;

impl Plan {
    /// Reads a specification.
    pub fn parse(spec: &str, per_dir: u64, seed: u64) -> Result<Plan> {
        Plan::parse_scaled(spec, per_dir, seed, 1, Scale::WHOLE)
    }

    /// Reads a specification; every part of it is repeated and scaled.
    pub fn parse_scaled(spec: &str, per_dir: u64, seed: u64, repeat: u64, scale: Scale) -> Result<Plan> {
        if per_dir == 0 {
            return Err(Error::usage("the number of files per directory", "must be at least 1"));
        }
        let mut groups = Vec::new();
        let texts: Vec<&str> = spec.split(',').map(str::trim).collect();
        for text in &texts {
            let item = Item::parse(text, repeat, scale)?;
            let first = groups.len() as u64;
            groups.extend(item.groups(texts.len() == 1, seed, first)?);
        }
        let mut folders: Vec<&str> = groups.iter().map(|group: &Group| group.folder.as_str()).collect();
        folders.sort_unstable();
        if folders.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::usage(format!("data set {spec:?}"), "names the same set twice"));
        }
        Ok(Plan { groups, per_dir, seed })
    }
}

/// One part of a specification, taken apart.
struct Item<'a> {
    text: &'a str,
    name: &'a str,
    /// Which sets of a sweep.
    selection: Option<&'a str>,
    repeat: u64,
    scale: Scale,
}

impl<'a> Item<'a> {
    fn parse(text: &'a str, repeat: u64, scale: Scale) -> Result<Item<'a>> {
        let (rest, own_scale) = match text.split_once('@') {
            Some((rest, own)) => (rest, Scale::parse(own)?),
            None => (text, Scale::WHOLE),
        };
        let scale = scale.and(own_scale).ok_or_else(|| refused(text, "the scale is too small"))?;
        let (rest, own_repeat) = match rest.split_once('*') {
            Some((rest, own)) => {
                (rest, own.trim().parse().map_err(|_| refused(text, "what follows * is not a number"))?)
            }
            None => (rest, 1),
        };
        let repeat = repeat.checked_mul(own_repeat).filter(|repeat| (1..=FILES_MAX).contains(repeat));
        let repeat = repeat.ok_or_else(|| refused(text, "the repeat count must be between 1 and 1,000,000,000"))?;
        let (name, selection) = match rest.split_once(':') {
            Some((name, selection)) => (name.trim(), Some(selection.trim())),
            None => (rest.trim(), None),
        };
        Ok(Item { text, name, selection, repeat, scale })
    }

    /// `first` is the number that the plan gives the first of the groups.
    fn groups(&self, is_alone: bool, seed: u64, first: u64) -> Result<Vec<Group>> {
        let (parts, is_sweep) = self.parts()?;
        let mut groups = Vec::with_capacity(parts.len());
        for (number, part) in (first..).zip(parts) {
            let outer = if is_alone { "" } else { self.name };
            let separator = if outer.is_empty() || part.folder.is_empty() { "" } else { "/" };
            let set = if is_sweep { format!("{}:{}", self.name, part.folder) } else { self.name.to_owned() };
            let folder = format!("{outer}{separator}{}", part.folder);
            let (files, shrink) = self.scaled(&part)?;
            let layout = match part.shape {
                Shape::Numbered(sizes) => Layout::Numbered(sizes),
                Shape::Tree => Layout::Tree(Tree::new(seed, number, files)),
            };
            groups.push(Group { set, folder, files, layout, shrink });
        }
        Ok(groups)
    }

    /// Whole rounds of the sizes as long as one is left, then smaller files: how many, and what share of their size.
    fn scaled(&self, part: &Part) -> Result<(u64, Scale)> {
        let files = part.files.checked_mul(self.repeat).filter(|files| *files <= FILES_MAX);
        let files = files.ok_or_else(|| refused(self.text, "more than 1,000,000,000 files"))?;
        let round_files = match &part.shape {
            Shape::Numbered(Sizes::Cycle(sizes)) => sizes.len() as u64,
            _ => 1,
        };
        let rounds = files / round_files;
        match self.scale.of(rounds) {
            0 => {
                let shrink = self.scale.of_less_than_one(rounds);
                Ok((round_files, shrink.ok_or_else(|| refused(self.text, "the scale is too small"))?))
            }
            left => Ok((left * round_files, Scale::WHOLE)),
        }
    }

    fn parts(&self) -> Result<(Vec<Part>, bool)> {
        if let Some(sets) = preset::sweep(self.name) {
            return Ok((self.selected(sets)?, true));
        }
        if self.selection.is_some() {
            return Err(refused(self.text, "only bulk and streaming have sets to select"));
        }
        if let Some(parts) = preset::named(self.name) {
            return Ok((parts, false));
        }
        let (files, bytes) = parse_count_and_size(self.name)?;
        Ok((vec![Part::numbered("", files, Sizes::Fixed(bytes))], false))
    }

    /// `1024x1GiB`, `1GiB`, or `1KiB..1MiB` with both ends.
    fn selected(&self, sets: Vec<Part>) -> Result<Vec<Part>> {
        let Some(selection) = self.selection else { return Ok(sets) };
        let size = |text: &str| parse_bytes(text.trim()).map_err(|cause| refused(self.text, &cause));
        let (files, range) = if let Some((first, last)) = selection.split_once("..") {
            (None, size(first)?..=size(last)?)
        } else if selection.contains('x') {
            let (files, bytes) = parse_count_and_size(selection)?;
            (Some(files), bytes..=bytes)
        } else {
            let bytes = size(selection)?;
            (None, bytes..=bytes)
        };
        let is_selected = |part: &Part| {
            let is_size = matches!(part.shape, Shape::Numbered(Sizes::Fixed(bytes)) if range.contains(&bytes));
            is_size && files.is_none_or(|files| files == part.files)
        };
        let sets: Vec<Part> = sets.into_iter().filter(is_selected).collect();
        if sets.is_empty() {
            return Err(refused(self.text, "the sweep has no such set; `thalweg gen bulk DIR --dry-run` lists them"));
        }
        Ok(sets)
    }
}

fn parse_count_and_size(part: &str) -> Result<(u64, u64)> {
    let (count, size) = part.split_once('x').ok_or_else(|| {
        refused(part, &format!("neither {} nor of the form NxSIZE, such as 50000x1KiB", preset::NAMES))
    })?;
    let count = count.trim().replace('_', "").parse();
    let count: u64 = count.map_err(|_| refused(part, "the part before x is not a number"))?;
    if count == 0 || count > FILES_MAX {
        return Err(refused(part, "the number of files must be between 1 and 1,000,000,000"));
    }
    let bytes = parse_bytes(size.trim()).map_err(|cause| refused(part, &cause))?;
    Ok((count, bytes))
}

fn refused(part: &str, cause: &str) -> Error {
    Error::usage(format!("data set {part:?}"), cause)
}

#[cfg(test)]
mod tests {
    use model::quantity::{GIB, MIB};

    use super::*;
    use crate::dataset::Totals;

    const KIB: u64 = 1 << 10;

    fn plan(spec: &str) -> Plan {
        Plan::parse(spec, 1_000, 1).unwrap()
    }

    fn totals(spec: &str) -> Totals {
        plan(spec).totals()
    }

    fn sizes(spec: &str) -> Vec<u64> {
        let plan = plan(spec);
        assert_eq!(plan.groups.len(), 1);
        (0..plan.groups[0].files).map(|file| plan.file_bytes(0, file)).collect()
    }

    #[test]
    fn named_sets_have_their_published_counts_and_sizes() {
        assert_eq!((totals("large").files, totals("large").bytes), (4, 4 * GIB));
        let small = totals("small");
        assert_eq!((small.files, small.bytes, small.directories), (2_500, 250 * 8 * KIB * 1_023, 3));
        let tiny = totals("tiny");
        assert_eq!((tiny.files, tiny.bytes, tiny.directories), (50_000, 50_000 * KIB, 50));
        let mixed = totals("mixed");
        assert_eq!((mixed.files, mixed.directories), (21_002, 3 + 20));
        assert!((1.05..1.3).contains(&(mixed.bytes as f64 / GIB as f64)), "{}", mixed.bytes);
    }

    #[test]
    fn the_three_sets_of_21_sizes_are_the_published_lists() {
        assert_eq!(sizes("s4-large"), [2, 4, 8].map(|n| n * GIB));
        assert_eq!(sizes("s4-medium"), [8, 16, 32, 64, 128, 256, 512, 1024].map(|n| n * MIB));
        assert_eq!(sizes("s4-small"), [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096].map(|n| n * KIB));
        assert_eq!(sizes("medium"), sizes("s4-medium"));
        assert_eq!(sizes("small"), sizes("s4-small*250"));
        assert_eq!(totals("s4-small*100").bytes, 100 * totals("s4-small").bytes);
    }

    #[test]
    fn the_sets_of_lots_of_small_files_are_decimal() {
        for (name, spec) in [("s1-1mb", "10000x1MB"), ("s1-10mb", "1000x10MB"), ("s1-100mb", "100x100MB")] {
            assert_eq!(totals(name), totals(spec));
            assert_eq!(totals(name).bytes, 10_000_000_000);
        }
    }

    #[test]
    fn counts_and_sizes_with_binary_and_decimal_units_are_read() {
        assert_eq!(totals("3x8KiB").bytes, 3 * 8 * KIB);
        assert_eq!(totals("3x8K").bytes, 3 * 8 * KIB);
        assert_eq!(totals("1_000x8KB").bytes, 8_000_000);
        assert_eq!(totals("2x0").bytes, 0);
    }

    #[test]
    fn several_sets_lie_in_folders_of_their_own() {
        let folders = |spec| plan(spec).groups.into_iter().map(|group| group.folder).collect::<Vec<_>>();
        let found = folders("tiny*2, 3x1MiB,mixed@1/2");
        assert_eq!(found, ["tiny", "3x1MiB", "mixed/large", "mixed/mixed", "mixed/tiny"]);
        assert_eq!(folders("bulk:1GiB"), ["1024x1GiB"]);
        assert_eq!(folders("bulk:1GiB,tiny,bulk:1x1TiB"), ["bulk/1024x1GiB", "tiny", "bulk/1x1TiB"]);
    }

    #[test]
    fn sets_of_a_sweep_are_selected_by_name_size_or_range() {
        let sets = |spec| plan(spec).sets().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(sets("bulk:1048576x64KiB"), ["bulk:1048576x64KiB"]);
        assert_eq!(sets("bulk:64KiB"), ["bulk:1048576x64KiB"]);
        assert_eq!(sets("streaming:256GiB..1TiB"), ["streaming:4x256GiB", "streaming:2x512GiB", "streaming:1x1TiB"]);
        assert_eq!((sets("bulk").len(), sets("streaming").len(), sets("bulk:1KiB..1GiB").len()), (31, 19, 21));
        for spec in ["bulk:", "bulk:3GiB", "bulk:7x1GiB", "bulk:1GiB..1MiB", "streaming:1MiB", "tiny:1KiB", "5x1K:1K"] {
            assert!(Plan::parse(spec, 1_000, 1).is_err(), "{spec}");
        }
    }

    #[test]
    fn a_scale_shrinks_the_count_first_and_the_size_when_one_file_is_left() {
        let scaled = |spec: &str| {
            let plan = plan(spec);
            (plan.groups[0].folder.clone(), plan.groups[0].files, plan.file_bytes(0, 0))
        };
        let is = |folder: &str, files, bytes| (folder.to_owned(), files, bytes);
        assert_eq!(scaled("bulk:1KiB@2^-10"), is("1048576x1KiB", 1_024, KIB));
        assert_eq!(scaled("bulk:1GiB@2^-10"), is("1024x1GiB", 1, GIB));
        assert_eq!(scaled("bulk:1TiB@2^-10"), is("1x1TiB", 1, GIB));
        assert_eq!(scaled("bulk:64GiB@2^-10"), is("16x64GiB", 1, GIB));
        assert_eq!(scaled("5x1KiB@1/2"), is("", 2, KIB));
        assert_eq!(scaled("1x3@2^-10"), is("", 1, 1));
        assert_eq!(scaled("1x0@2^-10"), is("", 1, 0));
        let small = Plan::parse_scaled("medium", 1_000, 1, 2, Scale::parse("1/64").unwrap()).unwrap();
        assert_eq!((small.groups[0].files, small.totals().bytes), (8, 2 * totals("medium").bytes / 64));
    }

    #[test]
    fn a_scaled_sweep_keeps_its_shape() {
        let (whole, part) = (plan("bulk").sets(), plan("bulk@2^-10").sets());
        for ((name, whole), (same, part)) in whole.iter().zip(&part) {
            assert_eq!(name, same);
            assert_eq!(part.bytes, whole.bytes >> 10, "{name}");
            assert_eq!(part.files, (whole.files >> 10).max(1), "{name}");
        }
    }

    #[test]
    fn what_is_not_a_data_set_is_refused_with_a_reason() {
        let wrong = [
            "",
            "huge",
            "x1KiB",
            "0x1KiB",
            "5x",
            "5x1XB",
            "5000000000x1",
            "tiny,tiny",
            "tiny,",
            "tiny*0",
            "tiny*",
            "tiny*x",
            "tiny*100000000",
            "tiny@0",
            "tiny@2",
            "tiny@",
            "tiny@2^-99",
            "tiny,tiny*2",
            "1x1@2^-40@2^-40",
        ];
        for spec in wrong {
            assert_eq!(Plan::parse(spec, 1_000, 1).unwrap_err().kind, crate::error::Kind::Usage, "{spec:?}");
        }
        assert!(Plan::parse("tiny", 0, 1).is_err());
    }

    #[test]
    fn space_counts_whole_blocks() {
        assert_eq!(totals("10x1").space_bytes, 10 * 4096);
    }
}
