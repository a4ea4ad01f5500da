//! Checks of one large object that two jobs feed, with the lanes and the storage of a transfer.

use super::*;
use crate::Progress;
use crate::job::Port;
use crate::receiver::lane::Writer;
use crate::receiver::listed::Expected;
use crate::receiver::{ReceiveJob, ReceiveSpec};
use model::options::Fsync;
use model::progress::Stage;
use model::{ChunkHasher, Generation, JobId, Kind, Name, ObjectId, Pin, TransferOptions};
use store::posix::{PosixSink, beneath};
use wire::Message;
use wire::data::{ChunkHeader, ChunkTrailer, Status};

const CHUNK: u64 = 64 << 10;
const CHUNKS: u64 = 4;

fn extent(chunks: std::ops::Range<u64>) -> Extent {
    Extent::new(chunks.start * CHUNK, chunks.end * CHUNK)
}

fn content(chunk: u64) -> Vec<u8> {
    vec![b'a' + chunk as u8; CHUNK as usize]
}

#[derive(Default)]
struct Said(Mutex<Vec<Message>>);

impl Port for Said {
    fn send(&self, message: Message) {
        self.0.lock().unwrap().push(message);
    }
}

impl Said {
    /// How many objects were published and failed, and how many extents were asked for again.
    fn settled(&self) -> (u64, usize, usize) {
        let mut said = (0, 0, 0);
        for message in self.0.lock().unwrap().iter() {
            match message {
                Message::Settled(settled) => {
                    said.0 += settled.published.iter().map(|run| run.count).sum::<u64>();
                    said.1 += settled.failed.len();
                }
                Message::Resend(resend) => said.2 += resend.extents.len(),
                _ => {}
            }
        }
        said
    }
}

struct Feeding {
    job: Arc<ReceiveJob>,
    said: Arc<Said>,
    large: Arc<Large>,
}

impl Feeding {
    /// A job that knows the object by this id; it feeds the same object as `first`.
    fn new(sink: &Arc<PosixSink>, id: u64, first: Option<&Feeding>) -> Feeding {
        let options = TransferOptions { chunk_bytes: CHUNK, fsync: Fsync::Never, ..TransferOptions::default() };
        let (job_id, sender) = (JobId([id as u8; 16]), Pin([7; 32]));
        let spec = ReceiveSpec { number: 1, id: job_id, sender, options, rename_to: None };
        let said = Arc::new(Said::default());
        let job = ReceiveJob::new(spec, sink.clone(), said.clone(), Progress::new(), None).unwrap();
        let entry = Entry {
            id: ObjectId(id),
            parent: ObjectId::ROOT,
            name: Name::new(b"object").unwrap(),
            kind: Kind::File,
            mode: 0o644,
            generation: Generation { size_bytes: CHUNKS * CHUNK, ..Generation::default() },
            attributes: None,
        };
        let rule = PublishRule::NoReplace;
        let mut large = Large::new(&job, &entry, rule, model::End::Known).unwrap();
        if let Some(first) = first {
            let large = Arc::get_mut(&mut large).unwrap();
            let object = first.large.object.clone();
            let feeder = object.state.lock().unwrap().feeders.join();
            (large.object, large.feeder) = (object, feeder);
        }
        let objects = vec![(0, Expected { entry, rule, room_bytes: 0 })];
        let listed = Arc::new(Listed { first: id, described: 1, objects, _charge: None });
        large.belongs_to(listed.clone(), 0);
        job.table.lock().unwrap().insert(listed, vec![(id, large.clone())]);
        Feeding { job, said, large }
    }

    /// Brings a chunk with this content, told to have that one.
    fn bring(&self, chunk: u64, content: &[u8], told: &[u8], status: Status) {
        let (extent, object) = (extent(chunk..chunk + 1), ObjectId(self.large.id));
        let mut writer = Writer::new(&self.job, self.job.progress.lane(Stage::Receive), Arc::new(|| {})).unwrap();
        writer.start(&ChunkHeader { object, extent }).unwrap();
        writer.write_block(content);
        let digest = |bytes: &[u8]| {
            let mut hasher = ChunkHasher::new(self.job.options.digest, extent.start);
            hasher.update(bytes);
            hasher.finish(false)
        };
        let bound = digest(told).bind(object, extent);
        writer.end(&ChunkTrailer { status, object_bytes: CHUNKS * CHUNK, bound }, digest(content)).unwrap();
    }

