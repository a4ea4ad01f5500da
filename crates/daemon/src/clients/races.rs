//! Enrolments in flight while their credential ends: at each step, in each way, with and without a crash of the endpoint.

use super::*;
use crate::enrolment::{BY_CREDENTIAL, remove_if};
use crate::issue::Issue;
use crate::limited::Limits;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub(super) type Hook = Box<dyn Fn(Step) + Send>;

const PIN: Pin = Pin([7; 32]);

struct Place {
    dir: tempfile::TempDir,
    book: ClientBook,
}

/// How a credential ends.
type End = fn(&Path, &str);

fn revoke(state: &Path, id: &str) {
    Issue::new(state).revoke(id).unwrap();
}

fn expire(state: &Path, id: &str) {
    let path = state.join(format!("tickets/{id}.toml"));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, format!("{text}expires_unix_seconds = 1\n")).unwrap();
}

fn close(state: &Path, id: &str) {
    LimitedBook::new(state).close(id).unwrap();
}

fn take_away(state: &Path, _: &str) {
    std::fs::remove_file(state.join("credential")).unwrap();
}

fn rotate(state: &Path, id: &str) {
    take_away(state, id);
    ClientBook::open(state).unwrap();
}

fn revoke_and_restart(state: &Path, id: &str) {
    revoke(state, id);
    ClientBook::open(state).unwrap();
}

/// As `ticket revoke serve` leaves it when it is killed after its first step.
fn only_mark(state: &Path, _: &str) {
    let credential = std::fs::read(state.join("credential")).unwrap();
    RevokedBook::new(state).mark(&id_of_credential(&credential)).unwrap();
}

fn remove_client(state: &Path, _: &str) {
    Issue::new(state).revoke(&PIN.to_string()).unwrap();
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let book = ClientBook::open(dir.path()).unwrap();
        Place { dir, book }
    }

    fn ticket(&self) -> (String, Zeroizing<[u8; 32]>) {
        let limits = Limits {
            scope: Vec::new(),
            may_read: true,
            may_write: true,
            expires: None,
            uses_max: None,
            class_max: model::Class::High,
            may_manage: false,
        };
        let (ticket, credential) = LimitedBook::new(self.dir.path()).create(limits).unwrap();
        (ticket.id, credential.into())
    }

    /// Has something happen when an enrolment comes to a step, once.
    fn at(&self, step: Step, act: impl Fn(&Path) + Send + 'static) {
        let state = self.dir.path().to_owned();
        let done = Arc::new(Mutex::new(false));
        *self.book.hook.lock().unwrap() = Some(Box::new(move |reached| {
            if reached == step && !std::mem::replace(&mut *done.lock().unwrap(), true) {
                act(&state);
            }
        }));
    }

    fn enrol(&self, credential: &[u8]) -> Refused<(Enrolment, Rights)> {
        self.book.authorise(PIN, credential, || "n".into())
    }

    /// Nobody is in, now and after a restart, with the credential or without.
    #[track_caller]
    fn is_shut(&self, what: &str, credential: &[u8]) {
        let restarted = ClientBook::open(self.dir.path()).unwrap();
        for book in [&self.book, &restarted] {
            assert!(book.rights(PIN).is_err(), "{what}: rights are left");
            for credential in [b"", credential] {
                assert!(book.authorise(PIN, credential, || "n".into()).is_err(), "{what}: a session opens");
            }
        }
    }
}

const LIMITED: [(&str, End); 3] = [("revoked", revoke), ("expired", expire), ("closed", close)];
const UNLIMITED: [(&str, End); 5] = [
    ("serve revoked", |state, _| revoke(state, SERVE_TICKET)),
    ("serve revoked, restarted", |state, _| revoke_and_restart(state, SERVE_TICKET)),
    ("marked only", only_mark),
    ("taken away", take_away),
    ("rotated", rotate),
];

