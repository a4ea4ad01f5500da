//! The stores of this workspace, each by the whole suite.

use conformance::memory::{MemoryStand, Order, Rules};
use conformance::{Ability, Fault, Place, Stand, Stocked, Verdict, run};
use model::synthetic::Generated;
use model::{Fidelity, Kind, Name};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Cursor;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use store::pipe::{PipeSink, PipeSource};
use store::posix::beneath::Mounts;
use store::posix::target::Target;
use store::posix::{PosixSink, PosixSource, beneath};
use store::synthetic::{GeneratedSource, NullSink};
use store::{Error, Found, How, Shelf, Sink, Source};

/// What both ends of a POSIX file system keep besides content, so that every check applies.
const FIDELITY: Fidelity = Fidelity {
    owner: false,
    group: false,
    numeric_ids: false,
    mode: true,
    xattrs: false,
    acls: false,
    hard_links: true,
    sparse: false,
    devices: false,
    specials: true,
};

/// Directories below one of the machine's: its temporary one, or one in memory.
struct Posix {
    above: PathBuf,
    fidelity: Fidelity,
}

const POSIX_LACKS: &[Ability] = &[Ability::InOrder, Ability::ReadsOnce, Ability::Conditional];

impl Stand for Posix {
    fn name(&self) -> String {
        format!("posix below {}", self.above.display())
    }

    fn lacks(&self) -> &[Ability] {
        POSIX_LACKS
    }

    fn place(&self) -> Box<dyn Place> {
        let directory = tempfile::tempdir_in(&self.above).unwrap();
        std::fs::create_dir(directory.path().join("root")).unwrap();
        Box::new(PosixPlace { directory, fidelity: self.fidelity })
    }
}

struct PosixPlace {
    directory: tempfile::TempDir,
    fidelity: Fidelity,
}

impl PosixPlace {
    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.root().join(OsStr::from_bytes(name.as_bytes()))
    }
}

impl Place for PosixPlace {
    fn sink(&self) -> Option<Arc<dyn Sink>> {
        let root = Arc::new(beneath::open_directory(&self.root()).unwrap());
        Some(Arc::new(PosixSink::new(root.clone(), root, None).with_fidelity(self.fidelity, true)))
    }

    fn source(&self) -> Option<Arc<dyn Source>> {
        let mut source = PosixSource::new();
        source.keep(self.fidelity);
        source.add_local(format!("{}/", self.root().display()).as_bytes()).unwrap();
        Some(Arc::new(source))
    }

    /// As an endpoint reaches what is below its root.
    fn shelf(&self, path: &[u8], how: How) -> store::Result<Box<dyn Shelf>> {
        let names = model::name::relative_path(path).unwrap();
        let root = beneath::open_directory(&self.root()).unwrap();
        let failed = |e| Error::new("open", b"", e);
        if how == (How::Make { with_parents: true }) {
            beneath::make_directories(root.as_fd(), &names[..names.len() - 1]).map_err(failed)?;
        }
        let target = Target::beneath(root.as_fd(), &names, path.ends_with(b"/"), Mounts::Kept);
        Ok(Box::new(target.map_err(failed)?))
    }

    fn put(&self, name: &Name, content: &[u8]) {
        std::fs::write(self.path(name), content).unwrap();
    }

    fn remove(&self, name: &Name) {
        std::fs::remove_file(self.path(name)).unwrap();
    }

    /// Whatever a scan of the root leaves out, and everything in it.
    fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        let mut pending = vec![self.root()];
        while let Some(directory) = pending.pop() {
            for found in std::fs::read_dir(&directory).into_iter().flatten() {
                let path = found.unwrap().path();
                let shown = path.strip_prefix(self.root()).unwrap().to_string_lossy().into_owned();
                if shown.starts_with(".thalweg-staging-") {
                    left.push(shown);
                    pending.push(path);
                }
            }
        }
        left
    }
}

#[test]
fn posix_conforms_on_the_temporary_file_system() {
    let report = run(&Posix { above: std::env::temp_dir(), fidelity: FIDELITY });
    report.assert_conforms();
    assert_eq!(
        report.not_applicable(),
        ["read-once-in-order", "replace-only-what-was-decided-on", "chunks-out-of-order-are-refused"]
    );
}

#[test]
fn posix_conforms_in_memory() {
    let above = PathBuf::from("/dev/shm");
    if needs::met(above.is_dir(), "no file system in memory at /dev/shm") {
        run(&Posix { above, fidelity: FIDELITY }).assert_conforms();
    }
}

#[test]
fn posix_conforms_where_runs_of_zeros_are_holes() {
    run(&Posix { above: std::env::temp_dir(), fidelity: Fidelity { sparse: true, ..FIDELITY } }).assert_conforms();
}

#[test]
fn memory_conforms_by_each_of_its_rules() {
    for order in [Order::Any, Order::Parts(1 << 12)] {
        for is_conditional in [false, true] {
            let report = run(&MemoryStand::new(Rules { order, is_conditional, ..Rules::default() }, None));
            report.assert_conforms();
            assert_eq!(report.not_applicable().contains(&"replace-only-what-was-decided-on"), !is_conditional);
        }
    }
}

