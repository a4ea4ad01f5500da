//! A hostile receiver against the sending half of a job.

use super::{PATIENCE, STEPS_MAX, Told, any_message, content, directory, extent, extents, failures, id};
use super::{job_threads_end, options, runs};
use crate::loopback;
use crate::targets::bytes::Bytes;
use model::{ChunkHasher, DigestAlgorithm, Extent, TransferOptions};
use mover::sender::{SendJob, run_lane};
use mover::{Ending, Memory, Progress};
use net::{Aborter, DataStream};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use store::posix::PosixSource;
use wire::data::{self, CHUNK_HEADER_BYTES, ChunkHeader, ChunkTrailer, Status};
use wire::frame::{FrameHeader, FrameType, HEADER_BYTES, check_data_body};
use wire::message::{Cancel, Credit, Finished, Held, Resend, Settled, Want};
use wire::{Message, Refusal};

const LANES_MAX: usize = 2;
/// Of the files of the source: empty, packed, one chunk, several chunks.
const SIZES: [usize; 12] = [0, 1, 100, 1000, 5000, 100_000, 131_072, 131_073, 200_000, 2_097_157, 3, 77];

pub fn run(bytes: &mut Bytes<'_>) {
    let options = options(bytes);
    let told = Arc::new(Told::default());
    let mut source = PosixSource::new();
    let path = [source_tree().path().as_os_str().as_bytes(), b"/"].concat();
    source.add_local(&path).expect("the source is there");
    let job = SendJob::new(1, options.clone(), Arc::new(source), told.clone(), Progress::new(), None);
    job.is_taken(false);
    job.start();
    told.wait_for(|message| matches!(message, Message::ListEnd(_)));
    let mut lanes: Vec<Lane> = Vec::new();
    for _ in 0..STEPS_MAX {
        if bytes.is_empty() || job.end.is_set() {
            break;
        }
        let message = match bytes.u8() % 12 {
            0 if lanes.len() < LANES_MAX => {
                lanes.push(Lane::start(&job, lanes.len() as u32, &options));
                continue;
            }
            1 if bytes.u8() > 200 => {
                lanes.iter().for_each(|lane| lane.aborter.abort());
                continue;
            }
            what => message(what, bytes),
        };
        let Some(message) = message else { continue };
        if let Err(refusal) = job.handle(message) {
            job.stop(Ending::Cancelled { by_peer: false, refusal });
        }
    }
    job.stop(Ending::Lost("the peer left".into()));
    lanes.into_iter().for_each(Lane::finish);
    job_threads_end(&job);
    told.all();
}

fn message(what: u8, bytes: &mut Bytes<'_>) -> Option<Message> {
    Some(match what {
        2 | 3 => Message::Want(Want { job: 1, runs: runs(bytes), extents: extents(bytes) }),
        4 | 5 => {
            let (published, skipped) = (runs(bytes), runs(bytes));
            let failed = if bytes.u8() > 200 { failures(bytes) } else { Vec::new() };
            Message::Settled(Settled { job: 1, published, skipped, failed, digests: Vec::new(), buffered: Vec::new() })
        }
        6 => Message::Held(Held { job: 1, extents: vec![extent(bytes), extent(bytes)] }),
        7 | 8 => Message::Resend(Resend { job: 1, runs: runs(bytes), extents: extents(bytes), why: "again".into() }),
        9 => Message::Credit(Credit { job: 1, entries: bytes.u64(), in_flight_bytes: u64::from(bytes.u32()) }),
        10 if bytes.u8() > 250 => Message::Finished(Finished { job: 1, ..Finished::default() }),
        10 if bytes.u8() > 250 => Message::Cancel(Cancel { job: 1, code: id(bytes) as u32, text: "no".into() }),
        _ => return any_message(bytes),
    })
}

