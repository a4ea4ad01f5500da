//! An endpoint whose hosts keep their records in a coordinator: it outlives its first host, and the coordinator's silence and restoration.

use cluster::coordinator::{Answer, Coordinator, Fault, FaultKind, Held, History, Lease};
use conformance::coordinators::Memory;
use daemon::endpoints::Replace;
use daemon::hand_in::{Desk, Terms};
use daemon::hosts::{Shared, known};
use daemon::issue::write_ticket;
use daemon::limited::{Limits, scope_of};
use daemon::{ConnectOptions, Endpoint, EndpointBook, Error, ServeOptions, Served, Ticket, enrol};
use model::warrant::{Signed, Verbs};
use model::{Class, Exit, JobId, Warrant};
use net::Identity;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use transfer::Reach;

/// A coordinator that can be full: then it answers, and takes nothing.
#[derive(Debug, Default)]
struct Bounded {
    memory: Arc<Memory>,
    is_full: AtomicBool,
}

impl Bounded {
    fn room(&self) -> Answer<()> {
        let full = || Fault { kind: FaultKind::Silent, text: "no room".into(), advice: "make some".into() };
        if self.is_full.load(Relaxed) { Err(full()) } else { Ok(()) }
    }
}

impl Coordinator for Bounded {
    fn get(&self, keys: &[String]) -> Answer<Vec<Option<Held>>> {
        self.memory.get(keys)
    }

    fn list(&self, prefix: &str, most: usize) -> Answer<Vec<String>> {
        self.memory.list(prefix, most)
    }

    fn change(&self, key: &str, seen: Option<&Held>, new: Option<&[u8]>, lease: Option<Lease>) -> Answer<bool> {
        self.room()?;
        self.memory.change(key, seen, new, lease)
    }

    fn grant(&self, seconds: u64) -> Answer<Lease> {
        self.room()?;
        self.memory.grant(seconds)
    }

    fn renew(&self, lease: Lease) -> Answer<bool> {
        self.memory.renew(lease)
    }

    fn left_seconds(&self, lease: Lease) -> Answer<Option<(u64, u64)>> {
        self.memory.left_seconds(lease)
    }

    fn end(&self, lease: Lease) -> Answer<()> {
        self.memory.end(lease)
    }

    fn history(&self) -> History {
        self.memory.history()
    }

    fn recall(&self, history: History) {
        self.memory.recall(history);
    }
}

struct Place {
    dir: TempDir,
    memory: Arc<Memory>,
    bounded: Arc<Bounded>,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("root/in")).unwrap();
        let bounded = Arc::<Bounded>::default();
        Place { dir, memory: bounded.memory.clone(), bounded }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn coordinator(&self) -> Arc<dyn Coordinator> {
        self.bounded.clone()
    }

    fn serve(&self, name: &str, token: Option<&Ticket>) -> Result<Served, Error> {
        self.serve_with(name, token, Some(self.path(&format!("{name}-ticket"))))
    }

    fn serve_with(&self, name: &str, token: Option<&Ticket>, ticket_file: Option<PathBuf>) -> Result<Served, Error> {
        let file = self.path(&format!("{name}-token"));
        token.map_or(Ok(()), |token| write_ticket(&file, &token.to_text())).unwrap();
        let options = ServeOptions::new("127.0.0.1:0", self.path("root"), self.path(name));
        Served::start(ServeOptions {
            name: Some(name.into()),
            join: token.map(|_| file),
            coordinator: Some(self.coordinator()),
            ticket_file,
            ..options
        })
    }

    /// The endpoint as the commands at a host see it.
    fn at(&self, name: &str) -> Shared {
        Shared::of(&self.path(name), &self.coordinator()).unwrap().unwrap()
    }

    fn heard(&self, name: &str) -> Vec<String> {
        let hosts = self.at(name).book().list().unwrap();
        hosts.into_iter().filter(|host| host.seen.is_some()).map(|host| host.name).collect()
    }

    /// Two hosts of one endpoint.
    fn two(&self) -> (Served, Served) {
        let first = self.serve("h1", None).unwrap();
        let second = self.serve("h2", Some(&self.at("h1").book().invite("h2").unwrap())).unwrap();
        (first, second)
    }

    /// A client that a ticket lets in, and where that was.
    fn enrolled(&self, name: &str, ticket: &Ticket) -> (Identity, Endpoint) {
        let (identity, book) = (Identity::generate().unwrap(), EndpointBook::new(self.path(name)));
        enrol(ticket, "far", &identity, &book, Replace::SameIdentity).unwrap();
        (identity, book.get("far").unwrap())
    }
}

