//! Reviews of rights while sessions are open: what a host that cannot tell, refuses or panics does to them, and to others.

use crate::endpoint::{OpenHost, client, serve};
use model::{JobId, Pin, TransferOptions};
use mover::session::{Client, ClientOptions, Direct, Grant, Host, HostFacts, Opened, Server, Tuning};
use mover::{Ending, Memory, Progress};
use net::{DialOptions, Identity};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wire::handshake::Direction;
use wire::message::Open;
use wire::{CloseCode, Refusal};

#[derive(Clone, Copy)]
enum Says {
    Yes,
    Unknown,
    No,
    Panic,
}

/// Answers for one client what it was told to, one after the other, then the last of it; for all others yes.
struct Scripted {
    open: OpenHost,
    about: Mutex<Option<Pin>>,
    answers: Mutex<VecDeque<Says>>,
}

impl Host for Scripted {
    fn facts(&self) -> HostFacts {
        self.open.facts()
    }

    fn authorise(&self, pin: Pin, credential: &[u8]) -> Result<Grant, Refusal> {
        self.about.lock().unwrap().get_or_insert(pin);
        self.open.authorise(pin, credential)
    }

    fn open(
        &self,
        grant: &Grant,
        job: JobId,
        direction: Direction,
        open: &Open,
        options: &TransferOptions,
    ) -> Result<Opened, Refusal> {
        self.open.open(grant, job, direction, open, options)
    }

    fn may_go_on(&self, grant: &Grant, _: Option<(Direction, &[Vec<u8>])>) -> Result<(), Refusal> {
        if *self.about.lock().unwrap() != Some(grant.pin) {
            return Ok(());
        }
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let says = if answers.len() > 1 { answers.pop_front() } else { answers.front().copied() };
        match says.unwrap_or(Says::Yes) {
            Says::Yes => Ok(()),
            Says::Unknown => Err(Refusal::new(CloseCode::Internal, "files cannot be read")),
            Says::No => Err(Refusal::new(CloseCode::Authentication, "revoked")),
            Says::Panic => panic!("injected: a review panics, with a lock in its hand"),
        }
    }

    fn ended(&self, _: &Grant, _: JobId, _: Direction, _: &Progress, _: &Ending) {}
}

/// A server, the session of the client that the answers are about, and that of another one.
fn scripted(answers: &[Says]) -> (tempfile::TempDir, Arc<Server>, Client, Client) {
    let dir = tempfile::tempdir().unwrap();
    let open = OpenHost { root: dir.path().to_owned() };
    let answers = Mutex::new(answers.iter().copied().collect());
    let host = Scripted { open, about: Mutex::default(), answers };
    let server = Server::new(Arc::new(host), Memory::default());
    let place = serve(server.clone());
    let judged = client(&place, Some(0));
    judged.welcome().unwrap();
    let options = ClientOptions {
        connector: Arc::new(Direct::new(
            &place.address,
            DialOptions::new(&Identity::generate().unwrap(), place.pin).unwrap(),
        )),
        credential: Vec::new(),
        tuning: Tuning { streams: Some(0), ..Tuning::default() },
        memory: Memory::default(),
    };
    let other = Client::connect(options).map_err(|e| format!("{e:?}")).unwrap();
    other.welcome().unwrap();
    assert_eq!(server.sessions(), 2);
    (dir, server, judged, other)
}

#[track_caller]
fn until_left(server: &Server, sessions: usize) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while server.sessions() != sessions {
        assert!(Instant::now() < deadline, "{} sessions, not {sessions}", server.sessions());
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn a_host_that_cannot_tell_is_believed_a_few_times_only() {
    use Says::{Unknown, Yes};
    let (_dir, server, _judged, other) =
        scripted(&[Unknown, Unknown, Unknown, Yes, Unknown, Unknown, Unknown, Yes, Unknown]);
    for round in 0..11 {
        assert_eq!(server.review(), 0);
        assert_eq!(server.sessions(), 2, "round {round}");
    }
    server.review();
    until_left(&server, 1);
    assert!(other.welcome().is_ok());
}

#[test]
fn a_session_whose_review_panics_is_cut_off_and_the_others_are_reviewed() {
    for answers in [&[Says::Panic][..], &[Says::No]] {
        let (_dir, server, judged, other) = scripted(answers);
        let broken = server.review();
        assert_eq!(broken, usize::from(matches!(answers[0], Says::Panic)));
        until_left(&server, 1);
        assert_eq!(server.review(), 0);
        assert_eq!(server.sessions(), 1);
        drop(judged);
        other.close();
        until_left(&server, 0);
    }
}
