//! Credit and memory for entries at the receiver: what gives them back, and what does not.

use model::{JobId, Pin, TransferOptions};
use mover::job::Port;
use mover::limits::LANE_BYTES;
use mover::receiver::{ReceiveJob, ReceiveSpec};
use mover::shares::Holder;
use mover::{Memory, Progress};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use store::posix::{PosixSink, beneath};
use store::synthetic::NullSink;
use wire::limits::{ENTRIES_MAX, ENTRIES_OPEN_MAX};
use wire::message::{Entries, EntryRecord, FailureRecord, Seal, SourceFailures};
use wire::{CloseCode, Message};

/// Far more than the answer takes; only a hang meets it.
const PATIENCE: Duration = Duration::from_secs(60);
const DIRECTORY: u32 = 1;
const FILE: u32 = 2;
const PIPE: u32 = 4;
const GROWING: u32 = 10;

struct Told(Mutex<mpsc::Sender<Message>>);

impl Port for Told {
    fn send(&self, message: Message) {
        let _ = self.0.lock().unwrap().send(message);
    }
}

fn receiver(dir: &std::path::Path) -> (Arc<ReceiveJob>, mpsc::Receiver<Message>) {
    let root = Arc::new(beneath::open_directory(dir).unwrap());
    let sink = Arc::new(PosixSink::new(root.clone(), root, None));
    let (told, heard) = mpsc::channel();
    let spec = ReceiveSpec {
        number: 1,
        id: JobId([1; 16]),
        sender: Pin([0; 32]),
        options: TransferOptions::default(),
        rename_to: None,
    };
    let job = ReceiveJob::new(spec, sink, Arc::new(Told(Mutex::new(told))), Progress::new(), None).unwrap();
    job.start();
    (job, heard)
}

/// What the receiver grants in all, until nothing is heard any more or the total is above `wanted`.
fn granted(heard: &mpsc::Receiver<Message>, wanted: u64, patience: Duration) -> u64 {
    let deadline = Instant::now() + patience;
    let mut total = 0;
    while total <= wanted
        && let Ok(message) = heard.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        if let Message::Credit(credit) = message {
            total = total.max(credit.entries);
        }
    }
    total
}

#[test]
fn directories_give_their_credit_back() {
    let dir = tempfile::tempdir().unwrap();
    let (job, heard) = receiver(dir.path());
    for batch in 0..10u64 {
        let first = 1 + batch * ENTRIES_MAX as u64;
        let record = |id: u64| EntryRecord {
            name: format!("d{id}").into_bytes(),
            kind: DIRECTORY,
            mode: 0o755,
            ..EntryRecord::default()
        };
        let entries = (first..first + ENTRIES_MAX as u64).map(record).collect();
        job.handle(Message::Entries(Entries { job: 1, first, entries })).unwrap();
    }
    assert!(granted(&heard, ENTRIES_OPEN_MAX, PATIENCE) > ENTRIES_OPEN_MAX);
}

#[test]
fn giving_up_what_was_never_described_gives_no_credit() {
    let dir = tempfile::tempdir().unwrap();
    let (job, heard) = receiver(dir.path());
    for batch in 0..20u64 {
        let record = |object| FailureRecord { object, ..FailureRecord::default() };
        let failures = (1 + batch * 1000..1001 + batch * 1000).map(record).collect();
        job.handle(Message::SourceFailures(SourceFailures { job: 1, failures })).unwrap();
    }
    // Grants are sent by the call that settles, and what comes behind the failures is looked at after them.
    described(&job, 1, FILE);
    let mut total = 0;
    loop {
        match heard.recv_timeout(PATIENCE).unwrap() {
            Message::Credit(credit) => total = total.max(credit.entries),
            Message::Want(_) => break,
            _ => {}
        }
    }
    assert_eq!(total, ENTRIES_OPEN_MAX);
}

/// A job that looks at nothing of what it is told, and its account.
fn idle() -> (Arc<ReceiveJob>, Memory) {
    let memory = Memory::of_endpoint(LANE_BYTES);
    let options = TransferOptions::default();
    let spec = ReceiveSpec { number: 1, id: JobId([1; 16]), sender: Pin([0; 32]), options, rename_to: None };
    let port = Arc::new(Told(Mutex::new(mpsc::channel().0)));
    let job = ReceiveJob::new(spec, Arc::new(NullSink), port, Progress::new(), None).unwrap();
    job.charge_to(memory.clone());
    (job, memory)
}

