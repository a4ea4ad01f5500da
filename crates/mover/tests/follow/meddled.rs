//! Files to which something happens while they are read, or while what was sent of them is compared.

use super::{Bench, WAYS, Way, append, renamed};
use crate::endpoint::content;
use model::follow::{Follow, Until};
use model::{DigestAlgorithm, Extent, FailureKind, Generation};
use mover::Ending;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use store::posix::PosixSource;
use store::{Event, Found, Holes, Piece, Result, Source, SourceFile, SourceLane, SourceObject, Watch};

/// Hears how often a file was read from its beginning before, since it was opened: one that grew is read so for the second time when
/// it was sent, and is compared.
type OnRead = Arc<dyn Fn(&SourceObject, u32) -> Result<()> + Send + Sync>;

#[derive(Clone)]
pub struct Meddle {
    /// Done when a file is read from its beginning.
    on_read: OnRead,
    /// The watch sees nothing after its first look until so much was counted.
    blind_until: Option<(Arc<AtomicU32>, u32)>,
}

impl Meddle {
    fn when_read(on_read: impl Fn(&SourceObject, u32) -> Result<()> + Send + Sync + 'static) -> Option<Meddle> {
        Some(Meddle { on_read: Arc::new(on_read), blind_until: None })
    }
}

pub fn with(source: PosixSource, meddle: Option<Meddle>) -> Arc<dyn Source> {
    let source = Arc::new(source);
    match meddle {
        Some(meddle) => Arc::new(Meddled { source, meddle }),
        None => source,
    }
}

struct Meddled {
    source: Arc<PosixSource>,
    meddle: Meddle,
}

impl Source for Meddled {
    fn scan(&self, emit: &mut dyn FnMut(Found) -> bool) -> Result<()> {
        self.source.scan(emit)
    }

    fn watch(&self, rules: &Follow) -> Result<Option<Box<dyn Watch>>> {
        let watch = self.source.watch(rules)?;
        let blind_until = self.meddle.blind_until.clone();
        Ok(watch.map(|watch| Box::new(MeddledWatch { watch, has_looked: false, blind_until }) as Box<dyn Watch>))
    }

    fn lane(&self) -> Box<dyn SourceLane> {
        Box::new(MeddledLane { lane: self.source.lane(), meddle: self.meddle.clone() })
    }

    fn path(&self, object: &SourceObject) -> Vec<u8> {
        self.source.path(object)
    }

    fn look_again(&self, object: &SourceObject) -> Result<SourceObject> {
        self.source.look_again(object)
    }
}

struct MeddledWatch {
    watch: Box<dyn Watch>,
    has_looked: bool,
    blind_until: Option<(Arc<AtomicU32>, u32)>,
}

impl Watch for MeddledWatch {
    fn next(&mut self, patience: Duration, hear: &mut dyn FnMut(Event)) -> Result<()> {
        let is_blind = self.blind_until.as_ref().is_some_and(|(counter, enough)| counter.load(Relaxed) < *enough);
        if self.has_looked && is_blind {
            std::thread::park_timeout(patience.min(Duration::from_millis(2)));
            return Ok(());
        }
        self.has_looked = true;
        self.watch.next(patience, hear)
    }
}

struct MeddledLane {
    lane: Box<dyn SourceLane>,
    meddle: Meddle,
}

impl SourceLane for MeddledLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> Result<(usize, Generation)> {
        (self.meddle.on_read)(object, 0)?;
        self.lane.read_whole(object, buffer)
    }

    fn open(&mut self, object: &SourceObject) -> Result<Arc<dyn SourceFile>> {
        let (file, object, meddle) = (self.lane.open(object)?, object.clone(), self.meddle.clone());
        Ok(Arc::new(MeddledFile { file, object, begun: AtomicU32::new(0), meddle }))
    }
}

struct MeddledFile {
    file: Arc<dyn SourceFile>,
    object: SourceObject,
    /// How often it was read from its beginning.
    begun: AtomicU32,
    meddle: Meddle,
}

impl SourceFile for MeddledFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if offset == 0 {
            (self.meddle.on_read)(&self.object, self.begun.fetch_add(1, Relaxed))?;
        }
        self.file.read_at(offset, buffer)
    }

    fn generation(&self) -> Result<Generation> {
        self.file.generation()
    }

    fn holes(&self) -> Holes {
        self.file.holes()
    }

    fn piece(&self, extent: Extent) -> Piece {
        self.file.piece(extent)
    }
}

