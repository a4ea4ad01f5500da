//! A hostile sender against the receiving half of a job.

use super::{CHUNK_BYTES, STEPS_MAX, Told, any_message, content, directory, failures, id, job_threads_end, options};
use super::{PATIENCE, wait_until};
use crate::loopback;
use crate::targets::bytes::Bytes;
use model::{Digest, DigestAlgorithm, Extent, JobId, ObjectId, Pin};
use mover::receiver::{ReceiveJob, ReceiveSpec, run_lane};
use mover::{Ending, Memory, Progress};
use net::DataStream;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use store::posix::{PosixSink, beneath};
use wire::data::{self, ChunkHeader, ChunkTrailer, PackRow, Status};
use wire::frame::{self, FrameHeader, FrameType};
use wire::limits::ENTRIES_OPEN_MAX;
use wire::message::{Cancel, Entries, EntryRecord, Finish, ListEnd, SourceFailures};
use wire::{CloseCode, Message};

const DIRECTORY: u32 = 1;
const OPEN_ENDED: u32 = 4;
const NAMES: [&[u8]; 10] =
    [b"a", b"b", b"old", b"out", b"..", b"a/b", b"", b".thalweg-staging-0", b"\xff\x1b", b"directory"];

pub fn run(bytes: &mut Bytes<'_>) {
    let place = directory();
    let (root, outside) = (place.path().join("root"), place.path().join("outside"));
    prepare(&root, &outside);
    let mut peer = Peer::new(&root, bytes);
    for _ in 0..STEPS_MAX {
        if bytes.is_empty() || peer.job.end.is_set() {
            break;
        }
        peer.step(bytes);
    }
    peer.finish(&root);
    assert_eq!(std::fs::read(outside.join("a")).ok().as_deref(), Some(&b"theirs"[..]), "a file outside changed");
    assert_eq!(std::fs::read_dir(&outside).map_or(0, Iterator::count), 1, "something appeared outside");
}

fn prepare(root: &Path, outside: &Path) {
    let made = std::fs::create_dir(root)
        .and_then(|()| std::fs::create_dir(outside))
        .and_then(|()| std::fs::write(outside.join("a"), b"theirs"))
        .and_then(|()| std::fs::write(root.join("old"), b"old"))
        .and_then(|()| std::os::unix::fs::symlink("../outside", root.join("out")));
    made.expect("a tree for one run");
}

struct Described {
    name: Vec<u8>,
    size_bytes: u64,
    is_open_ended: bool,
}

struct Peer {
    job: Arc<ReceiveJob>,
    told: Arc<Told>,
    algorithm: DigestAlgorithm,
    next: u64,
    next_replacement: u64,
    described: HashMap<u64, Described>,
    /// Listed in all, as the receiver counts.
    listed: u64,
    /// Lengths at which an object was sealed.
    sealed: HashMap<u64, HashSet<u64>>,
    lane: Option<(DataStream, JoinHandle<()>)>,
}

impl Peer {
    fn new(root: &Path, bytes: &mut Bytes<'_>) -> Peer {
        let options = options(bytes);
        let algorithm = options.digest;
        let root = Arc::new(beneath::open_directory(root).expect("made before"));
        let sink = Arc::new(PosixSink::new(root.clone(), root, None));
        let told = Arc::new(Told::default());
        let spec = ReceiveSpec { number: 1, id: JobId([1; 16]), sender: Pin([0; 32]), options, rename_to: None };
        let job = ReceiveJob::new(spec, sink, told.clone(), Progress::new(), None).expect("a directory is looked at");
        job.start();
        Peer {
            job,
            told,
            algorithm,
            next: 1,
            next_replacement: wire::listing::REPLACEMENT_FIRST,
            described: HashMap::new(),
            listed: 0,
            sealed: HashMap::new(),
            lane: None,
        }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        let message = match bytes.u8() % 12 {
            0..=2 => return self.entries(bytes),
            3 | 4 => return self.pack(bytes),
            5 | 6 => return self.chunk(bytes),
            7 => Some(Message::SourceFailures(SourceFailures { job: 1, failures: failures(bytes) })),
            8 => Some(Message::ListEnd(ListEnd { job: 1, entries: bytes.u64(), bytes: bytes.u64() })),
            9 if bytes.u8() < 64 => Some(Message::Finish(Finish { job: 1, is_buffered: false })),
            9 if bytes.u8() < 16 => Some(Message::Cancel(Cancel { job: 1, code: 11, text: "enough".into() })),
            10 => return self.raw_frame(bytes),
            // Listings are made by `entries` alone, which knows what it described.
            _ => any_message(bytes).filter(|message| !matches!(message, Message::Entries(_))),
        };
        if let Some(message) = message {
            self.say(message);
        }
    }

    /// Says a message as a session does: one that is refused ends it.
    fn say(&mut self, message: Message) {
        if let Message::SourceFailures(told) = &message {
            self.listed += told.failures.iter().filter(|record| record.object == 0).count() as u64;
        }
        if let Err(refusal) = self.job.handle(message) {
            self.job.stop(Ending::Cancelled { by_peer: false, refusal });
        }
    }

