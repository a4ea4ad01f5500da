//! Where the parts of the picture stand.
//!
//! Sites stand in a left and a right column, the core between them, and each link has a card in a row of its own. That
//! holds for pairs, parallel links, stars and meshes alike, and needs no search for free space.

use crate::scenario::{End, Scenario};

use super::label;

pub(super) const MARGIN: f64 = 32.0;
pub(super) const LINE_HEIGHT: f64 = 17.0;
pub(super) const FOOTER_LINE_HEIGHT: f64 = 19.0;
pub(super) const CORE_RADIUS: f64 = 34.0;
pub(super) const SITE_HEIGHT: f64 = 80.0;

const TOP: f64 = 92.0;
const SITE_WIDTH: f64 = 136.0;
const CARD_WIDTH: f64 = 262.0;
const CARD_GAP: f64 = 18.0;
const SITE_GAP: f64 = 16.0;
/// Between columns, for the curves.
const AISLE: f64 = 88.0;
/// Between curves where they leave a site.
const CURVE_SPREAD: f64 = 13.0;
/// Of the footer's text, generously.
const CHARACTER_WIDTH: f64 = 8.0;
/// Further lines are counted, not drawn.
const FOOTER_LINES_MAX: usize = 30;

pub(super) struct Picture {
    pub width: f64,
    pub height: f64,
    pub sites: Vec<Rectangle>,
    pub core: Option<(f64, f64)>,
    /// One per link.
    pub cards: Vec<Card>,
    pub footer: Vec<Section>,
    pub footer_top: f64,
    /// Where the second column of the footer begins.
    pub footer_column: f64,
}

