//! Peers that break the rules or do not get on, at both ends: what they are told, and that what they hold is freed.

mod endpoint;

use endpoint::{Endpoint, OpenHost, client, content, describe, endpoint, make_tree, serve, serve_telling};
use model::files::{Question, Record};
use model::options::Fsync;
use model::{DigestAlgorithm, Extent, FailureKind, JobId, ObjectId, Pin, SessionId, TransferOptions};
use mover::files::{How, NotReached};
use mover::job::Port;
use mover::job_options::options_to_wire;
use mover::limits::LANE_BYTES;
use mover::sender::SendJob;
use mover::session::{AskError, Grant, Host, HostFacts, Opened, PullSpec, PushSpec, Server};
use mover::{Ending, Memory, Progress};
use net::{DataStream, DialOptions, Identity, Listener, ServerTls};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use store::posix::{PosixSink, PosixSource, beneath};
use store::{Found, Shelf, Source, SourceLane, SourceObject};
use wire::data::{ChunkHeader, ChunkTrailer, Status, chunk_extra_bytes};
use wire::frame::{FrameHeader, FrameType, HEADER_BYTES};
use wire::handshake::{Direction, EXPORTER_LABEL, Join, feature};
use wire::listing::REPLACEMENT_FIRST;
use wire::message::{self, Cancel, Entries, EntryRecord, Finish, Hello, ListEnd, Open, OrderAsk, Welcome};
use wire::{CloseCode, Message, Refusal};

/// Longer than anything takes that comes at all.
const PATIENCE: Duration = Duration::from_secs(20);
const FOR_EVER: Duration = Duration::from_secs(3600);

/// An endpoint with room for one lane, and little patience.
fn endpoint_with_one_lane(root: &Path, no_progress_timeout: Duration) -> Endpoint {
    let server = Server::new(Arc::new(OpenHost { root: root.to_owned() }), Memory::of_endpoint(LANE_BYTES));
    server.set_no_progress_timeout(no_progress_timeout);
    serve(server)
}

/// A client that says what it likes.
struct Raw {
    control: DataStream,
    session: SessionId,
    endpoint: DialOptions,
    address: String,
}

impl Raw {
    fn hello(endpoint: &Endpoint, features: u64) -> Raw {
        Raw::hello_as(&Identity::generate().unwrap(), endpoint, features)
    }

    fn hello_as(identity: &Identity, endpoint: &Endpoint, features: u64) -> Raw {
        Raw::try_hello_as(identity, endpoint, features).unwrap()
    }

    fn try_hello_as(identity: &Identity, endpoint: &Endpoint, features: u64) -> Result<Raw, Refusal> {
        let dial = DialOptions::new(identity, endpoint.pin).unwrap();
        let control = net::dial(&endpoint.address, &dial).unwrap().into_data();
        let session = SessionId(net::random_bytes());
        let mut raw = Raw { control, session, endpoint: dial, address: endpoint.address.clone() };
        raw.control.set_deadline(Some(Instant::now() + PATIENCE));
        let session = session.0.to_vec();
        raw.say(Hello { version_min: 1, version_max: 1, features, session, ..Hello::default() });
        match raw.hear() {
            Message::Welcome(_) => Ok(raw),
            Message::Close(close) => Err(Refusal::new(CloseCode::from_number(close.code), &close.text)),
            other => panic!("{other:?}"),
        }
    }

    fn say(&mut self, message: impl Into<Message>) {
        self.control.send(&[&message::encode(message)]).unwrap();
    }

    fn hear(&mut self) -> Message {
        let mut head = [0; HEADER_BYTES];
        self.control.recv_exact(&mut head).unwrap();
        let mut body = vec![0; FrameHeader::decode(&head).unwrap().body_bytes as usize];
        self.control.recv_exact(&mut body).unwrap();
        message::decode(&body).unwrap().unwrap()
    }

    /// The next message that is wanted; times, pings and credit are nobody's business here.
    fn hear_until<T>(&mut self, mut wanted: impl FnMut(Message) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(self.hear()) {
                return found;
            }
        }
    }

    /// Why the session or its job was ended.
    fn hear_refusal(&mut self) -> Refusal {
        self.hear_until(|message| match message {
            Message::Close(close) => Some(Refusal::new(CloseCode::from_number(close.code), &close.text)),
            Message::Cancel(cancel) => Some(Refusal::new(CloseCode::from_number(cancel.code), &cancel.text)),
            Message::Reject(reject) => Some(Refusal::new(CloseCode::from_number(reject.code), &reject.text)),
            _ => None,
        })
    }

    fn open(&mut self, options: &TransferOptions) {
        self.say(Open {
            job: 1,
            job_id: vec![7; 16],
            direction: Direction::ClientSends as u32,
            paths: vec![b"in".to_vec()],
            options: Some(options_to_wire(options)),
            ..Open::default()
        });
    }

    fn join(&self) -> DataStream {
        let mut stream = net::dial(&self.address, &self.endpoint).unwrap().into_data();
        let direction = Direction::ClientSends;
        let mut join = Join { session: self.session, job: 1, stream: 0, direction, proof: [0; 32] };
        let exporters = [&self.control, &stream].map(|s| s.export(EXPORTER_LABEL, &self.session.0));
        join.proof = net::hmac_sha256(&exporters[0], &[&join.authenticated(), &exporters[1]]);
        stream.send(&[&join.encode()]).unwrap();
        stream.set_deadline(Some(Instant::now() + PATIENCE));
        stream
    }
}

