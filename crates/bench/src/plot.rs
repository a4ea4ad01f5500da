//! Plots as values: what is drawn, written as SVG by this code and as data with a script for gnuplot.
//!
//! Invariants:
//! - The same plot gives the same bytes: no clock, no random ids, figures rounded to a fixed number of digits.
//! - A point that an axis cannot show (not finite; not positive on a logarithmic one) is left out, never moved. The
//!   data file holds it nevertheless.
//! - Published points are always dashed with open marks, so that nobody takes them for measured ones.

mod files;
mod gnuplot;
mod normalise;
mod scale;
mod svg;

pub use normalise::{PLATEAU_BYTES_MIN, Reference, normalised};
pub(crate) use svg::{escaped, is_drawn_here};

#[derive(Clone, PartialEq, Debug)]
pub struct Plot {
    /// Stem of its files.
    pub name: String,
    pub title: String,
    /// What a reader must know to judge it, shown below; may be empty.
    pub note: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    pub label: String,
    pub scale: Scale,
    pub unit: Unit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    Linear,
    Log2,
    Log10,
}

/// How the numbers at the ticks are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    Number,
    /// 1 KiB, 32 KiB, 1 MiB.
    Bytes,
    Milliseconds,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    pub name: String,
    pub kind: Kind,
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Of our program: full lines and marks. The n-th one has the colour of the n-th published one.
    Measured,
    /// Of other programs in the same run: thinner lines, colours of their own.
    Rival,
    /// From a publication: dashed, open marks.
    Published,
    /// What cannot be exceeded: thin and grey, without marks. One with a single point is drawn across the whole plot.
    Bound,
}

/// `y_min` and `y_max` are the ends of the error bar; both equal `y` where there is no spread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    pub y_min: f64,
    pub y_max: f64,
}

impl Point {
    /// Without a spread.
    pub fn at(x: f64, y: f64) -> Point {
        Point { x, y, y_min: y, y_max: y }
    }
}

impl Axis {
    pub fn new(label: impl Into<String>, scale: Scale, unit: Unit) -> Axis {
        Axis { label: label.into(), scale, unit }
    }
}

impl Plot {
    /// Where points are; not that of a bound across the whole plot, which stands nowhere.
    fn xs(&self) -> impl Iterator<Item = f64> {
        let is_across = |series: &&Series| series.kind == Kind::Bound && series.points.len() == 1;
        self.series.iter().filter(move |s| !is_across(s)).flat_map(|s| self.shown(s)).map(|point| point.x)
    }

    /// The points that both axes can show.
    fn shown(&self, series: &Series) -> Vec<Point> {
        let can_show = |axis: &Axis, value: f64| value.is_finite() && (axis.scale == Scale::Linear || value > 0.0);
        series.points.iter().copied().filter(|p| can_show(&self.x, p.x) && can_show(&self.y, p.y)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        Plot {
            name: "rates".into(),
            title: "Rate <of> files & more".into(),
            note: "it's a note".into(),
            x: Axis::new("file size", Scale::Log2, Unit::Bytes),
            y: Axis::new("Gbit/s", Scale::Linear, Unit::Number),
            series: vec![
                Series {
                    name: "thalweg".into(),
                    kind: Kind::Measured,
                    points: vec![
                        Point { x: 1024.0, y: 1.0, y_min: 0.9, y_max: 1.2 },
                        Point::at(1_048_576.0, 9.0),
                        Point::at(0.0, 3.0),
                        Point::at(2048.0, f64::NAN),
                    ],
                },
                Series { name: "other's".into(), kind: Kind::Published, points: vec![Point::at(1024.0, 2.0)] },
                Series { name: "link".into(), kind: Kind::Bound, points: vec![Point::at(1024.0, 10.0)] },
            ],
        }
    }

    #[test]
    fn a_drawing_is_escaped_repeatable_and_leaves_out_what_an_axis_cannot_show() {
        let svg = plot().svg();
        assert_eq!(svg, plot().svg());
        assert!(svg.contains("Rate &lt;of&gt; files &amp; more") && !svg.contains("NaN") && !svg.contains("inf"));
        // Two measured points, one published one, one mark of each of the two in the legend; a bound has none.
        assert_eq!(svg.matches("class=\"mark").count(), 2 + 1 + 2);
        assert!(svg.contains(">1 KiB<") && svg.contains(">1 MiB<"));
    }

    #[test]
    fn the_data_file_holds_every_point_and_the_script_names_every_series() {
        let (script, data) = plot().gnuplot();
        assert!(data.contains("1024 1 0.9 1.2\n") && data.contains("0 3 3 3\n") && data.contains("2048 NaN NaN NaN\n"));
        assert!(
            script.contains("'rates.dat'") && script.contains("title 'other''s'") && script.contains("it''s a note")
        );
    }

    #[test]
    fn files_are_written_beside_each_other_and_a_name_cannot_leave_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        plot().write(&dir.path().join("plots")).unwrap();
        let mut names: Vec<_> =
            std::fs::read_dir(dir.path().join("plots")).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["rates.dat", "rates.gp", "rates.svg"]);
        assert!(Plot { name: "../rates".into(), ..plot() }.write(dir.path()).is_err());
    }

    #[test]
    fn a_plot_without_points_is_drawn_too() {
        let empty = Plot { series: Vec::new(), ..plot() };
        assert!(empty.svg().contains("no points"));
        assert!(empty.gnuplot().0.contains("plot "));
    }
}
