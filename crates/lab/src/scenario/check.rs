//! Refuses scenarios that cannot be built, before anything is built.
//!
//! Invariants: what passes has unique names that are safe in interface names, file names and shell scripts; every bound
//! in this file holds for the links as they are and after each event of their timelines; and the packets in flight fit
//! half of the memory that was free.
//!
//! Not here: whether the host has the tools and rights (the back end says).

mod memory;
mod needs;

use std::time::Duration;

pub use needs::Needs;

use super::file::CORE;
use super::quantity::{show_duration, show_probability, show_rate};
use super::{Backend, End, Error, Event, FRAMING_BYTES, Impairment, Kind, Link, QueueLimit, Scenario};

/// Of a site or link: an interface name of Linux, without its end mark.
const NAME_CHARACTERS_MAX: usize = 15;
/// Of the laboratory, which no interface is named after.
const SCENARIO_NAME_CHARACTERS_MAX: usize = 32;
const SITES_MIN: usize = 2;
const LINKS_MAX: usize = 16;
const HOSTS_PER_SITE_MAX: u8 = 24;
const HOSTS_MAX: u32 = 32;
const ACCESS_LINKS_MIN: usize = 2;
/// Of one link. Each costs a change at its time, and a line in the picture.
const EVENTS_MAX: usize = 100;
/// What every IPv4 host must take, and the largest that a TUN interface can have.
const MTU_BYTES: std::ops::RangeInclusive<u32> = 576..=65_521;
const BITS_PER_SECOND: std::ops::RangeInclusive<u64> = 8_000..=1_000_000_000_000;
/// The kernel gives no less than a millisecond of each tenth of a second; the largest is a thousand processors.
const PROCESSOR_PERCENT: std::ops::RangeInclusive<u32> = 1..=100_000;
const DELAY_MAX: Duration = Duration::from_secs(10);
/// Of the delay: more is not jitter around it.
const JITTER_DELAYS_MAX: u32 = 10;
/// Longer bursts are outages, for which there are timelines.
const LOSS_BURST_SEGMENTS_MAX: f64 = 1e6;
const BANDWIDTH_DELAY_PRODUCTS_MAX: f64 = 1000.0;
/// Longer than any run.
const EVENT_TIME_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// An interval shorter than this changes nothing that a transport could follow.
const EVENT_INTERVAL_MIN: Duration = Duration::from_millis(1);

impl Scenario {
    /// Says why this scenario cannot be built on a host with this much memory free.
    pub fn check(&self, memory_available_bytes: u64) -> Result<(), Error> {
        self.check_names()?;
        if !MTU_BYTES.contains(&self.mtu_bytes) {
            let problem = format!("{} bytes; use {} to {}", self.mtu_bytes, MTU_BYTES.start(), MTU_BYTES.end());
            return Err(impossible("mtu", problem));
        }
        self.check_hosts()?;
        self.check_shares()?;
        self.check_ends()?;
        for link in &self.links {
            self.check_link(link)?;
        }
        self.check_memory(memory_available_bytes)
    }

    fn check_names(&self) -> Result<(), Error> {
        check_name("name", &self.name, SCENARIO_NAME_CHARACTERS_MAX)?;
        check_unique("site", self.sites.iter().map(|site| site.name.as_str()))?;
        check_unique("link", self.links.iter().map(|link| link.name.as_str()))?;
        if self.sites.iter().any(|site| site.name == CORE) {
            return Err(impossible("site core", "this name is the middle of a star; choose another"));
        }
        let is_known = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let control = &self.congestion_control;
        if control.is_empty() || control.len() > NAME_CHARACTERS_MAX || !control.chars().all(is_known) {
            let problem = format!("{control:?} is no name of one; use cubic, bbr or reno");
            return Err(impossible("congestion-control", problem));
        }
        Ok(())
    }

    fn check_hosts(&self) -> Result<(), Error> {
        if self.sites.len() < SITES_MIN {
            return Err(impossible("sites", format!("there are {}; give {SITES_MIN} or more", self.sites.len())));
        }
        if let Some(site) = self.sites.iter().find(|site| !(1..=HOSTS_PER_SITE_MAX).contains(&site.hosts)) {
            let problem = format!("{} hosts; use 1 to {HOSTS_PER_SITE_MAX}", site.hosts);
            return Err(impossible(format!("site {}", site.name), problem));
        }
        for site in self.sites.iter().filter(|site| site.hosts > 1) {
            let is_taken = |number: &u8| self.sites.iter().any(|other| other.name == format!("{}{number}", site.name));
            if let Some(number) = (1..=site.hosts).find(is_taken) {
                let problem =
                    format!("its hosts are called {0}1, {0}2, ..., and {0}{number} is a site; rename one", site.name);
                return Err(impossible(format!("site {}", site.name), problem));
            }
        }
        let hosts: u32 = self.sites.iter().map(|site| u32::from(site.hosts)).sum();
        if hosts > HOSTS_MAX {
            return Err(impossible("sites", format!("{hosts} hosts together; use at most {HOSTS_MAX}")));
        }
        Ok(())
    }