    fn entries(&mut self, bytes: &mut Bytes<'_>) {
        let is_replacement = bytes.u8() > 240;
        let next = if is_replacement { &mut self.next_replacement } else { &mut self.next };
        let first = if bytes.u8() > 250 { bytes.u64() } else { *next };
        let count = u64::from(bytes.u8() % 6) + 1;
        let records: Vec<EntryRecord> = (0..count).map(|_| record(bytes)).collect();
        if first == *next {
            *next += count;
            for (id, record) in (first..).zip(&records) {
                let is_open_ended = record.kind == OPEN_ENDED;
                let described = Described { name: record.name.clone(), size_bytes: record.size_bytes, is_open_ended };
                self.described.insert(id, described);
            }
        }
        let is_taken = self.job.handle(Message::Entries(Entries { job: 1, first, entries: records }));
        match is_taken {
            Ok(()) => self.listed += count,
            Err(refusal) => self.job.stop(Ending::Cancelled { by_peer: false, refusal }),
        }
        let (job, listed) = (&self.job, self.listed);
        let counters = &job.progress.counters;
        wait_until("an answer to a listing", || {
            job.end.is_set() || counters.files_listed.load(Relaxed) + counters.directories.load(Relaxed) >= listed
        });
    }

    fn pack(&mut self, bytes: &mut Bytes<'_>) {
        let (mut rows, mut payload) = (Vec::new(), Vec::new());
        for _ in 0..bytes.u8() % 5 + 1 {
            let object = id(bytes);
            let size = self.described.get(&object).map_or(3, |described| described.size_bytes);
            let how = bytes.u8();
            let length = if how > 250 { usize::from(how) } else { size.min(100_000) as usize };
            let mut part = content(object, 0, length);
            let digest = self.algorithm.of_object(&part);
            let bound = digest.bind(ObjectId(object), Extent::new(0, length as u64));
            let status = status(bytes);
            // Damaged after its digest was taken.
            if how & 7 == 7 && !part.is_empty() {
                let at = usize::from(bytes.u16()) % part.len();
                part[at] ^= 1;
            }
            rows.push(PackRow { object: ObjectId(object), length: length as u32, status, bound });
            payload.extend_from_slice(&part);
        }
        let mut body = vec![0; data::pack_table_bytes(rows.len(), self.algorithm)];
        data::encode_pack_table(&rows, &mut body);
        body.extend_from_slice(&payload);
        self.send(FrameType::Pack, &body);
    }

    fn chunk(&mut self, bytes: &mut Bytes<'_>) {
        let object = id(bytes);
        let (size, is_open_ended) =
            self.described.get(&object).map_or((CHUNK_BYTES, false), |d| (d.size_bytes, d.is_open_ended));
        let start = u64::from(bytes.u8() % 4) * CHUNK_BYTES;
        let how = bytes.u8();
        let length = match how {
            200..220 => u64::from(how),
            _ if is_open_ended => u64::from(bytes.u8()).min(CHUNK_BYTES) * 4111,
            _ => size.saturating_sub(start).min(CHUNK_BYTES),
        }
        .min(CHUNK_BYTES);
        let mut part = content(object, start, length as usize);
        let extent = Extent::new(start, start + length);
        let mut hasher = model::ChunkHasher::new(self.algorithm, start);
        hasher.update(&part);
        let status = status(bytes);
        let object_bytes = if is_open_ended { extent.end } else { size };
        let is_whole = start == 0 && status == Status::GoodLast && extent.end == object_bytes;
        let bound = hasher.finish(is_whole).bind(ObjectId(object), extent);
        if how & 7 == 7 && !part.is_empty() {
            let at = bytes.u32() as usize % part.len();
            part[at] ^= 1;
        }
        self.sealed.entry(object).or_default().insert(object_bytes);
        let mut body = ChunkHeader { object: ObjectId(object), extent }.encode().to_vec();
        body.extend_from_slice(&part);
        ChunkTrailer { status, object_bytes, bound }.put(&mut body);
        self.send(FrameType::Chunk, &body);
    }

    fn raw_frame(&mut self, bytes: &mut Bytes<'_>) {
        let kind = [FrameType::Pack, FrameType::Chunk, FrameType::End, FrameType::Message][usize::from(bytes.u8() % 4)];
        let body = bytes.slice(120).to_vec();
        self.send(kind, &body);
    }

    fn send(&mut self, kind: FrameType, body: &[u8]) {
        let job = &self.job;
        let (near, _) = self.lane.get_or_insert_with(|| {
            let (mut near, far) = loopback::data_streams().expect("a connection over loopback");
            near.set_io_timeout(Some(PATIENCE));
            let job = job.clone();
            let lane = move || {
                run_lane(&job, far, &Memory::default(), &mut |refusal| {
                    job.stop(Ending::Cancelled { by_peer: false, refusal });
                });
            };
            (near, std::thread::spawn(lane))
        });
        // A lane that refused what came before reads no more.
        let _ = near.send(&[&frame::encode(kind, body)]);
    }

