//! A scenario as a file that a person may edit.

use std::fmt::Write as _;

use crate::scenario::quantity::{show_duration, show_rate};
use crate::scenario::{Backend, Change, End, Event, HostSettings, Impairment, Link, Scenario};

use super::CORE;
use super::property::{self, DIRECTIONS};

impl Scenario {
    /// Writes the file that `from_toml` reads as this scenario. What both directions share is said once.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        if !self.name.is_empty() {
            line(&mut text, "name", &string(&self.name));
        }
        line(&mut text, "seed", &self.seed.to_string());
        line(&mut text, "mtu", &self.mtu_bytes.to_string());
        let settings = match self.host_settings {
            HostSettings::Stock => "stock",
            HostSettings::Tuned => "tuned",
        };
        line(&mut text, "host-settings", &string(settings));
        line(&mut text, "congestion-control", &string(&self.congestion_control));
        line(&mut text, "backend", &string(self.backend.map_or("auto", Backend::name)));
        for site in &self.sites {
            text += &format!("\n[site.{}]\n", key(&site.name));
            line(&mut text, "hosts", &site.hosts.to_string());
            if let Some(percent) = site.processor_percent {
                line(&mut text, "cpu", &string(&format!("{percent}%")));
            }
            if let Some(rate) = site.host_bits_per_second {
                line(&mut text, "host-rate", &string(&show_rate(Some(rate))));
            }
        }
        for link in &self.links {
            self.write_link(&mut text, link);
        }
        text
    }

    fn write_link(&self, text: &mut String, link: &Link) {
        *text += &format!("\n[link.{}]\n", key(&link.name));
        let ends = link.ends.map(|end| string(self.end_name(end)));
        line(text, "between", &format!("[{}, {}]", ends[0], ends[1]));
        let [forward, backward] = link.directions;
        let shared = shared(&forward, &backward);
        for (name, value) in property::entries(&Change::between(&Impairment::default(), &shared)) {
            line(text, name, &value);
        }
        for (name, direction) in DIRECTIONS.iter().zip([forward, backward]) {
            let own: Vec<String> = assignments(&Change::between(&shared, &direction));
            if !own.is_empty() {
                line(text, name, &format!("{{ {} }}", own.join(", ")));
            }
        }
        if !link.timeline.is_empty() {
            *text += "timeline = [\n";
            for event in &link.timeline {
                *text += &format!("    {{ {} }},\n", event_assignments(event).join(", "));
            }
            *text += "]\n";
        }
    }

    /// The name by which a file knows an end of a link.
    pub fn end_name(&self, end: End) -> &str {
        match end {
            End::Site(site) => self.sites.get(site).map_or("", |site| &site.name),
            End::Core => CORE,
        }
    }
}

impl Backend {
    pub fn name(self) -> &'static str {
        match self {
            Backend::Netem => "netem",
            Backend::Nfqueue => "nfqueue",
            Backend::Tun => "tun",
        }
    }
}

/// What both directions have in common; the default where they differ.
fn shared(forward: &Impairment, backward: &Impairment) -> Impairment {
    let default = Impairment::default();
    // Takes from the default each property in which the directions differ.
    let differing = Change::between(forward, backward);
    Impairment {
        delay: differing.delay.map_or(forward.delay, |_| default.delay),
        bits_per_second: differing.bits_per_second.map_or(forward.bits_per_second, |_| default.bits_per_second),
        queue: differing.queue.map_or(forward.queue, |_| default.queue),
        loss: differing.loss.map_or(forward.loss, |_| default.loss),
        loss_burst_segments: differing
            .loss_burst_segments
            .map_or(forward.loss_burst_segments, |_| default.loss_burst_segments),
        jitter: differing.jitter.map_or(forward.jitter, |_| default.jitter),
        reorder: differing.reorder.map_or(forward.reorder, |_| default.reorder),
        duplicate: differing.duplicate.map_or(forward.duplicate, |_| default.duplicate),
        corrupt: differing.corrupt.map_or(forward.corrupt, |_| default.corrupt),
        down: differing.down.map_or(forward.down, |_| default.down),
    }
}

fn event_assignments(event: &Event) -> Vec<String> {
    let time = |name: &str, value: Option<_>| value.map(|value| format!("{name} = \"{}\"", show_duration(value)));
    let times = [time("at", Some(event.at)), time("for", event.lasts), time("every", event.every)];
    let direction = event.direction.map(|direction| format!("direction = \"{}\"", DIRECTIONS[direction.min(1)]));
    times.into_iter().chain([direction]).flatten().chain(assignments(&event.change)).collect()
}

fn assignments(change: &Change) -> Vec<String> {
    property::entries(change).map(|(name, value)| format!("{name} = {value}")).collect()
}

fn line(text: &mut String, key: &str, value: &str) {
    // Writing to a text cannot fail.
    let _ = writeln!(text, "{key} = {value}");
}

/// In the form that keys and values share: within one line, with escapes.
fn string(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted += &format!("\\u{:04x}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Bare where TOML allows it.
fn key(name: &str) -> String {
    let is_bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if is_bare { name.to_owned() } else { string(name) }
}
