//! The drawing: text of an SVG, with a style sheet of its own and no script.
//!
//! Invariants:
//! - Coordinates have one digit after the point; nothing depends on fonts of this machine: widths are estimated.
//! - Class names begin with `tw-`, ids with the plot's name, so that several drawings can stand in one page.

use std::fmt::Write as _;

use super::scale::{Range, number, shown};
use super::{Kind, Plot, Point, Series};

/// Apart for people who see no red or no green, and at least three times as dark as white. Marks differ as well.
pub const COLOURS_ON_WHITE: [&str; 8] =
    ["#0b62a8", "#c8500a", "#0a7d5a", "#a3418a", "#8a6d00", "#4a54c9", "#7a4a1e", "#4f6272"];
const COLOURS_ON_BLACK: [&str; 8] =
    ["#6cb6ff", "#ff9d5c", "#4fd1a5", "#e79ad3", "#dfc04f", "#a5abff", "#d6a781", "#a9bac7"];

/// How every drawing begins.
const OPENING: &str = r#"<svg xmlns="http://www.w3.org/2000/svg" class="tw-plot""#;
const WIDTH: f64 = 880.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 74.0;
const BOTTOM: f64 = 420.0;
const LEGEND_TOP: f64 = BOTTOM + 64.0;
const LINE_HEIGHT: f64 = 20.0;
/// Of text of 12 pixels, a little more than most fonts need.
const LETTER_WIDTH: f64 = 6.7;
const X_LABELS_MAX: usize = 12;
const Y_LABELS_MAX: usize = 8;

