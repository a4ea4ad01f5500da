//! The scenario file: TOML to a `Scenario`, and back.
//!
//! Invariants:
//! - Sites and links keep the order in which the file names them.
//! - Every error names the line and the key, and says what is allowed there. Unknown keys are errors.
//! - `Scenario::from_toml` reads what `Scenario::to_toml` writes as the same scenario.
//!
//! The document is walked by hand: one table of link properties (`property`) serves links, directions, timelines and
//! the words of the command line, and derived readers could not share it and still refuse unknown keys by line.
//!
//! Not here: whether the scenario can be built (`check`).

mod property;
mod write;

use std::str::FromStr;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use property::parse_changes;
use property::{DIRECTIONS, NAMES, Properties};

use super::quantity::{parse_duration, parse_rate};
use super::{Backend, End, Error, Event, HostSettings, Impairment, Kind, Link, Scenario, Site};

/// Of a scenario file. The largest sensible one is a hundredth of this.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// The middle of a star, where a link names its ends.
pub const CORE: &str = "core";

pub const MTU_BYTES_DEFAULT: u32 = 9000;
pub const CONGESTION_CONTROL_DEFAULT: &str = "cubic";

const ROOT_KEYS: &str = "name, seed, mtu, host-settings, congestion-control, backend, site, link";

impl Scenario {
    /// Reads a scenario file. Its name is empty where the file gives none; the caller names it then.
    pub fn from_toml(text: &str) -> Result<Scenario, Error> {
        if text.len() > FILE_BYTES_MAX {
            let problem = format!("has {} bytes; a scenario has at most {FILE_BYTES_MAX}", text.len());
            return Err(Error::new(Kind::Syntax, "scenario file", problem));
        }
        let document = DeTable::parse(text).map_err(|error| {
            let line = line_of(text, error.span().map_or(0, |span| span.start));
            let problem = error.message().lines().collect::<Vec<_>>().join(" ");
            Error::new(Kind::Syntax, format!("line {line}"), problem)
        })?;
        let root = Place { text, path: String::new(), offset: 0 };
        read_root(&root, document.get_ref())
    }
}

/// Where a value stands, for errors.
struct Place<'t> {
    text: &'t str,
    /// Keys from the root, joined by points.
    path: String,
    offset: usize,
}

/// A key of a table and its value.
struct Entry<'t> {
    key: &'t str,
    value: &'t DeValue<'t>,
    place: Place<'t>,
}

fn read_root<'t>(root: &Place<'t>, table: &'t DeTable<'t>) -> Result<Scenario, Error> {
    let mut scenario = Scenario {
        name: String::new(),
        seed: 1,
        mtu_bytes: MTU_BYTES_DEFAULT,
        host_settings: HostSettings::Tuned,
        congestion_control: CONGESTION_CONTROL_DEFAULT.into(),
        backend: None,
        sites: Vec::new(),
        links: Vec::new(),
    };
    let mut links = Vec::new();
    for entry in root.entries(table) {
        match entry.key {
            "name" => scenario.name = entry.string()?.into(),
            "seed" => scenario.seed = entry.number("a whole number such as 7")?,
            "mtu" => scenario.mtu_bytes = entry.number("a number of bytes such as 9000")?,
            "host-settings" => {
                let choices = [("stock", HostSettings::Stock), ("tuned", HostSettings::Tuned)];
                scenario.host_settings = entry.choice(&choices)?;
            }
            "congestion-control" => scenario.congestion_control = entry.string()?.into(),
            "backend" => {
                let (netem, nfqueue, tun) = (Backend::Netem, Backend::Nfqueue, Backend::Tun);
                let choices = [("auto", None), ("netem", Some(netem)), ("nfqueue", Some(nfqueue)), ("tun", Some(tun))];
                scenario.backend = entry.choice(&choices)?;
            }
            "site" => scenario.sites = entry.entries()?.iter().map(read_site).collect::<Result<_, _>>()?,
            "link" => links = entry.entries()?,
            _ => return Err(entry.unknown(ROOT_KEYS)),
        }
    }
    scenario.links = links.iter().map(|link| read_link(link, &scenario.sites)).collect::<Result<_, _>>()?;
    Ok(scenario)
}

