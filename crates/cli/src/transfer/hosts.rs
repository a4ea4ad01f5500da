//! A copy that several hosts work on: which endpoints they are, and how it stands while they do. One end may be this host.
//!
//! Not here: who does what (`daemon::crew`).

use super::here::{self, Here};
use super::orders::{LINE_EVERY, amounts, finished, sample_of, summary, tell_failures};
use super::remote::Reachable;
use super::request::{Finished, HostNames, Request, stopped};
use crate::exit::{Result, error, of_written, usage};
use crate::interrupt::Interrupt;
use crate::output::json::{Events, Start};
use crate::output::progress::Mode;
use crate::output::{self, counted};
use ::transfer::{Ended, HostShare, Peers, job_id};
use daemon::crew::{self, Common, Done, Work};
use daemon::hand_in::{OrderEnded, OrderNews};
use daemon::hosts::known;
use daemon::{Endpoint, EndpointBook, Paths};
use model::quantity::ByteCount;
use model::{Exit, JobId, Location, TransferSpec};
use net::Identity;
use signal_hook::consts::SIGUSR1;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const EVENT_EVERY: Duration = Duration::from_secs(1);

/// The hosts of one end; none yet where that is this host.
#[derive(Default)]
struct Side {
    hosts: Vec<Endpoint>,
    /// The endpoint that tells them, unless they were named.
    told_by: Option<Endpoint>,
    is_here: bool,
}

impl Side {
    /// Others work than the host that the endpoint is known by, be it one alone because that one is away.
    fn is_elsewhere(&self) -> bool {
        self.told_by.as_ref().is_some_and(|known| self.hosts.iter().any(|host| host.pin != known.pin))
    }
}

/// The hosts of a request.
pub struct Hosts {
    book: EndpointBook,
    spec: TransferSpec,
    /// As it was asked for.
    asked: TransferSpec,
    from: Side,
    to: Side,
    identity: Identity,
    job: JobId,
}

impl Hosts {
    /// Nothing where one host at each end does it all: no others are named, and no end has several.
    pub fn of(request: &Request) -> Result<Option<Hosts>> {
        let HostNames { from, to } = &request.hosts;
        let is_asked = !(from.is_empty() && to.is_empty());
        let TransferSpec { sources, destination, choice, options, .. } = &request.spec;
        let reachable = Reachable::new(request.ssh.clone());
        let source = match &sources[..] {
            [source] if is_asked || request.command == "cp" => source,
            _ if is_asked => return Err(usage("several hosts copy one directory", "give a command for each source")),
            _ => return Ok(None),
        };
        if !is_asked {
            let Ok(book) = reachable.book() else { return Ok(None) };
            // A directory of this host takes part if hosts are named: one host keeps more of what a copy of one's own files can do.
            let ends = [source, destination].map(|end| endpoint(&book, end));
            let several = |end: &Result<Endpoint>| end.as_ref().is_ok_and(|end| known::has_several(&book, &end.name));
            if ends.iter().any(Result::is_err) || !ends.iter().any(several) {
                return Ok(None);
            }
        }
        if is_here(source) && !is_directory(source) {
            let hint = "several hosts copy one directory: omit --to-hosts";
            return Err(usage(format!("{source} is no directory"), hint));
        }
        let book = reachable.book()?;
        let identity = reachable.identity()?;
        let (from, to) = (side(&book, source, from, &identity)?, side(&book, destination, to, &identity)?);
        // Who works on it is no part of what is asked for.
        let texts = [source, destination].map(text_of);
        let job = job_id(identity.pin(), &texts[..1], texts[1].clone(), choice, options);
        let mut spec = request.spec.clone();
        settle_names(&mut spec);
        let hosts = Hosts { book, spec, asked: request.spec.clone(), from, to, identity, job };
        if is_asked {
            return Ok(Some(hosts));
        }
        let has_others = hosts.from.is_elsewhere() || hosts.to.is_elsewhere();
        let suits = has_others && hosts.with(&Paths::from_env()?, &|| false, &|_| {}, &|_, _| {}, crew::suits);
        Ok(suits.then_some(hosts))
    }