/// The endpoint as a client reaches it at one of its hosts.
fn at(served: &Served, host: &Endpoint) -> Endpoint {
    Endpoint { pin: served.pin(), addresses: vec![served.local_addr().to_string()], ..host.clone() }
}

/// What a host hands out, for another one.
fn through(host: &Served, ticket: Ticket) -> Ticket {
    Ticket { addresses: vec![host.local_addr().to_string()], pin: host.pin(), ..ticket }
}

fn limits(uses_max: Option<u32>) -> Limits {
    Limits {
        scope: scope_of(b"in").unwrap(),
        may_read: true,
        may_write: false,
        expires: None,
        uses_max,
        class_max: Class::Normal,
        may_manage: false,
    }
}

fn terms(host: &Endpoint, identity: &Identity) -> Result<Terms, Error> {
    Desk::open(host, identity)?.terms(None, &|| false)
}

fn sites(identity: &Identity, book: &EndpointBook) -> Vec<Endpoint> {
    known::ask(&book.get("far").unwrap(), book, identity).unwrap().working
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

#[test]
fn the_endpoint_outlives_its_first_host() {
    let place = Place::new();
    let first = place.serve("h1", None).unwrap();
    let second = place.serve("h2", Some(&place.at("h1").book().invite("h2").unwrap())).unwrap();
    until("both to be heard", || place.heard("h1") == ["h1", "h2"]);
    let (early, book) = (Identity::generate().unwrap(), EndpointBook::new(place.path("early")));
    let (id, ticket) = place.at("h1").issue().create(limits(None)).unwrap();
    enrol(&ticket, "far", &early, &book, Replace::SameIdentity).unwrap();
    until("the client to be told of both", || sites(&early, &book).len() == 2);
    let host = sites(&early, &book).remove(1);
    let told = terms(&host, &early).unwrap();
    assert_eq!((told.may_read, told.may_write, &told.path[..]), (true, false, &b"in"[..]));
    drop(first);
    place.memory.advance(31);
    until("the second alone to be heard", || place.heard("h2") == ["h2"]);
    // A newcomer, by a ticket of the one that is left, of which there is one use for all hosts.
    let (_, once) = place.at("h2").issue().create(limits(Some(1))).unwrap();
    let (late, late_book) = (Identity::generate().unwrap(), EndpointBook::new(place.path("late")));
    enrol(&once, "far", &late, &late_book, Replace::SameIdentity).unwrap();
    let stranger = Identity::generate().unwrap();
    let other = EndpointBook::new(place.path("stranger"));
    assert_eq!(enrol(&once, "far", &stranger, &other, Replace::SameIdentity).unwrap_err().exit, Exit::Authentication);
    assert_eq!(terms(&host, &stranger).unwrap_err().exit, Exit::Authentication);
    // A new host, invited by the one that is left; its token is good once.
    let token = place.at("h2").book().invite("h3").unwrap();
    let third = place.serve("h3", Some(&token)).unwrap();
    assert_eq!(place.serve("h4", Some(&token)).err().unwrap().exit, Exit::Authentication);
    until("the third to be heard", || place.heard("h2") == ["h2", "h3"]);
    let at = Endpoint { pin: third.pin(), addresses: vec![third.local_addr().to_string()], ..host.clone() };
    terms(&at, &late).unwrap();
    // What one says holds at the others.
    place.at("h3").book().drain("h2", true).unwrap();
    let leaving = || known::ask(&late_book.get("far").unwrap(), &late_book, &late).unwrap().leaving;
    until("h2 to be drained", || leaving() == [second.pin()]);
    assert_eq!(place.at("h3").issue().revoke(&id.id).unwrap(), 1);
    until("the client to be refused", || terms(&host, &early).is_err_and(|e| e.exit == Exit::Authentication));
    place.at("h3").book().remove("h2").unwrap();
    until("the host to let nobody in", || terms(&host, &late).is_err_and(|e| e.exit == Exit::Authentication));
    terms(&at, &late).unwrap();
    // The first one comes back where it was, with nobody's help, and is as removable as the others.
    let first = place.serve("h1", None).unwrap();
    until("the first to be heard", || place.heard("h3") == ["h1", "h3"]);
    place.at("h3").book().remove("h1").unwrap();
    let at = Endpoint { pin: first.pin(), addresses: vec![first.local_addr().to_string()], ..host };
    until("the first to let nobody in", || terms(&at, &late).is_err_and(|e| e.exit == Exit::Authentication));
}

#[test]
fn while_the_coordinator_is_silent_known_clients_are_let_in_and_nobody_waits() {
    let place = Place::new();
    let served = place.serve("h1", None).unwrap();
    let (identity, book) = (Identity::generate().unwrap(), EndpointBook::new(place.path("client")));
    enrol(&served.ticket(), "far", &identity, &book, Replace::SameIdentity).unwrap();
    let host = book.get("far").unwrap();
    terms(&host, &identity).unwrap();
    assert_eq!(known::ask(&host, &book, &identity).unwrap().working.len(), 1);
    place.memory.silence(true);
    let stranger = Identity::generate().unwrap();
    let refused =
        || enrol(&served.ticket(), "far", &stranger, &EndpointBook::new(place.path("x")), Replace::SameIdentity);
    until("a newcomer to be told to come back", || {
        let began = Instant::now();
        let e = refused().unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(10));
        e.exit == Exit::Temporary
    });
    assert!(terms(&host, &identity).unwrap().may_write);
    assert_eq!(known::ask(&host, &book, &identity).unwrap().working.len(), 1);
    // A host that starts meanwhile waits for it, and lets nobody in before: nor does it say that somebody is no client.
    drop(served);
    let served = place.serve("h1", None).unwrap();
    let host = Endpoint { addresses: vec![served.local_addr().to_string()], ..host };
    assert_eq!(terms(&host, &identity).unwrap_err().exit, Exit::Temporary);
    place.memory.silence(false);
    until("the client to be let in again", || terms(&host, &identity).is_ok());
}

