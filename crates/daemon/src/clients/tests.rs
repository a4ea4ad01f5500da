//! The book of clients: who gets in, and what each may.

use super::*;
use crate::enrolment::{list, remove};
use crate::issue::{Announcement, Issue};
use crate::limited::{Limits, scope_of};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

const ALL: Rights = Rights {
    may_read: true,
    may_write: true,
    is_drop_box: false,
    reader: None,
    scope: Vec::new(),
    class_max: Class::High,
    may_manage: false,
};

fn limits() -> Limits {
    Limits {
        scope: Vec::new(),
        may_read: true,
        may_write: true,
        expires: None,
        uses_max: None,
        class_max: model::Class::High,
        may_manage: false,
    }
}

fn book() -> (tempfile::TempDir, ClientBook) {
    let dir = tempfile::tempdir().unwrap();
    let book = ClientBook::open(dir.path()).unwrap();
    (dir, book)
}

#[test]
fn the_credential_enrols_and_the_key_alone_gets_in_afterwards() {
    let (dir, book) = book();
    let pin = Pin([5; 32]);
    assert!(!book.knows(pin));
    let (newcomer, rights) = book.authorise(pin, &book.credential()[..], || "n".into()).unwrap();
    assert!(newcomer.may_write && book.knows(pin));
    let all = Rights { reader: Some(pin), ..ALL };
    assert_eq!((&rights, newcomer.ticket.as_ref()), (&all, None));
    let again = ClientBook::open(dir.path()).unwrap();
    assert_eq!(again.authorise(pin, b"", || unreachable!()).unwrap(), (newcomer, all));
    assert_eq!(again.credential(), book.credential());
    for file in [dir.path().join("credential"), book.path(pin)] {
        assert_eq!(std::fs::metadata(file).unwrap().mode() & 0o7777, 0o600);
    }
    std::fs::remove_file(book.path(pin)).unwrap();
    assert!(again.authorise(pin, b"", || unreachable!()).is_err());
}

#[test]
fn wrong_and_missing_credentials_get_one_answer() {
    let (_dir, book) = book();
    let mut nearly = book.credential();
    nearly[31] ^= 1;
    let mut longer = book.credential().to_vec();
    longer.push(0);
    let answers: Vec<_> = [&b""[..], b"x", &nearly[..], &longer, &[0; 4000]]
        .map(|credential| book.authorise(Pin([1; 32]), credential, || unreachable!()).unwrap_err())
        .to_vec();
    assert!(answers.iter().all(|a| *a == answers[0] && a.code == CloseCode::Authentication));
    assert!(!book.knows(Pin([1; 32])));
}

#[test]
fn a_full_book_takes_nobody_but_those_it_knows() {
    let (_dir, book) = book();
    book.authorise(Pin([1; 32]), &book.credential()[..], || "n".into()).unwrap();
    *book.census.lock().unwrap() = Census::full_at(Instant::now());
    let refused = book.authorise(Pin([2; 32]), &book.credential()[..], || "n".into()).unwrap_err();
    assert_eq!(refused.code, CloseCode::Busy);
    assert!(book.authorise(Pin([1; 32]), b"", || unreachable!()).is_ok());
}

#[test]
fn a_mark_keeps_a_client_out_whatever_became_of_its_file() {
    let (dir, book) = book();
    let (ticket, credential) = LimitedBook::new(dir.path()).create(limits()).unwrap();
    let pin = Pin([1; 32]);
    book.authorise(pin, &credential, || "n".into()).unwrap();
    RemovedClients::new(dir.path()).mark(pin, &[ticket.id]).unwrap();
    // Its file is still there: as an interrupted revocation leaves it.
    assert!(book.authorise(pin, b"", || unreachable!()).is_err());
    book.remove(pin);
    let refused = book.authorise(pin, &credential, || "n".into()).unwrap_err();
    assert!(refused.text.contains("revoked here") && !book.knows(pin), "{refused}");
    book.authorise(Pin([2; 32]), &credential, || "n".into()).unwrap();
}

