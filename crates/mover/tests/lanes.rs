//! A sender's lane whose stream dies while it has nothing to send.

use model::{Generation, TransferOptions};
use mover::job::Port;
use mover::sender::{LaneEnd, SendJob, run_lane};
use mover::{Ending, Memory, Progress};
use net::{ClientTls, DataStream, Identity, ServerTls, accept_tls, connect_tls};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use store::posix::PosixSource;
use store::{Found, Source, SourceFile, SourceLane, SourceObject};
use wire::Message;
use wire::message::{Credit, Pace, Run, Want};

/// Far more than any step takes; only a hang meets it.
const PATIENCE: Duration = Duration::from_secs(30);

struct Told(Mutex<mpsc::Sender<Message>>);

impl Port for Told {
    fn send(&self, message: Message) {
        let _ = self.0.lock().unwrap().send(message);
    }
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

fn frame(stream: &mut DataStream) -> Vec<u8> {
    stream.set_deadline(Some(Instant::now() + PATIENCE));
    let mut frame = vec![0; 8];
    stream.recv_exact(&mut frame).unwrap();
    let length = u32::from_le_bytes(frame[4..8].try_into().unwrap()) as usize;
    frame.resize(8 + length, 0);
    stream.recv_exact(&mut frame[8..]).unwrap();
    frame
}

#[test]
fn a_lane_without_work_notices_that_its_stream_is_gone_and_what_it_sent_is_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), b"content").unwrap();
    let mut source = PosixSource::new();
    source.add_local(&[dir.path().as_os_str().as_encoded_bytes(), b"/"].concat()).unwrap();
    let (told, heard) = mpsc::channel();
    let port = Arc::new(Told(Mutex::new(told)));
    let job = SendJob::new(1, TransferOptions::default(), Arc::new(source), port, Progress::new(), None);
    job.start();
    while !matches!(heard.recv_timeout(PATIENCE).unwrap(), Message::ListEnd(_)) {}
    let runs = vec![Run { first: 1, count: 1 }];
    job.handle(Message::Want(Want { job: 1, runs, extents: Vec::new() })).unwrap();
    let mut sent = Vec::new();
    for number in 0..2 {
        let (near, mut far) = data_streams();
        let lane = std::thread::spawn({
            let job = job.clone();
            move || run_lane(&job, number, near, &Memory::default())
        });
        sent.push(frame(&mut far));
        // Received and lost: nobody settles it.
        drop(far);
        assert!(matches!(lane.join().unwrap(), LaneEnd::Failed(_)));
    }
    assert_eq!(sent[0], sent[1]);
    job.stop(Ending::Lost("over".into()));
}

#[test]
fn a_lane_that_is_to_rest_takes_no_work_until_the_one_that_works_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), vec![7; 64 << 20]).unwrap();
    let mut source = PosixSource::new();
    source.add_local(&[dir.path().as_os_str().as_encoded_bytes(), b"/"].concat()).unwrap();
    let (told, heard) = mpsc::channel();
    let port = Arc::new(Told(Mutex::new(told)));
    let job = SendJob::new(1, TransferOptions::default(), Arc::new(source), port, Progress::new(), None);
    job.start();
    while !matches!(heard.recv_timeout(PATIENCE).unwrap(), Message::ListEnd(_)) {}
    job.handle(Message::Pace(Pace { job: 1, streams: 1, ..Pace::default() })).unwrap();
    let lane = |number: u32| {
        let (near, far) = data_streams();
        let job = job.clone();
        (std::thread::spawn(move || run_lane(&job, number, near, &Memory::default())), far)
    };
    let (first, mut far) = lane(0);
    let runs = vec![Run { first: 1, count: 1 }];
    job.handle(Message::Want(Want { job: 1, runs, extents: Vec::new() })).unwrap();
    let credit = Credit { job: 1, entries: 1000, in_flight_bytes: 1 << 30 };
    job.handle(Message::Credit(credit)).unwrap();
    let mut start = [0; 32];
    far.set_deadline(Some(Instant::now() + PATIENCE));
    far.recv_exact(&mut start).unwrap();
    let (second, mut other) = lane(1);
    other.set_deadline(Some(Instant::now() + Duration::from_millis(300)));
    assert!(other.recv_exact(&mut start).is_err(), "chunks are left, and one lane is to work");
    drop(far);
    assert!(matches!(first.join().unwrap(), LaneEnd::Failed(_)));
    other.set_deadline(Some(Instant::now() + PATIENCE));
    other.recv_exact(&mut start).unwrap();
    drop(other);
    assert!(matches!(second.join().unwrap(), LaneEnd::Failed(_)));
    job.stop(Ending::Lost("over".into()));
}

/// Files that are open, and that were at most.
#[derive(Default)]
struct Open {
    now: AtomicUsize,
    max: AtomicUsize,
}

/// Counts the files of a source that are open.
struct Counting(PosixSource, Arc<Open>);

impl Source for Counting {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> store::Result<()> {
        self.0.scan(emit)
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        Box::new(CountingLane(self.0.lane(), self.1.clone()))
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        self.0.path(object)
    }

    fn look_again(&self, object: &SourceObject) -> store::Result<SourceObject> {
        self.0.look_again(object)
    }
}

struct CountingLane(Box<dyn SourceLane>, Arc<Open>);

impl SourceLane for CountingLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> store::Result<(usize, Generation)> {
        self.0.read_whole(object, buffer)
    }

    fn open(&mut self, object: &SourceObject) -> store::Result<Arc<dyn SourceFile>> {
        let file = self.0.open(object)?;
        self.1.max.fetch_max(self.1.now.fetch_add(1, Relaxed) + 1, Relaxed);
        Ok(Arc::new(CountedFile(file, self.1.clone())))
    }
}

struct CountedFile(Arc<dyn SourceFile>, Arc<Open>);

impl SourceFile for CountedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> store::Result<usize> {
        self.0.read_at(offset, buffer)
    }

    fn generation(&self) -> store::Result<Generation> {
        self.0.generation()
    }
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        self.1.now.fetch_sub(1, Relaxed);
    }
}

#[test]
fn a_file_that_was_read_whole_is_closed_before_it_is_settled() {
    const FILES: u64 = 30;
    let dir = tempfile::tempdir().unwrap();
    for number in 0..FILES {
        // Too large for a pack.
        std::fs::write(dir.path().join(format!("f{number}")), vec![7; 200 << 10]).unwrap();
    }
    let mut source = PosixSource::new();
    source.add_local(&[dir.path().as_os_str().as_encoded_bytes(), b"/"].concat()).unwrap();
    let open = Arc::new(Open::default());
    let (told, heard) = mpsc::channel();
    let (port, source) = (Arc::new(Told(Mutex::new(told))), Arc::new(Counting(source, open.clone())));
    let job = SendJob::new(1, TransferOptions::default(), source, port, Progress::new(), None);
    job.start();
    while !matches!(heard.recv_timeout(PATIENCE).unwrap(), Message::ListEnd(_)) {}
    let runs = vec![Run { first: 1, count: FILES }];
    job.handle(Message::Want(Want { job: 1, runs, extents: Vec::new() })).unwrap();
    let (near, mut far) = data_streams();
    let lane = std::thread::spawn({
        let job = job.clone();
        move || run_lane(&job, 0, near, &Memory::default())
    });
    (0..FILES).for_each(|_| _ = frame(&mut far));
    assert_eq!(open.max.load(Relaxed), 1);
    job.stop(Ending::Lost("over".into()));
    drop(far);
    let _ = lane.join().unwrap();
}
