//! Files to which something happens while what was sent of them is compared.

use super::{Bench, WAYS, append, renamed};
use crate::endpoint::content;
use model::follow::Follow;
use model::{Extent, FailureKind, Generation};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use store::posix::PosixSource;
use store::{Found, Holes, Piece, Result, Source, SourceFile, SourceLane, SourceObject, Watch};

/// Done when a file that grew is read from its beginning for the second time: it was sent, and is compared.
pub type Meddle = Arc<dyn Fn() -> Result<()> + Send + Sync>;

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
        self.source.watch(rules)
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

struct MeddledLane {
    lane: Box<dyn SourceLane>,
    meddle: Meddle,
}

impl SourceLane for MeddledLane {
    fn read_whole(&mut self, object: &SourceObject, buffer: &mut [u8]) -> Result<(usize, Generation)> {
        self.lane.read_whole(object, buffer)
    }

    fn open(&mut self, object: &SourceObject) -> Result<Arc<dyn SourceFile>> {
        let (file, meddle) = (self.lane.open(object)?, self.meddle.clone());
        Ok(Arc::new(MeddledFile { file, begun: AtomicU32::new(0), meddle }))
    }
}

struct MeddledFile {
    file: Arc<dyn SourceFile>,
    /// How often it was read from its beginning.
    begun: AtomicU32,
    meddle: Meddle,
}

impl SourceFile for MeddledFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if offset == 0 && self.begun.fetch_add(1, Relaxed) == 1 {
            (self.meddle)()?;
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
        bench.meddle = Some(Arc::new(move || {
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            Ok(())
        }));
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
        bench.meddle = Some(Arc::new(|| {
            Err(store::Error::of_kind(FailureKind::ReadError, "read file", b"", "a fault was injected"))
        }));
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
