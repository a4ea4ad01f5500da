//! On storage where every operation takes 5 ms a queue is chosen, and is worth it.
//!
//! Runs on a real mount (`lab::storage`).

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lab::storage::{SlowStorage, StorageProfile};
use model::Extent;
use model::options::Engine;
use store::posix::PosixSource;
use store::posix::engine::probe::GAIN_MIN;
use store::posix::engine::{EngineKind, Shape, Verdict, probe_write, writer};
use store::{Account, Engines, Found, Source};

const LATENCY: Duration = Duration::from_millis(5);
const BUDGET: Duration = Duration::from_millis(150);
const FILE_BYTES: u64 = 32 << 20;

/// A slow storage of its own for each test; the directory goes after the mount.
struct Slow {
    storage: SlowStorage,
    _directory: tempfile::TempDir,
}

fn slow_storage() -> Option<Slow> {
    if !needs::fuse() {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let (backing, mount) = (directory.path().join("backing"), directory.path().join("mount"));
    std::fs::create_dir(&backing).unwrap();
    std::fs::create_dir(&mount).unwrap();
    let profile = StorageProfile { read_latency: LATENCY, write_latency: LATENCY, ..StorageProfile::default() };
    let storage = SlowStorage::mount(&backing, &mount, profile).unwrap();
    Some(Slow { storage, _directory: directory })
}

fn byte_at(offset: u64) -> u8 {
    (offset % 251) as u8
}

/// Writes `bytes` through an engine, for `enough` at most; returns the bytes per second.
fn write_rate(kind: EngineKind, file: &File, bytes: u64, enough: Duration) -> f64 {
    let mut writer = writer(kind, Shape::of(kind)).unwrap();
    file.set_len(bytes).unwrap();
    let block_bytes = writer.block_bytes() as u64;
    let started = Instant::now();
    let mut offset = 0;
    while offset < bytes && started.elapsed() < enough {
        let len = block_bytes.min(bytes - offset);
        let buffer = &mut writer.buffer().unwrap()[..len as usize];
        buffer.iter_mut().zip(offset..).for_each(|(byte, offset)| *byte = byte_at(offset));
        writer.write(file.as_fd(), offset, len as usize).unwrap();
        offset += len;
    }
    writer.drain().unwrap();
    assert_eq!((writer.engine(), writer.fallback()), (kind, None));
    offset as f64 / started.elapsed().as_secs_f64()
}

fn assert_queue_chosen(verdict: &Verdict) {
    assert_eq!(verdict.chosen, EngineKind::UringDirect, "{}", verdict.reason);
    let plain = verdict.plain_bytes_per_second.expect("plain calls were raced") as f64;
    let uring = verdict.uring_bytes_per_second.expect("the queue was raced") as f64;
    assert!(uring >= GAIN_MIN * plain, "{}", verdict.reason);
}

#[test]
fn with_5_ms_per_operation_the_queue_is_chosen_and_writes_faster() {
    let Some(slow) = slow_storage() else { return };
    let root = slow.storage.mountpoint();
    let directory = File::open(root).unwrap();
    for fsync in [false, true] {
        let verdict = probe_write(directory.as_fd(), fsync, BUDGET);
        eprintln!("write probe, fsync {fsync}: {}", verdict.reason);
        assert_queue_chosen(&verdict);
    }
    assert_eq!(std::fs::read_dir(root).unwrap().count(), 0, "the probe left something behind");
    let enough = Duration::from_secs(1);
    let plain = write_rate(EngineKind::PreadPwrite, &File::create(root.join("plain")).unwrap(), FILE_BYTES, enough);
    let uring = write_rate(EngineKind::UringDirect, &File::create(root.join("uring")).unwrap(), FILE_BYTES, enough);
    eprintln!("writing: plain {:.0} MiB/s, queue {:.0} MiB/s", plain / 1048576.0, uring / 1048576.0);
    assert!(uring >= GAIN_MIN * plain, "plain {plain:.0} bytes/s, queue {uring:.0} bytes/s");
}

/// Hears what engines say of themselves.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Account for Notes {
    fn hold(&self, _bytes: usize) -> Option<Box<dyn Send>> {
        Some(Box::new(()))
    }

    fn note(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }
}