#[derive(Clone, Copy)]
pub(super) struct Rectangle {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

pub(super) struct Card {
    pub at: Rectangle,
    pub lines: Vec<label::Line>,
    pub curves: Vec<Curve>,
}

/// Leaves and arrives level; `bend` is how far the control points stand off, negative towards the left.
pub(super) struct Curve {
    pub from: (f64, f64),
    /// Where it begins to bend.
    pub straight_to: f64,
    pub to: (f64, f64),
    pub bend: f64,
}

pub(super) struct Section {
    pub heading: String,
    pub lines: Vec<(String, String)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Left,
    Right,
}

pub(super) fn arrange(scenario: &Scenario) -> Picture {
    let sides = sides(scenario);
    let has_core = scenario.links.iter().any(|link| link.ends.contains(&End::Core));
    let left_cards = MARGIN + SITE_WIDTH + AISLE;
    let core_x = left_cards + CARD_WIDTH + AISLE + CORE_RADIUS;
    let right_cards = if has_core { core_x + CORE_RADIUS + AISLE } else { left_cards };
    let right_sites = right_cards + CARD_WIDTH + AISLE;

    let Stack { mut cards, core_y, bottom } = stack_cards(scenario, &sides, has_core, [left_cards, right_cards]);
    let place = |side| place_sites(scenario, &sides, side, &cards);
    let (left, right) = (place(Side::Left), place(Side::Right));
    let bottom = left.iter().chain(&right).map(|(_, y)| y + SITE_HEIGHT).fold(bottom, f64::max);
    let mut sites = vec![Rectangle { x: MARGIN, y: TOP, width: SITE_WIDTH, height: SITE_HEIGHT }; scenario.sites.len()];
    for (column, x) in [(left, MARGIN), (right, right_sites)] {
        for (site, y) in column {
            sites[site] = Rectangle { x, y, ..sites[site] };
        }
    }
    let core = has_core.then_some((core_x, core_y));
    draw_curves(scenario, &sides, &sites, core, &mut cards);

    let footer = footer(scenario);
    let footer_top = bottom + 28.0;
    let lines: usize = footer.iter().map(|section| section.lines.len() + 2).sum();
    let height =
        if footer.is_empty() { bottom + MARGIN } else { footer_top + lines as f64 * FOOTER_LINE_HEIGHT + 14.0 };
    let subjects = footer.iter().flat_map(|section| &section.lines).map(|(subject, _)| subject.chars().count());
    let footer_column = MARGIN + CHARACTER_WIDTH * subjects.max().unwrap_or(0) as f64 + MARGIN;
    let width = right_sites + SITE_WIDTH + MARGIN;
    Picture { width, height, sites, core, cards, footer, footer_top, footer_column }
}

/// In a star the first site, where commands run, faces the others. Without a core, neighbours face each other.
fn sides(scenario: &Scenario) -> Vec<Side> {
    let count = scenario.sites.len();
    let is_star = count > 2 && scenario.links.iter().any(|link| link.ends.contains(&End::Core));
    if is_star {
        return (0..count).map(|site| if site == 0 { Side::Right } else { Side::Left }).collect();
    }
    let mut sides: Vec<Option<Side>> = vec![None; count];
    for start in 0..count {
        let mut waiting = if sides[start].is_none() { vec![start] } else { Vec::new() };
        if count == 2 && start == 1 {
            sides[start] = Some(Side::Right);
            continue;
        }
        sides[start].get_or_insert(Side::Left);
        while let Some(site) = waiting.pop() {
            let facing = if sides[site] == Some(Side::Left) { Side::Right } else { Side::Left };
            for link in &scenario.links {
                let neighbour = match link.ends {
                    [End::Site(a), End::Site(b)] if a == site => b,
                    [End::Site(a), End::Site(b)] if b == site => a,
                    _ => continue,
                };
                if neighbour < count && sides[neighbour].is_none() {
                    sides[neighbour] = Some(facing);
                    waiting.push(neighbour);
                }
            }
        }
    }
    sides.into_iter().map(|side| side.unwrap_or(Side::Left)).collect()
}

struct Stack {
    /// Without their curves.
    cards: Vec<Card>,
    core_y: f64,
    /// The lower end of the longer column.
    bottom: f64,
}

/// Links that pass the core by have the upper rows to themselves, so that their curves go over it.
fn stack_cards(scenario: &Scenario, sides: &[Side], has_core: bool, columns: [f64; 2]) -> Stack {
    let lines: Vec<Vec<label::Line>> = (0..scenario.links.len()).map(|link| label::lines(scenario, link)).collect();
    let height = |link: usize| 34.0 + LINE_HEIGHT * lines[link].len() as f64;
    // In a star a row is as high as a site, so that the site stands in its row.
    let row = |link: usize| (height(link) + CARD_GAP).max(if has_core { SITE_HEIGHT + SITE_GAP } else { 0.0 });
    let column = |link: usize| {
        let joins = |end| scenario.links[link].ends.contains(&end);
        let is_right = |site: usize| sides[site] == Side::Right && joins(End::Site(site));
        usize::from(joins(End::Core) && (0..sides.len()).any(is_right))
    };
    let passes_by = |link: usize| has_core && !scenario.links[link].ends.contains(&End::Core);
    let upper: f64 = (0..lines.len()).filter(|link| passes_by(*link)).map(row).sum();
    let rows = |wanted: usize| -> f64 {
        let links = (0..lines.len()).filter(|link| !passes_by(*link) && column(*link) == wanted);
        links.map(row).sum()
    };
    let lower = rows(0).max(rows(1)).max(SITE_HEIGHT);
    let mut next = [TOP, 0.0, 0.0];
    for wanted in [0, 1] {
        next[1 + wanted] = TOP + upper + (lower - rows(wanted)) / 2.0;
    }
    let cards = (0..lines.len())
        .map(|link| {
            let group = if passes_by(link) { 0 } else { 1 + column(link) };
            let y = next[group] + (row(link) - height(link)) / 2.0;
            next[group] += row(link);
            let at = Rectangle { x: columns[column(link)], y, width: CARD_WIDTH, height: height(link) };
            Card { at, lines: lines[link].clone(), curves: Vec::new() }
        })
        .collect();
    Stack { cards, core_y: TOP + upper + lower / 2.0, bottom: TOP + upper + lower }
}

/// Each site of a side beside the middle of its cards, pushed down where the one above needs the space.
fn place_sites(scenario: &Scenario, sides: &[Side], side: Side, cards: &[Card]) -> Vec<(usize, f64)> {
    let ideal = |site: usize| {
        let own = scenario.links.iter().zip(cards).filter(|(link, _)| link.ends.contains(&End::Site(site)));
        let middles: Vec<f64> = own.map(|(_, card)| card.middle()).collect();
        if middles.is_empty() { TOP } else { middles.iter().sum::<f64>() / middles.len() as f64 - SITE_HEIGHT / 2.0 }
    };
    let mut ideals: Vec<(usize, f64)> =
        (0..sides.len()).filter(|site| sides[*site] == side).map(|site| (site, ideal(site))).collect();
    ideals.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut free = TOP;
    for (_, y) in &mut ideals {
        *y = y.max(free);
        free = *y + SITE_HEIGHT + SITE_GAP;
    }
    ideals
}

fn draw_curves(scenario: &Scenario, sides: &[Side], sites: &[Rectangle], core: Option<(f64, f64)>, cards: &mut [Card]) {
    let right_of_cards = cards.iter().map(|card| card.at.x + card.at.width).fold(0.0, f64::max);
    for (index, (link, drawn)) in scenario.links.iter().zip(cards).enumerate() {
        let card = drawn.at;
        let same_side = match link.ends {
            [End::Site(a), End::Site(b)] => sides.get(a) == sides.get(b),
            _ => false,
        };
        for (end, offset) in link.ends.into_iter().zip([-8.0, 8.0]) {
            let (point, is_left_of_card) = match (end, core) {
                (End::Site(site), _) if site < sites.len() => {
                    let is_left = sides[site] == Side::Left;
                    let at = sites[site];
                    let x = if is_left { at.x + at.width } else { at.x };
                    ((x, at.y + at.height / 2.0 + spread(scenario, site, index)), is_left)
                }
                (End::Core, Some((x, y))) => ((x, y), x < card.x),
                _ => continue,
            };
            let y = card.y + card.height / 2.0 + if same_side { offset } else { 0.0 };
            let from = if is_left_of_card { (card.x, y) } else { (card.x + card.width, y) };
            let straight_to = if is_left_of_card || end == End::Core { from.0 } else { right_of_cards };
            let bend = (point.0 - straight_to) * 0.5;
            drawn.curves.push(Curve { from, straight_to, to: point, bend });
        }
    }
}

/// Where among the curves of its site a link leaves.
fn spread(scenario: &Scenario, site: usize, link: usize) -> f64 {
    let own: Vec<usize> =
        (0..scenario.links.len()).filter(|other| scenario.links[*other].ends.contains(&End::Site(site))).collect();
    let place = own.iter().position(|other| *other == link).unwrap_or(0) as f64;
    let between = CURVE_SPREAD.min((SITE_HEIGHT - 20.0) / own.len() as f64);
    (place - (own.len() as f64 - 1.0) / 2.0) * between
}

fn footer(scenario: &Scenario) -> Vec<Section> {
    let events = scenario
        .links
        .iter()
        .flat_map(|link| link.timeline.iter().map(|event| (link.name.clone(), label::event(scenario, link, event))));
    let sections = [("Paths", label::paths(scenario)), ("Timeline", events.collect())];
    let sections = sections.into_iter().filter(|(_, lines)| !lines.is_empty());
    sections
        .map(|(heading, mut lines)| {
            let more = lines.len().saturating_sub(FOOTER_LINES_MAX);
            if more > 0 {
                lines.truncate(FOOTER_LINES_MAX);
                lines.push((String::new(), format!("and {more} more")));
            }
            Section { heading: heading.into(), lines }
        })
        .collect()
}

impl Card {
    fn middle(&self) -> f64 {
        self.at.y + self.at.height / 2.0
    }
}
