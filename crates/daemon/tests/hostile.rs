//! Strangers and enrolled clients that break every rule of a real endpoint, while an honest client goes on.

use daemon::endpoints::Replace;
use daemon::{ConnectOptions, EndpointBook, ServeOptions, Served, connect, enrol};
use model::{Choice, SessionId, TransferOptions};
use mover::job_options::options_to_wire;
use mover::session::PushSpec;
use mover::{Ending, Progress};
use net::{DataStream, DialOptions, Identity};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use store::posix::PosixSource;
use tempfile::TempDir;
use transfer::job_id;
use wire::frame::{self, FrameHeader, FrameType, HEADER_BYTES};
use wire::handshake::{Direction, EXPORTER_LABEL, Join, feature};
use wire::limits::JOBS_MAX;
use wire::message::{self, Accept, Close, Credit, Entries, EntryRecord, Hello, Open, Ping, Settled, Want, Welcome};
use wire::{CloseCode, Message};

/// Everything that is refused is over by then; the longest an endpoint waits for a peer is 10 s.
const PATIENCE: Duration = Duration::from_secs(30);

struct Place {
    dir: TempDir,
    served: Served,
}

impl Place {
    fn new() -> Place {
        Place::with_memory(mover::limits::MEMORY_BYTES_MAX)
    }

    fn with_memory(memory_bytes: usize) -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        let mut options = ServeOptions::new("127.0.0.1:0", dir.path().join("root"), dir.path().join("state"));
        options.name = Some("lab".into());
        options.memory_bytes = memory_bytes;
        let served = Served::start(options).unwrap();
        Place { dir, served }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn tcp(&self) -> TcpStream {
        let tcp = TcpStream::connect(self.served.local_addr()).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp
    }

    /// A stream of a peer with this identity.
    fn stream(&self, identity: &Identity) -> DataStream {
        let dial = DialOptions::new(identity, self.served.pin()).unwrap();
        let mut stream = net::dial(&self.served.local_addr().to_string(), &dial).unwrap().into_data();
        stream.set_deadline(Some(Instant::now() + PATIENCE));
        stream
    }

    /// An enrolled client's session.
    fn session(&self, identity: &Identity) -> Session {
        let mut control = self.stream(identity);
        let id = SessionId(net::random_bytes());
        control.send(&[&message::encode(self.hello(id))]).unwrap();
        let mut session = Session { control, id };
        let heard = session.hear().expect("an enrolled client is answered");
        assert!(matches!(heard, Message::Welcome(_)), "{heard:?}");
        session
    }

    fn hello(&self, id: SessionId) -> Hello {
        let credential = self.served.ticket().credential.to_vec();
        let session = id.0.to_vec();
        Hello { version_min: 1, version_max: 1, features: feature::ALL, session, credential, ..Hello::default() }
    }

    /// Sends a file as an honest client, and looks at what arrived.
    fn honest(&self, name: &str) {
        let home = self.path(name);
        fs::create_dir(&home).unwrap();
        fs::write(home.join("file"), name.repeat(100_000)).unwrap();
        let identity = Identity::load_or_create(&home.join("key")).unwrap();
        let book = EndpointBook::new(home.join("endpoints"));
        let endpoint = enrol(&self.served.ticket(), "lab", &identity, &book, Replace::SameIdentity).unwrap().endpoint;
        let client = connect(&endpoint, &identity, &ConnectOptions::default()).unwrap();
        let mut source = PosixSource::new();
        source.add_local(home.join("file").as_os_str().as_encoded_bytes()).unwrap();
        let options = TransferOptions::default();
        let id = job_id(identity.pin(), &["file"], name, &Choice::default(), &options);
        let spec = PushSpec { id, path: format!("{name}/").into_bytes(), is_single: true, options };
        let report = client.push(spec, Arc::new(source), Progress::new(), None, &|| false);
        assert!(matches!(report.ending, Ending::Finished(_)), "{name}: {}", report.ending);
        let arrived = fs::read(self.path("root").join(name).join("file")).unwrap();
        assert!(arrived == fs::read(home.join("file")).unwrap());
    }
}

struct Session {
    control: DataStream,
    id: SessionId,
}

impl Session {
    fn say(&mut self, message: impl Into<Message>) {
        // Refused already is as good: what is heard decides.
        let _ = self.control.send(&[&message::encode(message)]);
    }

    /// `None` at the end of the session.
    fn hear(&mut self) -> Option<Message> {
        let mut head = [0; HEADER_BYTES];
        self.control.recv_exact(&mut head).ok()?;
        let mut body = vec![0; FrameHeader::decode(&head).unwrap().body_bytes as usize];
        self.control.recv_exact(&mut body).ok()?;
        message::decode(&body).unwrap()
    }