    fn finish(mut self, root: &Path) {
        if let Some((mut near, lane)) = self.lane.take() {
            let _ = near.send(&[&FrameHeader::new(FrameType::End, 0).encode()]);
            let _ = near.close();
            lane.join().expect("a lane does not panic");
        }
        self.job.stop(Ending::Lost("the peer left".into()));
        job_threads_end(&self.job);
        self.check_told();
        let files = self.check_files(root, root);
        assert!(files <= self.described.len() + 1);
        drop(self.job);
        let staging = std::fs::read_dir(root).into_iter().flatten().flatten();
        for staging in staging.filter(|d| d.file_name().as_encoded_bytes().starts_with(b".thalweg-staging-")) {
            let hosts = std::fs::read_dir(staging.path()).into_iter().flatten().flatten();
            let left = hosts.flat_map(|host| std::fs::read_dir(host.path()).into_iter().flatten().flatten());
            let lanes = left.filter(|d| d.file_name().as_encoded_bytes().starts_with(b"lane-"));
            assert_eq!(lanes.count(), 0, "the staging of a lane is left over");
        }
    }

    /// Nothing is settled twice or without having been described, and credit does not grow beyond what was described.
    fn check_told(&self) {
        let mut settled = HashSet::new();
        let described = self.described.len() as u64;
        for message in self.told.all() {
            match message {
                Message::Settled(told) => {
                    let ids = told.published.iter().chain(&told.skipped).flat_map(wire::message::Run::ids);
                    for id in ids.chain(told.failed.iter().map(|record| record.object)) {
                        assert!(self.described.contains_key(&id), "object {id} was settled and never described");
                        assert!(settled.insert(id), "object {id} was settled twice");
                    }
                    told.digests.iter().for_each(|record| self.check_digest(record.object, &record.digest));
                }
                Message::Credit(credit) => {
                    assert!(credit.entries <= described + ENTRIES_OPEN_MAX, "credit for {} entries", credit.entries);
                }
                Message::Cancel(cancel) => assert_ne!(cancel.code, CloseCode::Done as u32),
                _ => {}
            }
        }
    }

    /// The digest that is told of an object is that of the bytes it was sealed with.
    fn check_digest(&self, object: u64, digest: &[u8]) {
        let told: Option<Digest> = self.algorithm.digest_from_bytes(digest);
        let sealed = self.sealed.get(&object).into_iter().flatten();
        let mut made = sealed.map(|size| self.algorithm.of_object(&content(object, 0, (*size).min(1 << 23) as usize)));
        assert!(made.any(|digest| Some(digest) == told), "the digest of object {object} is of other bytes");
    }

    /// Every file below the destination is one that was sent whole, or the one that was there. Returns how many.
    fn check_files(&self, root: &Path, at: &Path) -> usize {
        let mut files = 0;
        for found in std::fs::read_dir(at).into_iter().flatten().flatten() {
            let (path, name) = (found.path(), found.file_name());
            let kind = found.file_type().expect("known of what was listed");
            if kind.is_dir() && !name.as_encoded_bytes().starts_with(b".thalweg-staging-") {
                files += self.check_files(root, &path);
            }
            if !kind.is_file() {
                continue;
            }
            files += 1;
            let bytes = std::fs::read(&path).expect("a published file is read");
            let is_old = at == root && name == "old" && bytes == b"old";
            let is_sent = self.described.iter().any(|(id, described)| {
                let is_size = described.is_open_ended || described.size_bytes == bytes.len() as u64;
                described.name == name.as_encoded_bytes() && is_size && content(*id, 0, bytes.len()) == bytes
            });
            assert!(is_old || is_sent, "{} was never sent so", path.display());
        }
        files
    }
}

fn record(bytes: &mut Bytes<'_>) -> EntryRecord {
    let name = match bytes.u8() {
        255 => bytes.slice(255).to_vec(),
        small => NAMES[usize::from(small) % NAMES.len()].to_vec(),
    };
    let size_bytes = match bytes.u8() {
        255 => bytes.u64(),
        254 => i64::MAX as u64,
        240..=253 => 2 * CHUNK_BYTES + 5,
        220..=239 => 200_000,
        small => u64::from(small),
    };
    let kind = u32::from(bytes.u8() % 6);
    let is_file = kind > DIRECTORY;
    EntryRecord {
        parent: if bytes.u8() > 128 { id(bytes) } else { 0 },
        name,
        kind,
        mode: u32::from(bytes.u16() & 0o777) | 0o700,
        size_bytes: if kind == OPEN_ENDED || !is_file { 0 } else { size_bytes },
        modified_seconds: i64::from(bytes.u8()) - 9,
        link: if kind == 3 { bytes.slice(40).to_vec() } else { Vec::new() },
        ..EntryRecord::default()
    }
}

fn status(bytes: &mut Bytes<'_>) -> Status {
    match bytes.u8() {
        0..=120 => Status::Good,
        121..=230 => Status::GoodLast,
        231..=243 => Status::Changed,
        _ => Status::Failed,
    }
}