pub fn draw(plot: &Plot) -> String {
    let points: Vec<Vec<Point>> = plot.series.iter().map(|series| plot.shown(series)).collect();
    let xs = plot.xs();
    let ys = points.iter().flatten().flat_map(|point| [point.y, point.y_min, point.y_max]);
    let frame = Frame {
        x: Range::of(&plot.x, xs, false, X_LABELS_MAX),
        y: Range::of(&plot.y, ys, true, Y_LABELS_MAX),
        plot,
        colours: plot.colours(),
    };
    let (legend, legend_bottom) = frame.legend();
    let note = wrapped(&plot.note, ((WIDTH - 40.0) / (LETTER_WIDTH * 0.92)) as usize);
    let note_top = legend_bottom + 6.0;
    let height = note_top + note.len() as f64 * 16.0 + 14.0;
    let mut text = frame.head(height);
    text += &frame.axes();
    let _ = writeln!(text, r#"<g clip-path="url(#{}-area)">"#, escaped(&plot.name));
    // Ours last, so that it lies on top.
    for kind in [Kind::Bound, Kind::Published, Kind::Rival, Kind::Measured] {
        for (index, series) in plot.series.iter().enumerate().filter(|(_, series)| series.kind == kind) {
            text += &frame.curve(index, series, &points[index]);
        }
    }
    text += "</g>\n";
    if points.iter().all(Vec::is_empty) {
        let (x, y) = ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0);
        let _ = writeln!(text, r#"<text class="tw-small" x="{x:.1}" y="{y:.1}" text-anchor="middle">no points</text>"#);
    }
    text += &legend;
    for (index, line) in note.iter().enumerate() {
        let y = note_top + 10.0 + index as f64 * 16.0;
        let _ = writeln!(text, r#"<text class="tw-small" x="20" y="{y:.1}">{}</text>"#, escaped(line));
    }
    text + "</svg>\n"
}

/// Whether this code made a drawing.
pub fn is_drawn_here(text: &str) -> bool {
    text.starts_with(OPENING)
}

struct Frame<'a> {
    plot: &'a Plot,
    x: Range,
    y: Range,
    colours: Vec<Option<usize>>,
}

impl Frame<'_> {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let y = self.y.part(y).clamp(-1.0, 2.0);
        (LEFT + self.x.part(x) * (RIGHT - LEFT), BOTTOM - y * (BOTTOM - TOP))
    }

    fn head(&self, height: f64) -> String {
        let Plot { name, title, note, .. } = self.plot;
        let (name, title, note) = (escaped(name), escaped(title), escaped(note));
        let (width, clip_width, clip_height) = (WIDTH, RIGHT - LEFT + 12.0, BOTTOM - TOP + 12.0);
        format!(
            r##"{OPENING} viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}" role="img" aria-labelledby="{name}-title {name}-note">
<title id="{name}-title">{title}</title>
<desc id="{name}-note">{note}</desc>
<style>{style}</style>
<clipPath id="{name}-area"><rect x="{x:.1}" y="{y:.1}" width="{clip_width:.1}" height="{clip_height:.1}"/></clipPath>
<rect class="tw-paper" width="{width:.0}" height="{height:.0}"/>
<text class="tw-title" x="20" y="30">{title}</text>
"##,
            style = style(),
            x = LEFT - 6.0,
            y = TOP - 6.0,
        )
    }

    fn axes(&self) -> String {
        let mut text = String::new();
        let (mut lines, mut labels) = (String::new(), String::new());
        for tick in self.y.ticks(Y_LABELS_MAX) {
            let (_, y) = self.at(self.x.low, tick.value);
            let _ = write!(lines, "M{LEFT:.1} {y:.1}H{RIGHT:.1}");
            if !tick.label.is_empty() {
                let (x, y) = (LEFT - 9.0, y + 4.0);
                let label = escaped(&tick.label);
                let _ =
                    writeln!(labels, r#"<text class="tw-tick" x="{x:.1}" y="{y:.1}" text-anchor="end">{label}</text>"#);
            }
        }
        for tick in self.x.ticks(X_LABELS_MAX) {
            let (x, _) = self.at(tick.value, self.y.low);
            let _ = write!(lines, "M{x:.1} {TOP:.1}V{BOTTOM:.1}");
            if !tick.label.is_empty() {
                let (y, label) = (BOTTOM + 20.0, escaped(&tick.label));
                let _ = writeln!(
                    labels,
                    r#"<text class="tw-tick" x="{x:.1}" y="{y:.1}" text-anchor="middle">{label}</text>"#
                );
            }
        }
        let _ = writeln!(text, r#"<path class="tw-grid" d="{lines}"/>"#);
        let _ = writeln!(text, r#"<path class="tw-axis" d="M{LEFT:.1} {TOP:.1}V{BOTTOM:.1}H{RIGHT:.1}"/>"#);
        let (middle, below) = ((LEFT + RIGHT) / 2.0, BOTTOM + 44.0);
        let _ = write!(
            text,
            "{labels}<text class=\"tw-label\" x=\"20\" y=\"{:.1}\">{}</text>\n\
             <text class=\"tw-label\" x=\"{middle:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{}</text>\n",
            TOP - 20.0,
            escaped(&self.plot.y.label),
            escaped(&self.plot.x.label)
        );
        text
    }

    fn curve(&self, index: usize, series: &Series, points: &[Point]) -> String {
        let class = self.class(index, series.kind);
        let mut text = format!("<g class=\"{class}\">\n");
        let place = |point: &Point| self.at(point.x, point.y);
        let mut line = String::new();
        if let (Kind::Bound, [point]) = (series.kind, points) {
            let (_, y) = place(point);
            let _ = write!(line, "M{LEFT:.1} {y:.1}H{RIGHT:.1}");
        } else {
            for (index, point) in points.iter().enumerate() {
                let (x, y) = place(point);
                let _ = write!(line, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" });
            }
        }
        let _ = writeln!(text, r#"<path class="tw-line" d="{line}"/>"#);
        if series.kind == Kind::Bound {
            return text + "</g>\n";
        }
        let bars = points.iter().filter(|point| point.y_min != point.y_max);
        let bars = bars.fold(String::new(), |bars, point| {
            let (x, low) = self.at(point.x, point.y_min);
            let (_, high) = self.at(point.x, point.y_max);
            bars + &format!("M{:.1} {low:.1}h7m-3.5 0V{high:.1}m-3.5 0h7", x - 3.5)
        });
        if !bars.is_empty() {
            let _ = writeln!(text, r#"<path class="tw-bar" d="{bars}"/>"#);
        }
        for point in points {
            let (x, y) = place(point);
            let said = self.said(series, point);
            text += &mark(self.colours[index].unwrap_or(0), x, y, &said);
        }
        text + "</g>\n"
    }

    /// What a viewer shows for a point under the pointer.
    fn said(&self, series: &Series, point: &Point) -> String {
        let (x, y) = (shown(self.plot.x.unit, point.x), shown(self.plot.y.unit, point.y));
        let spread = if point.y_min == point.y_max {
            String::new()
        } else {
            format!(" ({} - {})", number(point.y_min), number(point.y_max))
        };
        format!("<title>{}</title>", escaped(&format!("{}: {x}: {y}{spread}", series.name)))
    }

    /// The rows below the axis, and where they end.
    fn legend(&self) -> (String, f64) {
        let mut text = String::new();
        let (mut x, mut y) = (LEFT, LEGEND_TOP);
        for (index, series) in self.plot.series.iter().enumerate() {
            let width = 40.0 + series.name.chars().count() as f64 * LETTER_WIDTH + 22.0;
            if x > LEFT && x + width > RIGHT + 22.0 {
                (x, y) = (LEFT, y + LINE_HEIGHT);
            }
            let class = self.class(index, series.kind);
            let _ = write!(text, r#"<g class="{class}"><path class="tw-line" d="M{x:.1} {y:.1}h32"/>"#);
            if series.kind != Kind::Bound {
                text += &mark(self.colours[index].unwrap_or(0), x + 16.0, y, "");
            }
            let (text_x, text_y) = (x + 40.0, y + 4.0);
            let name = escaped(&series.name);
            let _ = writeln!(text, r#"</g><text class="tw-key" x="{text_x:.1}" y="{text_y:.1}">{name}</text>"#);
            x += width;
        }
        (text, if self.plot.series.is_empty() { BOTTOM + 52.0 } else { y + 14.0 })
    }

    fn class(&self, index: usize, kind: Kind) -> String {
        let kind = match kind {
            Kind::Measured => "tw-measured",
            Kind::Rival => "tw-rival",
            Kind::Published => "tw-published",
            Kind::Bound => return "tw-bound".into(),
        };
        format!("{kind} tw-c{}", self.colours[index].unwrap_or(0) % COLOURS_ON_WHITE.len())
    }
}

impl Plot {
    /// Which colour and mark a series has; none for bounds. Published ones share theirs with measured ones.
    pub(super) fn colours(&self) -> Vec<Option<usize>> {
        let count = |kind| self.series.iter().filter(|series| series.kind == kind).count();
        let mut next = [0, count(Kind::Measured), 0];
        if count(Kind::Measured) == 0 {
            next[2] = count(Kind::Rival);
        }
        let colour = |series: &Series| {
            let kind = match series.kind {
                Kind::Measured => 0,
                Kind::Rival => 1,
                Kind::Published => 2,
                Kind::Bound => return None,
            };
            next[kind] += 1;
            Some(next[kind] - 1)
        };
        self.series.iter().map(colour).collect()
    }
}

/// Filled or open as the group's class says.
fn mark(colour: usize, x: f64, y: f64, inside: &str) -> String {
    let at = |dx: f64, dy: f64| format!("{:.1} {:.1}", x + dx, y + dy);
    let shape = match colour % 5 {
        0 => return format!("<circle class=\"mark tw-mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\">{inside}</circle>\n"),
        1 => format!("M{}h7v7h-7z", at(-3.5, -3.5)),
        2 => format!("M{}L{}L{}z", at(0.0, -4.8), at(4.6, 3.6), at(-4.6, 3.6)),
        3 => format!("M{}L{}L{}L{}z", at(0.0, -5.0), at(5.0, 0.0), at(0.0, 5.0), at(-5.0, 0.0)),
        _ => format!("M{}L{}L{}z", at(0.0, 4.8), at(4.6, -3.6), at(-4.6, -3.6)),
    };
    format!("<path class=\"mark tw-mark\" d=\"{shape}\">{inside}</path>\n")
}

fn style() -> String {
    let mut text = String::from(
        ".tw-plot{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;font-size:12px}\
         .tw-paper{fill:#ffffff}.tw-title{font-size:17px;font-weight:600;fill:#1b1f24}\
         .tw-label,.tw-key{fill:#30363d}.tw-label{font-weight:600}.tw-tick,.tw-small{fill:#59626c}.tw-small{font-size:11px}\
         .tw-grid{stroke:#e4e7eb;fill:none}.tw-axis{stroke:#59626c;fill:none}.tw-line,.tw-bar{fill:none}\
         .tw-mark{stroke-width:1.4}.tw-bar{stroke-width:1.1}.tw-measured .tw-line{stroke-width:2.4}\
         .tw-rival .tw-line{stroke-width:1.5}.tw-published .tw-line{stroke-width:1.4;stroke-dasharray:6 4}\
         .tw-bound .tw-line{stroke:#8a8f98;stroke-width:1}.tw-published .tw-bar{opacity:.6}\
         .tw-published .tw-mark{fill:#ffffff}",
    );
    coloured(&mut text, &COLOURS_ON_WHITE);
    // On paper the light colours stay, whatever the screen prefers.
    text += "@media screen and (prefers-color-scheme:dark){.tw-paper{fill:#14181d}.tw-title{fill:#f0f3f6}\
             .tw-label,.tw-key{fill:#d5dae0}.tw-tick,.tw-small{fill:#9aa4af}.tw-grid{stroke:#2b3138}\
             .tw-axis{stroke:#9aa4af}.tw-bound .tw-line{stroke:#7d8590}.tw-published .tw-mark{fill:#14181d}";
    coloured(&mut text, &COLOURS_ON_BLACK);
    text + "}"
}

fn coloured(text: &mut String, colours: &[&str]) {
    for (index, colour) in colours.iter().enumerate() {
        let _ = write!(text, ".tw-c{index} .tw-line,.tw-c{index} .tw-bar,.tw-c{index} .tw-mark{{stroke:{colour}}}");
        let _ = write!(text, ".tw-measured.tw-c{index} .tw-mark,.tw-rival.tw-c{index} .tw-mark{{fill:{colour}}}");
    }
}

/// Lines of at most about so many letters.
fn wrapped(text: &str, letters_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters_max => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// For text and attributes; what XML cannot hold becomes a mark of replacement.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\n' | '\t' | '\r' => out.push(' '),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}