#[test]
fn after_a_restoration_hosts_that_it_does_not_know_register_again_and_removed_ones_do_not() {
    let place = Place::new();
    let first = place.serve("h1", None).unwrap();
    let invite = |name: &str| place.at("h1").book().invite(name).unwrap();
    let removed = place.serve("h2", Some(&invite("h2"))).unwrap();
    let token = invite("h3");
    until("both to be heard", || place.heard("h1") == ["h1", "h2"]);
    let (identity, host) = place.enrolled("client", &first.ticket());
    let snapshot = place.memory.snapshot();
    let _third = place.serve("h3", Some(&token)).unwrap();
    until("the third to be heard", || place.heard("h1") == ["h1", "h2", "h3"]);
    place.memory.restore(&snapshot);
    until("the third to be heard again", || place.heard("h1") == ["h1", "h2", "h3"]);
    let is_shut = |served: &Served| terms(&at(served, &host), &identity).is_err_and(|e| e.exit == Exit::Authentication);
    until("the second to be out", || {
        // It comes back once, should it have noticed the restoration only now.
        let _ = place.at("h1").book().remove("h2");
        is_shut(&removed)
    });
    drop(removed);
    let again = place.serve("h2", None).unwrap();
    until("the second to let nobody in", || is_shut(&again));
    let names: Vec<_> = place.at("h1").book().list().unwrap().into_iter().map(|host| host.name).collect();
    assert_eq!(names, ["h1", "h3"]);
}