fn entries(first: u64, kind: u32, count: u64) -> Entries {
    let record = |id: u64| EntryRecord {
        name: format!("{id}").into_bytes(),
        kind,
        mode: 0o755,
        size_bytes: if kind == 2 { 5 } else { 0 },
        ..EntryRecord::default()
    };
    Entries { job: 1, first, entries: (first..first + count).map(record).collect() }
}

const DIRECTORY: u32 = 1;
const FILE: u32 = 2;
const PIPE: u32 = 4;

fn push(endpoint: &Endpoint, from: &Path) -> Ending {
    let mut source = PosixSource::new();
    source.add_local(format!("{}/", from.display()).as_bytes()).unwrap();
    let spec = PushSpec {
        id: JobId([1; 16]),
        path: b"pushed".to_vec(),
        is_single: false,
        options: TransferOptions::default(),
    };
    let client = client(endpoint, Some(2));
    client.set_no_progress_timeout(Duration::from_secs(1));
    let report = client.push(spec, Arc::new(source), Progress::new(), None, &|| false);
    report.ending
}

#[test]
fn a_job_is_not_finished_before_everything_listed_is_settled() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = endpoint(dir.path());
    let options = TransferOptions { fsync: Fsync::Never, ..TransferOptions::default() };
    type Say = fn(&mut Raw);
    let early: [Say; 4] = [
        |raw| raw.say(Finish { job: 1, is_buffered: false }),
        |raw| {
            raw.say(entries(1, DIRECTORY, 1));
            raw.say(Finish { job: 1, is_buffered: false });
        },
        |raw| {
            raw.say(entries(1, FILE, 3));
            raw.say(ListEnd { job: 1, entries: 3, bytes: 15 });
            raw.hear_until(|message| matches!(message, Message::Want(_)).then_some(()));
            raw.say(Finish { job: 1, is_buffered: false });
        },
        // Before the receiver can have decided anything.
        |raw| {
            raw.say(entries(1, FILE, 3));
            raw.say(ListEnd { job: 1, entries: 3, bytes: 15 });
            raw.say(Finish { job: 1, is_buffered: false });
        },
    ];
    for say in early {
        let mut raw = Raw::hello(&endpoint, feature::ALL);
        raw.open(&options);
        say(&mut raw);
        let refusal = raw.hear_refusal();
        assert_eq!(refusal.code, CloseCode::WrongState, "{refusal}");
        assert!(refusal.text.contains("before everything in it is settled"), "{refusal}");
    }
    let mut raw = Raw::hello(&endpoint, feature::ALL);
    raw.open(&options);
    raw.say(entries(1, DIRECTORY, 2));
    raw.say(ListEnd { job: 1, entries: 2, bytes: 0 });
    raw.say(Finish { job: 1, is_buffered: false });
    raw.hear_until(|message| matches!(message, Message::Finished(_)).then_some(()));
    assert!(dir.path().join("in/2").is_dir());
}

#[test]
fn a_stream_that_comes_when_its_job_or_its_session_is_over_is_let_go_and_taken_for_no_intruder() {
    let dir = tempfile::tempdir().unwrap();
    // No directory can be made there, so the job is refused.
    std::fs::write(dir.path().join("in"), "").unwrap();
    let server = Server::new(Arc::new(OpenHost { root: dir.path().to_owned() }), Memory::default());
    let (told, served) = mpsc::channel();
    let endpoint = serve_telling(server, move |served| told.send(served).unwrap_or_default());
    let refused = || loop {
        if let Err(refusal) = served.recv_timeout(PATIENCE).unwrap() {
            return refusal;
        }
    };
    let mut raw = Raw::hello(&endpoint, feature::ALL);
    raw.open(&TransferOptions::default());
    raw.hear_refusal();
    let late = raw.join();
    assert_eq!(refused().code, CloseCode::NoProgress);
    drop(late);
    raw.say(message::Close { code: CloseCode::Done as u32, text: String::new() });
    while raw.control.recv(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {}
    let _late = raw.join();
    assert_eq!(refused().code, CloseCode::NoProgress);
}

#[test]
fn a_listing_that_lies_about_its_length_or_goes_on_after_its_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = endpoint(dir.path());
    for (said, more, code) in [(3, false, CloseCode::Malformed), (2, true, CloseCode::WrongState)] {
        let mut raw = Raw::hello(&endpoint, feature::ALL);
        raw.open(&TransferOptions::default());
        raw.say(entries(1, DIRECTORY, 2));
        raw.say(ListEnd { job: 1, entries: said, bytes: 0 });
        if more {
            raw.say(entries(3, DIRECTORY, 1));
        }
        assert_eq!(raw.hear_refusal().code, code);
    }
}

