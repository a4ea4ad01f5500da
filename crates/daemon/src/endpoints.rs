//! The endpoints that this user knows: one file each, `NAME.toml`, mode 0600.
//!
//! Invariants:
//! - An endpoint's identity under a name changes only when the user says so (`Replace::Always`).
//! - A file with a key that this version does not know is an error, not half understood.

use crate::error::{Error, Result, shown};
use crate::private_file::{self, Existing};
use crate::{ticket, trust};
use model::{Exit, Pin};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

const FILE_BYTES_MAX: u64 = 64 << 10;
/// More known endpoints than this are not listed.
const ENDPOINTS_MAX: usize = 10_000;
const NAME_BYTES_MAX: usize = 64;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    pub name: String,
    /// `HOST:PORT`, tried in this order.
    pub addresses: Vec<String>,
    pub pin: Pin,
    /// RFC 3339.
    pub added: String,
}

impl Endpoint {
    /// Reads the content of the file of this name.
    pub fn parse(name: &str, content: &[u8]) -> Result<Endpoint> {
        check_name(name)?;
        parse(Path::new(name), content, name)
    }

    /// The content of its file.
    pub fn to_text(&self) -> String {
        let record = Record {
            name: self.name.clone(),
            addresses: self.addresses.clone(),
            pin: self.pin.to_string(),
            added: self.added.clone(),
        };
        toml::to_string(&record).expect("texts and a list of texts have a TOML form")
    }
}

/// What to do when the name is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replace {
    /// Only an entry of the same identity, whose addresses may have changed.
    SameIdentity,
    Always,
}

#[derive(Clone, Debug)]
pub struct EndpointBook {
    directory: PathBuf,
}

impl EndpointBook {
    /// The book in `directory`, usually `Paths::endpoints`. Nothing is made until something is added.
    pub fn new(directory: impl Into<PathBuf>) -> EndpointBook {
        EndpointBook { directory: directory.into() }
    }

    /// Which hosts it had before is forgotten.
    pub fn add(&self, endpoint: &Endpoint, replace: Replace) -> Result<()> {
        self.may_add(&endpoint.name, endpoint.pin, replace)?;
        trust::make_private_directory(&self.directory)?;
        let path = self.path(&endpoint.name);
        let _ = std::fs::remove_file(self.hosts_file(&endpoint.name));
        private_file::write(&path, endpoint.to_text().as_bytes(), Existing::Replace)
            .map_err(|e| Error::of_file("write", &path, e))
    }

    /// Whether `add` would be allowed, to know it before a ticket is redeemed.
    pub fn may_add(&self, name: &str, pin: Pin, replace: Replace) -> Result<()> {
        check_name(name)?;
        if replace == Replace::Always {
            return Ok(());
        }
        match self.read(name)? {
            Some(known) if known.pin != pin => Err(Error::new(
                Exit::Authentication,
                format!("{name} is already known with another identity ({})", known.pin),
            )
            .hint("choose another name, or give --replace if the endpoint has a new identity and you expected that")),
            _ => Ok(()),
        }
    }

    pub fn get(&self, name: &str) -> Result<Endpoint> {
        check_name(name)?;
        if let Some(endpoint) = self.read(name)? {
            return Ok(endpoint);
        }
        let known: Vec<_> = self.names()?;
        let hint = match known.is_empty() {
            true => "no endpoint is known yet: `thalweg endpoint add NAME --ticket-file FILE`".to_owned(),
            false => format!("known endpoints: {}", known.join(", ")),
        };
        Err(Error::new(Exit::Usage, format!("no endpoint {name} is known")).hint(hint))
    }

    /// True when an endpoint of this name is known; false also for what cannot be a name.
    pub fn has(&self, name: &str) -> bool {
        check_name(name).is_ok() && self.path(name).exists()
    }

