//! What is written down of one client: a file `clients/PIN.toml` below the state directory, read, listed and taken away.
//!
//! Invariant: a file that is not understood is an error, and no client.
//!
//! Not here: who is let in and what they may (`clients`).

use crate::error::{Error, Result, shown};
use crate::limited::is_id;
use crate::private_file;
use model::{Exit, Pin};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

pub const FILE_BYTES_MAX: u64 = 4096;
pub const CLIENTS_MAX: usize = 100_000;
/// Begins the first line of a client's file. To the release before it is a comment, and that takes no key it does not know.
pub const BY_CREDENTIAL: &str = "# by the credential ";

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
}

impl Enrolment {
    pub fn to_text(&self) -> String {
        let by = self.credential.as_ref().map_or_else(String::new, |id| format!("{BY_CREDENTIAL}{id}\n"));
        by + &toml::to_string(self).expect("texts and a truth value have a TOML form")
    }
}

/// The clients written down in a state directory, in order of their pins; a file that cannot be read is an error.
pub fn list(state_dir: &Path) -> Result<Vec<Enrolment>> {
    let mut clients = Vec::new();
    visit(&state_dir.join("clients"), &mut |client| {
        clients.push(client?);
        Ok(())
    })?;
    clients.sort_by(|a, b| a.pin.cmp(&b.pin));
    Ok(clients)
}

/// Shows each client of the directory, until `see` has seen enough.
pub fn visit(directory: &Path, see: &mut dyn FnMut(Result<Enrolment>) -> Result<()>) -> Result<()> {
    let listing = match std::fs::read_dir(directory) {
        Ok(listing) => listing,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::of_file("list", directory, e)),
    };
    for entry in listing.take(CLIENTS_MAX) {
        let path = entry.map_err(|e| Error::of_file("list", directory, e))?.path();
        let pin = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".toml")).and_then(Pin::from_hex);
        // What is being written has another name, and what was removed meanwhile is no client.
        let Some(pin) = pin else { continue };
        match private_file::read(&path, FILE_BYTES_MAX, false) {
            Ok(Some(bytes)) => see(parse(&path, &bytes, pin))?,
            Ok(None) => {}
            Err(e) => see(Err(e))?,
        }
    }
    Ok(())
}

pub fn is_enrolled(state_dir: &Path, pin: Pin) -> bool {
    state_dir.join("clients").join(format!("{pin}.toml")).exists()
}

/// Removes a client. False when it is not there.
pub fn remove(state_dir: &Path, pin: &str) -> Result<bool> {
    let path = state_dir.join("clients").join(format!("{pin}.toml"));
    match std::fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::of_file("remove", &path, e)),
    }
}

pub fn parse(path: &Path, bytes: &[u8], pin: Pin) -> Result<Enrolment> {
    let wrong = |what: &str| Error::new(Exit::Failed, format!("{}: {}", shown(path), what.trim_end()));
    let text = std::str::from_utf8(bytes).map_err(|_| wrong("not text"))?;
    let mut known: Enrolment = toml::from_str(text).map_err(|e| wrong(e.message()))?;
    known.credential = text.lines().next().and_then(|line| line.strip_prefix(BY_CREDENTIAL)).map(str::to_owned);
    if known.credential.as_deref().is_some_and(|id| !is_id(id)) {
        return Err(wrong("no id of a credential"));
    }
    if known.pin != pin.to_string() {
        return Err(wrong("the pin in the file is not that of the file"));
    }
    Ok(known)
}

/// Removes a client if its file is what is meant, at the moment that it is taken away: it may have come to live by another
/// ticket since it was listed.
pub fn remove_if(state_dir: &Path, pin: &str, is_meant: &dyn Fn(&Enrolment) -> Result<bool>) -> Result<bool> {
    let path = state_dir.join("clients").join(format!("{pin}.toml"));
    let aside = path.with_file_name(format!(".{pin}.{}", data_encoding::HEXLOWER.encode(&net::random_bytes::<8>())));
    let failed = |e| Error::of_file("remove", &path, e);
    match std::fs::rename(&path, &aside) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        renamed => renamed.map_err(failed)?,
    }
    let bytes = private_file::read(&aside, FILE_BYTES_MAX, false)?.unwrap_or_default();
    let client = Pin::from_hex(pin).and_then(|pin| parse(&path, &bytes, pin).ok());
    let is_removed = client.as_ref().map_or(Ok(true), is_meant)?;
    if !is_removed {
        // Unless it was written anew meanwhile.
        match std::fs::hard_link(&aside, &path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(e)),
            _ => {}
        }
    }
    std::fs::remove_file(&aside).map_err(failed)?;
    Ok(is_removed)
}
