//! From `sftp://[USER@]HOST[:PORT]/ABSOLUTE` to a server that answers, and what its path leads to.
//!
//! Invariants: a server is asked once, before anything else, whether it can be used. Links on the way that the user named are followed, as on this host.

use super::calls::absent;
use super::listing::join;
use super::server::{Dial, Host, Server, refused};
use super::session::{Fault, Session, shown};
use super::shelf::SftpShelf;
use super::sink::{SftpSink, make_directory};
use super::source::{Base, SftpSource};
use model::{FailureKind, Location, Name, TransferOptions};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use store::open::{OpenSink, OpenSource, Opener, Refused, Rights, Shape, SinkRequest};
use store::{Error, How, OpenError, Shelf};

pub const SCHEME: &str = "sftp";

/// The servers that a program speaks to.
pub struct Servers {
    dial: Arc<dyn Dial>,
    open: Mutex<HashMap<Host, Arc<Server>>>,
}

/// A path of a server, as a location names it.
struct Place {
    server: Arc<Server>,
    session: Arc<Session>,
    /// Without a slash at its end, but for the root.
    path: Vec<u8>,
    is_directory: bool,
}

impl Place {
    /// Its last name, and the directory that this is in.
    fn parts(&self) -> Option<(Vec<u8>, Name)> {
        let at = self.path.iter().rposition(|byte| *byte == b'/')?;
        let name = Name::new(&self.path[at + 1..]).ok()?;
        Some((self.path[..at.max(1)].to_vec(), name))
    }
}

impl Servers {
    pub fn new(dial: Arc<dyn Dial>) -> Servers {
        Servers { dial, open: Mutex::default() }
    }

    fn place(&self, location: &Location) -> Result<Place, OpenError> {
        let rest = location.path();
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let authority = std::str::from_utf8(&rest[..end]);
        let authority = authority.map_err(|_| refused(Refused::Request, "the host is not text", "check its name"))?;
        let host = Host::parse(authority)?;
        let path = &rest[end..];
        if path.is_empty() || path.contains(&0) {
            let text = format!("{} names no path", shown(location.to_string().as_bytes()));
            return Err(refused(Refused::Request, text, "a location is sftp://[USER@]HOST[:PORT]/ABSOLUTE"));
        }
        let is_directory = path.ends_with(b"/");
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(1, |at| at + 1);
        let server = self.server(host)?;
        let (session, _) = server.session().map_err(|fault| lost(&server.name, &fault))?;
        Ok(Place { server, session, path: path[..end].to_vec(), is_directory })
    }

    fn server(&self, host: Host) -> Result<Arc<Server>, OpenError> {
        let mut open = self.open.lock().unwrap();
        if let Some(server) = open.get(&host) {
            return Ok(server.clone());
        }
        let server = Server::connect(&self.dial, &host)?;
        Ok(open.entry(host).or_insert_with(|| Arc::new(server)).clone())
    }

    /// What a path below a location leads to; the location itself stays, and no link below it is followed.
    pub fn shelf_below(&self, base: &Location, path: &[u8], how: How) -> store::Result<Box<dyn Shelf>> {
        let fault = |kind, why: &str| Error::of_kind(kind, "open", path, why);
        let place = self.place(base).map_err(|e| fault(FailureKind::Other, &e.to_string()))?;
        let names = model::name::relative_path(path).map_err(|e| fault(FailureKind::NameRefused, &e.to_string()))?;
        let mut at = place.path.clone();
        for (number, name) in names.iter().enumerate() {
            if number > 0 {
                let failed = |fault: Fault| fault.on("open", path);
                match place.session.look(&at).map_err(failed)? {
                    Some(there) if there.is_directory() => {}
                    Some(_) => return Err(fault(FailureKind::InTheWay, "a file stands on the way")),
                    None if how == (How::Make { with_parents: true }) => {
                        place.session.mkdir(&at).done().map_err(failed)?;
                    }
                    None => return Err(fault(FailureKind::NotFound, "it is not there")),
                }
            }
            at = join(&at, name.as_bytes());
        }
        let is_directory = names.is_empty() || path.ends_with(b"/");
        Ok(Box::new(SftpShelf::new(place.server, at, is_directory, names.is_empty())))
    }
}

fn lost(name: &str, fault: &Fault) -> OpenError {
    let advice = "try again; the same command continues where this one stopped";
    refused(Refused::Unreachable, format!("{name}: {}", fault.on("connect", b"").message()), advice)
}

