//! Byte ranges of an object, and sets of them.
//!
//! Invariant of `ExtentSet`: extents are sorted, not empty, disjoint and not adjacent.

use std::fmt;

/// Half-open byte range `start..end` of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    pub start: u64,
    pub end: u64,
}

impl Extent {
    pub fn new(start: u64, end: u64) -> Extent {
        assert!(start <= end, "extent {start}..{end} runs backwards");
        Extent { start, end }
    }

    /// `None` when start + length overflows: peers send lengths.
    pub fn from_length(start: u64, length: u64) -> Option<Extent> {
        Some(Extent { start, end: start.checked_add(length)? })
    }

    pub fn length(&self) -> u64 {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExtentSet {
    extents: Vec<Extent>,
}

impl ExtentSet {
    pub fn new() -> ExtentSet {
        ExtentSet::default()
    }

    /// Adds an extent; false when any byte of it was there already (nothing changes then).
    pub fn insert(&mut self, extent: Extent) -> bool {
        if extent.is_empty() {
            return true;
        }
        let at = self.extents.partition_point(|e| e.end < extent.start);
        let mut merged = extent;
        let mut end = at;
        for held in &self.extents[at..] {
            if held.start > extent.end {
                break;
            }
            if held.start < extent.end && extent.start < held.end {
                return false;
            }
            merged.start = merged.start.min(held.start);
            merged.end = merged.end.max(held.end);
            end += 1;
        }
        self.extents.splice(at..end, [merged]);
        true
    }

    /// Takes every byte of an extent out.
    pub fn remove(&mut self, extent: Extent) {
        if extent.is_empty() {
            return;
        }
        let kept = |held: Extent| {
            let before = Extent::new(held.start, held.end.min(extent.start).max(held.start));
            let after = Extent::new(held.start.max(extent.end).min(held.end), held.end);
            [before, after].into_iter().filter(|part| !part.is_empty())
        };
        self.extents = self.extents.drain(..).flat_map(kept).collect();
    }

    pub fn contains(&self, extent: Extent) -> bool {
        let at = self.extents.partition_point(|e| e.end <= extent.start);
        extent.is_empty() || self.extents.get(at).is_some_and(|e| e.start <= extent.start && extent.end <= e.end)
    }

    /// True when any byte of the extent is there.
    pub fn overlaps(&self, extent: Extent) -> bool {
        let at = self.extents.partition_point(|e| e.end <= extent.start);
        !extent.is_empty() && self.extents.get(at).is_some_and(|e| e.start < extent.end)
    }

    pub fn length(&self) -> u64 {
        self.extents.iter().map(Extent::length).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.extents.iter().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// True when every byte of `0..size` is covered.
    pub fn covers(&self, size: u64) -> bool {
        self.contains(Extent::new(0, size))
    }

    /// What is missing of `0..size`, in order.
    pub fn gaps(&self, size: u64) -> Vec<Extent> {
        let mut gaps = Vec::new();
        let mut from = 0;
        for e in &self.extents {
            if e.start >= size {
                break;
            }
            if from < e.start {
                gaps.push(Extent::new(from, e.start));
            }
            from = e.end;
        }
        if from < size {
            gaps.push(Extent::new(from, size));
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn set_agrees_with_a_bitmap(steps in prop::collection::vec((0u64..64, 0u64..16, any::<bool>()), 0..40)) {
            let mut set = ExtentSet::new();
            let mut bits = [false; 96];
            for (start, length, is_kept) in steps {
                let extent = Extent::from_length(start, length).unwrap();
                let range = start as usize..(start + length) as usize;
                let free = bits[range.clone()].iter().all(|b| !b);
                prop_assert_eq!(set.overlaps(extent), !free);
                prop_assert_eq!(set.insert(extent), free);
                if free {
                    bits[range.clone()].fill(true);
                }
                if !is_kept {
                    set.remove(extent);
                    bits[range.clone()].fill(false);
                }
                prop_assert_eq!(set.contains(extent), bits[range].iter().all(|b| *b));
            }
            prop_assert_eq!(set.length(), bits.iter().filter(|b| **b).count() as u64);
            let missing: u64 = set.gaps(96).iter().map(Extent::length).sum();
            prop_assert_eq!(missing, 96 - set.length());
            let held: Vec<_> = set.iter().collect();
            prop_assert!(held.windows(2).all(|w| w[0].end < w[1].start));
        }
    }

    #[test]
    fn lengths_from_a_peer_cannot_overflow() {
        assert_eq!(Extent::from_length(u64::MAX, 1), None);
        assert!(ExtentSet::new().covers(0));
    }
}