    fn check_shares(&self) -> Result<(), Error> {
        for site in &self.sites {
            let subject = format!("site {}", site.name);
            if let Some(percent) = site.processor_percent.filter(|percent| !PROCESSOR_PERCENT.contains(percent)) {
                let problem = format!("cpu {percent}%; use 1% to {}%", PROCESSOR_PERCENT.end());
                return Err(impossible(subject, problem));
            }
            if let Some(rate) = site.host_bits_per_second.filter(|rate| !BITS_PER_SECOND.contains(rate)) {
                let [least, most] = [BITS_PER_SECOND.start(), BITS_PER_SECOND.end()].map(|rate| show_rate(Some(*rate)));
                return Err(impossible(subject, format!("host-rate {}; use {least} to {most}", show_rate(Some(rate)))));
            }
            let other = self.backend.filter(|backend| *backend != Backend::Nfqueue);
            if let Some(backend) = other.filter(|_| site.host_bits_per_second.is_some()) {
                let problem = format!("host-rate beside the back end {}; use auto or nfqueue", backend.name());
                return Err(impossible(subject, problem));
            }
        }
        Ok(())
    }

    fn check_ends(&self) -> Result<(), Error> {
        if !(1..=LINKS_MAX).contains(&self.links.len()) {
            return Err(impossible("links", format!("there are {}; use 1 to {LINKS_MAX}", self.links.len())));
        }
        for link in &self.links {
            let subject = || format!("link {}", link.name);
            if link.ends[0] == link.ends[1] {
                return Err(impossible(subject(), "joins a site to itself; name two different ends"));
            }
            if link.ends.iter().any(|end| matches!(end, End::Site(site) if *site >= self.sites.len())) {
                return Err(impossible(subject(), "ends at a site that does not exist"));
            }
        }
        let direct: Vec<_> = self.links.iter().filter(|link| !link.ends.contains(&End::Core)).collect();
        if direct.len() < self.links.len() && !direct.is_empty() {
            let problem = "joins two sites beside a star; let all links end at the core, or none";
            return Err(impossible(format!("link {}", direct[0].name), problem));
        }
        if let Some(other) = direct.iter().find(|link| link.is_between(direct[0].ends[0], direct[0].ends[1]).is_none())
        {
            let problem = "joins another pair of sites; for more than two sites let every link end at \"core\"";
            return Err(impossible(format!("link {}", other.name), problem));
        }
        let links_at = |end: End| self.links.iter().filter(move |link| link.ends.contains(&end));
        let access_links = links_at(End::Core).count();
        if access_links > 0 && access_links < ACCESS_LINKS_MIN {
            let problem = format!("only one link ends here; a star needs {ACCESS_LINKS_MIN} or more");
            return Err(impossible(CORE, problem));
        }
        for (index, site) in self.sites.iter().enumerate() {
            let (subject, end) = (format!("site {}", site.name), End::Site(index));
            if links_at(end).next().is_none() {
                return Err(impossible(subject, "no link ends here; add one or remove the site"));
            }
            if links_at(end).filter(|link| link.ends.contains(&End::Core)).count() > 1 {
                return Err(impossible(subject, "joins the core by more than one link; keep one"));
            }
        }
        Ok(())
    }

    fn check_link(&self, link: &Link) -> Result<(), Error> {
        let subject = format!("link {}", link.name);
        for (direction, impairment) in link.directions.iter().enumerate() {
            self.check_impairment(impairment).map_err(|problem| impossible(way(&subject, direction), problem))?;
        }
        if link.timeline.len() > EVENTS_MAX {
            let problem = format!("{} events in the timeline; use at most {EVENTS_MAX}", link.timeline.len());
            return Err(impossible(subject, problem));
        }
        for (index, event) in link.timeline.iter().enumerate() {
            let subject = format!("{subject}, event {}", index + 1);
            check_times(event).map_err(|problem| impossible(&subject, problem))?;
            if event.direction.is_some_and(|direction| direction >= link.directions.len()) {
                return Err(impossible(subject, "has a direction that does not exist"));
            }
            for (direction, impairment) in link.changed_by(event).iter().enumerate() {
                self.check_impairment(impairment).map_err(|problem| impossible(way(&subject, direction), problem))?;
            }
        }
        Ok(())
    }