#[test]
fn directories_leave_room_for_others_in_the_listing() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = endpoint(dir.path());
    let mut raw = Raw::hello(&endpoint, feature::ALL);
    raw.open(&TransferOptions { fsync: Fsync::Never, ..TransferOptions::default() });
    let credit = |message| match message {
        Message::Credit(credit) => Some(credit.entries),
        Message::Close(close) => panic!("{}", close.text),
        _ => None,
    };
    let first = raw.hear_until(credit);
    for batch in 0..9 {
        raw.say(entries(1 + batch * 1000, DIRECTORY, 1000));
    }
    let next = raw.hear_until(credit);
    assert!(next >= first + 8192, "{first} {next}");
}

#[test]
fn what_was_not_negotiated_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = endpoint(dir.path());
    let mut raw = Raw::hello(&endpoint, feature::NEEDED);
    raw.open(&TransferOptions { digest: DigestAlgorithm::Blake3, ..TransferOptions::default() });
    let refusal = raw.hear_refusal();
    assert!(refusal.code == CloseCode::Version && refusal.text.contains("--digest"), "{refusal}");
    raw.open(&TransferOptions::default());
    raw.say(entries(1, PIPE, 1));
    let refusal = raw.hear_refusal();
    assert!(refusal.code == CloseCode::Malformed && refusal.text.contains("feature"), "{refusal}");

    let mut raw = Raw::hello(&endpoint, feature::ALL);
    raw.open(&TransferOptions { digest: DigestAlgorithm::Blake3, ..TransferOptions::default() });
    raw.hear_until(|message| matches!(message, Message::Accept(_)).then_some(()));
}

#[test]
fn a_sender_that_begins_a_frame_and_stops_is_freed_and_the_memory_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (root, from) = (dir.path().join("root"), dir.path().join("from"));
    std::fs::create_dir(&root).unwrap();
    make_tree(&from);
    // One lane has room: the honest client's jobs wait for it.
    let endpoint = endpoint_with_one_lane(&root, Duration::from_secs(2));
    let mut raw = Raw::hello(&endpoint, feature::ALL);
    raw.open(&TransferOptions::default());
    raw.say(entries(1, FILE, 1));
    raw.hear_until(|message| matches!(message, Message::Want(_)).then_some(()));
    let mut stream = raw.join();
    stream.send(&[&FrameHeader::new(FrameType::Pack, 100).encode(), &[1; 10]]).unwrap();
    let refusal = raw.hear_refusal();
    assert_eq!(refusal.code, CloseCode::NoProgress, "{refusal}");
    assert!(refusal.text.starts_with("nothing moved for "), "{refusal}");
    assert!(stream.recv(&mut [0; 10]).is_err(), "its stream is broken off");
    let options = TransferOptions { fsync: Fsync::Never, ..TransferOptions::default() };
    let spec = PushSpec { id: JobId([1; 16]), path: b"x".to_vec(), is_single: false, options };
    let mut source = PosixSource::new();
    source.add_local(format!("{}/", from.display()).as_bytes()).unwrap();
    let client = client(&endpoint, Some(3));
    let report = client.push(spec, Arc::new(source), Progress::new(), None, &|| false);
    assert!(matches!(report.ending, Ending::Finished(_)), "{}", report.ending);
    assert_eq!(describe(&from), describe(&root.join("x")));
}

