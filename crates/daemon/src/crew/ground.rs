//! Whether hosts that are to work on one job have one file system in common, asked before any of them is told to.
//!
//! Two directories are taken for one if inode, size and both times are the same: a copy has other inodes, and another time of change.
//! Of one that is written to meanwhile, what stands in it has to be the same, as far as that did not change.
//!
//! Not here: what a host may do. It says so when it is told to do something.

use super::same_directory::{Within, are_one};
use super::work::{Work, is_passing, thread};
use crate::endpoints::Endpoint;
use crate::error::{Error, Result};
use cluster::Weight;
use model::files::{ALL_LEVELS, FileKind, FileStatus, Found, Question, Version};
use model::{Exit, Location};
use mover::session::{AskError, Client, Tuning};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use transfer::ConnectOptions;
use wire::handshake::feature;

/// Each takes a thread and a connection.
const ASKED_AT_ONCE: usize = 32;
/// So far above a destination a directory is looked for.
const LEVELS_MAX: usize = 16;
/// For a host that answers and does not say what stands at a path, as where its storage hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The senders and receivers that can be used; those that cannot be reached now are told of and left out.
pub fn usable(work: &Work<'_>) -> Result<(Vec<Endpoint>, Vec<Endpoint>)> {
    let from = work.spec.sources[0].path();
    let senders = same(work, &work.senders, from, false)?;
    // One is asked for nothing that a copy to it would not need.
    let receivers = match work.receivers.len() {
        1 => work.receivers.clone(),
        _ => same(work, &work.receivers, work.spec.destination.path(), true)?,
    };
    Ok((senders, receivers))
}

/// Whether a path of an endpoint is a directory.
pub fn is_directory(work: &Work<'_>, endpoint: &Endpoint, path: &[u8]) -> bool {
    look(work, endpoint, path, false).is_ok()
}

/// Whether so much lies below the source, as the first sender says.
///
/// # Errors
/// When it does not say.
pub fn holds(work: &Work<'_>, is_enough: &dyn Fn(Weight) -> bool) -> Result<bool> {
    let endpoint = &work.senders[0];
    let client = client(work, endpoint)?;
    let mut found = Weight::default();
    let paths = vec![work.spec.sources[0].path().to_vec()];
    let question = Question::List { paths, levels: ALL_LEVELS, digest: None };
    let listed = client.ask(&question, work.stop, &mut |record| {
        if let Found::Object { status, .. } = &record.found
            && status.kind == FileKind::File
        {
            found.add(Weight { files: 1, bytes: status.size_bytes });
        }
        !is_enough(found)
    });
    client.close();
    match listed {
        // Whoever has seen enough has the answer end.
        _ if is_enough(found) => Ok(true),
        Ok(_) => Ok(false),
        Err(e) => Err(of_ask(endpoint, &e)),
    }
}

/// For somebody who has to know before anything is begun whether the hosts can.
///
/// # Errors
/// When they do not see the same files, do not know all that they may be told of parts, or the destination is no file system.
pub fn can_share(work: &Work<'_>) -> Result<()> {
    let (senders, receivers) = usable(work)?;
    // Where nothing but a store is, there is nothing that could keep late hosts out.
    if !is_in_files(work, &receivers[0])? {
        return Err(Error::new(Exit::Usage, "no directory of a file system is seen at the destination"));
    }
    match know_ranges(work, &[senders, receivers].concat()) {
        true => Ok(()),
        false => Err(Error::new(Exit::Version, "not all hosts answer and know ranges of files")),
    }
}

/// Whether a file system is at the destination; where there is nothing yet, the nearest directory above it says so. A client that is
/// limited to a path sees none above that.
///
/// # Errors
/// When the receiver does not answer.
fn is_in_files(work: &Work<'_>, receiver: &Endpoint) -> Result<bool> {
    let client = client(work, receiver)?;
    let path = work.spec.destination.path();
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let nearest = nearest(path, &|above| {
        let question = Question::List { paths: vec![above.to_vec()], levels: 0, digest: None };
        ask(work, &client, receiver, &question)
    });
    client.close();
    Ok(nearest?.is_some_and(|directory| directory.inode != 0))
}

