//! The store by the whole suite, over the server of OpenSSH at the other end of two pipes.

mod server;

use conformance::{Ability, Place, Stand, run};
use foreign::sftp::Servers;
use model::{FailureKind, Fidelity, Location, Name, Timestamp, TransferOptions};
use server::{Local, is_there};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use store::open::{Opener, Rights, Shape, SinkRequest};
use store::{Error, How, OpenError, Shelf, Sink, Source};

struct Sftp;

struct OnServer {
    directory: tempfile::TempDir,
    servers: Servers,
}

const LACKS: &[Ability] = &[
    Ability::InOrder,
    Ability::ReadsOnce,
    Ability::Nodes,
    Ability::HardLinks,
    Ability::Skip,
    Ability::Conditional,
    Ability::LongPaths,
    Ability::OneByOne,
];

impl Stand for Sftp {
    fn name(&self) -> String {
        "an SFTP server".into()
    }

    fn lacks(&self) -> &[Ability] {
        LACKS
    }

    fn place(&self) -> Box<dyn Place> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("root")).unwrap();
        Box::new(OnServer { directory, servers: Servers::new(Arc::new(Local)) })
    }
}

impl OnServer {
    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.root().join(OsStr::from_bytes(name.as_bytes()))
    }

    fn location(&self) -> Location {
        self.below(b"")
    }

    fn below(&self, path: &[u8]) -> Location {
        let root = format!("local{}/", self.root().display());
        Location::Url { scheme: "sftp".into(), rest: [root.as_bytes(), path].concat() }
    }

    fn options() -> TransferOptions {
        TransferOptions { fidelity: Fidelity { mode: true, ..Fidelity::default() }, ..TransferOptions::default() }
    }
}

impl Place for OnServer {
    fn sink(&self) -> Option<Arc<dyn Sink>> {
        let options = OnServer::options();
        let (rights, shape) = (Rights::Write, Shape::Tree);
        let request = SinkRequest { rights, shape, is_nameless: false, is_own: false, options: &options };
        Some(self.servers.sink(&self.location(), &request).ok().unwrap().sink)
    }

    fn source(&self) -> Option<Arc<dyn Source>> {
        Some(self.servers.source(&[self.location()], &OnServer::options()).ok().unwrap().source)
    }

    fn shelf(&self, path: &[u8], how: How) -> store::Result<Box<dyn Shelf>> {
        self.servers.shelf(&self.below(path), how).map_err(|error| match error {
            OpenError::Source { error, .. } => error,
            other => Error::of_kind(FailureKind::Other, "open", path, &other.to_string()),
        })
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
                let shown = path.strip_prefix(self.root()).unwrap().to_string_lossy().into_owned();
                if path.file_name().unwrap().as_bytes().starts_with(b".thalweg-staging-") {
                    left.push(shown);
                }
                if path.is_dir() && !path.is_symlink() {
                    pending.push(path);
                }
            }
        }
        left
    }
}

#[test]
fn a_server_conforms() {
    if is_there() {
        let report = run(&Sftp);
        // Whoever names a directory of a server may take it away.
        assert_eq!(report.failed(), ["the-root-stays"], "{report}");
        assert!(report.passed() > 60, "{report}");
    }
}
