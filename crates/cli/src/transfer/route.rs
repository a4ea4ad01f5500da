//! Which way the bytes go, from the locations that were named.

use super::far::{Far, far_path};
use super::{Direction, Request};
use crate::exit::{Error, Result, error, usage};
use crate::output::shown;
use daemon::{EndpointBook, Paths, job_id};
use model::options::Verify;
use model::synthetic::is_null;
use model::{Exit, JobId, Location, Pin};
use mover::{CloseCode, Refusal};
use net::Identity;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

pub enum Route {
    Push { far: Far, path: Vec<u8> },
    Pull { far: Far, paths: Vec<Vec<u8>> },
    Local,
}

impl Route {
    pub fn find(request: &Request, paths: Result<&Paths, &Error>) -> Result<Route> {
        let Request { sources, destination, .. } = request;
        let pipes = sources.iter().filter(|source| **source == Location::Pipe).count();
        if pipes > 0 && sources.len() > 1 {
            return Err(usage(
                "standard input can only be the one source",
                "copy the others with a command of their own",
            ));
        }
        if *destination == Location::Pipe && sources.len() > 1 {
            return Err(usage("standard output takes one file", "give one source, or name a directory"));
        }
        if sources.len() > 1 && sources.iter().any(Location::is_synthetic) {
            return Err(usage(
                "a generated source must be the only one",
                "copy the others with a command of their own",
            ));
        }
        if sources.iter().any(|source| is_null(source.path())) {
            return Err(usage("nothing can be read from null:", "a source that makes its files is gen:COUNTxSIZE"));
        }
        if destination.is_synthetic() && !is_null(destination.path()) {
            return Err(usage("nothing can be written to gen:", "a sink that forgets what it is given is null:"));
        }
        if is_null(destination.path()) && request.options.verify == Verify::Reread {
            return Err(usage("null: keeps nothing that could be read back", "leave --verify reread away"));
        }
        let remote = sources.iter().filter(|source| source.is_remote()).count();
        match (remote, destination.is_remote()) {
            (0, false) => Ok(Route::Local),
            (0, true) => {
                let path = destination.path().to_vec();
                if pipes > 0 && (path.is_empty() || path.ends_with(b"/")) {
                    return Err(no_name());
                }
                let far = Far::find(destination, &book(paths)?, &request.ssh)?;
                let path = path_for(&far, &path);
                Ok(Route::Push { far, path })
            }
            (n, false) if n == sources.len() => {
                let book = book(paths)?;
                let far = Far::find(&sources[0], &book, &request.ssh)?;
                for source in &sources[1..] {
                    if !is_at(source, &far, &book)? {
                        return Err(usage("the sources are at several endpoints", "give a command for each endpoint"));
                    }
                }
                let paths = sources.iter().map(|source| path_for(&far, source.path())).collect();
                Ok(Route::Pull { far, paths })
            }
            (n, true) if n == sources.len() => Err(usage(
                "copies from one endpoint to another come with a later version",
                "copy to this host first, or run the command on one of the two",
            )),
            _ => Err(usage("some sources are on this host and some at an endpoint", "give a command for each side")),
        }
    }

    pub fn direction(&self) -> Direction {
        match self {
            Route::Push { .. } => Direction::Push,
            Route::Pull { .. } => Direction::Pull,
            Route::Local => Direction::Local,
        }
    }

    fn leaves_root(&self) -> bool {
        match self {
            Route::Push { far: Far::Endpoint(_), path } => is_outside(path),
            Route::Pull { far: Far::Endpoint(_), paths } => paths.iter().any(|path| is_outside(path)),
            _ => false,
        }
    }

    /// Standard input or output is an end of it: it can be read or written once.
    pub fn has_pipe(&self, request: &Request) -> bool {
        request.destination == Location::Pipe || request.sources.contains(&Location::Pipe)
    }

    /// The same command has the same id, wherever in the file system it is given.
    pub fn job_id(&self, request: &Request, identity: Option<&Identity>) -> JobId {
        let sources: Vec<_> = request.sources.iter().map(absolute).collect();
        let pin = identity.map_or(Pin([0; 32]), Identity::pin);
        job_id(pin, &sources, absolute(&request.destination), &request.options)
    }

    /// What the endpoint's refusal of a job means to the user.
    pub fn refused(&self, refusal: &Refusal) -> Error {
        let (mut refused, names_directory) = match self {
            Route::Push { far, .. } => (far.refused(refusal), false),
            Route::Pull { far, paths } => (far.refused(refusal), paths.iter().any(|path| path.ends_with(b"/"))),
            Route::Local => (Error::from_refusal("this host", refusal), false),
        };
        if refusal.code == CloseCode::Forbidden && self.leaves_root() {
            refused = refused.hint("leave the leading slash, or the `..`, away: paths begin at the endpoint's root");
        }
        if refusal.code == CloseCode::NotFound && names_directory {
            refused.exit = Exit::SourceDirectoryNotFound;
        }
        refused
    }