fn read_site(entry: &Entry<'_>) -> Result<Site, Error> {
    let name = entry.key.into();
    let mut site = Site { name, hosts: 1, processor_percent: None, host_bits_per_second: None };
    for entry in entry.entries()? {
        match entry.key {
            "hosts" => site.hosts = entry.number("a number of hosts such as 2")?,
            "cpu" => site.processor_percent = Some(entry.percent()?),
            "host-rate" => site.host_bits_per_second = entry.rate()?,
            _ => return Err(entry.unknown("hosts, cpu, host-rate")),
        }
    }
    Ok(site)
}

fn read_link(link: &Entry<'_>, sites: &[Site]) -> Result<Link, Error> {
    let (mut ends, mut timeline) = (None, Vec::new());
    let mut both = Properties::default();
    let mut directions = [Properties::default(), Properties::default()];
    for entry in link.entries()? {
        match entry.key {
            "between" => ends = Some(entry.ends(sites)?),
            "timeline" => {
                timeline = entry.items("a list of tables")?.iter().map(read_event).collect::<Result<_, _>>()?;
            }
            "forward" | "backward" => {
                let direction = usize::from(entry.key == DIRECTIONS[1]);
                for property in entry.entries()? {
                    property.set(&mut directions[direction], true, "")?;
                }
            }
            _ => entry.set(&mut both, false, "between, forward, backward, timeline, ")?,
        }
    }
    let ends = ends.ok_or_else(|| link.wrong(Kind::Keys, "needs `between`, such as between = [\"a\", \"b\"]"))?;
    let base = Impairment::default().with(&both.change);
    Ok(Link { name: link.key.into(), ends, directions: directions.map(|own| base.with(&own.change)), timeline })
}

fn read_event(item: &Entry<'_>) -> Result<Event, Error> {
    let (mut at, mut lasts, mut every, mut direction) = (None, None, None, None);
    let mut properties = Properties::default();
    let entries = item.entries()?;
    let is_one_way = entries.iter().any(|entry| entry.key == "direction");
    for entry in entries {
        match entry.key {
            "at" => at = Some(entry.duration()?),
            "for" => lasts = Some(entry.duration()?),
            "every" => every = Some(entry.duration()?),
            "direction" => direction = Some(entry.choice(&[(DIRECTIONS[0], 0), (DIRECTIONS[1], 1)])?),
            _ => entry.set(&mut properties, is_one_way, "at, for, every, direction, ")?,
        }
    }
    let at = at.ok_or_else(|| item.wrong(Kind::Keys, "needs `at`, such as at = \"20s\""))?;
    if properties.is_empty() {
        return Err(item.wrong(Kind::Keys, format!("changes nothing; give it one of {NAMES}")));
    }
    Ok(Event { at, lasts, every, direction, change: properties.change })
}

impl<'t> Place<'t> {
    fn entries(&self, table: &'t DeTable<'t>) -> Vec<Entry<'t>> {
        let mut entries: Vec<Entry<'t>> = table.iter().map(|(key, value)| self.entry(key, value)).collect();
        // The parser sorts keys by name; where they stand in the text is their order.
        entries.sort_by_key(|entry| entry.place.offset);
        entries
    }

    fn entry(&self, key: &'t Spanned<std::borrow::Cow<'t, str>>, value: &'t Spanned<DeValue<'t>>) -> Entry<'t> {
        let name: &str = key.get_ref();
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        let place = Place { text: self.text, path, offset: key.span().start };
        Entry { key: name, value: value.get_ref(), place }
    }
}