    /// How the endpoint closes the session; `None` when it just ends.
    fn close_code(&mut self) -> Option<CloseCode> {
        loop {
            if let Message::Close(close) = self.hear()? {
                return Some(CloseCode::from_number(close.code));
            }
        }
    }

    /// A join with a valid proof for `stream`.
    fn join(&self, stream: &DataStream, job: u32) -> Vec<u8> {
        let direction = Direction::ClientSends;
        let mut join = Join { session: self.id, job, stream: 0, direction, proof: [0; 32] };
        let [ours, theirs] = [&self.control, stream].map(|s| s.export(EXPORTER_LABEL, &self.id.0));
        join.proof = net::hmac_sha256(&ours, &[&join.authenticated(), &theirs]);
        join.encode()
    }
}

fn open(job: u32, path: &[u8]) -> Open {
    Open {
        job,
        job_id: vec![job as u8; 16],
        direction: Direction::ClientSends as u32,
        paths: vec![path.to_vec()],
        options: Some(options_to_wire(&TransferOptions::default())),
        ..Open::default()
    }
}

/// Whether the endpoint ended the stream without a word.
fn is_dropped(stream: &mut DataStream) -> bool {
    match stream.recv(&mut [0; 64]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(e) => e.kind() != ErrorKind::TimedOut,
    }
}

/// Nothing is below the root but what honest clients sent, and no staging is left of others.
fn names_below(root: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !name.starts_with(".thalweg-staging-"));
    names.sort();
    names
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// What other programs say first, and what none says: F001, F019, F024.
fn foreign() -> Vec<Vec<u8>> {
    // A hello of TLS 1.2 with one suite, and without the extension that names 1.3.
    let hello = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0xc0, 0x2f, 1, 0]].concat();
    let handshake = [&[1, 0, 0, hello.len() as u8], &hello[..]].concat();
    let tls12 = [&[0x16, 3, 1, 0, handshake.len() as u8], &handshake[..]].concat();
    let close_notify_after_it = [&tls12[..], &[0x15, 3, 3, 0, 2, 1, 0]].concat();
    let mut greetings = vec![
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n".to_vec(),
        b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(),
        tls12,
        close_notify_after_it,
        vec![0x16, 3, 1, 0xff, 0xff],
        vec![0x16, 3, 3, 0, 0],
        vec![0; 4096],
        Vec::new(),
    ];
    greetings.extend((1..20).map(|seed| noise(seed, 100 * seed as usize)));
    greetings
}

#[test]
fn what_is_not_the_protocol_is_turned_away_and_clients_do_not_notice() {
    let place = Place::new();
    thread::scope(|scope| {
        for bytes in foreign() {
            let mut tcp = place.tcp();
            scope.spawn(move || {
                // Turned away before all of it was said is as good.
                let _ = tcp.write_all(&bytes);
                let mut answer = Vec::new();
                let ended = tcp.read_to_end(&mut answer);
                assert!(!ended.is_err_and(|e| matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)));
                assert!(answer.len() < 1024, "a stranger is told little");
            });
        }
        // A byte now and then does not buy time (F015).
        let mut slow = place.tcp();
        scope.spawn(move || {
            let begun = Instant::now();
            slow.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            let hello = [0x16, 3, 1, 2, 0].into_iter().chain([1, 0, 1, 0xfc, 3, 3]).chain(std::iter::repeat(9));
            for byte in hello {
                let is_gone = slow.write_all(&[byte]).is_err();
                let is_ended = matches!(slow.read(&mut [0; 64]), Ok(0)) || is_gone;
                if is_ended {
                    break;
                }
                assert!(begun.elapsed() < PATIENCE, "a handshake has one deadline");
            }
        });
        for n in 0..3 {
            place.honest(&format!("honest-{n}"));
        }
    });
    assert_eq!(names_below(&place.path("root")), ["honest-0", "honest-1", "honest-2"]);
    assert!(place.served.shut_down(PATIENCE));
}