/// Makes a directory and what is missing above it.
fn make_all(session: &Session, path: &[u8]) -> Result<(), OpenError> {
    let failed = |at: &[u8], fault: &Fault| {
        let error = fault.on("make directory", at);
        let kind = match error.kind {
            FailureKind::NotFound => io::ErrorKind::NotFound,
            FailureKind::Permission => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::Other,
        };
        let error = io::Error::new(kind, error.source.to_string());
        OpenError::Destination { operation: "make directory", path: at.to_vec(), error }
    };
    let slashes = path.iter().enumerate().filter(|(at, byte)| *at > 0 && **byte == b'/').map(|(at, _)| at);
    let mut missing = Vec::new();
    for end in slashes.chain([path.len()]).collect::<Vec<_>>().into_iter().rev() {
        let found = absent(session.stat(&path[..end]).attributes()).map_err(|fault| failed(&path[..end], &fault))?;
        match found {
            Some(there) if there.is_directory() => break,
            Some(_) => return Err(OpenError::NoDirectory(path[..end].to_vec())),
            None => missing.push(end),
        }
    }
    for end in missing.into_iter().rev() {
        make_directory(session, &path[..end]).map_err(|fault| failed(&path[..end], &fault))?;
    }
    Ok(())
}

fn unopened(location: &Location, kind: FailureKind, why: &str) -> OpenError {
    let path = location.to_string().into_bytes();
    OpenError::Source { error: Error::of_kind(kind, "open source", path.clone(), why), path }
}

impl Opener for Servers {
    fn source(&self, locations: &[Location], options: &TransferOptions) -> Result<OpenSource, OpenError> {
        let mut bases = Vec::new();
        let mut server: Option<Arc<Server>> = None;
        let mut is_single = locations.len() == 1;
        for location in locations {
            let place = self.place(location)?;
            if server.as_ref().is_some_and(|server| !Arc::ptr_eq(server, &place.server)) {
                let text = "the sources are on several hosts";
                return Err(refused(Refused::Request, text, "give a command for each host"));
            }
            let look =
                if place.is_directory { place.session.stat(&place.path) } else { place.session.lstat(&place.path) };
            let there = look.attributes().map_err(|fault| {
                let error = fault.on("open source", location.to_string().as_bytes());
                OpenError::Source { path: location.to_string().into_bytes(), error }
            })?;
            if place.is_directory && !there.is_directory() {
                return Err(unopened(location, FailureKind::InTheWay, "it is no directory"));
            }
            is_single &= !there.is_directory();
            bases.push(match place.parts() {
                Some((above, name)) if !place.is_directory => Base::Object(above, name),
                _ => Base::Contents(place.path),
            });
            server = Some(place.server);
        }
        let server = server.ok_or_else(|| OpenError::NoStore(SCHEME.to_owned()))?;
        let source = SftpSource::new(server, bases, options.selection_at_source());
        Ok(OpenSource { source: Arc::new(source), is_single })
    }

    fn sink(&self, location: &Location, request: &SinkRequest<'_>) -> Result<OpenSink, OpenError> {
        let place = self.place(location)?;
        let there = absent(place.session.stat(&place.path).attributes());
        let there = there.map_err(|fault| lost(&place.server.name, &fault))?;
        let is_directory = place.is_directory || there.is_some_and(|there| there.is_directory());
        if request.is_nameless && is_directory {
            return Err(OpenError::Nameless);
        }
        let (path, rename_to) = match (request.shape, place.parts()) {
            (Shape::Single | Shape::SingleOrTree, Some((above, name))) if !is_directory => (above, Some(name)),
            (Shape::Tree, _) if there.is_some_and(|there| !there.is_directory()) => {
                return Err(OpenError::NoDirectory(location.to_string().into_bytes()));
            }
            _ => (place.path, None),
        };
        let is_rehearsal = request.rights == Rights::Rehearse;
        if !is_rehearsal {
            make_all(&place.session, &path)?;
        }
        let sink = SftpSink::new(place.server, path, request.options, is_rehearsal);
        Ok(OpenSink::new(Arc::new(sink), rename_to))
    }

    fn shelf(&self, location: &Location, how: How) -> Result<Box<dyn Shelf>, OpenError> {
        let place = self.place(location)?;
        if let (How::Make { with_parents: true }, Some((above, _))) = (how, place.parts()) {
            make_all(&place.session, &above)?;
        }
        let is_root = place.path == b"/";
        Ok(Box::new(SftpShelf::new(place.server, place.path, place.is_directory, is_root)))
    }
}