#[test]
fn one_ticket_enrols_a_bounded_number_of_clients() {
    let (dir, book) = book();
    let (ticket, credential) = LimitedBook::new(dir.path()).create(limits()).unwrap();
    let living = |ticket: &str| {
        for n in 0..CLIENTS_OF_TICKET_MAX as u32 {
            let mut pin = [9; 32];
            pin[..4].copy_from_slice(&n.to_be_bytes());
            let text = format!("pin = \"{0}\"\nname = \"n\"\nenrolled = \"e\"\nmay_write = true\n{ticket}", Pin(pin));
            std::fs::write(book.path(Pin(pin)), text).unwrap();
        }
    };
    living(&format!("ticket = \"{}\"\n", ticket.id));
    let refused = book.authorise(Pin([1; 32]), &credential, || "n".into()).unwrap_err();
    assert_eq!(refused.code, CloseCode::Authentication);
    assert!(refused.text.contains("1024 clients are enrolled with ticket"), "{refused}");
    book.authorise(Pin([1; 32]), &book.credential()[..], || "n".into()).unwrap();
    // The ticket of the endpoint itself is bounded too.
    living("");
    *book.census.lock().unwrap() = Census::default();
    assert!(book.authorise(Pin([2; 32]), &book.credential()[..], || "n".into()).is_err());
    book.authorise(Pin([2; 32]), &credential, || "n".into()).unwrap();
}

#[test]
fn a_file_that_is_not_understood_lets_nobody_in() {
    let (_dir, book) = book();
    let pin = Pin([1; 32]);
    book.authorise(pin, &book.credential()[..], || "n".into()).unwrap();
    let text = std::fs::read_to_string(book.path(pin)).unwrap();
    for change in [format!("{text}quota = 7\n"), text.replace("0101", "0202"), String::new()] {
        std::fs::write(book.path(pin), change).unwrap();
        let refused = book.authorise(pin, &book.credential()[..], || unreachable!()).unwrap_err();
        assert_eq!(refused.code, CloseCode::Internal);
    }
    std::fs::write(book.path(pin), text.replace("may_write = true", "may_write = false")).unwrap();
    assert!(!book.authorise(pin, b"", || unreachable!()).unwrap().1.may_write);
}

#[test]
fn a_damaged_credential_is_an_error_and_kept() {
    let (dir, _book) = book();
    std::fs::write(dir.path().join("credential"), b"short").unwrap();
    let error = ClientBook::open(dir.path()).err().unwrap();
    assert!(error.hint.is_some(), "{error}");
    assert_eq!(std::fs::read(dir.path().join("credential")).unwrap(), b"short");
}

#[test]
fn a_client_of_a_limited_ticket_may_what_the_ticket_says_now() {
    let (dir, book) = book();
    let tickets = LimitedBook::new(dir.path());
    let scope = scope_of(b"in/box").unwrap();
    let (ticket, credential) =
        tickets.create(Limits { scope: scope.clone(), may_read: false, uses_max: Some(1), ..limits() }).unwrap();
    let pin = Pin([1; 32]);
    let (enrolment, rights) = book.authorise(pin, &credential, || "n".into()).unwrap();
    assert_eq!(enrolment.ticket, Some(ticket.id.clone()));
    let expected = Rights {
        may_read: false,
        may_write: true,
        is_drop_box: true,
        reader: None,
        scope,
        class_max: Class::High,
        may_manage: false,
    };
    assert_eq!((&rights, &book.rights(pin).unwrap()), (&expected, &expected));
    // The same client again is no further use; another client is.
    book.authorise(pin, &credential, || unreachable!()).unwrap();
    let refused = book.authorise(Pin([2; 32]), &credential, || "n".into()).unwrap_err();
    assert!(refused.text.contains("as often as it may be"), "{refused}");
    assert!(!book.knows(Pin([2; 32])));
    tickets.revoke(&ticket.id).unwrap();
    let refused = book.rights(pin).unwrap_err();
    assert_eq!(refused.code, CloseCode::Authentication);
    assert!(refused.text.contains("was revoked"), "{refused}");
    assert_eq!(book.authorise(pin, b"", || unreachable!()).unwrap_err(), refused);
    assert_eq!(book.authorise(pin, &credential, || unreachable!()).unwrap_err(), refused);
}

