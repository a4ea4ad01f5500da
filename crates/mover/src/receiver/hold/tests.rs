//! A job with a buffer whose lanes are driven by hand: what is said when, and what is let go when.

mod failing;

use super::super::receive::StreamLane;
use super::super::{ReceiveJob, ReceiveSpec, decide, drain, owner_of};
use super::*;
use crate::Progress;
use crate::job::{Ending, Port};
use crate::stream::{Breaker, Stream};
use model::progress::Stage;
use model::{ChunkHasher, DigestAlgorithm, JobId, ObjectId, Pin, TransferOptions};
use std::io;
use std::path::Path;
use store::posix::{PosixSink, beneath};
use wire::data::{ChunkHeader, ChunkTrailer, PackRow, Status, encode_pack_table, pack_table_bytes};
use wire::message::{Entries, EntryRecord, FailureRecord, Finish, ListEnd, SourceFailures};
use wire::{FrameType, Message};

const CHUNK: u64 = 1 << 20;
const SMALL: u64 = 1;
const LARGE: u64 = 2;
const ALGORITHM: DigestAlgorithm = DigestAlgorithm::Crc64Nvme;

#[derive(Default)]
struct Said(Mutex<Vec<Message>>);

impl Port for Said {
    fn send(&self, message: Message) {
        self.0.lock().unwrap().push(message);
    }
}

/// Frames from memory.
struct Frames(Vec<u8>);

impl Stream for Frames {
    fn send(&mut self, _: &[&[u8]]) -> io::Result<()> {
        Ok(())
    }

    fn recv_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        if buffer.len() > self.0.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let rest = self.0.split_off(buffer.len());
        buffer.copy_from_slice(&std::mem::replace(&mut self.0, rest));
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn breaker(&self) -> Breaker {
        Arc::new(|| {})
    }

    fn send_blocked_ns(&self) -> u64 {
        0
    }

    fn recv_blocked_ns(&self) -> u64 {
        0
    }
}

struct Bed {
    dir: Arc<tempfile::TempDir>,
    spool: Arc<Spool>,
    job: Arc<ReceiveJob>,
    said: Arc<Said>,
}

fn content(at: u64) -> Vec<u8> {
    vec![b'a' + at as u8; CHUNK as usize]
}

fn pack() -> Vec<u8> {
    pack_of(b"small")
}

fn pack_of(bytes: &[u8]) -> Vec<u8> {
    let (object, extent) = (ObjectId(SMALL), Extent::new(0, bytes.len() as u64));
    let bound = ALGORITHM.of_object(bytes).bind(object, extent);
    let rows = [PackRow { object, length: bytes.len() as u32, status: Status::Good, bound }];
    let mut body = vec![0; pack_table_bytes(1, ALGORITHM)];
    encode_pack_table(&rows, &mut body);
    body.extend_from_slice(bytes);
    wire::frame::encode(FrameType::Pack, &body)
}

/// A chunk of the object of three, the last of which seals it.
fn chunk(at: u64) -> Vec<u8> {
    let header = ChunkHeader { object: ObjectId(LARGE), extent: Extent::new(at * CHUNK, (at + 1) * CHUNK) };
    let mut hasher = ChunkHasher::new(ALGORITHM, header.extent.start);
    hasher.update(&content(at));
    let status = if at == 2 { Status::GoodLast } else { Status::Good };
    let bound = hasher.finish(false).bind(header.object, header.extent);
    let mut body = header.encode().to_vec();
    body.extend(content(at));
    ChunkTrailer { status, object_bytes: 3 * CHUNK, bound }.put(&mut body);
    wire::frame::encode(FrameType::Chunk, &body)
}

fn spec() -> ReceiveSpec {
    let options = TransferOptions { chunk_bytes: CHUNK, buffer: Buffer::Always, ..TransferOptions::default() };
    ReceiveSpec { number: 1, id: JobId([3; 16]), sender: Pin([7; 32]), options, rename_to: None }
}