#[test]
fn a_client_that_was_never_at_a_host_is_told_to_come_back_while_the_coordinator_is_silent() {
    let place = Place::new();
    let (first, second) = place.two();
    let (identity, host) = place.enrolled("client", &first.ticket());
    place.memory.silence(true);
    let host = at(&second, &host);
    assert_eq!(terms(&host, &identity).unwrap_err().exit, Exit::Temporary);
    place.memory.silence(false);
    until("the client to be let in", || terms(&host, &identity).is_ok());
}

#[test]
fn a_warrant_holds_at_a_host_where_its_client_never_was() {
    let place = Place::new();
    let (first, second) = place.two();
    let ((client, _), holder) = (place.enrolled("client", &first.ticket()), Identity::generate().unwrap());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let warrant = Warrant {
        holder: holder.pin(),
        audience: second.pin(),
        job: JobId([5; 16]),
        verbs: Verbs { read: true, ..Verbs::default() },
        not_before: now,
        expires: now + 600,
        id: [9; 16],
        paths: vec![b"in".to_vec()],
    };
    let welcome = |issuer: &Identity| {
        let signature = issuer.sign(&warrant.signed_bytes());
        let warrant = warrant.clone();
        let credential = Signed { warrant, issuer: issuer.spki().try_into().unwrap(), signature }.encode();
        let options = ConnectOptions::default();
        let reach = Reach { name: "far", pin: second.pin(), credential, identity: &holder, options: &options };
        let client = reach.connect(&[second.local_addr().to_string()]).unwrap();
        client.welcome().map(drop).map_err(|e| e.to_string())
    };
    welcome(&client).unwrap();
    assert!(welcome(&Identity::generate().unwrap()).unwrap_err().contains("not enrolled here"));
}

#[test]
fn the_ticket_of_a_host_that_was_removed_lets_in_nobody_new() {
    let place = Place::new();
    let (first, second) = place.two();
    let own = through(&first, second.ticket());
    let (identity, host) = place.enrolled("client", &own);
    place.at("h1").book().remove("h2").unwrap();
    let refused = |ticket: &Ticket| {
        let book = EndpointBook::new(place.path("thief"));
        let thief = Identity::generate().unwrap();
        enrol(ticket, "far", &thief, &book, Replace::SameIdentity).is_err_and(|e| e.exit == Exit::Authentication)
    };
    assert!(refused(&own));
    // Whoever came by it stays.
    assert!(terms(&host, &identity).unwrap().may_write);
    // Started again, it makes none that lets anybody in, before it is a host again.
    drop(second);
    let second = place.serve("h2", None).unwrap();
    assert!(refused(&through(&first, second.ticket())));
    drop(second);
    let second = place.serve("h2", Some(&place.at("h1").book().invite("h2").unwrap())).unwrap();
    assert!(refused(&own));
    place.enrolled("other", &through(&first, second.ticket()));
}

#[test]
fn a_narrower_ticket_takes_nothing_from_a_client_that_came_by_a_hosts_own() {
    let place = Place::new();
    let first = place.serve("h1", None).unwrap();
    let (identity, host) = place.enrolled("client", &first.ticket());
    let (_, narrow) = place.at("h1").issue().create(limits(None)).unwrap();
    let book = EndpointBook::new(place.path("client"));
    enrol(&narrow, "far", &identity, &book, Replace::SameIdentity).unwrap();
    let told = terms(&host, &identity).unwrap();
    assert!(told.may_write && told.path != b"in", "{told:?}");
}

