//! What a reader at the destination sees of a file that grows.

use super::{Bench, File, Followed, WAYS, Way, append, renamed};
use crate::endpoint::content;
use model::follow::{UNFINISHED, Until, View};
use model::{DigestAlgorithm, FailureKind};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

impl Bench {
    fn showing(patterns: &[&[u8]]) -> Bench {
        let unfinished = patterns.iter().map(|pattern| Box::from(*pattern)).collect();
        Bench { view: Some(Arc::new(View { unfinished })), ..Bench::new() }
    }

    fn wait_for_bytes(&self, name: &str, bytes: u64) {
        self.wait_for("it is shown", || fs::metadata(self.to(name)).is_ok_and(|found| found.len() >= bytes));
    }
}

/// Reads a file as it grows and compares every byte, until it is told to stop and has seen all that there is.
fn read_along(path: PathBuf, expected: Arc<Vec<u8>>, is_over: Arc<AtomicBool>) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || {
        let file = loop {
            match File::open(&path) {
                Ok(file) => break file,
                Err(_) if is_over.load(Relaxed) => return 0,
                Err(_) => std::thread::park_timeout(Duration::from_millis(1)),
            }
        };
        let (mut at, mut length, mut block) = (0, 0, vec![0; 300_000]);
        loop {
            let is_last = is_over.load(Relaxed);
            let found = file.metadata().unwrap().len();
            assert!(found >= length, "it shrank from {length} to {found}");
            length = found;
            let read = file.read_at(&mut block, at as u64).unwrap();
            assert!(block[..read] == expected[at..at + read], "other bytes than the source's from {at} on");
            at += read;
            if read == 0 && is_last {
                return at;
            }
            if read == 0 {
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
    })
}

