//! The other side of a copy: an endpoint that is known, or a host on which ssh starts one for the session.
//!
//! Invariant: a name that an endpoint has is that endpoint; only what no endpoint is called is taken for a host, and that is
//! said.

use crate::exit::{Result, error, usage};
use crate::output::{self, shown};
use ::transfer::{Peer, Peers};
use daemon::{ConnectOptions, Endpoint, EndpointBook, Paths};
use model::{Exit, Location, Pin};
use mover::session::Client;
use mover::{CloseCode, Refusal};
use net::Identity;
use ssh::{Access, Reached, SshOptions, Target, Tell, Wanted, reach};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

const FILE_HINT: &str = "a local file with a colon is ./FILE";

/// Whether and how hosts are reached over ssh.
#[derive(Clone, Debug, Default)]
pub struct Ssh {
    pub options: SshOptions,
    pub is_allowed: bool,
    pub is_quiet: bool,
}

pub enum Remote {
    Endpoint(Endpoint),
    Ssh(Box<SshHost>),
}

/// A host that ssh reaches, and the endpoint there once it was started.
pub struct SshHost {
    pub target: Target,
    ssh: Ssh,
    reached: Mutex<Option<Reached>>,
}

/// What a session with the remote side is for.
pub struct Use<'a> {
    pub access: Access,
    pub paths: &'a [Vec<u8>],
    pub identity: &'a Identity,
    pub options: ConnectOptions,
    pub memory_bytes: usize,
    pub is_stopped: &'a dyn Fn() -> bool,
}

/// What names stand for, to this user: the endpoints they know, and otherwise hosts.
pub struct Reachable {
    paths: Result<Paths>,
    ssh: Ssh,
}

impl Reachable {
    pub fn new(ssh: Ssh) -> Reachable {
        Reachable { paths: Paths::from_env(), ssh }
    }

    fn paths(&self) -> Result<&Paths> {
        self.paths.as_ref().map_err(Clone::clone)
    }

    pub fn book(&self) -> Result<EndpointBook> {
        Ok(EndpointBook::new(self.paths()?.endpoints()))
    }
}

impl Peers for Reachable {
    fn identity(&self) -> ::transfer::Result<Identity> {
        Ok(self.paths()?.identity()?)
    }

    fn find(&self, location: &Location) -> ::transfer::Result<Arc<dyn Peer>> {
        Ok(Arc::new(Remote::find(location, &self.book()?, &self.ssh)?))
    }

    /// Without trying another host, which would be told.
    fn is_at(&self, location: &Location, peer: &dyn Peer) -> ::transfer::Result<bool> {
        Ok(match location {
            Location::Named { name, .. } => *name == peer.name(),
            Location::Address { address, .. } if peer.is_endpoint() => {
                self.book()?.find_by_address(address)?.name == peer.name()
            }
            _ => false,
        })
    }
}

impl Remote {
    /// What a remote location names.
    pub fn find(location: &Location, book: &EndpointBook, ssh: &Ssh) -> Result<Remote> {
        match location {
            Location::Named { name, .. } if book.has(name) => book.get(name).map(Remote::Endpoint),
            Location::Named { name, .. } if !ssh.is_allowed => Err(error(
                Exit::Usage,
                format!("no endpoint {} is known, and --no-ssh forbids trying it as a host", shown(name)),
                format!("add it with its ticket: `thalweg endpoint add NAME --ticket-file FILE`; {FILE_HINT}"),
            )),
            Location::Named { name, path } => SshHost::new(name, path, ssh).map(|host| Remote::Ssh(Box::new(host))),
            Location::Address { address, .. } => book.find_by_address(address).map(Remote::Endpoint),
            _ => unreachable!("only remote locations are looked up"),
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Remote::Endpoint(endpoint) => &endpoint.name,
            Remote::Ssh(host) => &host.target.name,
        }
    }

    /// Opens a session.
    pub fn open(&self, request: &Use<'_>) -> Result<Client> {
        match self {
            Remote::Endpoint(endpoint) => daemon::connect(endpoint, request.identity, &request.options),
            Remote::Ssh(host) => host.connect(request),
        }
    }
}

impl Peer for Remote {
    fn name(&self) -> &str {
        Remote::name(self)
    }

    fn connect(&self, request: &::transfer::Use<'_>) -> ::transfer::Result<Client> {
        Ok(self.open(&Use {
            access: match request.way {
                ::transfer::Way::Push => Access::Write,
                ::transfer::Way::Pull => Access::Read,
            },
            paths: request.paths,
            identity: request.identity,
            options: request.options.clone(),
            memory_bytes: request.memory_bytes,
            is_stopped: request.is_stopped,
        })?)
    }

