//! Files that are sent while they are written: what is published is what their source holds when it is complete, and nothing of
//! them can be seen before.

mod list;
mod meddled;
mod view;

use crate::endpoint::{client, content, endpoint};
use model::follow::{Follow, FollowEnd, UNFINISHED, Until, View};
use model::{Change, DigestAlgorithm, Failure, JobId, Name, TransferOptions};
use mover::local::{LocalSpec, copy};
use mover::session::PushSpec;
use mover::{Delivered, Ending, Followed, Memory, Observer, Progress, Report};
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::posix::{PosixSink, PosixSource, beneath};

const PATIENCE: Duration = Duration::from_secs(12);

#[derive(Default)]
struct Heard {
    events: Mutex<Vec<Followed>>,
    failures: Mutex<Vec<Failure>>,
    /// Bytes that were not acknowledged, of how many files, when that was told last.
    lag: Mutex<Option<(u64, u64)>>,
}

impl Observer for Heard {
    fn wants_delivered(&self) -> bool {
        false
    }

    fn delivered(&self, _: &[Delivered]) {}

    fn failed(&self, failure: &Failure) {
        self.failures.lock().unwrap().push(failure.clone());
    }

    fn changed(&self, _: &[Change]) {}

    fn followed(&self, event: &Followed) {
        match event {
            Followed::Lag(behind) => *self.lag.lock().unwrap() = Some((behind.bytes, behind.files)),
            _ => self.events.lock().unwrap().push(event.clone()),
        }
    }
}

impl Heard {
    fn has(&self, wanted: impl Fn(&Followed) -> bool) -> bool {
        self.events.lock().unwrap().iter().any(wanted)
    }

    fn has_sealed(&self, path: &str, size: u64) -> bool {
        let wanted = Followed::Sealed { path: path.into(), size_bytes: size };
        self.has(|event| *event == wanted)
    }
}

/// A followed directory, and where it goes.
struct Bench {
    dir: tempfile::TempDir,
    heard: Arc<Heard>,
    progress: Arc<Progress>,
    stop: Arc<AtomicBool>,
    view: Option<Arc<View>>,
    list: Option<Name>,
    is_append_only: bool,
    meddle: Option<meddled::Meddle>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Here,
    Session,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        for name in ["from", "root"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Bench {
            dir,
            heard: Arc::default(),
            progress: Progress::new(),
            stop: Arc::default(),
            view: None,
            list: None,
            is_append_only: false,
            meddle: None,
        }
    }

    /// For another attempt.
    fn again(self) -> Bench {
        Bench { heard: Arc::default(), progress: Progress::new(), stop: Arc::default(), ..self }
    }

    fn from(&self, name: &str) -> PathBuf {
        self.dir.path().join("from").join(name)
    }

    fn to(&self, name: &str) -> PathBuf {
        self.dir.path().join("root").join(name)
    }

    fn start(&self, way: Way, until: Until, digest: DigestAlgorithm) -> JoinHandle<Report> {
        let ends = vec![FollowEnd::Marker(Name::new(b"STOP").unwrap())];
        let options = TransferOptions {
            follow: Some(Arc::new(Follow { is_append_only: self.is_append_only, ..Follow::new(until, ends) })),
            digest,
            chunk_bytes: 1 << 20,
            view: self.view.clone(),
            sealed_list: self.list.clone(),
            ..TransferOptions::default()
        };
        let mut source = PosixSource::new();
        source.add_local(format!("{}/", self.from("").display()).as_bytes()).unwrap();
        let source = meddled::with(source, self.meddle.clone());
        let (heard, progress, stop) = (self.heard.clone(), self.progress.clone(), self.stop.clone());
        let root = self.to("");
        std::thread::spawn(move || match way {
            Way::Here => {
                let directory = Arc::new(beneath::open_directory(&root).unwrap());
                let sink = Arc::new(PosixSink::new(directory.clone(), directory, None));
                let spec = LocalSpec {
                    id: JobId([1; 16]),
                    options,
                    rename_to: None,
                    lanes: Some(2),
                    lanes_first: None,
                    is_sequential: false,
                    memory: Memory::default(),
                };
                copy(spec, source, sink, progress, Some(heard), &|| stop.load(Relaxed)).unwrap()
            }
            Way::Session => {
                let client = client(&endpoint(&root), Some(2));
                let spec = PushSpec { id: JobId([1; 16]), path: Vec::new(), is_single: false, options };
                client.push(spec, source, progress, Some(heard), &|| stop.load(Relaxed))
            }
        })
    }