    /// What it means that this side ended the job.
    pub fn given_up(&self, refusal: &Refusal) -> Error {
        let is_the_peers_fault =
            matches!(refusal.code, CloseCode::Malformed | CloseCode::WrongState | CloseCode::Limit);
        let (Route::Push { far, .. } | Route::Pull { far, .. }) = self else {
            return Error::from_refusal("this host", refusal);
        };
        if !is_the_peers_fault {
            return Error::from_refusal("this host", refusal);
        }
        let sort = if matches!(far, Far::Endpoint(_)) { "endpoint" } else { "host" };
        let does = if refusal.text.starts_with("sent ") { "" } else { "broke the protocol: " };
        let hint = "do not use it until whoever runs it can say why; what was delivered before is as it was asked for";
        error(Exit::Fatal, format!("{sort} {} {does}{refusal}", shown(far.name())), hint)
    }
}

/// Whether a path cannot be below an endpoint's root, whatever is there.
fn is_outside(path: &[u8]) -> bool {
    path.starts_with(b"/") || path.split(|b| *b == b'/').any(|name| name == b"..")
}

pub fn book(paths: Result<&Paths, &Error>) -> Result<EndpointBook> {
    Ok(EndpointBook::new(paths.map_err(Clone::clone)?.endpoints()))
}

/// Whether a location is on the far side that another one named.
fn is_at(location: &Location, far: &Far, book: &EndpointBook) -> Result<bool> {
    Ok(match (location, far) {
        (Location::Named { name, .. }, Far::Ssh(host)) => *name == host.target.name,
        (Location::Named { name, .. }, Far::Endpoint(endpoint)) => *name == endpoint.name,
        (Location::Address { address, .. }, Far::Endpoint(endpoint)) => {
            book.find_by_address(address)?.name == endpoint.name
        }
        _ => false,
    })
}

fn path_for(far: &Far, path: &[u8]) -> Vec<u8> {
    match far {
        Far::Endpoint(_) => path.to_vec(),
        Far::Ssh(_) => far_path(path),
    }
}

pub fn no_name() -> Error {
    usage("standard input has no name of its own", "name the file at the destination, such as lab:results.tar")
}

/// A local path from the root on, with its trailing slash, which has a meaning; others as they are.
fn absolute(location: &Location) -> Vec<u8> {
    let Location::Local(path) = location else { return location.to_string().into_bytes() };
    let Ok(absolute) = std::path::absolute(OsString::from_vec(path.clone())) else { return path.clone() };
    let mut bytes = absolute.as_os_str().as_bytes().to_vec();
    if path.ends_with(b"/") && !bytes.ends_with(b"/") {
        bytes.push(b'/');
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::progress::Mode;
    use std::ffi::OsStr;

    fn find(locations: &[&str]) -> Result<Route> {
        let (destination, sources) = locations.split_last().unwrap();
        let parse = |text: &&str| Location::parse(OsStr::new(text)).unwrap();
        let request = Request {
            command: "cp",
            sources: sources.iter().map(parse).collect(),
            destination: parse(destination),
            options: Default::default(),
            streams: None,
            congestion: None,
            memory_bytes: 0,
            retries: 0,
            bounds: Default::default(),
            manifest: None,
            progress: Mode::None,
            ssh: Default::default(),
        };
        let paths = Paths::from_values(|name| (name == "HOME").then(|| "/nonexistent".into()));
        Route::find(&request, paths.as_ref())
    }

    #[test]
    fn mixtures_that_cannot_be_carried_out_are_refused_with_a_way_out() {
        for (locations, message) in [
            (&["-", "a", "b"][..], "standard input can only be the one source"),
            (&["a", "b", "-"], "standard output takes one file"),
            (&["x:a", "b", "c"], "some sources are on this host and some at an endpoint"),
            (&["x:a", "y:b"], "copies from one endpoint to another come with a later version"),
            (&["-", "x:"], "standard input has no name of its own"),
            (&["gen:1x1", "a", "b"], "a generated source must be the only one"),
            (&["null:", "b"], "nothing can be read from null:"),
            (&["x:null:", "b"], "nothing can be read from null:"),
            (&["a", "gen:1x1"], "nothing can be written to gen:"),
            (&["a", "x:gen:1x1"], "nothing can be written to gen:"),
            (&["a", "x:"], "no endpoint x is known, and --no-ssh forbids to take it for a host"),
        ] {
            let error = find(locations).err().unwrap();
            assert_eq!((error.exit, &error.message[..]), (Exit::Usage, message), "{locations:?}");
            assert!(error.hint.is_some());
        }
        assert!(matches!(find(&["a", "b", "c"]), Ok(Route::Local)));
    }
}
