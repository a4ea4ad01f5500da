//! A sender's lane whose stream dies while it has nothing to send.

use model::TransferOptions;
use mover::job::Port;
use mover::sender::{LaneEnd, SendJob, run_lane};
use mover::{Ending, Memory, Progress};
use net::{ClientTls, DataStream, Identity, ServerTls, accept_tls, connect_tls};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use store::posix::PosixSource;
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
