//! Questions about files from clients that break the rules or go away, against a real endpoint.

use daemon::limited::Limits;
use daemon::{Issue, ServeOptions, Served, Ticket, transfer_log};
use model::SessionId;
use model::files::{ALL_LEVELS, Doomed, Question};
use net::{DataStream, DialOptions, Identity};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use wire::files::ask_of;
use wire::frame::{FrameHeader, HEADER_BYTES};
use wire::handshake::feature;
use wire::limits::{ASKS_MAX, BATCHES_AHEAD, RECORDS_MAX};
use wire::message::{self, Answered, Ask, Hello, Proceed, Stop};
use wire::{CloseCode, Message};

const PATIENCE: Duration = Duration::from_secs(30);

struct Place {
    dir: TempDir,
    served: Served,
}

struct Session {
    control: DataStream,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        let mut options = ServeOptions::new("127.0.0.1:0", dir.path().join("root"), dir.path().join("state"));
        options.name = Some("lab".into());
        let served = Served::start(options).unwrap();
        Place { dir, served }
    }

    fn write(&self, path: &str) {
        let path = self.dir.path().join("root").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"x").unwrap();
    }

    fn session(&self, features: u64) -> Session {
        self.session_by(features, &self.served.ticket())
    }

    fn session_by(&self, features: u64, ticket: &Ticket) -> Session {
        let identity = Identity::generate().unwrap();
        let dial = DialOptions::new(&identity, self.served.pin()).unwrap();
        let mut control = net::dial(&self.served.local_addr().to_string(), &dial).unwrap().into_data();
        control.set_deadline(Some(Instant::now() + PATIENCE));
        let session = SessionId(net::random_bytes()).0.to_vec();
        let credential = ticket.credential.to_vec();
        let hello = Hello { version_min: 1, version_max: 1, features, session, credential, ..Hello::default() };
        control.send(&[&message::encode(hello)]).unwrap();
        let mut session = Session { control };
        assert!(matches!(session.hear(), Some(Message::Welcome(_))));
        session
    }
}

impl Session {
    fn say(&mut self, message: impl Into<Message>) {
        self.control.send(&[&message::encode(message)]).unwrap();
    }

    /// `None` at the end of the session.
    fn hear(&mut self) -> Option<Message> {
        let mut head = [0; HEADER_BYTES];
        self.control.recv_exact(&mut head).ok()?;
        let mut body = vec![0; FrameHeader::decode(&head).unwrap().body_bytes as usize];
        self.control.recv_exact(&mut body).ok()?;
        message::decode(&body).unwrap()
    }

    /// The next end of an answer, and how many records of it came before.
    fn answered(&mut self) -> (Answered, usize) {
        let mut records = 0;
        loop {
            match self.hear().expect("the session goes on") {
                Message::Records(batch) => {
                    assert!(batch.records.len() <= RECORDS_MAX);
                    records += batch.records.len();
                }
                Message::Answered(answered) => return (answered, records),
                _ => {}
            }
        }
    }

    fn code(&mut self, ask: Ask) -> CloseCode {
        self.say(ask);
        CloseCode::from_number(self.answered().0.code)
    }
}

fn list(number: u32, path: &[u8]) -> Ask {
    ask_of(number, &Question::List { paths: vec![path.to_vec()], levels: ALL_LEVELS, digest: None })
}

#[test]
fn hostile_paths_and_malformed_questions_are_refused_and_the_session_goes_on() {
    let place = Place::new();
    place.write("kept/f");
    fs::write(place.dir.path().join("outside"), b"outside").unwrap();
    let mut session = place.session(feature::ALL);
    for path in [&b".."[..], b"a/../..", b"/etc", b"a\0b", &[b'x'; 256], b".thalweg-staging-0", b"null:", b"gen:1x1"] {
        assert_eq!(session.code(list(1, path)), CloseCode::Forbidden, "{path:?}");
        let objects = vec![Doomed { path: path.to_vec(), version: None }];
        let removal = Question::Remove { objects, is_recursive: true, may_be_directory: true };
        assert_eq!(session.code(ask_of(1, &removal)), CloseCode::Forbidden, "{path:?}");
        let rename = Question::Rename { from: b"kept".to_vec(), to: path.to_vec(), may_replace: true };
        assert_eq!(session.code(ask_of(1, &rename)), CloseCode::Forbidden, "{path:?}");
    }
    assert_eq!(session.code(list(1, &[b'x'; 5000])), CloseCode::Malformed);
    assert_eq!(session.code(Ask { number: 1, ..Ask::default() }), CloseCode::Malformed);
    assert_eq!(session.code(Ask { action: 77, ..list(1, b"kept") }), CloseCode::Malformed);
    session.say(list(1, b""));
    let (answered, records) = session.answered();
    assert_eq!((answered.code, answered.files, records), (0, 1, 3));
    assert!(place.dir.path().join("outside").exists());
}

