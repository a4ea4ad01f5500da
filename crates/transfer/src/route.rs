//! Which way the bytes go, from the locations that were named.

use crate::error::{Error, Kind, Result};
use crate::job_id::job_id;
use crate::matrix::{self, Given, Verbs};
use crate::peer::{Peer, Peers};
use model::name::Escaped;
use model::options::Verify;
use model::{JobId, Location, Pin, TransferSpec};
use mover::{CloseCode, Refusal};
use net::Identity;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Push,
    Pull,
    Local,
}

impl Direction {
    pub fn name(self) -> &'static str {
        match self {
            Direction::Push => "push",
            Direction::Pull => "pull",
            Direction::Local => "local",
        }
    }
}

/// Another holder of what is pulled.
#[derive(Clone)]
pub struct Replica {
    pub peer: Arc<dyn Peer>,
    pub path: Vec<u8>,
}

pub enum Route {
    Push { peer: Arc<dyn Peer>, path: Vec<u8> },
    Pull { peer: Arc<dyn Peer>, paths: Vec<Vec<u8>>, replicas: Vec<Replica> },
    Local,
}

impl Route {
    pub fn find(spec: &TransferSpec, peers: &dyn Peers) -> Result<Route> {
        let TransferSpec { sources, destination, .. } = spec;
        let pipes = sources.iter().filter(|source| **source == Location::Pipe).count();
        if pipes > 0 && sources.len() > 1 {
            return Err(Error::request(
                "standard input must be the only source",
                "copy the others with a separate command",
            ));
        }
        if *destination == Location::Pipe && sources.len() > 1 {
            return Err(Error::request("standard output takes one file", "give one source, or name a directory"));
        }
        let is_directory = |path: &[u8]| matches!(path, b"" | b".") || path.ends_with(b"/") || path.ends_with(b"/.");
        if *destination == Location::Pipe
            && let Some(source) = sources.first().filter(|source| is_directory(source.path()))
        {
            return Err(Error::directory_to_pipe(source));
        }
        if sources.len() > 1 && sources.iter().any(Location::is_synthetic) {
            return Err(Error::request(
                "a generated source must be the only one",
                "copy the others with a separate command",
            ));
        }
        let reread = Given { name: "verify".to_owned(), value: "reread".to_owned(), is_typed: true };
        let given: Vec<_> = (spec.options.verify == Verify::Reread).then_some(reread).into_iter().collect();
        for source in sources {
            matrix::check((Verbs::CP, "cp"), (source, destination), &given, &|_| true)?;
        }
        check_replicas(spec)?;
        let remote = sources.iter().filter(|source| source.is_remote()).count();
        match (remote, destination.is_remote()) {
            (0, false) => Ok(Route::Local),
            (0, true) => {
                let path = destination.path().to_vec();
                if pipes > 0 && (path.is_empty() || path.ends_with(b"/")) {
                    return Err(Error::no_name());
                }
                let peer = peers.find(destination)?;
                check_paths(spec, &*peer)?;
                let path = peer.path(&path);
                Ok(Route::Push { peer, path })
            }
            (n, false) if n == sources.len() && n > 0 => {
                let peer = peers.find(&sources[0])?;
                check_paths(spec, &*peer)?;
                for source in &sources[1..] {
                    if !peers.is_at(source, &*peer)? {
                        return Err(Error::request(
                            "the sources are at several endpoints",
                            "give a command for each endpoint",
                        ));
                    }
                }
                let paths: Vec<_> = sources.iter().map(|source| peer.path(source.path())).collect();
                let replicas = find_replicas(spec, peers, (peer.name(), &paths[0][..]))?;
                Ok(Route::Pull { peer, paths, replicas })
            }
            (n, true) if n == sources.len() => Err(Error::request(
                "a transfer within one process has one end on this host",
                "copy to this host first; two endpoints that are both known copy straight to each other",
            )),
            _ => Err(Error::request(
                "some sources are on this host and some at an endpoint",
                "give a command for each side",
            )),
        }
    }

    pub fn direction(&self) -> Direction {
        match self {
            Route::Push { .. } => Direction::Push,
            Route::Pull { .. } => Direction::Pull,
            Route::Local => Direction::Local,
        }
    }

    /// The same command has the same id, wherever in the file system it is given.
    pub fn job_id(&self, spec: &TransferSpec, identity: Option<&Identity>) -> JobId {
        let sources: Vec<_> = spec.sources.iter().chain(&spec.replicas).map(absolute).collect();
        let pin = identity.map_or(Pin([0; 32]), Identity::pin);
        job_id(pin, &sources, absolute(&spec.destination), &spec.choice, &spec.options)
    }

    /// Another holder leads the next attempt; the one before is asked last. False where there is only one.
    pub fn next_lead(&mut self) -> bool {
        let Route::Pull { peer, paths, replicas } = self else { return false };
        if replicas.is_empty() {
            return false;
        }
        let next = replicas.remove(0);
        let before = std::mem::replace(peer, next.peer);
        let path = std::mem::replace(&mut paths[0], next.path);
        replicas.push(Replica { peer: before, path });
        true
    }

    /// How many others have what is pulled.
    pub fn replicas(&self) -> usize {
        if let Route::Pull { replicas, .. } = self { replicas.len() } else { 0 }
    }

