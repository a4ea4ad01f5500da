//! What is written down of one client: a file `clients/PIN.toml` below the state directory, read, listed and taken away.
//!
//! Invariant: a file that is not understood is an error, and no client.
//!
//! Not here: who is let in and what they may (`clients`).

use crate::error::{Error, Result};
use crate::limited::is_id;
use crate::records::Records;
use cluster::coordinator::KEYS_MAX;
use model::{Exit, Pin};
use serde::{Deserialize, Serialize};

pub const FILE_BYTES_MAX: u64 = 4096;
pub const CLIENTS_MAX: usize = 100_000;
/// Begin the first lines of a client's file. To a release before them they are comments, and that takes no key it does not know.
pub const BY_CREDENTIAL: &str = "# by the credential ";
const MANAGES_BY: &str = "# manages rates by the ticket ";

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enrolment {
    pub pin: String,
    /// For logs: where it came from when it enrolled. A person may give it another name.
    pub name: String,
    /// RFC 3339.
    pub enrolled: String,
    pub may_write: bool,
    /// The limited ticket that it was enrolled with, and lives by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// The id of the credential without limits that it was enrolled with; `None` also where an older release wrote the file.
    #[serde(skip)]
    pub credential: Option<String>,
    /// The ticket by which a client without limits manages rates besides. It does not live by it.
    #[serde(skip)]
    pub manages_by: Option<String>,
}

impl Enrolment {
    pub fn to_text(&self) -> String {
        let named = [(BY_CREDENTIAL, &self.credential), (MANAGES_BY, &self.manages_by)].into_iter();
        let lines = named.filter_map(|(begin, id)| id.as_ref().map(|id| format!("{begin}{id}\n")));
        lines.collect::<String>() + &toml::to_string(self).expect("texts and a truth value have a TOML form")
    }
}

/// The clients that are written down, in order of their pins; one that cannot be read is an error.
pub fn list(records: impl Into<Records>) -> Result<Vec<Enrolment>> {
    let mut clients = Vec::new();
    visit(&records.into(), &mut |client| {
        clients.push(client?);
        Ok(())
    })?;
    clients.sort_by(|a, b| a.pin.cmp(&b.pin));
    Ok(clients)
}

/// Shows each client, until `see` has seen enough.
pub fn visit(records: &Records, see: &mut dyn FnMut(Result<Enrolment>) -> Result<()>) -> Result<()> {
    // What is being written has another name, and what was removed meanwhile is no client.
    let pin = |name: &String| name.strip_suffix(".toml").and_then(Pin::from_hex);
    let pins: Vec<Pin> = records.names("clients", CLIENTS_MAX)?.iter().filter_map(pin).collect();
    for page in pins.chunks(KEYS_MAX) {
        let records = records.reading(page.iter().map(|pin| key(*pin)).collect())?;
        for pin in page {
            match records.get(&key(*pin), FILE_BYTES_MAX, false) {
                Ok(Some(bytes)) => see(parse(&records.named(&key(*pin)), &bytes, *pin))?,
                Ok(None) => {}
                Err(e) => see(Err(e))?,
            }
        }
    }
    Ok(())
}

pub fn key(pin: Pin) -> String {
    format!("clients/{pin}.toml")
}

/// Removes a client. False when it is not there.
pub fn remove(records: impl Into<Records>, pin: &str) -> Result<bool> {
    records.into().remove(&format!("clients/{pin}.toml"))
}

pub fn parse(named: &str, bytes: &[u8], pin: Pin) -> Result<Enrolment> {
    let wrong = |what: &str| Error::new(Exit::Failed, format!("{named}: {}", what.trim_end()));
    let text = std::str::from_utf8(bytes).map_err(|_| wrong("not text"))?;
    let mut known: Enrolment = toml::from_str(text).map_err(|e| wrong(e.message()))?;
    for line in text.lines().take_while(|line| line.starts_with('#')) {
        let (by, id) = match (line.strip_prefix(BY_CREDENTIAL), line.strip_prefix(MANAGES_BY)) {
            (Some(id), _) => (&mut known.credential, id),
            (None, Some(id)) => (&mut known.manages_by, id),
            (None, None) => continue,
        };
        if !is_id(id) {
            return Err(wrong("no id of a credential"));
        }
        *by = Some(id.to_owned());
    }
    if known.pin != pin.to_string() {
        return Err(wrong("the pin in the file is not that of the file"));
    }
    Ok(known)
}

/// Removes a client if its record is what is meant, at the moment that it is taken away: it may have come to live by another
/// ticket since it was listed.
pub fn remove_if(
    records: impl Into<Records>,
    pin: &str,
    is_meant: &dyn Fn(&Enrolment) -> Result<bool>,
) -> Result<bool> {
    let (records, key) = (records.into(), format!("clients/{pin}.toml"));
    records.remove_if(&key, &|bytes| {
        let client = Pin::from_hex(pin).and_then(|pin| parse(&records.named(&key), bytes, pin).ok());
        client.as_ref().map_or(Ok(true), is_meant)
    })
}
