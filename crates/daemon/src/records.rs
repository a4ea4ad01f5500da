//! Where an endpoint keeps what it knows of tickets, clients and hosts: files below its state directory, or, where several hosts are to
//! outlive each other, a coordinator that they share.
//!
//! A record has one key in both, such as `tickets/ID.toml`, and one form.
//!
//! Invariants: a record is written whole or not at all; `swap` and `add` change nothing that somebody else has changed meanwhile. Files
//! alone: two records of which one was there before are changed by one process at a time.
//!
//! Not here: what records say.

use crate::error::{Error, Result, shown};
use crate::private_file::{self, Existing};
use crate::trust;
use cluster::coordinator::{Coordinator, Fault, FaultKind, Held, KEYS_MAX, Lease};
use model::Exit;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How often a record is looked at again that others change.
const TRIES: usize = 8;

#[derive(Clone, Debug)]
pub struct Records {
    place: Place,
    /// What was read ahead.
    ahead: HashMap<String, Option<Vec<u8>>>,
}

#[derive(Clone, Debug)]
enum Place {
    Files(PathBuf),
    Shared { coordinator: Arc<dyn Coordinator>, prefix: String },
}

impl From<&Path> for Records {
    fn from(state_dir: &Path) -> Records {
        Records { place: Place::Files(state_dir.to_owned()), ahead: HashMap::new() }
    }
}

impl From<&Records> for Records {
    fn from(records: &Records) -> Records {
        records.clone()
    }
}

impl Records {
    /// Below `prefix`, which ends in a slash.
    pub fn shared(coordinator: Arc<dyn Coordinator>, prefix: String) -> Records {
        Records { place: Place::Shared { coordinator, prefix }, ahead: HashMap::new() }
    }

    pub fn is_shared(&self) -> bool {
        matches!(self.place, Place::Shared { .. })
    }

    /// The same with some records read at one moment, as they are then.
    pub fn reading(&self, keys: Vec<String>) -> Result<Records> {
        let mut read = self.clone();
        if let Place::Shared { coordinator, prefix } = &self.place {
            for page in keys.chunks(KEYS_MAX) {
                let names: Vec<_> = page.iter().map(|key| format!("{prefix}{key}")).collect();
                let values = coordinator.get(&names).map_err(|fault| of_fault(&fault))?;
                read.ahead.extend(page.iter().cloned().zip(values.into_iter().map(|held| held.map(|held| held.value))));
            }
        }
        Ok(read)
    }

    /// A record; one that is longer was not written by this program.
    pub fn get(&self, key: &str, bytes_max: u64, is_secret: bool) -> Result<Option<Vec<u8>>> {
        if let Some(read) = self.ahead.get(key) {
            return Ok(read.clone());
        }
        match &self.place {
            Place::Files(directory) => private_file::read(&directory.join(key), bytes_max, is_secret),
            Place::Shared { .. } => match self.held(key)? {
                Some(held) if held.value.len() as u64 > bytes_max => {
                    Err(Error::new(Exit::Failed, format!("{} was not written by this program", self.named(key))))
                }
                held => Ok(held.map(|held| held.value)),
            },
        }
    }

    pub fn has(&self, key: &str) -> Result<bool> {
        match &self.place {
            Place::Files(directory) => {
                let path = directory.join(key);
                path.try_exists().map_err(|e| Error::of_file("look for", &path, e))
            }
            Place::Shared { .. } => Ok(self.get(key, u64::MAX, false)?.is_some()),
        }
    }