    fn bring_all(&self, chunks: std::ops::Range<u64>, last: Status) {
        let end = chunks.end;
        for chunk in chunks {
            let status = if chunk + 1 == end { last } else { Status::Good };
            self.bring(chunk, &content(chunk), &content(chunk), status);
        }
    }
}

fn two(directory: &std::path::Path) -> (Feeding, Feeding) {
    let directory = Arc::new(beneath::open_directory(directory).unwrap());
    let sink = Arc::new(PosixSink::new(directory.clone(), directory, None));
    let first = Feeding::new(&sink, 1, None);
    let second = Feeding::new(&sink, 7, Some(&first));
    (first, second)
}

fn is_whole(directory: &std::path::Path) -> bool {
    std::fs::read(directory.join("object")).is_ok_and(|read| read == (0..CHUNKS).flat_map(content).collect::<Vec<_>>())
}

#[test]
fn two_jobs_bring_what_each_was_asked_for_and_the_object_is_published_once() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = two(directory.path());
    assert_eq!(first.large.claim(2 * CHUNK), Some(vec![extent(0..2)]));
    assert_eq!(second.large.claim(u64::MAX), Some(vec![extent(2..4)]));
    assert_eq!(first.large.claim(u64::MAX), Some(vec![]), "nothing is asked for twice");
    second.bring_all(2..4, Status::GoodLast);
    first.bring_all(0..1, Status::Good);
    assert!(!directory.path().join("object").exists());
    first.bring_all(1..2, Status::GoodLast);
    assert!(is_whole(directory.path()));
    assert_eq!((first.said.settled(), second.said.settled()), ((1, 0, 0), (0, 0, 0)));
    // Late duplicates find nothing to write to.
    second.bring_all(0..4, Status::GoodLast);
    assert_eq!(second.said.settled(), (0, 0, 0));
}

#[test]
fn what_a_job_that_vanished_was_asked_for_is_open_and_what_it_brought_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = two(directory.path());
    assert_eq!(second.large.claim(3 * CHUNK), Some(vec![extent(0..3)]));
    assert_eq!(first.large.claim(u64::MAX), Some(vec![extent(3..4)]));
    second.bring_all(0..2, Status::Good);
    first.bring_all(3..4, Status::GoodLast);
    drop(second);
    // Its last chunk comes again: nobody said that the source it read was still the one that was listed.
    assert_eq!(first.large.claim(u64::MAX), Some(vec![extent(1..3)]));
    first.bring_all(1..3, Status::GoodLast);
    assert!(is_whole(directory.path()));
    assert_eq!(first.said.settled(), (1, 0, 0));
}

#[test]
fn a_chunk_that_is_not_what_its_digest_says_is_refused_and_open_to_the_other_job() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = two(directory.path());
    assert_eq!(second.large.claim(CHUNK), Some(vec![extent(0..1)]));
    assert_eq!(first.large.claim(u64::MAX), Some(vec![extent(1..4)]));
    second.bring(0, &content(9), &content(0), Status::GoodLast);
    assert_eq!(second.said.settled(), (0, 0, 1));
    first.bring_all(1..4, Status::GoodLast);
    assert!(!directory.path().join("object").exists());
    assert_eq!(first.large.claim(u64::MAX), Some(vec![extent(0..1)]));
    first.bring_all(0..1, Status::GoodLast);
    assert!(is_whole(directory.path()));
}

#[test]
fn a_job_with_other_content_for_a_chunk_that_is_held_fails_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = two(directory.path());
    first.bring_all(0..2, Status::Good);
    second.bring(0, &content(9), &content(9), Status::GoodLast);
    assert_eq!(second.said.settled(), (0, 1, 0));
    assert!(second.large.file(&second.job).unwrap().is_none(), "it brings nothing more");
    first.bring_all(2..4, Status::GoodLast);
    assert!(is_whole(directory.path()));
    assert_eq!(first.said.settled(), (1, 0, 0));
}