/// The first directory that is seen at a path or above it; what is refused there is passed over.
fn nearest(path: &[u8], look: &dyn Fn(&[u8]) -> Result<Option<Version>>) -> Result<Option<Version>> {
    for above in prefixes(path) {
        match look(above) {
            Err(e) if is_passing(&e) => return Err(e),
            Ok(None) | Err(_) => {}
            found => return found,
        }
    }
    Ok(None)
}

/// A path and the nearest ones above it.
fn prefixes(path: &[u8]) -> Vec<&[u8]> {
    let is_end = |at: &usize| *at == 0 || path.get(*at).is_none_or(|byte| *byte == b'/');
    (0..=path.len()).rev().filter(is_end).take(LEVELS_MAX).map(|at| &path[..at]).collect()
}

/// Whether all of these take a range of a file as a slice.
pub fn know_ranges(work: &Work<'_>, hosts: &[Endpoint]) -> bool {
    let knows = |host: &Endpoint| {
        client(work, host).is_ok_and(|client| {
            let knows = client.knows(feature::RANGES).unwrap_or(false);
            client.close();
            knows
        })
    };
    of_each(hosts, knows).into_iter().all(|knows| knows)
}

/// Whether one more host sees the same as those that work on the job.
pub fn joins(work: &Work<'_>, known: &[Endpoint], newcomer: &Endpoint, path: &[u8]) -> Result<()> {
    fits(known, newcomer, path, &|one| look(work, one, path, false), &|one| look_within(work, one, path))
}

/// The first that answers speaks for the others: any of them may be dead by now.
fn fits(
    known: &[Endpoint],
    newcomer: &Endpoint,
    path: &[u8],
    look: &(dyn Fn(&Endpoint) -> Result<Version> + Sync),
    within: &(dyn Fn(&Endpoint) -> Result<Within> + Sync),
) -> Result<()> {
    for first in known {
        // Both at once: the directory may change between two looks.
        let mut seen = of_each(&[first.clone(), newcomer.clone()], look).into_iter();
        let (Some(theirs), Some(its)) = (seen.next(), seen.next()) else { continue };
        let its = its?;
        match theirs {
            Ok(theirs) if theirs == its => return Ok(()),
            Ok(_) => match are_one(&|| within(first), &|| vec![within(newcomer)]).map(|mut seen| seen.remove(0)) {
                Ok(Ok(true)) => return Ok(()),
                Ok(Ok(false)) => return Err(differs(newcomer, first, path)),
                Ok(Err(e)) => return Err(e),
                Err(_) => {}
            },
            Err(_) => {}
        }
    }
    Err(Error::new(Exit::Temporary, "no host that works on the job answers"))
}

/// A session for questions alone.
pub fn client(work: &Work<'_>, endpoint: &Endpoint) -> Result<Client> {
    let options =
        ConnectOptions { tuning: Tuning { streams: Some(0), ..Tuning::default() }, ..ConnectOptions::default() };
    crate::connect(endpoint, &work.identity, &options)
}

fn same(work: &Work<'_>, endpoints: &[Endpoint], path: &[u8], is_made: bool) -> Result<Vec<Endpoint>> {
    let mut found: Vec<(Endpoint, Version)> = Vec::new();
    let mut unreached = None;
    let mut left = endpoints;
    while !left.is_empty() {
        // One makes the directory; then all the others look at once.
        let makes = is_made && found.is_empty();
        let (these, rest) = left.split_at(if makes { 1 } else { left.len() });
        for (endpoint, seen) in these.iter().zip(of_each(these, |one| look(work, one, path, makes))) {
            match seen {
                Ok(version) => found.push((endpoint.clone(), version)),
                Err(e) if is_passing(&e) => {
                    (work.tell)(&format!("{} is left out: {}", endpoint.name, e.message));
                    unreached.get_or_insert(e);
                }
                Err(e) => return Err(e),
            }
        }
        left = rest;
    }
    let Some((first, version)) = found.first() else {
        return Err(unreached.unwrap_or_else(|| Error::new(Exit::Usage, "no host is named")));
    };
    let seem_others: Vec<Endpoint> =
        found.iter().filter(|(_, other)| other != version).map(|(other, _)| other.clone()).collect();
    let mut hosts: Vec<Endpoint> =
        found.iter().filter(|(_, other)| other == version).map(|(one, _)| one.clone()).collect();
    if seem_others.is_empty() {
        return Ok(hosts);
    }
    let within = |one: &Endpoint| look_within(work, one, path);
    let are_same = are_one(&|| within(first), &|| of_each(&seem_others, within))?;
    for (other, is_same) in seem_others.iter().zip(are_same) {
        match is_same {
            Ok(true) => hosts.push(other.clone()),
            Ok(false) => return Err(differs(other, first, path)),
            Err(e) if is_passing(&e) => (work.tell)(&format!("{} is left out: {}", other.name, e.message)),
            Err(e) => return Err(e),
        }
    }
    Ok(hosts)
}