    /// What is to be done, for somebody who does something with it.
    fn with<T>(
        &self,
        paths: &Paths,
        stop: &(dyn Fn() -> bool + Sync),
        tell: &(dyn Fn(&str) + Sync),
        show: &(dyn Fn(&OrderNews, crew::Counts) + Sync),
        act: impl FnOnce(&Work<'_>) -> T,
    ) -> T {
        let sides = [self.from.told_by.clone(), self.to.told_by.clone()];
        let (book, identity) = (self.book.clone(), self.identity.clone());
        let told = move |side: &Option<Endpoint>| known::ask(side.as_ref()?, &book, &identity).ok();
        act(&Work {
            job: self.job,
            spec: &self.spec,
            senders: self.from.hosts.clone(),
            receivers: self.to.hosts.clone(),
            do_fetch: self.to.is_here,
            look: Arc::new(move || (told(&sides[0]), told(&sides[1]))),
            identity: self.identity.clone(),
            state: &paths.state,
            common: self.common(paths),
            stop,
            begun: &|_| {},
            tell,
            show,
        })
    }

    /// Nothing unless this host is one of several that share a coordinator. A directory of this host is none of theirs.
    fn common(&self, paths: &Paths) -> Option<Common> {
        if self.from.is_here || self.to.is_here {
            return None;
        }
        let shared = crate::coordinator::shared(&paths.state).ok()??;
        let TransferSpec { sources, destination, choice, options, .. } = &self.asked;
        let job = job_id(shared.endpoint(), &[sources[0].to_string()], destination.to_string(), choice, options);
        Some(Common { shared, job })
    }

    /// Has this host take part, if it is one of the ends. It does while what is returned lives.
    fn take_part(&mut self, request: &Request) -> Result<Option<Here>> {
        let is_source = self.from.is_here;
        let (side, end) = match is_source {
            true => (&mut self.from, &mut self.spec.sources[0]),
            false if self.to.is_here => (&mut self.to, &mut self.spec.destination),
            false => return Ok(None),
        };
        if !is_source {
            let path = std::path::Path::new(OsStr::from_bytes(end.path()));
            std::fs::create_dir_all(path).map_err(|e| of_written("create directory", path, &e))?;
        }
        let here = Here::start(&here::directory(end.path())?, is_source, request, &self.identity)?;
        *end = Location::Named { name: here::NAME.to_owned(), path: Vec::new() };
        side.hosts.push(here.endpoint.clone());
        Ok(Some(here))
    }

    pub fn run(
        mut self,
        request: &Request,
        started: Instant,
        interrupt: &Interrupt,
        events: Option<Arc<Events>>,
    ) -> Result<Finished> {
        crew::check(&self.spec)?;
        let here = self.take_part(request)?;
        self.begin(request, events.as_deref());
        let shown = Mutex::new((Instant::now(), Instant::now()));
        let asked = Arc::new(AtomicBool::new(false));
        // A signal that asks how it stands ends nothing.
        let _ = signal_hook::flag::register(SIGUSR1, asked.clone());
        let show = |news: &OrderNews, counts: crew::Counts| {
            let mut last = shown.lock().unwrap();
            let is_asked = asked.swap(false, Relaxed);
            if is_asked {
                output::note(&format!("{}; {} of {} parts are done", amounts(news), counts.done, counts.all));
            }
            if let Some(events) = &events {
                if last.0.elapsed() >= EVENT_EVERY {
                    last.0 = Instant::now();
                    events.progress(&sample_of(news, started.elapsed()));
                }
            } else if request.progress != Mode::None && last.1.elapsed() >= LINE_EVERY {
                last.1 = Instant::now();
                output::note(&format!("{}; {} of {} parts are done", amounts(news), counts.done, counts.all));
            }
        };
        let tell = |text: &str| {
            if request.progress != Mode::None || events.is_some() {
                output::note(text);
            }
        };
        let paths = Paths::from_env()?;
        let ended = self.with(&paths, &|| interrupt.is_set(), &tell, &show, crew::run);
        match ended {
            Ok(done) => {
                here.filter(|_| self.to.is_here).into_iter().for_each(|here| here.forget(&done.voided));
                let finished = summed_up(request, done, started);
                tell_failures(events.as_deref(), &finished);
                Ok(finished)
            }
            Err(_) if interrupt.is_set() => Err(stopped(interrupt)),
            Err(e) => Err(e),
        }
    }

    fn begin(&self, request: &Request, events: Option<&Events>) {
        let names =
            |endpoints: &[Endpoint]| endpoints.iter().map(|one| one.name.clone()).collect::<Vec<_>>().join(", ");
        if let Some(events) = events {
            let sources: Vec<_> = request.spec.sources.iter().map(ToString::to_string).collect();
            let destination = request.spec.destination.to_string();
            let command = request.command;
            events.start(&Start {
                command,
                direction: "remote",
                job: self.job,
                sources: &sources,
                destination: &destination,
            });
        } else if request.progress != Mode::None {
            let verb = if self.from.hosts.len() == 1 { "sends" } else { "send" };
            output::note(&format!("{} {verb} to {}", names(&self.from.hosts), names(&self.to.hosts)));
        }
    }
}

fn endpoint(book: &EndpointBook, location: &Location) -> Result<Endpoint> {
    match location {
        Location::Named { name, .. } => Ok(book.get(name)?),
        Location::Address { address, .. } => Ok(book.find_by_address(address)?),
        _ => {
            let hint = "several hosts copy between endpoints: NAME:PATH; one end may be a directory of this host";
            Err(usage(format!("{location} is at no endpoint"), hint))
        }
    }
}

/// The endpoint of a location and those that are named beside it, each once; or its hosts, as it tells them: with `all` or a number,
/// or without a word if it is known to have several.
fn side(book: &EndpointBook, location: &Location, names: &[String], identity: &Identity) -> Result<Side> {
    if is_here(location) && names.is_empty() {
        return Ok(Side { is_here: true, ..Side::default() });
    }
    let first = endpoint(book, location)?;
    let count = match names {
        [] if known::has_several(book, &first.name) => Some(usize::MAX),
        [one] if one == "all" => Some(usize::MAX),
        [one] => one.parse().ok().filter(|count| *count > 0),
        _ => None,
    };
    if let Some(count) = count {
        let mut hosts = known::ask(&first, book, identity)?.working;
        hosts.truncate(count);
        let hint = "`thalweg host resume` at the endpoint lets a drained host work again";
        if hosts.is_empty() {
            return Err(error(Exit::Temporary, format!("all hosts of {} are drained", first.name), hint));
        }
        let told_by = (count == usize::MAX).then_some(first);
        return Ok(Side { hosts, told_by, is_here: false });
    }
    let mut hosts = vec![first];
    for name in names {
        let endpoint = book.get(name)?;
        if !hosts.iter().any(|other| other.pin == endpoint.pin) {
            hosts.push(endpoint);
        }
    }
    Ok(Side { hosts, ..Side::default() })
}

fn is_here(location: &Location) -> bool {
    matches!(location, Location::Local(_))
}

/// A link counts as what it is, unless a slash stands behind it.
fn is_directory(location: &Location) -> bool {
    std::fs::symlink_metadata(OsStr::from_bytes(location.path())).is_ok_and(|found| found.is_dir())
}

/// What a location is called wherever the command is given.
fn text_of(location: &Location) -> String {
    let absolute = std::path::absolute(OsStr::from_bytes(location.path())).ok().filter(|_| is_here(location));
    absolute.map_or_else(|| location.to_string(), |path| format!("{path:?}"))
}

/// A directory that is named without a slash goes below the destination under its own name, as in any copy.
fn settle_names(spec: &mut TransferSpec) {
    let path = spec.sources[0].path().to_vec();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    match name {
        b"" | b"." | b".." => spec.destination.name_contents(),
        name => spec.destination.go_below(name),
    }
    spec.sources[0].name_contents();
}

/// What the last of the slices says, with what all of them have done.
fn summed_up(request: &Request, done: Done, started: Instant) -> Finished {
    let quiet = Request { progress: Mode::None, ..request.clone() };
    let mut finished = finished(&quiet, &done.told(), started);
    let ended = &mut finished.ended;
    ended.hosts = done.shares;
    if request.progress != Mode::None && finished.error.is_none() {
        // Where content went straight from one endpoint to the other says nothing new of several.
        let lines = lines(&finished.ended);
        lines.iter().for_each(|line| output::note(line.trim_end_matches(", directly between the two endpoints")));
    }
    if done.counts.aside > 0 && request.progress != Mode::None {
        let text = format!("{} parts failed on three hosts each; the last pass copied them", done.counts.aside);
        output::note(&text);
    }
    finished
}

/// What came of it, for a person.
fn lines(ended: &Ended) -> Vec<String> {
    let sums = OrderEnded {
        files_done: ended.files_ok,
        files_skipped: ended.files_skipped,
        files_failed: ended.files_failed,
        bytes: ended.bytes,
        bytes_sent: ended.sent_bytes,
        milliseconds: (ended.seconds * 1000.0) as u64,
        bottleneck: ended.bottleneck.sentence.clone(),
        ..OrderEnded::default()
    };
    let mut lines = summary(model::order::Kind::Copy as u32, &sums, &output::shown(&ended.destination));
    let of_host = |share: &HostShare| {
        let (files, bytes) = (counted(share.files, "file", "files"), ByteCount(share.bytes));
        let mut line = format!("{}: {files}, {bytes} in {}", share.name, counted(share.slices, "part", "parts"));
        if share.lost > 0 {
            line.push_str(&format!("; {} taken over by others", share.lost));
        }
        line
    };
    lines.splice(1..1, ended.hosts.iter().map(of_host));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Pin;

    #[test]
    fn the_one_host_that_is_left_of_two_is_used_where_the_other_is_away() {
        let host = |name: &str, key: u8| Endpoint {
            name: name.into(),
            addresses: vec![format!("192.0.2.{key}:1")],
            pin: Pin([key; 32]),
            added: String::new(),
        };
        let side = |hosts: Vec<Endpoint>| Side { hosts, told_by: Some(host("far", 1)), is_here: false };
        assert!(side(vec![host("far.h2", 2)]).is_elsewhere());
        assert!(side(vec![host("far", 1), host("far.h2", 2)]).is_elsewhere());
        assert!(!side(vec![host("far", 1)]).is_elsewhere());
        assert!(!Side { hosts: vec![host("a", 1)], ..Side::default() }.is_elsewhere());
    }
}