    /// The endpoint that has `address` among its addresses.
    pub fn find_by_address(&self, address: &str) -> Result<Endpoint> {
        let known = self.list()?;
        known.into_iter().find(|e| e.addresses.iter().any(|a| a.eq_ignore_ascii_case(address))).ok_or_else(|| {
            let address = model::name::Escaped(address.as_bytes());
            Error::new(Exit::Authentication, format!("no endpoint with the address {address} is known"))
                .hint("its identity must be known first: `thalweg endpoint add NAME --ticket-file FILE`")
        })
    }

    /// All known endpoints in order of their names.
    pub fn list(&self) -> Result<Vec<Endpoint>> {
        let mut endpoints = Vec::new();
        for name in self.names()? {
            endpoints.extend(self.read(&name)?);
        }
        Ok(endpoints)
    }

    /// Forgets an endpoint. The endpoint still knows this client.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.get(name)?;
        let path = self.path(name);
        let _ = std::fs::remove_file(self.hosts_file(name));
        std::fs::remove_file(&path).map_err(|e| Error::of_file("remove", &path, e))
    }

    /// Where it is kept which hosts an endpoint has (`hosts::known`).
    pub(crate) fn hosts_file(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.hosts"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.toml"))
    }

    fn names(&self) -> Result<Vec<String>> {
        let failed = |e| Error::of_file("list", &self.directory, e);
        let listing = match std::fs::read_dir(&self.directory) {
            Ok(listing) => listing,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed(e)),
        };
        let mut names = Vec::new();
        for file in listing.take(ENDPOINTS_MAX) {
            let file_name = file.map_err(failed)?.file_name();
            let name = file_name.to_str().and_then(|f| f.strip_suffix(".toml"));
            names.extend(name.filter(|name| check_name(name).is_ok()).map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    fn read(&self, name: &str) -> Result<Option<Endpoint>> {
        let path = self.path(name);
        let Some(bytes) = private_file::read(&path, FILE_BYTES_MAX, false)? else { return Ok(None) };
        parse(&path, &bytes, name).map(Some)
    }
}

/// The form of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    name: String,
    addresses: Vec<String>,
    pin: String,
    added: String,
}

fn parse(path: &Path, bytes: &[u8], name: &str) -> Result<Endpoint> {
    let wrong = |what: &str| {
        Error::new(Exit::Failed, format!("{}: {}", shown(path), what.trim_end()))
            .hint("correct the file, or remove it and add the endpoint again with its ticket")
    };
    let text = std::str::from_utf8(bytes).map_err(|_| wrong("not text"))?;
    let record: Record = toml::from_str(text).map_err(|e| wrong(e.message()))?;
    if record.name != name {
        return Err(wrong("the name in the file is not that of the file"));
    }
    let is_usable = !record.addresses.is_empty() && record.addresses.iter().all(|a| ticket::is_address(a));
    if !is_usable || record.addresses.len() > ticket::ADDRESSES_MAX {
        return Err(wrong("`addresses` must be 1 to 16 of the form HOST:PORT"));
    }
    let pin = Pin::from_hex(&record.pin).ok_or_else(|| wrong("`pin` must be 64 hexadecimal digits"))?;
    Ok(Endpoint { name: record.name, addresses: record.addresses, pin, added: record.added })
}