    fn check_impairment(&self, impairment: &Impairment) -> Result<(), String> {
        let Impairment { delay, jitter, loss_burst_segments: burst, .. } = *impairment;
        if let Some(rate) = impairment.bits_per_second.filter(|rate| !BITS_PER_SECOND.contains(rate)) {
            let [least, most] = [BITS_PER_SECOND.start(), BITS_PER_SECOND.end()].map(|rate| show_rate(Some(*rate)));
            return Err(format!("rate {}; use {least} to {most}, or down = true", show_rate(Some(rate))));
        }
        if delay > DELAY_MAX {
            return Err(format!("delay {}; use at most {}", show_duration(delay), show_duration(DELAY_MAX)));
        }
        if jitter > delay * JITTER_DELAYS_MAX {
            let most = show_duration(delay * JITTER_DELAYS_MAX);
            return Err(format!("jitter {}; use at most {JITTER_DELAYS_MAX} delays, {most}", show_duration(jitter)));
        }
        for (name, probability) in
            [("loss", impairment.loss), ("duplicate", impairment.duplicate), ("corrupt", impairment.corrupt)]
        {
            if !(0.0..=1.0).contains(&probability) {
                return Err(format!("{name} {}; use 0% to 100%", show_probability(probability)));
            }
        }
        if !(1.0..=LOSS_BURST_SEGMENTS_MAX).contains(&burst) {
            return Err(format!("loss-burst {burst}; use 1 to {LOSS_BURST_SEGMENTS_MAX} segments"));
        }
        check_bursts(impairment.loss, burst)?;
        self.check_queue(impairment.queue)
    }

    fn check_queue(&self, queue: QueueLimit) -> Result<(), String> {
        let packet_bytes = u64::from(self.mtu_bytes) + FRAMING_BYTES;
        match queue {
            QueueLimit::Bytes(bytes) if bytes < packet_bytes => {
                Err(format!("queue of {bytes} bytes; one packet of this MTU takes {packet_bytes}"))
            }
            QueueLimit::BandwidthDelayProducts(products)
                if !(0.0..=BANDWIDTH_DELAY_PRODUCTS_MAX).contains(&products) =>
            {
                Err(format!("queue of {products} bandwidth-delay products; use 0 to {BANDWIDTH_DELAY_PRODUCTS_MAX}"))
            }
            _ => Ok(()),
        }
    }
}

impl Link {
    /// Both directions while this event, and no other, is in force.
    pub fn changed_by(&self, event: &Event) -> [Impairment; 2] {
        let is_meant = |index| event.direction.is_none_or(|direction| direction == index);
        std::array::from_fn(|index| {
            let direction = self.directions[index];
            if is_meant(index) { direction.with(&event.change) } else { direction }
        })
    }
}

/// Between two bursts at least one segment arrives, or they would be one.
fn check_bursts(loss: f64, burst: f64) -> Result<(), String> {
    let most = burst / (burst + 1.0);
    if burst == 1.0 || loss >= 1.0 || loss <= most {
        return Ok(());
    }
    let [loss, most] = [loss, most].map(show_probability);
    Err(format!("loss {loss} in bursts of {burst} segments; use at most {most}, longer bursts, or 100%"))
}

fn check_times(event: &Event) -> Result<(), String> {
    let longest = [Some(event.at), event.lasts, event.every].into_iter().flatten().max().unwrap_or_default();
    if longest > EVENT_TIME_MAX {
        return Err(format!("has a time of {}; use at most {}", show_duration(longest), show_duration(EVENT_TIME_MAX)));
    }
    if event.lasts.is_some_and(|lasts| lasts < EVENT_INTERVAL_MIN) {
        return Err(format!("`for` is too short; use {} or more", show_duration(EVENT_INTERVAL_MIN)));
    }
    let Some(every) = event.every else { return Ok(()) };
    let Some(lasts) = event.lasts else {
        return Err("`every` without `for` repeats what already stays; say `for` how long".into());
    };
    if every < lasts {
        return Err(format!("`for` {} is longer than `every` {}", show_duration(lasts), show_duration(every)));
    }
    Ok(())
}

fn check_unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    let mut known = Vec::new();
    for name in names {
        check_name(what, name, NAME_CHARACTERS_MAX)?;
        if known.contains(&name) {
            return Err(impossible(format!("{what} {name}"), "this name is in use; choose another"));
        }
        known.push(name);
    }
    Ok(())
}

/// A leading `-` would be read as an option by the programs that are given the name.
fn check_name(what: &str, name: &str, characters_max: usize) -> Result<(), Error> {
    let is_known = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if (1..=characters_max).contains(&name.len()) && name.chars().all(is_known) && !name.starts_with('-') {
        return Ok(());
    }
    let problem =
        format!("use 1 to {characters_max} letters, digits and -, beginning with a letter or digit, such as site-1");
    let cut: String = name.chars().take(characters_max + 1).collect();
    Err(impossible(format!("{what} {cut:?}"), problem))
}

fn way(subject: &str, direction: usize) -> String {
    format!("{subject} {}", ["forward", "backward"][direction])
}

fn impossible(subject: impl Into<String>, problem: impl Into<String>) -> Error {
    Error::new(Kind::Impossible, subject, problem)
}

#[cfg(test)]
mod tests;
