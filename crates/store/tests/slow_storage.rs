//! On storage where every operation takes 5 ms the probe chooses the queue, and the queue is worth it.
//!
//! Runs on a real mount (`lab::storage`).

use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lab::storage::{SlowStorage, StorageProfile};
use store::posix::engine::probe::GAIN_MIN;
use store::posix::engine::{EngineKind, Shape, Verdict, probe_read, probe_write, reader, writer};

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

/// Reads a file written by `write_rate`, for `enough` at most; returns the bytes per second.
fn read_rate(kind: EngineKind, file: &File, bytes: u64, enough: Duration) -> f64 {
    let mut reader = reader(kind, Shape::of(kind)).unwrap();
    let started = Instant::now();
    reader.start(file.as_fd(), 0, bytes).unwrap();
    let mut offset = 0;
    while started.elapsed() < enough {
        let block = reader.next().unwrap();
        if block.is_empty() {
            assert_eq!(offset, bytes);
            break;
        }
        assert!(block.iter().zip(offset..).all(|(&byte, offset)| byte == byte_at(offset)), "{kind} near {offset}");
        offset += block.len() as u64;
    }
    assert_eq!((reader.engine(), reader.fallback()), (kind, None));
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

#[test]
fn with_5_ms_per_operation_the_queue_is_chosen_and_reads_faster() {
    let Some(slow) = slow_storage() else { return };
    let path = slow.storage.mountpoint().join("file");
    // Not a whole number of pages, so that the last block ends inside one.
    let bytes = FILE_BYTES + 12_345;
    write_rate(EngineKind::UringDirect, &File::create(&path).unwrap(), bytes, Duration::MAX);
    let file = File::open(&path).unwrap();
    let verdict = probe_read(file.as_fd(), 0..bytes, BUDGET);
    eprintln!("read probe: {}", verdict.reason);
    assert_queue_chosen(&verdict);
    let plain = read_rate(EngineKind::PreadPwrite, &file, bytes, Duration::from_secs(1));
    let uring = read_rate(EngineKind::UringDirect, &file, bytes, Duration::MAX);
    eprintln!("reading: plain {:.0} MiB/s, queue {:.0} MiB/s", plain / 1048576.0, uring / 1048576.0);
    assert!(uring >= GAIN_MIN * plain, "plain {plain:.0} bytes/s, queue {uring:.0} bytes/s");
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
        let path = directory.path().join("file");
        std::fs::write(&path, vec![1; FILE_BYTES as usize]).unwrap();
        let verdict = probe_read(File::open(&path).unwrap().as_fd(), 0..FILE_BYTES, BUDGET);
        eprintln!("{} read: {} ({})", directory.path().display(), verdict.chosen, verdict.reason);
    }
}