#[test]
fn a_job_waits_for_memory_that_another_job_has_and_is_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (root, from) = (dir.path().join("root"), dir.path().join("from"));
    std::fs::create_dir(&root).unwrap();
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("f"), content(1, 3 << 20)).unwrap();
    let endpoint = endpoint_with_one_lane(&root, FOR_EVER);
    let mut raw = Raw::hello(&endpoint, feature::ALL);
    raw.open(&TransferOptions::default());
    let mut held = raw.join();
    // It takes the memory, and keeps it by getting on, however slowly.
    held.send(&[&FrameHeader::new(FrameType::Pack, 200 << 10).encode()]).unwrap();
    raw.hear_until(|message| match message {
        // The lane runs once its stage is no more the wait for memory.
        Message::Times(times) => (times.lanes > 0).then_some(()),
        _ => None,
    });
    let mut source = PosixSource::new();
    source.add_local(format!("{}/", from.display()).as_bytes()).unwrap();
    let spec = PushSpec { id: JobId([1; 16]), path: b"x".to_vec(), is_single: false, options: Default::default() };
    let client = client(&endpoint, Some(2));
    let progress = Progress::new();
    std::thread::scope(|scope| {
        let pushing = scope.spawn(|| client.push(spec, Arc::new(source), progress.clone(), None, &|| false));
        // It has waited for longer than a lane of a job that has others would.
        let deadline = Instant::now() + PATIENCE;
        let memory_ns = || progress.snapshot().there.stage_ns[model::progress::Stage::Memory as usize];
        while memory_ns() < 2_000_000_000 {
            assert!(Instant::now() < deadline && !pushing.is_finished(), "{:?}", progress.snapshot().there);
            held.send(&[&[0]]).unwrap();
            std::thread::park_timeout(Duration::from_millis(10));
        }
        drop((held, raw));
        let report = pushing.join().unwrap();
        assert!(matches!(report.ending, Ending::Finished(_)), "{}", report.ending);
    });
}

#[test]
fn a_lane_on_which_nothing_moves_gives_its_memory_to_whoever_waits() {
    let dir = tempfile::tempdir().unwrap();
    let (root, from) = (dir.path().join("root"), dir.path().join("from"));
    std::fs::create_dir(&root).unwrap();
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("f"), content(1, 1 << 20)).unwrap();
    let endpoint = endpoint_with_one_lane(&root, FOR_EVER);
    let mut raw = Raw::hello(&endpoint, feature::ALL);
    raw.open(&TransferOptions::default());
    let mut held = raw.join();
    held.send(&[&[2]]).unwrap();
    raw.hear_until(|message| match message {
        Message::Times(times) => (times.lanes > 0).then_some(()),
        _ => None,
    });
    let mut source = PosixSource::new();
    source.add_local(format!("{}/", from.display()).as_bytes()).unwrap();
    let spec = PushSpec { id: JobId([1; 16]), path: b"x".to_vec(), is_single: false, options: Default::default() };
    let client = client(&endpoint, Some(1));
    // Sooner than the silent session would end.
    let deadline = Instant::now() + PATIENCE;
    let report = client.push(spec, Arc::new(source), Progress::new(), None, &|| Instant::now() > deadline);
    assert!(matches!(report.ending, Ending::Finished(_)), "{}", report.ending);
    assert!(held.recv(&mut [0; 10]).is_err(), "the idle stream is broken off");
}

/// Sessions that do nothing make room for a key that has fewer, and the refusal of one more says whose they are.
#[test]
fn idle_sessions_make_room_for_another_key() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = endpoint(dir.path());
    let mut greedy = Vec::new();
    for _ in 0..4 {
        let identity = Identity::generate().unwrap();
        greedy.extend((0..52).filter_map(|_| Raw::try_hello_as(&identity, &endpoint, feature::ALL).ok()));
    }
    assert!((195..=206).contains(&greedy.len()), "{}", greedy.len());
    // Each newcomer gets in as soon as one of them has been idle for long enough.
    let deadline = Instant::now() + PATIENCE;
    let mut newcomers = Vec::new();
    while newcomers.len() < 8 {
        assert!(Instant::now() < deadline, "{} newcomers got in", newcomers.len());
        let identity = Identity::generate().unwrap();
        newcomers.extend(Raw::try_hello_as(&identity, &endpoint, feature::ALL).ok());
    }
    let identity = Identity::generate().unwrap();
    let of_one: Vec<_> = (0..60).map(|_| Raw::try_hello_as(&identity, &endpoint, feature::ALL)).collect();
    let refused = of_one.into_iter().find_map(Result::err).expect("one key does not get them all");
    assert_eq!(refused.code, CloseCode::Busy);
    assert!(refused.text.contains(" sessions here, as much as") && refused.text.contains("ticket test"), "{refused}");
}

/// Keys of one ticket share its places: another one gets one as soon as a job has stood still for long enough.
#[test]
fn sessions_whose_jobs_stand_still_make_room_for_another_key() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = endpoint(dir.path());
    let hello = || Raw::try_hello_as(&Identity::generate().unwrap(), &endpoint, feature::ALL);
    let mut greedy = Vec::new();
    let refused = loop {
        match hello() {
            Ok(mut raw) => {
                raw.open(&TransferOptions::default());
                raw.hear_until(|message| matches!(message, Message::Accept(_)).then_some(()));
                greedy.push(raw);
            }
            Err(refused) => break refused,
        }
    };
    assert!((195..=206).contains(&greedy.len()), "{}", greedy.len());
    assert!(refused.text.contains(" sessions here, as much as"), "{refused}");
    let deadline = Instant::now() + PATIENCE;
    while let Err(refused) = hello() {
        assert!(Instant::now() < deadline, "{refused}");
        assert_eq!(refused.code, CloseCode::Busy);
    }
    let ended = loop {
        assert!(Instant::now() < deadline, "none of them lost its place");
        if let Some(raw) = greedy.iter_mut().find(|raw| raw.control.is_broken()) {
            break raw;
        }
    };
    let told = ended.hear_refusal();
    assert!(told.text.contains("its place was given to a waiting client"), "{told}");
}