#[test]
fn a_file_that_gets_another_mode_while_it_is_compared_appears_all_the_same() {
    for (way, digest) in WAYS {
        let mut bench = Bench::new();
        let path = bench.from("a.dat");
        bench.meddle = Meddle::when_read(move |_, begun| {
            if begun == 1 {
                fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            }
            Ok(())
        });
        append(&bench.from("a.dat.inprogress"), &content(7, 300_000));
        let job = bench.start(way, renamed(), digest);
        bench.wait_for("it arrives", || bench.arrived_bytes() >= 300_000);
        fs::rename(bench.from("a.dat.inprogress"), bench.from("a.dat")).unwrap();
        bench.wait_for("it is sealed", || bench.heard.has_sealed("a.dat", 300_000));
        let report = bench.end(job);
        assert_eq!(report.snapshot.counts.files_failed, 0, "{way:?}");
        assert_eq!(fs::metadata(bench.from("a.dat")).unwrap().permissions().mode() & 0o777, 0o600);
        bench.same("a.dat");
    }
}

#[test]
fn a_file_that_cannot_be_read_again_to_be_compared_fails_and_the_others_go_on() {
    for (way, digest) in WAYS {
        let mut bench = Bench::new();
        bench.meddle = Meddle::when_read(|_, begun| match begun {
            1 => Err(store::Error::of_kind(FailureKind::ReadError, "read file", b"", "a fault was injected")),
            _ => Ok(()),
        });
        append(&bench.from("a.dat.inprogress"), &content(7, 300_000));
        let job = bench.start(way, renamed(), digest);
        bench.wait_for("it arrives", || bench.arrived_bytes() >= 300_000);
        fs::rename(bench.from("a.dat.inprogress"), bench.from("a.dat")).unwrap();
        bench.wait_for("it fails", || !bench.heard.failures.lock().unwrap().is_empty());
        assert_eq!(bench.heard.failures.lock().unwrap()[0].kind, FailureKind::ReadError, "{way:?}");
        let report = bench.end(job);
        assert_eq!(report.snapshot.counts.files_failed, 1, "{way:?}");
        assert!(!bench.to("a.dat").exists() && bench.to("STOP").exists(), "{way:?}");
    }
}

/// By it each file is complete when it is found.
const AT_ONCE: Until = Until::Quiet(Duration::ZERO);

/// Lets the writer of `f` go on the first so many times that the file is read as one that is complete. Returns how often it did.
fn go_on_when_read(bench: &mut Bench, times: u32, bytes: usize) -> Arc<AtomicU32> {
    let (path, read) = (bench.from("f"), Arc::new(AtomicU32::new(0)));
    let told = read.clone();
    bench.meddle = Meddle::when_read(move |object, _| {
        let is_it = object.entry.name.as_bytes() == b"f" && !object.is_growing();
        if is_it && read.load(Relaxed) < times {
            append(&path, &content(8, bytes));
            read.fetch_add(1, Relaxed);
        }
        Ok(())
    });
    told
}

/// As in one long write, of which the kernel tells when it is over.
#[test]
fn a_file_whose_writer_goes_on_each_time_it_is_read_does_not_fail_before_the_watch_has_told_of_it() {
    for way in [Way::Here, Way::Session] {
        let mut bench = Bench::new();
        append(&bench.from("f"), &content(7, 300_000));
        let read = go_on_when_read(&mut bench, 3, 100);
        bench.meddle = bench.meddle.take().map(|meddle| Meddle { blind_until: Some((read.clone(), 3)), ..meddle });
        let job = bench.start(way, AT_ONCE, DigestAlgorithm::Crc64Nvme);
        bench.wait_for("it is read for the third time", || read.load(Relaxed) == 3);
        let report = bench.end(job);
        let failures = bench.heard.failures.lock().unwrap();
        assert!(failures.is_empty() && report.snapshot.counts.files_failed == 0, "{way:?}: {failures:?}");
        bench.same("f");
    }
}

#[test]
fn a_file_that_was_found_empty_and_is_written_to_before_it_is_read_does_not_fail() {
    for (way, digest) in WAYS {
        let mut bench = Bench::new();
        append(&bench.from("f"), b"");
        let read = go_on_when_read(&mut bench, 1, 300_000);
        let job = bench.start(way, AT_ONCE, digest);
        bench.wait_for("it is read", || read.load(Relaxed) > 0);
        let report = bench.end(job);
        let failures = bench.heard.failures.lock().unwrap();
        assert!(failures.is_empty() && report.snapshot.counts.files_failed == 0, "{way:?}: {failures:?}");
        bench.same("f");
    }
}

#[test]
fn a_file_whose_writer_goes_on_when_following_ends_is_sent_as_it_is_then() {
    for (way, digest) in WAYS {
        let mut bench = Bench::new();
        append(&bench.from("f"), &content(7, 300_000));
        File::create(bench.from("STOP")).unwrap();
        go_on_when_read(&mut bench, 1, 100);
        let report = bench.start(way, AT_ONCE, digest).join().unwrap();
        assert!(matches!(report.ending, Ending::Finished(_)), "{way:?}: {:?}", report.ending);
        let failures = bench.heard.failures.lock().unwrap();
        assert!(failures.is_empty() && report.snapshot.counts.files_failed == 0, "{way:?}: {failures:?}");
        bench.same("f");
        assert!(bench.to("STOP").exists());
    }
}
