//! A copy from one remote host to another, both reached over ssh: the one sends to the other, and this one gives the word.
//!
//! The sending host does what `cp` does here, with the same flags, and says what there is to say; its lines pass through.
//! Not here: the way between the two (the crate `ssh`).

use super::remote::{Reachable, Remote, remote_path, tell};
use super::request::{Finished, Request, stopped};
use super::run_to;
use crate::args::ssh::NAMES;
use crate::exit::{Error, Result, error, usage};
use crate::interrupt::Interrupt;
use crate::output::json::Events;
use crate::output::{self, shown};
use ::transfer::{Peers, check_apart_there, job_id};
use daemon::{Endpoint, Paths};
use model::filter::Rule;
use model::options::Compare;
use model::selection::{Bounds, Listed};
use model::{Exit, JobId, Location, TransferSpec};
use net::Identity;
use ssh::{
    Access, BoundTerms, ChmodTerms, CopyRequest, CopyTerms, Copying, PathBytes, Peer, RemoteLink, SparedTerms, Target,
    ThirdParty, Wanted, third_party_copy,
};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Flags that mean nothing on another host, or nothing between two: a variable or a setting may be meant for other copies.
const LEFT_OUT: [&str; 3] = ["progress", "paths", "wait"];
/// A list travels as what is in it. An older program would take the flag for a file of its own.
const LISTS: [&str; 2] = ["--files-from=", "--files-from0="];
/// Rules travel as one list in their order: the files that hold some are on this host.
const RULES: [&str; 6] = ["filter", "include", "exclude", "filter-from", "include-from", "exclude-from"];

/// The flags that do not travel as they were given.
pub fn left_out() -> Vec<&'static str> {
    [&NAMES[..], &LEFT_OUT, &RULES].concat()
}

/// Two remote hosts.
pub struct TwoHosts {
    from: Target,
    to: Target,
    sources: Vec<Vec<u8>>,
    path: Vec<u8>,
}

impl TwoHosts {
    /// The two hosts of a request, if it is one between hosts that no endpoint has the name of.
    pub fn of(request: &Request) -> Result<Option<TwoHosts>> {
        let TransferSpec { sources, destination, .. } = &request.spec;
        let are_all_remote = sources.iter().all(Location::is_remote) && destination.is_remote();
        if !are_all_remote || sources.iter().chain([destination]).any(Location::is_synthetic) {
            return Ok(None);
        }
        let book = Reachable::new(request.ssh.clone()).book()?;
        // An endpoint is asked for by neither: its clients are those that hold its tickets.
        let is_host = |location: &Location| matches!(location, Location::Named { name, .. } if !book.has(name));
        if !is_host(&sources[0]) || !is_host(destination) {
            return Ok(None);
        }
        let (Remote::Ssh(from), Remote::Ssh(to)) =
            (Remote::find(&sources[0], &book, &request.ssh)?, Remote::find(destination, &book, &request.ssh)?)
        else {
            return Ok(None);
        };
        let name = |location: &Location| match location {
            Location::Named { name, .. } => name.clone(),
            _ => String::new(),
        };
        if sources.iter().any(|source| name(source) != from.target.name) {
            return Err(usage("the sources are at several hosts", "give a command for each host"));
        }
        if from.target.name == to.target.name {
            check_apart_there(sources, destination, request.spec.options.deletion.is_some())?;
        }
        Ok(Some(TwoHosts {
            from: from.target,
            to: to.target,
            sources: sources.iter().map(|source| remote_path(source.path())).collect(),
            path: remote_path(destination.path()),
        }))
    }

    /// Runs the copy to its end, with these flags and those that follow from the request.
    pub fn run(self, request: &Request, mut flags: Vec<String>, shows_progress: bool) -> Result<Exit> {
        let interrupt = Interrupt::watch()?;
        let identity = Paths::from_env()?.identity()?;
        let rules: Vec<_> = request.spec.choice.filter.rules().iter().map(Rule::to_string).collect();
        flags.extend(rules.iter().map(|rule| format!("--filter={rule}")));
        flags.push(format!("--progress={}", if shows_progress { "plain" } else { "none" }));
        let TransferSpec { sources, destination, choice, options, .. } = &request.spec;
        let texts: Vec<_> = sources.iter().map(|source| source.to_string().into_bytes()).collect();
        let job = job_id(identity.pin(), &texts, destination.to_string(), choice, options);
        let sources: Vec<_> = self.sources.into_iter().map(PathBytes).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
        let Bounds { size_bytes_min, size_bytes_end, modified_since, modified_before } = choice.at(now).bounds;
        let listed =
            choice.listed.as_ref().map(|listed| listed.paths.iter().cloned().map(PathBytes).collect::<Vec<_>>());
        let terms = CopyTerms {
            sources: sources.clone(),
            rules,
            may_delete: options.deletion.is_some(),
            backup: options.backup.clone().map(PathBytes),
            fidelity: options.fidelity.to_bits(),
            bounds: BoundTerms { size_bytes_min, size_bytes_end, modified_since, modified_before },
            listed: listed.clone(),
            spares: SparedTerms {
                everything: options.is_dry_run,
                what_is_there: options.no_clobber || options.compare == Compare::Exists,
                what_is_newer: options.keeps_newer,
                what_is_missing: options.only_existing,
            },
            chmod: Some(ChmodTerms { bits: options.chmod }),
        };
        let copy = CopyRequest {
            sources,
            destination: PathBytes(self.path.clone()),
            name: self.to.name.clone(),
            flags,
            job: job.to_string(),
            listed,
        };
        let ended = third_party_copy(ThirdParty {
            from: &self.from,
            copy,
            terms,
            to: Wanted {
                options: &request.ssh.options,
                target: &self.to,
                access: Access::Write,
                paths: vec![self.path],
                identity: &identity,
                memory_bytes: request.spec.memory_bytes.unwrap_or(mover::limits::MEMORY_BYTES_MAX),
                congestion: request.spec.congestion.clone(),
                tell: tell(),
                interrupted: &|| interrupt.is_set(),
            },
            line: &output::line,
        });
        if interrupt.is_set() {
            return Err(stopped(&interrupt));
        }
        ended
    }
}