#[test]
fn a_job_is_taken_over_by_who_came_later_and_not_by_who_is_heard_later() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = endpoint(dir.path());
    let identity = Identity::generate().unwrap();
    let [mut first, mut second, mut third] = [(); 3].map(|()| Raw::hello_as(&identity, &endpoint, feature::ALL));
    let accepted = |message| matches!(message, Message::Accept(_)).then_some(());
    second.open(&TransferOptions::default());
    second.hear_until(accepted);
    first.open(&TransferOptions::default());
    assert_eq!(first.hear_refusal().code, CloseCode::Cancelled);
    third.open(&TransferOptions::default());
    third.hear_until(accepted);
    assert_eq!(second.hear_refusal().code, CloseCode::Cancelled);
}

/// An object that is one chunk long, and too long for a pack.
struct OneChunk {
    _endpoint: Endpoint,
    head: Vec<u8>,
    content: Vec<u8>,
    digest: DigestAlgorithm,
}

impl OneChunk {
    /// Opens a job at an endpoint of its own and lists the object, until the endpoint wants it.
    fn wanted(root: &Path) -> (Raw, OneChunk) {
        const BYTES: usize = 200 << 10;
        let endpoint = endpoint(root);
        let options = TransferOptions { fsync: Fsync::Never, ..TransferOptions::default() };
        let mut raw = Raw::hello(&endpoint, feature::ALL);
        raw.open(&options);
        let mut listed = entries(1, FILE, 1);
        listed.entries[0].size_bytes = BYTES as u64;
        raw.say(listed);
        raw.hear_until(|message| matches!(message, Message::Want(_)).then_some(()));
        let frame = FrameHeader::new(FrameType::Chunk, BYTES + chunk_extra_bytes(options.digest)).encode();
        let header = ChunkHeader { object: ObjectId(1), extent: Extent::new(0, BYTES as u64) }.encode();
        let head = [&frame[..], &header].concat();
        (raw, OneChunk { _endpoint: endpoint, head, content: content(1, BYTES), digest: options.digest })
    }

    fn send(&self, stream: &mut DataStream, status: Status) {
        let object_bytes = self.content.len() as u64;
        let bound = self.digest.of_object(&self.content).bind(ObjectId(1), Extent::new(0, object_bytes));
        let mut trailer = Vec::new();
        ChunkTrailer { status, object_bytes, bound }.put(&mut trailer);
        stream.send(&[&self.head, &self.content, &trailer]).unwrap();
    }
}

#[test]
fn an_object_of_one_chunk_is_not_published_before_its_sender_has_seen_it_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let (mut raw, object) = OneChunk::wanted(dir.path());
    let mut stream = raw.join();
    for (status, is_taken) in [(Status::Good, false), (Status::GoodLast, true)] {
        object.send(&mut stream, status);
        let was_taken = raw.hear_until(|message| match message {
            Message::Resend(_) => Some(false),
            Message::Settled(_) => Some(true),
            _ => None,
        });
        assert_eq!(was_taken, is_taken, "{status:?}");
    }
}

/// Sends all of an object as one chunk.
fn send_whole(stream: &mut DataStream, object: u64, content: &[u8], digest: DigestAlgorithm) {
    let (object, extent) = (ObjectId(object), Extent::new(0, content.len() as u64));
    let frame = FrameHeader::new(FrameType::Chunk, content.len() + chunk_extra_bytes(digest)).encode();
    let header = ChunkHeader { object, extent }.encode();
    let bound = digest.of_object(content).bind(object, extent);
    let mut trailer = Vec::new();
    ChunkTrailer { status: Status::GoodLast, object_bytes: extent.end, bound }.put(&mut trailer);
    stream.send(&[&frame[..], &header[..], content, &trailer[..]]).unwrap();
}