fn described(job: &Arc<ReceiveJob>, first: u64, kind: u32) {
    let entry = EntryRecord { name: format!("f{first}").into_bytes(), kind, mode: 0o644, ..EntryRecord::default() };
    job.handle(Message::Entries(Entries { job: 1, first, entries: vec![entry] })).unwrap();
}

#[test]
fn seals_are_refused_where_nothing_grows_and_charged_where_something_does() {
    let (job, memory) = idle();
    let all = memory.free_to_hold_bytes();
    let seal = |name_bytes| {
        let seal = Seal { job: 1, object: 1, name: vec![b'n'; name_bytes], ..Seal::default() };
        job.handle(Message::Seal(seal)).map_err(|refusal| refusal.code)
    };
    assert!((0..10_000).all(|_| seal(16_000) == Err(CloseCode::WrongState)));
    assert_eq!(memory.free_to_hold_bytes(), all);
    described(&job, 1, GROWING);
    let free = memory.free_to_hold_bytes();
    assert!((0..10_000).all(|_| seal(16_000) == Err(CloseCode::Malformed)));
    assert_eq!(memory.free_to_hold_bytes(), free);
    // One may be sealed again and again; what waits to be looked at is charged.
    assert!((0..1000).all(|_| seal(255) == Ok(())));
    assert!(memory.free_to_hold_bytes() + 1000 * 255 < free);
}

#[test]
fn what_travels_in_chunks_is_charged_as_that_whatever_size_it_is_described_with() {
    let (job, memory) = idle();
    let mut taken = (1..).zip([FILE, PIPE, GROWING]).map(|(first, kind)| {
        let before = memory.free_to_hold_bytes();
        described(&job, first, kind);
        before - memory.free_to_hold_bytes()
    });
    let [file, pipe, growing] = [(); 3].map(|()| taken.next().unwrap());
    assert!(pipe >= file + 1024 && growing > pipe, "{file} {pipe} {growing}");
}

#[test]
fn directories_beyond_a_share_end_the_job_and_name_the_account() {
    let memory = Memory::of_endpoint(1);
    let all = memory.free_to_hold_bytes();
    let (told, heard) = mpsc::channel();
    let options = TransferOptions::default();
    let spec = ReceiveSpec { number: 1, id: JobId([1; 16]), sender: Pin([0; 32]), options, rename_to: None };
    let port = Arc::new(Told(Mutex::new(told)));
    let job = ReceiveJob::new(spec, Arc::new(NullSink), port, Progress::new(), None).unwrap();
    let holder = |client: &str| Holder { client: client.into(), key: Pin([1; 32]), name: "instrument-7".into() };
    job.charge_to(memory.of(holder("3f"), None));
    job.start();
    // Ordinary names: as many as 71 % of what may be held is good for.
    let (mut described, mut credit, mut cancel) = (0, ENTRIES_OPEN_MAX, None);
    while !job.end.is_set() && described < 200_000 {
        let first = described + 1;
        let record = |id: u64| EntryRecord {
            parent: id / 2,
            name: format!("{id:020}").into_bytes(),
            kind: DIRECTORY,
            mode: 0o755,
            ..EntryRecord::default()
        };
        let entries = (first..first + ENTRIES_MAX as u64).map(record).collect();
        job.handle(Message::Entries(Entries { job: 1, first, entries })).unwrap();
        described += ENTRIES_MAX as u64;
        // Within the credit, which comes back as directories are decided.
        while credit < described + ENTRIES_MAX as u64 && !job.end.is_set() {
            if let Ok(message) = heard.recv_timeout(Duration::from_millis(10)) {
                match message {
                    Message::Credit(told) => credit = told.entries,
                    Message::Cancel(told) => cancel = Some(told),
                    _ => {}
                }
            }
        }
    }
    assert!((60_000..190_000).contains(&described), "{described} directories in {all} bytes");
    let told = std::iter::from_fn(|| heard.try_recv().ok()).find_map(|message| match message {
        Message::Cancel(told) => Some(told),
        _ => None,
    });
    let cancel = cancel.or(told).expect("the sender is told");
    assert_eq!(CloseCode::from_number(cancel.code), CloseCode::Limit);
    assert!(cancel.text.starts_with("client 'instrument-7' (ticket 3f) has "), "{}", cancel.text);
    // Somebody else's copy is not touched by that, and all comes back with the job.
    memory.of(holder("other"), None).hold(all / 100, "names").unwrap();
    drop(job);
    let deadline = Instant::now() + PATIENCE;
    while memory.free_to_hold_bytes() < all {
        assert!(Instant::now() < deadline, "{} of {all} came back", memory.free_to_hold_bytes());
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
