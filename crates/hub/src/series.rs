//! A rate over time in bounded memory: where a series is full, neighbouring points become one, and each then stands for twice the time.

use serde::{Serialize, Serializer};

/// Points of one series.
pub const POINTS_MAX: usize = 600;

/// What was seen at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Point {
    /// Milliseconds since 1970.
    pub at: i64,
    pub files: u64,
    pub bytes: u64,
    pub bytes_per_second: u64,
}

impl Point {
    /// Bytes of its written form.
    const SIZE: usize = 32;

    fn write(self, to: &mut Vec<u8>) {
        for number in [self.at as u64, self.files, self.bytes, self.bytes_per_second] {
            to.extend(number.to_le_bytes());
        }
    }

    fn read(from: &[u8]) -> Option<Point> {
        let number = |at: usize| Some(u64::from_le_bytes(from.get(at..at + 8)?.try_into().ok()?));
        Some(Point { at: number(0)? as i64, files: number(8)?, bytes: number(16)?, bytes_per_second: number(24)? })
    }
}

impl Serialize for Point {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (self.at, self.files, self.bytes, self.bytes_per_second).serialize(to)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Series {
    /// Seconds that a point stands for.
    pub step: u32,
    pub points: Vec<Point>,
    /// Of those since the last point: how many, and their rates together.
    #[serde(skip)]
    since: (u32, u64),
}

impl Default for Series {
    fn default() -> Series {
        Series { step: 1, points: Vec::new(), since: (0, 0) }
    }
}

impl Series {
    /// Takes in what was seen, once a second.
    pub fn push(&mut self, point: Point) {
        self.since = (self.since.0 + 1, self.since.1.saturating_add(point.bytes_per_second));
        if self.since.0 < self.step {
            return;
        }
        let bytes_per_second = self.since.1 / u64::from(self.since.0);
        self.since = (0, 0);
        self.points.push(Point { bytes_per_second, ..point });
        if self.points.len() >= POINTS_MAX {
            let mean = |pair: &[Point]| {
                let rates = pair.iter().map(|point| u128::from(point.bytes_per_second)).sum::<u128>();
                pair.last().map(|last| Point { bytes_per_second: (rates / pair.len() as u128) as u64, ..*last })
            };
            self.points = self.points.chunks(2).filter_map(mean).collect();
            self.step = self.step.saturating_mul(2);
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.points.len() * Point::SIZE);
        self.points.iter().for_each(|point| point.write(&mut bytes));
        bytes
    }

    /// As it was written; nothing where that cannot be.
    pub fn from_bytes(step: u32, bytes: &[u8]) -> Option<Series> {
        let is_whole = step > 0 && bytes.len().is_multiple_of(Point::SIZE) && bytes.len() / Point::SIZE < POINTS_MAX;
        let points: Option<Vec<_>> = bytes.chunks(Point::SIZE).map(Point::read).collect();
        Some(Series { step, points: points.filter(|_| is_whole)?, since: (0, 0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(second: i64, bytes_per_second: u64) -> Point {
        Point { at: second * 1000, bytes_per_second, bytes: second as u64, files: 0 }
    }

    #[test]
    fn a_long_series_keeps_its_mean_and_its_ends_in_few_points() {
        let mut series = Series::default();
        for second in 1..=10_000 {
            series.push(point(second, if second % 2 == 0 { 200 } else { 100 }));
            assert!(series.points.len() < POINTS_MAX);
        }
        assert_eq!(series.step, 32);
        assert!(series.points.iter().skip(1).all(|point| point.bytes_per_second == 150), "{:?}", series.points);
        assert!(series.points.windows(2).all(|pair| pair[1].at - pair[0].at == 32_000));
        let last = series.points.last().unwrap();
        assert!((9_968..=10_000).contains(&last.bytes), "{last:?}");
    }

    #[test]
    fn what_is_written_is_read_and_what_is_not_ours_is_not() {
        let mut series = Series::default();
        (1..50).for_each(|second| series.push(point(second, second as u64)));
        let bytes = series.to_bytes();
        assert_eq!(Series::from_bytes(1, &bytes), Some(series));
        assert_eq!(Series::from_bytes(1, &bytes[1..]), None);
        assert_eq!(Series::from_bytes(0, &bytes), None);
        assert_eq!(Series::from_bytes(1, &vec![0; POINTS_MAX * Point::SIZE]), None);
    }
}