    /// What the endpoint's refusal of a job means to the user.
    pub fn refused(&self, refusal: &Refusal) -> Error {
        let (mut refused, names_directory) = match self {
            Route::Push { peer, .. } => (peer.refused(refusal), false),
            Route::Pull { peer, paths, .. } => (peer.refused(refusal), paths.iter().any(|path| path.ends_with(b"/"))),
            Route::Local => (Error::from_refusal("this host", refusal), false),
        };
        if refusal.code == CloseCode::NotFound && names_directory {
            refused.kind = Kind::SourceDirectoryNotFound;
        }
        refused
    }

    /// What it means that this side ended the job.
    pub fn given_up(&self, refusal: &Refusal) -> Error {
        let is_the_peers_fault =
            matches!(refusal.code, CloseCode::Malformed | CloseCode::WrongState | CloseCode::Limit);
        let (Route::Push { peer, .. } | Route::Pull { peer, .. }) = self else {
            return Error::from_refusal("this host", refusal);
        };
        if !is_the_peers_fault {
            return Error::from_refusal("this host", refusal);
        }
        let sort = if peer.is_endpoint() { "endpoint" } else { "host" };
        let name = Escaped(peer.name().as_bytes()).to_string();
        let does = if refusal.text.starts_with("sent ") { "" } else { "broke the protocol: " };
        let hint = "do not use it until its operator can say why; files delivered before are as requested";
        let text = format!("{sort} {name} {does}{refusal}");
        Error::new(Kind::Fault, name, text).advice(hint)
    }
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

/// What several holders of the same can be asked for.
fn check_replicas(spec: &TransferSpec) -> Result<()> {
    if spec.replicas.is_empty() {
        return Ok(());
    }
    let TransferSpec { sources, destination, options, .. } = spec;
    let (text, advice) = match () {
        () if sources.len() != 1 => ("--replica names other holders of one source", "give a command for each source"),
        () if !sources.iter().chain(&spec.replicas).all(Location::is_remote) => {
            ("--replica is for endpoints and hosts that all have the same", "name each as NAME:PATH")
        }
        () if destination.is_remote() => (
            "several holders are read by the host that keeps the copy",
            "run the command there, with a path as destination",
        ),
        () if *destination == Location::Pipe => {
            ("standard output takes one file in order", "name a file or a directory")
        }
        () if options.digest != model::DigestAlgorithm::Blake3 => {
            ("what several holders send is compared by BLAKE3", "choose --digest blake3")
        }
        () if options.is_delta => ("--replica takes nothing from the old version of a file", "omit --delta"),
        () if options.payload_bytes_max.is_some() || options.pace.is_some() => {
            ("--max-transfer and --bwlimit bound one sender", "omit them, or copy from one holder")
        }
        () => return Ok(()),
    };
    Err(Error::request(text, advice))
}

/// Two directories of one endpoint are two holders.
fn find_replicas(spec: &TransferSpec, peers: &dyn Peers, lead: (&str, &[u8])) -> Result<Vec<Replica>> {
    let mut replicas: Vec<Replica> = Vec::new();
    for location in &spec.replicas {
        let peer = peers.find(location)?;
        check_paths(spec, &*peer)?;
        let path = peer.path(location.path());
        let known = replicas.iter().map(|other| (other.peer.name(), &other.path[..]));
        if std::iter::once(lead).chain(known).any(|other| other == (peer.name(), &path[..])) {
            let text = format!("{location} is named twice: each holder brings its part once");
            return Err(Error::request(text, "name each directory once"));
        }
        replicas.push(Replica { peer, path });
    }
    Ok(replicas)
}

/// A session over ssh has the one connection that ssh made, or that of an endpoint which nobody configured.
fn check_paths(spec: &TransferSpec, peer: &dyn Peer) -> Result<()> {
    if !spec.paths.is_explicit() || peer.is_endpoint() {
        return Ok(());
    }
    let text = format!("--paths {} needs an endpoint, and {} is reached over ssh", spec.paths, peer.name());
    Err(Error::request(text, "omit --paths, or run `thalweg serve` there and add it with its ticket"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::NoPeers;
    use std::ffi::OsStr;

    fn find(locations: &[&str]) -> Result<Route> {
        let (destination, sources) = locations.split_last().unwrap();
        let parse = |text: &&str| Location::parse(OsStr::new(text)).unwrap();
        let spec = TransferSpec::new(sources.iter().map(parse).collect(), parse(destination));
        Route::find(&spec, &NoPeers)
    }

    #[test]
    fn mixtures_that_cannot_be_carried_out_are_refused_with_a_way_out() {
        for (locations, text) in [
            (&["-", "a", "b"][..], "standard input must be the only source"),
            (&["a", "b", "-"], "standard output takes one file"),
            (&["x:a/", "-"], "x:a/ is a directory: standard output takes one file, not a tree"),
            (&[".", "-"], ". is a directory: standard output takes one file, not a tree"),
            (&["x:a", "b", "c"], "some sources are on this host and some at an endpoint"),
            (&["x:a", "y:b"], "a transfer within one process has one end on this host"),
            (&["-", "x:"], "standard input has no name of its own"),
            (&["gen:1x1", "a", "b"], "a generated source must be the only one"),
            (&["null:", "b"], "nothing can be read from null:"),
            (&["x:null:", "b"], "nothing can be read from null:"),
            (&["a", "gen:1x1"], "nothing can be written to gen:"),
            (&["a", "x:gen:1x1"], "nothing can be written to gen:"),
            (&["a", "x:"], "x: is at a peer, and none is known"),
        ] {
            let error = find(locations).err().unwrap();
            assert_eq!((error.kind, &error.text[..]), (Kind::Request, text), "{locations:?}");
            assert!(error.advice.is_some());
        }
        assert!(matches!(find(&["a", "b", "c"]), Ok(Route::Local)));
    }
}
