//! The store by the whole suite, over servers in this process: one that keeps to the standard, and one with the manners of XRootD.

use conformance::{Ability, Place, Stand, run};
use dav::Sites;
use fakes::dav::{Manners, start};
use model::{FailureKind, Location, Name, Timestamp, TransferOptions};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use store::open::{Opener, Rights, Shape, SinkRequest};
use store::{Error, How, OpenError, Shelf, Sink, Source};

struct Dav(Manners);

struct AtServer {
    directory: tempfile::TempDir,
    location: Location,
    sites: Sites,
}

const LACKS: &[Ability] = &[
    Ability::AnyOrder,
    Ability::ReadsOnce,
    Ability::Journals,
    Ability::Symlinks,
    Ability::Nodes,
    Ability::HardLinks,
    Ability::Touch,
    Ability::Modes,
    Ability::Skip,
    Ability::Conditional,
    Ability::LongPaths,
    Ability::OneByOne,
];

impl Stand for Dav {
    fn name(&self) -> String {
        format!("a WebDAV server with {:?}", self.0)
    }

    fn lacks(&self) -> &[Ability] {
        LACKS
    }

    fn place(&self) -> Box<dyn Place> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("root")).unwrap();
        let address = start(directory.path(), self.0, Arc::new(|_| None));
        let location = Location::Url { scheme: "dav".into(), rest: format!("{address}/root/").into() };
        Box::new(AtServer { directory, location, sites: Sites::default() })
    }
}

impl AtServer {
    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.root().join(OsStr::from_bytes(name.as_bytes()))
    }
}

impl Place for AtServer {
    fn sink(&self) -> Option<Arc<dyn Sink>> {
        let options = TransferOptions::default();
        let (rights, shape) = (Rights::Write, Shape::Tree);
        let wish = SinkRequest { rights, shape, is_nameless: false, is_own: false, options: &options };
        Some(self.sites.sink(&self.location, &wish).ok().unwrap().sink)
    }

    fn source(&self) -> Option<Arc<dyn Source>> {
        let locations = [self.location.clone()];
        Some(self.sites.source(&locations, &TransferOptions::default()).ok().unwrap().source)
    }

    fn shelf(&self, path: &[u8], how: How) -> store::Result<Box<dyn Shelf>> {
        self.sites.shelf_below(&self.location, path, how).map_err(|error| match error {
            OpenError::Source { error, .. } => error,
            other => Error::of_kind(FailureKind::Other, "open", path, &other.to_string()),
        })
    }

    fn content(&self, path: &[u8]) -> Result<Option<Vec<u8>>, conformance::Fault> {
        Ok(std::fs::read(self.root().join(OsStr::from_bytes(path))).ok())
    }

    fn kept(&self, time: Timestamp) -> Timestamp {
        Timestamp { nanoseconds: 0, ..time }
    }

    fn put(&self, name: &Name, content: &[u8]) {
        std::fs::write(self.path(name), content).unwrap();
    }

    fn remove(&self, name: &Name) {
        std::fs::remove_file(self.path(name)).unwrap();
    }

    fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        let mut pending = vec![self.root()];
        while let Some(directory) = pending.pop() {
            for found in std::fs::read_dir(&directory).into_iter().flatten() {
                let path = found.unwrap().path();
                if path.file_name().unwrap().as_bytes().starts_with(b".thalweg-staging-") {
                    left.push(path.display().to_string());
                }
                if path.is_dir() {
                    pending.push(path);
                }
            }
        }
        left
    }
}

#[test]
fn a_server_that_keeps_to_the_standard_conforms() {
    let report = run(&Dav(Manners { decodes: true, keeps: true, takes_times: true, ..Manners::default() }));
    report.assert_conforms();
    assert!(report.passed() > 50, "{report}");
}

#[test]
fn a_server_that_replaces_in_spite_of_all_conforms_too() {
    let report = run(&Dav(Manners { decodes: true, takes_times: true, ..Manners::default() }));
    report.assert_conforms();
}