fn differs(other: &Endpoint, first: &Endpoint, path: &[u8]) -> Error {
    let path = Location::Named { name: first.name.clone(), path: path.to_vec() };
    Error::new(Exit::Refused, format!("{} does not see the same files as {path}", other.name))
        .hint("hosts that work on one job share a file system and serve the same directory of it (docs/hosts.md)")
}

/// Asks several hosts at the same time, each of which is some round trips away; the answers are in their order.
fn of_each<T: Send>(hosts: &[Endpoint], ask: impl Fn(&Endpoint) -> T + Sync) -> Vec<T> {
    let ask = &ask;
    let of_some = |some: &[Endpoint]| -> Vec<T> {
        std::thread::scope(|scope| {
            let asking = some.iter().map(|host| thread("ask").spawn_scoped(scope, move || ask(host)));
            let asking: Vec<_> = asking.zip(some).collect();
            let answer = |(thread, host): (std::io::Result<ScopedJoinHandle<'_, T>>, &Endpoint)| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                // No room for another thread: this one asks.
                Err(_) => ask(host),
            };
            asking.into_iter().map(answer).collect()
        })
    };
    hosts.chunks(ASKED_AT_ONCE).flat_map(of_some).collect()
}

/// The directory at a path, as an endpoint sees it.
fn look(work: &Work<'_>, endpoint: &Endpoint, path: &[u8], is_made: bool) -> Result<Version> {
    let client = client(work, endpoint)?;
    // Without its slash, so that a file is seen as one.
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let paths = vec![path.to_vec()];
    if is_made && !path.is_empty() {
        let make = Question::Make { paths: paths.clone(), with_parents: true };
        ask(work, &client, endpoint, &make)?;
    }
    let seen = ask(work, &client, endpoint, &Question::List { paths, levels: 0, digest: None });
    client.close();
    seen?.ok_or_else(|| {
        let path = Location::Named { name: endpoint.name.clone(), path: path.to_vec() };
        Error::new(Exit::Usage, format!("{path} is no directory"))
            .hint("several hosts work on directories: omit --hosts")
    })
}

/// The directory at a path and the first names in it, as an endpoint sees them.
fn look_within(work: &Work<'_>, endpoint: &Endpoint, path: &[u8]) -> Result<Within> {
    let client = client(work, endpoint)?;
    let mut within = Within::default();
    let paths = vec![path.strip_suffix(b"/").unwrap_or(path).to_vec()];
    let question = Question::List { paths, levels: 1, digest: None };
    let listed = each(work, &client, endpoint, &question, &mut |path, status| within.add(path, status.version()));
    client.close();
    // Whoever has seen enough has the answer end.
    if within.is_all {
        listed?;
    }
    Ok(within)
}

/// What stands there, if it is a directory.
fn ask(work: &Work<'_>, client: &Client, endpoint: &Endpoint, question: &Question) -> Result<Option<Version>> {
    let mut seen = None;
    each(work, client, endpoint, question, &mut |path, status| {
        if path.is_empty() && status.is_directory() {
            seen = Some(status.version());
        }
        true
    })?;
    Ok(seen)
}