#[test]
fn a_reader_follows_the_file_from_its_first_byte_to_its_last_and_sees_nothing_else() {
    for (way, digest) in WAYS {
        let bench = Bench::showing(&UNFINISHED);
        let whole = Arc::new(content(7, (6 << 20) + 12_345));
        let is_over = Arc::new(AtomicBool::new(false));
        let reader = read_along(bench.to("a.dat.inprogress"), whole.clone(), is_over.clone());
        let job = bench.start(way, renamed(), digest);
        for part in whole.chunks(1_100_001) {
            append(&bench.from("a.dat.inprogress"), part);
        }
        bench.wait_for_bytes("a.dat.inprogress", whole.len() as u64);
        assert_eq!(fs::metadata(bench.to("a.dat.inprogress")).unwrap().mode() & 0o222, 0, "others may write to it");
        assert!(!bench.to("a.dat").exists());
        fs::rename(bench.from("a.dat.inprogress"), bench.from("a.dat")).unwrap();
        bench.wait_for("it is sealed", || bench.heard.has_sealed("a.dat", whole.len() as u64));
        assert!(!bench.to("a.dat.inprogress").exists());
        is_over.store(true, Relaxed);
        assert_eq!(reader.join().unwrap(), whole.len());
        bench.same("a.dat");
        bench.end(job);
        let left: Vec<_> = fs::read_dir(bench.to("")).unwrap().map(|found| found.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}

#[test]
fn what_is_shown_is_never_patched_and_the_final_file_is_another_one_then() {
    for way in [Way::Here, Way::Session] {
        let bench = Bench::showing(&[]);
        let job = bench.start(way, Until::Marker(b"{name}.done"[..].into()), DigestAlgorithm::Crc64Nvme);
        let mut whole = content(3, (2 << 20) + 5);
        append(&bench.from("run"), &whole);
        bench.wait_for_bytes("run.partial", whole.len() as u64);
        let shown = File::open(bench.to("run.partial")).unwrap();
        let before = whole.clone();
        let file = OpenOptions::new().write(true).open(bench.from("run")).unwrap();
        for at in [0, whole.len() - 6] {
            file.write_all_at(b"header", at as u64).unwrap();
            whole[at..at + 6].copy_from_slice(b"header");
        }
        append(&bench.from("run.done"), b"");
        bench.wait_for("the marker arrives", || bench.to("run.done").exists());
        bench.same("run");
        let mut read = vec![0; before.len()];
        shown.read_exact_at(&mut read, 0).unwrap();
        assert!(read == before, "a reader saw bytes change");
        assert!(!bench.to("run.partial").exists());
        assert_ne!(shown.metadata().unwrap().ino(), fs::metadata(bench.to("run")).unwrap().ino());
        bench.end(job);
    }
}

#[test]
fn a_file_that_is_cut_is_shown_anew() {
    let bench = Bench::showing(&UNFINISHED);
    let job = bench.start(Way::Session, renamed(), DigestAlgorithm::Crc64Nvme);
    append(&bench.from("x.part"), &content(1, 400_000));
    bench.wait_for_bytes("x.part", 400_000);
    let shown = File::open(bench.to("x.part")).unwrap();
    let file = OpenOptions::new().write(true).open(bench.from("x.part")).unwrap();
    file.set_len(0).unwrap();
    bench.wait_for("it is known to be cut", || bench.heard.has(|e| matches!(e, Followed::Truncated { .. })));
    file.write_all_at(&content(2, 300_000), 0).unwrap();
    bench.wait_for("the new one is shown", || {
        fs::read(bench.to("x.part")).is_ok_and(|shown| shown == content(2, 300_000))
    });
    assert_eq!(shown.metadata().unwrap().len(), 400_000);
    fs::rename(bench.from("x.part"), bench.from("x")).unwrap();
    bench.wait_for("it is sealed", || bench.heard.has_sealed("x", 300_000));
    bench.same("x");
    bench.end(job);
}

#[test]
fn what_was_shown_stays_when_an_attempt_is_broken_off_and_grows_on_with_the_next() {
    let bench = Bench::showing(&UNFINISHED);
    let first = content(5, (3 << 20) + 77);
    append(&bench.from("big.tmp"), &first);
    let job = bench.start(Way::Session, renamed(), DigestAlgorithm::Crc64Nvme);
    bench.wait_for_bytes("big.tmp", first.len() as u64);
    let shown = File::open(bench.to("big.tmp")).unwrap();
    bench.stop.store(true, Relaxed);
    job.join().unwrap();
    let log = super::walk(&bench.to("")).into_iter().find(|path| path.extension().is_some_and(|e| e == "log")).unwrap();
    bench.wait_for("staging is let go", || File::open(&log).unwrap().try_lock().is_ok());
    assert_eq!(fs::read(bench.to("big.tmp")).unwrap().len(), first.len());

    let again = bench.again();
    append(&again.from("big.tmp"), b"and the rest");
    let job = again.start(Way::Session, renamed(), DigestAlgorithm::Crc64Nvme);
    again.wait_for_bytes("big.tmp", first.len() as u64 + 12);
    // The same file, which a reader may have open.
    assert_eq!(shown.metadata().unwrap().len(), first.len() as u64 + 12);
    fs::rename(again.from("big.tmp"), again.from("big")).unwrap();
    again.wait_for("it is sealed", || again.heard.has_sealed("big", first.len() as u64 + 12));
    again.same("big");
    again.end(job);
}

#[test]
fn a_file_of_the_users_is_not_taken_for_one_that_was_shown() {
    let bench = Bench::showing(&[]);
    fs::write(bench.to("x.partial"), b"theirs").unwrap();
    let job = bench.start(Way::Here, Until::Never, DigestAlgorithm::Crc64Nvme);
    append(&bench.from("x"), b"some bytes");
    bench.wait_for("it fails", || bench.heard.failures.lock().unwrap().len() == 1);
    assert_eq!(bench.heard.failures.lock().unwrap()[0].kind, FailureKind::InTheWay);
    bench.end(job);
    assert_eq!(fs::read(bench.to("x.partial")).unwrap(), b"theirs");
}

/// Not with each of its writes: with every try all that the destination has of it is sent again.
#[test]
fn a_file_that_failed_and_grows_on_is_tried_again_after_a_pause() {
    let bench = Bench::showing(&[]);
    fs::write(bench.to("x.partial"), b"theirs").unwrap();
    let job = bench.start(Way::Here, Until::Never, DigestAlgorithm::Crc64Nvme);
    let began = Instant::now();
    append(&bench.from("x"), b"some bytes");
    let failures = || bench.heard.failures.lock().unwrap().len();
    bench.wait_for("it fails", || failures() == 1);
    bench.wait_for("it is tried again", || {
        append(&bench.from("x"), b"and more");
        failures() > 1
    });
    assert!(began.elapsed() >= Duration::from_secs(1), "it was tried at once");
    bench.end(job);
}