/// The sending host's part: `cp` to the endpoint that it is told of. `read` makes of the flags what `run` takes, before anything
/// is connected to.
pub fn send<T>(
    copying: Copying,
    read: impl FnOnce(Vec<String>) -> Result<T>,
    run: impl FnOnce(T, &Sending) -> Result<Exit>,
) -> Result<Exit> {
    let request = copying.request.clone();
    daemon::forbid_dumps();
    let identity = Identity::generate().map_err(|e| Error::from_net("identity", &e))?;
    let Some(job) = job_of(&request.job) else {
        copying.refuse(&error(
            Exit::Fatal,
            "a job without a number",
            "bring thalweg to the same version on both hosts",
        ));
        return Ok(Exit::Done);
    };
    // Whoever gave the command has gone: what was verified is kept, and the other host ends on its own.
    let (link, peer) = copying.begin(&identity, || std::process::exit(Exit::Interrupted as i32))?;
    let ended = send_to(request, peer, (identity, job), &link, read, run);
    let exit = ended.unwrap_or_else(|e| {
        output::error(&e);
        e.exit
    });
    link.ended(exit);
    Ok(exit)
}

fn send_to<T>(
    request: CopyRequest,
    peer: Peer,
    (identity, job): (Identity, JobId),
    link: &RemoteLink,
    read: impl FnOnce(Vec<String>) -> Result<T>,
    run: impl FnOnce(T, &Sending) -> Result<Exit>,
) -> Result<Exit> {
    let CopyRequest { sources, destination, name, mut flags, listed, .. } = request;
    let listed = listed.map(|paths| Listed::new(paths.into_iter().map(|path| path.0).collect())).transpose();
    let listed =
        listed.map_err(|_| error(Exit::Fatal, "the list names paths outside the source", "correct the list"))?;
    if listed.is_some() {
        flags.retain(|flag| !LISTS.iter().any(|list| flag.starts_with(list)));
    }
    let is_quiet = flags.iter().any(|flag| flag == "--quiet");
    // The first connection settles which cipher this process offers.
    let args = read(flags)?;
    let (address, is_relayed) = link.way_to(&peer, &identity)?;
    if is_relayed && !is_quiet {
        let note = format!("{} cannot be reached from the sending host: copying through this host", shown(&name));
        output::note(&note);
    }
    let for_lines = link.clone();
    output::send_elsewhere(Box::new(move |text| for_lines.line(text)));
    let endpoint = Endpoint { name, addresses: vec![address], pin: peer.pin(), added: String::new() };
    run(args, &Sending { sources, path: destination.0, listed, endpoint, identity, job })
}

/// What is sent, and where to.
pub struct Sending {
    sources: Vec<PathBytes>,
    path: Vec<u8>,
    pub listed: Option<Listed>,
    endpoint: Endpoint,
    identity: Identity,
    job: JobId,
}

impl Sending {
    /// The locations of the request.
    pub fn locations(&self) -> (Vec<Location>, Location) {
        let local = |path: &PathBytes| Location::Local(here(&path.0));
        let destination = Location::Named { name: self.endpoint.name.clone(), path: self.path.clone() };
        (self.sources.iter().map(local).collect(), destination)
    }

    pub fn run(
        &self,
        request: &Request,
        started: Instant,
        interrupt: &Interrupt,
        events: Option<Arc<Events>>,
    ) -> Result<Finished> {
        let receiver = Receiver { endpoint: self.endpoint.clone(), identity: self.identity.clone(), job: self.job };
        run_to(Arc::new(receiver), request, started, interrupt, events)
    }
}

/// The host that this one was told to send to.
struct Receiver {
    endpoint: Endpoint,
    identity: Identity,
    job: JobId,
}

impl Peers for Receiver {
    fn identity(&self) -> ::transfer::Result<Identity> {
        Ok(self.identity.clone())
    }

    fn find(&self, _location: &Location) -> ::transfer::Result<Arc<dyn ::transfer::Peer>> {
        Ok(Arc::new(self.endpoint.clone()))
    }

    fn job(&self) -> Option<JobId> {
        Some(self.job)
    }
}

/// A path as the user of this host would write it: nothing is the home directory, and so is `~`.
fn here(path: &[u8]) -> Vec<u8> {
    let home = || std::env::home_dir().map(|home| OsString::from(home).into_vec()).unwrap_or_default();
    match path.strip_prefix(b"~/") {
        Some(below) => [&home()[..], b"/", below].concat(),
        None if path.is_empty() => b"./".to_vec(),
        None => path.to_vec(),
    }
}

fn job_of(text: &str) -> Option<JobId> {
    let is_hex = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex)?;
    JobId::from_slice(&number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_number_reads_back() {
        let job = JobId::from_slice(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]).unwrap();
        assert_eq!(job_of(&job.to_string()), Some(job));
        for wrong in ["", "12", "+0000000000000000000000000000001", &"g".repeat(32)] {
            assert_eq!(job_of(wrong), None);
        }
    }

    #[test]
    fn a_sending_hosts_paths_are_those_of_its_own_user() {
        assert_eq!(here(b""), b"./");
        assert_eq!(here(b"a:b/"), b"a:b/");
        assert!(here(b"~/x").ends_with(b"/x") && !here(b"~/x").starts_with(b"~"));
    }
}