#[test]
fn a_new_ticket_renews_a_limited_client_and_narrows_no_other() {
    let (dir, book) = book();
    let tickets = LimitedBook::new(dir.path());
    let over = Some(SystemTime::now() - Duration::from_secs(1));
    let (_, expired) = tickets.create(Limits { expires: over, ..limits() }).unwrap();
    let (old, first) = tickets.create(Limits { may_write: false, ..limits() }).unwrap();
    let (new, second) = tickets.create(Limits { scope: scope_of(b"x").unwrap(), ..limits() }).unwrap();
    let pin = Pin([1; 32]);
    let refused = book.authorise(pin, &expired, || "n".into()).unwrap_err();
    assert!(refused.text.contains("expired at ") && !book.knows(pin), "{refused}");
    let by = |credential: &[u8]| book.authorise(pin, credential, || "n".into()).unwrap().0.ticket;
    assert_eq!(by(&first), Some(old.id.clone()));
    assert_eq!(by(&expired), Some(old.id.clone()), "a ticket that does not hold changes nothing");
    assert_eq!(by(&second), Some(new.id.clone()));
    assert_eq!(by(b""), Some(new.id));
    assert_eq!(by(&book.credential()[..]), None);
    assert_eq!(by(&first), None, "rights without limit stay");
    assert_eq!(list(dir.path()).unwrap().len(), 1);
    assert!(remove(dir.path(), &pin.to_string()).unwrap() && !book.knows(pin));
}

/// Of everything that such a ticket says, it gains what it came for alone.
#[test]
fn a_ticket_to_manage_with_takes_nothing_from_a_client_without_limits() {
    let (dir, book) = book();
    let narrow = Limits { scope: scope_of(b"x").unwrap(), may_write: false, class_max: Class::Low, ..limits() };
    let managing = LimitedBook::new(dir.path()).create(Limits { may_manage: true, ..narrow }).unwrap();
    let (ticket, credential) = managing;
    let pin = Pin([1; 32]);
    book.authorise(pin, &book.credential()[..], || "n".into()).unwrap();
    let all = Rights { reader: Some(pin), ..ALL };
    let manages = Rights { may_manage: true, ..all.clone() };
    let rights = |credential: &[u8]| {
        // Also after a restart.
        let again = ClientBook::open(dir.path()).unwrap();
        again.authorise(pin, credential, || unreachable!()).unwrap().1
    };
    for credential in [&credential[..], b"", &book.credential()[..], &credential[..]] {
        assert_eq!((rights(credential), book.rights(pin).unwrap()), (manages.clone(), manages.clone()));
    }
    assert_eq!(book.account(pin).unwrap(), SERVE_TICKET);
    // It does not live by it.
    assert_eq!(Issue::new(dir.path()).revoke(&ticket.id).unwrap(), 0);
    assert_eq!((rights(b""), book.rights(pin).unwrap()), (all.clone(), all));
    let text = std::fs::read_to_string(book.path(pin)).unwrap();
    std::fs::write(book.path(pin), text.replace(&ticket.id, "../x")).unwrap();
    assert_eq!(book.rights(pin).unwrap_err().code, CloseCode::Internal);
}

/// As hosts that share a coordinator hand them out.
#[test]
fn a_narrower_ticket_takes_nothing_from_a_client_whose_ticket_has_no_limits() {
    let (dir, book) = book();
    let tickets = LimitedBook::new(dir.path());
    let narrow = Limits { scope: scope_of(b"x").unwrap(), may_write: false, ..limits() };
    let (wide, first) = tickets.create(limits()).unwrap();
    let (narrower, second) = tickets.create(narrow.clone()).unwrap();
    let (_, managing) = tickets.create(Limits { may_manage: true, ..narrow }).unwrap();
    let (other, third) = tickets.create(limits()).unwrap();
    let pin = Pin([1; 32]);
    let by = |credential: &[u8]| book.authorise(pin, credential, || "n".into()).unwrap();
    for (credential, ticket, may_manage) in
        [(first, &wide, false), (second, &wide, false), (managing, &wide, true), (third, &other, true)]
    {
        let (enrolment, rights) = by(&credential);
        assert_eq!(enrolment.ticket.as_ref(), Some(&ticket.id));
        assert_eq!((&rights, &book.rights(pin).unwrap()), (&Rights { reader: Some(pin), may_manage, ..ALL }, &rights));
    }
    // One that holds no more has nothing that could be taken away.
    tickets.revoke(&other.id).unwrap();
    let (enrolment, rights) = by(&second);
    assert_eq!((enrolment.ticket, rights.may_write), (Some(narrower.id), false));
}

