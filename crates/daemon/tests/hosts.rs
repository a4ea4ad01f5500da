//! An endpoint of several hosts: its clients are let in by each of them as far as the head lets them in, and no further.

use daemon::endpoints::Replace;
use daemon::hand_in::{Desk, Terms};
use daemon::hosts::{HostBook, known};
use daemon::issue::write_ticket;
use daemon::limited::{Limits, scope_of};
use daemon::{Endpoint, EndpointBook, Error, Issue, ServeOptions, Served, Ticket, enrol};
use model::{Class, Exit};
use net::Identity;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;

struct Place {
    dir: TempDir,
    head: Served,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("root/in")).unwrap();
        let options = ServeOptions::new("127.0.0.1:0", dir.path().join("root"), dir.path().join("head"));
        let head = Served::start(ServeOptions { name: Some("first".into()), ..options }).unwrap();
        HostBook::new(&dir.path().join("head")).init().unwrap();
        Place { dir, head }
    }

    fn book(&self) -> HostBook {
        HostBook::new(&self.path("head"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn join(&self, name: &str, token: &Ticket) -> Result<Served, Error> {
        let file = self.path(&format!("{name}-token"));
        write_ticket(&file, &token.to_text()).unwrap();
        let options = ServeOptions::new("127.0.0.1:0", self.path("root"), self.path(name));
        Served::start(ServeOptions { join: Some(file), ..options })
    }

    fn ticket(&self) -> (String, Ticket) {
        let limits = Limits {
            scope: scope_of(b"in").unwrap(),
            may_read: true,
            may_write: false,
            expires: None,
            uses_max: None,
            class_max: Class::Normal,
            may_manage: false,
        };
        let (limited, ticket) = Issue::new(self.path("head")).create(limits).unwrap();
        (limited.id, ticket)
    }
}

/// The hosts as a client finds them.
fn hosts(identity: &Identity, book: &EndpointBook) -> known::Site {
    known::ask(&book.get("far").unwrap(), book, identity).unwrap()
}

fn terms(host: &Endpoint, identity: &Identity) -> Result<Terms, Error> {
    Desk::open(host, identity)?.terms(None, &|| false)
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
fn a_host_lets_in_whom_the_head_lets_in_and_as_far() {
    let place = Place::new();
    let served = place.join("h2", &place.book().invite("h2").unwrap()).unwrap();
    let (id, ticket) = place.ticket();
    let (identity, book) = (Identity::generate().unwrap(), EndpointBook::new(place.path("client")));
    until("the head to have heard h2", || place.book().list().unwrap()[1].seen.is_some());
    assert_eq!(enrol(&ticket, "far", &identity, &book, Replace::SameIdentity).unwrap().hosts, 2);
    assert!(known::has_several(&book, "far"));
    let found = hosts(&identity, &book);
    let names: Vec<_> = found.working.iter().map(|host| host.name.as_str()).collect();
    assert_eq!((names, found.leaving), (vec!["far", "far.h2"], vec![]));
    let host = &found.working[1];
    assert_eq!((host.pin, place.head.pin() == host.pin), (served.pin(), false));
    let told = terms(host, &identity).unwrap();
    assert_eq!((told.may_read, told.may_write, &told.path[..]), (true, false, &b"in"[..]));
    let stranger = Identity::generate().unwrap();
    assert_eq!(terms(host, &stranger).unwrap_err().exit, Exit::Authentication);
    // What is changed at the head holds at its hosts.
    place.book().drain("h2", true).unwrap();
    until("the host to be drained", || hosts(&identity, &book).leaving == [served.pin()]);
    place.book().drain("h2", false).unwrap();
    Issue::new(place.path("head")).revoke(&id).unwrap();
    until("the client to be refused", || terms(host, &identity).is_err_and(|e| e.exit == Exit::Authentication));
}

#[test]
fn a_host_that_was_removed_lets_nobody_in_and_a_client_is_no_host() {
    let place = Place::new();
    let token = place.book().invite("h2").unwrap();
    let served = place.join("h2", &token).unwrap();
    assert!(place.join("h3", &token).is_err(), "a token is good for one host");
    let (identity, book) = (Identity::generate().unwrap(), EndpointBook::new(place.path("client")));
    let (_, ticket) = place.ticket();
    enrol(&ticket, "far", &identity, &book, Replace::SameIdentity).unwrap();
    until("h2 to be told", || hosts(&identity, &book).working.len() == 2);
    let host = hosts(&identity, &book).working[1].clone();
    terms(&host, &identity).unwrap();
    // A client that says that it is a host learns nothing of other clients.
    let posing = place.join("posing", &ticket).unwrap();
    let at = Endpoint { pin: posing.pin(), addresses: vec![posing.local_addr().to_string()], ..host.clone() };
    assert_eq!(terms(&at, &identity).unwrap_err().exit, Exit::Authentication);
    assert_eq!(hosts(&identity, &book).working.len(), 2);
    place.book().remove("h2").unwrap();
    until("the host to let nobody in", || terms(&host, &identity).is_err_and(|e| e.exit == Exit::Authentication));
    assert_eq!(hosts(&identity, &book).working.len(), 1);
    drop(served);
    // It stays a host of that endpoint, and does not become one of its own.
    assert!(HostBook::new(&place.path("h2")).init().unwrap_err().message.contains("another host heads"));
}

#[test]
fn a_host_that_joined_has_no_clients_of_its_own() {
    let place = Place::new();
    let options = ServeOptions::new("127.0.0.1:0", place.path("root"), place.path("h2"));
    let alone = Served::start(options).unwrap();
    let (early, book) = (Identity::generate().unwrap(), EndpointBook::new(place.path("early")));
    enrol(&alone.ticket(), "own", &early, &book, Replace::SameIdentity).unwrap();
    drop(alone);
    let served = place.join("h2", &place.book().invite("h2").unwrap()).unwrap();
    let host = Endpoint { addresses: vec![served.local_addr().to_string()], ..book.get("own").unwrap() };
    assert_eq!(terms(&host, &early).unwrap_err().exit, Exit::Authentication);
    let (late, book) = (Identity::generate().unwrap(), EndpointBook::new(place.path("late")));
    let refused = enrol(&served.ticket(), "own", &late, &book, Replace::SameIdentity).unwrap_err();
    assert_eq!(refused.exit, Exit::Authentication);
}

#[test]
fn known_clients_are_let_in_while_the_head_is_away() {
    let Place { dir, head } = Place::new();
    let place = Place { dir, head };
    let served = place.join("h2", &place.book().invite("h2").unwrap()).unwrap();
    let (identity, book) = (Identity::generate().unwrap(), EndpointBook::new(place.path("client")));
    enrol(&place.ticket().1, "far", &identity, &book, Replace::SameIdentity).unwrap();
    until("h2 to be told", || hosts(&identity, &book).working.len() == 2);
    terms(&hosts(&identity, &book).working[1], &identity).unwrap();
    let Place { dir, head } = place;
    assert!(head.shut_down(Duration::from_secs(20)));
    let found = hosts(&identity, &book);
    assert_eq!(found.working.iter().map(|host| host.pin).collect::<Vec<_>>(), [served.pin()]);
    terms(&found.working[0], &identity).unwrap();
    drop((served, dir));
}