#[test]
fn first_frames_that_are_none_end_the_stream() {
    let place = Place::new();
    let identity = Identity::generate().unwrap();
    drop(place.session(&identity));
    let header = |frame_type: u8, flags: u8, body_bytes: u32| FrameHeader { frame_type, flags, body_bytes }.encode();
    let mut first: Vec<Vec<u8>> = vec![
        header(1, 0, u32::MAX).to_vec(),
        header(1, 0, 1 << 31).to_vec(),
        header(1, 0, 4097).to_vec(),
        header(2, 0, u32::MAX).to_vec(),
        header(3, 0, 64).to_vec(),
        header(4, 0, 64).to_vec(),
        header(5, 0, 0).to_vec(),
        header(77, 0, 0).to_vec(),
        header(77, 1, 8).to_vec(),
        header(1, 2, 0).to_vec(),
        vec![1, 0, 1, 0, 0, 0, 0, 0],
        frame::encode(FrameType::Message, &[0xff; 100]),
        frame::encode(FrameType::Message, &[]),
        frame::encode(FrameType::Join, &[0; 10]),
        frame::encode(FrameType::Join, &[0xff; 60]),
        message::encode(Ping { number: 1 }),
        message::encode(open(1, b"in")),
        message::encode(Welcome::default()),
        message::encode(Hello { session: vec![1; 15], ..place.hello(SessionId([0; 16])) }),
        message::encode(Hello { version_min: 9, version_max: 12, ..place.hello(SessionId([1; 16])) }),
        message::encode(Hello { version_min: 3, version_max: 1, ..place.hello(SessionId([1; 16])) }),
        message::encode(Hello { features: 0, ..place.hello(SessionId([1; 16])) }),
    ];
    first.extend((1..10).map(|seed| noise(seed, 200)));
    for bytes in &first {
        let mut stream = place.stream(&identity);
        let _ = stream.send(&[bytes]);
        // A hello is answered with the reason; the end follows.
        while stream.recv(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {}
        assert!(is_dropped(&mut stream), "{:?}", &bytes[..bytes.len().min(16)]);
    }
    place.honest("honest");
    assert_eq!(names_below(&place.path("root")), ["honest"]);
}

#[test]
fn a_session_in_which_the_peer_breaks_a_rule_ends_with_its_code() {
    let place = Place::new();
    let identity = Identity::generate().unwrap();
    let file = EntryRecord { name: b"f".to_vec(), kind: 2, mode: 0o644, size_bytes: 5, ..EntryRecord::default() };
    let listed = |first, record: &EntryRecord| Entries { job: 1, first, entries: vec![record.clone()] };
    let in_job: Vec<(Message, CloseCode)> = vec![
        (listed(2, &file).into(), CloseCode::Malformed),
        (listed(0, &file).into(), CloseCode::Malformed),
        (Entries { job: 1, first: 1, entries: vec![] }.into(), CloseCode::Limit),
        (Entries { job: 1, first: 1, entries: vec![file.clone(); 1025] }.into(), CloseCode::Limit),
        (listed(1, &EntryRecord { parent: 7, ..file.clone() }).into(), CloseCode::Malformed),
        (listed(1, &EntryRecord { size_bytes: u64::MAX, ..file.clone() }).into(), CloseCode::Malformed),
        (listed(1, &EntryRecord { kind: 9, ..file.clone() }).into(), CloseCode::Malformed),
        (listed(1, &EntryRecord { mode: u32::MAX, ..file.clone() }).into(), CloseCode::Malformed),
        (Want { job: 1, ..Want::default() }.into(), CloseCode::WrongState),
        (Settled { job: 1, ..Settled::default() }.into(), CloseCode::WrongState),
        (Credit { job: 1, entries: u64::MAX, in_flight_bytes: u64::MAX }.into(), CloseCode::WrongState),
        (place.hello(SessionId([9; 16])).into(), CloseCode::WrongState),
        (Welcome::default().into(), CloseCode::WrongState),
        (Accept::default().into(), CloseCode::WrongState),
    ];
    for (message, code) in in_job {
        let mut session = place.session(&identity);
        session.say(open(1, b"in"));
        session.say(message.clone());
        assert_eq!(session.close_code(), Some(code), "{message:?}");
    }
    for raw in [
        FrameHeader { frame_type: 1, flags: 0, body_bytes: u32::MAX }.encode().to_vec(),
        FrameHeader { frame_type: 3, flags: 0, body_bytes: 64 }.encode().to_vec(),
        FrameHeader { frame_type: 99, flags: 0, body_bytes: 0 }.encode().to_vec(),
        frame::encode(FrameType::Message, &[0xff; 64]),
    ] {
        let mut session = place.session(&identity);
        let _ = session.control.send(&[&raw]);
        assert!(session.close_code().is_some_and(|code| code != CloseCode::Done), "{raw:?}");
    }
    // What is said of jobs that are not there crossed their end, and harms nobody.
    let mut session = place.session(&identity);
    session.say(Entries { job: 9, first: 1, entries: vec![file] });
    session.say(Ping { number: 5 });
    assert_eq!(session.hear(), Some(Message::Pong(message::Pong { number: 5 })));
    session.say(Close::default());
    place.honest("honest");
    let names = names_below(&place.path("root"));
    assert_eq!(names, ["honest", "in"], "only the directories of opened jobs were made");
    assert_eq!(fs::read_dir(place.path("root/in")).unwrap().count(), 0);
}

#[test]
fn sessions_jobs_and_ids_are_bounded_for_each_peer() {
    let place = Place::new();
    let identity = Identity::generate().unwrap();
    let mut sessions: Vec<_> = (0..64).map(|_| place.session(&identity)).collect();
    let mut one_more = place.stream(&identity);
    one_more.send(&[&message::encode(place.hello(SessionId([1; 16])))]).unwrap();
    let mut one_more = Session { control: one_more, id: SessionId([1; 16]) };
    assert_eq!(one_more.close_code(), Some(CloseCode::Busy));
    place.honest("honest");
    sessions.truncate(1);
    let session = &mut sessions[0];
    for job in 1..=JOBS_MAX as u32 + 1 {
        session.say(open(job, b"in"));
    }
    let (mut accepted, mut refused) = (0, Vec::new());
    while accepted + refused.len() <= JOBS_MAX {
        match session.hear().expect("the session stays") {
            Message::Accept(_) => accepted += 1,
            Message::Reject(reject) => refused.push(CloseCode::from_number(reject.code)),
            _ => {}
        }
    }
    assert_eq!((accepted, refused), (JOBS_MAX, vec![CloseCode::Limit]));
    // A session id that is taken opens no second session, not even for the same client.
    let mut again = place.stream(&identity);
    again.send(&[&message::encode(place.hello(sessions[0].id))]).unwrap();
    let mut again = Session { control: again, id: sessions[0].id };
    assert_eq!(again.close_code(), Some(CloseCode::WrongState));
}

#[test]
fn a_data_stream_joins_only_with_the_sessions_own_key_and_proof() {
    let place = Place::new();
    let [owner, thief] = [(), ()].map(|()| Identity::generate().unwrap());
    let mut session = place.session(&owner);
    let _thiefs_own = place.session(&thief);
    session.say(open(1, b"in"));
    while !matches!(session.hear(), Some(Message::Accept(_))) {}
    // With everything the owner's program knows, but another key (F026).
    let mut stolen = place.stream(&thief);
    let join = session.join(&stolen, 1);
    stolen.send(&[&join]).unwrap();
    assert!(is_dropped(&mut stolen));
    // The owner's own stream stays: the endpoint waits for its frames.
    let mut first = place.stream(&owner);
    let recorded = session.join(&first, 1);
    first.send(&[&recorded]).unwrap();
    first.set_deadline(Some(Instant::now() + Duration::from_millis(300)));
    assert!(!is_dropped(&mut first));
    // What it said, said again on another stream (F027).
    for identity in [&owner, &thief] {
        let mut replayed = place.stream(identity);
        replayed.send(&[&recorded]).unwrap();
        assert!(is_dropped(&mut replayed));
    }
    // A proof that is not one, and a direction that is not the job's.
    let mut guessed = place.stream(&owner);
    let mut join = session.join(&guessed, 1);
    *join.last_mut().unwrap() ^= 1;
    guessed.send(&[&join]).unwrap();
    assert!(is_dropped(&mut guessed));
    place.honest("honest");
}

#[test]
fn a_thousand_silent_connections_keep_nobody_out() {
    let place = Place::new();
    let mut silent: Vec<_> = (0..1000).map(|_| place.tcp()).collect();
    place.honest("honest");
    // Those that were there longest gave way.
    let left = silent[0].read(&mut [0]);
    assert!(left.as_ref().map_or_else(|e| e.kind() == ErrorKind::ConnectionReset, |bytes| *bytes == 0), "{left:?}");
    drop(silent);
    assert!(place.served.shut_down(PATIENCE));
}

/// Memory runs out long before places for connections do; the refusal is heard by the client, and others get in.
#[test]
fn open_connections_are_charged_to_their_ticket() {
    let place = Place::with_memory(1 << 20);
    let identity = Identity::generate().unwrap();
    let _session = place.session(&identity);
    let mut silent: Vec<_> =
        (0..400).map(|_| Session { control: place.stream(&identity), id: SessionId([0; 16]) }).collect();
    let Some(Message::Close(close)) = silent[399].hear() else { panic!("the last one was not refused") };
    assert_eq!(CloseCode::from_number(close.code), CloseCode::Busy);
    assert!(close.text.contains("of memory (connections) here, as much as"), "{}", close.text);
    place.honest("honest");
}

#[test]
fn strangers_who_say_one_byte_each_keep_nobody_out() {
    let place = Place::new();
    let flood: Vec<_> = (0..1500)
        .map(|_| {
            let mut tcp = place.tcp();
            // Turned away before it was said is as good.
            let _ = tcp.write_all(&[0x16]);
            tcp
        })
        .collect();
    place.honest("honest");
    drop(flood);
    assert!(place.served.shut_down(PATIENCE));
}
