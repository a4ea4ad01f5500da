//! Machines of very different speed on one plot: each curve in units of its own plateau and its own file rate.
//!
//! With the plateau P in bits per second and F files per second, s* = P / 8F is the size at which the two limits meet:
//! x = s / s*, y = rate / P. The roof min(P, 8 s F) becomes min(1, x) for everybody.

use super::{Axis, Kind, Plot, Point, Scale, Series, Unit};

/// File sizes from here on make the plateau unless the caller knows better, as in the published averages.
pub const PLATEAU_BYTES_MIN: f64 = 4_194_304.0;

/// The two limits of a curve.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reference {
    pub plateau_gbit_per_second: f64,
    pub files_per_second: f64,
}

impl Reference {
    /// From a curve of rate over file size itself: the mean of the large sizes, and the most files per second anywhere.
    /// None if no point is large enough. Better: the ceilings measured alone.
    pub fn of_curve(points: &[Point], plateau_bytes_min: f64) -> Option<Reference> {
        let usable = || points.iter().filter(|point| point.x > 0.0 && point.y.is_finite() && point.y > 0.0);
        let large: Vec<f64> = usable().filter(|point| point.x >= plateau_bytes_min).map(|point| point.y).collect();
        let files_per_second = usable().map(|point| point.y * 1e9 / 8.0 / point.x).fold(0.0, f64::max);
        let plateau_gbit_per_second = large.iter().sum::<f64>() / large.len() as f64;
        (!large.is_empty()).then_some(Reference { plateau_gbit_per_second, files_per_second })
    }

    /// The file size at which both limits meet.
    pub fn knee_bytes(&self) -> f64 {
        self.plateau_gbit_per_second * 1e9 / (8.0 * self.files_per_second)
    }

    /// The rate at a file size that none can exceed, in Gbit/s.
    pub fn roof_gbit_per_second(&self, file_bytes: f64) -> f64 {
        self.plateau_gbit_per_second.min(8.0 * file_bytes * self.files_per_second / 1e9)
    }
}

/// The plot of Gbit/s over file size in relative units, with the roof as a bound. A series without a reference, and
/// every bound, is left out.
pub fn normalised(plot: &Plot, reference: impl Fn(&Series) -> Option<Reference>) -> Plot {
    let mut series = Vec::new();
    for of in plot.series.iter().filter(|series| series.kind != Kind::Bound) {
        let Some(reference) = reference(of) else { continue };
        let (knee, plateau) = (reference.knee_bytes(), reference.plateau_gbit_per_second);
        let relative = |point: &Point| Point {
            x: point.x / knee,
            y: point.y / plateau,
            y_min: point.y_min / plateau,
            y_max: point.y_max / plateau,
        };
        series.push(Series { points: of.points.iter().map(relative).collect(), ..of.clone() });
    }
    let xs = || series.iter().flat_map(|series| series.points.iter().map(|point| point.x));
    let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(0.0, f64::max));
    if low.is_finite() && low > 0.0 {
        // A straight line is bent on this axis: enough points to draw it round.
        let first = (low.min(1.0).log2() * 4.0).floor().max(-256.0) as i32;
        let mut points: Vec<Point> =
            (first..=0).map(|quarter| (f64::from(quarter) / 4.0).exp2()).map(|x| Point::at(x, x)).collect();
        points.push(Point::at(high.max(1.0), 1.0));
        series.push(Series { name: "roof".into(), kind: Kind::Bound, points });
    }
    let explained = "x = file size / (plateau / (8 x files per second)), y = rate / plateau, each curve by its own.";
    Plot {
        name: format!("{}-normalised", plot.name),
        title: format!("{}, normalised", plot.title),
        note: if plot.note.is_empty() { explained.into() } else { format!("{explained} {}", plot.note) },
        x: Axis::new("file size / size at which both limits meet", Scale::Log2, Unit::Number),
        y: Axis::new("rate / plateau", Scale::Linear, Unit::Number),
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published;

    #[test]
    fn published_curves_have_the_knee_that_their_averages_say() {
        let curve = &published::bulk_lab()[0];
        let reference = Reference::of_curve(&curve.points, PLATEAU_BYTES_MIN).unwrap();
        assert!((reference.plateau_gbit_per_second - 96.68).abs() < 0.01);
        assert!((reference.files_per_second - 39_001.0).abs() < 10.0);
        assert!((reference.roof_gbit_per_second(1024.0) - 0.3195).abs() < 1e-3);
    }

    #[test]
    fn curves_of_machines_a_hundred_times_apart_fall_on_each_other() {
        let [fast, ..] = published::bulk_lab();
        let slow =
            fast.points.iter().map(|p| Point { y: p.y / 100.0, y_min: p.y_min / 100.0, y_max: p.y_max / 100.0, ..*p });
        let slow = Series { name: "slow".into(), kind: Kind::Measured, points: slow.collect() };
        let plot = Plot {
            name: "bulk".into(),
            title: "Bulk".into(),
            note: String::new(),
            x: Axis::new("file size", Scale::Log2, Unit::Bytes),
            y: Axis::new("Gbit/s", Scale::Linear, Unit::Number),
            series: vec![fast, slow],
        };
        let relative = normalised(&plot, |series| Reference::of_curve(&series.points, PLATEAU_BYTES_MIN));
        assert_eq!((relative.name.as_str(), relative.series.len()), ("bulk-normalised", 3));
        for (a, b) in relative.series[0].points.iter().zip(&relative.series[1].points) {
            assert!((a.x - b.x).abs() < 1e-9 * a.x && (a.y - b.y).abs() < 1e-9);
        }
        assert_eq!(relative.series[2].kind, Kind::Bound);
        assert!(normalised(&plot, |_| None).series.is_empty());
    }
}