impl Bed {
    fn new() -> Bed {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir(&root).unwrap();
        let open = |path: &Path| Arc::new(beneath::open_directory(path).unwrap());
        let sink = Arc::new(PosixSink::new(open(&root), open(&root), None));
        Bed::before(dir, sink)
    }

    /// A job in which both objects are wanted, and none of whose lanes runs.
    fn before(dir: tempfile::TempDir, sink: Arc<dyn store::Sink>) -> Bed {
        let dir = Arc::new(dir);
        let spool = Spool::open(&dir.path().join("spool"), 16 << 20).unwrap();
        let said = Arc::new(Said::default());
        let mut job = ReceiveJob::new(spec(), sink, said.clone(), Progress::new(), None).unwrap();
        Arc::get_mut(&mut job).unwrap().durability = store::Durability::Group;
        job.buffer_in(Hold::new(spool.clone(), owner_of(Pin([7; 32]), JobId([3; 16])), Buffer::Always));
        job.hold.get().unwrap().begin(b"opening".to_vec());
        crate::job::spawn(&job, "decide", decide::run, ReceiveJob::cancel);
        let entry = |name: &[u8], size_bytes| EntryRecord {
            name: name.to_vec(),
            kind: 2,
            mode: 0o644,
            size_bytes,
            ..EntryRecord::default()
        };
        let entries = vec![entry(b"small", 5), entry(b"large", 3 * CHUNK)];
        job.handle(Entries { job: 1, first: SMALL, entries }.into()).unwrap();
        let bed = Bed { dir, spool, job, said };
        bed.until(|bed| bed.says(|message| matches!(message, Message::Want(_))));
        bed
    }