/// Reads all of a file as a transfer does, chunk by chunk, and returns what is said of the engine.
fn read_by_chunks(path: &Path, depth: usize) -> Vec<String> {
    const CHUNK_BYTES: u64 = 8 << 20;
    let mut source = PosixSource::new();
    source.add_local(path.as_os_str().as_encoded_bytes()).unwrap();
    let mut found = None;
    let mut take = |object| {
        let Found::Object(object) = object else { panic!("nothing fails") };
        found = Some(object);
        true
    };
    source.scan(&mut take).unwrap();
    let (object, notes) = (found.unwrap(), Arc::new(Notes::default()));
    let mut lane = source.lane();
    lane.serve(Engines { requested: Engine::Auto, depth, is_durable: false, account: notes.clone() });
    let (file, mut block) = (lane.open(&object).unwrap(), vec![0; 128 << 10]);
    let mut at = 0;
    while at < object.entry.size_bytes() {
        let extent = Extent::new(at, (at + CHUNK_BYTES).min(object.entry.size_bytes()));
        lane.read_extent(&*file, extent, &mut block, &mut |block| {
            assert!(block.iter().zip(at..).all(|(&byte, offset)| byte == byte_at(offset)), "near {at}");
            at += block.len() as u64;
            true
        })
        .unwrap();
        assert_eq!(at, extent.end);
    }
    let notes = notes.0.lock().unwrap();
    notes.clone()
}

#[test]
fn with_5_ms_per_operation_reading_goes_over_to_a_queue_and_out_of_a_cache_it_does_not() {
    let Some(slow) = slow_storage() else { return };
    // Not a whole number of pages, so that the last block ends inside one; more than a trial reads.
    let bytes = 2 * FILE_BYTES + 12_345;
    let path = slow.storage.mountpoint().join("file");
    write_rate(EngineKind::UringDirect, &File::create(&path).unwrap(), bytes, Duration::MAX);
    for (depth, how) in [(0, ", 8 in flight: pread had"), (4, ", 4 in flight: so many")] {
        let notes = read_by_chunks(&path, depth);
        let is_it = |note: &str| note.starts_with("reads by io_uring") && note.contains(how);
        assert!(matches!(&notes[..], [note] if is_it(note)), "{notes:?}");
    }
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("file");
    write_rate(EngineKind::PreadPwrite, &File::create(&path).unwrap(), bytes, Duration::MAX);
    assert_eq!((read_by_chunks(&path, 0), read_by_chunks(&path, 4)), Default::default());
}

#[test]
fn a_local_directory_is_probed_within_its_budget_and_answers_sanely() {
    for directory in ["/dev/shm", "/var/tmp"] {
        let Ok(directory) = tempfile::tempdir_in(directory) else { continue };
        let opened = File::open(directory.path()).unwrap();
        for fsync in [false, true] {
            let started = Instant::now();
            let verdict = probe_write(opened.as_fd(), fsync, BUDGET);
            let (path, elapsed) = (directory.path().display(), started.elapsed());
            eprintln!("{path} fsync {fsync}: {} ({}) in {elapsed:?}", verdict.chosen, verdict.reason);
            assert!(!verdict.reason.is_empty());
            // What was chosen was measured, unless nothing was.
            let chosen = match verdict.chosen {
                EngineKind::PreadPwrite => verdict.plain_bytes_per_second.or(Some(1)),
                _ => verdict.uring_bytes_per_second,
            };
            assert!(chosen.is_some_and(|rate| rate > 0), "{verdict:?}");
        }
    }
}
