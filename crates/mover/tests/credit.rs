//! Credit for entries at the receiver: what gives it back, and what does not.

use model::{JobId, Pin, TransferOptions};
use mover::Progress;
use mover::job::Port;
use mover::receiver::{ReceiveJob, ReceiveSpec};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use store::posix::{PosixSink, beneath};
use wire::Message;
use wire::limits::{ENTRIES_MAX, ENTRIES_OPEN_MAX};
use wire::message::{Entries, EntryRecord, FailureRecord, SourceFailures};

/// Far more than the answer takes; only a hang meets it.
const PATIENCE: Duration = Duration::from_secs(60);
const DIRECTORY: u32 = 1;

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
    // Grants are sent by the call that settles: whatever there is has been said by now.
    assert_eq!(granted(&heard, ENTRIES_OPEN_MAX, Duration::ZERO), ENTRIES_OPEN_MAX);
}