#[test]
fn an_enrolment_in_flight_ends_with_its_credential_at_each_step() {
    for step in [Step::Admitted, Step::Written] {
        for (what, end, is_limited) in LIMITED
            .map(|(what, end)| (what, end, true))
            .into_iter()
            .chain(UNLIMITED.map(|(what, end)| (what, end, false)))
        {
            let place = Place::new();
            let (id, credential) = if is_limited { place.ticket() } else { (String::new(), place.book.credential()) };
            place.at(step, move |state| end(state, &id));
            assert!(place.enrol(&credential[..]).is_err(), "{what} at {step:?}");
            assert!(!place.book.knows(PIN), "{what} at {step:?}: the client stayed");
            place.is_shut(what, &credential[..]);
        }
    }
}

#[test]
fn a_client_removed_while_it_is_written_is_not_there_afterwards() {
    for is_limited in [true, false] {
        let place = Place::new();
        let credential = if is_limited { place.ticket().1 } else { place.book.credential() };
        place.at(Step::Written, |state| remove_client(state, ""));
        assert!(place.enrol(&credential[..]).is_err());
        assert!(!place.book.knows(PIN));
        place.is_shut("removed", &credential[..]);
    }
}

/// The endpoint dies between writing a client down and looking again: the file stays, and lets nobody in.
#[test]
fn what_a_crash_leaves_of_an_enrolment_has_no_rights_once_its_credential_has_ended() {
    let all: [(&str, End, bool); 6] = [
        ("revoked", revoke, true),
        ("expired", expire, true),
        ("serve revoked", |state, _| only_mark(state, ""), false),
        (
            "serve revoked, restarted",
            |state, _| {
                only_mark(state, "");
                take_away(state, "")
            },
            false,
        ),
        ("removed", |state, _| mark_removed(state), true),
        ("removed, unlimited", |state, _| mark_removed(state), false),
    ];
    for (what, end, is_limited) in all {
        let place = Place::new();
        let (id, credential) = if is_limited { place.ticket() } else { (String::new(), place.book.credential()) };
        place.at(Step::Written, move |state| {
            end(state, &id);
            panic!("the endpoint is killed");
        });
        assert!(catch_unwind(AssertUnwindSafe(|| place.enrol(&credential[..]))).is_err());
        *place.book.hook.lock().unwrap_or_else(PoisonError::into_inner) = None;
        place.book.hook.clear_poison();
        place.is_shut(what, &credential[..]);
    }
}

/// The first half of removing them; the second finds nothing, because the client is not written yet.
fn mark_removed(state: &Path) {
    let mut tickets = LimitedBook::new(state).ids().unwrap();
    tickets.push(id_of_credential(&std::fs::read(state.join("credential")).unwrap()));
    RemovedClients::new(state).mark(PIN, &tickets).unwrap();
}

#[test]
fn a_renewal_in_flight_leaves_the_client_with_what_still_holds() {
    for step in [Step::Admitted, Step::Written] {
        for (old_ends, new_ends) in [(true, false), (false, true), (true, true), (false, false)] {
            let place = Place::new();
            let [(old, first), (new, second)] = [place.ticket(), place.ticket()];
            place.enrol(&first[..]).unwrap();
            let (of_old, of_new) = (old.clone(), new.clone());
            place.at(step, move |state| {
                // Both orders: the file names the one or the other at this moment.
                if new_ends {
                    revoke(state, &of_new);
                }
                if old_ends {
                    revoke(state, &of_old);
                }
            });
            let ticket = place.enrol(&second[..]).map(|(client, _)| client.ticket.unwrap()).ok();
            // A revocation removes whom it finds under its ticket; the renewal comes with a ticket that holds.
            let expected = match (old_ends, new_ends) {
                (_, false) => Some(new.clone()),
                (false, true) if step == Step::Admitted => Some(old.clone()),
                (false, true) => Some(old.clone()),
                (true, true) => None,
            };
            assert_eq!(ticket, expected, "{step:?}: old ends {old_ends}, new ends {new_ends}");
            assert_eq!(place.book.rights(PIN).is_ok(), expected.is_some());
            for (id, credential) in [(old, first), (new, second)] {
                if expected.as_deref() != Some(&id) && (old_ends && new_ends) {
                    place.is_shut("both ended", &credential[..]);
                }
            }
        }
    }
}

