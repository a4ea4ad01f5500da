//! The store by the whole suite, over real servers: one of GridFTP, and one that has hardly more than RFC 959.

mod ftpd;

use conformance::{Ability, Place, Stand, run};
use foreign::ftp::FtpServers;
use foreign::sftp::{Dial, Host, Line};
use ftpd::{Ftpd, Kind};
use model::{FailureKind, Fidelity, Location, Name, Timestamp, TransferOptions};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use store::open::{Opener, Refused, Rights, Shape, SinkRequest};
use store::{Error, How, OpenError, Shelf, Sink, Source};

struct Ftp(Arc<Ftpd>);

struct OnServer {
    server: Arc<Ftpd>,
    directory: tempfile::TempDir,
    servers: FtpServers,
}

struct NoSsh;

impl Dial for NoSsh {
    fn dial(&self, _: &Host) -> Result<Line, OpenError> {
        Err(OpenError::Refused { why: Refused::Unreachable, text: "no ssh".into(), advice: String::new() })
    }
}

const LACKS: &[Ability] = &[
    Ability::InOrder,
    Ability::ReadsOnce,
    Ability::Nodes,
    Ability::HardLinks,
    Ability::Symlinks,
    Ability::Skip,
    Ability::Conditional,
    Ability::LongPaths,
    Ability::OneByOne,
];
/// Of a server that takes a file from its start to its end, and lets anonymous users set neither modes nor the times of others' files.
const PLAIN_LACKS: &[Ability] = &[
    Ability::AnyOrder,
    Ability::InOrder,
    Ability::ReadsOnce,
    Ability::Nodes,
    Ability::HardLinks,
    Ability::Symlinks,
    Ability::Modes,
    // Of directories.
    Ability::Touch,
    Ability::Skip,
    Ability::Conditional,
    Ability::LongPaths,
    Ability::OneByOne,
];

impl Stand for Ftp {
    fn name(&self) -> String {
        format!("{:?}", self.0.kind)
    }

    fn lacks(&self) -> &[Ability] {
        if self.0.kind == Kind::Globus { LACKS } else { PLAIN_LACKS }
    }

    fn place(&self) -> Box<dyn Place> {
        let directory = tempfile::tempdir_in(self.0.top().0).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(directory.path(), open).unwrap();
        let servers = FtpServers::new(Vec::new(), Arc::new(NoSsh));
        Box::new(OnServer { server: self.0.clone(), directory, servers })
    }
}

impl OnServer {
    fn path(&self, name: &Name) -> PathBuf {
        self.directory.path().join(OsStr::from_bytes(name.as_bytes()))
    }

    fn location(&self) -> Location {
        self.below(b"")
    }

    fn below(&self, path: &[u8]) -> Location {
        let root = self.directory.path().file_name().unwrap().to_str().unwrap();
        let root = format!("127.0.0.1:{}{}/{root}/", self.server.port, self.server.top().1);
        Location::Url { scheme: "ftp".into(), rest: [root.as_bytes(), path].concat() }
    }

    fn options(&self) -> TransferOptions {
        let mode = self.server.kind == Kind::Globus;
        TransferOptions { fidelity: Fidelity { mode, ..Fidelity::default() }, ..TransferOptions::default() }
    }
}

impl Place for OnServer {
    fn sink(&self) -> Option<Arc<dyn Sink>> {
        let options = self.options();
        let (rights, shape) = (Rights::Write, Shape::Tree);
        let request = SinkRequest { rights, shape, is_nameless: false, is_own: false, options: &options };
        Some(self.servers.sink(&self.location(), &request).unwrap_or_else(|e| panic!("{e}")).sink)
    }

    fn source(&self) -> Option<Arc<dyn Source>> {
        let opened = self.servers.source(&[self.location()], &self.options());
        Some(opened.unwrap_or_else(|e| panic!("{e}")).source)
    }

    fn can_say(&self, name: &Name) -> bool {
        let is_globus = self.server.kind == Kind::Globus;
        !name.as_bytes().iter().any(|byte| *byte == b'\n' || (is_globus && !(b' '..=b'~').contains(byte)))
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
        let mut pending = vec![self.directory.path().to_owned()];
        while let Some(directory) = pending.pop() {
            for found in std::fs::read_dir(&directory).into_iter().flatten() {
                let path = found.unwrap().path();
                if path.file_name().unwrap().as_bytes().starts_with(b".thalweg-staging-") {
                    left.push(path.strip_prefix(self.directory.path()).unwrap().to_string_lossy().into_owned());
                }
                if path.is_dir() && !path.is_symlink() {
                    pending.push(path);
                }
            }
        }
        left
    }
}

fn conforms(kind: Kind, passed_min: usize) {
    if let Some(server) = Ftpd::start(kind) {
        let report = run(&Ftp(Arc::new(server)));
        // Whoever names a directory of a server may take it away.
        assert_eq!(report.failed(), ["the-root-stays"], "{report}");
        assert!(report.passed() >= passed_min, "{report}");
    }
}

#[test]
fn a_gridftp_server_conforms() {
    conforms(Kind::Globus, 60);
}

#[test]
fn a_plain_server_conforms() {
    conforms(Kind::Vsftpd, 50);
}