    fn until(&self, is_so: impl Fn(&Bed) -> bool) {
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while !is_so(self) {
            assert!(std::time::Instant::now() < deadline, "{:?}", *self.said.0.lock().unwrap());
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    fn says(&self, is_it: impl Fn(&Message) -> bool) -> bool {
        self.said.0.lock().unwrap().iter().any(is_it)
    }

    fn hold(&self) -> &Hold {
        self.job.hold.get().unwrap()
    }

    fn receive(&self, frames: &[Vec<u8>]) {
        let clock = self.job.progress.lane(Stage::Receive);
        let mut lane = StreamLane::new(&self.job, Frames(frames.concat()), clock).unwrap();
        frames.iter().for_each(|_| assert!(lane.frame().is_ok()));
    }

    fn make_durable(&self) {
        let due = self.hold().take_due(Duration::ZERO);
        let kept = self.hold().make_durable(due);
        self.job.tell_buffered(&kept);
    }

    fn end_of_listing(&self) {
        self.job.handle(ListEnd { job: 1, entries: 2, bytes: 5 + 3 * CHUNK }.into()).unwrap();
    }

    fn is_published(&self, name: &str) -> bool {
        self.dir.path().join("root").join(name).exists()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.job.stop(Ending::Lost("over".into()));
    }
}

#[test]
fn buffered_is_said_of_what_is_synced() {
    let bed = Bed::new();
    bed.receive(&[pack(), chunk(0)]);
    let is_told = |message: &Message| match message {
        Message::Held(held) => !held.extents.is_empty(),
        Message::Settled(settled) => !settled.buffered.is_empty(),
        _ => false,
    };
    assert!(!bed.says(is_told) && !bed.is_published("small"));
    let before = bed.spool.syncs();
    bed.make_durable();
    assert!(bed.says(is_told) && bed.spool.syncs() > before);
    assert!(!bed.says(|message| matches!(message, Message::Settled(settled) if !settled.published.is_empty())));
}

#[test]
fn what_is_put_down_is_charged_until_it_is_in_the_buffer_and_nothing_is_that_was_refused() {
    let bed = Bed::new();
    bed.make_durable();
    let free = || bed.job.memory().free_to_hold_bytes();
    let before = free();
    let failures = vec![FailureRecord { text: "x".repeat(1000), ..FailureRecord::default() }; 100];
    bed.job.handle(SourceFailures { job: 1, failures }.into()).unwrap();
    assert!(free() + 100_000 <= before && !bed.hold().is_durable());
    bed.make_durable();
    assert!(free() == before && bed.hold().is_durable());
    let entry = EntryRecord { name: b"late".to_vec(), kind: 2, ..EntryRecord::default() };
    let refused = bed.job.handle(Entries { job: 1, first: 77, entries: vec![entry] }.into());
    assert!(refused.is_err() && bed.hold().is_durable());
}

#[test]
fn a_sender_that_leaves_is_told_that_the_rest_is_buffered_when_all_of_it_is() {
    let bed = Bed::new();
    let told = |bed: &Bed| {
        let said = bed.said.0.lock().unwrap();
        said.iter().find_map(|message| match message {
            Message::Finished(finished) => Some(finished.durable.clone()),
            _ => None,
        })
    };
    bed.receive(&[pack(), chunk(0), chunk(2)]);
    bed.end_of_listing();
    bed.job.handle(Finish { job: 1, is_buffered: true }.into()).unwrap();
    bed.make_durable();
    bed.job.leave_if_buffered();
    assert_eq!(told(&bed), None, "a chunk is missing");
    bed.receive(&[chunk(1)]);
    bed.job.leave_if_buffered();
    assert_eq!(told(&bed), None, "a chunk is not durable");
    bed.make_durable();
    bed.job.leave_if_buffered();
    assert_eq!(told(&bed).as_deref(), Some("buffered"));
    assert!(!bed.is_published("small") && !bed.is_published("large"));
}

#[test]
fn a_chunk_stays_until_it_is_durable_in_staging_and_the_seal_until_the_object_is_settled() {
    let bed = Bed::new();
    bed.receive(&[chunk(0), chunk(2)]);
    bed.make_durable();
    let held = |bed: &Bed| bed.hold().waiting_bytes() / CHUNK;
    assert_eq!(held(&bed), 2);
    drain::drain_by_hand(&bed.job);
    assert_eq!(held(&bed), 2, "a chunk was let go before its staging was durable");
    drain::make_durable(&bed.job, bed.hold().take_until_durable(true));
    assert_eq!(held(&bed), 1, "the one that seals the object stays");
}

#[test]
fn what_a_lane_has_when_the_job_ends_waits_for_whoever_carries_it_on() {
    let bed = Bed::new();
    bed.receive(&[pack(), chunk(0), chunk(1)]);
    bed.make_durable();
    let held = bed.hold().waiting_bytes();
    bed.job.stop(Ending::Lost("the endpoint is shutting down".into()));
    drain::drain_by_hand(&bed.job);
    drain::drain_by_hand(&bed.job);
    assert_eq!(bed.hold().waiting_bytes(), held);
    let Bed { spool, job, .. } = &bed;
    let came = super::super::replay(job, &[], &super::super::Deaf::default()).unwrap();
    assert_eq!(came, super::super::Came::Stuck, "what an endpoint had no time for is not thrown away");
    assert!(spool.used_bytes() > 0);
}

#[test]
fn what_rots_in_the_buffer_is_asked_for_again_and_not_published() {
    let bed = Bed::new();
    bed.receive(&[pack(), chunk(0)]);
    bed.make_durable();
    for number in 0..16 {
        let path = bed.dir.path().join(format!("spool/segment-{number:05}"));
        let bytes = std::fs::read(&path).unwrap_or_default();
        if let Some(at) = bytes.windows(5).position(|window| window == b"small" || window == b"aaaaa") {
            use std::os::unix::fs::FileExt;
            let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(b"!", at as u64 + 2).unwrap();
        }
    }
    drain::drain_by_hand(&bed.job);
    assert!(bed.says(|message| matches!(message, Message::Resend(_))));
    assert!(!bed.is_published("small"));
    assert!(bed.job.end.get().is_none(), "{:?}", bed.job.end.get());
}

#[test]
fn what_is_damaged_on_its_way_does_not_wait_but_is_asked_for_at_once() {
    let bed = Bed::new();
    let mut frames = [pack(), chunk(0)];
    frames.iter_mut().for_each(|frame| {
        let at = frame.len() - 40.min(frame.len() / 8);
        frame[at] ^= 1;
    });
    let last = frames[0].len() - 1;
    frames[0][last] ^= 2;
    bed.receive(&frames);
    let asked = |bed: &Bed| bed.said.0.lock().unwrap().iter().filter(|m| matches!(m, Message::Resend(_))).count();
    assert!(asked(&bed) >= 2, "{:?}", *bed.said.0.lock().unwrap());
    assert_eq!(bed.hold().waiting_bytes(), 0);
}

/// An endpoint without clients.
struct Site {
    root: std::path::PathBuf,
    spool: Arc<Spool>,
    ended: Mutex<Vec<String>>,
    /// The next job that is opened finds a fault.
    fails: AtomicBool,
}

impl crate::session::Host for Site {
    fn facts(&self) -> crate::session::HostFacts {
        crate::session::HostFacts { name: "site".into(), is_read_only: false }
    }

    fn authorise(&self, _: Pin, _: &[u8]) -> Result<crate::session::Grant, wire::Refusal> {
        Err(wire::Refusal::new(wire::CloseCode::Authentication, "nobody is let in"))
    }

    fn open(
        &self,
        grant: &crate::session::Grant,
        _: JobId,
        _: wire::handshake::Direction,
        open: &wire::message::Open,
        _: &TransferOptions,
    ) -> Result<crate::session::Opened, wire::Refusal> {
        assert!(!self.fails.swap(false, Relaxed), "once, as it was told to");
        assert_eq!((&grant.name[..], &open.paths[..]), ("lab", &[b"in".to_vec()][..]));
        let root = Arc::new(beneath::open_directory(&self.root).unwrap());
        let sink = Arc::new(PosixSink::new(root.clone(), root, None));
        let (rename_to, observer, file_system, asked) = (None, None, String::new(), None);
        Ok(crate::session::Opened::Receive { sink, rename_to, observer, file_system, asked })
    }

    fn buffer(&self) -> Option<Arc<Spool>> {
        Some(self.spool.clone())
    }

    fn ended(&self, _: &crate::session::Grant, _: JobId, _: wire::handshake::Direction, _: &Progress, ending: &Ending) {
        self.ended.lock().unwrap().push(ending.to_string());
    }
}

/// What attempts to send `f`, one after another, leave in the buffer of an endpoint that is started again, and that `fails` once.
/// What `f` is in the end.
fn carried_on_after_a_restart(attempts: &[&[u8]], fails: bool) -> Vec<u8> {
    use crate::receiver::Opening;
    let dir = tempfile::tempdir().unwrap();
    let (root, path) = (dir.path().join("root"), dir.path().join("spool"));
    std::fs::create_dir(&root).unwrap();
    let (pin, id) = (Pin([7; 32]), JobId([3; 16]));
    for content in attempts {
        let spool = Spool::open(&path, 16 << 20).unwrap();
        let hold = Hold::new(spool.clone(), owner_of(pin, id), Buffer::Always);
        let options = crate::job_options::options_to_wire(&TransferOptions::default());
        let (paths, options) = (vec![b"in".to_vec()], Some(options));
        let open =
            wire::message::Open { job: 1, job_id: id.0.to_vec(), direction: 1, paths, options, ..Default::default() };
        hold.begin(Opening { pin, account: "serve".into(), name: "lab".into(), warrant: None, open }.encode());
        let size_bytes = content.len() as u64;
        let entry = EntryRecord { name: b"f".to_vec(), kind: 2, mode: 0o644, size_bytes, ..EntryRecord::default() };
        let note = |message: Message| hold.note(hold.told(&message).unwrap(), None);
        note(Entries { job: 1, first: SMALL, entries: vec![entry] }.into());
        note(ListEnd { job: 1, entries: 1, bytes: size_bytes }.into());
        let (what, frame) = (What::Pack(vec![SMALL]), pack_of(content));
        let bytes = what.parcel_bytes(frame.len() as u64);
        let mut room = spool.reserve(hold.owner, Kind::Content, bytes).unwrap().unwrap();
        [what.head(), frame, what.flags().to_vec()].iter().for_each(|part| room.write(part).unwrap());
        hold.keep(room.commit().unwrap(), what);
        hold.make_durable(hold.take_due(Duration::ZERO));
    }
    let spool = Spool::open(&path, 16 << 20).unwrap();
    assert_eq!(spool.found().len(), attempts.len());
    let (ended, fails) = (Mutex::default(), AtomicBool::new(fails));
    let site = Arc::new(Site { root: root.clone(), spool: spool.clone(), ended, fails });
    let server = crate::session::Server::new(site.clone(), crate::Memory::default());
    server.start_draining().unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while site.ended.lock().unwrap().len() < attempts.len() || spool.used_bytes() > 0 {
        assert!(std::time::Instant::now() < deadline, "{:?}", *site.ended.lock().unwrap());
        std::thread::park_timeout(Duration::from_millis(5));
    }
    assert_eq!(*site.ended.lock().unwrap(), vec!["finished"; attempts.len()]);
    std::fs::read(root.join("f")).unwrap()
}

#[test]
fn what_waits_goes_on_without_its_sender_after_a_restart() {
    assert_eq!(carried_on_after_a_restart(&[b"small"], false), b"small");
}

#[test]
fn what_several_attempts_at_a_job_left_comes_to_its_place_in_their_order() {
    let attempts: [&[u8]; 6] = [b"1", b"22", b"333", b"4444", b"55555", b"666666"];
    assert_eq!(carried_on_after_a_restart(&attempts, false), b"666666");
}

#[test]
fn what_waits_goes_on_after_a_fault_in_carrying_it_on() {
    assert_eq!(carried_on_after_a_restart(&[b"small"], true), b"small");
}

/// All room that an owner may have for content.
fn all_room(bed: &Bed) -> Vec<Room> {
    let room = || bed.spool.reserve(bed.hold().owner, Kind::Content, 1 << 18).unwrap();
    std::iter::from_fn(room).collect()
}

#[test]
fn what_finds_no_room_to_be_put_down_waits_for_it_and_the_buffer_goes_on() {
    let bed = Bed::new();
    bed.receive(&[pack()]);
    bed.make_durable();
    let room = all_room(&bed);
    let failures = vec![FailureRecord { text: "x".repeat(1000), ..FailureRecord::default() }; 100];
    let message: Message = SourceFailures { job: 1, failures }.into();
    (0..30).for_each(|_| bed.hold().note(bed.hold().told(&message).unwrap(), None));
    bed.make_durable();
    assert!(!bed.hold().is_durable() && bed.hold().why_lost().is_none());
    drop(room);
    bed.make_durable();
    assert!(bed.hold().is_durable() && bed.hold().why_lost().is_none());
}

#[test]
fn a_chunk_for_which_there_is_no_room_goes_straight_on_when_only_its_object_waits() {
    let bed = Bed::new();
    bed.receive(&[chunk(2)]);
    bed.make_durable();
    drain::drain_by_hand(&bed.job);
    drain::make_durable(&bed.job, bed.hold().take_until_durable(true));
    assert_eq!(bed.hold().waiting_bytes() / CHUNK, 1, "the one that seals the object stays");
    let (_room, end) = (all_room(&bed), End::default());
    std::thread::scope(|scope| {
        let chunk = scope.spawn(|| bed.hold().room(CHUNK, &|| false, &end).is_none());
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while !chunk.is_finished() && std::time::Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let is_let_on = chunk.is_finished();
        end.set(Ending::Lost("over".into()));
        assert!(chunk.join().unwrap() && is_let_on);
    });
}