/// Each object of the answer, as long as more of them are wanted.
fn each(
    work: &Work<'_>,
    client: &Client,
    endpoint: &Endpoint,
    question: &Question,
    take: &mut dyn FnMut(Vec<u8>, &FileStatus) -> bool,
) -> Result<()> {
    let mut failed = None;
    let since = Instant::now();
    let is_enough = || (work.stop)() || since.elapsed() >= PATIENCE;
    let asked = client.ask(question, &is_enough, &mut |record| match record.found {
        Found::Object { status, .. } => take(record.path, &status),
        Found::Failed { kind: _, text } if record.path.is_empty() => {
            failed = Some(text);
            true
        }
        _ => true,
    });
    asked.map_err(|e| match e {
        AskError::Interrupted(_) if !(work.stop)() => {
            let text = format!("{} does not say what is there within {} s", endpoint.name, PATIENCE.as_secs());
            Error::new(Exit::Temporary, text).hint("see whether its storage answers")
        }
        e => of_ask(endpoint, &e),
    })?;
    match failed {
        Some(text) => {
            let text = format!("{}: {}", endpoint.name, model::name::Escaped(text.as_bytes()));
            Err(Error::new(Exit::Failed, text).hint("check the path, and what this client may do there"))
        }
        None => Ok(()),
    }
}

pub fn of_ask(endpoint: &Endpoint, e: &AskError) -> Error {
    match e {
        AskError::Connect(e) => Error::from_connect(&endpoint.name, e),
        AskError::Refused(refusal) => Error::from_refusal(&endpoint.name, refusal),
        AskError::Lost(_) => Error::new(Exit::Temporary, format!("{}: the connection was lost", endpoint.name)),
        AskError::Interrupted(_) => Error::new(Exit::Interrupted, "stopped"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Pin;

    #[test]
    fn where_nothing_is_at_the_destination_the_directories_above_it_are_looked_at_from_the_nearest_on() {
        assert_eq!(prefixes(b"in/y/z"), [&b"in/y/z"[..], b"in/y", b"in", b""]);
        assert_eq!(prefixes(b""), [b""]);
        assert_eq!(prefixes(&b"a/".repeat(2000)).len(), LEVELS_MAX);
    }

    #[test]
    fn a_receiver_that_does_not_answer_is_not_one_without_files() {
        let directory = Version { inode: 1, ..Version::default() };
        let look = |exit: Exit| {
            let look = move |above: &[u8]| match above {
                b"in" => Ok(Some(directory)),
                b"in/y" => Err(Error::new(exit, "no")),
                _ => Ok(None),
            };
            nearest(b"in/y/z", &look).map_err(|e| e.exit)
        };
        assert_eq!(look(Exit::Failed), Ok(Some(directory)));
        assert_eq!(look(Exit::Unreachable), Err(Exit::Unreachable));
    }

    fn host(number: u8) -> Endpoint {
        Endpoint { name: format!("h{number}"), addresses: Vec::new(), pin: Pin([number; 32]), added: String::new() }
    }

    #[test]
    fn a_newcomer_is_compared_with_the_first_that_answers() {
        let look = |one: &Endpoint| match &one.name[..] {
            "h1" => Err(Error::new(Exit::Unreachable, "h1 is dead")),
            "h4" => Ok(Version { inode: 2, ..Version::default() }),
            _ => Ok(Version { inode: 1, ..Version::default() }),
        };
        // One that is dead by now is no reason against the newcomer.
        let within = |one: &Endpoint| match &one.name[..] {
            "h5" => Err(Error::new(Exit::Unreachable, "h5 is dead")),
            name => {
                let version = Version { inode: if name == "h4" { 2 } else { 1 }, ..Version::default() };
                let mut within = Within::default();
                within.add(Vec::new(), version);
                within.add(b"a".to_vec(), version);
                Ok(within)
            }
        };
        let fits =
            |known: &[Endpoint], newcomer: u8| fits(known, &host(newcomer), b"d", &look, &within).map_err(|e| e.exit);
        let known = [host(1), host(2)];
        assert_eq!((fits(&known, 3), fits(&known, 4)), (Ok(()), Err(Exit::Refused)));
        assert_eq!(fits(&known, 1), Err(Exit::Unreachable), "it is the newcomer that is dead");
        assert_eq!(fits(&known[..1], 3), Err(Exit::Temporary));
        assert_eq!(fits(&[host(5), host(2)], 4), Err(Exit::Refused));
    }
}