/// A sender may see only after a stream broke that what it sent has changed since.
#[test]
fn a_file_that_changed_after_it_was_published_is_published_again_in_a_directory_of_the_same_job() {
    const BYTES: usize = 200 << 10;
    let dir = tempfile::tempdir().unwrap();
    let endpoint = endpoint(dir.path());
    let options = TransferOptions { fsync: Fsync::Never, ..TransferOptions::default() };
    let mut raw = Raw::hello(&endpoint, feature::ALL);
    raw.open(&options);
    raw.hear_until(|message| matches!(message, Message::Accept(_)).then_some(()));
    raw.say(entries(1, DIRECTORY, 1));
    let mut stream = raw.join();
    for (id, version) in [(2, 1), (REPLACEMENT_FIRST, 2)] {
        let mut listed = entries(id, FILE, 1);
        let entry = &mut listed.entries[0];
        (entry.parent, entry.name, entry.size_bytes) = (1, b"f".to_vec(), BYTES as u64);
        entry.modified_seconds = version;
        raw.say(listed);
        raw.hear_until(|message| matches!(message, Message::Want(_)).then_some(()));
        let content = content(version as u64, BYTES);
        send_whole(&mut stream, id, &content, options.digest);
        let settled = raw.hear_until(|message| match message {
            Message::Settled(settled) => Some(settled),
            _ => None,
        });
        assert!(settled.failed.is_empty(), "{settled:?}");
        assert_eq!(settled.published[0].ids(), id..id + 1);
        assert!(std::fs::read(dir.path().join("in/1/f")).unwrap() == content);
    }
}

#[test]
fn an_object_whose_streams_keep_breaking_does_not_fail_by_that() {
    let dir = tempfile::tempdir().unwrap();
    let (mut raw, object) = OneChunk::wanted(dir.path());
    for _ in 0..6 {
        let mut stream = raw.join();
        stream.send(&[&object.head, &object.content[..1000]]).unwrap();
        drop(stream);
        let again = raw.hear_until(|message| match message {
            Message::Resend(again) => Some(again.runs[0].ids()),
            Message::Settled(settled) => panic!("{settled:?}"),
            _ => None,
        });
        assert_eq!(again, 1..2);
    }
    object.send(&mut raw.join(), Status::GoodLast);
    let published = raw.hear_until(|message| match message {
        Message::Settled(settled) => Some(settled.published[0].ids()),
        _ => None,
    });
    assert_eq!(published, 1..2);
    assert!(std::fs::read(dir.path().join("in/1")).unwrap() == object.content);
}

#[test]
fn a_pipe_whose_chunks_are_short_before_its_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = endpoint(dir.path());
    let mut raw = Raw::hello(&endpoint, feature::ALL);
    let options = TransferOptions { fsync: Fsync::Never, ..TransferOptions::default() };
    raw.open(&options);
    raw.say(entries(1, PIPE, 1));
    raw.hear_until(|message| matches!(message, Message::Want(_)).then_some(()));
    let (object, extent) = (ObjectId(1), Extent::new(0, 1));
    let frame = FrameHeader::new(FrameType::Chunk, 1 + chunk_extra_bytes(options.digest)).encode();
    let header = ChunkHeader { object, extent }.encode();
    let bound = options.digest.of_object(b"x").bind(object, extent);
    let mut trailer = Vec::new();
    ChunkTrailer { status: Status::Good, object_bytes: 1, bound }.put(&mut trailer);
    raw.join().send(&[&[&frame[..], &header, b"x", &trailer[..]].concat()]).unwrap();
    let refusal = raw.hear_refusal();
    assert!(refusal.code == CloseCode::Malformed && refusal.text.contains("shorter than chunks are"), "{refusal}");
}

/// An endpoint that takes everything and says nothing more than that it is there.
fn mute(features: u64) -> Endpoint {
    saying(features, &[])
}

/// The same; it says this besides, each in a record of its own, and answers nothing.
fn saying(features: u64, records: &'static [&'static [u8]]) -> Endpoint {
    let identity = Identity::generate().unwrap();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().to_string();
    let tls = ServerTls::new(&identity).unwrap();
    let attend = move |mut stream: DataStream| {
        let mut head = [0; HEADER_BYTES];
        if stream.recv_exact(&mut head).is_err() {
            return;
        }
        if head[0] == FrameType::Message as u8 {
            let welcome = Welcome { version: 1, features, streams_max: 8, ..Welcome::default() };
            let _ = stream.send(&[&message::encode(welcome)]);
            let _ = records.iter().try_for_each(|record| stream.send(&[*record]));
        }
        let mut sink = vec![0; 1 << 16];
        while stream.recv(&mut sink).is_ok_and(|bytes| bytes > 0) {}
    };
    std::thread::spawn(move || {
        while let Ok(Some((tcp, _))) = listener.accept() {
            let tls = tls.clone();
            std::thread::spawn(move || {
                net::accept_tls(tcp, &tls, Instant::now() + PATIENCE).map(|connection| attend(connection.into_data()))
            });
        }
    });
    Endpoint { address, pin: identity.pin() }
}

#[test]
fn an_endpoint_that_answers_and_never_gets_on_is_no_progress() {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path());
    let ending = push(&mute(feature::ALL), dir.path());
    let Ending::Cancelled { by_peer: false, refusal } = ending else { panic!("{ending}") };
    assert_eq!(refusal.code, CloseCode::NoProgress);
    assert!(refusal.text.contains("although both sides answer"), "{refusal}");
}