    pub fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        match &self.place {
            Place::Files(_) => self.write(key, value, Existing::Replace).map(drop),
            Place::Shared { coordinator, .. } => self
                .again(key, |held| {
                    if held.is_some_and(|held| held.value == value) {
                        return Ok(Some(true));
                    }
                    let is_put = coordinator.change(&self.named(key), held, Some(value), None);
                    is_put.map(|is_put| is_put.then_some(true)).map_err(|fault| of_fault(&fault))
                })
                .map(drop),
        }
    }

    /// Makes a record; false where there is one.
    pub fn add(&self, key: &str, value: &[u8]) -> Result<bool> {
        match &self.place {
            Place::Files(_) => self.write(key, value, Existing::Keep),
            Place::Shared { coordinator, .. } => {
                coordinator.change(&self.named(key), None, Some(value), None).map_err(|fault| of_fault(&fault))
            }
        }
    }

    /// Replaces a record that is still `old`; false where it is not. Files: the caller sees to it that nobody else does.
    pub fn swap(&self, key: &str, old: Option<&[u8]>, new: &[u8]) -> Result<bool> {
        match (&self.place, old) {
            (_, None) => self.add(key, new),
            (Place::Files(_), Some(_)) => self.write(key, new, Existing::Replace),
            (Place::Shared { coordinator, .. }, Some(old)) => match self.held(key)? {
                Some(held) if held.value == old => {
                    coordinator.change(&self.named(key), Some(&held), Some(new), None).map_err(|fault| of_fault(&fault))
                }
                _ => Ok(false),
            },
        }
    }

    /// False where there was none.
    pub fn remove(&self, key: &str) -> Result<bool> {
        match &self.place {
            Place::Files(directory) => {
                let path = directory.join(key);
                match std::fs::remove_file(&path) {
                    Ok(()) => Ok(true),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
                    Err(e) => Err(Error::of_file("remove", &path, e)),
                }
            }
            Place::Shared { .. } => self.remove_if(key, &|_| Ok(true)),
        }
    }

    /// Removes a record if it is meant at the moment that it is taken away.
    pub fn remove_if(&self, key: &str, is_meant: &dyn Fn(&[u8]) -> Result<bool>) -> Result<bool> {
        match &self.place {
            Place::Files(directory) => remove_file_if(&directory.join(key), is_meant),
            Place::Shared { coordinator, .. } => self.again(key, |held| match held {
                None => Ok(Some(false)),
                Some(held) if !is_meant(&held.value)? => Ok(Some(false)),
                held => {
                    let is_gone = coordinator.change(&self.named(key), held, None, None);
                    is_gone.map(|is_gone| is_gone.then_some(true)).map_err(|fault| of_fault(&fault))
                }
            }),
        }
    }

    /// The names of the records in a directory, in no order.
    pub fn names(&self, directory: &str, most: usize) -> Result<Vec<String>> {
        match &self.place {
            Place::Files(state) => {
                let path = state.join(directory);
                let listing = match std::fs::read_dir(&path) {
                    Ok(listing) => listing,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                    Err(e) => return Err(Error::of_file("list", &path, e)),
                };
                let name =
                    |entry: io::Result<std::fs::DirEntry>| entry.map(|entry| entry.file_name().into_string().ok());
                let names = listing.take(most).filter_map(|entry| name(entry).transpose()).collect::<io::Result<_>>();
                names.map_err(|e| Error::of_file("list", &path, e))
            }
            Place::Shared { coordinator, prefix } => {
                let above = format!("{prefix}{directory}/");
                let keys = coordinator.list(&above, most).map_err(|fault| of_fault(&fault))?;
                Ok(keys.iter().filter_map(|key| key.strip_prefix(&above)).map(str::to_owned).collect())
            }
        }
    }

    /// For how long nobody renewed what a record ends with; nothing where it has ended.
    pub fn silent_seconds(&self, key: &str) -> Result<Option<u64>> {
        let (Place::Shared { coordinator, .. }, Some(held)) = (&self.place, self.held(key)?) else { return Ok(None) };
        let Some(lease) = held.lease else { return Ok(None) };
        let left = coordinator.left_seconds(lease).map_err(|fault| of_fault(&fault))?;
        Ok(left.map(|(left, granted)| granted - left))
    }

    /// Makes a record that ends with a lease; false where there is one.
    pub fn add_leased(&self, key: &str, value: &[u8], lease: Lease) -> Result<bool> {
        let Place::Shared { coordinator, .. } = &self.place else { return Ok(false) };
        coordinator.change(&self.named(key), None, Some(value), Some(lease)).map_err(|fault| of_fault(&fault))
    }

    /// Writes a record that ends with a lease; false where that has ended.
    pub fn put_leased(&self, key: &str, value: &[u8], lease: Lease) -> Result<bool> {
        let Place::Shared { coordinator, .. } = &self.place else { return Ok(false) };
        for _ in 0..TRIES {
            let held = self.held(key)?;
            let is_put = coordinator.change(&self.named(key), held.as_ref(), Some(value), Some(lease));
            if is_put.map_err(|fault| of_fault(&fault))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes sure that what was removed from a directory stays so after a crash.
    pub fn settle(&self, directory: &str) -> Result<()> {
        let Place::Files(state) = &self.place else { return Ok(()) };
        let path = state.join(directory);
        private_file::sync_directory(&path).map_err(|e| Error::of_file("sync", &path, e))
    }

    /// A record as a person may find it.
    pub fn named(&self, key: &str) -> String {
        match &self.place {
            Place::Files(directory) => shown(&directory.join(key)),
            Place::Shared { prefix, .. } => format!("{prefix}{key}"),
        }
    }

    fn held(&self, key: &str) -> Result<Option<Held>> {
        let Place::Shared { coordinator, .. } = &self.place else { return Ok(None) };
        let found = coordinator.get(&[self.named(key)]).map_err(|fault| of_fault(&fault))?;
        Ok(found.into_iter().next().flatten())
    }

    /// Looks and acts, until nobody came between.
    fn again(&self, key: &str, act: impl Fn(Option<&Held>) -> Result<Option<bool>>) -> Result<bool> {
        for _ in 0..TRIES {
            if let Some(done) = act(self.held(key)?.as_ref())? {
                return Ok(done);
            }
        }
        Err(Error::new(Exit::Temporary, format!("{} is changed by others again and again", self.named(key))))
    }

    fn write(&self, key: &str, value: &[u8], existing: Existing) -> Result<bool> {
        let Place::Files(state) = &self.place else { return Ok(false) };
        let path = state.join(key);
        path.parent().map_or(Ok(()), trust::make_private_directory)?;
        match private_file::write(&path, value, existing) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && existing == Existing::Keep => Ok(false),
            Err(e) => Err(Error::of_file("write", &path, e)),
        }
    }
}

