//! A sender's lane that claims its next chunk while it reads another one.

use model::{Extent, Generation, TransferOptions};
use mover::job::Port;
use mover::sender::{LaneEnd, SendJob, run_lane};
use mover::{Ending, Memory, Progress};
use net::{ClientTls, DataStream, Identity, ServerTls, accept_tls, connect_tls};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::posix::PosixSource;
use store::{Found, Source, SourceFile, SourceLane, SourceObject};
use wire::Message;
use wire::data::{CHUNK_HEADER_BYTES, ChunkHeader};
use wire::message::{Credit, ExtentRecord, Pace, Resend, Run, Settled, Want};

/// Far more than any step takes; only a hang meets it.
const PATIENCE: Duration = Duration::from_secs(30);
const CHUNK_BYTES: u64 = 256 << 10;
const CHUNKS: u64 = 20;

struct Told(Mutex<mpsc::Sender<Message>>);

impl Port for Told {
    fn send(&self, message: Message) {
        let _ = self.0.lock().unwrap().send(message);
    }
}

/// A source whose lanes read ahead; each says which extent it reads, and waits for a word before it does.
struct Eager {
    source: PosixSource,
    reads: Mutex<mpsc::Sender<u64>>,
    go: Arc<Mutex<mpsc::Receiver<()>>>,
    /// Chunks that lanes were told of before their turn.
    expected: Arc<Mutex<Vec<u64>>>,
}

impl Source for Eager {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> store::Result<()> {
        self.source.scan(emit)
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        let reads = self.reads.lock().unwrap().clone();
        let (go, expected) = (self.go.clone(), self.expected.clone());
        Box::new(EagerLane { lane: self.source.lane(), reads, go, expected })
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        self.source.path(object)
    }

    fn look_again(&self, object: &SourceObject) -> store::Result<SourceObject> {
        self.source.look_again(object)
    }
}

struct EagerLane {
    lane: Box<dyn SourceLane>,
    expected: Arc<Mutex<Vec<u64>>>,
    reads: mpsc::Sender<u64>,
    go: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl SourceLane for EagerLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> store::Result<(usize, Generation)> {
        self.lane.read_whole(object, buffer)
    }

    fn open(&mut self, object: &SourceObject) -> store::Result<Arc<dyn SourceFile>> {
        self.lane.open(object)
    }

    fn reads_ahead(&self) -> bool {
        true
    }

    fn expect(&mut self, _file: Arc<dyn SourceFile>, extent: Extent) {
        self.expected.lock().unwrap().push(extent.start / CHUNK_BYTES);
    }

