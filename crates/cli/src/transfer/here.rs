//! This host as one end of a copy by several hosts: an endpoint in this process for one directory, which nobody else knows.
//!
//! Invariant: it listens on loopback alone, lets in whoever gave the command, and ends with the command; what it kept goes then,
//! or with the next such command when this one was killed.
//!
//! Not here: who does what (`daemon::crew`).

use super::request::Request;
use crate::exit::{Result, error, of_file};
use daemon::endpoints::Replace;
use daemon::{Endpoint, EndpointBook, Paths, ServeOptions, Served, StateLock, Ticket, enrol, trust};
use model::{Exit, JobId};
use net::Identity;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What it is called in messages.
pub const NAME: &str = "this-host";
/// Below the state directory, one for each command that runs.
const PLACES: &str = "here";
/// One that was killed leaves its place; one that has just been made is about to be used.
const LEFT_AFTER: Duration = Duration::from_secs(60);
const END_PATIENCE: Duration = Duration::from_secs(5);

pub struct Here {
    pub endpoint: Endpoint,
    served: Option<Served>,
    place: PathBuf,
    directory: PathBuf,
}

impl Here {
    /// Serves a directory that is there.
    ///
    /// # Errors
    /// When it cannot be served, or holds every place in which such an endpoint could keep its files.
    pub fn start(directory: &Path, is_source: bool, request: &Request, identity: &Identity) -> Result<Here> {
        let place = make_place(directory)?;
        let mut options = ServeOptions::new("127.0.0.1:0", directory, place.join("state"));
        options.name = Some(NAME.to_owned());
        options.ticket_file = Some(place.join("ticket"));
        options.read_only = is_source;
        options.congestion.clone_from(&request.spec.congestion);
        options.memory_bytes = request.spec.memory_bytes.unwrap_or(options.memory_bytes);
        // As in any copy of one's own files.
        options.crosses_mounts = true;
        options.is_for_one_command = true;
        let served = Served::start(options).inspect_err(|_| drop(fs::remove_dir_all(&place)))?;
        let failed = |e: String| error(Exit::Failed, e, "give the command again");
        let text = fs::read_to_string(place.join("ticket")).map_err(|e| failed(format!("read a ticket: {e}")))?;
        let ticket = Ticket::parse(&text).map_err(|e| failed(e.to_string()))?;
        let book = EndpointBook::new(place.join("endpoints"));
        let enrolled = enrol(&ticket, NAME, identity, &book, Replace::SameIdentity)?;
        Ok(Here { endpoint: enrolled.endpoint, served: Some(served), place, directory: directory.to_owned() })
    }
}

impl Here {
    /// Ends it, and removes what kept parts that were taken over from going on here. They were carried out by this process, or by one of
    /// the same command that was killed; if one still stands, in storage that does not answer, everything stays.
    pub fn forget(mut self, voided: &[JobId]) {
        let is_drained = self
            .served
            .take()
            .is_some_and(|served| served.run_until(&AtomicBool::new(true), END_PATIENCE).unwrap_or(false));
        if is_drained && let Ok(directory) = fs::File::open(&self.directory) {
            store::posix::forget_slices(directory.as_fd(), voided);
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        drop(self.served.take());
        let _ = fs::remove_dir_all(&self.place);
    }
}

/// A directory for the endpoint's files that is not below the one that it serves.
fn make_place(served: &Path) -> Result<PathBuf> {
    let Paths { state, runtime, .. } = Paths::from_env()?;
    let apart = |place: &PathBuf| {
        daemon::real_path(place).is_ok_and(|real| !real.starts_with(served) && !served.starts_with(&real))
    };
    let places = [state, runtime].map(|parent| parent.join(PLACES));
    let Some(place) = places.iter().find(|place| apart(place)) else {
        let text = format!("{} holds thalweg's own files", served.display());
        return Err(error(Exit::Refused, text, "name a directory below it, or omit --hosts and --to-hosts"));
    };
    trust::make_private_directory(place)?;
    remove_left(place);
    let own = place.join(format!("{:016x}", u64::from_ne_bytes(net::random_bytes())));
    trust::make_private_directory(&own)?;
    Ok(own)
}

/// What killed commands have left.
fn remove_left(places: &Path) {
    let is_old = |path: &Path| {
        let modified = fs::metadata(path).and_then(|found| found.modified());
        modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= LEFT_AFTER))
    };
    for entry in fs::read_dir(places).into_iter().flatten().flatten() {
        let path = entry.path();
        let state = path.join("state");
        if is_old(&path) && (!state.exists() || StateLock::take(&state).is_ok()) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// The directory that a path of this host names.
///
/// # Errors
/// When it is none.
pub fn directory(path: &[u8]) -> Result<PathBuf> {
    let path = Path::new(OsStr::from_bytes(path));
    fs::canonicalize(path).map_err(|e| of_file("open directory", path, &e))
}
