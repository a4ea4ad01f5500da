//! What the picture says of a scenario, in words.

use std::time::Duration;

use model::quantity::ByteCount;

use crate::scenario::quantity::{show_duration, show_probability, show_rate};
use crate::scenario::{End, Event, HostSettings, Impairment, Link, QueueLimit, Scenario};

/// What fits on a card.
const LINE_CHARACTERS_MAX: usize = 34;

pub(super) fn title(scenario: &Scenario) -> String {
    if scenario.name.is_empty() { "scenario".into() } else { scenario.name.clone() }
}

pub(super) fn settings(scenario: &Scenario) -> String {
    let hosts = match scenario.host_settings {
        HostSettings::Stock => "stock socket limits",
        HostSettings::Tuned => "tuned socket limits",
    };
    let mut said = format!(
        "MTU {}  ·  {}  ·  {hosts}  ·  seed {}",
        scenario.mtu_bytes, scenario.congestion_control, scenario.seed
    );
    if let Some(backend) = scenario.backend {
        said += &format!("  ·  back end {}", backend.name());
    }
    said
}

/// Wider for faster links, so that a star shows at a glance what is narrow.
pub(super) fn stroke_width(link: &Link) -> f64 {
    let rate = link.directions.iter().filter_map(|direction| direction.bits_per_second).max();
    rate.map_or(4.5, |rate| (1.5 + 0.8 * ((rate.max(1) as f64).log10() - 7.0)).clamp(1.5, 5.0))
}

/// A line on a link's card.
#[derive(Clone)]
pub(super) struct Line {
    /// Goes on with what the line above began.
    pub is_continued: bool,
    pub text: String,
}

/// The lines on a link's card: what both directions share, then what each has of its own.
pub(super) fn lines(scenario: &Scenario, index: usize) -> Vec<Line> {
    let link = &scenario.links[index];
    let round_trip = scenario.round_trip_over(index);
    let [forward, backward] = link.directions.each_ref().map(|direction| properties(direction, round_trip));
    let mut shared: Vec<String> = forward.iter().filter(|said| backward.contains(said)).cloned().collect();
    let delay =
        if link.round_trip().is_zero() { "no delay".into() } else { format!("RTT {}", time(link.round_trip())) };
    let has_rate = shared.first().is_some_and(|said| *said == bit_rate(link.directions[0].bits_per_second));
    shared.insert(usize::from(has_rate), delay);
    let names = link.ends.map(|end| scenario.end_name(end));
    let mut lines = wrap("", &shared);
    for (own, others, (from, to)) in
        [(&forward, &backward, (names[0], names[1])), (&backward, &forward, (names[1], names[0]))]
    {
        let mut own: Vec<String> = own.iter().filter(|said| !others.contains(said)).cloned().collect();
        let delays = link.directions.map(|direction| direction.delay);
        if delays[0] != delays[1] {
            let delay = if from == names[0] { delays[0] } else { delays[1] };
            own.insert(own.len().min(1), format!("delay {}", time(delay)));
        }
        if !own.is_empty() {
            lines.extend(wrap(&format!("{from} → {to}: "), &own));
        }
    }
    lines
}

/// All but the delay.
fn properties(direction: &Impairment, round_trip: Duration) -> Vec<String> {
    let mut said = vec![bit_rate(direction.bits_per_second)];
    if direction.bits_per_second.is_some() {
        said.push(queue(direction, round_trip));
    }
    if direction.loss > 0.0 {
        let burst = direction.loss_burst_segments;
        let bursts = if burst > 1.0 { format!(" in bursts of {burst}") } else { String::new() };
        said.push(format!("loss {}{bursts}", probability(direction.loss)));
    }
    if !direction.jitter.is_zero() {
        let order = if direction.reorder { ", reordering" } else { "" };
        said.push(format!("jitter {}{order}", time(direction.jitter)));
    }
    for (name, value) in [("duplicates", direction.duplicate), ("corrupts", direction.corrupt)] {
        if value > 0.0 {
            said.push(format!("{name} {}", probability(value)));
        }
    }
    if direction.down {
        said.push("down".into());
    }
    said
}

/// One line of the list of timelines: when, and what.
pub(super) fn event(scenario: &Scenario, link: &Link, event: &Event) -> String {
    let mut said = format!("at {}", time(event.at));
    if let Some(every) = event.every {
        said += &format!(", every {}", time(every));
    }
    if let Some(lasts) = event.lasts {
        said += &format!(" for {}", time(lasts));
    }
    if let Some(direction) = event.direction {
        let [from, to] = [direction.min(1), 1 - direction.min(1)].map(|end| scenario.end_name(link.ends[end]));
        said += &format!(", {from} → {to}");
    }
    format!("{said}: {}", changes(event).join(", "))
}