    fn read_extent(
        &mut self,
        file: &dyn SourceFile,
        extent: Extent,
        block: &mut [u8],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> store::Result<u64> {
        let _ = self.reads.send(extent.start / CHUNK_BYTES);
        let _ = self.go.lock().unwrap().recv();
        self.lane.read_extent(file, extent, block, each)
    }
}

/// One lane that sends files of `CHUNKS` chunks, and the other end of its stream.
struct Bench {
    job: Arc<SendJob>,
    lane: JoinHandle<LaneEnd>,
    far: DataStream,
    reads: mpsc::Receiver<u64>,
    go: mpsc::Sender<()>,
    expected: Arc<Mutex<Vec<u64>>>,
    _dir: tempfile::TempDir,
}

fn data_streams() -> (DataStream, DataStream) {
    let (client, server) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let tls = ClientTls::new(&client, server.pin()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let server = ServerTls::new(&server).unwrap();
    let soon = Instant::now() + PATIENCE;
    let accepting = std::thread::spawn(move || accept_tls(far, &server, soon).unwrap());
    (connect_tls(near, &tls, soon).unwrap().into_data(), accepting.join().unwrap().into_data())
}

impl Bench {
    fn of_files(files: u64) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..files {
            std::fs::write(dir.path().join(number.to_string()), vec![7; (CHUNKS * CHUNK_BYTES) as usize]).unwrap();
        }
        let mut source = PosixSource::new();
        source.add_local(&[dir.path().as_os_str().as_encoded_bytes(), b"/"].concat()).unwrap();
        let (told, heard) = mpsc::channel();
        let ((reading, reads), (go, gone)) = (mpsc::channel(), mpsc::channel());
        let (go_on, expected) = (Arc::new(Mutex::new(gone)), Arc::new(Mutex::default()));
        let source = Eager { source, reads: Mutex::new(reading), go: go_on, expected: Arc::clone(&expected) };
        let options = TransferOptions { chunk_bytes: CHUNK_BYTES, ..TransferOptions::default() };
        let port = Arc::new(Told(Mutex::new(told)));
        let job = SendJob::new(1, options, Arc::new(source), port, Progress::new(), None);
        job.start();
        while !matches!(heard.recv_timeout(PATIENCE).unwrap(), Message::ListEnd(_)) {}
        job.handle(Message::Credit(Credit { job: 1, entries: 1000, in_flight_bytes: 1 << 30 })).unwrap();
        let runs = vec![Run { first: 1, count: files }];
        job.handle(Message::Want(Want { job: 1, runs, extents: Vec::new() })).unwrap();
        let (near, far) = data_streams();
        let lane = std::thread::spawn({
            let job = job.clone();
            move || run_lane(&job, 0, near, &Memory::default())
        });
        Bench { job, lane, far, reads, go, expected, _dir: dir }
    }

    /// The chunk that the lane begins to read.
    fn begins(&self) -> u64 {
        self.reads.recv_timeout(PATIENCE).unwrap()
    }

    /// Lets it read so many.
    fn lets_read(&self, chunks: u64) {
        (0..chunks).for_each(|_| self.go.send(()).unwrap());
    }

    /// The object and the number of the chunk that arrives next.
    fn arrives(&mut self) -> (u64, u64) {
        self.far.set_deadline(Some(Instant::now() + PATIENCE));
        let mut head = vec![0; 8];
        self.far.recv_exact(&mut head).unwrap();
        let length = u32::from_le_bytes(head[4..8].try_into().unwrap());
        let mut body = vec![0; length as usize];
        self.far.recv_exact(&mut body).unwrap();
        let digest = TransferOptions::default().digest;
        let header: &[u8; CHUNK_HEADER_BYTES] = body[..CHUNK_HEADER_BYTES].try_into().unwrap();
        let header = ChunkHeader::decode(header, length, digest, CHUNK_BYTES).unwrap();
        (header.object.0, header.extent.start / CHUNK_BYTES)
    }

    fn ends(self) {
        self.job.stop(Ending::Lost("over".into()));
        drop((self.far, self.go));
        let _ = self.lane.join().unwrap();
    }
}

#[test]
fn every_chunk_is_sent_once() {
    let mut bench = Bench::of_files(2);
    bench.lets_read(2 * CHUNKS);
    let mut arrived: Vec<_> = (0..2 * CHUNKS).map(|_| bench.arrives()).collect();
    arrived.sort_unstable();
    let all: Vec<_> = (1..=2).flat_map(|object| (0..CHUNKS).map(move |chunk| (object, chunk))).collect();
    assert_eq!(arrived, all);
    // The last four of 40 are for whoever is done first.
    assert!(bench.expected.lock().unwrap().len() >= 30);
    bench.ends();
}

#[test]
fn what_was_claimed_ahead_of_an_object_that_is_settled_is_not_sent() {
    let mut bench = Bench::of_files(2);
    assert_eq!(bench.begins(), 0);
    assert_eq!(*bench.expected.lock().unwrap(), [1]);
    let runs = vec![Run { first: 1, count: 1 }];
    bench.job.handle(Message::Settled(Settled { job: 1, skipped: runs, ..Settled::default() })).unwrap();
    bench.lets_read(1 + CHUNKS);
    assert_eq!(bench.arrives(), (1, 0), "it was being read");
    (0..CHUNKS).for_each(|chunk| assert_eq!(bench.arrives(), (2, chunk)));
    bench.ends();
}

#[test]
fn what_was_claimed_ahead_and_is_asked_for_again_is_sent_once() {
    let mut bench = Bench::of_files(1);
    assert_eq!(bench.begins(), 0);
    let extents = vec![ExtentRecord { object: 1, start: 0, end: CHUNKS * CHUNK_BYTES }];
    bench.job.handle(Message::Resend(Resend { job: 1, extents, ..Resend::default() })).unwrap();
    bench.lets_read(1 + CHUNKS);
    let mut arrived: Vec<_> = (0..=CHUNKS).map(|_| bench.arrives().1).collect();
    arrived.sort_unstable();
    let once_and_the_first_again: Vec<_> = std::iter::once(0).chain(0..CHUNKS).collect();
    assert_eq!(arrived, once_and_the_first_again);
    bench.ends();
}

#[test]
fn a_lane_that_is_to_rest_leaves_what_it_claimed_ahead_to_the_others() {
    let mut bench = Bench::of_files(1);
    assert_eq!(bench.begins(), 0);
    let (near, far) = data_streams();
    let job = bench.job.clone();
    let other = std::thread::spawn(move || run_lane(&job, 1, near, &Memory::default()));
    assert_eq!(bench.begins(), 2, "the second one belongs to the first lane");
    bench.job.handle(Message::Pace(Pace { job: 1, streams: 1, ..Pace::default() })).unwrap();
    bench.lets_read(CHUNKS);
    let mut second = std::mem::replace(&mut bench.far, far);
    assert_eq!(bench.arrives(), (1, 2), "it was being read");
    std::mem::swap(&mut bench.far, &mut second);
    let mut arrived: Vec<_> = (1..CHUNKS).map(|_| bench.arrives().1).collect();
    arrived.sort_unstable();
    assert_eq!(arrived, (0..CHUNKS).filter(|chunk| *chunk != 2).collect::<Vec<_>>());
    drop(second);
    bench.ends();
    let _ = other.join().unwrap();
}
