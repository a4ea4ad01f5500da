//! The hosts of an endpoint as a client knows them: asked for, and kept beside the endpoint's own file for when it cannot be reached.
//!
//! `NAME.hosts` in the directory of the known endpoints. Invariant: what is believed was said over a session with the endpoint's key.

use crate::endpoints::{Endpoint, EndpointBook, check_name};
use crate::error::{Error, Result};
use crate::hand_in::Desk;
use crate::private_file::{self, Existing};
use crate::ticket::is_address;
use model::{Exit, Pin};
use net::Identity;
use std::time::{Duration, Instant};
use wire::Message;
use wire::hosts::DRAINING;
use wire::message::{AskHosts, HostRecord, Hosts};

const FILE_BYTES_MAX: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(5);
/// For so long hosts of which an endpoint tells no more are believed to be away.
const AWAY: Duration = Duration::from_secs(86_400);

/// The hosts of an endpoint.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// Those that work, the one that was asked first.
    pub working: Vec<Endpoint>,
    /// Those that get no more.
    pub leaving: Vec<Pin>,
}

/// Whether an endpoint has told of several hosts.
pub fn has_several(book: &EndpointBook, name: &str) -> bool {
    check_name(name).is_ok() && book.hosts_file(name).exists()
}

/// The hosts of an endpoint: as it tells them now, or as it told them when it could still be reached.
///
/// # Errors
/// When it cannot be reached and never told any.
pub fn ask(endpoint: &Endpoint, book: &EndpointBook, identity: &Identity) -> Result<Site> {
    match asked(endpoint, identity) {
        Ok(records) => {
            remember(book, endpoint, &records)?;
            Ok(site(endpoint, &records))
        }
        Err(e) if has_several(book, &endpoint.name) && matches!(e.exit, Exit::Temporary | Exit::Unreachable) => {
            let bytes = private_file::read(&book.hosts_file(&endpoint.name), FILE_BYTES_MAX, false)?;
            let kept = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
            let mut site = parse(endpoint, kept);
            site.working.retain(|host| host.pin != endpoint.pin);
            if site.working.is_empty() { Err(e) } else { Ok(site) }
        }
        Err(e) => Err(e),
    }
}

fn asked(endpoint: &Endpoint, identity: &Identity) -> Result<Vec<HostRecord>> {
    let desk = Desk::open(endpoint, identity)?;
    if !desk.knows_hosts() {
        return Ok(Vec::new());
    }
    let since = Instant::now();
    let answers = desk.request(|number| AskHosts { number }.into(), &|| since.elapsed() >= PATIENCE)?;
    Ok(of(answers))
}

/// The hosts in an answer.
pub fn of(answers: Vec<Message>) -> Vec<HostRecord> {
    let of = |answer| match answer {
        Message::Hosts(Hosts { hosts, .. }) => Some(hosts),
        _ => None,
    };
    answers.into_iter().find_map(of).unwrap_or_default()
}

/// Keeps what an endpoint told of its hosts. One that tells of a single host may have others that are away: what it told of them before
/// is forgotten after `AWAY`, or when it is added again, or removed. That it has told of several is known for longer: it is still asked.
pub fn remember(book: &EndpointBook, endpoint: &Endpoint, records: &[HostRecord]) -> Result<()> {
    let path = book.hosts_file(&endpoint.name);
    let told = path.metadata().and_then(|file| file.modified()).ok();
    let age = told.and_then(|told| told.elapsed().ok());
    if records.len() < 2 && age.is_none_or(|age| age <= AWAY) {
        return Ok(());
    }
    let kept: Vec<Kept> = records.iter().map(kept).collect();
    let text = serde_json::to_vec(&kept).map_err(|e| Error::new(Exit::Fatal, format!("write hosts: {e}")))?;
    let is_new = private_file::read(&path, FILE_BYTES_MAX, false).ok().flatten().is_none_or(|old| old != text);
    // What is told again stays young.
    if is_new || age.is_none_or(|age| age > AWAY / 24) {
        private_file::write(&path, &text, Existing::Replace).map_err(|e| Error::of_file("write", &path, e))?;
    }
    Ok(())
}

/// As it is written down.
fn kept(record: &HostRecord) -> Kept {
    let addresses = record.addresses.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect();
    (record.name.clone(), data_encoding::HEXLOWER.encode(&record.pin), addresses, record.state)
}

fn site(endpoint: &Endpoint, records: &[HostRecord]) -> Site {
    parse(endpoint, records.iter().map(kept).collect())
}

type Kept = (String, String, Vec<String>, u32);