    /// Ends the job and waits for it.
    fn end(&self, job: JoinHandle<Report>) -> Report {
        File::create(self.from("STOP")).unwrap();
        let report = job.join().unwrap();
        assert!(matches!(report.ending, Ending::Finished(_)), "{:?}", report.ending);
        report
    }

    fn wait_for(&self, what: &str, is_there: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_there() {
            let heard = (self.heard.events.lock().unwrap(), self.heard.failures.lock().unwrap());
            assert!(Instant::now() < deadline, "{what}: {heard:?} {:?}", self.progress.snapshot().counts);
            drop(heard);
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    fn arrived_bytes(&self) -> u64 {
        self.progress.snapshot().counts.bytes_sent
    }

    fn same(&self, name: &str) {
        assert!(fs::read(self.to(name)).unwrap() == fs::read(self.from(name)).unwrap(), "{name} is another file");
    }
}

fn append(path: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(bytes).unwrap();
}

fn renamed() -> Until {
    Until::Rename(UNFINISHED.map(Box::from).to_vec())
}

const WAYS: [(Way, DigestAlgorithm); 4] = [
    (Way::Here, DigestAlgorithm::Crc64Nvme),
    (Way::Session, DigestAlgorithm::Crc64Nvme),
    (Way::Here, DigestAlgorithm::Blake3),
    (Way::Session, DigestAlgorithm::Blake3),
];

#[test]
fn bytes_travel_while_the_file_grows_and_it_appears_whole_when_it_is_renamed() {
    for (way, digest) in WAYS {
        let bench = Bench::new();
        let job = bench.start(way, renamed(), digest);
        let whole = content(7, (3 << 20) + 12_345);
        let growing = bench.from("a.dat.inprogress");
        let mut sent = 0;
        for part in whole.chunks(700_001) {
            append(&growing, part);
            sent += part.len() as u64;
            bench.wait_for("what was appended arrives", || bench.arrived_bytes() >= sent);
            let visible: Vec<_> = fs::read_dir(bench.to("")).unwrap().map(|found| found.unwrap().file_name()).collect();
            assert!(visible.iter().all(|name| name.to_string_lossy().starts_with(".thalweg")), "{visible:?}");
        }
        fs::rename(&growing, bench.from("a.dat")).unwrap();
        bench.wait_for("it is sealed", || bench.heard.has_sealed("a.dat", whole.len() as u64));
        assert!(fs::read(bench.to("a.dat")).unwrap() == whole, "{way:?}");
        let report = bench.end(job);
        assert_eq!(report.snapshot.counts.files_failed, 0);
        // Nothing was sent twice: not even what is compared.
        assert_eq!(bench.arrived_bytes(), whole.len() as u64, "{way:?}");
        let mut left: Vec<_> = fs::read_dir(bench.to("")).unwrap().map(|found| found.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["STOP", "a.dat"], "{way:?}");
    }
}

#[test]
fn a_header_that_is_patched_at_the_end_is_sent_again_before_anything_appears() {
    for (way, digest) in WAYS {
        let bench = Bench::new();
        let job = bench.start(way, renamed(), digest);
        let growing = bench.from("h5.tmp");
        append(&growing, &content(1, (2 << 20) + 5));
        bench.wait_for("it arrives", || bench.arrived_bytes() >= (2 << 20) + 5);
        let file = OpenOptions::new().write(true).open(&growing).unwrap();
        file.write_all_at(b"the header, written at last", 0).unwrap();
        drop(file);
        fs::rename(&growing, bench.from("h5")).unwrap();
        bench.wait_for("it is sealed", || bench.heard.has_sealed("h5", (2 << 20) + 5));
        bench.same("h5");
        assert!(bench.heard.has(|event| matches!(event, Followed::Rewritten { path } if path == b"h5")), "{way:?}");
        bench.end(job);
        // The one chunk that differs, and no other.
        assert_eq!(bench.arrived_bytes(), (2 << 20) + 5 + (1 << 20), "{way:?}");
    }
}

#[test]
fn files_that_end_at_a_chunk_s_boundary_or_beside_it_are_what_their_source_is() {
    let sizes = [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 2 << 20];
    for (way, digest) in [(Way::Here, DigestAlgorithm::Blake3), (Way::Session, DigestAlgorithm::Blake3)] {
        let bench = Bench::new();
        let job = bench.start(way, renamed(), digest);
        for size in sizes {
            append(&bench.from(&format!("f{size}.tmp")), &content(size as u64, size));
        }
        bench.wait_for("all of it arrives", || bench.arrived_bytes() == sizes.iter().sum::<usize>() as u64);
        for size in sizes {
            fs::rename(bench.from(&format!("f{size}.tmp")), bench.from(&format!("f{size}"))).unwrap();
        }
        let report = bench.end(job);
        assert_eq!(report.snapshot.counts.files_failed, 0, "{way:?}");
        sizes.iter().for_each(|size| bench.same(&format!("f{size}")));
        assert!(!bench.heard.has(|event| matches!(event, Followed::Rewritten { .. })), "{way:?}");
    }
}

#[test]
fn a_quiet_file_is_complete_and_one_that_goes_on_is_published_again() {
    for way in [Way::Here, Way::Session] {
        let bench = Bench::new();
        let job = bench.start(way, Until::Quiet(Duration::from_millis(300)), DigestAlgorithm::Crc64Nvme);
        fs::create_dir(bench.from("d")).unwrap();
        append(&bench.from("d/log"), b"first ");
        bench.wait_for("it is sealed", || bench.heard.has_sealed("d/log", 6));
        assert_eq!(fs::read(bench.to("d/log")).unwrap(), b"first ");
        append(&bench.from("d/log"), b"and more");
        bench.wait_for("it is sealed again", || bench.heard.has_sealed("d/log", 14));
        bench.same("d/log");
        assert!(bench.heard.has(|event| matches!(event, Followed::Reopened { path } if path == b"d/log")));
        bench.end(job);
        bench.same("d/log");
    }
}

#[test]
fn a_renamed_file_that_goes_on_is_published_again_also_at_equal_size() {
    for way in [Way::Here, Way::Session] {
        let bench = Bench::new();
        let job = bench.start(way, renamed(), DigestAlgorithm::Crc64Nvme);
        append(&bench.from("log.tmp"), b"first ");
        bench.wait_for("it arrives", || bench.arrived_bytes() >= 6);
        fs::rename(bench.from("log.tmp"), bench.from("log")).unwrap();
        bench.wait_for("it is sealed", || bench.heard.has_sealed("log", 6));
        append(&bench.from("log"), b"and more");
        bench.wait_for("it is sealed again", || bench.heard.has_sealed("log", 14));
        bench.same("log");
        assert!(bench.heard.has(|event| matches!(event, Followed::Reopened { path } if path == b"log")));
        let file = OpenOptions::new().write(true).open(bench.from("log")).unwrap();
        file.write_all_at(b"FIRST", 0).unwrap();
        drop(file);
        let is_reopened = |event: &&Followed| matches!(event, Followed::Reopened { .. });
        // From the second time on it has to rest for longer, or until the end.
        bench.wait_for("it is reopened", || bench.heard.events.lock().unwrap().iter().filter(is_reopened).count() == 2);
        let report = bench.end(job);
        assert_eq!(report.snapshot.counts.files_failed, 0);
        bench.same("log");
    }
}

#[test]
fn a_marker_completes_its_file_and_arrives_after_it() {
    for way in [Way::Here, Way::Session] {
        let bench = Bench::new();
        let job = bench.start(way, Until::Marker(b"{name}.done"[..].into()), DigestAlgorithm::Crc64Nvme);
        append(&bench.from("run"), &content(3, 300_000));
        bench.wait_for("it arrives", || bench.arrived_bytes() >= 300_000);
        assert!(!bench.to("run").exists());
        append(&bench.from("run"), b"the end");
        append(&bench.from("run.done"), b"");
        bench.wait_for("the marker arrives", || bench.to("run.done").exists());
        bench.same("run");
        bench.end(job);
    }
}

#[test]
fn a_file_that_is_cut_or_swapped_begins_anew() {
    for way in [Way::Here, Way::Session] {
        let bench = Bench::new();
        let job = bench.start(way, renamed(), DigestAlgorithm::Crc64Nvme);
        let growing = bench.from("x.part");
        append(&growing, &content(1, 400_000));
        bench.wait_for("it arrives", || bench.arrived_bytes() >= 400_000);
        let mut file = OpenOptions::new().write(true).open(&growing).unwrap();
        file.set_len(0).unwrap();
        bench.wait_for("it is known to be cut", || bench.heard.has(|e| matches!(e, Followed::Truncated { .. })));
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(&content(2, 500_000)).unwrap();
        drop(file);
        fs::rename(&growing, bench.from("x")).unwrap();
        bench.wait_for("it is sealed", || bench.heard.has_sealed("x", 500_000));
        bench.same("x");
        // Another file under the old name, which was described before.
        append(&growing, &content(3, 200_000));
        bench.wait_for("the next one arrives", || bench.arrived_bytes() >= 1_100_000);
        fs::write(bench.from("other"), content(4, 100_000)).unwrap();
        fs::rename(bench.from("other"), &growing).unwrap();
        bench.wait_for("it is swapped", || {
            bench.heard.has(|e| matches!(e, Followed::Replaced { .. } | Followed::Vanished { .. }))
        });
        fs::rename(&growing, bench.from("x")).unwrap();
        bench.wait_for("it is sealed", || bench.heard.has_sealed("x", 100_000));
        bench.same("x");
        bench.end(job);
    }
}

#[test]
fn an_attempt_that_was_broken_off_is_gone_on_with_and_sends_what_is_missing() {
    let bench = Bench::new();
    let growing = bench.from("big.inprogress");
    let first = content(5, (5 << 20) + 77);
    append(&growing, &first);
    let job = bench.start(Way::Session, renamed(), DigestAlgorithm::Crc64Nvme);
    bench.wait_for("it arrives", || bench.arrived_bytes() >= first.len() as u64);
    // The journal is written once a second.
    let log_bytes = || {
        let staging = walk(&bench.to(""));
        staging
            .iter()
            .filter(|path| path.extension().is_some_and(|e| e == "log"))
            .map(|p| p.metadata().unwrap().len())
            .sum::<u64>()
    };
    bench.wait_for("the journal says so", || log_bytes() >= 5 * 64);
    bench.stop.store(true, Relaxed);
    let report = job.join().unwrap();
    assert!(!matches!(report.ending, Ending::Finished(_)));

    // The endpoint lets go of its staging when it hears of the end; until then another attempt has one of its own.
    let logs: Vec<_> =
        walk(&bench.to("")).into_iter().filter(|path| path.extension().is_some_and(|e| e == "log")).collect();
    bench.wait_for("staging is let go", || logs.iter().all(|log| File::open(log).unwrap().try_lock().is_ok()));

    let again = bench.again();
    append(&growing, b"and the rest");
    let job = again.start(Way::Session, renamed(), DigestAlgorithm::Crc64Nvme);
    again.wait_for("the rest arrives", || again.arrived_bytes() >= 12);
    fs::rename(&growing, again.from("big")).unwrap();
    again.wait_for("it is sealed", || again.heard.has_sealed("big", first.len() as u64 + 12));
    again.same("big");
    again.end(job);
    assert!(again.arrived_bytes() <= 12 + (1 << 20), "{} bytes were sent again", again.arrived_bytes());
}

/// Its inode may be that of another file, which was removed.
#[test]
fn what_is_said_to_be_only_appended_to_is_compared_whole_once_a_part_differs() {
    let bench = Bench { is_append_only: true, ..Bench::new() };
    let growing = bench.from("big.inprogress");
    append(&growing, &content(5, 6 << 20));
    let job = bench.start(Way::Session, renamed(), DigestAlgorithm::Crc64Nvme);
    bench.wait_for("it arrives", || bench.arrived_bytes() >= 6 << 20);
    bench.stop.store(true, Relaxed);
    job.join().unwrap();
    fs::write(&growing, content(6, 6 << 20)).unwrap();
    let again = bench.again();
    let job = again.start(Way::Session, renamed(), DigestAlgorithm::Crc64Nvme);
    fs::rename(&growing, again.from("big")).unwrap();
    again.wait_for("it is sealed", || again.heard.has_sealed("big", 6 << 20));
    again.end(job);
    again.same("big");
}

/// Whatever the moment at which their writer goes back to them: its pace is what is tried.
#[test]
fn files_that_are_patched_while_they_are_published_end_as_they_are() {
    for way in [Way::Here, Way::Session] {
        let bench = Bench::new();
        let job = bench.start(way, Until::Quiet(Duration::from_millis(20)), DigestAlgorithm::Crc64Nvme);
        std::thread::scope(|scope| {
            for at in 0..40 {
                let path = bench.from(&format!("f{at}"));
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(at * 7 % 50));
                    append(&path, &content(at, 300_000));
                    std::thread::sleep(Duration::from_millis(20 + at));
                    let file = OpenOptions::new().write(true).open(&path).unwrap();
                    file.write_all_at(b"patched", 1000).unwrap();
                });
            }
        });
        let report = bench.end(job);
        let failures = bench.heard.failures.lock().unwrap();
        assert!(failures.is_empty() && report.snapshot.counts.files_failed == 0, "{way:?}: {failures:?}");
        drop(failures);
        (0..40).for_each(|at| bench.same(&format!("f{at}")));
    }
}