#[test]
fn an_endpoint_that_says_nothing_of_a_job_that_it_was_asked_for_is_no_progress() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Arc::new(beneath::open_directory(dir.path()).unwrap());
    let sink = Arc::new(PosixSink::new(directory.clone(), directory, None));
    let spec = PullSpec {
        id: JobId([1; 16]),
        paths: vec![b"f".to_vec()],
        options: TransferOptions::default(),
        rename_to: None,
        is_sequential: false,
    };
    let client = client(&mute(feature::ALL), Some(2));
    client.set_no_progress_timeout(Duration::from_secs(1));
    let began = Instant::now();
    let report = client.pull(spec, sink, Progress::new(), None, &|| began.elapsed() > PATIENCE).unwrap();
    let ending = report.ending;
    let Ending::Cancelled { by_peer: false, refusal } = ending else { panic!("{ending}") };
    assert_eq!(refusal.code, CloseCode::NoProgress, "{refusal}");
}

/// Lists what there is, and comes to no end.
struct Endless(Arc<dyn Source>);

impl Source for Endless {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> store::Result<()> {
        self.0.scan(emit)?;
        loop {
            std::thread::park();
        }
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        self.0.lane()
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        self.0.path(object)
    }

    fn look_again(&self, object: &SourceObject) -> store::Result<SourceObject> {
        self.0.look_again(object)
    }
}

/// Has sources whose listing hangs.
struct HungListing(OpenHost);

impl Host for HungListing {
    fn facts(&self) -> HostFacts {
        self.0.facts()
    }

    fn authorise(&self, pin: Pin, credential: &[u8]) -> Result<Grant, Refusal> {
        self.0.authorise(pin, credential)
    }

    fn open(
        &self,
        grant: &Grant,
        job: JobId,
        direction: Direction,
        open: &Open,
        options: &TransferOptions,
    ) -> Result<Opened, Refusal> {
        match self.0.open(grant, job, direction, open, options)? {
            Opened::Send { source, is_single, observer } => {
                Ok(Opened::Send { source: Arc::new(Endless(source)), is_single, observer })
            }
            opened => Ok(opened),
        }
    }

    fn ended(&self, _: &Grant, _: JobId, _: Direction, _: &Progress, _: &Ending) {}
}

#[test]
fn an_endpoint_whose_listing_stops_in_its_middle_is_no_progress() {
    const FILES: u64 = 40;
    let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    (0..FILES).for_each(|number| std::fs::write(from.path().join(format!("f{number}")), b"content").unwrap());
    let host = HungListing(OpenHost { root: from.path().to_owned() });
    let endpoint = serve(Server::new(Arc::new(host), Memory::default()));
    let directory = Arc::new(beneath::open_directory(to.path()).unwrap());
    let sink = Arc::new(PosixSink::new(directory.clone(), directory, None));
    let spec = PullSpec {
        id: JobId([1; 16]),
        paths: vec![Vec::new()],
        options: TransferOptions { fsync: Fsync::Never, ..TransferOptions::default() },
        rename_to: None,
        is_sequential: false,
    };
    let client = client(&endpoint, Some(2));
    // Longer than anything takes that comes before it stops, also on a slow host.
    client.set_no_progress_timeout(Duration::from_secs(3));
    let began = Instant::now();
    let report = client.pull(spec, sink, Progress::new(), None, &|| began.elapsed() > PATIENCE).unwrap();
    let Ending::Cancelled { by_peer: false, refusal } = report.ending else { panic!("{}", report.ending) };
    assert_eq!(refusal.code, CloseCode::NoProgress, "{refusal}");
    assert!(refusal.text.contains("does not get on with listing the source"), "{refusal}");
    let done = report.snapshot.counts.files_done;
    assert!((1..FILES).contains(&done), "{done}");
}

#[test]
fn a_request_that_is_never_answered_is_no_progress() {
    let client = client(&mute(feature::ALL), Some(0));
    client.set_no_progress_timeout(Duration::from_secs(1));
    let (began, ask) = (Instant::now(), |number| OrderAsk { number, ..OrderAsk::default() }.into());
    let refused = client.request(ask, &|| began.elapsed() > PATIENCE).unwrap_err();
    assert!(matches!(&refused, AskError::Refused(refusal) if refusal.code == CloseCode::NoProgress), "{refused}");
}

/// Fails at a path that it is asked about, a moment later, and never comes back from the second one.
struct Sluggish(OpenHost);

impl Host for Sluggish {
    fn facts(&self) -> HostFacts {
        self.0.facts()
    }

    fn authorise(&self, pin: Pin, credential: &[u8]) -> Result<Grant, Refusal> {
        self.0.authorise(pin, credential)
    }