    fn is_endpoint(&self) -> bool {
        matches!(self, Remote::Endpoint(_))
    }

    fn path(&self, path: &[u8]) -> Vec<u8> {
        match self {
            Remote::Endpoint(_) => path.to_vec(),
            Remote::Ssh(_) => remote_path(path),
        }
    }

    fn refused(&self, refusal: &Refusal) -> ::transfer::Error {
        let error = ::transfer::Error::from_refusal(self.name(), refusal);
        match (self, refusal.code) {
            (Remote::Ssh(_), CloseCode::NotFound) => error.advice("relative paths begin in the home directory there"),
            (Remote::Ssh(_), CloseCode::Forbidden) => {
                error.advice("give that user permission, or name a user who has it: USER@HOST:PATH")
            }
            _ => error,
        }
    }
}

impl SshHost {
    fn new(name: &str, path: &[u8], ssh: &Ssh) -> Result<SshHost> {
        let target = Target::parse(name)?;
        let text = [name.as_bytes(), b":", path].concat();
        let as_file = Path::new(OsStr::from_bytes(&text));
        if as_file.symlink_metadata().is_ok() {
            let shown = shown(as_file);
            return Err(usage(
                format!("{shown} is a file here, but would be a path on the host {}", output::shown(name)),
                format!("for the file write ./{shown}; for the host write {}:./PATH", output::shown(name)),
            ));
        }
        // What holds an @ can be nothing but a host.
        if !name.contains('@') && !ssh.is_quiet {
            output::note(&format!("no endpoint {} is known: trying ssh", shown(name)));
        }
        Ok(SshHost { target, ssh: ssh.clone(), reached: Mutex::default() })
    }

    fn connect(&self, request: &Use<'_>) -> Result<Client> {
        let mut held = self.reached.lock().unwrap();
        if !held.as_mut().is_some_and(Reached::is_alive) {
            // The old one first: what it may still hold there is what the new one continues.
            *held = None;
            let reached = held.insert(self.start(request)?);
            if reached.is_tunnelled() && !self.ssh.options.is_tunnel_only && !self.ssh.is_quiet {
                let name = &self.target.name;
                output::note(&format!("no port of {name} can be reached: copying through the ssh connection itself"));
            }
        }
        let client = held.as_ref().expect("it was started").connect(&request.options)?;
        // Its key is of this session; that it is this host is what ssh vouches for.
        Ok(client.receiving_from(Pin(net::identity::sha256(self.target.name.as_bytes()))))
    }

    fn start(&self, request: &Use<'_>) -> Result<Reached> {
        let wanted = Wanted {
            options: &self.ssh.options,
            target: &self.target,
            access: request.access,
            paths: request.paths.to_vec(),
            identity: request.identity,
            memory_bytes: request.memory_bytes,
            congestion: request.options.congestion.clone(),
            tell: tell(),
            interrupted: request.is_stopped,
        };
        reach(&wanted)
    }
}

/// Lines of ssh, and of what it runs, are talk.
pub fn tell() -> Tell {
    Arc::new(|line: &str| output::note(line))
}

/// A path of a host as its remote side takes it: what can only be a directory ends in a slash.
pub fn remote_path(path: &[u8]) -> Vec<u8> {
    let names_directory = path == b"~" || path == b".." || path.ends_with(b"/..");
    if names_directory { [path, b"/"].concat() } else { path.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_refused_where_only_endpoints_are_allowed() {
        let book = EndpointBook::new("/nonexistent");
        let location = Location::Named { name: "far".into(), path: b"x".to_vec() };
        let error = Remote::find(&location, &book, &Ssh::default()).err().unwrap();
        assert_eq!(error.exit, Exit::Usage);
        let ssh = Ssh { is_allowed: true, is_quiet: true, ..Ssh::default() };
        assert_eq!(Remote::find(&location, &book, &ssh).ok().unwrap().name(), "far");
        let option = Location::Named { name: "-oProxyCommand=x".into(), path: b"x".to_vec() };
        assert_eq!(Remote::find(&option, &book, &ssh).err().unwrap().exit, Exit::Usage);
    }

    #[test]
    fn what_can_only_be_a_directory_ends_in_a_slash() {
        for (path, far) in
            [("~", "~/"), ("..", "../"), ("a/..", "a/../"), ("", ""), ("a", "a"), ("~/a", "~/a"), ("a..", "a..")]
        {
            assert_eq!(remote_path(path.as_bytes()), far.as_bytes());
        }
    }
}