/// For each pair of the first site and another over the core: what the path is as a whole.
pub(super) fn paths(scenario: &Scenario) -> Vec<(String, String)> {
    let access = |site| scenario.links.iter().find(|link| link.is_between(End::Site(site), End::Core).is_some());
    let Some(first) = access(0) else { return Vec::new() };
    let others = (1..scenario.sites.len()).filter_map(|site| access(site).map(|link| (site, link)));
    others
        .map(|(site, link)| {
            let narrowest = |from: &Link, from_site, to: &Link, to_site| {
                let out = from.is_between(End::Site(from_site), End::Core).unwrap_or(0);
                let into = to.is_between(End::Core, End::Site(to_site)).unwrap_or(0);
                let rates = [from.directions[out].bits_per_second, to.directions[into].bits_per_second];
                rates.into_iter().flatten().min()
            };
            let rates = [narrowest(link, site, first, 0), narrowest(first, 0, link, site)];
            let rate = if rates[0] == rates[1] {
                bit_rate(rates[0])
            } else {
                format!("{} there, {} back", bit_rate(rates[0]), bit_rate(rates[1]))
            };
            let name = format!("{} → {}", scenario.sites[site].name, scenario.sites[0].name);
            (name, format!("{rate}, RTT {}", time(link.round_trip() + first.round_trip())))
        })
        .collect()
}

fn changes(event: &Event) -> Vec<String> {
    let change = &event.change;
    let mut said = Vec::new();
    match change.down {
        Some(true) => said.push("down".into()),
        Some(false) => said.push("up".into()),
        None => {}
    }
    said.extend(change.bits_per_second.map(bit_rate));
    said.extend(change.delay.map(|delay| match event.direction {
        Some(_) => format!("delay {}", time(delay)),
        None => format!("RTT {}", time(2 * delay)),
    }));
    said.extend(change.queue.map(|limit| match limit {
        QueueLimit::Bytes(bytes) => format!("queue {}", ByteCount(bytes)),
        QueueLimit::BandwidthDelayProducts(products) => format!("queue {products} BDP"),
    }));
    said.extend(change.loss.map(|loss| format!("loss {}", probability(loss))));
    said.extend(change.loss_burst_segments.map(|segments| format!("bursts of {segments}")));
    said.extend(change.jitter.map(|jitter| format!("jitter {}", time(jitter))));
    said.extend(change.reorder.map(|reorder| if reorder { "reordering".into() } else { "in order".into() }));
    said.extend(change.duplicate.map(|duplicate| format!("duplicates {}", probability(duplicate))));
    said.extend(change.corrupt.map(|corrupt| format!("corrupts {}", probability(corrupt))));
    said
}

fn queue(direction: &Impairment, round_trip: Duration) -> String {
    let bytes = ByteCount(direction.queue_bytes(round_trip));
    match direction.queue {
        QueueLimit::Bytes(_) => format!("queue {bytes}"),
        QueueLimit::BandwidthDelayProducts(products) => format!("queue {products} BDP ({bytes})"),
    }
}

pub(crate) fn bit_rate(bits_per_second: Option<u64>) -> String {
    match bits_per_second {
        Some(_) => format!("{}/s", spaced(&show_rate(bits_per_second))),
        None => "no rate limit".into(),
    }
}

/// `90s` is read more easily as `1 min 30 s`.
pub(crate) fn time(duration: Duration) -> String {
    let (minutes, rest) = (duration.as_secs() / 60, duration.as_secs() % 60);
    if minutes == 0 || duration.subsec_nanos() > 0 {
        return spaced(&show_duration(duration));
    }
    if rest == 0 { format!("{minutes} min") } else { format!("{minutes} min {rest} s") }
}

pub(crate) fn probability(value: f64) -> String {
    spaced(&show_probability(value))
}

/// A space between number and unit.
fn spaced(quantity: &str) -> String {
    let unit = quantity.find(|c: char| !c.is_ascii_digit() && !".e-".contains(c)).unwrap_or(quantity.len());
    let (number, unit) = quantity.split_at(unit);
    if unit.is_empty() { number.into() } else { format!("{number} {unit}") }
}

fn wrap(first: &str, items: &[String]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if line.text.chars().count() + item.chars().count() + 3 <= LINE_CHARACTERS_MAX => {
                line.text += &format!(" · {item}");
            }
            Some(_) => lines.push(Line { is_continued: !first.is_empty(), text: item.clone() }),
            None => lines.push(Line { is_continued: false, text: format!("{first}{item}") }),
        }
    }
    lines
}