#[test]
fn a_session_without_the_feature_is_not_answered() {
    let place = Place::new();
    let mut session = place.session(feature::ALL & !feature::FILES);
    assert_eq!(session.code(list(1, b"")), CloseCode::Version);
}

#[test]
fn an_answer_waits_for_its_client_and_ends_when_it_is_stopped() {
    let place = Place::new();
    let more_than_ahead = BATCHES_AHEAD as usize * RECORDS_MAX + 5000;
    let directory = place.dir.path().join("root/many");
    fs::create_dir(&directory).unwrap();
    // Names of one file take no room.
    fs::write(directory.join("0"), b"").unwrap();
    for i in 1..more_than_ahead {
        fs::hard_link(directory.join("0"), directory.join(i.to_string())).unwrap();
    }
    let mut session = place.session(feature::ALL);
    session.say(list(1, b"many"));
    let mut batches = 0;
    while batches < BATCHES_AHEAD {
        batches += u64::from(matches!(session.hear(), Some(Message::Records(_))));
    }
    // Nothing more comes of it, and others are answered meanwhile.
    for number in 2..10 {
        session.say(list(number, b"many/0"));
        assert_eq!(session.answered().1, 1);
    }
    session.say(Proceed { number: 1, batches: BATCHES_AHEAD + 1 });
    assert!(matches!(session.hear(), Some(Message::Records(_))));
    session.say(Stop { number: 1 });
    let (answered, _) = session.answered();
    assert_eq!((answered.number, answered.code), (1, 0));
    assert!((answered.files as usize) < more_than_ahead);
}

#[test]
fn questions_of_one_session_and_of_one_peer_are_bounded_and_end_with_the_session() {
    let place = Place::new();
    let directory = place.dir.path().join("root/many");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("0"), b"").unwrap();
    for i in 1..(BATCHES_AHEAD as usize + 20) * RECORDS_MAX {
        fs::hard_link(directory.join("0"), directory.join(i.to_string())).unwrap();
    }
    let mut session = place.session(feature::ALL);
    for number in 0..ASKS_MAX as u32 {
        session.say(list(number, b"many"));
    }
    session.say(list(99, b"many"));
    let (answered, _) = session.answered();
    assert_eq!((answered.number, CloseCode::from_number(answered.code)), (99, CloseCode::Limit));
    drop(session);
    // What nobody waits for any more is given up: an endpoint with nothing to do stops at once.
    assert!(place.served.shut_down(PATIENCE));
}

/// The transfer log's lines, and how many bytes they take.
fn log_of(dir: &Path) -> (Vec<serde_json::Value>, usize) {
    let text = fs::read_to_string(dir.join("state/transfers.jsonl")).unwrap();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), text.len())
}

#[test]
fn refused_changes_grow_the_log_by_a_bounded_number_of_bytes_and_none_is_uncounted() {
    const ASKED: u64 = 10_000;
    let place = Place::new();
    // What somebody else did is there afterwards.
    let made = Question::Make { paths: vec![b"kept".to_vec()], with_parents: false };
    assert_eq!(place.session(feature::ALL).code(ask_of(1, &made)), CloseCode::Done);
    let limits = Limits {
        scope: Vec::new(),
        may_read: true,
        may_write: false,
        expires: None,
        uses_max: None,
        class_max: model::Class::High,
        may_manage: false,
    };
    let (_, ticket) = Issue::new(place.dir.path().join("state")).create(limits).unwrap();
    let mut reader = place.session_by(feature::ALL, &ticket);
    let refused = Question::Make { paths: vec![vec![b'x'; 200]], with_parents: false };
    let began = Instant::now();
    let (before, bytes_before) = log_of(place.dir.path());
    for _ in 0..ASKED {
        assert_eq!(reader.code(ask_of(1, &refused)), CloseCode::Forbidden);
    }
    let minutes = 1 + began.elapsed().as_secs() / 60;
    place.served.shut_down(PATIENCE);
    let (after, bytes_after) = log_of(place.dir.path());
    assert_eq!(after[..before.len()], before[..]);
    assert!(before.iter().any(|line| line["first"] == "kept" && line["directories"] == 1));
    let grown = (bytes_after - bytes_before) as u64;
    // Five lines, and one with the number of the others, for each minute that this took.
    assert!(grown < minutes * 6 * 1000, "{ASKED} refused changes made {grown} bytes");
    let told = after[before.len()..].iter();
    let counted: u64 = told.map(|line| line["lines"].as_u64().unwrap_or(1)).sum();
    assert_eq!(counted, ASKED);
    let found = transfer_log::verify(&place.dir.path().join("state/transfers.jsonl")).unwrap();
    assert_eq!(found.lines as usize, after.len());
}