/// The files that every run offers; made once for the process.
fn source_tree() -> &'static tempfile::TempDir {
    static TREE: OnceLock<tempfile::TempDir> = OnceLock::new();
    TREE.get_or_init(|| {
        let tree = directory();
        std::fs::create_dir(tree.path().join("sub")).expect("a tree for this process");
        for (number, size) in SIZES.iter().enumerate() {
            let folder = if number % 3 == 2 { "sub" } else { "" };
            let path = tree.path().join(folder).join(format!("f{number}"));
            // Every file begins alike, so that what is sent is known without knowing which file it is.
            std::fs::write(path, content(0, 0, *size)).expect("a tree for this process");
        }
        std::os::unix::fs::symlink("f1", tree.path().join("link")).expect("a tree for this process");
        tree
    })
}

/// One lane of the sender, and who reads what it sends.
struct Lane {
    sending: JoinHandle<()>,
    reading: JoinHandle<()>,
    aborter: Aborter,
}

impl Lane {
    fn start(job: &Arc<SendJob>, number: u32, options: &TransferOptions) -> Lane {
        let (near, mut far) = loopback::data_streams().expect("a connection over loopback");
        far.set_io_timeout(Some(PATIENCE));
        let aborter = far.aborter();
        let (job, options) = (job.clone(), options.clone());
        let sending = std::thread::spawn(move || _ = run_lane(&job, number, near, &Memory::default()));
        let reading = std::thread::spawn(move || {
            // A stream that was cut ends anywhere; what came before has to be right.
            if let Err(Read::Wrong(refusal)) = read_frames(&mut far, &options) {
                panic!("a sender sent what a receiver refuses: {refusal}");
            }
        });
        Lane { sending, reading, aborter }
    }

    fn finish(self) {
        self.sending.join().expect("a lane does not panic");
        self.reading.join().expect("a lane sends what can be read");
    }
}

enum Read {
    Cut,
    Wrong(Refusal),
}

impl From<std::io::Error> for Read {
    fn from(_: std::io::Error) -> Read {
        Read::Cut
    }
}

impl From<Refusal> for Read {
    fn from(refusal: Refusal) -> Read {
        Read::Wrong(refusal)
    }
}

fn read_frames(stream: &mut DataStream, options: &TransferOptions) -> Result<(), Read> {
    loop {
        let mut head = [0; HEADER_BYTES];
        stream.recv_exact(&mut head)?;
        let header = FrameHeader::decode(&head)?;
        let kind = header.known()?.expect("a sender sends frames of known types");
        check_data_body(kind, header.body_bytes, options.chunk_bytes)?;
        let mut body = vec![0; header.body_bytes as usize];
        stream.recv_exact(&mut body)?;
        match kind {
            FrameType::Pack => pack(&body, options.digest)?,
            FrameType::Chunk => chunk(&body, options)?,
            _ => return Ok(()),
        }
    }
}

fn pack(body: &[u8], algorithm: DigestAlgorithm) -> Result<(), Refusal> {
    let mut rows = Vec::new();
    let mut payload = data::decode_pack(body, algorithm, &mut rows)?;
    for row in rows {
        let (part, rest) = payload.split_at(row.length as usize);
        payload = rest;
        assert_eq!(row.status, Status::Good, "the source did not change");
        assert_eq!(part, content(0, 0, part.len()), "a sender sent other bytes than it has");
        let extent = Extent::new(0, u64::from(row.length));
        assert_eq!(algorithm.of_object(part).bind(row.object, extent), row.bound);
    }
    Ok(())
}

fn chunk(body: &[u8], options: &TransferOptions) -> Result<(), Refusal> {
    let algorithm = options.digest;
    let (head, rest) = body.split_first_chunk::<CHUNK_HEADER_BYTES>().expect("a chunk has a header");
    let header = ChunkHeader::decode(head, body.len() as u32, algorithm, options.chunk_bytes)?;
    let (part, trailer) = rest.split_at(header.extent.length() as usize);
    let trailer = ChunkTrailer::decode(trailer, algorithm)?;
    assert_eq!(part, content(0, header.extent.start, part.len()), "a sender sent other bytes than it has");
    let mut hasher = ChunkHasher::new(algorithm, header.extent.start);
    hasher.update(part);
    let is_whole = header.extent == Extent::new(0, trailer.object_bytes);
    assert_eq!(hasher.finish(is_whole).bind(header.object, header.extent), trailer.bound);
    Ok(())
}