struct Generator;

impl Stand for Generator {
    fn name(&self) -> String {
        "a generated source".into()
    }

    fn lacks(&self) -> &[Ability] {
        &[Ability::Sink, Ability::Shelf, Ability::ReadsOnce, Ability::Changes]
    }

    fn place(&self) -> Box<dyn Place> {
        Box::new(GeneratedPlace)
    }
}

struct GeneratedPlace;

impl Place for GeneratedPlace {
    /// What it has is known by reading every file whole, once.
    fn stocked(&self, _: bool) -> Result<Stocked, Fault> {
        let source = Arc::new(GeneratedSource::new(Generated { files: 1100, file_bytes: 70_001 }));
        let mut objects = BTreeMap::new();
        let mut lane = source.lane();
        source.scan(&mut |found| {
            let Found::Object(object) = found else { panic!("nothing of it fails") };
            let mut content = vec![0; object.entry.size_bytes() as usize];
            let seen = match object.entry.kind {
                Kind::Directory => conformance::Seen::Directory,
                _ => {
                    lane.read_whole(&object, &mut content).unwrap();
                    conformance::Seen::File(content)
                }
            };
            objects.insert(source.path(&object), seen);
            true
        })?;
        Ok(Stocked { source, objects })
    }
}

#[test]
fn a_generated_source_conforms() {
    let report = run(&Generator);
    report.assert_conforms();
    assert_eq!(report.passed(), 10, "{report}");
}

struct Null;

impl Stand for Null {
    fn name(&self) -> String {
        "the null sink".into()
    }

    fn lacks(&self) -> &[Ability] {
        &[Ability::Source, Ability::Shelf, Ability::Keeps, Ability::Journals, Ability::ReadsStaged, Ability::InOrder]
    }

    fn place(&self) -> Box<dyn Place> {
        Box::new(NullPlace)
    }
}

struct NullPlace;

impl Place for NullPlace {
    fn sink(&self) -> Option<Arc<dyn Sink>> {
        Some(Arc::new(NullSink))
    }
}

#[test]
fn the_null_sink_conforms_as_far_as_anything_applies_to_it() {
    let report = run(&Null);
    report.assert_conforms();
    assert_eq!(report.passed(), 1, "{report}");
    assert_eq!(*report.verdict("small-round-trip"), Verdict::NotApplicable(Ability::Keeps));
}

struct PipeIn;

impl Stand for PipeIn {
    fn name(&self) -> String {
        "a pipe as a source".into()
    }

    fn lacks(&self) -> &[Ability] {
        &[Ability::Sink, Ability::Shelf, Ability::Rereads, Ability::Changes, Ability::Directories]
    }

    fn place(&self) -> Box<dyn Place> {
        Box::new(PipeInPlace)
    }
}

struct PipeInPlace;

impl Place for PipeInPlace {
    fn stocked(&self, _: bool) -> Result<Stocked, Fault> {
        let content: Vec<u8> = (0..100_003u32).map(|at| (at % 251) as u8).collect();
        let objects = BTreeMap::from([(b"stdin".to_vec(), conformance::Seen::File(content.clone()))]);
        Ok(Stocked { source: Arc::new(PipeSource::new(Box::new(Cursor::new(content)))), objects })
    }
}

#[test]
fn a_pipe_conforms_as_a_source() {
    let report = run(&PipeIn);
    report.assert_conforms();
    assert_eq!(*report.verdict("read-once-in-order"), Verdict::Passed);
    assert_eq!(report.passed(), 4, "{report}");
}

struct PipeOut;

impl Stand for PipeOut {
    fn name(&self) -> String {
        "a pipe as a sink".into()
    }

    fn lacks(&self) -> &[Ability] {
        use Ability::*;
        &[
            Source,
            Shelf,
            Stages,
            AnyOrder,
            Journals,
            ReadsStaged,
            Directories,
            Skip,
            Touch,
            Modes,
            HardLinks,
            Nodes,
            Prune,
        ]
    }

    fn place(&self) -> Box<dyn Place> {
        Box::new(PipeOutPlace::default())
    }
}

#[derive(Default)]
struct PipeOutPlace {
    written: Arc<Mutex<Vec<u8>>>,
}

struct Writer(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Place for PipeOutPlace {
    fn sink(&self) -> Option<Arc<dyn Sink>> {
        Some(Arc::new(PipeSink::new(Box::new(Writer(self.written.clone())))))
    }

    /// A pipe has one object, whatever it is called.
    fn content(&self, _: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        Ok(Some(self.written.lock().unwrap().clone()))
    }
}

#[test]
fn a_pipe_conforms_as_a_sink() {
    let report = run(&PipeOut);
    report.assert_conforms();
    let passed = ["small-round-trip", "large-round-trip", "chunks-out-of-order-are-refused"];
    assert!(passed.iter().all(|name| *report.verdict(name) == Verdict::Passed), "{report}");
    assert_eq!(report.passed(), passed.len(), "{report}");
}