#[test]
fn a_file_that_stays_empty_is_published_too() {
    for (way, digest) in WAYS {
        let bench = Bench::new();
        let job = bench.start(way, renamed(), digest);
        append(&bench.from("empty.tmp"), b"");
        append(&bench.from("other.tmp"), b"x");
        bench.wait_for("it is seen", || bench.arrived_bytes() >= 1);
        fs::rename(bench.from("empty.tmp"), bench.from("empty")).unwrap();
        fs::rename(bench.from("other.tmp"), bench.from("other")).unwrap();
        bench.wait_for("it is sealed", || bench.heard.has_sealed("empty", 0));
        bench.end(job);
        assert_eq!(fs::read(bench.to("empty")).unwrap(), b"");
    }
}

fn walk(at: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(at).into_iter().flatten().map(|entry| entry.unwrap().path());
    found.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn many_files_grow_at_once() {
    const FILES: usize = 200;
    let bench = Bench::new();
    let job = bench.start(Way::Session, renamed(), DigestAlgorithm::Crc64Nvme);
    for round in 0..5 {
        for number in 0..FILES {
            append(&bench.from(&format!("f{number}.tmp")), &content((round * FILES + number) as u64, 1000 + number));
        }
    }
    for number in 0..FILES {
        fs::rename(bench.from(&format!("f{number}.tmp")), bench.from(&format!("f{number}"))).unwrap();
    }
    let report = bench.end(job);
    let failures = bench.heard.failures.lock().unwrap();
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!((report.snapshot.counts.files_done, report.snapshot.counts.files_failed), (FILES as u64 + 1, 0));
    (0..FILES).for_each(|number| bench.same(&format!("f{number}")));
}

#[test]
fn what_is_not_complete_in_the_end_does_not_appear_is_told_and_is_gone_on_with_the_next_time() {
    let bench = Bench::new();
    let first = content(9, 3 << 20);
    let job = bench.start(Way::Session, renamed(), DigestAlgorithm::Crc64Nvme);
    append(&bench.from("never.tmp"), &first);
    bench.wait_for("it is sent", || bench.arrived_bytes() >= 3 << 20);
    *bench.heard.lag.lock().unwrap() = None;
    bench.wait_for("all of it arrives", || *bench.heard.lag.lock().unwrap() == Some((0, 1)));
    let report = bench.end(job);
    assert_eq!(report.snapshot.counts.files_failed, 1);
    assert!(!bench.to("never.tmp").exists() && bench.to("STOP").exists());
    assert_eq!(bench.heard.failures.lock().unwrap().len(), 1);

    let again = bench.again();
    fs::remove_file(again.from("STOP")).unwrap();
    append(&again.from("never.tmp"), b"the end");
    let job = again.start(Way::Session, renamed(), DigestAlgorithm::Crc64Nvme);
    again.wait_for("the rest arrives", || again.arrived_bytes() >= 7);
    fs::rename(again.from("never.tmp"), again.from("never")).unwrap();
    again.wait_for("it is sealed", || again.heard.has_sealed("never", (3 << 20) + 7));
    again.same("never");
    again.end(job);
    assert_eq!(again.arrived_bytes(), 7, "what was there was sent again");
}