impl<'t> Entry<'t> {
    fn entries(&self) -> Result<Vec<Entry<'t>>, Error> {
        match self.value {
            DeValue::Table(table) => Ok(self.place.entries(table)),
            other => Err(self.wrong(Kind::Value, format!("is a {}; it must be a table", other.type_str()))),
        }
    }

    fn items(&self, wanted: &str) -> Result<Vec<Entry<'t>>, Error> {
        let DeValue::Array(array) = self.value else {
            return Err(self.wrong(Kind::Value, format!("is a {}; it must be {wanted}", self.value.type_str())));
        };
        let place = |offset| Place { text: self.place.text, path: self.place.path.clone(), offset };
        Ok(array
            .iter()
            .map(|item| Entry { key: self.key, value: item.get_ref(), place: place(item.span().start) })
            .collect())
    }

    fn ends(&self, sites: &[Site]) -> Result<[End; 2], Error> {
        const WANTED: &str = "a list of two names such as [\"a\", \"b\"]";
        let items = self.items(WANTED)?;
        let [from, to] = items.as_slice() else {
            return Err(self.wrong(Kind::Value, format!("has {} names; it must be {WANTED}", items.len())));
        };
        Ok([from.end(sites)?, to.end(sites)?])
    }

    fn end(&self, sites: &[Site]) -> Result<End, Error> {
        let name = self.string()?;
        if name == CORE {
            return Ok(End::Core);
        }
        sites.iter().position(|site| site.name == name).map(End::Site).ok_or_else(|| {
            let known: Vec<&str> = sites.iter().map(|site| site.name.as_str()).collect();
            let problem = format!("there is no site {name:?}; there are {}, and {CORE} for a star", known.join(", "));
            self.wrong(Kind::Value, problem)
        })
    }

    fn set(&self, properties: &mut Properties, is_one_way: bool, other_keys: &str) -> Result<(), Error> {
        if !property::is_known(self.key) {
            return Err(self.unknown(&format!("{other_keys}{NAMES}")));
        }
        properties.set(self.key, &self.scalar()?, is_one_way).map_err(|error| error.found_at(self.subject()))
    }

    fn string(&self) -> Result<&'t str, Error> {
        match self.value {
            DeValue::String(text) => Ok(text),
            other => Err(self.wrong(Kind::Value, format!("is a {}; it must be in quotes", other.type_str()))),
        }
    }

    /// A value of one word, whether it is quoted or not.
    fn scalar(&self) -> Result<String, Error> {
        match self.value {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
            DeValue::Float(number) => Ok(number.as_str().to_owned()),
            DeValue::Boolean(switch) => Ok(switch.to_string()),
            other => Err(self.wrong(Kind::Value, format!("is a {}; it must be one value", other.type_str()))),
        }
    }

    fn number<T: FromStr>(&self, wanted: &'static str) -> Result<T, Error> {
        let text = self.scalar()?;
        let malformed = || super::quantity::Malformed::new(&text, wanted).to_string();
        text.parse().map_err(|_| self.wrong(Kind::Value, malformed()))
    }

    fn duration(&self) -> Result<Duration, Error> {
        parse_duration(&self.scalar()?).map_err(|malformed| self.wrong(Kind::Value, malformed.to_string()))
    }

    /// Of one processor: there may be more than 100.
    fn percent(&self) -> Result<u32, Error> {
        let text = self.scalar()?;
        let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse().ok());
        let malformed = || super::quantity::Malformed::new(&text, "a share of one processor such as 20% or 150%");
        number.ok_or_else(|| self.wrong(Kind::Value, malformed().to_string()))
    }

    fn rate(&self) -> Result<Option<u64>, Error> {
        parse_rate(&self.scalar()?).map_err(|malformed| self.wrong(Kind::Value, malformed.to_string()))
    }

    fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, Error> {
        let text = self.string()?;
        choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            self.wrong(Kind::Value, format!("{text:?} is not one of {}", names.join(", ")))
        })
    }

    fn unknown(&self, known: &str) -> Error {
        self.wrong(Kind::UnknownKey, format!("unknown key; there are {known}"))
    }

    fn wrong(&self, kind: Kind, problem: impl Into<String>) -> Error {
        Error::new(kind, self.subject(), problem)
    }

    fn subject(&self) -> String {
        format!("line {}, {}", line_of(self.place.text, self.place.offset), self.place.path.escape_debug())
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
pub(super) mod tests;