#[test]
fn a_ticket_that_cannot_be_read_now_leaves_whoever_lives_by_it_what_they_have() {
    let (dir, book) = book();
    let tickets = LimitedBook::new(dir.path());
    let (wide, first) = tickets.create(limits()).unwrap();
    let (_, narrow) = tickets.create(Limits { may_write: false, ..limits() }).unwrap();
    let pin = Pin([1; 32]);
    book.authorise(pin, &first, || "n".into()).unwrap();
    let path = dir.path().join(format!("tickets/{}.toml", wide.id));
    let text = std::fs::read(&path).unwrap();
    std::fs::write(&path, b"").unwrap();
    assert_eq!(book.authorise(pin, &narrow, || unreachable!()).unwrap_err().code, CloseCode::Internal);
    std::fs::write(&path, text).unwrap();
    assert_eq!(book.authorise(pin, b"", || unreachable!()).unwrap().0.ticket, Some(wide.id));
}

#[test]
fn a_client_without_limits_that_brings_the_token_of_a_host_is_that_host() {
    let (dir, book) = book();
    Announcement { name: "far".into(), addresses: vec!["192.0.2.1:7740".into()] }.write(dir.path()).unwrap();
    let hosts = HostBook::new(dir.path());
    hosts.init().unwrap();
    let (_, wide) = LimitedBook::new(dir.path()).create(limits()).unwrap();
    for (pin, name, first) in [(1, "h1", book.credential().to_vec()), (2, "h2", wide.to_vec())] {
        let (pin, token) = (Pin([pin; 32]), hosts.invite(name).unwrap());
        book.authorise(pin, &first, || "n".into()).unwrap();
        let (enrolment, _) = book.authorise(pin, &token.credential[..], || unreachable!()).unwrap();
        assert_eq!(hosts.of_ticket(&enrolment.ticket.unwrap()).unwrap().unwrap().name, name);
    }
}

#[test]
fn a_ticket_that_was_closed_lets_in_nobody_new() {
    let (dir, book) = book();
    let tickets = LimitedBook::new(dir.path());
    let (ticket, credential) = tickets.create(limits()).unwrap();
    book.authorise(Pin([1; 32]), &credential, || "n".into()).unwrap();
    tickets.close(&ticket.id).unwrap();
    for credential in [&b""[..], &credential] {
        book.authorise(Pin([1; 32]), credential, || unreachable!()).unwrap();
    }
    let refused = book.authorise(Pin([2; 32]), &credential, || "n".into()).unwrap_err();
    assert_eq!((refused.code, book.knows(Pin([2; 32]))), (CloseCode::Authentication, false));
}

/// Nobody who could vouch for clients answers.
struct Silent;

impl Surety for Silent {
    fn vouch(&self, _: Pin) -> Refused<Option<Vouched>> {
        Err(Refusal::new(CloseCode::Internal, "nobody answers"))
    }

    fn knows(&self, _: Pin) -> Option<Vouched> {
        None
    }
}

#[test]
fn a_client_for_whom_nobody_can_vouch_now_is_told_that_and_not_that_it_is_none() {
    let (_dir, book) = book();
    book.rely_on(Arc::new(Silent));
    let pin = Pin([1; 32]);
    let codes = [
        book.authorise(pin, b"", || unreachable!()).unwrap_err().code,
        book.rights(pin).unwrap_err().code,
        book.authorise(pin, b"wrong", || unreachable!()).unwrap_err().code,
    ];
    assert_eq!(codes, [CloseCode::Internal, CloseCode::Internal, CloseCode::Authentication]);
}

#[test]
fn a_credential_whose_file_was_taken_away_enrols_nobody() {
    let (dir, book) = book();
    book.authorise(Pin([1; 32]), &book.credential()[..], || "n".into()).unwrap();
    std::fs::remove_file(dir.path().join("credential")).unwrap();
    assert!(book.authorise(Pin([2; 32]), &book.credential()[..], || unreachable!()).is_err());
    book.authorise(Pin([1; 32]), b"", || unreachable!()).unwrap();
}