#[test]
fn whom_an_older_release_wrote_down_stays_until_the_first_revocation() {
    let place = Place::new();
    let credential = place.book.credential();
    place.enrol(&credential[..]).unwrap();
    let path = place.book.path(PIN);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with(&format!("{BY_CREDENTIAL}{}\n", id_of_credential(&credential[..]))), "{text}");
    // The older release reads the new file: to it the line is a comment, and it knows every key.
    let keys: toml::Table = toml::from_str(&text).unwrap();
    assert_eq!(keys.keys().collect::<Vec<_>>(), ["enrolled", "may_write", "name", "pin"]);
    let older = text.split_once('\n').unwrap().1;
    std::fs::write(&path, older).unwrap();
    assert!(place.book.rights(PIN).is_ok());
    revoke(place.dir.path(), SERVE_TICKET);
    assert!(!place.book.knows(PIN));
    std::fs::write(&path, older).unwrap();
    place.is_shut("unnamed", &credential[..]);
    // The ticket that the endpoint makes next lets it in again, and is not touched by a second look at the first one.
    let next = ClientBook::open(place.dir.path()).unwrap();
    next.authorise(PIN, &next.credential()[..], || "n".into()).unwrap();
    assert!(next.rights(PIN).is_ok() && next.authorise(PIN, b"", || unreachable!()).is_ok());
    std::fs::write(&path, text.replace(&text[..BY_CREDENTIAL.len() + 4], "# by the credential ../x")).unwrap();
    assert_eq!(place.book.rights(PIN).unwrap_err().code, CloseCode::Internal);
}

#[test]
fn a_client_that_changed_its_ticket_since_it_was_listed_is_not_removed() {
    let place = Place::new();
    let [(old, first), (new, second)] = [place.ticket(), place.ticket()];
    place.enrol(&first[..]).unwrap();
    let [by_old, by_new] =
        [old, new.clone()].map(|id| move |client: &Enrolment| Ok(client.ticket.as_ref() == Some(&id)));
    place.enrol(&second[..]).unwrap();
    let pin = PIN.to_string();
    assert!(!remove_if(place.dir.path(), &pin, &by_old).unwrap());
    assert_eq!(place.enrol(b"").unwrap().0.ticket, Some(new));
    assert!(remove_if(place.dir.path(), &pin, &by_new).unwrap() && !place.book.knows(PIN));
    assert!(!remove_if(place.dir.path(), &pin, &by_new).unwrap());
    assert_eq!(std::fs::read_dir(place.dir.path().join("clients")).unwrap().count(), 0);
}

#[test]
fn a_revocation_removes_nobody_whom_the_next_credential_let_in() {
    let place = Place::new();
    place.enrol(&place.book.credential()[..]).unwrap();
    only_mark(place.dir.path(), "");
    // The endpoint starts again before the revocation goes on.
    let next = ClientBook::open(place.dir.path()).unwrap();
    assert_ne!(next.credential(), place.book.credential());
    next.authorise(Pin([8; 32]), &next.credential()[..], || "n".into()).unwrap();
    let listed = Issue::new(place.dir.path()).clients().unwrap();
    let revoked = RevokedBook::new(place.dir.path());
    let out: Vec<_> = listed.iter().filter(|client| revoked.holds(client.credential.as_deref()).unwrap()).collect();
    assert_eq!(out.iter().map(|client| &client.pin[..]).collect::<Vec<_>>(), [PIN.to_string()]);
    assert!(place.book.rights(PIN).is_err() && next.rights(Pin([8; 32])).is_ok());
}