/// What a coordinator's fault is for a person.
pub fn of_fault(fault: &Fault) -> Error {
    let exit = match fault.kind {
        FaultKind::Silent => Exit::Temporary,
        FaultKind::Refused => Exit::Refused,
        FaultKind::Malformed => Exit::Failed,
        FaultKind::Settings => Exit::Usage,
    };
    Error::new(exit, &fault.text[..]).hint(&fault.advice[..])
}

/// What is to go is judged before anything is done, so that an error changes nothing. It goes under another name first: if
/// it was written anew meanwhile, it comes back and is judged again.
fn remove_file_if(path: &Path, is_meant: &dyn Fn(&[u8]) -> Result<bool>) -> Result<bool> {
    let failed = |e| Error::of_file("remove", path, e);
    let read = |path: &Path| private_file::read(path, cluster::coordinator::VALUE_BYTES_MAX as u64, false);
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!(".{name}.{}", data_encoding::HEXLOWER.encode(&net::random_bytes::<8>())));
    for _ in 0..TRIES {
        let Some(judged) = read(path)? else { return Ok(false) };
        if !is_meant(&judged)? {
            return Ok(false);
        }
        match std::fs::rename(path, &aside) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            renamed => renamed.map_err(failed)?,
        }
        let is_removed = read(&aside).is_ok_and(|taken| taken.as_ref() == Some(&judged));
        if !is_removed {
            match net::identity::name_new(&aside, path) {
                // Written once more.
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(e)),
                _ => {}
            }
        }
        match std::fs::remove_file(&aside) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ if is_removed => return Ok(true),
            _ => {}
        }
    }
    Err(Error::new(Exit::Temporary, format!("{} is changed by others again and again", shown(path))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_cannot_be_judged_stays_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::from(dir.path());
        records.put("clients/a.toml", b"one").unwrap();
        let names = || records.names("clients", 9).unwrap();
        let unsure = |_: &[u8]| -> Result<bool> { Err(Error::new(Exit::Failed, "nobody can tell")) };
        assert_eq!(records.remove_if("clients/a.toml", &unsure).unwrap_err().message, "nobody can tell");
        assert!(!records.remove_if("clients/a.toml", &|_| Ok(false)).unwrap());
        assert_eq!(records.get("clients/a.toml", 9, false).unwrap().unwrap(), b"one");
        assert_eq!(names(), ["a.toml"]);
        assert!(records.remove_if("clients/a.toml", &|bytes| Ok(bytes == b"one")).unwrap() && names().is_empty());
        assert!(!records.remove_if("clients/a.toml", &|_| Ok(true)).unwrap());
    }

    #[test]
    fn a_record_that_is_written_anew_while_it_is_judged_is_judged_again() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::from(dir.path());
        records.put("clients/a.toml", b"old").unwrap();
        let is_old = |bytes: &[u8]| -> Result<bool> {
            let is_old = bytes == b"old";
            if is_old {
                records.put("clients/a.toml", b"new")?;
            }
            Ok(is_old)
        };
        assert!(!records.remove_if("clients/a.toml", &is_old).unwrap());
        assert_eq!(records.get("clients/a.toml", 9, false).unwrap().unwrap(), b"new");
        assert_eq!(records.names("clients", 9).unwrap(), ["a.toml"]);
    }
}