/// Names become file names and stand before a colon on the command line.
pub fn check_name(name: &str) -> Result<()> {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let is_reserved = matches!(name, "gen" | "null");
    let is_name = !is_reserved
        && (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_allowed)
        && !name.starts_with(['-', '.']);
    if is_name {
        return Ok(());
    }
    let shown = model::name::Escaped(&name.as_bytes()[..name.len().min(200)]);
    Err(Error::new(Exit::Usage, format!("{shown:?} cannot name an endpoint", shown = shown.to_string())).hint(
        "a name has 1 to 64 letters, digits, `.`, `_` or `-`, does not begin with `.` or `-`, and is not gen or null",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn endpoint(name: &str, pin: u8) -> Endpoint {
        let addresses = vec!["192.0.2.1:7740".into(), "[2001:db8::1]:7740".into()];
        Endpoint { name: name.into(), addresses, pin: Pin([pin; 32]), added: "2025-01-02T03:04:05Z".into() }
    }

    fn book() -> (tempfile::TempDir, EndpointBook) {
        let dir = tempfile::tempdir().unwrap();
        let book = EndpointBook::new(dir.path().join("endpoints"));
        (dir, book)
    }

    #[test]
    fn what_was_added_is_found_by_name_and_by_address_and_can_be_forgotten() {
        let (dir, book) = book();
        assert_eq!(book.list().unwrap(), []);
        for name in ["lab", "b.c_d-1"] {
            book.add(&endpoint(name, 1), Replace::SameIdentity).unwrap();
        }
        assert_eq!(book.get("lab").unwrap(), endpoint("lab", 1));
        assert!(book.has("lab") && !book.has("la") && !book.has("../endpoints/lab"));
        assert_eq!(book.find_by_address("[2001:DB8::1]:7740").unwrap().pin, Pin([1; 32]));
        assert_eq!(book.find_by_address("192.0.2.1:7741").unwrap_err().exit, Exit::Authentication);
        assert_eq!(book.list().unwrap().len(), 2);
        let mode = std::fs::metadata(dir.path().join("endpoints/lab.toml")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o600);
        book.remove("lab").unwrap();
        assert!(book.remove("lab").is_err());
    }

    #[test]
    fn an_unknown_name_is_told_with_those_that_are_known() {
        let (_dir, book) = book();
        assert!(book.get("lab").unwrap_err().hint.unwrap().contains("endpoint add"));
        book.add(&endpoint("lab", 1), Replace::SameIdentity).unwrap();
        let error = book.get("labs").unwrap_err();
        assert_eq!((error.exit, error.hint.as_deref()), (Exit::Usage, Some("known endpoints: lab")));
    }

    #[test]
    fn another_identity_under_a_known_name_needs_a_word() {
        let (_dir, book) = book();
        book.add(&endpoint("lab", 1), Replace::SameIdentity).unwrap();
        let moved = Endpoint { addresses: vec!["192.0.2.9:1".into()], ..endpoint("lab", 1) };
        book.add(&moved, Replace::SameIdentity).unwrap();
        assert_eq!(book.get("lab").unwrap(), moved);
        let refused = book.add(&endpoint("lab", 2), Replace::SameIdentity).unwrap_err();
        assert_eq!(refused.exit, Exit::Authentication);
        assert_eq!(book.get("lab").unwrap(), moved);
        book.add(&endpoint("lab", 2), Replace::Always).unwrap();
        assert_eq!(book.get("lab").unwrap().pin, Pin([2; 32]));
    }

    #[test]
    fn names_that_could_be_paths_or_options_are_refused() {
        let (_dir, book) = book();
        for name in ["", ".", "..", "-x", ".x", "a/b", "a b", "a:b", "\u{e9}", "a\n", &"x".repeat(65)] {
            assert_eq!(book.add(&endpoint(name, 1), Replace::Always).unwrap_err().exit, Exit::Usage, "{name:?}");
            assert_eq!(book.get(name).unwrap_err().exit, Exit::Usage, "{name:?}");
        }
        check_name(&"x".repeat(64)).unwrap();
    }

    #[test]
    fn a_file_that_is_not_understood_is_an_error_that_names_it() {
        let (dir, book) = book();
        book.add(&endpoint("lab", 1), Replace::Always).unwrap();
        let path = dir.path().join("endpoints/lab.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let changes = [
            format!("{text}port = 7740\n"),
            text.replace("lab", "other"),
            text.replace("01", "zz"),
            text.replace(":7740", ""),
            "addresses = [".to_owned(),
            String::new(),
        ];
        for change in changes {
            std::fs::write(&path, &change).unwrap();
            let error = book.get("lab").unwrap_err();
            assert!(error.message.contains("lab.toml") && error.hint.is_some(), "{change}: {error}");
        }
        std::fs::write(&path, &text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(book.get("lab").unwrap_err().exit, Exit::Refused);
    }
}
