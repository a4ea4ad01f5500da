//! The same plot for gnuplot, to be changed by hand: a script, and its data as columns `x y y_min y_max`.
//!
//! Series stand in the data file one after the other, two blank lines between them, in the order of the plot.

use std::fmt::Write as _;

use super::scale::Range;
use super::{Axis, Kind, Plot, Scale};

/// Numbers at an axis of the script.
const LABELS_MAX: usize = 12;
/// Line colours, the ones of the drawing on white.
use super::svg::COLOURS_ON_WHITE as COLOURS;

pub fn write(plot: &Plot) -> (String, String) {
    (script(plot), data(plot))
}

fn data(plot: &Plot) -> String {
    let mut text = format!("# {}\n# columns: x y y_min y_max\n", one_line(&plot.title));
    for (index, series) in plot.series.iter().enumerate() {
        let separator = if index == 0 { "" } else { "\n\n" };
        let _ = writeln!(text, "{separator}# {} ({:?})", one_line(&series.name), series.kind);
        for point in &series.points {
            let _ = writeln!(text, "{} {} {} {}", point.x, point.y, point.y_min, point.y_max);
        }
        if series.points.is_empty() {
            // An empty block would shift the numbers of all that follow.
            text += "NaN NaN NaN NaN\n";
        }
    }
    text
}

fn script(plot: &Plot) -> String {
    let name = &plot.name;
    let mut text = format!("# Run as: gnuplot {name}.gp\n");
    let _ = writeln!(text, "set terminal svg noenhanced size 880,560 font 'sans-serif,12' background '#ffffff'");
    let _ = writeln!(text, "set output '{name}.gnuplot.svg'\nset title {}", quoted(&plot.title));
    let _ = writeln!(text, "set grid lc rgb '#dddddd'\nset key below\nset datafile missing 'NaN'");
    if !plot.note.is_empty() {
        let _ = writeln!(text, "set label 1 {} at screen 0.01,0.975 font ',8'\nset tmargin 5", quoted(&plot.note));
    }
    let ys = plot.series.iter().flat_map(|s| s.points.iter().flat_map(|p| [p.y, p.y_min, p.y_max]));
    let x = Range::of(&plot.x, plot.xs(), false, LABELS_MAX);
    axis(&mut text, 'x', &plot.x, &x);
    axis(&mut text, 'y', &plot.y, &Range::of(&plot.y, ys, true, LABELS_MAX));
    text += &curves(plot, &x);
    text
}

fn axis(text: &mut String, letter: char, axis: &Axis, range: &Range) {
    let _ = writeln!(text, "set {letter}label {}", quoted(&axis.label));
    let _ = writeln!(text, "set {letter}range [{}:{}]", range.low, range.high);
    match axis.scale {
        Scale::Linear => {}
        Scale::Log2 => _ = writeln!(text, "set logscale {letter} 2"),
        Scale::Log10 => _ = writeln!(text, "set logscale {letter} 10"),
    }
    let ticks = range.ticks(LABELS_MAX).into_iter().filter(|tick| !tick.label.is_empty());
    let ticks: Vec<_> = ticks.map(|tick| format!("{} {}", quoted(&tick.label), tick.value)).collect();
    let _ = writeln!(text, "set {letter}tics ({})", ticks.join(", "));
}

fn curves(plot: &Plot, x: &Range) -> String {
    let mut curves = Vec::new();
    let colours = plot.colours();
    for (index, series) in plot.series.iter().enumerate() {
        let (from, title) = (format!("'{}.dat' index {index}", plot.name), quoted(&series.name));
        let colour = colours[index].map_or("#8a8f98", |colour| COLOURS[colour % COLOURS.len()]);
        // Filled and open marks of gnuplot come in pairs.
        let mark = colours[index].unwrap_or(0) % 5 * 2 + 4;
        let look = format!("lc rgb '{colour}'");
        match series.kind {
            Kind::Bound => match series.points[..] {
                [point] => {
                    curves.push(format!("[{}:{}] {} with lines {look} lw 1 dt 3 title {title}", x.low, x.high, point.y))
                }
                _ => curves.push(format!("{from} using 1:2 with lines {look} lw 1 title {title}")),
            },
            Kind::Measured | Kind::Rival => {
                let width = if series.kind == Kind::Measured { 2.2 } else { 1.4 };
                curves
                    .push(format!("{from} using 1:2 with linespoints {look} lw {width} pt {} title {title}", mark + 1));
            }
            Kind::Published => {
                curves.push(format!("{from} using 1:2 with linespoints {look} lw 1.4 dt 2 pt {mark} title {title}"));
            }
        }
        if series.points.iter().any(|point| point.y_min != point.y_max) && series.kind != Kind::Bound {
            curves.push(format!("{from} using 1:2:3:4 with yerrorbars {look} pt 0 notitle"));
        }
    }
    if curves.is_empty() {
        return "plot NaN notitle\n".into();
    }
    format!("plot \\\n  {}\n", curves.join(", \\\n  "))
}

/// Text between single quotes, in which only they are special.
fn quoted(text: &str) -> String {
    format!("'{}'", one_line(text).replace('\'', "''"))
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
