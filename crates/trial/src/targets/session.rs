//! A hostile peer on the other side of a job: any messages in any order, any frames on its data streams.
//!
//! The jobs are the production ones over real storage in memory; only the control stream is replaced by calls. Whatever
//! comes, no thread of a job panics, every job ends when it is told to, nothing outside its directory changes, and
//! nothing is published that was not sent whole with its digest.

mod receiver;
mod sender;

use super::bytes::Bytes;
use model::options::Engine;
use model::{DigestAlgorithm, TransferOptions};
use mover::job::Port;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use wire::message::{self, ExtentRecord, FailureRecord, Run};
use wire::{CloseCode, Message};

/// Far more than any step takes; only a hang meets it.
const PATIENCE: Duration = Duration::from_secs(20);
const CHUNK_BYTES: u64 = 1 << 20;
const STEPS_MAX: usize = 24;

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    if bytes.u8() & 1 == 0 {
        receiver::run(&mut bytes);
    } else {
        sender::run(&mut bytes);
    }
}

/// What a job said to the peer that we are.
#[derive(Default)]
struct Told {
    messages: Mutex<Vec<Message>>,
    more: Condvar,
}

impl Port for Told {
    fn send(&self, message: Message) {
        self.messages.lock().unwrap().push(message);
        self.more.notify_all();
    }
}

impl Told {
    /// Waits until something that `is_it` was said, or the patience is over.
    fn wait_for(&self, is_it: impl Fn(&Message) -> bool) {
        let messages = self.messages.lock().unwrap();
        let is_missing = |messages: &mut Vec<Message>| !messages.iter().any(&is_it);
        let _ = self.more.wait_timeout_while(messages, PATIENCE, is_missing).unwrap();
    }

    /// Everything that was said. A job whose thread panicked says so.
    fn all(&self) -> Vec<Message> {
        let messages = self.messages.lock().unwrap().clone();
        for message in &messages {
            if let Message::Cancel(cancel) = message {
                let is_bug = cancel.code == CloseCode::Internal as u32 && cancel.text.contains("bug");
                assert!(!is_bug, "a thread of the job panicked: {}", cancel.text);
            }
        }
        messages
    }
}

/// Waits for what another thread is about to make true.
fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "{what} takes for ever");
        std::thread::park_timeout(Duration::from_micros(20));
    }
}

fn options(bytes: &mut Bytes<'_>) -> TransferOptions {
    let digest = if bytes.u8() & 1 == 0 { DigestAlgorithm::Crc64Nvme } else { DigestAlgorithm::Blake3 };
    TransferOptions { digest, chunk_bytes: CHUNK_BYTES, engine: Engine::Plain, ..TransferOptions::default() }
}

/// An id that is likely to mean something, or any.
fn id(bytes: &mut Bytes<'_>) -> u64 {
    match bytes.u8() {
        255 => bytes.u64(),
        254 => wire::listing::REPLACEMENT_FIRST + u64::from(bytes.u8() % 4),
        small => u64::from(small % 32),
    }
}

fn extent(bytes: &mut Bytes<'_>) -> ExtentRecord {
    let object = id(bytes);
    let mut end_of = || match bytes.u8() {
        255 => bytes.u64(),
        254 => u64::from(bytes.u32()),
        253 => 2 * CHUNK_BYTES + 5,
        small => u64::from(small % 4) * CHUNK_BYTES,
    };
    let (start, end) = (end_of(), end_of());
    ExtentRecord { object, start, end }
}

fn extents(bytes: &mut Bytes<'_>) -> Vec<ExtentRecord> {
    (0..bytes.u8() % 4).map(|_| extent(bytes)).collect()
}

fn runs(bytes: &mut Bytes<'_>) -> Vec<Run> {
    let mut run = || {
        let first = id(bytes);
        let count = match bytes.u8() {
            255 => bytes.u64(),
            small => u64::from(small % 16),
        };
        Run { first, count }
    };
    (0..2).map(|_| run()).filter(|run| run.count > 0).collect()
}

fn failures(bytes: &mut Bytes<'_>) -> Vec<FailureRecord> {
    let count = if bytes.u8() == 255 { 9000 } else { 2 };
    let first = id(bytes);
    let kind = u32::from(bytes.u8());
    let record = |object| FailureRecord { object, kind, text: "gone\x1b[2J".into(), ..FailureRecord::default() };
    (0..count).map(|further| record(first.wrapping_add(further))).collect()
}

/// Any message, from its bytes.
fn any_message(bytes: &mut Bytes<'_>) -> Option<Message> {
    message::decode(bytes.slice(64)).ok().flatten()
}

/// A directory that lives as long as a run, in memory where there is some.
fn directory() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a directory for one run")
}

fn job_threads_end<T>(job: &Arc<T>) {
    wait_until("the end of a job's threads", || Arc::strong_count(job) == 1);
}

/// Bytes of an object, different for each object and at each place.
fn content(object: u64, start: u64, length: usize) -> Vec<u8> {
    let word = |place: u64| {
        let mixed = (place ^ object.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)) as u8
    };
    (0..length as u64).map(|further| word(start.wrapping_add(further))).collect()
}
