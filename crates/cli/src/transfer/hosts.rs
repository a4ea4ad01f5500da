//! A copy that several hosts work on: which endpoints they are, and how it stands while they do.
//!
//! Not here: who does what (`daemon::crew`).

use super::orders::{LINE_EVERY, amounts, finished, sample_of, summary};
use super::remote::Reachable;
use super::request::{Finished, HostNames, Request, stopped};
use crate::exit::{Result, usage};
use crate::interrupt::Interrupt;
use crate::output::json::{Events, Start};
use crate::output::progress::Mode;
use crate::output::{self, counted};
use ::transfer::{Ended, HostShare, Peers, job_id};
use daemon::crew::{self, Done, Work};
use daemon::hand_in::{OrderEnded, OrderNews};
use daemon::{Endpoint, EndpointBook, Paths};
use model::quantity::ByteCount;
use model::{JobId, Location, TransferSpec};
use net::Identity;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const EVENT_EVERY: Duration = Duration::from_secs(1);

/// The hosts of a request.
pub struct Hosts {
    spec: TransferSpec,
    senders: Vec<Endpoint>,
    receivers: Vec<Endpoint>,
    identity: Identity,
    job: JobId,
}

impl Hosts {
    /// Nothing where the request names no others than its locations do.
    pub fn of(request: &Request) -> Result<Option<Hosts>> {
        let HostNames { from, to } = &request.hosts;
        if from.is_empty() && to.is_empty() {
            return Ok(None);
        }
        let TransferSpec { sources, destination, choice, options, .. } = &request.spec;
        let [source] = &sources[..] else {
            return Err(usage("several hosts copy one directory", "give a command for each source"));
        };
        let reachable = Reachable::new(request.ssh.clone());
        let book = reachable.book()?;
        let (senders, receivers) = (all(&book, source, from)?, all(&book, destination, to)?);
        let identity = reachable.identity()?;
        // Who works on it is no part of what is asked for.
        let job = job_id(identity.pin(), &[source.to_string()], destination.to_string(), choice, options);
        let mut spec = request.spec.clone();
        settle_names(&mut spec);
        Ok(Some(Hosts { spec, senders, receivers, identity, job }))
    }

    pub fn run(
        &self,
        request: &Request,
        started: Instant,
        interrupt: &Interrupt,
        events: Option<Arc<Events>>,
    ) -> Result<Finished> {
        self.begin(request, events.as_deref());
        let shown = Mutex::new((Instant::now(), Instant::now()));
        let show = |news: &OrderNews, counts: crew::Counts| {
            let mut last = shown.lock().unwrap();
            if let Some(events) = &events {
                if last.0.elapsed() >= EVENT_EVERY {
                    last.0 = Instant::now();
                    events.progress(&sample_of(news));
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
        let ended = crew::run(&Work {
            job: self.job,
            spec: &self.spec,
            senders: self.senders.clone(),
            receivers: self.receivers.clone(),
            identity: self.identity.clone(),
            state: &paths.state,
            stop: &|| interrupt.is_set(),
            tell: &tell,
            show: &show,
        });
        match ended {
            Ok(done) => Ok(summed_up(request, done, started)),
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
            output::note(&format!("{} send to {}", names(&self.senders), names(&self.receivers)));
        }
    }
}

/// The endpoint of a location and those that are named beside it, each once.
fn all(book: &EndpointBook, location: &Location, names: &[String]) -> Result<Vec<Endpoint>> {
    let mut found = vec![match location {
        Location::Named { name, .. } => book.get(name)?,
        Location::Address { address, .. } => book.find_by_address(address)?,
        _ => {
            return Err(usage(
                format!("{location} is at no endpoint"),
                "several hosts copy between endpoints: NAME:PATH",
            ));
        }
    }];
    for name in names {
        let endpoint = book.get(name)?;
        if !found.iter().any(|other| other.pin == endpoint.pin) {
            found.push(endpoint);
        }
    }
    Ok(found)
}

/// A directory that is named without a slash goes below the destination under its own name, as in any copy.
fn settle_names(spec: &mut TransferSpec) {
    let path = spec.sources[0].path().to_vec();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if !matches!(name, b"" | b"." | b"..")
        && let Location::Named { path, .. } | Location::Address { path, .. } = &mut spec.destination
    {
        if !path.is_empty() && !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(name);
    }
    spec.sources[0].name_contents();
    spec.destination.name_contents();
}

/// What the last of the slices says, with what all of them have done.
fn summed_up(request: &Request, done: Done, started: Instant) -> Finished {
    let quiet = Request { progress: Mode::None, ..request.clone() };
    let mut finished = finished(&quiet, &done.last, started);
    let ended = &mut finished.ended;
    let sum = |of: fn(&HostShare) -> u64| done.shares.iter().map(of).sum::<u64>();
    // The last one skips what the others have delivered.
    let (before_files, before_bytes) = (sum(|one| one.files) - ended.files_ok, sum(|one| one.bytes) - ended.bytes);
    ended.files_ok += before_files;
    ended.files_skipped = ended.files_skipped.saturating_sub(before_files);
    ended.bytes += before_bytes;
    ended.sent_bytes = sum(|one| one.bytes_sent);
    let slowest = done.shares.iter().max_by_key(|one| one.bytes).filter(|one| !one.bottleneck.is_empty());
    if let Some(share) = slowest {
        ended.bottleneck.sentence = format!("{}: {}", share.name, share.bottleneck);
    }
    ended.hosts = done.shares;
    if request.progress != Mode::None && finished.error.is_none() {
        lines(&finished.ended).iter().for_each(|line| output::note(line));
    }
    if done.counts.aside > 0 && request.progress != Mode::None {
        let text = format!(
            "{} parts were lost by three hosts each, and then copied by one that went over everything",
            done.counts.aside
        );
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
