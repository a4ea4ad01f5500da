//! The picture of a scenario: an SVG that needs nothing but itself.
//!
//! Invariants: every text from the scenario is escaped; the picture brings its own background, in light and in dark, so
//! that it is legible on any page; nothing overlaps, because each link has a row of its own.
//!
//! Not here: where things stand (`layout`) and what is said of a link (`label`).

mod label;
mod layout;

use std::fmt::Write as _;

use crate::scenario::{End, Scenario};

use layout::{CORE_RADIUS, Card, Curve, FOOTER_LINE_HEIGHT, LINE_HEIGHT, MARGIN, Picture, Rectangle, SITE_HEIGHT};

/// Light first; where the viewer prefers dark, the second block replaces the colours.
const STYLE: &str = "\
text{font-family:'DejaVu Sans',Verdana,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2933}
.back{fill:#ffffff;stroke:#d5dbe1}
.site{fill:#eef3f8;stroke:#52667a;stroke-width:1.5}
.host{fill:#52667a}
.card{fill:#ffffff;stroke:#c3ccd5}
.core{fill:#e4eaf0;stroke:#52667a;stroke-width:1.5}
.rule{stroke:#d5dbe1}
.title{font-size:20px;font-weight:bold}
.name{font-size:14px;font-weight:bold}
.small{font-size:11.5px}
.soft{font-size:11.5px;fill:#5a6875}
.middle{text-anchor:middle}
.curve{fill:none;stroke-linecap:round}
@media (prefers-color-scheme:dark){
text{fill:#e6ebf0}
.back{fill:#161b21;stroke:#36414c}
.site{fill:#222b34;stroke:#8fa3b6}
.host{fill:#8fa3b6}
.card{fill:#1c232a;stroke:#46525e}
.core{fill:#2a343e;stroke:#8fa3b6}
.rule{stroke:#36414c}
.soft{fill:#9fadba}
}";

/// Of links in turn; each stands out on both backgrounds, and they differ for eyes that do not tell red from green.
const LINK_COLORS: [&str; 6] = ["#2f7ed8", "#e08214", "#1b9e77", "#b455a0", "#8a7f20", "#d1495b"];

/// The hosts of a site are drawn in rows of this many.
const HOSTS_PER_ROW: usize = 8;

impl Scenario {
    /// Draws the sites, the links with what they do to packets, and the timelines.
    pub fn to_svg(&self) -> String {
        let picture = layout::arrange(self);
        let (width, height) = (picture.width, picture.height);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n<style>{STYLE}</style>\n",
            escape(&label::title(self))
        );
        let back = Rectangle { x: 0.5, y: 0.5, width: width - 1.0, height: height - 1.0 };
        svg += &rectangle("back", back, 10.0);
        svg += &text("title", MARGIN, 40.0, &label::title(self));
        svg += &text("soft", MARGIN, 62.0, &label::settings(self));
        for (index, card) in picture.cards.iter().enumerate() {
            let stroke = label::stroke_width(&self.links[index]);
            svg += &card.curves.iter().map(|drawn| curve(drawn, color(index), stroke)).collect::<String>();
        }
        for (site, at) in self.sites.iter().zip(&picture.sites) {
            svg += &draw_site(&site.name, site.hosts, *at);
        }
        if let Some((x, y)) = picture.core {
            // Writing to a text cannot fail, here and below.
            let _ = writeln!(svg, "<circle class=\"core\" cx=\"{x}\" cy=\"{y}\" r=\"{CORE_RADIUS}\"/>");
            svg += &text("name middle", x, y + 5.0, self.end_name(End::Core));
        }
        for (index, card) in picture.cards.iter().enumerate() {
            svg += &draw_card(&self.links[index].name, card, color(index));
        }
        svg += &draw_footer(&picture);
        svg + "</svg>\n"
    }
}

fn draw_site(name: &str, hosts: u8, at: Rectangle) -> String {
    let middle = at.x + at.width / 2.0;
    let mut svg = rectangle("site", at, 9.0);
    svg += &text("name middle", middle, at.y + 24.0, name);
    let count = if hosts == 1 { "1 host".to_owned() } else { format!("{hosts} hosts") };
    svg += &text("soft middle", middle, at.y + 41.0, &count);
    let hosts = usize::from(hosts).min(2 * HOSTS_PER_ROW);
    for (row, first) in (0..hosts).step_by(HOSTS_PER_ROW).enumerate() {
        let in_row = (hosts - first).min(HOSTS_PER_ROW);
        let left = middle - (in_row as f64 * 11.0 - 3.0) / 2.0;
        for column in 0..in_row {
            let host = Rectangle {
                x: left + column as f64 * 11.0,
                y: at.y + SITE_HEIGHT - 24.0 + row as f64 * 10.0,
                width: 8.0,
                height: 7.0,
            };
            svg += &rectangle("host", host, 1.5);
        }
    }
    svg
}

fn draw_card(name: &str, card: &Card, color: &str) -> String {
    let at = card.at;
    let mut svg = rectangle("card", at, 7.0);
    let _ = writeln!(
        svg,
        "<rect fill=\"{color}\" x=\"{}\" y=\"{}\" width=\"4\" height=\"{}\" rx=\"2\"/>",
        at.x + 7.0,
        at.y + 9.0,
        at.height - 18.0
    );
    svg += &text("name", at.x + 20.0, at.y + 22.0, name);
    for (index, line) in card.lines.iter().enumerate() {
        let indent = if line.is_continued { 14.0 } else { 0.0 };
        svg += &text("small", at.x + 20.0 + indent, at.y + 22.0 + LINE_HEIGHT * (index + 1) as f64, &line.text);
    }
    svg
}

fn draw_footer(picture: &Picture) -> String {
    let mut svg = String::new();
    let mut y = picture.footer_top;
    for section in &picture.footer {
        let right = picture.width - MARGIN;
        let _ = writeln!(svg, "<line class=\"rule\" x1=\"{MARGIN}\" y1=\"{y}\" x2=\"{right}\" y2=\"{y}\"/>");
        y += FOOTER_LINE_HEIGHT + 4.0;
        svg += &text("name", MARGIN, y, &section.heading);
        for (subject, said) in &section.lines {
            y += FOOTER_LINE_HEIGHT;
            svg += &text("small", MARGIN, y, subject);
            svg += &text("soft", picture.footer_column, y, said);
        }
        y += FOOTER_LINE_HEIGHT;
    }
    svg
}

fn color(link: usize) -> &'static str {
    LINK_COLORS[link % LINK_COLORS.len()]
}

fn curve(curve: &Curve, color: &str, stroke_width: f64) -> String {
    let Curve { from: (x1, y1), straight_to, to: (x2, y2), bend } = *curve;
    format!(
        "<path class=\"curve\" stroke=\"{color}\" stroke-width=\"{stroke_width:.1}\" \
         d=\"M{x1:.1},{y1:.1} H{straight_to:.1} C{:.1},{y1:.1} {:.1},{y2:.1} {x2:.1},{y2:.1}\"/>\n",
        straight_to + bend,
        x2 - bend
    )
}

fn rectangle(class: &str, at: Rectangle, radius: f64) -> String {
    let Rectangle { x, y, width, height } = at;
    format!(
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{radius}\"/>\n"
    )
}

fn text(class: &str, x: f64, y: f64, said: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n", escape(said))
}

/// Control characters have no place in XML, escaped or not.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::preset::PRESETS;

    #[test]
    fn every_preset_has_a_picture_that_names_its_sites_and_links() {
        for preset in PRESETS {
            let scenario = Scenario::preset(preset.name).unwrap();
            let svg = scenario.to_svg();
            let names =
                scenario.sites.iter().map(|site| &site.name).chain(scenario.links.iter().map(|link| &link.name));
            for name in names.chain([&scenario.name]) {
                assert!(svg.contains(&format!(">{name}<")), "{}: {name}", preset.name);
            }
            assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        }
    }

    #[test]
    fn texts_cannot_break_out_of_the_picture() {
        let mut scenario = Scenario::preset("continent").unwrap();
        scenario.sites[0].name = "<script>\"&\u{1}".into();
        let svg = scenario.to_svg();
        assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;&quot;&amp; "));
    }

    #[test]
    fn what_a_link_does_is_written_on_it() {
        let svg = Scenario::preset("mobile").unwrap().to_svg();
        for said in ["RTT 50 ms", "a → b: 20 Mbit/s", "b → a: 100 Mbit/s", "in bursts of 8", "jitter 8 ms"] {
            assert!(svg.contains(said), "{said}");
        }
        assert!(svg.contains("at 1 min 30 s for 30 s: down"), "{svg}");
        assert!(Scenario::preset("direct").unwrap().to_svg().contains("no delay"));
        assert!(Scenario::preset("sc09").unwrap().to_svg().contains("500 Mbit/s, RTT 20 ms"));
    }
}
