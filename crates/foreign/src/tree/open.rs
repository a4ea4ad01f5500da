//! From what a location names to sources, destinations and shelves, once it is known which server has it.
//!
//! Invariant: links on the way that the user named are followed, as on this host.

use super::diagnosis;
use super::job::Stage;
use super::remote::{Faulty, Remote, absent, shown};
use super::shelf::TreeShelf;
use super::sink::{TreeSink, make_directory};
use super::source::{Base, TreeSource};
use model::{FailureKind, Location, Name, TransferOptions};
use std::io;
use std::sync::Arc;
use store::open::{OpenSink, OpenSource, Refused, Rights, Shape, SinkRequest};
use store::{Error, How, OpenError, Seen, Shelf};

/// A path of a server, as a location names it.
pub struct Place<R> {
    pub server: Arc<R>,
    /// Without a slash at its end, but for the root.
    pub path: Vec<u8>,
    pub is_directory: bool,
}

impl<R> Place<R> {
    /// Its last name, and the directory that this is in.
    fn parts(&self) -> Option<(Vec<u8>, Name)> {
        let at = self.path.iter().rposition(|byte| *byte == b'/')?;
        let name = Name::new(&self.path[at + 1..]).ok()?;
        Some((self.path[..at.max(1)].to_vec(), name))
    }
}

/// Splits what stands behind `SCHEME://` into host and path, the latter without slashes at its end, and tells whether it had some.
pub fn split<'a>(location: &'a Location, form: &str) -> Result<(&'a str, Vec<u8>, bool), OpenError> {
    let rest = location.path();
    let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let authority = std::str::from_utf8(&rest[..end]);
    let no_text = |_| OpenError::refused(Refused::Request, "the host is not text", "check its name");
    let authority = authority.map_err(no_text)?;
    let path = &rest[end..];
    if path.is_empty() || path.contains(&0) {
        let text = format!("{} names no path", shown(location.to_string().as_bytes()));
        return Err(OpenError::refused(Refused::Request, text, &format!("a location is {form}")));
    }
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(1, |at| at + 1);
    Ok((authority, path[..end].to_vec(), path.ends_with(b"/")))
}

/// The way from locations to places.
pub struct Places<'a, R>(pub &'a dyn Fn(&Location) -> Result<Place<R>, OpenError>);

pub fn lost(name: &str, fault: &impl Faulty) -> OpenError {
    let advice = "try again; the same command continues where this one stopped";
    OpenError::refused(Refused::Unreachable, format!("{name}: {}", fault.on("connect", b"").message()), advice)
}

/// Why something on the way to a destination was refused.
fn refused(operation: &'static str, path: &[u8], fault: &impl Faulty) -> OpenError {
    let error = fault.on(operation, path);
    let kind = match error.kind {
        FailureKind::NotFound => io::ErrorKind::NotFound,
        FailureKind::Permission => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    let error = io::Error::new(kind, error.source.to_string());
    OpenError::Destination { operation, path: path.to_vec(), error }
}

/// Makes a directory and what is missing above it.
fn make_all<R: Remote>(server: &R, path: &[u8]) -> Result<(), OpenError> {
    let failed = |at: &[u8], fault: &R::Fault| refused("make directory", at, fault);
    let slashes = path.iter().enumerate().filter(|(at, byte)| *at > 0 && **byte == b'/').map(|(at, _)| at);
    let mut missing = Vec::new();
    for end in slashes.chain([path.len()]).collect::<Vec<_>>().into_iter().rev() {
        let found = absent(server.look_behind(&path[..end])).map_err(|fault| failed(&path[..end], &fault))?;
        match found {
            Some(there) if there.is_directory() => break,
            Some(_) => return Err(OpenError::NoDirectory(path[..end].to_vec())),
            None => missing.push(end),
        }
    }
    for end in missing.into_iter().rev() {
        make_directory(server, &path[..end]).map_err(|fault| failed(&path[..end], &fault))?;
    }
    Ok(())
}

fn unopened(operation: &'static str, location: &Location, why: &str) -> OpenError {
    let path = location.to_string().into_bytes();
    OpenError::Source { error: Error::of_kind(FailureKind::InTheWay, operation, path.clone(), why), path }
}

impl<R: Stage> Places<'_, R> {
    pub fn source(&self, locations: &[Location], options: &TransferOptions) -> Result<OpenSource, OpenError> {
        let mut bases = Vec::new();
        let mut server: Option<Arc<R>> = None;
        let mut is_single = locations.len() == 1;
        for location in locations {
            let place = (self.0)(location)?;
            if server.as_ref().is_some_and(|server| !Arc::ptr_eq(server, &place.server)) {
                let text = "the sources are on several hosts";
                return Err(OpenError::refused(Refused::Request, text, "give a command for each host"));
            }
            let look = match place.is_directory {
                true => place.server.look_behind(&place.path),
                false => place.server.look(&place.path),
            };
            let there = look.map_err(|fault| {
                let error = fault.on("open source", location.to_string().as_bytes());
                OpenError::Source { path: location.to_string().into_bytes(), error }
            })?;
            if place.is_directory && !there.is_directory() {
                return Err(unopened("open source", location, "it is no directory"));
            }
            is_single &= !there.is_directory();
            bases.push(match place.parts() {
                Some((above, name)) if !place.is_directory => Base::Object(above, name),
                _ => Base::Contents(place.path),
            });
            server = Some(place.server);
        }
        let server = server.ok_or_else(|| OpenError::NoStore(String::new()))?;
        let source = TreeSource::new(server, bases, options.selection_at_source());
        Ok(OpenSource { source: Arc::new(source), is_single })
    }

    pub fn sink(&self, location: &Location, request: &SinkRequest<'_>) -> Result<OpenSink, OpenError> {
        let place = (self.0)(location)?;
        let there = absent(place.server.look_behind(&place.path)).map_err(|fault| match fault.is_lost() {
            true => lost(place.server.name(), &fault),
            false => refused("open destination", location.to_string().as_bytes(), &fault),
        })?;
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
        // What was just seen is not looked at again: over distance that is a round trip.
        if !is_rehearsal && !there.is_some_and(|there| there.is_directory()) {
            make_all(&*place.server, &path)?;
        }
        let sink = TreeSink::new(place.server, path, request.options, is_rehearsal);
        Ok(OpenSink::new(Arc::new(sink), rename_to))
    }

    pub fn shelf(&self, location: &Location, how: How) -> Result<Box<dyn Shelf>, OpenError> {
        let place = (self.0)(location)?;
        if let (How::Make { with_parents: true }, Some((above, _))) = (how, place.parts()) {
            make_all(&*place.server, &above)?;
        }
        if how == How::Take && place.is_directory {
            let found = place.server.find(&place.path).map_err(|fault| {
                let path = location.to_string().into_bytes();
                OpenError::Source { error: fault.on("open", &path), path }
            })?;
            // What lies behind it was not meant to go.
            if found.is_some_and(|there| there.is_link()) {
                let why = "it is a symbolic link: to name the link itself leave out the slash at its end";
                return Err(unopened("open", location, why));
            }
        }
        Ok(Box::new(TreeShelf::new(place.server, place.path, place.is_directory)))
    }

    pub fn diagnose(&self, location: &Location) -> Result<Vec<Seen>, OpenError> {
        let place = (self.0)(location)?;
        Ok(diagnosis::seen(&place.server, &place.path))
    }
}
