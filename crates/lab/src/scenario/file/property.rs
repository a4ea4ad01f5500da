//! The properties of a link's direction by name: one table for files and for the words of the command line.

use crate::scenario::quantity::{
    Malformed, parse_burst, parse_duration, parse_probability, parse_queue, parse_rate, parse_switch, show_duration,
    show_probability, show_queue, show_rate,
};
use crate::scenario::{Change, Error, Kind};

struct Property {
    name: &'static str,
    parse: fn(&str, &mut Change) -> Result<(), Malformed>,
    /// As a TOML value; none if the change leaves it.
    show: fn(&Change) -> Option<String>,
}

const RTT: &str = "rtt";
const DELAY: &str = "delay";

/// In the order in which they are written.
const PROPERTIES: [Property; 11] = [
    Property {
        name: RTT,
        parse: |text, change| parse_duration(text).map(|rtt| change.delay = Some(rtt / 2)),
        show: |_| None,
    },
    Property {
        name: DELAY,
        parse: |text, change| parse_duration(text).map(|delay| change.delay = Some(delay)),
        show: |change| change.delay.map(|delay| quoted(show_duration(delay))),
    },
    Property {
        name: "rate",
        parse: |text, change| parse_rate(text).map(|rate| change.bits_per_second = Some(rate)),
        show: |change| change.bits_per_second.map(|rate| quoted(show_rate(rate))),
    },
    Property {
        name: "queue",
        parse: |text, change| parse_queue(text).map(|queue| change.queue = Some(queue)),
        show: |change| change.queue.map(|queue| quoted(show_queue(queue))),
    },
    Property {
        name: "loss",
        parse: |text, change| parse_probability(text).map(|loss| change.loss = Some(loss)),
        show: |change| change.loss.map(|loss| quoted(show_probability(loss))),
    },
    Property {
        name: "loss-burst",
        parse: |text, change| parse_burst(text).map(|segments| change.loss_burst_segments = Some(segments)),
        show: |change| change.loss_burst_segments.map(|segments| quoted(segments.to_string())),
    },
    Property {
        name: "jitter",
        parse: |text, change| parse_duration(text).map(|jitter| change.jitter = Some(jitter)),
        show: |change| change.jitter.map(|jitter| quoted(show_duration(jitter))),
    },
    Property {
        name: "reorder",
        parse: |text, change| parse_switch(text).map(|reorder| change.reorder = Some(reorder)),
        show: |change| change.reorder.map(|reorder| reorder.to_string()),
    },
    Property {
        name: "duplicate",
        parse: |text, change| parse_probability(text).map(|duplicate| change.duplicate = Some(duplicate)),
        show: |change| change.duplicate.map(|duplicate| quoted(show_probability(duplicate))),
    },
    Property {
        name: "corrupt",
        parse: |text, change| parse_probability(text).map(|corrupt| change.corrupt = Some(corrupt)),
        show: |change| change.corrupt.map(|corrupt| quoted(show_probability(corrupt))),
    },
    Property {
        name: "down",
        parse: |text, change| parse_switch(text).map(|down| change.down = Some(down)),
        show: |change| change.down.map(|down| down.to_string()),
    },
];

/// All of them, for error texts.
pub(super) const DIRECTIONS: [&str; 2] = ["forward", "backward"];
pub(super) const NAMES: &str = "rtt, delay, rate, queue, loss, loss-burst, jitter, reorder, duplicate, corrupt, down";

/// Properties as they are read, each at most once.
#[derive(Default)]
pub(super) struct Properties {
    pub change: Change,
    given: Vec<&'static str>,
}

impl Properties {
    pub(super) fn set(&mut self, name: &str, text: &str, is_one_way: bool) -> Result<(), Error> {
        let wrong = |kind, problem: String| Err(Error::new(kind, format!("{name:?}"), problem));
        let Some(property) = PROPERTIES.iter().find(|property| property.name == name) else {
            return wrong(Kind::UnknownKey, format!("there is no such property; there are {NAMES}"));
        };
        if property.name == RTT && is_one_way {
            return wrong(Kind::Keys, "a round trip has no direction; give that direction a delay".into());
        }
        if self.given.contains(&property.name) {
            return wrong(Kind::Keys, "is given twice; give it once".into());
        }
        if [RTT, DELAY].iter().all(|either| self.given.contains(either) || property.name == *either) {
            return wrong(Kind::Keys, "rtt and delay say the same; give one of them".into());
        }
        if let Err(malformed) = (property.parse)(text, &mut self.change) {
            return wrong(Kind::Value, malformed.to_string());
        }
        self.given.push(property.name);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.given.is_empty()
    }
}

pub(super) fn is_known(name: &str) -> bool {
    PROPERTIES.iter().any(|property| property.name == name)
}

/// Names and TOML values of what a change sets.
pub(super) fn entries(change: &Change) -> impl Iterator<Item = (&'static str, String)> {
    PROPERTIES.iter().filter_map(|property| (property.show)(change).map(|value| (property.name, value)))
}

/// Reads `rtt=100ms`, `down=on`, and for one direction `forward.rate=1Gbit`.
///
/// Returns what changes in both directions before what changes in one, so that applying them in order lets a
/// direction's own word win. The index is of `Link::directions`.
pub fn parse_changes<S: AsRef<str>>(words: &[S]) -> Result<Vec<(Option<usize>, Change)>, Error> {
    let mut read = [(None, Properties::default()), (Some(0), Properties::default()), (Some(1), Properties::default())];
    for word in words.iter().map(AsRef::as_ref) {
        let subject = || format!("{word:?}");
        let (key, value) = word
            .split_once('=')
            .ok_or_else(|| Error::new(Kind::Syntax, subject(), "write it as PROPERTY=VALUE, such as rtt=100ms"))?;
        let (place, name) = match key.split_once('.') {
            None => (0, key),
            Some((direction, name)) => match DIRECTIONS.iter().position(|known| *known == direction) {
                Some(index) => (index + 1, name),
                None => {
                    let problem = format!("{direction:?} is no direction; there are forward and backward");
                    return Err(Error::new(Kind::UnknownKey, subject(), problem));
                }
            },
        };
        read[place].1.set(name, value, place > 0).map_err(|error| error.found_at(subject()))?;
    }
    let changes: Vec<(Option<usize>, Change)> = read
        .into_iter()
        .filter(|(_, properties)| !properties.is_empty())
        .map(|(direction, properties)| (direction, properties.change))
        .collect();
    if changes.is_empty() {
        return Err(Error::new(Kind::Keys, "change", format!("nothing is given; give PROPERTY=VALUE of {NAMES}")));
    }
    Ok(changes)
}

fn quoted(text: String) -> String {
    format!("\"{text}\"")
}
