//! The Adler-32 of a file that is sent in pieces, in any order.

use model::adler32::combine;
use std::collections::BTreeMap;

/// Pieces by their starts, with their ends; neighbours are one.
#[derive(Default)]
pub struct Sums(BTreeMap<u64, (u64, u32)>);

impl Sums {
    pub fn add(&mut self, offset: u64, bytes: &[u8]) {
        let (mut start, mut end, mut sum) = (offset, offset + bytes.len() as u64, super::sending::adler(bytes));
        // What was written again does not stand beside what it was.
        self.0.retain(|from, (to, _)| *to <= start || *from >= end);
        let before = self.0.range(..start).next_back().map(|(from, (to, first))| (*from, *to, *first));
        if let Some((from, _, first)) = before.filter(|(_, to, _)| *to == start) {
            self.0.remove(&from);
            sum = combine(first, sum, end - start);
            start = from;
        }
        if let Some((to, second)) = self.0.remove(&end) {
            sum = combine(sum, second, to - end);
            end = to;
        }
        self.0.insert(start, (end, sum));
    }

    /// As `add`, of what was found there: what was sent of it is known already.
    pub fn add_found(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        let last = self.0.range(..end).next_back();
        if !bytes.is_empty() && last.is_none_or(|(_, (to, _))| *to <= offset) {
            self.add(offset, bytes);
        }
    }

    /// Of a whole file, once all of it was added.
    pub fn of_all(&self, size_bytes: u64) -> Option<u32> {
        match size_bytes {
            0 => Some(1),
            _ => self.0.get(&0).filter(|(end, _)| *end == size_bytes).map(|(_, sum)| *sum),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_make_the_sum_of_the_whole() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at * 7 % 251) as u8).collect();
        let mut sums = Sums::default();
        for (at, end) in [(100_000, 165_521), (0, 1), (165_521, 300_000), (1, 100_000)] {
            assert_eq!(sums.of_all(300_000), None);
            sums.add(at as u64, &bytes[at..end]);
        }
        assert_eq!(sums.of_all(300_000), Some(super::super::sending::adler(&bytes)));
        assert_eq!(sums.of_all(299_999), None);
        sums.add_found(5, b"read back");
        assert_eq!(sums.of_all(300_000), Some(super::super::sending::adler(&bytes)));
        sums.add(5, b"written again");
        assert_eq!(sums.of_all(300_000), None);
        assert_eq!(Sums::default().of_all(0), Some(1));
        let mut sums = Sums::default();
        sums.add_found(0, &bytes[..1000]);
        sums.add(1000, &bytes[1000..]);
        assert_eq!(sums.of_all(300_000), Some(super::super::sending::adler(&bytes)));
    }
}