#[test]
fn while_nothing_can_be_written_clients_are_let_in_that_can_be_read() {
    let place = Place::new();
    let (first, second) = place.two();
    let (identity, host) = place.enrolled("client", &first.ticket());
    // What is said of the hosts has ended, and they cannot say it again.
    place.bounded.is_full.store(true, Relaxed);
    place.memory.advance(31);
    terms(&at(&second, &host), &identity).unwrap();
}

#[test]
fn a_host_that_starts_while_nothing_can_be_written_tells_of_the_others() {
    let place = Place::new();
    let (first, second) = place.two();
    let (identity, host) = place.enrolled("client", &first.ticket());
    until("both to be heard", || place.heard("h1") == ["h1", "h2"]);
    place.bounded.is_full.store(true, Relaxed);
    drop(second);
    let second = place.serve("h2", None).unwrap();
    let kept = tempfile::tempdir().unwrap();
    let told = known::ask(&at(&second, &host), &EndpointBook::new(kept.path()), &identity).unwrap().working;
    let pins: Vec<_> = told.iter().map(|host| host.pin).collect();
    assert_eq!(pins, [second.pin(), first.pin()]);
}

#[test]
fn clients_and_tickets_that_the_first_host_has_come_with_it() {
    let place = Place::new();
    let alone = ServeOptions::new("127.0.0.1:0", place.path("root"), place.path("h1"));
    let served = Served::start(ServeOptions { name: Some("h1".into()), ..alone }).unwrap();
    let (identity, book) = (Identity::generate().unwrap(), EndpointBook::new(place.path("client")));
    enrol(&served.ticket(), "far", &identity, &book, Replace::SameIdentity).unwrap();
    let (limited, _) = daemon::Issue::new(place.path("h1")).create(limits(None)).unwrap();
    drop(served);
    let served = place.serve("h1", None).unwrap();
    let second = place.serve("h2", Some(&place.at("h1").book().invite("h2").unwrap())).unwrap();
    let host = book.get("far").unwrap();
    for served in [&served, &second] {
        let at = Endpoint { pin: served.pin(), addresses: vec![served.local_addr().to_string()], ..host.clone() };
        until("the client to be let in", || terms(&at, &identity).is_ok_and(|terms| terms.may_write));
    }
    let tickets = place.at("h2").issue().list().unwrap();
    assert!(tickets.iter().any(|issued| issued.ticket.id == limited.id), "{tickets:?}");
    // What it says alone counts no more.
    assert!(place.at("h2").issue().revoke(&identity.pin().to_string()).is_ok());
    let at = Endpoint { addresses: vec![served.local_addr().to_string()], ..host };
    let (other, others_book) = (Identity::generate().unwrap(), EndpointBook::new(place.path("other")));
    enrol(&served.ticket(), "far", &other, &others_book, Replace::SameIdentity).unwrap();
    terms(&at, &other).unwrap();
    assert_eq!(place.at("h1").issue().revoke("serve").unwrap(), 1);
    until("whoever came by that ticket to be refused", || terms(&at, &other).is_err());
    until("the client to be refused", || terms(&at, &identity).is_err_and(|e| e.exit == Exit::Authentication));
}

#[test]
fn clients_without_limits_come_with_the_first_host_where_it_writes_no_ticket() {
    let place = Place::new();
    let alone = ServeOptions::new("127.0.0.1:0", place.path("root"), place.path("h1"));
    let served = Served::start(ServeOptions { name: Some("h1".into()), ..alone }).unwrap();
    let (identity, book) = (Identity::generate().unwrap(), EndpointBook::new(place.path("client")));
    enrol(&served.ticket(), "far", &identity, &book, Replace::SameIdentity).unwrap();
    drop(served);
    let host = book.get("far").unwrap();
    // When the endpoint begins, and when its host comes back.
    for _ in 0..2 {
        let served = place.serve_with("h1", None, None).unwrap();
        let at = Endpoint { pin: served.pin(), addresses: vec![served.local_addr().to_string()], ..host.clone() };
        until("the client to be let in", || terms(&at, &identity).is_ok_and(|terms| terms.may_write));
    }
}