/// What cannot be a host is passed over. Without any, the endpoint is its only host.
fn parse(endpoint: &Endpoint, kept: Vec<Kept>) -> Site {
    let mut site = Site::default();
    for (name, pin, addresses, state) in kept {
        let Some(pin) = Pin::from_hex(&pin) else { continue };
        if state == DRAINING {
            site.leaving.push(pin);
            continue;
        }
        let host = match pin == endpoint.pin {
            // As it was reached.
            true => endpoint.clone(),
            false => Endpoint {
                name: format!("{}.{name}", endpoint.name),
                addresses: addresses.into_iter().filter(|address| is_address(address)).take(16).collect(),
                pin,
                added: endpoint.added.clone(),
            },
        };
        if check_name(&host.name).is_ok() && !host.addresses.is_empty() && !site.working.iter().any(|h| h.pin == pin) {
            site.working.push(host);
        }
    }
    if site.working.is_empty() && !site.leaving.contains(&endpoint.pin) {
        site.working.push(endpoint.clone());
    }
    site.working.sort_by_key(|host| host.pin != endpoint.pin);
    site
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::Replace;
    use std::time::SystemTime;

    #[test]
    fn what_an_endpoint_tells_is_checked_before_it_is_used() {
        let endpoint = Endpoint {
            name: "far".into(),
            addresses: vec!["192.0.2.1:1".into()],
            pin: Pin([1; 32]),
            added: "2026-01-01T00:00:00Z".into(),
        };
        let record = |name: &str, pin: u8, bytes: usize, address: &str, state| HostRecord {
            name: name.into(),
            pin: vec![pin; bytes],
            addresses: vec![address.into()],
            state,
        };
        let told = [
            record("h3", 3, 32, "192.0.2.3:1", 1),
            record("head", 1, 32, "198.51.100.9:1", 1),
            record("../x", 4, 32, "192.0.2.4:1", 1),
            record("h5", 5, 31, "192.0.2.5:1", 1),
            record("h6", 6, 32, "not an address", 1),
            record("h7", 7, 32, "192.0.2.7:1", 2),
            record("again", 3, 32, "192.0.2.8:1", 1),
        ];
        let found = site(&endpoint, &told);
        let names: Vec<_> = found.working.iter().map(|host| (host.name.as_str(), host.addresses[0].as_str())).collect();
        assert_eq!(names, [("far", "192.0.2.1:1"), ("far.h3", "192.0.2.3:1")]);
        assert_eq!(found.leaving, [Pin([7; 32])]);
        assert_eq!(site(&endpoint, &[]).working, std::slice::from_ref(&endpoint));
        let dir = tempfile::tempdir().unwrap();
        let book = EndpointBook::new(dir.path());
        remember(&book, &endpoint, &told).unwrap();
        assert!(has_several(&book, "far") && !has_several(&book, "../far"));
    }

    #[test]
    fn hosts_that_are_away_are_not_forgotten_before_the_endpoint_is_added_again() {
        let dir = tempfile::tempdir().unwrap();
        let book = EndpointBook::new(dir.path());
        let endpoint = Endpoint {
            name: "far".into(),
            addresses: vec!["192.0.2.1:1".into()],
            pin: Pin([1; 32]),
            added: "2026-01-01T00:00:00Z".into(),
        };
        let told = [1, 2].map(|n| HostRecord {
            name: format!("h{n}"),
            pin: vec![n; 32],
            addresses: vec![format!("192.0.2.{n}:1").into_bytes()],
            state: 1,
        });
        book.add(&endpoint, Replace::SameIdentity).unwrap();
        let kept = || serde_json::from_slice::<Vec<Kept>>(&std::fs::read(book.hosts_file("far")).unwrap()).unwrap();
        for told in [&told[..], &told[..1], &[]] {
            remember(&book, &endpoint, told).unwrap();
            assert!(has_several(&book, "far") && kept().len() == 2, "{told:?}");
        }
        let age = |age: Duration| {
            let file = std::fs::File::options().write(true).open(book.hosts_file("far")).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        // Told again, they are not away; not told for long, they are none any more, and may come back.
        age(2 * AWAY);
        for told in [&told[..], &told[..1]] {
            remember(&book, &endpoint, told).unwrap();
            assert_eq!(kept().len(), 2, "{told:?}");
        }
        age(2 * AWAY);
        remember(&book, &endpoint, &told[..1]).unwrap();
        assert!(has_several(&book, "far") && kept().len() == 1);
        remember(&book, &endpoint, &told).unwrap();
        assert_eq!(kept().len(), 2);
        book.add(&endpoint, Replace::SameIdentity).unwrap();
        assert!(!has_several(&book, "far"));
    }
}