    fn open(
        &self,
        grant: &Grant,
        job: JobId,
        direction: Direction,
        open: &Open,
        options: &TransferOptions,
    ) -> Result<Opened, Refusal> {
        self.0.open(grant, job, direction, open, options)
    }

    fn reach(&self, _: &Grant, path: &[u8], _: How) -> Result<Box<dyn Shelf>, NotReached> {
        if path == b"second" {
            loop {
                std::thread::park();
            }
        }
        // For longer than records wait for others to be sent with.
        std::thread::sleep(Duration::from_millis(200));
        Err(NotReached::Failed(store::Error::of_kind(FailureKind::Other, "look at", path, "it is slow")))
    }

    fn ended(&self, _: &Grant, _: JobId, _: Direction, _: &Progress, _: &Ending) {}
}

#[test]
fn an_answer_of_which_there_is_enough_and_that_does_not_end_is_no_progress() {
    let host = Sluggish(OpenHost { root: "/nonexistent".into() });
    let client = client(&serve(Server::new(Arc::new(host), Memory::default())), Some(0));
    client.set_no_progress_timeout(Duration::from_secs(1));
    let question = Question::Usage { paths: vec![b"first".to_vec(), b"second".to_vec()], levels: 0 };
    let (began, mut records) = (Instant::now(), 0);
    let mut each = |_: Record| {
        records += 1;
        false
    };
    let refused = client.ask(&question, &|| began.elapsed() > PATIENCE, &mut each).unwrap_err();
    assert!(matches!(&refused, AskError::Refused(refusal) if refusal.code == CloseCode::NoProgress), "{refused}");
    assert_eq!(records, 1);
}

/// Bytes that no frame begins with, and more after them.
const GARBAGE: &[&[u8]] = &[&[99, 0, 0, 0, 1, 0, 0, 0], &[0], &[0; 16 << 10], &[0; 16 << 10]];

#[test]
fn whoever_waits_for_an_endpoint_that_goes_on_after_it_was_refused_hears_of_the_end() {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path());
    let from = dir.path().to_owned();
    let (ended, has_ended) = mpsc::channel();
    std::thread::spawn(move || {
        let client = client(&saying(feature::ALL, GARBAGE), Some(0));
        let question = Question::List { paths: vec![Vec::new()], levels: 0, digest: None };
        let asked = client.ask(&question, &|| false, &mut |_| true);
        let _ = ended.send(asked.is_err());
        let ending = push(&saying(feature::ALL, GARBAGE), &from);
        let _ = ended.send(matches!(ending, Ending::Cancelled { by_peer: false, .. }));
    });
    for what in ["a question", "a job"] {
        assert!(has_ended.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{what} goes on: {e}")), "{what}");
    }
}

#[test]
fn an_endpoint_without_the_feature_is_not_asked_about_files() {
    let client = client(&mute(feature::ALL & !feature::FILES), Some(0));
    let question = Question::List { paths: vec![Vec::new()], levels: 0, digest: None };
    let refused = client.ask(&question, &|| false, &mut |_| true).unwrap_err();
    let AskError::Refused(refusal) = refused else { panic!("{refused}") };
    assert_eq!(refusal.code, CloseCode::Version);
    assert!(refusal.text.contains("too old"), "{refusal}");
}

#[test]
fn a_question_that_is_never_answered_ends_when_the_user_stops_it() {
    let client = client(&mute(feature::ALL), Some(0));
    let question = Question::List { paths: vec![Vec::new()], levels: 0, digest: None };
    let stopped = client.ask(&question, &|| true, &mut |_| true).unwrap_err();
    assert!(matches!(stopped, AskError::Interrupted(_)), "{stopped}");
}

/// Keeps what a job would say.
#[derive(Default)]
struct Heard(Mutex<Vec<Message>>);

impl Port for Heard {
    fn send(&self, message: Message) {
        self.0.lock().unwrap().push(message);
    }
}

#[test]
fn texts_are_short_when_they_are_said_and_when_they_are_heard() {
    let port = Arc::new(Heard::default());
    let job = || {
        SendJob::new(1, TransferOptions::default(), Arc::new(PosixSource::new()), port.clone(), Progress::new(), None)
    };
    let long = "\u{20ac}".repeat(100_000);
    job().cancel(CloseCode::Internal, &long);
    let said = port.0.lock().unwrap().pop();
    let Some(Message::Cancel(Cancel { text, .. })) = said else { panic!("{said:?}") };
    assert_eq!(text.len(), 1023);
    let heard = job();
    heard.handle(Cancel { job: 1, code: 10, text: long }.into()).unwrap();
    let Some(Ending::Cancelled { refusal, .. }) = heard.end.get() else { panic!() };
    assert_eq!(refusal.text.len(), 1023);
}
